"""What our tables rely on, tried on the embedded engine."""

import uuid
from collections.abc import Iterator

import clickhouse_connect
import pytest
from clickhouse_connect.driver.client import Client

from pipeline.embedded.clickhouse import ClickHouseServer

pytestmark = pytest.mark.clickhouse


@pytest.fixture
def database(clickhouse_server: ClickHouseServer) -> Iterator[Client]:
    name = f"t{uuid.uuid4().hex}"
    with clickhouse_connect.get_client(host="127.0.0.1", port=clickhouse_server.port) as client:
        client.command(f"CREATE DATABASE {name}")
        client.database = name
        yield client
        client.command(f"DROP DATABASE {name}")


@pytest.fixture
def table(database: Client) -> Client:
    database.command(
        "CREATE TABLE t (id UInt32, day Date, version UInt64, body String,"
        " at DateTime64(9, 'UTC') CODEC(Delta, ZSTD), kind LowCardinality(String),"
        " attributes Map(LowCardinality(String), String), hash UInt64 MATERIALIZED cityHash64(body),"
        " INDEX keys mapKeys(attributes) TYPE bloom_filter(0.01) GRANULARITY 1,"
        " INDEX words body TYPE tokenbf_v1(10240, 3, 0) GRANULARITY 1)"
        " ENGINE = ReplacingMergeTree(version) PARTITION BY day ORDER BY id TTL day + INTERVAL 30 DAY DELETE"
    )
    return database


def test_final_shows_the_last_version_at_once_and_partitions_stay_apart(table: Client) -> None:
    for version, body in ((1, "first"), (2, "second")):
        table.command(f"INSERT INTO t (id, day, version, body) VALUES (1, today(), {version}, '{body}')")
    table.command("INSERT INTO t (id, day, version, body) VALUES (1, today() - 1, 9, 'other day')")

    rows = table.query(
        "SELECT body, hash = cityHash64(body) FROM t FINAL ORDER BY day DESC"
        " SETTINGS do_not_merge_across_partitions_select_final = 1"
    ).result_rows

    assert rows == [("second", 1), ("other day", 1)]


def test_expired_rows_go_with_a_merge(table: Client) -> None:
    table.command("INSERT INTO t (id, day) VALUES (1, today() - 31), (2, today())")
    table.command("OPTIMIZE TABLE t FINAL")

    assert table.query("SELECT id FROM t").result_rows == [(2,)]


def test_a_word_index_leaves_parts_unread(table: Client) -> None:
    table.command("INSERT INTO t (id, day, body) VALUES (1, today(), 'watchdog caught'), (2, today() - 1, 'link down')")

    plan = table.raw_query("EXPLAIN indexes = 1 SELECT * FROM t WHERE hasToken(body, 'watchdog')").decode()

    assert "tokenbf_v1" in plan
    assert "Parts: 1/2" in plan


def test_a_text_index_finds_words(database: Client) -> None:
    database.command(
        "CREATE TABLE t (id UInt64, body String, INDEX words body TYPE text(tokenizer = 'splitByNonAlpha'))"
        " ENGINE = MergeTree ORDER BY id"
    )
    database.command("INSERT INTO t VALUES (1, 'watchdog caught'), (2, 'link down')")

    assert database.query("SELECT id FROM t WHERE hasAnyTokens(body, ['down'])").result_rows == [(2,)]


def test_asof_join_takes_the_last_reading_before(database: Client) -> None:
    for name in ("readings", "events"):
        database.command(
            f"CREATE TABLE {name} (node String, at DateTime64(9, 'UTC'), value Int64)"
            " ENGINE = MergeTree ORDER BY (node, at)"
        )
    database.command("INSERT INTO readings VALUES ('a', '2026-01-01 00:00:05', 5), ('a', '2026-01-01 00:00:11', 11)")
    database.command("INSERT INTO events VALUES ('a', '2026-01-01 00:00:10.000000001', 0)")

    rows = database.query(
        "SELECT r.value FROM events AS e ASOF JOIN readings AS r ON e.node = r.node AND e.at >= r.at"
    ).result_rows

    assert rows == [(5,)]


def test_a_view_that_refreshes_is_rebuilt(table: Client) -> None:
    table.command("INSERT INTO t (id, day) VALUES (1, today()), (2, today())")
    table.command(
        "CREATE MATERIALIZED VIEW daily REFRESH EVERY 1 DAY ENGINE = MergeTree ORDER BY day EMPTY"
        " AS SELECT day, count() AS rows FROM t GROUP BY day"
    )
    table.command("SYSTEM REFRESH VIEW daily")
    table.command("SYSTEM WAIT VIEW daily")

    assert table.query("SELECT rows FROM daily").result_rows == [(2,)]
