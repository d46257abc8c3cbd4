"""What the agent measures itself, one file per thing that is looked at."""
