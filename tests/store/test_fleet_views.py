"""What stands now and what stood then: spans, attempts, corrections."""

from datetime import datetime
from typing import Any

import pytest

from pipeline.store import migrations
from pipeline.store.clickhouse import Store
from pipeline.store.sqlfiles import MIGRATIONS, split_statements
from tests.store.fleet_seed import DAY1, HOUR, correct, put_spans, span

MORNING_MS = DAY1 // 10**6
NOON_MS = MORNING_MS + 12 * 3_600_000


def units(store: Store, as_of: str = "") -> list[Any]:
    source = f"fleet_spans_as_of(as_of = '{as_of}')" if as_of else "fleet_spans"
    return [tuple(row) for row in store.rows(f"SELECT unit, kind FROM {source} ORDER BY ALL")]


@pytest.mark.clickhouse
def test_a_file_imported_again_stands_for_the_whole_file_and_the_old_one_can_be_asked_for(store: Store) -> None:
    put_spans(store, [span("c1", "installed", "gpu", name, DAY1) for name in ("g1", "g2")], known_ms=MORNING_MS)
    put_spans(store, [span("c1", "installed", "gpu", "g3", DAY1)], generation=2, known_ms=NOON_MS)
    assert units(store) == [("g3", "installed")]
    assert units(store, "2026-03-01 11:59:59") == [("g1", "installed"), ("g2", "installed")]
    assert units(store, "2026-02-28 00:00:00") == []


@pytest.mark.clickhouse
def test_an_import_that_was_cut_off_leaves_what_its_file_told_before(store: Store) -> None:
    put_spans(store, [span("c1", "installed", "gpu", name, DAY1) for name in ("g1", "g2")], known_ms=MORNING_MS)
    put_spans(store, [span("c1", "installed", "gpu", "g3", DAY1)], generation=2, known_ms=NOON_MS)
    store.command("DELETE FROM fleet_spans_rows WHERE generation = 2 AND kind = 'imported'")
    assert units(store) == [("g1", "installed"), ("g2", "installed")]


@pytest.mark.clickhouse
def test_what_is_streamed_replaces_row_by_row(store: Store) -> None:
    begun = [span("c1", "drain", "gpu", name, DAY1) for name in ("g1", "g2")]
    put_spans(store, begun, generation=0)
    put_spans(store, [span("c1", "drain", "gpu", "g1", DAY1, DAY1 + HOUR)], generation=0, version=2)
    found = store.rows("SELECT unit, ended_at FROM fleet_spans ORDER BY unit")
    assert [tuple(row) for row in found] == [("g1", datetime(2026, 3, 1, 1)), ("g2", None)]  # noqa: DTZ001


@pytest.mark.clickhouse
def test_a_span_whose_end_was_streamed_later_was_open_then(store: Store) -> None:
    whole = span("c1", "drain", "gpu", "g1", DAY1, DAY1 + HOUR, outcome="trusted")
    late = span("c1", "drain", "gpu", "g2", DAY1 + 13 * HOUR)
    put_spans(store, [whole, late], generation=0, known_ms=NOON_MS + 7_200_000, version=2)
    asked = "SELECT unit, ended_at, outcome FROM fleet_spans_as_of(as_of = '{}') ORDER BY unit"
    assert [tuple(row) for row in store.rows(asked.format("2026-03-01 12:00:00"))] == [("g1", None, "")]
    found = store.rows(asked.format("2026-03-01 14:00:00"))
    assert [tuple(row) for row in found] == [("g1", datetime(2026, 3, 1, 1), "trusted"), ("g2", None, "")]  # noqa: DTZ001


@pytest.mark.clickhouse
def test_the_last_word_on_an_incident_stands(store: Store) -> None:
    correct(store, "i1", at_ms=MORNING_MS, is_failure=False)
    correct(store, "i1", at_ms=NOON_MS, class_="hardware/psu", node="n1")
    asked = "SELECT class, is_failure FROM "
    assert [tuple(row) for row in store.rows(asked + "corrections")] == [("hardware/psu", True)]
    then = store.rows(asked + "corrections_as_of(as_of = '2026-03-01 11:00:00')")
    assert [tuple(row) for row in then] == [("", False)]


@pytest.mark.clickhouse
def test_the_views_can_be_taken_down(empty_store: Store) -> None:
    store = empty_store
    migrations.apply(store, migrations.load_migrations())
    for sql in split_statements((MIGRATIONS / "0008_fleet_views.down.sql").read_text(encoding="utf-8")):
        store.command(sql)
    left = {name for (name,) in store.rows("SHOW TABLES")}
    assert not {name for name in left if name.endswith("_as_of") or name == "standing_builds"}
    assert "exposure_days_rows" in left
