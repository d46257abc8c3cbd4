"""Run a command that dies with its parent: `python tether.py PARENT_PID COMMAND...`.

The kernel sends SIGKILL to this process when the thread that started it ends (Linux PR_SET_PDEATHSIG, kept over exec),
so a kill -9 of the parent leaves no orphan. Imports nothing of rootrank: it must start in a few milliseconds.
"""

import ctypes
import os
import signal
import sys

PR_SET_PDEATHSIG = 1


def main() -> None:
    """Tie this process to its parent, then become the command."""
    parent_pid = int(sys.argv[1])
    ctypes.CDLL(None, use_errno=True).prctl(PR_SET_PDEATHSIG, signal.SIGKILL, 0, 0, 0)
    if os.getppid() != parent_pid:  # the parent died before the request was in place
        sys.exit(1)
    os.execvp(sys.argv[2], sys.argv[2:])  # noqa: S606 - an argument list, no shell


if __name__ == "__main__":
    main()
