"""One key, one partition: all clients hash UTF-8 bytes with murmur2."""

from collections import defaultdict
from typing import Any

import pytest
from aiokafka import AIOKafkaProducer
from aiokafka.admin import AIOKafkaAdminClient, NewTopic
from confluent_kafka import Producer
from faust import App
from kafka import KafkaProducer

from pipeline.agents.app import WorkerConfig, make_app
from pipeline.embedded.kafka import KafkaBroker
from tests.agents.conftest import read_topic

pytestmark = pytest.mark.kafka

KEYS = [f"cluster-{n % 3}/knoten-ü{n}".encode() for n in range(200)]
TOPIC = "partition.agreement"


def by_kafka_python(bootstrap: str) -> None:
    producer = KafkaProducer(bootstrap_servers=bootstrap)
    for key in KEYS:
        producer.send(TOPIC, key=key, value=b"kafka-python")
    producer.flush()
    producer.close()


def by_librdkafka(bootstrap: str, partitioner: str | None) -> None:
    settings = {"bootstrap.servers": bootstrap}
    if partitioner:
        settings["partitioner"] = partitioner
    producer = Producer(settings)
    for key in KEYS:
        producer.produce(TOPIC, key=key, value=f"librdkafka {partitioner}".encode())
    assert producer.flush(30) == 0


async def by_faust(bootstrap: str) -> None:
    app: Any = make_app(WorkerConfig(bootstrap=bootstrap, group="agreement"))
    producer = app.producer
    assert isinstance(app, App)
    await producer.start()
    try:
        for key in KEYS:
            await (await producer.send(TOPIC, key, b"faust", None, None, None))
        assert isinstance(producer._producer, AIOKafkaProducer)
    finally:
        await producer.stop()


async def test_kafka_python_faust_and_librdkafka_agree_once_librdkafka_is_told_so(kafka_broker: KafkaBroker) -> None:
    bootstrap = kafka_broker.bootstrap
    admin = AIOKafkaAdminClient(bootstrap_servers=bootstrap)
    await admin.start()
    await admin.create_topics([NewTopic(TOPIC, 12, 1)])
    await admin.close()
    by_kafka_python(bootstrap)
    await by_faust(bootstrap)
    by_librdkafka(bootstrap, "murmur2_random")
    by_librdkafka(bootstrap, None)
    partitions: dict[str, dict[bytes, int]] = defaultdict(dict)
    for message in read_topic(bootstrap, TOPIC):
        partitions[(message.value() or b"").decode()][message.key() or b""] = message.partition() or 0
    assert partitions["kafka-python"] == partitions["faust"] == partitions["librdkafka murmur2_random"]
    assert len(set(partitions["faust"].values())) == 12
    assert partitions["librdkafka None"] != partitions["faust"], "the default of librdkafka has become murmur2"
