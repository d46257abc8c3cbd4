"""The real parts, one of each for the whole test session. A test that uses one carries its marker."""

import shutil
from collections.abc import AsyncIterator, Iterator
from pathlib import Path

import pytest
from hypothesis import settings
from playwright.async_api import Browser, async_playwright

from pipeline.embedded.clickhouse import ClickHouseServer
from pipeline.embedded.kafka import KafkaBroker
from pipeline.embedded.kafka_jars import fetch_kafka_jars
from schemas.topics import TOPICS
from tests.secured_kafka import SecuredKafka

# How long an example takes says how busy the machine is.
settings.register_profile("rootrank", deadline=None)
settings.load_profile("rootrank")

# Never to a display, never to the outside: no updates, no sync, no background traffic.
_CHROMIUM_FLAGS = [
    "--headless", "--no-sandbox", "--disable-gpu", "--disable-quic", "--no-first-run",
    "--disable-background-networking", "--disable-component-update", "--disable-sync",
]  # fmt: skip


@pytest.fixture
async def browser() -> AsyncIterator[Browser]:
    """The Chromium of the system; the tests download none."""
    found = next(filter(None, map(shutil.which, ("chromium", "chromium-browser", "google-chrome"))), None)
    assert found, "install chromium (Debian: apt-get install chromium) to run the tests marked browser"
    async with async_playwright() as playwright:
        browser = await playwright.chromium.launch(executable_path=found, args=_CHROMIUM_FLAGS, headless=True)
        yield browser
        await browser.close()


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
def secured_kafka(kafka_jars: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[SecuredKafka]:
    """A real broker with TLS, SCRAM and client certificates, with all topics. Nobody kills this one."""
    broker = SecuredKafka(tmp_path_factory.mktemp("secured-kafka"), kafka_jars)
    broker.start()
    broker.make_topics(TOPICS)
    yield broker
    broker.stop()


@pytest.fixture(scope="session")
def clickhouse_server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ClickHouseServer]:
    """A real engine: each test makes its own database, under a name no other test uses. Nobody kills this one."""
    server = ClickHouseServer(tmp_path_factory.mktemp("clickhouse"))
    server.start()
    yield server
    server.stop()
