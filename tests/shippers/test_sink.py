"""One behaviour, asked of every sink."""

import io
import json
import uuid
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

import crc32c
import pytest
from kafka import KafkaAdminClient, KafkaConsumer, TopicPartition
from kafka.admin import NewTopic
from kafka.record import util

from pipeline.kafka_client import KafkaClient
from schemas.topics import key_of
from shippers.config import KafkaSettings
from shippers.sink import KafkaSink, RecordRefusedError, Sink, SinkUnavailableError, StdoutSink
from tests.shippers.fakes import FakeSink, eventually

NOWHERE = "127.0.0.1:1"


@dataclass
class Case:
    """A sink, and how to see what it took."""

    sink: Sink
    taken: Callable[[], list[bytes]]


def fake_case(request: pytest.FixtureRequest) -> Case:
    sink = FakeSink()
    return Case(sink, lambda: list(sink.values))


def stdout_case(request: pytest.FixtureRequest) -> Case:
    stream = io.BytesIO()
    return Case(StdoutSink(stream), lambda: stream.getvalue().splitlines())


def kafka_case(request: pytest.FixtureRequest) -> Case:
    bootstrap = request.getfixturevalue("kafka_broker").bootstrap
    topic = f"raw-{uuid.uuid4().hex}"
    make_topic(bootstrap, topic)
    sink = KafkaSink(KafkaSettings(bootstrap=bootstrap), key_of("live", "", "c", "n"), topic)
    return Case(sink, lambda: [value for _, value in consumed(bootstrap, topic)])


def make_topic(bootstrap: str, topic: str, **settings: str) -> None:
    admin = KafkaAdminClient(bootstrap_servers=bootstrap)
    admin.create_topics([NewTopic(name=topic, num_partitions=4, replication_factor=1, topic_configs=settings)])
    admin.close()


def consumed(bootstrap: str, topic: str) -> list[tuple[TopicPartition, bytes]]:
    consumer = KafkaConsumer(bootstrap_servers=bootstrap, enable_auto_commit=False, kafka_client=KafkaClient)
    parts = [TopicPartition(topic, number) for number in sorted(consumer.partitions_for_topic(topic) or ())]
    consumer.assign(parts)
    consumer.seek_to_beginning(*parts)
    ends: dict[TopicPartition, int] = consumer.end_offsets(parts)
    found: list[tuple[TopicPartition, bytes]] = []
    while any(consumer.position(part) < ends[part] for part in parts):
        for part, messages in consumer.poll(timeout_ms=500).items():
            found.extend((part, message.value) for message in messages)
    consumer.close()
    return found


@pytest.fixture(params=[fake_case, stdout_case, pytest.param(kafka_case, marks=pytest.mark.kafka)])
def case(request: pytest.FixtureRequest) -> Iterator[Case]:
    made: Case = request.param(request)
    yield made
    made.sink.close()


def sent(sink: Sink, value: bytes) -> None:
    pending = sink.send(value)
    eventually(lambda: pending.wait(0.1), "the record is acknowledged")


def test_what_is_acknowledged_has_been_taken_in_order(case: Case) -> None:
    values = [json.dumps({"n": number}).encode() for number in range(20)]
    for value in values:
        sent(case.sink, value)

    assert case.taken() == values


def test_a_closed_sink_can_be_closed_again(case: Case) -> None:
    sent(case.sink, b"{}")
    case.sink.close()
    case.sink.close()


def unreachable_fake() -> Sink:
    sink = FakeSink()
    sink.is_away = True
    return sink


@pytest.mark.parametrize(
    "make", [unreachable_fake, lambda: KafkaSink(KafkaSettings(bootstrap=NOWHERE), b"k")], ids=["fake", "kafka"]
)
def test_an_unreachable_sink_says_so_at_once(make: Callable[[], Sink]) -> None:
    with pytest.raises(SinkUnavailableError):
        make().send(b"{}")


@pytest.mark.kafka
def test_all_records_of_a_reporter_are_in_one_partition_where_murmur2_puts_its_key(kafka_broker: Any) -> None:
    topic = f"raw-{uuid.uuid4().hex}"
    make_topic(kafka_broker.bootstrap, topic)
    sink = KafkaSink(KafkaSettings(bootstrap=kafka_broker.bootstrap), key_of("live", "", "c", "node-7"), topic)
    for number in range(5):
        sent(sink, str(number).encode())
    sink.close()
    found = consumed(kafka_broker.bootstrap, topic)

    assert len({part for part, _ in found}) == 1
    assert [value for _, value in found] == [b"0", b"1", b"2", b"3", b"4"]


@pytest.mark.kafka
def test_a_topic_that_does_not_exist_is_unavailable_and_taken_once_it_is_made(kafka_broker: Any) -> None:
    topic = f"raw-{uuid.uuid4().hex}"
    sink = KafkaSink(KafkaSettings(bootstrap=kafka_broker.bootstrap), b"k", topic)
    with pytest.raises(SinkUnavailableError, match="create the topics first"):
        sink.send(b"{}")
    make_topic(kafka_broker.bootstrap, topic)
    sent(sink, b"{}")
    sink.close()

    assert [value for _, value in consumed(kafka_broker.bootstrap, topic)] == [b"{}"]


@pytest.mark.kafka
def test_a_record_larger_than_the_topic_takes_is_refused_for_good(kafka_broker: Any) -> None:
    topic = f"raw-{uuid.uuid4().hex}"
    make_topic(kafka_broker.bootstrap, topic, **{"max.message.bytes": "1000"})
    sink = KafkaSink(KafkaSettings(bootstrap=kafka_broker.bootstrap, compression="none"), b"k", topic)
    pending = sink.send(b"x" * 5000)
    with pytest.raises(RecordRefusedError):
        eventually(lambda: pending.wait(0.1), "an answer")
    sent(sink, b"{}")
    sink.close()

    assert [value for _, value in consumed(kafka_broker.bootstrap, topic)] == [b"{}"]


def test_batches_are_summed_up_by_the_library_in_c() -> None:
    """In Python it costs more of a core than all else that is done with a batch."""
    assert util._crc32c is crc32c.crc32c
