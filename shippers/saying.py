"""The agent's voice."""

import sys


def say(text: str) -> None:
    """One line on standard error."""
    print(f"rootrank-shipper: {text}", file=sys.stderr, flush=True)
