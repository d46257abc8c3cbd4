"""Dumps of PyTorch's flight recorder: what one rank dumped, where it stands, and what all ranks together show."""
