"""What a control plane tells, as lines: named by what they speak of, so that whoever reads it gives the same line the
same name.

`generation` is the object and which side of it, `offset` grows with what happens to that: a count, a time in seconds.
Neither depends on who asked when.
"""

import datetime
import threading
from collections.abc import Mapping, Sequence
from typing import Any, Final

from msgspec import Struct

from schemas.records import Gap
from schemas.vocabulary import SourceState
from shippers.pieces import Told as Record

MAX_TEXT: Final = 2_000
_WAITING: Final = 5_000
SECOND_NS: Final = 10**9


class Line(Struct, frozen=True, kw_only=True):
    """One line. `at_ns` is when the control plane saw it, by its own clock."""

    generation: str
    offset: int
    text: str
    at_ns: int
    attributes: dict[str, str] = {}

    @property
    def body(self) -> str:
        """The line as it is sent: behind the time that the control plane gives."""
        return f"{stamp(self.at_ns)} {self.text}"


class Step(Struct, frozen=True, kw_only=True):
    """What was read up to a position."""

    lines: Sequence[Line]
    records: Sequence[Record]
    gaps: Sequence[Gap]
    position: str


class Outlet:
    """Between the thread that asks a control plane and the agent's own: what was told, and how it stands."""

    def __init__(self, source: str) -> None:
        self.stopping = threading.Event()
        self._source = source
        self._changed = threading.Condition()
        self._steps: list[Step] = []
        self._lines = 0
        self.state: SourceState = "off"
        self.reason: str | None = "not asked yet"
        self.through_ns = 0

    def put(self, lines: Sequence[Line], position: str, *, records: Sequence[Record] = (), gap: str = "") -> None:
        """Hand over what was read, and how far. Waits while much is waiting; gives up when the agent stops."""
        gaps = [Gap(source=self._source, reason=gap)] if gap else []
        with self._changed:
            while self._lines >= _WAITING and not self.stopping.is_set():
                self._changed.wait(0.2)
            self._steps.append(Step(lines=lines, records=records, gaps=gaps, position=position))
            self._lines += len(lines)

    def take(self, most: int) -> list[Step]:
        """The steps that wait, up to so many lines (one step may have more)."""
        taken: list[Step] = []
        count = 0
        with self._changed:
            while self._steps and (not taken or count + len(self._steps[0].lines) <= most):
                taken.append(self._steps.pop(0))
                count += len(taken[-1].lines)
            self._lines -= count
            self._changed.notify_all()
        return taken

    def is_empty(self) -> bool:
        """Whether nothing waits."""
        with self._changed:
            return not self._steps

    def stand(self, state: SourceState, reason: str | None = None, through_ns: int = 0) -> None:
        """How the source stands now, and up to when it was read."""
        with self._changed:
            self.state, self.reason = state, reason
            self.through_ns = max(self.through_ns, through_ns)


def stamp(at_ns: int) -> str:
    """A time as RFC 3339 in UTC; with a fraction only where it has one."""
    seconds, rest = divmod(at_ns, SECOND_NS)
    text = datetime.datetime.fromtimestamp(seconds, tz=datetime.UTC).strftime("%Y-%m-%dT%H:%M:%S")
    return f"{text}.{rest // 1000:06}Z" if rest else f"{text}Z"


def time_ns(text: object) -> int:
    """A time that Kubernetes wrote, in ns; 0 where it is none."""
    try:
        at = datetime.datetime.fromisoformat(str(text))
    except ValueError:
        return 0
    if at.tzinfo is None:
        return 0
    since = at - datetime.datetime(1970, 1, 1, tzinfo=datetime.UTC)
    return max(0, (since.days * 86_400 + since.seconds) * SECOND_NS + since.microseconds * 1_000)


def at(shape: object, *path: str) -> Any:
    """What stands at a path of an object of the API; None where nothing does."""
    for key in path:
        if not isinstance(shape, Mapping):
            return None
        shape = shape.get(key)
    return shape


def entries(shape: object, *path: str) -> list[Mapping[str, Any]]:
    """The objects of a list at a path."""
    found = at(shape, *path)
    return [each for each in found if isinstance(each, Mapping)] if isinstance(found, list) else []


def words(text: object) -> str:
    """Text of somebody else on one line, cut."""
    return " ".join(str(text or "").split())[:MAX_TEXT]
