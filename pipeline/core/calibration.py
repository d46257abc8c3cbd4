"""From a rule's own estimate to how often verdicts like it were right.

Rules say how much their root proves. What such an estimate is worth was measured on simulated incidents
(`make calibration`); `pipeline/calibration.toml` holds the result.
"""

from bisect import bisect_left
from collections.abc import Mapping, Sequence
from itertools import groupby
from typing import Final, Literal

from msgspec import Struct

from schemas.records import Coverage

# What a verdict names: a cause; a cause where a whole kind of log is missing; who stopped, but no cause; neither.
Kind = Literal["cause", "partial", "silent", "unknown"]
# An estimate, and the share of verdicts with it that were right.
Point = tuple[float, float]
# Whom a verdict blames so surely is taken out of service; below it is a suspect: two rivals that the clocks cannot
# order have half of their rule's confidence each.
CERTAIN: Final = 0.9
# Nothing is so sure or so wrong that no later case could tell.
MOST: Final = 0.99
# How much of the order of estimates stays among those that were as often right.
SLOPE: Final = 0.1
_NONE: Final = Coverage(expected=0, seen=0)


class Calibration(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Points by rising estimate; between two of them the line that joins them. Without points an estimate stands.

    `on`: what it was measured on. `partial`: of verdicts that name a cause although of all nodes no kernel log, or no
    log of the job, was read; `silent`: of those that name who stopped, without a cause; `unknown`: neither.
    """

    on: str = ""
    cause: list[Point] = []
    partial: list[Point] = []
    silent: list[Point] = []
    unknown: list[Point] = []

    def of(self, estimate: float, kind: Kind) -> float:
        """The share of verdicts with this estimate that are right. Fewer logs make nothing surer."""
        share = _at(getattr(self, kind), estimate)
        return min(share, _at(self.cause, estimate)) if kind == "partial" else share


def _at(points: list[Point], estimate: float) -> float:
    if not points:
        return estimate
    after = bisect_left(points, (estimate, 0.0))
    if after in (0, len(points)):
        return points[min(after, len(points) - 1)][1]
    (x0, y0), (x1, y1) = points[after - 1], points[after]
    return y0 + (y1 - y0) * (estimate - x0) / (x1 - x0)


def kind_of(class_: str, coverage: Mapping[str, Coverage], *, names_somebody: bool) -> Kind:
    """What a verdict names, and from what it was concluded."""
    if class_.startswith("unknown/"):
        return "silent" if names_somebody else "unknown"
    return "partial" if missing_kinds(coverage) else "cause"


def missing_kinds(coverage: Mapping[str, Coverage]) -> list[str]:
    """The kinds of log of which no node's was read; where no node is known nobody knows whose are read."""
    return [kind for kind in ("application", "kernel") if not coverage.get(kind, _NONE).seen]


def fitted(verdicts: Sequence[tuple[float, bool]]) -> list[Point]:
    """The rising points that fit estimates and whether each was right best (pool adjacent violators).

    A share of few verdicts is drawn to one half as if two more, one of them right, had been seen.
    """
    pools: list[_Pool] = []
    for estimate, group in groupby(sorted(verdicts), key=lambda verdict: verdict[0]):
        results = [right for _, right in group]
        pools.append(_Pool(first=estimate, last=estimate, count=len(results), right=sum(results)))
        while len(pools) > 1 and pools[-2].share >= pools[-1].share:
            b, a = pools.pop(), pools.pop()
            pools.append(_Pool(first=a.first, last=b.last, count=a.count + b.count, right=a.right + b.right))
    points: list[Point] = []
    for pool in pools:
        for at in dict.fromkeys((pool.first, pool.last)):
            # Of two estimates that were as often right the higher one stays the higher one.
            share = pool.share + SLOPE * (at - (pool.first + pool.last) / 2)
            points.append((at, round(max(min(share, MOST), points[-1][1] if points else 0.0), 4)))
    return points


class _Pool(Struct, frozen=True, kw_only=True):
    """Verdicts with estimates from `first` to `last`."""

    first: float
    last: float
    count: int
    right: int

    @property
    def share(self) -> float:
        return (self.right + 1) / (self.count + 2)
