"""Pure logic: no I/O, no clock reads, no streams. Time and records are arguments, records are results."""
