"""What schedulers and inventories write, as spans and job attempts. Pure: text in, values out."""
