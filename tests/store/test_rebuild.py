"""Stored raw lines read again: what stands stays until it is replaced, and is replaced whole."""

from collections.abc import Iterator
from datetime import date, datetime
from pathlib import Path
from typing import Any

import msgspec
import orjson
import pytest
from typer.testing import CliRunner

from pipeline.__main__ import build
from pipeline.core.fleet.rebuilt import Comparison
from pipeline.diagnose import diagnose
from pipeline.drill.generate import Options, incident, write
from pipeline.embedded.clickhouse import ClickHouseServer
from pipeline.fleet.rebuild import Rebuild, begun, scope_of, window_of
from pipeline.fleet.rebuild_journal import STALE_MS, RebuildError, Window, create_staging, settle
from pipeline.store import migrations
from pipeline.store.clickhouse import Store
from pipeline.store.sqlfiles import split_statements, statement
from schemas.records import Annotation, Culprit, EventBatch, Incident, RawBatch
from tests.store.conftest import new_database, put, url_of, value
from tests.store.live import NS, store_live

pytestmark = pytest.mark.clickhouse

DEMO = Path(__file__).parents[2] / "pipeline" / "demo" / "fell_off_bus"
# 2026-03-11T10:46:00Z: right after the failure, as an agent that follows the files
READ_NS = 1_773_225_960 * NS
DAY = date(2026, 3, 11)
WINDOW = Window(since=DAY, until=DAY)
NOW_MS = 1_780_000_000_000
VIEWS = ("events", "event_jobs", "incidents", "chain_steps", "culprits")


@pytest.fixture
def other_store(clickhouse_server: ClickHouseServer) -> Iterator[Store]:
    """Another migrated, empty database."""
    with new_database(clickhouse_server.url) as other:
        migrations.apply(other, migrations.load_migrations())
        yield other


def before_xids(record: msgspec.Struct) -> msgspec.Struct | None:
    """As an engine stored it that did not know Xids: no such event, and a job that failed for no known reason."""
    if isinstance(record, EventBatch):
        return msgspec.structs.replace(record, events=[e for e in record.events if e.name != "gpu.xid"])
    if isinstance(record, Incident):
        return msgspec.structs.replace(record, class_="unknown/no_cause", xid=None, culprits=[])
    return record


def stand(store: Store) -> dict[str, list[Any]]:
    """All that people see of events and incidents."""
    return {view: list(store.rows(f"SELECT * FROM {view} ORDER BY ALL")) for view in VIEWS}


def classes(store: Store) -> list[tuple[str, int, str]]:
    """Class, revision and state of all incidents."""
    return [tuple(row) for row in store.rows("SELECT class, revision, state FROM incidents ORDER BY ALL")]


def silent(_: str) -> None:
    """Nobody watches."""


def rebuilt(store: Store, *, swap: bool = True, now_ms: int = NOW_MS) -> Comparison:
    """Rebuild the day."""
    with begun(store, WINDOW, now_ms=now_ms) as work:
        comparison = work.build(silent)
        if swap:
            work.swap()
    return comparison


def staged_tables(store: Store) -> list[str]:
    """Tables of a rebuild that exist."""
    return [row[0] for row in store.rows("SHOW TABLES LIKE 'rebuild\\\\_%'")]


def test_the_same_engine_changes_nothing(store: Store) -> None:
    store_live(store, DEMO, READ_NS)
    before = stand(store)

    comparison = rebuilt(store)

    assert comparison.is_empty
    assert comparison.unchanged == 1
    after = stand(store)
    assert after["incidents"] == before["incidents"]
    assert after["event_jobs"] == before["event_jobs"]
    assert [row[4] for row in after["events"]] == [row[4] for row in before["events"]]


def test_without_a_swap_everything_stays_and_nothing_is_left(store: Store) -> None:
    store_live(store, DEMO, READ_NS, as_stored=before_xids)
    before = stand(store)

    comparison = rebuilt(store, swap=False)

    assert not comparison.is_empty
    assert stand(store) == before
    assert staged_tables(store) == []
    assert value(store, "SELECT state FROM rebuilds") == "dropped"


def test_what_todays_signals_read_comes_in_and_the_incident_is_revised_under_its_id(store: Store) -> None:
    store_live(store, DEMO, READ_NS, as_stored=before_xids)
    incident_id = value(store, "SELECT incident_id FROM incidents")
    assert value(store, "SELECT count() FROM events WHERE name = 'gpu.xid'") == 0

    comparison = rebuilt(store)

    (change,) = comparison.changes
    assert (change.incident_id, change.kind, change.class_before) == (incident_id, "changed", "unknown/no_cause")
    assert change.class_after == "hardware/gpu_xid_79"
    (xids,) = [count for count in comparison.events if count.added]
    assert (xids.name, xids.before) == ("gpu.xid", 0)
    assert value(store, "SELECT count() FROM events WHERE name = 'gpu.xid'") == xids.after > 0
    assert value(store, "SELECT count() FROM events") == value(store, "SELECT uniqExact(event_id) FROM events")
    assert classes(store) == [("hardware/gpu_xid_79", 3, "open")]
    assert value(store, "SELECT count() > 0 AND min(revision) = 3 AND max(revision) = 3 FROM chain_steps")
    assert value(store, "SELECT count() FROM culprits") == 1
    assert value(store, "SELECT count() FROM incident_revisions WHERE class = 'unknown/no_cause'") == 2


def test_an_event_that_no_longer_comes_of_its_line_is_gone_and_so_is_its_link(store: Store) -> None:
    store_live(store, DEMO, READ_NS, as_stored=with_one_more)
    assert value(store, "SELECT count() FROM events WHERE name = 'old.name'") == 1

    comparison = rebuilt(store)

    (count,) = [count for count in comparison.events if count.gone]
    assert (count.name, count.before, count.after, count.gone) == ("old.name", 1, 0, 1)
    assert value(store, "SELECT count() FROM events WHERE name = 'old.name'") == 0
    assert value(store, "SELECT count() FROM event_jobs WHERE event_id = 'older'") == 0


def with_one_more(record: msgspec.Struct) -> msgspec.Struct | None:
    """As an engine stored it that made another event of the line of the Xid."""
    if not isinstance(record, EventBatch):
        return record
    older = [
        msgspec.structs.replace(e, event_id="older", name="old.name") for e in record.events if e.name == "gpu.xid"
    ]
    return msgspec.structs.replace(record, events=[*record.events, *older[:1]])


def test_an_incident_that_no_longer_comes_out_is_retracted_and_its_correction_named(store: Store) -> None:
    store_live(store, DEMO, READ_NS)
    real = msgspec.convert(orjson.loads(value(store, "SELECT incident FROM incidents")), Incident)
    false = msgspec.structs.replace(real, incident_id="f" * 16, culprits=[Culprit(node="gpu-101")])
    put(store, false, timestamp_ms=READ_NS // 1_000_000)
    store.command(
        "INSERT INTO incident_corrections_rows (run, run_id, cluster, incident_id, corrected_at, why) "
        f"VALUES ('live', 'live', 'demo', '{'f' * 16}', now64(3), 'a cable')"
    )

    comparison = rebuilt(store)

    (change,) = comparison.changes
    assert (change.incident_id, change.kind, change.is_corrected) == ("f" * 16, "gone", True)
    assert sorted(state for _, _, state in classes(store)) == ["open", "retracted"]
    assert value(store, "SELECT count() FROM incident_corrections_rows FINAL") == 1


def test_events_whose_lines_are_gone_stay_and_so_does_the_incident_that_rests_on_them(store: Store) -> None:
    store_live(store, DEMO, READ_NS, as_stored=without_rank_lines)
    before = stand(store)
    window, oldest = window_of(store, "", None, None, date(2026, 6, 1))

    scope = scope_of(store, window, oldest)
    comparison = rebuilt(store)

    assert window == WINDOW
    assert scope.events_without_line > 0
    assert comparison.left == 1
    assert comparison.changes == []
    after = stand(store)
    assert after["incidents"] == before["incidents"]
    assert [row[4] for row in after["events"]] == [row[4] for row in before["events"]]
    assert after["event_jobs"] == before["event_jobs"]


def without_rank_lines(record: msgspec.Struct) -> msgspec.Struct | None:
    """The lines of the ranks of one node are past their time, what was made of them is not."""
    if not isinstance(record, RawBatch):
        return record
    return msgspec.structs.replace(
        record, records=[line for line in record.records if not line.source.endswith("rank5.log")]
    )


def test_a_line_that_comes_meanwhile_is_not_lost(store: Store) -> None:
    batches: list[EventBatch] = []

    def last_one_comes_late(record: msgspec.Struct) -> msgspec.Struct | None:
        if isinstance(record, EventBatch) and any(event.name == "gpu.xid" for event in record.events):
            batches.append(record)
        return record

    store_live(store, DEMO, READ_NS, as_stored=last_one_comes_late)
    late = msgspec.structs.replace(batches[0].events[0], event_id="late", offset=999_999_999)

    with begun(store, WINDOW, now_ms=NOW_MS) as work:
        work.build(silent)
        put(store, msgspec.structs.replace(batches[0], events=[late]), timestamp_ms=NOW_MS + 5)
        work.swap()

    assert value(store, "SELECT count() FROM events WHERE event_id = 'late'") == 1
    assert value(store, "SELECT count() FROM event_jobs WHERE event_id = 'late'") == 1


def test_an_incident_that_is_revised_meanwhile_stops_the_swap(store: Store) -> None:
    store_live(store, DEMO, READ_NS, as_stored=before_xids)
    stored = msgspec.convert(orjson.loads(value(store, "SELECT incident FROM incidents")), Incident)

    with begun(store, WINDOW, now_ms=NOW_MS) as work:
        work.build(silent)
        put(store, msgspec.structs.replace(stored, revision=3, class_="hardware/other"), timestamp_ms=NOW_MS + 5)
        before = stand(store)
        with pytest.raises(RebuildError, match="revised while this was read"):
            work.swap()

    assert stand(store) == before
    assert staged_tables(store) == []


@pytest.mark.parametrize("steps", range(6))
def test_a_swap_that_is_killed_anywhere_is_brought_to_its_end_by_the_next_run(store: Store, steps: int) -> None:
    store_live(store, DEMO, READ_NS, as_stored=before_xids)

    with begun(store, WINDOW, now_ms=NOW_MS) as work:
        work.build(silent)
        work.tell("swapping")
        for sql in split_statements(statement("swap", "rebuild"))[:steps]:
            store.command(sql)
    assert staged_tables(store)

    ended = settle(store, NOW_MS + 1)

    assert ended is not None
    assert ended.state == "done"
    assert classes(store) == [("hardware/gpu_xid_79", 3, "open")]
    assert value(store, "SELECT count() FROM events WHERE name = 'gpu.xid'") > 0
    assert value(store, "SELECT count() FROM events") == value(store, "SELECT uniqExact(event_id) FROM events")
    assert staged_tables(store) == []
    assert settle(store, NOW_MS + 2) is None


def test_a_rebuild_that_was_killed_while_it_read_is_dropped_once_it_is_stale(store: Store) -> None:
    store_live(store, DEMO, READ_NS, as_stored=before_xids)
    before = stand(store)
    create_staging(store)
    work = Rebuild(store, WINDOW, now_ms=NOW_MS)
    work.tell("reading")

    with pytest.raises(RebuildError, match="is at work"):
        settle(store, work.entry.told_ms + STALE_MS - 1)
    ended = settle(store, work.entry.told_ms + STALE_MS)

    assert ended is not None
    assert ended.state == "dropped"
    assert stand(store) == before
    assert staged_tables(store) == []


def test_of_two_rebuilds_at_once_one_is_refused(store: Store) -> None:
    store_live(store, DEMO, READ_NS)

    with begun(store, WINDOW, now_ms=NOW_MS):
        with pytest.raises(RebuildError, match="another rebuild"), begun(store, WINDOW, now_ms=NOW_MS + 1):
            pass
        assert staged_tables(store)


@pytest.mark.parametrize("since", [None, date(2020, 1, 1)])
def test_days_without_lines_are_not_rebuilt(store: Store, since: date | None) -> None:
    with pytest.raises(RebuildError, match="no raw lines are kept"):
        window_of(store, "", since, None, date(2026, 6, 1))
    store_live(store, DEMO, READ_NS)

    assert window_of(store, "", since, None, date(2026, 6, 1)) == (WINDOW, DAY)
    with pytest.raises(RebuildError, match="of cluster other"):
        window_of(store, "other", since, None, date(2026, 6, 1))
    with pytest.raises(RebuildError, match="still being written"):
        window_of(store, "", since, None, DAY)


def call(store: Store, *arguments: str) -> Any:
    """`rootrank rebuild --from raw` as a user calls it."""
    words = ["rebuild", "--from", "raw", *arguments, "--clickhouse-url", url_of(store.settings)]
    return CliRunner().invoke(build("rebuild"), words)


def test_the_command_says_what_it_would_do_and_does_it_only_when_told(store: Store) -> None:
    store_live(store, DEMO, READ_NS, as_stored=before_xids)

    dry, looked = call(store, "--dry-run"), call(store)
    assert "354 lines of 2 reporters" in dry.stdout
    assert "unknown/no_cause becomes hardware/gpu_xid_79" in looked.stdout
    assert "nothing was changed" in looked.stdout
    assert classes(store) == [("unknown/no_cause", 2, "open")]

    done = call(store, "--yes", "--json")
    shape = orjson.loads(done.stdout)
    assert shape["is_in_place"] is True
    assert shape["comparison"]["changes"][0]["kind"] == "changed"
    assert classes(store) == [("hardware/gpu_xid_79", 3, "open")]


def test_the_command_says_that_there_is_nothing_to_rebuild(store: Store) -> None:
    answer = call(store)

    assert answer.exit_code != 0
    assert "no raw lines are kept" in answer.stderr


def test_an_interrupted_rebuild_changes_nothing_and_leaves_nothing(store: Store) -> None:
    store_live(store, DEMO, READ_NS, as_stored=before_xids)
    before = stand(store)

    def interrupted(_: str) -> None:
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt), begun(store, WINDOW, now_ms=NOW_MS) as work:
        work.build(interrupted)

    assert stand(store) == before
    assert staged_tables(store) == []
    assert value(store, "SELECT state FROM rebuilds") == "dropped"


def test_a_job_that_goes_on_after_the_days_keeps_its_incident_and_its_links(store: Store) -> None:
    batches: list[EventBatch] = []

    def noted(record: msgspec.Struct) -> msgspec.Struct | None:
        if isinstance(record, EventBatch) and record.job_id is not None and record.events:
            batches.append(record)
        return before_xids(record)

    store_live(store, DEMO, READ_NS, as_stored=noted)
    later = msgspec.structs.replace(
        batches[0].events[0], event_id="later", observed_time_unix_nano=READ_NS + 86_400 * NS
    )
    put(store, msgspec.structs.replace(batches[0], events=[later]), timestamp_ms=READ_NS // 1_000_000 + 86_400_000)
    links = value(store, "SELECT count() FROM event_jobs")

    comparison = rebuilt(store)

    assert (comparison.left, comparison.changes) == (1, [])
    assert classes(store) == [("unknown/no_cause", 2, "open")]
    assert value(store, "SELECT count() FROM events WHERE name = 'gpu.xid'") > 0
    assert value(store, "SELECT count() FROM event_jobs") > links


def test_marks_that_a_job_sent_by_itself_are_read_again_though_they_are_no_lines(store: Store) -> None:
    mark = Annotation(
        run="live", run_id="live", cluster="demo", reporter="gpu-101", node="gpu-101", kind="step", job_id="48211",
        start_unix_nano=READ_NS - 900 * NS, rank=0, step=7, phase="train",  # type: ignore[arg-type]
    )  # fmt: skip
    store_live(store, DEMO, READ_NS, first=[mark])
    before = store.rows("SELECT * FROM events WHERE source = 'annotation'")
    assert len(before) == 1

    comparison = rebuilt(store)

    assert comparison.is_empty
    assert store.rows("SELECT * FROM events WHERE source = 'annotation'") == before
    assert value(store, "SELECT count() FROM rebuilds WHERE counts['events_after'] = counts['events_before']") == 1


@pytest.mark.slow
def test_a_line_that_is_an_event_only_now_is_placed_by_the_clocks_that_were_measured(
    store: Store, other_store: Store, tmp_path: Path
) -> None:
    """Wall clocks that are off and stepped by seconds; two of three events are known, the third is made again."""
    write(incident(Options(seed=41, chain="C10", ranks=16, beacons=True, skew_s=5.0)), tmp_path / "made")
    folder = tmp_path / "made" / "logs"
    ended = max(i.ended_at for i in diagnose([folder]).incidents if i.ended_at is not None)
    read_ns = int(datetime.fromisoformat(ended).timestamp() + 60) * NS
    store_live(other_store, folder, read_ns)
    store_live(store, folder, read_ns, as_stored=two_of_three)
    times = "SELECT event_id, aligned_time, lo_time, hi_time FROM events WHERE aligned_time IS NOT NULL"
    known, truth = {row[0] for row in store.rows(times)}, {row[0]: row[1] for row in other_store.rows(times)}

    window, _ = window_of(store, "", None, None, date(2100, 1, 1))
    with begun(store, window, now_ms=NOW_MS) as work:
        comparison = work.build(silent)
        work.swap()

    made = {row[0]: row[1:] for row in store.rows(times)}
    assert value(other_store, "SELECT count() FROM clock_segments WHERE quality != 'none'") > 0
    assert made.keys() == truth.keys() > known
    assert [n for n in truth.keys() - known if not made[n][1] <= truth[n] <= made[n][2]] == []
    assert [n for n in known if made[n][0] != truth[n]] == []
    assert (comparison.changes, comparison.unchanged) == ([], 1)


def two_of_three(record: msgspec.Struct) -> msgspec.Struct | None:
    """As an engine stored it that knew fewer signals."""
    if isinstance(record, EventBatch):
        return msgspec.structs.replace(record, events=[e for e in record.events if int(e.event_id[:4], 16) % 3])
    return record
