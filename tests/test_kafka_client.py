"""A consumer's connections are closed by the thread that works on them."""

import threading

import pytest
from kafka import KafkaConsumer

from pipeline.embedded.kafka import KafkaBroker
from pipeline.kafka_client import KafkaClient


@pytest.mark.kafka
@pytest.mark.parametrize("group", [None, "closing"])
def test_the_loops_own_thread_closes_connections(kafka_broker: KafkaBroker, group: str | None) -> None:
    consumer = KafkaConsumer(
        bootstrap_servers=kafka_broker.bootstrap, group_id=group, enable_auto_commit=False, kafka_client=KafkaClient
    )
    consumer.topics()
    loop = consumer._net._io_thread
    connections = [each for each in consumer._manager._conns.values() if not each.closed]
    closed_by = []
    for connection in connections:

        def close(error: BaseException | None = None, close: object = connection.close) -> None:
            closed_by.append(threading.current_thread())
            close(error)  # type: ignore[operator]

        connection.close = close

    consumer.close()
    consumer.close()

    assert connections
    assert set(closed_by) == {loop}
    assert not loop.is_alive()
