"""What lines say of one thing that cannot all be true, and what merely followed one another in time.

A rank that was restarted elsewhere is no contradiction: the lines of its two lives do not overlap. Where two lines
disagree about one time, neither is used; which of them is wrong is never guessed.
"""

from bisect import bisect_left
from collections.abc import Hashable, Iterable, Mapping
from itertools import combinations
from typing import Final, TypeVar

from msgspec import Struct

from pipeline.core.facts import Claim, Mark, Span
from schemas.records import TIME_MAX_NS, TIME_MIN_NS, Gap

# Two lives of one rank begin at least so far apart: start-up alone takes longer.
LIFE_NS: Final = 5_000_000_000
# More values than this of one thing are not compared pair by pair; a pair among the first ones is enough.
MAX_VALUES: Final = 16
MAX_TOLD: Final = 8

Value = TypeVar("Value", bound=Hashable)


class Sight(Struct, kw_only=True, gc=False):
    """When a value was said, and the first line that said it. `shared`: the span is that of the only claim."""

    span: Span
    first: tuple[int, str, int]
    where: str
    shared: bool = True


class Contradiction(Struct, frozen=True, kw_only=True):
    """Two lines that disagree. `thing` is of what, `said` and `also` are the values with their lines."""

    kind: str
    thing: str
    said: str
    said_at: str
    also: str
    also_at: str
    node: str | None = None

    @property
    def text(self) -> str:
        """The contradiction in words."""
        both = f"{self.said} ({self.said_at}) and {self.also} ({self.also_at})"
        return f"contradiction: {self.thing} {both}; neither is used"


class Lives:
    """Tells what followed one another from what contradicts itself."""

    def __init__(self, marks: Iterable[Mark]) -> None:
        self._offsets: dict[str, list[int]] = {}
        times = []
        for mark in marks:
            self._offsets.setdefault(mark.source, []).append(mark.offset)
            if mark.at_ns != TIME_MIN_NS:
                times.append(mark.at_ns)
        for offsets in self._offsets.values():
            offsets.sort()
        self._times = sorted(times)

    def apart(self, a: Span, b: Span) -> bool:
        """Whether one of the two is over before the other begins."""
        if a.hi_ns < b.lo_ns or b.hi_ns < a.lo_ns:
            return True
        shared = a.lines.keys() & b.lines.keys()
        if not shared:
            return self._ended(a, b) or self._ended(b, a)
        return all(self._apart_in(source, a, b) for source in shared)

    def _apart_in(self, source: str, a: Span, b: Span) -> bool:
        first, second = (a, b) if a.lines[source][1] < b.lines[source][0] else (b, a)
        last, begin = first.lines[source][1], second.lines[source][0]
        if last >= begin:
            return False
        offsets = self._offsets.get(source, [])
        at = bisect_left(offsets, last)
        if at < len(offsets) and offsets[at] < begin:
            return True
        return _timed(first, second) and second.since_ns - first.until_ns >= LIFE_NS

    def _ended(self, a: Span, b: Span) -> bool:
        """Whether processes ended between the last line of a and the first of b."""
        if not _timed(a, b):
            return False
        at = bisect_left(self._times, a.until_ns)
        return at < len(self._times) and self._times[at] <= b.since_ns

    def clash(self, said: Mapping[Value, Sight]) -> tuple[Value, Value] | None:
        """Two values that were said of one time, or None. The first ones said come first."""
        if len(said) < 2:
            return None
        ordered = sorted(said, key=lambda value: (said[value].first, str(value)))[:MAX_VALUES]
        pairs = combinations(ordered, 2)
        return next(((a, b) for a, b in pairs if not self.apart(said[a].span, said[b].span)), None)


def _timed(first: Span, second: Span) -> bool:
    return first.until_ns != TIME_MAX_NS and second.since_ns != TIME_MIN_NS


def see(said: dict[Value, Sight], value: Value, claim: Claim) -> None:
    """Note that a claim says a value."""
    known = said.get(value)
    if known is None:
        said[value] = Sight(span=claim.span, first=claim.first, where=claim.where)
        return
    if known.shared:
        known.span, known.shared = known.span.copy(), False
    known.span.take(claim.span)
    if (claim.first, claim.where) < (known.first, known.where):
        known.first, known.where = claim.first, claim.where


def contradiction(
    kind: str, thing: str, said: Mapping[Value, Sight], pair: tuple[Value, Value], *, node: str | None = None
) -> Contradiction:
    """The contradiction of a pair of values."""
    a, b = pair
    return Contradiction(
        kind=kind, thing=thing, said=str(a), said_at=said[a].where, also=str(b), also_at=said[b].where, node=node
    )


def gaps_of(contradictions: Iterable[Contradiction]) -> list[Gap]:
    """One gap per contradiction; of one kind only the first few are told, and how many more there are."""
    by_kind: dict[str, list[Contradiction]] = {}
    for one in sorted(contradictions, key=lambda c: (c.kind, c.thing, c.said, c.also)):
        by_kind.setdefault(one.kind, []).append(one)
    gaps = []
    for found in by_kind.values():
        for number, one in enumerate(found[:MAX_TOLD], 1):
            more = len(found) - MAX_TOLD if number == MAX_TOLD else 0
            tail = f"; {more} more of this kind" if more > 0 else ""
            gaps.append(Gap(source="placement", node=one.node, reason=one.text + tail))
    return gaps
