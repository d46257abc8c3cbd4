"""The node agent: reads log files and the kernel log of one machine and ships them as raw batches."""
