"""Simulated clocks of nodes, and the ways of their beacons to a broker and back. The truth is the broker's clock.

Clocks: an offset of up to 200 ms, a drift of up to 40 ppm, a sine of 0.5 ppm (30 to 120 minutes), a frequency walking
at random (2 ppb after a second). Ways: forward and return delay of each beacon, as each channel says, and some
30 us by which the ways of one node always differ. All from one seed.
"""

from collections.abc import Callable, Iterator
from typing import Any, Final, NamedTuple

import numpy as np
from numpy.typing import NDArray

from schemas.records import ClockSample

SECOND: Final = 1_000_000_000
MS: Final = 1_000_000
US: Final = 1_000
BASE: Final = 10_000 * SECOND  # what raw clocks show when a simulation begins
EPOCH: Final = 1_700_000_000 * SECOND  # and what the broker's shows

Floats = NDArray[np.float64]
Ints = NDArray[np.int64]
Ways = tuple[Floats, Floats]
Channel = Callable[[np.random.Generator, Floats], Ways]


class Clock:
    """The broker's clock minus a node's raw clock, at any raw time."""

    def __init__(self, rng: np.random.Generator, seconds: int, *, disciplined: bool = False) -> None:
        first = rng.normal(0, 0.3 * MS) if disciplined else rng.uniform(-200 * MS, 200 * MS)
        self.base_ns = EPOCH - BASE + round(first)
        self.drift = 0.0 if disciplined else rng.uniform(-4e-5, 4e-5)
        self.period_s, self.phase = rng.uniform(1800, 7200), rng.uniform(0, 2 * np.pi)
        self.sine = 0.0 if disciplined else 5e-7
        walk = np.cumsum(rng.normal(0, 0.0 if disciplined else 2e-9, seconds + 1200))
        self._walked = np.concatenate([[0.0], np.cumsum(walk)]) * SECOND
        self.steps: list[tuple[int, int]] = []  # raw time, by how many ns
        self.kicks: list[tuple[int, float]] = []  # raw time, by how much the frequency changes within 60 s

    def relative(self, raw: Any) -> Any:
        """The offset at raw times, minus `base_ns`: ns, small enough for floats."""
        s = (np.asarray(raw, dtype=np.int64) - BASE) / SECOND
        circle = 2 * np.pi / self.period_s
        found = self.drift * s * SECOND + np.interp(s, np.arange(len(self._walked)), self._walked)
        found = found + self.sine / circle * SECOND * (np.cos(self.phase) - np.cos(circle * s + self.phase))
        for at, by in self.kicks:
            since = s - (at - BASE) / SECOND
            within = np.clip(since, 0, 60)
            found = found + by * SECOND * (within * within / 120 + np.maximum(since - 60, 0))
        for at, by in self.steps:
            found = found + np.where(np.asarray(raw) >= at, float(by), 0.0)
        return found

    def offset(self, raw: int) -> int:
        """The offset at one raw time, to the ns."""
        return self.base_ns + int(np.floor(self.relative(raw)))


class Beacons(NamedTuple):
    """Beacons of one node, in the order sent: raw times of send and acknowledgement, and the broker's stamp."""

    t0: Ints
    t1: Ints
    stamp_ms: Ints

    def samples(self, broker: int = 1) -> Iterator[ClockSample]:
        """As a shipper hands them over."""
        for t0, t1, stamp in zip(self.t0.tolist(), self.t1.tolist(), self.stamp_ms.tolist(), strict=True):
            yield ClockSample(t0_ns=t0, t1_ns=t1, broker_time_ms=stamp, broker_id=broker, leader_epoch=0)


def beacons(
    rng: np.random.Generator, clock: Clock, channel: Channel, seconds: int, *, hz: float = 1.0, quantum_ms: int = 1,
    begin: int = BASE,
) -> Beacons:  # fmt: skip
    """Beacons at a rate, each sent within the first tenth of its interval, as soon as the one before is back."""
    count = int(seconds * hz)
    every = SECOND / hz
    t0 = begin + (np.arange(count) * every + rng.uniform(0, every / 10, count)).astype(np.int64)
    forward, back = channel(rng, (t0 - BASE) / SECOND)
    ahead = abs(rng.normal(0, 30 * US))
    appended = t0 + (forward + ahead).astype(np.int64)
    stamp = appended + clock.base_ns + np.floor(clock.relative(appended)).astype(np.int64)
    return Beacons(t0, appended + back.astype(np.int64), stamp // (quantum_ms * MS) * quantum_ms)


def _spikes(rng: np.random.Generator, count: int, share: float, least_ms: float, most_ms: float) -> Floats:
    return np.where(rng.random(count) < share, rng.uniform(least_ms, most_ms, count), 0.0)


def quiet(rng: np.random.Generator, at: Floats) -> Ways:
    """A: a quiet network, acks=1: 0.2 ms + Exp(0.15 ms) each way, 1 % spikes of 2 to 20 ms."""
    n = len(at)
    there, back = (0.2 + rng.exponential(0.15, n) + _spikes(rng, n, 0.01, 2, 20) for _ in range(2))
    return there * MS, back * MS


def busy(rng: np.random.Generator, at: Floats) -> Ways:
    """B: lognormal (median 0.5 and 0.3 ms, sigma 1) + 0.3 and 0.25 ms, spikes to 200 ms, bad minutes one way."""
    n = len(at)
    bad = np.where(at // 60 % 10 == 9, rng.uniform(2, 5, n), 0.0)
    there = 0.3 + 0.5 * np.exp(rng.normal(0, 1, n)) + _spikes(rng, n, 0.05, 5, 200) + bad
    back = 0.25 + 0.3 * np.exp(rng.normal(0, 1, n)) + _spikes(rng, n, 0.03, 5, 200)
    return there * MS, back * MS


def data(rng: np.random.Generator, at: Floats) -> Ways:
    """C: the data producer: lingers U(0, 5 ms), acks=all comes back after Gamma(2, 1 ms), 2 % spikes to 100 ms."""
    n = len(at)
    there = rng.uniform(0, 5, n) + _spikes(rng, n, 0.01, 5, 100)
    back = rng.gamma(2, 1, n) + _spikes(rng, n, 0.01, 5, 100)
    return there * MS, back * MS
