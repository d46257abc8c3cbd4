"""Beacons of the real producer (kafka-python) to a real broker on this machine: round trips, and a truth to compare to.

Producer and broker read clocks of one kernel, so the true offset is known: wall minus raw clock, read between two
readings of the raw clock. Only the sum of the ways can be measured from stamps of whole milliseconds.
"""

import asyncio
import tempfile
import time
from pathlib import Path
from typing import Any, Final, NamedTuple

import numpy as np

from pipeline.agents.broker import TopicPlan, create_topics
from pipeline.core.clocks.track import Track
from pipeline.embedded.kafka import KafkaBroker
from schemas.records import ClockSample
from shippers.beacon import BeaconProducer
from shippers.clock import HostClock
from shippers.config import Config, KafkaSettings
from tests.clock_channels import Channel, Floats, Ways

TOPIC: Final = "clock.beacon"
_FIRST: Final = 20  # while Java compiles; not a part of the round trips


class Live(NamedTuple):
    """Round trips, and per beacon answer minus truth and half-width (ns). `unsure_ns`: of the truth itself."""

    round_trips: Floats
    errors: Floats
    half_widths: Floats
    outside: int
    unsure_ns: int


def measure(seconds: float, hz: float) -> Live:
    """Start a broker in a folder of its own, send beacons, stop it."""
    with tempfile.TemporaryDirectory(prefix="rootrank-bench-") as name:
        broker = KafkaBroker(Path(name))
        bootstrap = broker.start()
        try:
            plan = TopicPlan(name=TOPIC, partitions=1, settings={"message.timestamp.type": "LogAppendTime"})
            asyncio.run(create_topics(bootstrap, [plan], replication=1))
            config = Config(cluster="bench", reporter="bench", kafka=KafkaSettings(bootstrap=bootstrap))
            producer = BeaconProducer(config, HostClock("bench"), "bench")
            try:
                return _send(producer, seconds, hz)
            finally:
                producer.close()
        finally:
            broker.stop()


def _send(producer: BeaconProducer, seconds: float, hz: float) -> Live:
    deadline = time.monotonic() + 60
    while not (partitions := producer.partitions()):
        if time.monotonic() > deadline:
            raise SystemExit("the broker gave the topic no leader within a minute")
        time.sleep(0.2)
    track = Track()
    round_trips: list[int] = []
    rows: list[tuple[int, int]] = []
    outside = unsure = 0
    until = time.monotonic() + seconds
    seq = 0
    while time.monotonic() < until:
        began = time.monotonic()
        sample = producer.sample(partitions[0], seq)
        seq += 1
        if sample is not None and seq > _FIRST:
            round_trips.append(sample.t1_ns - sample.t0_ns)
            row, is_outside, doubt = _judge(track, sample)
            rows.append(row)
            outside, unsure = outside + is_outside, max(unsure, doubt)
        time.sleep(max(0.0, 1 / hz - (time.monotonic() - began)))
    errors, halves = np.array(rows, dtype=np.float64).T
    return Live(np.array(round_trips, dtype=np.float64), errors, halves, outside, unsure)


def _judge(track: Track, sample: ClockSample) -> tuple[tuple[int, int], bool, int]:
    track.update(sample)
    truth, raw, doubt = true_offset()
    found = track.at(raw)
    assert found is not None
    is_outside = not found.lo_ns - doubt <= truth <= found.hi_ns + doubt
    return (found.offset_ns - truth, (found.hi_ns - found.lo_ns) // 2), is_outside, doubt


def true_offset() -> tuple[int, int, int]:
    """Wall minus raw clock of this machine, the raw time it holds for, and how unsure it is: the closest of 20."""
    best: tuple[int, int, int] | None = None
    for _ in range(20):
        before = time.clock_gettime_ns(time.CLOCK_MONOTONIC_RAW)
        wall = time.clock_gettime_ns(time.CLOCK_REALTIME)
        after = time.clock_gettime_ns(time.CLOCK_MONOTONIC_RAW)
        if best is None or after - before < best[2]:
            best = (wall - (before + after) // 2, (before + after) // 2, after - before)
    assert best is not None
    return best


def resampled(round_trips: Floats, *, halves: bool) -> Channel:
    """M: ways drawn from measured round trips. How they split is not known: in halves, or anywhere (uniform)."""

    def channel(rng: np.random.Generator, at: Floats) -> Ways:
        sums = rng.choice(round_trips, len(at))
        share: Any = 0.5 if halves else rng.random(len(at))
        return sums * share, sums * (1 - share)

    return channel


def quantiles_ms(values: Floats) -> str:
    """Quantiles for people."""
    shares = (0.0, 0.1, 0.5, 0.9, 0.99, 1.0)
    return ", ".join(f"{name} {value / 1e6:.2f}" for name, value in zip(
        ("least", "p10", "p50", "p90", "p99", "most"), np.quantile(values, shares).tolist(), strict=True
    )) + " ms"  # fmt: skip
