"""The real parts, one of each for the whole test session. A test that uses one carries its marker."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from pipeline.embedded.clickhouse import ClickHouseServer
from pipeline.embedded.kafka import KafkaBroker
from pipeline.embedded.kafka_jars import fetch_kafka_jars


@pytest.fixture(scope="session")
def kafka_jars() -> Path:
    """The Kafka jars, fetched once per machine into the user's cache."""
    return fetch_kafka_jars()


@pytest.fixture(scope="session")
def kafka_broker(kafka_jars: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[KafkaBroker]:
    """A real broker without topics: each test makes its own, under names no other test uses. Nobody kills this one."""
    broker = KafkaBroker(tmp_path_factory.mktemp("kafka"), jars_dir=kafka_jars)
    broker.start()
    yield broker
    broker.stop()


@pytest.fixture(scope="session")
def clickhouse_server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ClickHouseServer]:
    """A real engine: each test makes its own database, under a name no other test uses. Nobody kills this one."""
    server = ClickHouseServer(tmp_path_factory.mktemp("clickhouse"))
    server.start()
    yield server
    server.stop()
