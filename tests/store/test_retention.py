"""Rows go when their time has come, and not before: on the real engine, after its own merges.

Each table is filled with a row that is past its time and one that is not, for live rows and for others.
"""

from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest

from pipeline.store import queries
from pipeline.store.clickhouse import Store
from pipeline.store.sqlfiles import ROOT
from pipeline.store.tables import Table

pytestmark = pytest.mark.clickhouse

NOW = datetime.now(UTC).replace(microsecond=0, tzinfo=None)
README = Path(ROOT) / "README.md"
# Table: the column its time counts from; days for live rows, for others.
TABLES: dict[str, tuple[str, int, int]] = {
    "raw_lines_rows": ("stored_at", 30, 7),
    "events_rows": ("stored_at", 400, 14),
    "event_jobs_rows": ("stored_at", 400, 14),
    "job_aliases_rows": ("stored_at", 400, 14),
    "incident_revisions_rows": ("stored_at", 1825, 14),
    "chain_steps_rows": ("stored_at", 1825, 14),
    "culprits_rows": ("stored_at", 1825, 14),
    "gaps_rows": ("stored_at", 400, 14),
    "unverified_rows": ("stored_at", 30, 7),
    "releases_rows": ("stored_at", 400, 14),
    "progress_rows": ("stored_at", 90, 14),
    "placement_rows": ("stored_at", 400, 14),
    "clock_segments_rows": ("stored_at", 90, 14),
    "clocks_rows": ("stored_at", 90, 14),
    "observed_minutes_rows": ("hour", 400, 14),
    "fleet_spans_rows": ("known_at", 1825, 14),
    "job_attempts_rows": ("known_at", 1825, 14),
    "incident_corrections_rows": ("corrected_at", 1825, 14),
    "fleet_builds_rows": ("built_at", 1825, 14),
    "exposure_days_rows": ("built_at", 1825, 14),
    "episode_days_rows": ("built_at", 1825, 14),
    "failure_days_rows": ("built_at", 1825, 14),
    "data_quality_rows": ("built_at", 1825, 14),
}
# Tables whose rows have no run.
WITHOUT_RUN = {
    "dead_letters_rows": ("stored_at", 90),
    "shippers_rows": ("last_seen", 400),
    "rebuilds_rows": ("told_at", 1825),
}
FOR_EVER = {"sink_offsets", "schema_migrations"}


def test_every_table_has_a_row_here(shared_store: Store) -> None:
    tables = {
        row[0]
        for row in shared_store.rows(
            "SELECT name FROM system.tables WHERE database = currentDatabase() AND engine LIKE '%MergeTree'"
        )
    }

    assert tables == {*TABLES, *WITHOUT_RUN, *FOR_EVER}


def keys_left(store: Store, table: str, column: str, rows: list[tuple[str, timedelta]]) -> list[str]:
    """Insert rows of so many days ago, each under a cluster (or another key) of its name; the names that are left."""
    key = {"dead_letters_rows": "topic", "rebuilds_rows": "rebuild_id"}.get(table, "cluster")
    columns = (key, column) if table in WITHOUT_RUN else (key, "run", column)
    values = []
    for name, age in rows:
        at = NOW - age
        values.append((name, at) if table in WITHOUT_RUN else (name, name.split()[0], at))
    store.insert(Table(name=table, columns=columns), values)
    store.command(f"OPTIMIZE TABLE {table} FINAL")
    names = [name for name, _ in rows]
    left = {row[0] for row in store.rows(f"SELECT {key} FROM {table}")}
    return [name for name in names if name in left]


@pytest.mark.parametrize("table", TABLES)
def test_rows_of_live_and_other_runs_stay_as_long_as_is_said(shared_store: Store, table: str) -> None:
    column, live, other = TABLES[table]
    day = timedelta(days=1)

    left = keys_left(
        shared_store, table, column,
        [
            ("live old", live * day + day), ("live new", live * day - day),
            ("replay old", other * day + day), ("replay new", other * day - day), ("drill old", other * day + day),
        ],
    )  # fmt: skip

    assert left == ["live new", "replay new"]


@pytest.mark.parametrize("table", WITHOUT_RUN)
def test_rows_without_a_run_stay_as_long_as_is_said(shared_store: Store, table: str) -> None:
    column, days = WITHOUT_RUN[table]

    left = keys_left(
        shared_store, table, column, [("old", timedelta(days=days + 1)), ("new", timedelta(days=days - 1))]
    )

    assert left == ["new"]


def test_the_readme_says_of_every_table_how_long_it_keeps_and_counts_from_what() -> None:
    text = README.read_text(encoding="utf-8")
    said = {
        **{t: (c, f"{live} / {other}") for t, (c, live, other) in TABLES.items()},
        **{t: (c, str(days)) for t, (c, days) in WITHOUT_RUN.items()},
    }

    assert [t for t, (column, days) in said.items() if f"| `{t}` | {days} | `{column}` |" not in text] == []


def test_the_query_storage_shows_every_table_with_its_time(shared_store: Store) -> None:
    rows = queries.run_query(shared_store, queries.load_query("storage"), {}).objects()

    assert {row["table"] for row in rows} == {*TABLES, *WITHOUT_RUN, *FOR_EVER}
    assert [row["table"] for row in rows if (row["ttl"] == "") != (row["table"] in FOR_EVER)] == []
