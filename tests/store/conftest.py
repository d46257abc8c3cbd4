"""A database of its own for each test, on one real engine."""

import os
import time
import uuid
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import replace
from typing import Any

import pytest

from pipeline.embedded.clickhouse import ClickHouseServer
from pipeline.store import migrations
from pipeline.store.buffer import Buffer
from pipeline.store.clickhouse import Store
from pipeline.store.rows import Delivery, rows_of
from pipeline.store.settings import StoreSettings, settings_from_url
from pipeline.store.tables import TABLES

FILLED_TABLES = """
SELECT name FROM system.tables
WHERE database = currentDatabase() AND engine LIKE '%MergeTree' AND total_rows > 0 AND name != 'schema_migrations'
"""


def eventually(condition: Callable[[], Any], what: str, within_s: float = 120.0) -> Any:
    """The first true value of `condition`, or a failure that says what did not happen."""
    end = time.monotonic() + within_s
    while not (found := condition()):
        assert time.monotonic() < end, f"not within {within_s} s: {what}"
        time.sleep(0.05)
    return found


def url_of(settings: StoreSettings) -> str:
    """The address as a user would write it."""
    return f"http://{settings.user}:{settings.password}@{settings.host}:{settings.port}/{settings.database}"


@contextmanager
def new_database(url: str) -> Iterator[Store]:
    """A connection to a database of its own that does not exist yet and is gone afterwards."""
    store = Store(replace(settings_from_url(url), database=f"t_{os.getpid()}_{uuid.uuid4().hex[:8]}"))
    yield store
    store.command("DROP DATABASE IF EXISTS {name:Identifier}", {"name": store.settings.database}, database="")
    store.close()


@pytest.fixture
def empty_store(clickhouse_server: ClickHouseServer) -> Iterator[Store]:
    """A connection to a database that does not exist yet."""
    with new_database(clickhouse_server.url) as store:
        yield store


@pytest.fixture(scope="session")
def migrated(clickhouse_server: ClickHouseServer) -> Iterator[StoreSettings]:
    """A migrated database that tests take one after the other: to migrate takes longer than most of them."""
    with new_database(clickhouse_server.url) as store:
        migrations.apply(store, migrations.load_migrations())
        yield store.settings


@pytest.fixture
def store(migrated: StoreSettings) -> Iterator[Store]:
    """A connection to a migrated database without rows. Tests that change tables take `empty_store`."""
    store = Store(migrated)
    for (table,) in store.rows(FILLED_TABLES):
        store.command("TRUNCATE TABLE {table:Identifier}", {"table": table})
    yield store
    store.close()


@pytest.fixture(scope="module")
def shared_store(clickhouse_server: ClickHouseServer) -> Iterator[Store]:
    """As `store`, one for all tests of a module that only read, or write what nobody else looks for."""
    with new_database(clickhouse_server.url) as store:
        migrations.apply(store, migrations.load_migrations())
        yield store


def put(store: Store, *records: Any, timestamp_ms: int = 1_772_359_300_000, first_offset: int = 0) -> None:
    """Store records as the sink does, each as one message."""
    buffer = Buffer(max_rows=1, max_bytes=1, max_age_s=0)
    for number, record in enumerate(records):
        delivery = Delivery(timestamp_ms=timestamp_ms + number, offset=first_offset + number)
        buffer.add(("any", 0), delivery.offset, rows_of(record, delivery), size=0, now_s=0)
    block = buffer.take()
    for table in TABLES:
        if rows := block.rows.get(table.name):
            store.insert(table, rows)


def value(store: Store, sql: str) -> Any:
    """The one cell of an answer."""
    return store.rows(sql)[0][0]
