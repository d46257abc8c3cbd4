"""Scenarios A to D, and M with measured round trips: what every estimator answers, against the truth."""

from collections.abc import Iterator
from time import thread_time_ns
from typing import Final, NamedTuple

import msgspec
import numpy as np

from pipeline.core.clocks.track import Segment, Track
from tests.bench.clock_baselines import baselines
from tests.clock_channels import BASE, EPOCH, SECOND, Beacons, Channel, Clock, Floats, Ints, beacons

OURS: Final = "polygon clock"
CLOSED: Final = "polygon clock, closed"
WARM_S: Final = 130
# Each update's bounds are checked so far back and ahead of the newest sample: what is answered while the next ones are
# awaited, also in holdover.
CHECK_FROM_S: Final = -16.0
CHECK_TO_S: Final = 60.0
# A node's own clock, set once: raw time and this. All offsets here are relative to it.
OWN: Final = EPOCH - BASE


class Answers(NamedTuple):
    """Of one node at one moment a beacon interval: answer minus truth, by method; ours also its bounds (ns)."""

    errors: dict[str, Floats]
    lo: Floats
    hi: Floats
    u99: Floats


class Result(NamedTuple):
    """One scenario: `answers` by node; the rest of all nodes."""

    name: str
    answers: list[Answers]
    checks: int
    outside: int
    epochs: int
    days: float
    us_per_update: float
    most_bytes: int
    corners: int


def play(
    name: str, channel: Channel, seed: int, nodes: int, seconds: int, checks: int, *, disciplined: bool = False
) -> Result:
    """Let nodes send beacons for some time; every update's bounds are checked at `checks` raw times."""
    answers: list[Answers] = []
    total = outside = epochs = most_bytes = corners = 0
    spent_ns = updates = 0
    for node in range(nodes):
        rng = np.random.default_rng([seed, node])
        clock = Clock(rng, seconds, disciplined=disciplined)
        sent = beacons(rng, clock, channel, seconds)
        asked = sent.t1 + rng.uniform(0, 0.7 * SECOND, len(sent.t1)).astype(np.int64)
        one = _Node(rng, clock, checks)
        one.play(sent, asked)
        answers.append(one.answers(asked))
        total, outside, epochs = total + one.checked, outside + one.outside, epochs + one.track.epoch
        most_bytes, corners = max(most_bytes, one.most_bytes), max(corners, one.corners)
        spent_ns, updates = spent_ns + one.spent_ns, updates + len(asked)
    return Result(
        name, answers, total, outside, epochs, nodes * seconds / 86_400, spent_ns / updates / 1e3, most_bytes, corners
    )


class _Node:
    def __init__(self, rng: np.random.Generator, clock: Clock, checks: int) -> None:
        self.track = Track()
        self.checked = self.outside = self.most_bytes = self.corners = self.spent_ns = 0
        self._rng, self._clock, self._checks = rng, clock, checks
        self._segments: list[Segment] = []
        self._others = baselines()
        self._found: dict[str, list[float]] = {name: [] for name in (OURS, "lo", "hi", "u99", *self._others)}

    def play(self, sent: Beacons, asked: Ints) -> None:
        """Feed all beacons, asking everybody between them."""
        found = self._found
        for k, (sample, q) in enumerate(zip(sent.samples(), asked.tolist(), strict=True)):
            began_ns = thread_time_ns()
            self.track.update(sample)
            offset = self.track.at(q)
            closed = self.track.close(sample.t1_ns)
            self.spent_ns += thread_time_ns() - began_ns
            assert offset is not None  # there are samples within a second
            self._segments += closed
            found[OURS].append(offset.offset_ns - OWN)
            found["lo"].append(offset.lo_ns - OWN)
            found["hi"].append(offset.hi_ns - OWN)
            found["u99"].append(offset.u99_ns)
            t0, t1 = sample.t0_ns - BASE, sample.t1_ns - BASE
            stamp = sample.broker_time_ms * 1_000_000 - EPOCH
            for name, other in self._others.items():
                other.add(t0, t1, stamp)
                found[name].append(other.at(q - BASE))
            self._check()
            if k % 50 == 0:
                self.most_bytes = max(self.most_bytes, len(msgspec.json.encode(self.track)))
                self.corners = max(self.corners, len(self.track.top) + len(self.track.bottom))

    def _check(self) -> None:
        """The bounds of the polygon as it is, at many raw times before and after: `polygon.bounds`, for arrays."""
        taus = self._rng.uniform(CHECK_FROM_S, CHECK_TO_S, self._checks) * SECOND
        lo, hi = bounds_of(self.track, taus)
        raw = (taus + self.track.solved).astype(np.int64) + self.track.origin_raw_ns
        truth = self._clock.relative(raw) + (self._clock.base_ns - self.track.origin_ns)
        self.checked += len(taus)
        self.outside += int(np.count_nonzero((truth < lo) | (truth > hi)))

    def answers(self, asked: Ints) -> Answers:
        """Answers minus truth, once every window is full."""
        warm = slice(min(WARM_S, len(asked) // 2), None)
        truth = self._clock.relative(asked) + (self._clock.base_ns - OWN)
        errors = {name: (np.array(values) - truth)[warm] for name, values in self._found.items()}
        errors[CLOSED] = (np.array(list(self._closed(asked))) - truth)[warm]
        errors.pop("u99")
        return Answers(errors, errors.pop("lo"), errors.pop("hi"), np.array(self._found["u99"])[warm])

    def _closed(self, asked: Ints) -> Iterator[float]:
        """What the closed segments say of the same moments; the truth must be within their bounds as well."""
        segments = iter(self._segments)
        segment = next(segments)
        for q in asked.tolist():
            while q >= segment.t_to_ns:
                try:
                    segment = next(segments)
                except StopIteration:
                    break
            if q >= segment.t_to_ns:
                yield float("nan")
                continue
            offset = segment.at(q)
            truth = float(self._clock.relative(q)) + self._clock.base_ns - offset.offset_ns
            self.checked += 1
            self.outside += not offset.lo_ns - offset.offset_ns <= truth <= offset.hi_ns - offset.offset_ns
            yield float(offset.offset_ns - OWN)


def bounds_of(track: Track, taus: Floats) -> tuple[Floats, Floats]:
    """`Track.at`'s bounds, relative to the track's origin, so many ns after its newest sample."""
    top, bottom = np.array(track.top), np.array(track.bottom)
    bend = 1.5e-17 * taus * taus
    lo = (bottom[:, :1] + bottom[:, 1:] * taus).min(axis=0) - bend
    hi = (top[:, :1] + top[:, 1:] * taus).max(axis=0) + bend
    return np.floor(lo) - 1, np.ceil(hi) + 1


def worst_growth(track: Track, seconds: int) -> float:
    """Half-width (ns) of the bounds so long after the newest sample."""
    lo, hi = bounds_of(track, np.array([seconds * float(SECOND)]))
    return float(hi[0] - lo[0]) / 2
