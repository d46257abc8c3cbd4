"""Falsified clocks of real agents, the real broker, a real worker: what is true lies within every bound."""

from pathlib import Path

import pytest

from pipeline.embedded.kafka import KafkaBroker
from tests.bench.clocks_live import measure

pytestmark = [pytest.mark.kafka, pytest.mark.slow, pytest.mark.timeout(240)]


def test_true_times_are_within_the_bounds_of_segments_and_events(tmp_path: Path, kafka_broker: KafkaBroker) -> None:
    segments, events = measure(tmp_path, kafka_broker.bootstrap, seconds=50, nodes=4, seed=3)
    assert segments.checks >= 40
    assert segments.outside == 0
    assert segments.pair_us
    assert events.checks >= 30
    assert events.outside == 0
    assert events.kinds["good"] > events.checks // 2
