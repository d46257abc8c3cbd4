"""What the rules say, to people: which line is what and why, what nobody reads, and the reference of all signals."""
