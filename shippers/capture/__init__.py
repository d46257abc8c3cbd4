"""Evidence that is taken on the node before it is gone: opt-in, bounded, read only (docs/decisions/0032-capture.md)."""
