"""What others would answer from the same beacons: the offset now, from the samples so far. Nobody but one gives bounds.

All take (t0, t1, stamp) in ns relative to an origin and answer for a raw time behind the newest sample.
"""

from collections import deque
from collections.abc import Mapping
from typing import Final, Protocol

import numpy as np

from pipeline.core.clocks.kalman import Kalman

QUANTUM: Final = 1e6


class Estimator(Protocol):
    """Samples in, offset out."""

    def add(self, t0: float, t1: float, stamp: float) -> None: ...

    def at(self, t: float) -> float: ...


def _middle(t0: float, t1: float, stamp: float) -> float:
    return stamp + QUANTUM / 2 - (t0 + t1) / 2


class Nothing:
    """The node's clock as it is."""

    def add(self, t0: float, t1: float, stamp: float) -> None:
        pass

    def at(self, t: float) -> float:
        return 0.0


class Last:
    """The middle of the last sample."""

    value = 0.0

    def add(self, t0: float, t1: float, stamp: float) -> None:
        self.value = _middle(t0, t1, stamp)

    def at(self, t: float) -> float:
        return self.value


class Fastest:
    """The middle of the sample with the shortest round trip of the last so many, as NTP's clock filter chooses."""

    def __init__(self, count: int) -> None:
        self._samples: deque[tuple[float, float]] = deque(maxlen=count)

    def add(self, t0: float, t1: float, stamp: float) -> None:
        self._samples.append((t1 - t0, _middle(t0, t1, stamp)))

    def at(self, t: float) -> float:
        return min(self._samples)[1]


class Line:
    """Least squares over the middles of 120 s."""

    def __init__(self, window: float = 120e9) -> None:
        self._window = window
        self._samples: deque[tuple[float, float]] = deque()

    def add(self, t0: float, t1: float, stamp: float) -> None:
        self._samples.append(((t0 + t1) / 2, _middle(t0, t1, stamp)))
        while self._samples[0][0] < t1 - self._window:
            self._samples.popleft()

    def at(self, t: float) -> float:
        points = np.array(self._samples)
        times, values = points[:, 0] - t, points[:, 1]
        spread = times - times.mean()
        square = float(spread @ spread)
        slope = float(spread @ values) / square if square > 0 else 0.0
        return float(values.mean() - slope * times.mean())


class Filtered:
    """A Kalman filter over the middles, weighted by round trip."""

    _kalman: Kalman | None = None

    def add(self, t0: float, t1: float, stamp: float) -> None:
        middle, variance = _middle(t0, t1, stamp), ((t1 - t0) ** 2 + QUANTUM**2) / 12
        if self._kalman is None:
            self._kalman = Kalman(t=(t0 + t1) / 2, x=middle, xx=variance)
        else:
            self._kalman.add((t0 + t1) / 2, middle, variance)

    def at(self, t: float) -> float:
        assert self._kalman is not None
        return self._kalman.x + self._kalman.v * (t - self._kalman.t)


class Marzullo:
    """The running intersection of all intervals, widened by 50 ppm of the time since; its middle."""

    widening = 5e-5

    def __init__(self) -> None:
        self._t, self._lo, self._hi = 0.0, -np.inf, np.inf

    def add(self, t0: float, t1: float, stamp: float) -> None:
        more = self.widening * (t1 - self._t)
        lo, hi = stamp - t1, stamp + QUANTUM - t0
        self._lo, self._hi, self._t = max(self._lo - more, lo), min(self._hi + more, hi), t1
        if self._lo > self._hi:
            self._lo, self._hi = lo, hi

    def at(self, t: float) -> float:
        return (self._lo + self._hi) / 2


class Centred:
    """Jaeger's clock skew adjuster: where the stamp is not between send and answer, it is put in their middle."""

    value = 0.0

    def add(self, t0: float, t1: float, stamp: float) -> None:
        self.value = 0.0 if t0 <= stamp <= t1 else stamp - (t0 + t1) / 2

    def at(self, t: float) -> float:
        return self.value


def baselines() -> Mapping[str, Estimator]:
    """All of them, by name."""
    return {
        "no correction": Nothing(), "last sample": Last(), "fastest of 8": Fastest(8), "fastest of 64": Fastest(64),
        "least squares 120 s": Line(), "Kalman": Filtered(), "Marzullo, 50 ppm": Marzullo(),
        "Jaeger's centring": Centred(),
    }  # fmt: skip
