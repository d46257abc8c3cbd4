"""What jobs, schedulers and training scripts tell the agent of this node: who runs here, and how far it is."""
