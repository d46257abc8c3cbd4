"""Simulated nodes, brokers and the ways between them, with a truth to compare to. Deterministic by seed."""

from __future__ import annotations

import math
import random
from collections.abc import Callable

from schemas.records import ClockSample

SECOND = 1_000_000_000
MS = 1_000_000
BASE = 10**13  # a raw clock that has run for some hours
EPOCH = 1_700_000_000 * SECOND

Channel = Callable[[random.Random, float], tuple[float, float]]


def quiet(rng: random.Random, _: float) -> tuple[float, float]:
    """Forward and return delay (ns) in a quiet network."""

    def one() -> float:
        return 0.2 * MS + rng.expovariate(1 / (0.15 * MS)) + (rng.uniform(2, 20) * MS if rng.random() < 0.01 else 0)

    return one(), one()


class Node:
    """A raw clock whose offset to the broker is known: constant drift, a slow sine, and whole steps."""

    def __init__(self, seed: int, drift: float | None = None) -> None:
        self.rng = random.Random(seed)
        self.drift = self.rng.uniform(-4e-5, 4e-5) if drift is None else drift
        self.first = EPOCH - BASE + round(self.rng.uniform(-200, 200) * MS)
        self.phase = self.rng.uniform(0, 2 * math.pi)
        self.steps: list[tuple[int, int]] = []  # from raw time on, by so much

    def offset(self, raw: int) -> int:
        """Broker minus raw clock, to the ns."""
        s = (raw - BASE) / SECOND
        sine = 5e-7 * 3600 / (2 * math.pi) * (math.cos(self.phase) - math.cos(2 * math.pi * s / 3600 + self.phase))
        stepped = sum(by for at, by in self.steps if raw >= at)
        return self.first + round((self.drift * s + sine) * SECOND) + stepped

    def sample(self, t0: int, forward: float, back: float, quantum: int = MS) -> ClockSample:
        """A beacon sent at raw time t0."""
        appended = t0 + round(forward)
        stamp = (appended + self.offset(appended)) // quantum * quantum
        return ClockSample(
            t0_ns=t0, t1_ns=appended + round(back), broker_time_ms=stamp // MS, broker_id=1, leader_epoch=0
        )

    def samples(
        self, seconds: int, channel: Channel = quiet, begin: int = BASE, every: int = SECOND
    ) -> list[ClockSample]:
        """Beacons at an interval, each sent at a random moment of its tenth."""
        found = []
        for k in range(seconds * SECOND // every):
            t0 = begin + k * every + self.rng.randrange(every // 10)
            found.append(self.sample(t0, *channel(self.rng, (t0 - BASE) / SECOND)))
        return found
