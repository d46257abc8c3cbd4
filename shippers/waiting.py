"""The pause between two passes: for a time, until there is something to read, or until somebody ends it."""

import contextlib
import os
import select
from collections.abc import Iterable
from typing import Final

_NONE: Final = -1
_QUIET_S: Final = 2.0
_STEADY_S: Final = 2.0
_STEADY_PAUSE_S: Final = 0.4
_QUIET_PAUSE_S: Final = 0.5


class Pause:
    """Waits in one thread; `end` may be called by any, and in a signal handler: it takes no lock."""

    def __init__(self) -> None:
        self.has_ended = False
        self._ended, self._end = os.pipe2(os.O_NONBLOCK | os.O_CLOEXEC)

    def wait(self, seconds: float, descriptors: Iterable[int] = ()) -> bool:
        """Whether one of the descriptors has something, or an end, before the time is over."""
        poll = select.poll()
        for each in (self._ended, *descriptors):
            poll.register(each, select.POLLIN)
        return bool(poll.poll(1000 * seconds))

    def end(self) -> None:
        """No wait lasts from here on."""
        self.has_ended = True
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


class Pace:
    """How long to wait after a pass, and whose next line may end that.

    The kernel's may always. The journal's may after a silence, until an entry has ended a pause and no line came of it:
    most of what services write means nothing.
    """

    def __init__(self, linger_s: float, now_s: float) -> None:
        self._linger_s = linger_s
        self._read_s = self._still_s = now_s  # when the last line came, and when last none came
        self._is_quiet = self._is_journal_mute = False
        self.was_woken = False

    @property
    def hears_journal(self) -> bool:
        """Whether the journal's next entry ends the pause."""
        return self._is_quiet and not self._is_journal_mute

    def after_pass(self, now_s: float, *, has_lines: bool) -> float:
        """How long to wait now (s)."""
        if has_lines:
            self._read_s, self._is_journal_mute = now_s, False
        else:
            self._still_s, self._is_journal_mute = now_s, self._is_journal_mute or self.was_woken
        self.was_woken = False
        quiet_s = now_s - self._read_s
        self._is_quiet = quiet_s > _QUIET_S
        return pause_s(self._linger_s, quiet_s=quiet_s, flowing_s=now_s - self._still_s)


def pause_s(linger_s: float, *, quiet_s: float, flowing_s: float) -> float:
    """How long until the next pass; longer where for seconds nothing has come, or something each time.

    A pass, and a batch, cost much the same however many lines there are.
    """
    if quiet_s > _QUIET_S:
        return max(linger_s, min(10 * linger_s, _QUIET_PAUSE_S))
    if flowing_s > _STEADY_S:
        return max(linger_s, min(8 * linger_s, _STEADY_PAUSE_S))
    return linger_s
