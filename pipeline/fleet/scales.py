"""From values to places on a drawing, and which values an axis names."""

from dataclasses import dataclass
from math import ceil, floor, log10
from typing import Final

_STEPS: Final = (1.0, 2.0, 2.5, 5.0, 10.0)


@dataclass(frozen=True, kw_only=True)
class Scale:
    """Values from `lo` to `hi` between two places, evenly or by their logarithm; what lies beyond is at the edge."""

    lo: float
    hi: float
    begin: float
    end: float
    is_log: bool = False

    def at(self, value: float) -> float:
        """Where a value is drawn."""
        if self.is_log:
            share = log10(max(value, self.lo) / self.lo) / log10(self.hi / self.lo)
        else:
            share = (value - self.lo) / (self.hi - self.lo)
        return self.begin + min(1.0, max(0.0, share)) * (self.end - self.begin)

    def ticks(self, most: int = 6) -> list[float]:
        """Round values to name on the axis."""
        if self.is_log:
            decades = [10.0**power for power in range(ceil(log10(self.lo) - 1e-9), floor(log10(self.hi) + 1e-9) + 1)]
            return decades[:: max(1, ceil(len(decades) / most))]
        raw = (self.hi - self.lo) / most
        size = 10.0 ** floor(log10(raw))
        step = size * next(step for step in _STEPS if step * size >= raw - 1e-12)
        first = ceil(self.lo / step - 1e-9)
        return [step * number for number in range(first, floor(self.hi / step + 1e-9) + 1)]


def linear(hi: float, begin: float, end: float) -> Scale:
    """From 0 to a little beyond `hi`."""
    return Scale(lo=0.0, hi=hi * 1.04 or 1.0, begin=begin, end=end)


def logarithmic(lo: float, hi: float, begin: float, end: float) -> Scale:
    """From the power of ten at or below `lo` to that at or above `hi`."""
    low, high = floor(log10(lo)), ceil(log10(hi))
    return Scale(lo=10.0**low, hi=10.0 ** max(high, low + 1), begin=begin, end=end, is_log=True)
