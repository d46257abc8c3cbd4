"""Which bounds are kept: the tightest of each bucket of time, of wide buckets where they are old.

Of bounds that are close in time only the tightest, the drift taken off, is a corner of the hull. Old ones are loosened
by what the drift may have changed since, so that their corners are far from each other: 256 s kept in buckets of 2 s,
and of 8 s after the newest 16 s, gave the same bounds as all in buckets of 2 s (docs/clocks-benchmark.md).
"""

from math import ceil
from typing import Final

from pipeline.core.clocks.polygon import Point, bend

FINE_NS: Final = 2_000_000_000
COARSE_NS: Final = 8_000_000_000
FINE_FOR_NS: Final = 16_000_000_000
WINDOW_NS: Final = 256_000_000_000


def keep(points: list[Point], t: float, bound: float, drift: float) -> None:
    """Add an upper bound (a lower one negated, with the drift negated), unless its bucket holds a tighter one."""
    new = (t, float(ceil(bound + bend(t))))
    place = len(points)
    while place and points[place - 1][0] // FINE_NS > t // FINE_NS:
        place -= 1
    if not place or points[place - 1][0] // FINE_NS < t // FINE_NS:
        points.insert(place, new)
    elif _is_tighter(new, points[place - 1], drift):
        points[place - 1] = new


def age(points: list[Point], now: float, before: float, drift: float) -> None:
    """Merge what became old since `before`, and drop what left the window."""
    first = now - WINDOW_NS
    while len(points) > 1 and points[0][0] < first:
        del points[0]
    old, place = now - FINE_FOR_NS, len(points)
    while place and points[place - 1][0] >= old:
        place -= 1
    while place > 1 and points[place - 1][0] >= before - FINE_FOR_NS - FINE_NS:
        if points[place - 1][0] // COARSE_NS == points[place - 2][0] // COARSE_NS:
            del points[place - 2 if _is_tighter(points[place - 1], points[place - 2], drift) else place - 1]
        place -= 1


def _is_tighter(one: Point, other: Point, drift: float) -> bool:
    return one[1] - bend(one[0]) - drift * one[0] <= other[1] - bend(other[0]) - drift * other[0]


def moved(points: list[Point], t: float, x: float) -> list[Point]:
    """The same bounds from an origin `t` ns later and `x` ns further."""
    return [(at - t, float(ceil(value - bend(at) - x + bend(at - t)))) for at, value in points]
