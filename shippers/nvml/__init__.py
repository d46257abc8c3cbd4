"""What NVML says of the GPUs: asked in a process of its own, so that a call that hangs or crashes stops nobody else."""
