"""Records as rows: every column has a value, and the same delivery gives the same row."""

from datetime import date
from typing import Any

import msgspec
import pytest

from pipeline.store import tables
from pipeline.store.buffer import Buffer
from pipeline.store.rows import Delivery, rows_of
from pipeline.store.tables import Table
from pipeline.store.values import day, rfc3339_ns
from schemas import records as r
from tests.store import seed

DELIVERY = Delivery(timestamp_ms=1_772_359_300_000, offset=5)
RECORDS = [
    seed.batch(gaps=[seed.GAP]), seed.progress(), seed.event_batch([seed.event(1)], gaps=[seed.GAP]), seed.incident(),
    seed.placement(), seed.dead_letter(), seed.segment(), seed.drain(),
    seed.unsigned(), seed.release(),
    r.JobAlias(run="live", run_id="r", cluster="c", job_key="k", aliases=["k", "a"], why="w"),
]  # fmt: skip


def named(record: msgspec.Struct, table: Table, delivery: Delivery = DELIVERY) -> list[dict[str, Any]]:
    rows = [row for found, row in rows_of(record, delivery) if found is table]
    return [dict(zip(table.columns, row, strict=True)) for row in rows]


@pytest.mark.parametrize("record", RECORDS, ids=lambda record: type(record).__name__)
def test_each_row_has_a_value_for_each_column(record: msgspec.Struct) -> None:
    rows = list(rows_of(record, DELIVERY))
    assert rows
    for table, row in rows:
        assert len(row) == len(table.columns), table.name


def test_every_table_is_fed_by_some_record() -> None:
    fed = {table.name for record in RECORDS for table, _ in rows_of(record, DELIVERY)}
    assert fed == {table.name for table in tables.TABLES}


def test_a_record_that_no_table_keeps_has_no_rows() -> None:
    record = r.NodeProgress(
        run="live", run_id="r", cluster="c", reporter="n", job_key="k", node="n", through_unix_nano=1
    )
    assert list(rows_of(record, DELIVERY)) == []


def test_a_line_names_the_node_its_source_speaks_about() -> None:
    batch = msgspec.structs.replace(seed.batch("login1"), source_attributes={"kern.log": {"node": "n7", "rank": "3"}})
    row = named(batch, tables.RAW_LINES)[0]
    assert (row["reporter"], row["node"]) == ("login1", "n7")
    assert row["ResourceAttributes"] == {"node": "n7", "rank": "3"}


def test_a_kernel_priority_is_a_severity() -> None:
    row = named(seed.batch(), tables.RAW_LINES)[0]
    assert (row["SeverityText"], row["SeverityNumber"], row["ServiceName"]) == ("error", 17, "kernel")


def test_the_day_of_a_row_comes_from_the_shipper_alone() -> None:
    assert [row["day"] for row in named(seed.batch(lines=1), tables.RAW_LINES)] == [date(2026, 3, 1)]
    assert [row["day"] for row in named(seed.batch(lines=1, observed_ns=0), tables.RAW_LINES)] == [date(1970, 1, 1)]
    moved = seed.event_batch([seed.event(1, shift_ns=10 * 86_400 * seed.NS)])
    assert named(moved, tables.EVENTS)[0]["day"] == date(2026, 3, 1)


@pytest.mark.parametrize(
    ("year", "known"), [(1970, False), (1999, False), (2000, True), (2099, True), (2100, False), (2262, False)]
)
def test_days_of_clocks_that_were_never_set_are_one_day(year: int, known: bool) -> None:
    days = (date(year, 6, 1) - date(1970, 1, 1)).days
    assert day(days * 86_400 * seed.NS) == (date(year, 6, 1) if known else date(1970, 1, 1))


def test_a_later_message_of_a_partition_has_the_higher_version() -> None:
    deliveries = [(5, 2**20 - 2), (5, 2**20 - 1), (6, 2**20), (6, 2**20 + 1)]
    versions = [Delivery(timestamp_ms=ms, offset=offset).version for ms, offset in deliveries]
    assert versions == sorted(set(versions))


@pytest.mark.parametrize(
    ("text", "ns"),
    [
        ("1970-01-01T00:00:01Z", seed.NS),
        ("1970-01-01T00:00:01.000000001Z", seed.NS + 1),
        ("1970-01-01T01:00:01.5+01:00", seed.NS + 500_000_000),
        ("1969-12-31T23:00:00Z", 0),
        ("yesterday", None),
        (None, None),
    ],
)
def test_times_keep_their_nine_digits(text: str | None, ns: int | None) -> None:
    assert rfc3339_ns(text) == ns


def test_an_incident_says_whether_everything_was_watched() -> None:
    full = seed.incident()
    silent = msgspec.structs.replace(full, coverage={"kernel": r.Coverage(expected=2, seen=2, silent=["n2"])})
    unwatched = msgspec.structs.replace(full, coverage={})
    found = [named(i, tables.INCIDENTS)[0]["full_coverage"] for i in (full, silent, unwatched)]
    assert found == [True, False, False]


def test_a_step_says_what_led_to_it() -> None:
    steps = named(seed.incident(), tables.CHAIN_STEPS)
    assert [(s["step"], s["after_steps"], s["after_order"]) for s in steps] == [(1, [], []), (2, [1], ["certain"])]


def test_one_block_carries_only_the_latest_progress_of_a_source() -> None:
    buffer = Buffer(max_rows=10**6, max_bytes=10**9, max_age_s=1)
    for second in range(100):
        rows = rows_of(seed.progress(through_ns=seed.T0 + second), DELIVERY)
        buffer.add(("raw", 0), second, rows, size=10, now_s=0)
    block = buffer.take()
    assert len(block.rows["progress_rows"]) == 2
    assert block.offsets == {("raw", 0): 99}


def test_a_block_is_due_when_it_is_full_large_or_old() -> None:
    rows = list(rows_of(seed.batch(lines=5), DELIVERY))

    def filled(**limits: Any) -> Buffer:
        buffer = Buffer(**{"max_rows": 100, "max_bytes": 1000, "max_age_s": 1.0, **limits})
        buffer.add(("raw", 0), 1, rows, size=100, now_s=10.0)
        return buffer

    assert not filled().due(10.9)
    assert filled().due(11.0)
    assert filled(max_rows=5).due(10.0)
    assert filled(max_bytes=100).due(10.0)
    empty = filled()
    empty.take()
    assert not empty.due(99.0)


def test_an_incident_does_not_wait_for_a_full_block() -> None:
    buffer = Buffer(max_rows=100, max_bytes=1000, max_age_s=1.0)
    buffer.add(("raw", 0), 1, rows_of(seed.batch(), DELIVERY), size=1, now_s=10.0)
    buffer.add(("incidents", 0), 1, rows_of(seed.incident(), DELIVERY), size=1, now_s=10.2)
    assert not buffer.due(10.2)
    assert buffer.due(10.3)
