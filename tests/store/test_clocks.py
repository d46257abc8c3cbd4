"""Clock segments in the store: the newest of each node, jumps, and events that are aligned again."""

import time
from pathlib import Path
from typing import Any

import msgspec
import pytest

from pipeline.core.clocks.node import NodeClock
from pipeline.core.segments import segments_of
from pipeline.store import queries
from pipeline.store.clickhouse import Store
from pipeline.store.queries import load_query, run_query
from schemas import records as r
from tests.store import seed
from tests.store.conftest import put, value
from tests.store.seed import NS, T0, segment, timed, unmeasured

pytestmark = pytest.mark.clickhouse
replace = msgspec.structs.replace
ROOT = Path(__file__).parents[2]
QUALITIES = ("good", "holdover", "stepped")
COLUMNS = ("aligned", "lo", "hi", "u99", "quality", "epoch", "broker", "realigned")
ALIGNED = (
    "SELECT toUnixTimestamp64Nano(assumeNotNull(aligned_time)), toUnixTimestamp64Nano(lo_time), "
    "toUnixTimestamp64Nano(hi_time), u99_ns, quality, clock_epoch, reference_broker, realigned "
    "FROM events_aligned ORDER BY event_id"
)


def aligned(store: Store) -> list[dict[str, Any]]:
    return [dict(zip(COLUMNS, row, strict=True)) for row in store.rows(ALIGNED)]


def by_segment(s: r.ClockSegment, raw_ns: int, width_ns: int = 0, last: r.ClockSegment | None = None) -> dict[str, Any]:
    """What the contract says of a reading: written here once more, in Python's integers."""
    last = last or s

    def offset(of: r.ClockSegment, at_ns: int) -> int:
        return of.a_ns + of.b_ppb * (at_ns - of.t_from_raw_ns) // NS

    end, middle = raw_ns + width_ns, raw_ns + width_ns // 2
    lo = raw_ns + min(offset(s, raw_ns) + s.lo_ns, offset(last, end) + last.lo_ns)
    hi = end + max(offset(s, raw_ns) + s.hi_ns, offset(last, end) + last.hi_ns)
    best = s if middle < s.t_to_raw_ns else last
    return {
        "aligned": min(max(middle + offset(best, middle), lo), hi), "lo": lo, "hi": hi,
        "u99": best.u99_ns + width_ns // 2, "quality": max(s.quality, last.quality, key=QUALITIES.index),
        "epoch": last.epoch, "broker": s.broker_id, "realigned": True,
    }  # fmt: skip


def stored(e: r.Event) -> dict[str, Any]:
    return {
        "aligned": e.aligned_time_unix_nano, "lo": e.lo_unix_nano, "hi": e.hi_unix_nano, "u99": e.u99_ns,
        "quality": e.quality, "epoch": e.clock_epoch, "broker": e.reference_broker, "realigned": False,
    }  # fmt: skip


def test_an_event_is_aligned_again_to_the_ns_by_the_segment_of_its_raw_time(store: Store) -> None:
    first, second = segment(a_ns=T0 + 7), segment(at_s=16, a_ns=T0 + 500, b_ppb=-1_841, epoch=3, quality="stepped")
    raws = [0, 3 * NS + 1, 16 * NS - 1, 16 * NS, 16 * NS + 1, 31 * NS + 999_999_999]
    put(store, first, second, seed.event_batch([timed(i, raw) for i, raw in enumerate(raws)]))
    assert aligned(store) == [by_segment(first if raw < 16 * NS else second, raw) for raw in raws]


def test_a_stamp_that_leaves_digits_out_is_bounded_by_the_segments_of_both_its_ends(store: Store) -> None:
    first, second = segment(a_ns=T0 + 7, b_ppb=-3), segment(at_s=16, a_ns=T0 - 900_000, b_ppb=77, epoch=3)
    second = replace(second, quality="holdover")
    spans = [(2 * NS, NS), (15 * NS + 400_000_000, NS), (15 * NS + 600_000_001, NS + 3), (30 * NS, 2 * NS - 1)]
    events = [timed(i, raw, width_ns=width) for i, (raw, width) in enumerate(spans)]
    put(store, first, second, seed.event_batch([*events, timed(4, 31 * NS, width_ns=NS)]))
    assert aligned(store) == [
        by_segment(first, *spans[0]), by_segment(first, *spans[1], second), by_segment(first, *spans[2], second),
        by_segment(second, *spans[3]), stored(timed(4, 31 * NS)),
    ]  # fmt: skip


def test_between_ends_far_apart_the_stored_bounds_stand_where_no_end_knows_the_middle(store: Store) -> None:
    put(store, segment(), segment(at_s=16), segment(at_s=32), seed.event_batch([timed(1, 15 * NS, width_ns=18 * NS)]))
    assert aligned(store) == [stored(timed(1, 0))]


def test_what_contradicts_the_stored_bounds_is_of_another_boot_and_aligns_nothing(store: Store) -> None:
    """A shipper reads the end of the last boot's log: its raw times are of that boot, its batches of this one."""
    later = segment(a_ns=T0 + 3_600 * NS)
    put(store, later, seed.event_batch([timed(1, 4 * NS), timed(2, 4 * NS, broker=None)]))
    assert aligned(store) == [stored(timed(1, 0)), by_segment(later, 4 * NS)]


def test_where_no_segment_holds_the_stored_bounds_stand(store: Store) -> None:
    events = [
        timed(1, None), timed(2, 15 * NS - 1), timed(3, 31 * NS), timed(4, 20 * NS, broker=2), timed(5, 20 * NS),
    ]  # fmt: skip
    held = replace(segment(at_s=15), boot_id="another boot")
    put(store, segment(at_s=15), held, replace(unmeasured("n1", at_s=31), boot_id="b1"), seed.event_batch(events))
    assert aligned(store) == [*(stored(event) for event in events[:4]), by_segment(segment(at_s=15), 20 * NS)]


def test_an_event_without_a_broker_takes_the_segment_that_began_last_and_of_equals_the_lowest_broker(
    store: Store,
) -> None:
    two, one, later = segment(broker_id=2, epoch=2), segment(broker_id=1, epoch=1), segment(broker_id=3, at_s=5)
    put(store, two, one, later, seed.event_batch([timed(1, 4 * NS, broker=None), timed(2, 6 * NS, broker=None)]))
    assert aligned(store) == [by_segment(one, 4 * NS), by_segment(later, 6 * NS)]


def test_a_segment_that_is_computed_again_replaces_the_older_one_and_comes_again_without_harm(store: Store) -> None:
    rough, fine = segment(half_ns=900_000), segment(half_ns=300_000)
    events = seed.event_batch([timed(1, NS)])
    put(store, rough, events)
    put(store, fine, timestamp_ms=1_772_359_400_000)
    put(store, rough, events)
    assert aligned(store) == [by_segment(fine, NS)]
    assert store.rows("SELECT count(), any(u99_ns) FROM clock_segments") == [(1, fine.u99_ns)]


def test_segments_of_a_replay_align_no_live_event(store: Store) -> None:
    put(store, segment(run="replay"), unmeasured(run="drill"), seed.event_batch([timed(1, NS)]))
    assert aligned(store) == [stored(timed(1, NS))]
    assert value(store, "SELECT count() FROM clock_segments") == 2
    for view in ("clock_segments_live", "clocks_live"):
        assert value(store, f"SELECT count() FROM {view}") == 0
    put(store, seed.event_batch([timed(1, NS)], run="replay"))
    assert store.rows("SELECT run, realigned FROM events_aligned ORDER BY run") == [("live", 0), ("replay", 1)]
    assert value(store, "SELECT count() FROM events_aligned_live") == 1


def test_absurd_values_stop_neither_the_insert_nor_the_views(store: Store) -> None:
    big = 2**63 - 1
    absurd = segment(a_ns=2**70, b_ppb=-(2**70), wall_offset_ns=-(2**70), wall_step_ns=2**64)
    absurd = replace(absurd, t_to_raw_ns=2**64, lo_ns=-(2**64), hi_ns=2**64, u99_ns=-1, epoch=2**40, broker_id=2**31)
    put(store, absurd, seed.event_batch([timed(1, big, broker=2**31 - 1), timed(2, -big, broker=None)]))
    assert len(store.rows("SELECT * FROM events_aligned")) == 2
    assert len(store.rows("SELECT * FROM clocks")) == 1
    for name in ("clocks", "clock_steps"):
        run_query(store, load_query(name), {"hours": "100000"} if name == "clock_steps" else {})


def test_the_clock_of_a_node_is_the_best_of_its_newest_boot(store: Store) -> None:
    put(
        store, segment(broker_id=3, half_ns=100_000), segment(broker_id=2), segment(broker_id=1, quality="holdover"),
        segment("n3", boot_id="old"), replace(unmeasured("n3"), boot_id="new"),
    )  # fmt: skip
    rows = store.rows("SELECT node, reference_broker, quality, bound_ns, reason FROM clocks ORDER BY node")
    assert rows == [
        ("n1", 2, "good", 601_000, ""), ("n3", None, "none", None, "no beacon was acknowledged for 90 s"),
    ]  # fmt: skip


def test_a_broker_that_was_not_heard_for_a_minute_is_no_reference(store: Store) -> None:
    put(store, segment(broker_id=1))
    put(store, segment(at_s=61, broker_id=2, quality="holdover"), timestamp_ms=1_772_359_300_000 + 61_000)
    assert store.rows("SELECT reference_broker, quality FROM clocks") == [(2, "holdover")]


def test_the_last_jump_of_a_wall_clock_is_kept_beside_newer_segments(store: Store) -> None:
    put(store, segment(wall_step_ns=9 * NS), segment(at_s=16, wall_step_ns=-5 * NS), segment(at_s=32), segment("n4"))
    rows = store.rows("SELECT node, last_wall_step_ns, toString(last_wall_step_at) FROM clocks ORDER BY node")
    assert rows == [("n1", -5 * NS, "2026-03-01 10:00:32.000000000"), ("n4", None, None)]


def test_each_jump_is_told_once_however_many_brokers_show_it(store: Store) -> None:
    def both(at_s: int, **more: Any) -> list[r.ClockSegment]:
        return [segment(at_s=at_s + b, broker_id=1 + b, **more) for b in (0, 1)]

    put(store, *both(0), *both(16, wall_step_ns=-5 * NS), *both(32, wall_step_ns=3 * NS), *both(48))
    answer = run_query(store, load_query("clock_steps"), {"hours": "100000"}).objects()
    assert [(row["what"], float(row["step_ms"]), row["at"][:19]) for row in answer] == [
        ("wall clock", 3_000, "2026-03-01 10:00:48"), ("wall clock", -5_000, "2026-03-01 10:00:32"),
    ]  # fmt: skip


def test_a_broker_that_jumps_shows_as_new_epochs_of_many_nodes_at_once(store: Store) -> None:
    nodes = [f"g{n}" for n in range(5)]
    put(store, *(segment(node) for node in nodes), *(segment(node, at_s=16, epoch=1) for node in nodes))
    put(store, segment("alone", broker_id=2), segment("alone", broker_id=2, at_s=16, epoch=4))
    answer = run_query(store, load_query("clock_steps"), {"hours": "100000"}).objects()
    told = {row["node"]: (row["what"], row["epoch_before"], row["epoch"], int(row["at_once"])) for row in answer}
    assert told == {**dict.fromkeys(nodes, ("new epoch", 0, 1, 5)), "alone": ("new epoch", 0, 4, 1)}


def test_the_query_shows_the_worst_clock_first_in_units_for_people(store: Store) -> None:
    put(store, segment(), segment("n5", half_ns=5_000_000, b_ppb=-18_250), unmeasured())
    answer = run_query(store, queries.load_query("clocks"), {}).objects()
    assert [row["node"] for row in answer] == ["n2", "n5", "n1"]
    assert [answer[0][name] for name in ("bound_ms", "u99_ms", "drift_ppm", "reference_broker")] == [None] * 4
    shown = [float(answer[1][name]) for name in ("wall_offset_ms", "bound_ms", "drift_ppm")]
    assert shown == [-2.113482, 5.001, -18.25]


def test_the_example_in_the_documentation_shows_what_was_learned_later(store: Store) -> None:
    text = (ROOT / "docs" / "clocks.md").read_text(encoding="utf-8")
    example = text.partition("```sql\n")[2].partition("```")[0]
    put(store, seed.event_batch([timed(1, 3 * NS, broker=None), timed(2, 40 * NS)]), segment())
    rows = queries.ask(store, example).objects()
    assert [(row["event_id"], row["realigned"]) for row in rows] == [("e000001", True), ("e000002", False)]
    assert rows[0]["lo_time"] == "2026-03-01 10:00:02.999400000"
    assert rows[0]["hi_time"] == "2026-03-01 10:00:03.000601000"
    assert rows[0]["stored_lo_time"] == "2026-03-01 09:59:00.000000000"
    assert rows[1]["lo_time"] == rows[1]["stored_lo_time"]


def test_sql_aligns_as_align_does_once_the_segments_are_closed(store: Store) -> None:
    """80 s of beacons with uneven delays; then moments within a segment, and over the edge of two."""
    clock, closed = NodeClock(), []
    for second in range(80):
        t0_ns = second * NS + second * second * 37_003
        broker_ns = T0 + t0_ns + t0_ns * 23_700 // NS + 200_000 + second * 7_919 % 300_000
        sample = r.ClockSample(
            broker_id=4, leader_epoch=1, t0_ns=t0_ns, t1_ns=t0_ns + 700_000, broker_time_ms=broker_ns // 1_000_000
        )
        wall_ns = T0 + t0_ns + 3 * NS
        reading = r.ClockReading(raw_ns=t0_ns, mono_ns=t0_ns, boottime_ns=t0_ns, wall_ns=wall_ns, width_ns=2_000)
        closed += clock.hear("b1", reading, [sample])
    sent = [output.record for output in segments_of(seed.batch(), closed)]
    moments = [(s * NS + 7, w) for s, w in ((3, 0), (15, 2 * NS), (20, NS), (31, NS + 1), (40, 123_457))]
    events = [timed(i, raw, broker=4, width_ns=width) for i, (raw, width) in enumerate(moments)]
    put(store, *sent, seed.event_batch(events))
    placed = [clock.boots[0].place_one(raw, raw + width) for raw, width in moments]
    assert [(row["lo"], row["aligned"], row["hi"], row["u99"], row["realigned"]) for row in aligned(store)] == [
        (p.lo_ns, p.at_ns, p.hi_ns, p.u99_ns, True) for p in placed if p is not None
    ]


def test_the_query_calls_a_live_node_silent_that_was_not_heard_of_for_two_minutes(store: Store) -> None:
    now_ms = time.time_ns() // 1_000_000
    put(store, segment("gone"), segment("played", run="replay"))
    put(store, segment("here"), unmeasured("dark"), timestamp_ms=now_ms)
    answer = run_query(store, queries.load_query("clocks"), {"run": ""}).objects()
    assert [(row["node"], row["state"], row["quality"]) for row in answer] == [
        ("dark", "none", "none"), ("gone", "silent", "good"), ("here", "good", "good"), ("played", "good", "good"),
    ]  # fmt: skip
