"""Marks in the kernel log: lines of our own between two readings of the raw clock.

The kernel stamps its log by a clock of its own (sched_clock), which runs at another rate than CLOCK_MONOTONIC_RAW. A
line that was written between two raw readings and comes back with its stamp relates the two from both sides.
"""

import os
import secrets
from collections.abc import Callable
from pathlib import Path
from typing import Final

from schemas.clock_notes import MARK, around
from shippers.clock import Clock

EVERY_NS: Final = 60 * 10**9
KMSG: Final = Path("/dev/kmsg")
_WAITING: Final = 8  # marks that were written and not read back: the ring may have overwritten them
_DEBUG: Final = "<7>"

Write = Callable[[bytes], object]


class KmsgMarks:
    """Writes a mark a minute and knows it again. Where the device cannot be written it says so once and stops."""

    def __init__(self, clock: Clock, tell: Callable[[str], None], write: Write | None = None) -> None:
        self._clock = clock
        self._tell = tell
        self._write = write
        self._token = secrets.token_hex(4)  # marks of other agents and of earlier runs are not ours
        self._count = 0
        self._next_raw_ns: int | None = None
        self._is_off = False
        self._waiting: dict[str, dict[str, str]] = {}

    def mark_if_due(self) -> None:
        """Write a mark if the last one is a minute old."""
        now_ns = self._clock.raw_ns()
        if self._is_off or (self._next_raw_ns is not None and now_ns < self._next_raw_ns):
            return
        self._next_raw_ns = now_ns + EVERY_NS
        self._count += 1
        text = f"{MARK} {self._token}-{self._count}"
        line = f"{_DEBUG}{text}\n".encode()
        try:
            self._write = write = self._write or open_kmsg()
            before_ns = self._clock.raw_ns()
            write(line)
            after_ns = self._clock.raw_ns()
        except OSError as error:
            self._is_off = True
            why = f"{KMSG}: {error.strerror}"
            self._tell(f"no marks in the kernel log: {why}; run as root, or set [clock] kmsg_marker = false")
            return
        self._waiting[text] = around(before_ns, after_ns)
        while len(self._waiting) > _WAITING:
            del self._waiting[next(iter(self._waiting))]

    def attributes_of(self, text: str) -> dict[str, str]:
        """The raw clock before and after a mark of ours was written, once; nothing for any other record."""
        return self._waiting.pop(text, {}) if text.startswith(MARK) else {}


def open_kmsg() -> Write:
    """What writes a record into the kernel log. Raises OSError."""
    fd = os.open(KMSG, os.O_WRONLY | os.O_CLOEXEC)
    return lambda line: os.write(fd, line)
