"""One broker and one engine for all end-to-end tests; tests may kill and restart them, and leave them running."""

from collections.abc import Iterator
from importlib.resources import files
from pathlib import Path

import pytest

from pipeline.embedded.clickhouse import ClickHouseServer
from pipeline.embedded.kafka import KafkaBroker
from pipeline.store import migrations
from pipeline.store.clickhouse import Store
from pipeline.store.settings import settings_from_url
from tests.e2e.fleet import Fleet


@pytest.fixture(scope="session")
def mortal_broker(kafka_jars: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[KafkaBroker]:
    """A broker that a test may kill, if it starts it again."""
    broker = KafkaBroker(tmp_path_factory.mktemp("mortal-kafka"), jars_dir=kafka_jars)
    broker.start()
    yield broker
    broker.stop()


@pytest.fixture(scope="session")
def mortal_clickhouse(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ClickHouseServer]:
    """An engine that a test may kill, if it starts it again."""
    server = ClickHouseServer(tmp_path_factory.mktemp("mortal-clickhouse"))
    server.start()
    yield server
    server.stop()


@pytest.fixture
def fleet(tmp_path: Path, mortal_broker: KafkaBroker, mortal_clickhouse: ClickHouseServer) -> Iterator[Fleet]:
    """A running worker and a running store."""
    url = f"{mortal_clickhouse.url}/rootrank"
    store = Store(settings_from_url(url))
    migrations.apply(store, migrations.load_migrations())
    store.close()
    fleet = Fleet(tmp_path, mortal_broker.bootstrap, url)
    fleet.add_worker()
    fleet.add_store()
    yield fleet
    fleet.stop()


@pytest.fixture
def demo() -> Path:
    """The bundled incident."""
    return Path(str(files("pipeline").joinpath("demo", "fell_off_bus")))
