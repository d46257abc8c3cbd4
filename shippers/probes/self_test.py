"""Marks that `rootrank-shipper check --self-test` leaves in the spool folder: each becomes one line that means nothing.

So the line goes the way of all others: read by the agent, spooled, sent, aligned, stored.
"""

import os
import re
import stat
from collections.abc import Sequence
from pathlib import Path
from typing import Final

from shippers.pieces import Moment
from shippers.probes.probe import said

NAME: Final = "self_test"
THING: Final = "self-test"
_TOKEN: Final = re.compile(r"[0-9a-f]{16}")
_AT_ONCE: Final = 100


class SelfTestMarks:
    """A look at the folder of marks. A mark that was taken is removed; one that says something else as well."""

    name = NAME
    every_s = 1.0
    may_hang = False

    def __init__(self, spool: Path) -> None:
        self._folder = folder_of(spool)

    def open(self, memo: str) -> None:
        """Nothing to open: the folder is made by who leaves a mark."""

    def look(self, moment: Moment) -> Sequence[str]:
        """A line for each mark."""
        try:
            names = sorted(path.name for path in self._folder.iterdir())[:_AT_ONCE]
        except FileNotFoundError:
            return []
        return [said(THING, mark=name) for name in names if self._take(name)]

    def memo(self) -> str:
        """Nothing is remembered."""
        return ""

    def close(self) -> None:
        """Nothing is open."""

    def _take(self, name: str) -> bool:
        """Remove the mark. Whether it is one: a regular file called by its token."""
        path = self._folder / name
        if not stat.S_ISREG(path.lstat().st_mode):
            return False
        path.unlink()
        return _TOKEN.fullmatch(name) is not None


def folder_of(spool: Path) -> Path:
    """Where marks are left."""
    return spool / "self-test"


def leave(spool: Path, token: str) -> Path:
    """Leave a mark, following no link: who tests may be root, and the folder belongs to the agent. Raises OSError."""
    folder = folder_of(spool)
    folder.mkdir(mode=0o770, exist_ok=True)
    fd = os.open(folder, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC)
    try:
        os.close(os.open(token, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW, 0o640, dir_fd=fd))
    finally:
        os.close(fd)
    return folder / token
