"""What programs print, each in its own words of its version."""
