"""A topic that the broker does not know when partitions are assigned is read as soon as it does."""

import asyncio

import pytest
from aiokafka.admin import AIOKafkaAdminClient, NewTopic
from confluent_kafka import Producer

from pipeline.agents.app import WorkerConfig, make_app
from pipeline.embedded.kafka import KafkaBroker

pytestmark = [pytest.mark.kafka, pytest.mark.slow]

TOPIC = "known.late"


async def test_a_worker_finds_a_topic_that_was_unknown_at_its_assignment(kafka_broker: KafkaBroker) -> None:
    """So it is just after a broker has started: what was assigned then held for five minutes."""
    bootstrap = kafka_broker.bootstrap
    app = make_app(WorkerConfig(bootstrap=bootstrap, group="late-topic"))
    heard = asyncio.Event()
    source = app.topic(TOPIC, key_type=bytes, value_type=bytes, key_serializer="raw", value_serializer="raw")

    async def listen(stream: object) -> None:
        async for _ in stream:  # type: ignore[attr-defined]
            heard.set()

    app.agent(source, name="listen")(listen)
    assigned = asyncio.Event()
    app.on_partitions_assigned.connect(lambda *_, **__: assigned.set(), weak=False)
    await app.start()
    try:
        await asyncio.wait_for(assigned.wait(), 30)
        admin = AIOKafkaAdminClient(bootstrap_servers=bootstrap)
        await admin.start()
        await admin.create_topics([NewTopic(TOPIC, 4, 1)])
        await admin.close()
        producer = Producer({"bootstrap.servers": bootstrap})
        producer.produce(TOPIC, key=b"k", value=b"v")
        assert producer.flush(30) == 0

        await asyncio.wait_for(heard.wait(), 60)
    finally:
        await app.stop()
