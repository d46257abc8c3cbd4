"""What of a source's lines goes on: all, or those that may mean something with lines around them; at a bounded rate.

What is passed over by selection is no loss: the next line that goes on says how much it was (`PASSED_LINES`). What is
shed because there was too much of it is a loss, with a gap marker that counts it.
"""

from collections import deque
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from typing import Final

import msgspec

from schemas.documents import FOLLOW_BYTES
from schemas.matching import without_digits
from schemas.records import Gap, RawLine
from schemas.selecting import Watch
from schemas.signals import Worth, load
from shippers.config import Passing

PASSED_LINES: Final = "passed.lines"
PASSED_BYTES: Final = "passed.bytes"
_SECOND_NS: Final = 10**9
_BLOCK_LINES: Final = 1000  # an indented block goes on to its end, but not for ever
_FORGET_NS: Final = 10 * _SECOND_NS
_ALIKE: Final = 10  # lines of one shape that pass within that time whatever the rate is
_SHAPES: Final = 256
_SHAPE_CHARS: Final = 160

Sized = tuple[RawLine, int]  # a line, and how many bytes it is in its source


@dataclass(slots=True)
class Passed:
    """What goes on, and what was shed."""

    lines: list[RawLine] = field(default_factory=list)
    gaps: list[Gap] = field(default_factory=list)


class Bucket:
    """So many lines and bytes a second, and those of `burst_s` seconds at once."""

    def __init__(self, settings: Passing) -> None:
        self._rates = (settings.max_lines_per_s, settings.max_bytes_per_s)
        self._burst_s = settings.burst_s
        self._left = [rate * settings.burst_s for rate in self._rates]
        self._mono_ns: int | None = None

    def fill(self, mono_ns: int) -> None:
        """Time has passed."""
        passed_s = 0.0 if self._mono_ns is None else max(0, mono_ns - self._mono_ns) / _SECOND_NS
        self._mono_ns = mono_ns
        for place, rate in enumerate(self._rates):
            self._left[place] = min(rate * self._burst_s, self._left[place] + rate * passed_s)

    def take(self, lines: int, size: int) -> bool:
        """Whether so much may go on; then it is taken out."""
        (most_lines, most_bytes), (lines_left, bytes_left) = self._rates, self._left
        if (most_lines and lines_left < lines) or (most_bytes and bytes_left < size):
            return False
        self._left = [lines_left - lines, bytes_left - size]
        return True


class Gate:
    """The gate of one stream of lines.

    Line numbers are given to what goes on, so lines come with any number and `numbered` gives them theirs.
    """

    def __init__(self, settings: Passing, saved: str = "") -> None:
        self._settings = settings
        self._selects = settings.select == "significant"
        self._limit = Bucket(settings)
        self._reserve = Bucket(settings)
        self._seen: dict[str, tuple[int, int]] = {}
        self._watch: Watch | None = None
        self._before: deque[Sized] = deque()
        self._passed_lines, self._passed_bytes = _restored(saved)
        self._after = self._block = self._follow_bytes = 0
        self._kept_mono_ns: int | None = None
        self._heard_mono_ns = 0
        self._shed_mono_ns: int | None = None

    def is_shedding(self, mono_ns: int) -> bool:
        """Whether lines were shed just now."""
        return self._shed_mono_ns is not None and mono_ns - self._shed_mono_ns < _SECOND_NS

    def shed(self, mono_ns: int) -> None:
        """More was passed over by who reads the source."""
        self._shed_mono_ns = mono_ns

    def memo(self) -> str:
        """What to save: how much was passed over and not told yet."""
        return f"{self._passed_lines},{self._passed_bytes}" if self._passed_lines else ""

    def admits(self, lines: int, size: int, mono_ns: int, *, is_fresh: bool = True) -> bool:
        """Whether so many lines go on without a look at each."""
        if self._selects:
            return False
        self._limit.fill(mono_ns)
        return not is_fresh or self._limit.take(lines, size)

    def take(
        self, lines: Sequence[Sized], mono_ns: int, *, is_fresh: bool = True, whole: Sequence[bool] = ()
    ) -> Passed:
        """What of these goes on. `is_fresh`: they are written now, so a rate says something of them.

        Lines that are `whole` go on in any case.
        """
        self._limit.fill(mono_ns)
        self._reserve.fill(mono_ns)
        passed, lost = Passed(), list[Sized]()
        self._heard_mono_ns = mono_ns
        for number, (line, size) in enumerate(lines):
            goes_on = [(line, size)]
            if self._selects:
                goes_on = self._selected(line, size, mono_ns, is_whole=bool(whole) and whole[number])
            for each in goes_on:
                if not is_fresh or self._may_pass(*each, mono_ns):
                    passed.lines.append(self._told(each[0]))
                else:
                    lost.append(each)
        if lost:
            self._shed_mono_ns = mono_ns
            passed.gaps.append(self._gap(lost))
        return passed

    def quiet(self, mono_ns: int, *, is_over: bool = False) -> list[RawLine]:
        """The last lines of a source that has fallen silent: how far it came is worth knowing."""
        silent_s = (mono_ns - self._heard_mono_ns) / _SECOND_NS
        if not self._before or not (is_over or silent_s >= self._settings.heartbeat_s):
            return []
        self._kept_mono_ns = mono_ns
        return [self._told(line) for line, _ in self._release()]

    def _selected(self, line: RawLine, size: int, mono_ns: int, *, is_whole: bool) -> list[Sized]:
        """The line with those before it that go on with it; nothing where it waits or is passed over."""
        settings = self._settings
        worth = self._worth(line.body)
        if is_whole or worth != Worth.NOTHING:
            if worth > Worth.MARK:
                self._after, self._block = settings.context_lines, _BLOCK_LINES
            if worth == Worth.HEAD:
                self._follow_bytes = FOLLOW_BYTES
            self._kept_mono_ns = mono_ns
            released = self._release() if worth > Worth.MARK else []
            self._before.clear()
            return [*released, (line, size)]
        is_inside = self._after > 0 or self._follow_bytes > 0 or (self._block > 0 and line.body[:1] in (" ", "\t"))
        self._block = self._block - 1 if is_inside else 0
        self._after, self._follow_bytes = max(0, self._after - 1), max(0, self._follow_bytes - size)
        if self._kept_mono_ns is None:
            self._kept_mono_ns = mono_ns
        is_due = mono_ns - self._kept_mono_ns >= settings.heartbeat_s * _SECOND_NS
        if is_inside or is_due:
            self._kept_mono_ns = mono_ns
            self._before.clear()
            return [(line, size)]
        self._passed_lines += 1
        self._passed_bytes += size
        self._before.append((line, size))
        if len(self._before) > settings.context_lines:
            self._before.popleft()
        return []

    def _release(self) -> list[Sized]:
        released = list(self._before)
        self._before.clear()
        self._passed_lines -= len(released)
        self._passed_bytes -= sum(size for _, size in released)
        return released

    def _told(self, line: RawLine) -> RawLine:
        """The line; the first one after some that were passed over says how much that was."""
        if not self._passed_lines:
            return line
        said = {PASSED_LINES: str(self._passed_lines), PASSED_BYTES: str(self._passed_bytes)}
        self._passed_lines = self._passed_bytes = 0
        return msgspec.structs.replace(line, attributes={**line.attributes, **said})

    def _worth(self, body: str) -> Worth:
        if self._watch is None:
            self._watch = Watch(load())
        return self._watch.worth(body)

    def _may_pass(self, line: RawLine, size: int, mono_ns: int) -> bool:
        """Whether the rate allows it.

        Beyond it lines that may mean something have as much room again, and after that the first ones of each shape:
        the cause of a storm is seldom one of its many lines.
        """
        if self._limit.take(1, size):
            return True
        if self._worth(line.body) == Worth.NOTHING:
            return False
        return self._reserve.take(1, size) or self._is_new(line.body, mono_ns)

    def _is_new(self, body: str, mono_ns: int) -> bool:
        shape = without_digits(body[:_SHAPE_CHARS])
        since_ns, count = self._seen.get(shape, (mono_ns, 0))
        if mono_ns - since_ns > _FORGET_NS:
            since_ns, count = mono_ns, 0
        if not count and len(self._seen) >= _SHAPES:
            self._seen = {key: seen for key, seen in self._seen.items() if mono_ns - seen[0] <= _FORGET_NS}
        if count >= _ALIKE or (shape not in self._seen and len(self._seen) >= _SHAPES):
            return False
        self._seen[shape] = (since_ns, count + 1)
        return True

    def _gap(self, lost: list[Sized]) -> Gap:
        first, last = lost[0][0], lost[-1][0]
        return Gap(
            source=first.source, reason=f"{self.limits}; lines in between that may mean something were kept",
            lost_lines=len(lost), lost_bytes=sum(size for _, size in lost), from_offset=first.offset,
            to_offset=last.offset,
        )  # fmt: skip

    @property
    def limits(self) -> str:
        """What was exceeded."""
        settings = self._settings
        return (
            f"more than {settings.max_lines_per_s} lines/s or {settings.max_bytes_per_s} bytes/s for more than "
            f"{settings.burst_s:g} s (max_lines_per_s, max_bytes_per_s, burst_s)"
        )


def numbered(lines: Sequence[RawLine], numbers: Iterator[int]) -> list[RawLine]:
    """Lines that go on, with the numbers under which they do."""
    return [msgspec.structs.replace(line, seq=next(numbers)) for line in lines]


def _restored(saved: str) -> tuple[int, int]:
    lines, _, size = saved.partition(",")
    return (int(lines), int(size)) if lines.isdecimal() and size.isdecimal() else (0, 0)
