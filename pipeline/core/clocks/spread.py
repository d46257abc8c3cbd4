"""How far best values are from what is known later, as a share of the certain half-width: what u99 is made of.

The conformal quantile of these shares: of n of them, the ceil(0.99 * (n + 1))-th. While they are too few for one, a
share stands in that was enough in simulation. Less than the least share is never believed: whether it would do for a
node cannot be told from luck within the hours that it is watched.
"""

from math import ceil
from typing import Final

from msgspec import Struct

FIRST: Final = 0.7
LEAST: Final = 0.5
# A later value shares errors with the earlier one that more samples do not take away: the ways there and back differ.
# So much more was needed in simulation for less than 1 wrong order in 100,000 (docs/clocks-benchmark.md).
UNSEEN: Final = 1.5
EVERY_NS: Final = 4_000_000_000
LATER_NS: Final = 64_000_000_000

_RATE: Final = 1 / 64
_BIN: Final = 0.01
_BINS: Final = 75
_LEVEL: Final = 0.99
_MOST: Final = 4000  # beyond so many all counts are halved, so that old ones fade


class Spread(Struct):
    """`share` of the half-width is u99. `awaiting`: time, best value and half-width of values to be judged.

    A polygon that luck has made narrow leaves the truth anywhere in it, so that less than the `usual` half-width counts
    as that, within the certain bounds.
    """

    share: float = FIRST
    usual: float = 0.0
    counts: list[int] = []
    awaiting: list[tuple[float, float, float]] = []

    def u99(self, half: float, most: float) -> int:
        """99 of 100 errors are within this, of a value that is at most so far from its certain bounds (ns)."""
        return ceil(min(self.share * max(half, self.usual), most))

    def see(self, half: float) -> None:
        """Take in the half-width that a sample left."""
        self.usual += (half - self.usual) * (_RATE if self.usual else 1.0)

    def expects(self, t: float) -> bool:
        """Tell whether a value at `t` is wanted."""
        return not self.awaiting or t // EVERY_NS > self.awaiting[-1][0] // EVERY_NS

    def await_(self, t: float, best: float, half: float) -> None:
        """Keep a best value to be judged later."""
        self.awaiting.append((float(round(t)), float(round(best)), float(round(half))))

    def due(self, now: float) -> tuple[float, float, float] | None:
        """The oldest value that can be judged by now, taken out."""
        if not self.awaiting or self.awaiting[0][0] > now - LATER_NS:
            return None
        return self.awaiting.pop(0)

    def judge(self, error: float, half: float) -> None:
        """Take in how far a value was off."""
        counts = self.counts or [0] * _BINS
        counts[min(int(abs(error) / max(half, 1.0) / _BIN), _BINS - 1)] += 1
        if sum(counts) > _MOST:
            counts = [count // 2 for count in counts]
        self.counts = counts
        total = sum(counts)
        rank = ceil(_LEVEL * (total + 1))
        if rank > total:
            return  # never so few again: counts are halved far above
        place = 0
        while rank > counts[place]:
            rank -= counts[place]
            place += 1
        self.share = min(max(UNSEEN * (place + 1) * _BIN, LEAST), 1.0)

    def move(self, t: float, x: float) -> None:
        """Count from an origin `t` ns later and `x` ns further."""
        self.awaiting = [(at - t, best - x, half) for at, best, half in self.awaiting]
