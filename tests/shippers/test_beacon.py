import os
import signal
import threading
import time
import uuid
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

import pytest
from kafka import KafkaAdminClient
from kafka.admin import ConfigResource, ConfigResourceType
from kafka.producer.future import RecordMetadata

from schemas.records import ClockSample
from shippers.beacon import SAMPLES_KEPT, SENTINEL_MS, BeaconProducer, Beacons, Samples
from shippers.clock import HostClock
from shippers.config import ClockSettings, Config, KafkaSettings
from shippers.sink import SinkUnavailableError
from tests.shippers.fakes import eventually
from tests.shippers.test_sink import make_topic

STAMPED = {"message.timestamp.type": "LogAppendTime"}
UNSTAMPED = {"message.timestamp.type": "CreateTime"}
MS = 10**6


@pytest.fixture
def config(kafka_broker: Any) -> Config:
    return Config(
        cluster="c", reporter="n", kafka=KafkaSettings(bootstrap=kafka_broker.bootstrap),
        clock=ClockSettings(beacon_interval_ms=100),
    )  # fmt: skip


@pytest.fixture
def topic(config: Config) -> str:
    name = f"beacon-{uuid.uuid4().hex}"
    make_topic(config.kafka.bootstrap, name, **STAMPED)
    return name


@pytest.fixture
def producer(config: Config, topic: str) -> Iterator[BeaconProducer]:
    """A beacon producer on a topic that stamps."""
    producer = producer_on(config, topic)
    yield producer
    producer.close()


def producer_on(config: Config, topic: str) -> BeaconProducer:
    return BeaconProducer(config, HostClock("boot"), "shipper", topic)


def warm(producer: BeaconProducer) -> int:
    """A partition whose broker knows that it leads it: that of a topic just made refuses the first beacons."""
    partition: int = eventually(producer.partitions, "a leader")[0]
    eventually(lambda: producer.sample(partition, 0), "a first sample")
    return partition


def interval_ns(sample: ClockSample) -> tuple[int, int]:
    """Where the broker's clock minus ours is certain to be: the stamp is floored to a millisecond."""
    stamp_ns = sample.broker_time_ms * MS
    return stamp_ns - sample.t1_ns, stamp_ns + MS - sample.t0_ns


def assert_true(sample: ClockSample) -> None:
    """The broker runs on this machine, so its clock is our wall clock."""
    lo_ns, hi_ns = interval_ns(sample)
    reading = HostClock("boot").read()
    # The wall clock of this machine may be slewed between the beacon and this reading.
    slack_ns = abs(reading.raw_ns - sample.t0_ns) // 1000 + reading.width_ns
    assert lo_ns - slack_ns <= reading.wall_ns - reading.raw_ns <= hi_ns + slack_ns


@pytest.mark.kafka
def test_the_true_offset_is_between_the_stamp_and_both_readings(producer: BeaconProducer) -> None:
    partition = warm(producer)
    samples = [sample for seq in range(50) if (sample := producer.sample(partition, seq))]

    assert len(samples) == 50
    for sample in samples:
        assert sample.t0_ns < sample.t1_ns
        assert sample.broker_id >= 0
        assert_true(sample)


@pytest.mark.kafka
def test_two_shippers_of_one_host_agree(config: Config, topic: str) -> None:
    found: list[list[ClockSample]] = [[], []]

    def send(into: list[ClockSample]) -> None:
        producer = producer_on(config, topic)
        partition = warm(producer)
        into.extend(sample for seq in range(20) if (sample := producer.sample(partition, seq)))
        producer.close()

    threads = [threading.Thread(target=send, args=(into,)) for into in found]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    intervals = [interval_ns(sample) for samples in found for sample in samples]

    assert all(found)
    assert max(lo for lo, _ in intervals) <= min(hi for _, hi in intervals)


@pytest.mark.kafka
def test_one_partition_of_each_broker_is_used(producer: BeaconProducer) -> None:
    assert len(eventually(producer.partitions, "a leader")) == 1


@pytest.mark.kafka
def test_the_producer_never_sends_twice_never_waits_for_replicas_and_sends_one_by_one(producer: BeaconProducer) -> None:
    wanted = {
        "acks": 1, "enable_idempotence": False, "retries": 0, "linger_ms": 0, "compression_type": None,
        "max_in_flight_requests_per_connection": 1,
    }  # fmt: skip

    assert {name: producer.settings[name] for name in wanted} == wanted


@pytest.mark.kafka
@pytest.mark.parametrize("more", [{}, {"message.timestamp.before.max.ms": "3600000"}], ids=["echoes", "refuses"])
def test_a_topic_that_does_not_stamp_gives_no_sample_instead_of_a_perfect_one(
    config: Config, more: dict[str, str]
) -> None:
    topic = f"beacon-{uuid.uuid4().hex}"
    make_topic(config.kafka.bootstrap, topic, **UNSTAMPED, **more)
    producer = producer_on(config, topic)
    partition = eventually(producer.partitions, "a leader")[0]
    samples: list[ClockSample | None] = []

    def is_found_out() -> bool:
        samples.append(producer.sample(partition, 0))
        return producer.is_unstamped

    eventually(is_found_out, "the topic is found out")
    producer.close()

    assert set(samples) == {None}


@pytest.mark.kafka
def test_a_topic_that_does_not_stamp_is_said_once_and_measured_as_soon_as_it_does(config: Config) -> None:
    topic = f"beacon-{uuid.uuid4().hex}"
    make_topic(config.kafka.bootstrap, topic, **UNSTAMPED)
    said: list[str] = []
    beacons = Beacons(config, HostClock("boot"), "shipper", said.append, topic)
    beacons.start()
    try:
        eventually(lambda: said, "it is said")
        time.sleep(0.5)  # several more beacons
        assert beacons.take_samples() == []
        admin = KafkaAdminClient(bootstrap_servers=config.kafka.bootstrap)
        admin.alter_configs([ConfigResource(ConfigResourceType.TOPIC, topic, STAMPED)])
        admin.close()
        assert_true(eventually(beacons.take_samples, "a sample")[0])
    finally:
        beacons.stop()

    assert said == [f"topic {topic} does not stamp beacons: set message.timestamp.type=LogAppendTime on it"]


@pytest.mark.kafka
def test_a_missing_topic_is_unavailable(config: Config) -> None:
    producer = producer_on(config, f"beacon-{uuid.uuid4().hex}")
    with pytest.raises(SinkUnavailableError):
        producer.partitions()
    producer.close()


@pytest.mark.kafka
def test_a_beacon_to_a_partition_that_is_not_there_is_dropped(producer: BeaconProducer) -> None:
    eventually(producer.partitions, "a leader")

    assert producer.sample(99, 0) is None


@pytest.mark.kafka
def test_an_answer_that_leaves_any_doubt_is_dropped(producer: BeaconProducer) -> None:
    def accepted(
        after: tuple[int, int] | None = (1, 7), stamp_ms: int | None = 1_700_000_000_000, t1_ns: int = 20
    ) -> ClockSample | None:
        metadata = RecordMetadata("t", 0, None, 5, stamp_ms, None, 10, 10, 0)
        return producer.accepted(10, t1_ns, metadata, (1, 7), after)

    assert accepted() == ClockSample(t0_ns=10, t1_ns=20, broker_time_ms=1_700_000_000_000, broker_id=1, leader_epoch=7)
    assert accepted(after=(2, 7)) is None, "another broker leads now"
    assert accepted(after=(1, 8)) is None, "it lost the lead and got it back"
    assert accepted(after=None) is None, "nobody leads"
    assert accepted(t1_ns=9) is None, "the clock ran back"
    for stamp_ms in (SENTINEL_MS, -1, None):
        assert accepted(stamp_ms=stamp_ms) is None, "the broker did not stamp it"
    assert producer.accepted(10, 20, None, (1, 7), (1, 7)) is None, "no answer"


@contextmanager
def standing_still(pid: int, for_s: float) -> Iterator[None]:
    """Stops a process for so long; begins once each of its threads stands (the signal returns before they do)."""
    wake = threading.Timer(for_s, os.kill, (pid, signal.SIGCONT))
    os.kill(pid, signal.SIGSTOP)
    wake.start()
    try:
        eventually(lambda: set(thread_states(pid)) == {"T"}, "a process that stands still", within_s=1.0)
        yield
    finally:
        wake.join()


def thread_states(pid: int) -> Iterator[str]:
    for stat in Path(f"/proc/{pid}/task").glob("*/stat"):
        with suppress(OSError):  # a thread that ended meanwhile
            yield stat.read_text().rpartition(")")[2].split()[0]


@pytest.mark.kafka
def test_a_broker_that_stands_still_gives_a_loose_sample_that_is_true(
    producer: BeaconProducer, kafka_broker: Any
) -> None:
    partition = warm(producer)
    with standing_still(kafka_broker.pid, 2.0):
        paused = producer.sample(partition, 1)
    after = eventually(lambda: producer.sample(partition, 2), "a sample")

    assert paused is not None
    assert paused.t1_ns - paused.t0_ns > 1_900 * MS
    assert_true(paused)
    assert_true(after)


@pytest.mark.kafka
def test_a_broker_that_does_not_answer_in_time_gives_nothing_and_the_next_beacon_is_true(
    producer: BeaconProducer, kafka_broker: Any
) -> None:
    partition = warm(producer)
    with standing_still(kafka_broker.pid, 6.5):
        assert producer.sample(partition, 0) is None
    assert_true(eventually(lambda: producer.sample(partition, 1), "a sample"))


def test_samples_that_nobody_takes_are_bounded_and_the_newest_are_kept() -> None:
    samples = Samples()
    for seq in range(3 * SAMPLES_KEPT):
        samples.keep(ClockSample(t0_ns=seq, t1_ns=seq + 1, broker_time_ms=0, broker_id=0, leader_epoch=0))

    assert [sample.t0_ns for sample in samples.take()] == list(range(2 * SAMPLES_KEPT, 3 * SAMPLES_KEPT))
    assert samples.take() == []
