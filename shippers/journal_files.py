"""Whether journalctl finds a journal at all.

One that follows as JSON says nothing where it finds none, and waits: another one is asked that writes for people.
"""

from collections.abc import Callable, Sequence
from typing import Final

from shippers.config import JournalSettings
from shippers.journalctl import Journalctl

_SECOND_NS: Final = 10**9
_ANSWER_NS: Final = 3 * _SECOND_NS  # a large journal takes long to open; then there is one
_AGAIN_NS: Final = 60 * _SECOND_NS
_NONE: Final = "No journal files"
_PLACES: Final = "/var/log/journal or /run/log/journal"

Start = Callable[[Sequence[str]], Journalctl]


class JournalFiles:
    """Asks in the background, and again each minute while there are none."""

    def __init__(self, settings: JournalSettings, start: Start) -> None:
        self._settings = settings
        self._begin = start
        self._child: Journalctl | None = None
        self._asked_mono_ns = 0
        self.are_none = False

    @property
    def reason(self) -> str:
        """What is said of a journal that is not there, with what to do."""
        settings = self._settings
        where = settings.directory or _PLACES
        whose = f" of namespace {settings.namespace}" if settings.namespace else ""
        do = "start systemd-journald, or set [journal] directory (a container: mount the node's journal)"
        return f"no journal files{whose} in {where}; {do}"

    def found(self, mono_ns: int) -> bool | None:
        """Whether there are some; None while that is not known. Unanswered it is as before, and at first some."""
        if self._child is None:
            if self.are_none and mono_ns - self._asked_mono_ns < _AGAIN_NS:
                return False
            return self._ask(mono_ns)
        status = self._child.ended()
        if status is None and mono_ns - self._asked_mono_ns < _ANSWER_NS:
            return False if self.are_none else None
        if status is not None:
            self.are_none = status == 0 and self._child.said().startswith(_NONE)
        self.close()
        return not self.are_none

    def close(self) -> None:
        """Ask no more."""
        if self._child is not None:
            self._child.close()
            self._child = None

    def _ask(self, mono_ns: int) -> bool | None:
        settings = self._settings
        command = [settings.journalctl, "--lines=0", "--output=short", "--merge", "--no-pager"]
        command += [f"--directory={settings.directory}"] if settings.directory else []
        command += [f"--namespace={settings.namespace}"] if settings.namespace else []
        self._asked_mono_ns = mono_ns
        try:
            self._child = self._begin(command)
        except OSError:
            self.are_none = False
            return True
        return False if self.are_none else None
