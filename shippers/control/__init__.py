"""What one agent of the whole cluster reads of its schedulers: Kubernetes and Slurm, with read-only rights."""
