"""The commands of `rootrank`, one file each: options in, exit code out."""
