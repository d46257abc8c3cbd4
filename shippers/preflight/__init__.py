"""What a run should have set before it starts, so that its failure can be explained."""
