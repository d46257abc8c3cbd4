"""`rootrank-shipper`: what training scripts call again and again starts without the rest of the agent."""

import sys


def main() -> int:
    """The command. Returns the exit code."""
    if sys.argv[1:2] == ["annotate"]:
        from shippers.commands.annotate import main as annotate

        return annotate(sys.argv[2:])
    from shippers.__main__ import main as shipper

    return shipper()


if __name__ == "__main__":
    sys.exit(main())
