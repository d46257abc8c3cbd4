"""The pause between two passes: for a time, until there is something to read, or until somebody ends it."""

import contextlib
import os
import select
from collections.abc import Iterable
from typing import Final

_NONE: Final = -1


class Pause:
    """Waits in one thread; `end` may be called by any, and in a signal handler."""

    def __init__(self) -> None:
        self._ended, self._end = os.pipe2(os.O_NONBLOCK | os.O_CLOEXEC)

    def wait(self, seconds: float, descriptors: Iterable[int] = ()) -> bool:
        """Whether one of the descriptors has something, or an end, before the time is over."""
        poll = select.poll()
        for each in (self._ended, *descriptors):
            poll.register(each, select.POLLIN)
        return bool(poll.poll(1000 * seconds))

    def end(self) -> None:
        """No wait lasts from here on."""
        if self._end != _NONE:
            with contextlib.suppress(OSError):  # it is full, or closed by now
                os.write(self._end, b"\0")

    def close(self) -> None:
        """Give the descriptors back. Nobody may wait any more."""
        ended, end = self._ended, self._end
        self._ended = self._end = _NONE
        for each in (ended, end):
            if each != _NONE:
                os.close(each)
