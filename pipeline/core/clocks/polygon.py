"""Every (offset, drift) that a set of certain bounds of the offset leaves possible: a convex polygon, exactly.

A bound says that offset(t) <= u, or that offset(t) >= l. With the drift changing by at most `KAPPA` per second, and
a = offset(now), b = drift(now), tau = t - now, it says a + b*tau <= u + KAPPA*tau^2/2, or a + b*tau >= l -
KAPPA*tau^2/2: half-planes of (a, b). Up to a term linear in t, KAPPA*tau^2/2 does not depend on `now`, so the convex
hull of (t, u + KAPPA*t^2/2) is that of every `now`: only its slopes shift. Offsets and times are ns as float, relative
to an origin near them (float64 resolves no better than 256 ns at 1.7e18); drifts are ns per ns. The line under all
one-way delays is that of Moon, Skelly and Towsley (INFOCOM 1999), the hull that of Zhang, Liu and Xia (INFOCOM 2002).
"""

from collections.abc import Sequence
from typing import Final

from msgspec import Struct

KAPPA: Final = 3e-17  # per ns: 3e-8 s/s^2, a drift that changes by 1.8 ppm in a minute
DRIFT_MAX: Final = 1e-4  # of a crystal against a disciplined clock: 100 ppm

Point = tuple[float, float]


class Hull(Struct, frozen=True):
    """Lower convex hull of points; `slopes` of its edges ascend, one fewer than points."""

    times: list[float]
    values: list[float]
    slopes: list[float]


class Polygon(Struct, frozen=True):
    """Corners (a, b) of the upper and the lower side, by ascending b, and the centroid of the area."""

    top: list[Point]
    bottom: list[Point]
    a: float
    b: float

    def bounds(self, tau: float) -> tuple[float, float]:
        """Certain bounds of the offset `tau` ns after (negative: before) the time it was solved for."""
        return bounds(self.top, self.bottom, tau)


def bounds(top: Sequence[Point], bottom: Sequence[Point], tau: float) -> tuple[float, float]:
    """Bounds of the offset `tau` ns from the time of the polygon: its extremes there, and what the drift may change."""
    bend = KAPPA / 2 * tau * tau
    return min([a + b * tau for a, b in bottom]) - bend, max([a + b * tau for a, b in top]) + bend


def bend(t: float) -> float:
    """What is added to a bound at `t`: to an upper one as it is, to a lower one after both were negated."""
    return KAPPA / 2 * t * t


def lower_hull(points: Sequence[Point]) -> Hull:
    """The lower convex hull of points by strictly ascending time."""
    times: list[float] = []
    values: list[float] = []
    slopes: list[float] = []
    last_t = last_v = 0.0
    for t, v in points:
        while slopes:
            slope = (v - last_v) / (t - last_t)
            if slope > slopes[-1]:
                slopes.append(slope)
                break
            slopes.pop()
            times.pop()
            values.pop()
            last_t, last_v = times[-1], values[-1]
        else:
            if times:
                slopes.append((v - last_v) / (t - last_t))
        times.append(t)
        values.append(v)
        last_t, last_v = t, v
    return Hull(times, values, slopes)


Row = tuple[float, float, float, int]  # drift, highest and lowest offset with it, whose corner it is (_TOP, _BOTTOM)
_TOP: Final = 1
_BOTTOM: Final = 2
_INFINITE: Final = float("inf")


def solve(upper: Hull, lower: Hull, now: float) -> Polygon | None:
    """The polygon at `now`. `lower` is the hull of negated bounds. None: the bounds contradict each other."""
    rows = _possible(_rows(upper, lower, now))
    if not rows:
        return None
    top = [(high, b) for b, high, _, side in rows if side & _TOP]
    bottom = [(low, b) for b, _, low, side in rows if side & _BOTTOM]
    a, b = _centroid(rows)
    return Polygon(top, bottom, a, b)


def _rows(upper: Hull, lower: Hull, now: float) -> list[Row]:
    """Highest and lowest offset by drift, at every drift where one of them changes its slope."""
    shift = KAPPA * now
    half = shift * now / 2
    u_taus = [t - now for t in upper.times]
    u_values = [v - shift * t + half for t, v in zip(upper.times, upper.values, strict=True)]
    l_taus = [t - now for t in lower.times]
    l_values = [v - shift * t + half for t, v in zip(lower.times, lower.values, strict=True)]
    # The larger the drift, the later the point that bounds it from above and the earlier that from below.
    u_ends = [s - shift for s in upper.slopes]
    l_ends = [shift - s for s in lower.slopes]
    u_ends.append(_INFINITE)
    i, j = 0, len(l_taus) - 1
    while u_ends[i] <= -DRIFT_MAX:
        i += 1
    while j and l_ends[j - 1] <= -DRIFT_MAX:
        j -= 1
    b, side = -DRIFT_MAX, _TOP | _BOTTOM
    rows: list[Row] = []
    while True:
        rows.append((b, u_values[i] - b * u_taus[i], -l_values[j] - b * l_taus[j], side))
        if b >= DRIFT_MAX:
            return rows
        u_next, l_next = u_ends[i], l_ends[j - 1] if j else _INFINITE
        if min(u_next, l_next) >= DRIFT_MAX:
            b, side = DRIFT_MAX, _TOP | _BOTTOM
        elif u_next <= l_next:
            b, side, i = u_next, _TOP, i + 1
        else:
            b, side, j = l_next, _BOTTOM, j - 1


def _possible(rows: list[Row]) -> list[Row]:
    """The rows whose bounds leave an offset, with the two points where the sides meet. The gap is concave in b."""
    kept: list[Row] = []
    before: Row | None = None
    for row in rows:
        gap = row[1] - row[2]
        if before is not None:
            gap_before = before[1] - before[2]
            if (gap < 0) != (gap_before < 0):
                kept.append(_crossing(before, row, gap_before / (gap_before - gap)))
        if gap >= 0:
            kept.append(row)
        elif kept:
            break
        before = row
    if kept:  # the first and the last are corners of both sides
        for end in (0, -1):
            b, high, low, _ = kept[end]
            kept[end] = (b, high, low, _TOP | _BOTTOM)
    return kept


def _crossing(one: Row, other: Row, share: float) -> Row:
    b = one[0] + share * (other[0] - one[0])
    high = one[1] + share * (other[1] - one[1])
    low = one[2] + share * (other[2] - one[2])
    return b, max(high, low), min(high, low), _TOP | _BOTTOM


def _centroid(rows: list[Row]) -> tuple[float, float]:
    """The centre of the area, by integrals over b; of a segment or a point its middle."""
    origin = rows[0][2]
    area = moment_a = moment_b = 0.0
    b0, h0, g0 = rows[0][0], rows[0][1] - origin, rows[0][2] - origin
    for b1, high, low, _ in rows[1:]:
        h1, g1 = high - origin, low - origin
        width = b1 - b0
        gap0, gap1 = h0 - g0, h1 - g1
        area += width * (gap0 + gap1)
        moment_b += width * (gap0 * (2 * b0 + b1) + gap1 * (b0 + 2 * b1))
        moment_a += width * (h0 * h0 + h0 * h1 + h1 * h1 - g0 * g0 - g0 * g1 - g1 * g1)
        b0, h0, g0 = b1, h1, g1
    if area <= 0.0:
        return (rows[0][1] + rows[0][2] + rows[-1][1] + rows[-1][2]) / 4, (rows[0][0] + rows[-1][0]) / 2
    return origin + moment_a / (3 * area), moment_b / (3 * area)
