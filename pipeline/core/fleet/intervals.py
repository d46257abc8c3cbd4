"""Sets of instants as sorted, disjoint half-open intervals in integer ns. Exact: nothing is rounded."""

from bisect import bisect_right
from collections.abc import Iterable, Iterator, Sequence
from typing import Final, TypeVar

Span = tuple[int, int]
V = TypeVar("V")
# The end of what has not ended.
FOREVER: Final = 2**63 - 1


def union(spans: Iterable[Span]) -> list[Span]:
    """The instants in any of the intervals, which may overlap, be empty or come in any order."""
    whole: list[Span] = []
    for begin, end in sorted(spans):
        if end <= begin:
            continue
        if whole and begin <= whole[-1][1]:
            if end > whole[-1][1]:
                whole[-1] = (whole[-1][0], end)
        else:
            whole.append((begin, end))
    return whole


def minus(spans: Sequence[Span], without: Sequence[Span]) -> list[Span]:
    """The instants of one set that are not in another."""
    if not without:
        return list(spans)
    rest: list[Span] = []
    for begin, end in spans:
        at = begin
        for hole_begin, hole_end in overlapping(without, begin, end):
            if hole_begin > at:
                rest.append((at, hole_begin))
            at = hole_end
        if at < end:
            rest.append((at, end))
    return rest


def overlapping(spans: Sequence[Span], begin: int, end: int) -> Iterator[Span]:
    """What the set has of [begin, end), in order."""
    for index in range(max(bisect_right(spans, (begin, FOREVER)) - 1, 0), len(spans)):
        from_ns, to_ns = spans[index]
        if from_ns >= end:
            return
        if to_ns > begin:
            yield max(from_ns, begin), min(to_ns, end)


def measure(spans: Sequence[Span], begin: int, end: int) -> int:
    """How much of [begin, end) is in the set, in ns."""
    return sum(b - a for a, b in overlapping(spans, begin, end))


def has(spans: Sequence[Span], at_ns: int) -> bool:
    """Whether an instant is in the set."""
    return measure(spans, at_ns, at_ns + 1) == 1


def paint(steps: list[tuple[int, int, V]], begin: int, end: int, value: V) -> list[tuple[int, int, V]]:
    """Steps (from, to, value) with `value` in [begin, end), whatever held there before."""
    if end <= begin:
        return steps
    if not steps or steps[-1][1] <= begin:
        return [*steps, (begin, end, value)]
    before = [(a, min(b, begin), v) for a, b, v in steps if a < begin]
    after = [(max(a, end), b, v) for a, b, v in steps if b > end]
    return [*before, (begin, end, value), *after]
