"""Agents on falsified clocks against a real broker: what they send is true on the clocks that they were given."""

import asyncio
import time
from pathlib import Path

import pytest

from pipeline.agents.broker import TopicPlan, create_topics
from pipeline.embedded.kafka import KafkaBroker
from schemas.records import RawBatch
from schemas.topics import CLOCK_BEACON, RAW
from tests.e2e.fleet import Fleet
from tests.e2e.skewed_fleet import CLUSTER, Truth, load_truth, start_skewed_fleet
from tests.polling import until

pytestmark = [pytest.mark.kafka, pytest.mark.slow]
MS = 10**6


def batches_of(bootstrap: str, folder: Path) -> dict[str, list[RawBatch]]:
    """The raw batches of each node."""
    found: dict[str, list[RawBatch]] = {}
    for record in Fleet(folder, bootstrap, "").records(RAW.name):
        if isinstance(record, RawBatch) and record.cluster == CLUSTER:
            found.setdefault(record.reporter, []).append(record)
    return found


def test_every_sample_of_a_falsified_clock_has_the_true_offset_within_it(
    mortal_broker: KafkaBroker, tmp_path: Path
) -> None:
    topics = (RAW, CLOCK_BEACON)
    plans = [TopicPlan(name=each.name, partitions=each.partitions, settings=each.settings()) for each in topics]
    asyncio.run(create_topics(mortal_broker.bootstrap, plans, replication=0))
    with start_skewed_fleet(tmp_path / "fleet", mortal_broker.bootstrap, count=3, seed=4) as fleet:

        def is_enough() -> bool:
            batches = batches_of(mortal_broker.bootstrap, tmp_path)
            counts = [sum(len(batch.clock_samples) for batch in batches.get(node, [])) for node in fleet.nodes]
            return min(counts) >= 10

        until(is_enough, timeout_s=90, what="ten samples of each node")
        time.sleep(1)  # the wall clock is noted past the last sample
    truth = load_truth(tmp_path / "fleet/truth.json")
    batches = batches_of(mortal_broker.bootstrap, tmp_path)

    assert truth.nodes == fleet.nodes
    assert [batch for batch in batches["n00"] if batch.records] == [], "n00 is idle, and its samples come all the same"
    assert all(any(batch.records for batch in batches[node]) for node in ("n01", "n02"))
    for node in truth.nodes:
        for batch in batches[node]:
            assert batch.clock_claim is None
            assert_true_reading(batch, truth)
            for sample in batch.clock_samples:
                stamp_ns = sample.broker_time_ms * MS
                assert truth.reference_ns(node, sample.t0_ns) <= stamp_ns + MS
                assert stamp_ns <= truth.reference_ns(node, sample.t1_ns)


def assert_true_reading(batch: RawBatch, truth: Truth) -> None:
    """The wall clock of the reading is off by what was falsified, but for what this machine's is slewed meanwhile."""
    clocks = truth.nodes[batch.reporter]
    error_ns = batch.clock.wall_ns - truth.reference_ns(batch.reporter, batch.clock.raw_ns)
    wanted_ns = clocks.wall_error_ns(clocks.real_raw_ns(batch.clock.raw_ns))
    assert abs(error_ns - wanted_ns) < MS + batch.clock.width_ns
