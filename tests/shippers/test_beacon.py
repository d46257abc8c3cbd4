import uuid
from typing import Any

import pytest

from shippers.beacon import BeaconProducer
from shippers.config import ClockSettings, Config, KafkaSettings
from shippers.sink import SinkUnavailableError
from tests.shippers.fakes import eventually
from tests.shippers.test_sink import make_topic

pytestmark = pytest.mark.kafka


@pytest.fixture
def config(kafka_broker: Any) -> Config:
    return Config(
        cluster="c", reporter="n", kafka=KafkaSettings(bootstrap=kafka_broker.bootstrap), clock=ClockSettings()
    )


def producer_on(config: Config, topic: str) -> BeaconProducer:
    return BeaconProducer(config, "boot", "shipper", topic)


def test_a_beacon_brings_back_the_brokers_stamp_between_sending_and_answer(config: Config) -> None:
    topic = f"beacon-{uuid.uuid4().hex}"
    make_topic(config.kafka.bootstrap, topic, **{"message.timestamp.type": "LogAppendTime"})
    producer = producer_on(config, topic)
    partition = eventually(producer.partitions, "a leader")[0]
    sample = producer.sample(partition, 0)
    producer.close()

    assert sample is not None
    assert sample.t0_ns < sample.t1_ns
    assert sample.broker_time_ms > 1_600_000_000_000
    assert sample.broker_id >= 0


def test_one_partition_of_each_broker_is_used(config: Config) -> None:
    topic = f"beacon-{uuid.uuid4().hex}"
    make_topic(config.kafka.bootstrap, topic, **{"message.timestamp.type": "LogAppendTime"})
    producer = producer_on(config, topic)
    partitions = eventually(producer.partitions, "a leader")
    producer.close()

    assert len(partitions) == 1


def test_a_topic_that_does_not_stamp_gives_no_sample_instead_of_a_perfect_one(config: Config) -> None:
    topic = f"beacon-{uuid.uuid4().hex}"
    make_topic(config.kafka.bootstrap, topic, **{"message.timestamp.type": "CreateTime"})
    producer = producer_on(config, topic)
    partition = eventually(producer.partitions, "a leader")[0]
    sample = producer.sample(partition, 0)
    is_unstamped = producer.is_unstamped
    producer.close()

    assert sample is None
    assert is_unstamped


def test_a_missing_topic_is_unavailable(config: Config) -> None:
    producer = producer_on(config, f"beacon-{uuid.uuid4().hex}")
    with pytest.raises(SinkUnavailableError):
        producer.partitions()
    producer.close()
