"""The time axis of a timeline: where each moment is drawn.

Incidents last from microseconds to hours, and most of that is waiting: an axis to scale would draw all that matters in
one point. So each moment has a column of its own, in the order of time. The room between two columns grows with the
logarithm of the time between them, and that time is written there: 1 ms, 1 s and 10 min stay apart and readable. Two
strokes cut the axis where a gap is drawn far shorter than the others would have it. Columns of one time are one tick.

The map from time to place is monotone: bounds that are drawn apart are apart. Bounds that reach beyond the first or the
last moment are drawn at the scale of the gap beside it, as far as a margin of fixed width allows. A moment without a
time stands behind the one told before it, which says nothing of when it was.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise
from math import log10
from statistics import median_low
from typing import Final

from pipeline.report import words

MARGIN: Final = 40.0
_STEP: Final = 26.0
_UNTIMED_STEP: Final = 34.0
_MOST: Final = 260.0
_STRETCH: Final = 2.2
_LABEL_PX: Final = 6.2
_CUT: Final = 10


@dataclass(frozen=True, kw_only=True)
class Moment:
    """Something to place: its time and half the width of its bounds in ns, or None where no clock gives them."""

    key: str
    at_ns: int | None = None
    error_ns: int = 0


@dataclass(frozen=True, kw_only=True)
class Gap:
    """What lies between two columns: from where to where, how long (ns; None where not known), and whether cut."""

    left: float
    right: float
    ns: int | None
    cut: bool


@dataclass(frozen=True, kw_only=True)
class Axis:
    """Columns from left to right. `columns` gives the place of a moment, `times` those that have a time."""

    left: float
    right: float
    columns: dict[str, float]
    times: list[tuple[int, float]]
    gaps: list[Gap]
    earliest_ns: int
    latest_ns: int

    def low(self, at_ns: int) -> float:
        """Where a lower bound is drawn."""
        return self._at(at_ns, [x for t, x in self.times if t == at_ns][:1])

    def high(self, at_ns: int) -> float:
        """Where an upper bound is drawn: behind all moments of the same time."""
        return self._at(at_ns, [x for t, x in self.times if t == at_ns][-1:])

    def _at(self, at_ns: int, exact: list[float]) -> float:
        if exact:
            return exact[0]
        (first_ns, first), (last_ns, last) = self.times[0], self.times[-1]
        if at_ns < first_ns:
            return first - self._margin(first_ns - at_ns, first_ns - self.earliest_ns, self.gaps)
        if at_ns > last_ns:
            return last + self._margin(at_ns - last_ns, self.latest_ns - last_ns, self.gaps[::-1])
        for (before_ns, before), (after_ns, after) in pairwise(self.times):
            if before_ns < at_ns < after_ns:
                return before + (after - before) * _share(at_ns - before_ns, after_ns - before_ns)
        return last

    def _margin(self, ns: int, longest_ns: int, gaps: list[Gap]) -> float:
        """How far from the outermost moment `ns` beyond it are drawn, at the scale of the first of the gaps."""
        scale = next(((gap.right - gap.left) / gap.ns for gap in gaps if gap.ns), MARGIN)
        return min(MARGIN, longest_ns * scale) * _share(ns, longest_ns)


def axis_of(moments: Sequence[Moment], left: float, right: float) -> Axis:
    """Place the moments, given in the order of telling, between `left` and `right` (px)."""
    ordered = _ordered(moments)
    timed = [m for m in ordered if m.at_ns is not None]
    bounds = [(m.at_ns, m.error_ns) for m in timed if m.at_ns is not None]
    earliest = min((at - error for at, error in bounds), default=0)
    latest = max((at + error for at, error in bounds), default=0)
    first_ns, last_ns = (bounds[0][0], bounds[-1][0]) if bounds else (0, 0)
    start = left + (MARGIN if earliest < first_ns else _STEP / 2)
    end = right - (MARGIN if latest > last_ns else _STEP / 2)
    lengths = _lengths(ordered)
    widths = _widths(lengths, end - start)
    columns, x = {}, start
    for moment, width in zip(ordered, [*widths, 0.0], strict=False):
        columns[moment.key] = x
        x += width
    times = [(m.at_ns, columns[m.key]) for m in ordered if m.at_ns is not None]
    stop = max(columns.values(), default=start) + (MARGIN if latest > last_ns else _STEP / 2)
    return Axis(
        left=left, right=stop, columns=columns, times=times, gaps=_gaps(times), earliest_ns=earliest, latest_ns=latest
    )  # fmt: skip


def _ordered(moments: Sequence[Moment]) -> list[Moment]:
    """By time; what has none, behind the one told before it."""
    ordered = sorted((m for m in moments if m.at_ns is not None), key=lambda m: m.at_ns or 0)
    before: Moment | None = None
    for moment in moments:
        if moment.at_ns is None:
            ordered.insert(0 if before is None else ordered.index(before) + 1, moment)
        before = moment
    return ordered


def _lengths(ordered: Sequence[Moment]) -> list[int | None]:
    """The time from each moment to the next; None where one of them has none."""
    return [
        None if one.at_ns is None or other.at_ns is None else other.at_ns - one.at_ns
        for one, other in pairwise(ordered)
    ]


def _widths(lengths: Sequence[int | None], room: float) -> list[float]:
    """The least for each gap, then the room to write its length into it, the longest first, then by its logarithm."""
    widths = [_UNTIMED_STEP if ns is None else _STEP for ns in lengths]
    spare = room - sum(widths)
    if spare <= 0:
        return [width * room / sum(widths) for width in widths]
    timed = [(ns, number) for number, ns in enumerate(lengths) if ns]
    for ns, number in sorted(timed, reverse=True):
        more = min(spare, max(0.0, _LABEL_PX * len(words.duration(ns)) + 14 - widths[number]))
        widths[number] += more
        spare -= more
    weight = sum(log10(1 + ns) for ns, _ in timed)
    for ns, number in timed:
        widths[number] = min(_MOST, widths[number] + spare * log10(1 + ns) / weight)
    stretch = min(_STRETCH, room / sum(widths)) if widths else 1.0
    return [width * stretch for width in widths]


def _gaps(times: Sequence[tuple[int, float]]) -> list[Gap]:
    pairs = [(one, other, other[0] - one[0]) for one, other in pairwise(times)]
    scales = [ns / max(1.0, other[1] - one[1]) for one, other, ns in pairs if ns]
    usual = median_low(scales) if scales else 0.0
    return [
        Gap(left=one[1], right=other[1], ns=ns, cut=ns / max(1.0, other[1] - one[1]) > _CUT * usual)
        for one, other, ns in pairs
    ]


def _share(part: int, whole: int) -> float:
    return min(1.0, part / whole) if whole > 0 else 0.0
