"""Scenario E: what breaks clocks. Every node runs half an hour on quiet ways, with faults of one kind.

Checked are answers between beacons, outside what is flagged (stepped, holdover, nothing said). What changes only a
node's wall clock (steps, slewing at 500 ppm, leap seconds) never reaches the estimator, which reads the raw clock.
"""

from collections.abc import Callable, Iterator
from typing import Final, NamedTuple

import numpy as np

from pipeline.core.clocks.track import Offset, Track
from tests.clock_channels import BASE, MS, SECOND, Beacons, Clock, Ints, beacons, quiet

SECONDS: Final = 1800


class Fault(NamedTuple):
    """What came of one kind: steps, found by the first beacon or later, epochs without one, checks, truth outside."""

    name: str
    steps: int
    at_once: int
    later: int
    false: int
    checks: int
    outside: int
    flagged: int


Steps = list[tuple[int, int]]


def faults(nodes: int, seed: int) -> Iterator[Fault]:
    """One row a kind."""
    rng = np.random.default_rng([seed, 99])

    def stepped(least_ms: float, most_ms: float) -> Callable[[], Steps]:
        def make() -> Steps:
            size = np.exp(rng.uniform(np.log(least_ms), np.log(most_ms), 3)) * rng.choice([-1, 1], 3) * MS
            return [(BASE + int((400 + 450 * k + rng.uniform(0, 60)) * SECOND), int(by)) for k, by in enumerate(size)]

        return make

    def paused() -> Steps:
        return [(at, abs(by)) for at, by in stepped(500, 10_000)()]

    yield _run("steps of 5 ms to 1 s, both ways", nodes, seed, steps=stepped(5, 1000))
    yield _run("steps of 2 to 5 ms", nodes, seed + 1, steps=stepped(2, 5))
    yield _run("steps of 0.2 to 2 ms (not claimed)", nodes, seed + 2, steps=stepped(0.2, 2))
    yield _run("VM paused 0.5 to 10 s, raw clock stood still", nodes, seed + 3, steps=paused)
    yield _run("leap second, stepped by the broker", nodes, seed + 4, steps=lambda: [(BASE + 900 * SECOND, -SECOND)])
    yield _run("leader moved, skew 3 ms, same state", nodes, seed + 5, steps=lambda: [(BASE + 900 * SECOND, 3 * MS)])
    yield _run("temperature, 0.5 to 5 ppm within 60 s", nodes, seed + 6, kicks=True)
    yield _run("60 s without beacons, three times", nodes, seed + 7, lost=True)
    yield _run("wall clock stepped, slewed, leapt (raw is not)", nodes, seed + 8)
    yield _run("topic does not stamp (sentinel comes back)", nodes, seed + 9, unstamped=True)
    yield _run("1 % retries return the old leader's time, 3 ms off", nodes, seed + 10, retried=True)


def _run(
    name: str, nodes: int, seed: int, *, steps: Callable[[], Steps] = list, kicks: bool = False, lost: bool = False,
    unstamped: bool = False, retried: bool = False,
) -> Fault:  # fmt: skip
    total = np.zeros(len(Fault._fields) - 1, dtype=np.int64)
    for node in range(nodes):
        rng = np.random.default_rng([seed, node])
        clock = Clock(rng, SECONDS)
        clock.steps = steps()
        if kicks:
            sizes = rng.uniform(0.5e-6, 5e-6, 3) * rng.choice([-1, 1], 3)
            clock.kicks = [(BASE + (400 + 450 * k) * SECOND, float(by)) for k, by in enumerate(sizes)]
        sent = beacons(rng, clock, quiet, SECONDS)
        if lost:
            second = (sent.t0 - BASE) // SECOND
            there = ~((second % 500 >= 400) & (second % 500 < 460))
            sent = Beacons(sent.t0[there], sent.t1[there], sent.stamp_ms[there])
        if unstamped:
            sent = sent._replace(stamp_ms=np.ones_like(sent.stamp_ms))
        if retried:
            sent = sent._replace(stamp_ms=sent.stamp_ms + 3 * (rng.random(len(sent.t0)) < 0.01))
        total += _node(sent, clock, rng)
    return Fault(name, *total.tolist())


def _node(sent: Beacons, clock: Clock, rng: np.random.Generator) -> Ints:
    """The counts of one node."""
    track = Track()
    waiting: list[list[int]] = []
    steps = sorted(clock.steps)
    at_once = later = false = 0
    pending: list[int] = []
    answers: list[tuple[int, Offset | None]] = []
    before = BASE
    for sample in sent.samples():
        while steps and steps[0][0] < sample.t1_ns:
            waiting.append([steps.pop(0)[0], 0])
        for one in waiting:
            one[1] += 1
        epoch = track.epoch
        track.update(sample)
        if track.epoch > epoch:
            if waiting:
                beacons_since = waiting.pop(0)[1]
                at_once, later = at_once + (beacons_since == 1), later + (beacons_since > 1)
            else:
                false += 1
        # Events since the beacon before are dated now, and once more from the closed segments.
        since = max(before, sample.t1_ns - 600 * SECOND)
        new = rng.integers(since, sample.t1_ns, 4 * max((sample.t1_ns - since) // SECOND, 1)).tolist()
        before = sample.t1_ns
        answers += [(raw, track.at(raw)) for raw in new]
        pending += new
        if track.close(sample.t1_ns):
            answers += [(raw, track.at(raw)) for raw in pending if raw < track.open_from_ns]
            pending = [raw for raw in pending if raw >= track.open_from_ns]
    checks, outside, flagged = _judge(answers, clock)
    return np.array([len(clock.steps), at_once, later, false, checks, outside, flagged], dtype=np.int64)


def _judge(answers: list[tuple[int, Offset | None]], clock: Clock) -> tuple[int, int, int]:
    """Checks, those outside their bounds, and how many answers were flagged instead."""
    good = [(raw, found.lo_ns, found.hi_ns) for raw, found in answers if found is not None and found.quality == "good"]
    if not good:
        return 0, 0, len(answers)
    raw, lo, hi = np.array(good, dtype=np.int64).T
    truth = clock.base_ns + np.floor(clock.relative(raw)).astype(np.int64)
    return len(good), int(np.count_nonzero((truth < lo) | (truth > hi))), len(answers) - len(good)
