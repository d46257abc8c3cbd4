"""Through the public views count() = uniqExact(id), at once, however often and in whatever blocks rows arrive."""

from base64 import b64decode

import msgspec
import pytest

from pipeline.store.clickhouse import Store
from schemas.codec import decode
from schemas.records import JobAlias
from tests.store import seed
from tests.store.conftest import put, value

pytestmark = pytest.mark.clickhouse


@pytest.mark.parametrize("observed_ns", [seed.T0, 0], ids=["live time", "no host clock"])
def test_lines_that_come_again_in_other_blocks_count_once(store: Store, observed_ns: int) -> None:
    batches = [seed.batch(seq=i, first=i * 7, lines=7, observed_ns=observed_ns) for i in range(20)]
    put(store, *batches[:13])
    put(store, *batches[5:])
    put(store, *reversed(batches))
    assert store.rows("SELECT count(), uniqExact(line_id), max(offset) FROM raw_lines")[0] == (140, 140, 139 * 40)


def test_many_lines_in_one_insert_arrive_whole(store: Store) -> None:
    put(store, *[seed.batch(seq=i, first=i * 1000, lines=1000) for i in range(25)])
    assert value(store, "SELECT count() FROM raw_lines") == 25_000


def test_an_event_whose_time_is_refined_is_still_one_and_has_the_newer_time(store: Store) -> None:
    events = [seed.event(i) for i in range(100)]
    refined = [seed.event(i, shift_ns=1_000) for i in range(100)]
    day_later = [seed.event(i, shift_ns=86_400 * seed.NS) for i in range(50)]
    put(store, seed.event_batch(events))
    put(store, seed.event_batch(refined), timestamp_ms=1_772_359_400_000)
    put(store, seed.event_batch(day_later), timestamp_ms=1_772_359_500_000)
    put(store, seed.event_batch(events))
    assert store.rows("SELECT count(), uniqExact(event_id) FROM events")[0] == (100, 100)
    moved = "aligned_time > '2026-03-02 00:00:00'"
    refined_too = "toUnixTimestamp64Nano(assumeNotNull(aligned_time)) % 1000000000 = 1000"
    assert store.rows(f"SELECT countIf({moved}), countIf({refined_too}) FROM events")[0] == (50, 50)


def test_an_event_of_two_jobs_counts_once_and_is_linked_twice(store: Store) -> None:
    put(store, seed.event_batch([seed.event(1)]))
    put(store, seed.event_batch([seed.event(1)], job_id="job8", job_key="c1/job8/0"))
    put(store, seed.event_batch([seed.event(2)], job_id=None, job_key="node:c1/n1/b1"))
    assert value(store, "SELECT sum(count) FROM events WHERE event_id = 'e000001'") == 2
    assert store.rows("SELECT job_id FROM event_jobs ORDER BY job_id") == [("job7",), ("job8",)]


def test_a_job_under_an_alias_is_one_job(store: Store) -> None:
    put(store, seed.event_batch([seed.event(1)], job_id=None, job_key="c1/10.0.0.1:29500/5"))
    put(store, seed.event_batch([seed.event(1)]))
    put(
        store,
        JobAlias(
            run="live", run_id=seed.RUN_ID, cluster=seed.CLUSTER, job_key="c1/job7/0", why="same pid",
            aliases=["c1/10.0.0.1:29500/5", "c1/job7/0"],
        ),
    )  # fmt: skip
    assert store.rows("SELECT job_key, event_id FROM event_jobs") == [("c1/job7/0", "e000001")]


def test_the_latest_revision_stands_and_all_revisions_stay(store: Store) -> None:
    put(store, seed.incident(1, class_="unknown/silent_rank"), seed.incident(2))
    put(store, seed.incident(2))
    put(store, seed.incident(1, class_="unknown/silent_rank"))
    assert store.rows("SELECT revision, class FROM incidents") == [(2, "hardware/gpu_xid_79")]
    assert value(store, "SELECT count() FROM incident_revisions") == 2
    assert value(store, "SELECT count() FROM chain_steps") == 2
    assert value(store, "SELECT count() FROM culprits") == 1
    started = value(store, "SELECT toString(started_at) FROM incidents")
    assert started == "2026-03-01 10:00:01.123456789"


def test_the_whole_incident_can_be_read_back(store: Store) -> None:
    put(store, seed.incident())
    text = value(store, "SELECT incident FROM incidents")
    assert decode("incidents", text.encode()) == seed.incident()


def test_live_views_hold_only_live(store: Store) -> None:
    put(store, seed.batch(), seed.batch(run="replay", run_id="r2"), seed.incident(), seed.incident(run="drill"))
    assert value(store, "SELECT count() FROM raw_lines") == 6
    for view in ("raw_lines_live", "otel_logs"):
        assert value(store, f"SELECT count() FROM {view}") == 3
    assert value(store, "SELECT count() FROM incidents_live") == 1


def test_the_opentelemetry_view_names_host_and_file(store: Store) -> None:
    put(store, seed.batch(lines=1))
    row = store.rows("SELECT ServiceName, SeverityText, SeverityNumber, Body, ResourceAttributes FROM otel_logs")[0]
    assert row[:4] == ("kernel", "error", 17, "line 0 of n1")
    assert row[4] == {
        "host.name": "n1", "log.file.path": "kern.log", "rootrank.cluster": "c1", "rootrank.reporter": "n1",
        "kind": "kernel",
    }  # fmt: skip


def test_a_newer_placement_replaces_the_older_one_whole(store: Store) -> None:
    put(store, seed.placement(3), seed.placement(2))
    put(store, seed.placement(3))
    assert store.rows("SELECT rank, pid FROM placement ORDER BY rank") == [(0, 4000), (1, 4001)]


def test_a_gap_told_by_two_stages_is_one(store: Store) -> None:
    put(store, seed.batch(gaps=[seed.GAP]), seed.event_batch([], gaps=[seed.GAP]))
    put(store, seed.batch(gaps=[seed.GAP]))
    assert store.rows("SELECT node, lost_lines, reason FROM gaps") == [("n1", 120, "spool full, oldest dropped")]


def test_a_dead_letter_keeps_its_address_and_bytes(store: Store) -> None:
    put(store, seed.dead_letter(), seed.dead_letter(), seed.dead_letter(reason="unknown version 9"))
    rows = store.rows("SELECT topic, partition, offset, reason, hex(data_bytes) FROM dead_letters ORDER BY reason")
    assert rows == [
        ("raw", 2, 7, "not JSON: unexpected character", b64decode(seed.BYTES).hex().upper()),
        ("raw", 2, 7, "unknown version 9", b64decode(seed.BYTES).hex().upper()),
    ]


def test_progress_is_the_latest_word(store: Store) -> None:
    put(store, seed.progress(), seed.progress(through_ns=seed.T0 + seed.NS), seed.progress("n2", ended=True))
    put(store, seed.progress())
    rows = store.rows(
        "SELECT reporter, toUnixTimestamp(read_through) FROM progress WHERE source != '' ORDER BY reporter"
    )
    assert rows == [("n1", 1_772_359_201), ("n2", 1_772_359_200)]
    assert value(store, "SELECT groupArray(reporter) FROM progress WHERE source = '' AND ended") == ["n2"]


def test_two_shippers_alive_under_one_reporter_are_a_conflict(store: Store) -> None:
    start = 1_772_359_300_000
    for second in range(0, 10, 2):
        put(store, seed.progress(shipper_id="a"), timestamp_ms=start + second * 1000)
        put(store, seed.progress(shipper_id="b"), timestamp_ms=start + second * 1000 + 500)
        put(store, seed.progress("n2", shipper_id="c" if second < 6 else "d"), timestamp_ms=start + second * 1000)
    rows = store.rows("SELECT reporter, shipper_id, other_shipper_id FROM shipper_conflicts")
    assert rows == [("n1", "a", "b")]


def test_values_beyond_any_column_are_stored_at_its_edge(store: Store) -> None:
    big = 2**63 - 1
    event = msgspec.structs.replace(
        seed.event(1), observed_time_unix_nano=big, aligned_time_unix_nano=-big, hi_unix_nano=2**64 - 1,
        raw_ns=2**64 - 1, offset=-5, count=2**64 - 1, clock_epoch=big, reference_broker=-big, u99_ns=-1,
        subject=msgspec.structs.replace(seed.event(1).subject, rank=big, gpu_index=-big, pid=2**64 - 1),
    )  # fmt: skip
    line = msgspec.structs.replace(
        seed.batch().records[0], offset=2**64 - 1, observed_time_unix_nano=-1, time_unix_nano=2**64 - 1, line_no=-1,
        kernel_time_ns=2**64 - 1, body="\x00\x1b[31m \u202e 𝔘",
    )  # fmt: skip
    put(store, seed.event_batch([event, seed.event(2)]))
    put(store, msgspec.structs.replace(seed.batch(), records=[line], batch_seq=-1))
    assert value(store, "SELECT count() FROM events") == 2
    assert value(store, "SELECT Body FROM raw_lines") == "\x00\x1b[31m \u202e 𝔘"


def test_a_node_whose_clock_jumps_through_a_hundred_days_stops_no_insert(store: Store) -> None:
    jumps = [seed.batch(seq=i, first=i, lines=1, observed_ns=seed.T0 + i * 86_400 * seed.NS) for i in range(120)]
    put(store, *jumps)
    put(store, *jumps)
    assert value(store, "SELECT count() FROM raw_lines") == 120


def test_lines_of_absurd_days_share_a_partition(store: Store) -> None:
    absurd = [1, 300 * 86_400 * seed.NS, 200 * 365 * 86_400 * seed.NS]
    put(store, *[seed.batch(first=i, lines=1, observed_ns=at) for i, at in enumerate(absurd)])
    assert store.rows("SELECT toString(day), count() FROM raw_lines GROUP BY day") == [("1970-01-01", 3)]
