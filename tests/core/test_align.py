"""Align: raw batches of one reporter become events for the jobs they concern."""

from collections.abc import Iterable, Mapping, Sequence

import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from pipeline.core.align import NodeFold
from pipeline.core.outputs import Output
from pipeline.core.segments import NOT_MEASURED, NOT_YET
from pipeline.core.source_reader import FIRST_SIGHT_NS
from pipeline.core.times import DEFAULT_BOUND_NS
from pipeline.engine import Engine
from schemas import signals, topics
from schemas.records import (
    ClockClaim,
    ClockReading,
    ClockSegment,
    Event,
    EventBatch,
    Gap,
    NodeProgress,
    Placement,
    PlacementSpan,
    RawBatch,
    RawLine,
)
from tests.strategies import (
    CLUSTER,
    INIT,
    JOB,
    JOB_KEY,
    SECOND,
    T0,
    WATCHDOG,
    XID_79,
    application,
    batches,
    kernel,
    key,
    raw_batch,
    raw_lines,
    raw_progress,
)

SIGNALS = signals.load()
KERNEL_LINE = f"2026-03-04T05:06:07.000000+00:00 beta kernel: {XID_79}"
INIT_LINE = INIT.format(node="beta", pid=800, rank=1, world=2, bus="5e")
STEP_LINE = "[2026-03-04 05:05:00] step 10 loss 2.5"


def _fold() -> NodeFold:
    return NodeFold(SIGNALS)


def _apply(fold: NodeFold, *records: msgspec.Struct, now_ns: int = T0) -> list[Output]:
    return [output for record in records for output in fold.apply(record, now_ns=now_ns)]


def _kernel_batch(seq: int, *bodies: str, first: int = 0, shipper: str = "s1") -> RawBatch:
    lines = raw_lines("kern", bodies, first=first)
    return raw_batch("beta", seq, lines, attributes={"kern": kernel("beta")}, shipper=shipper)


def _rank_batch(seq: int, *bodies: str, first: int = 0, node: str = "beta", job: str | None = JOB) -> RawBatch:
    attributes = {"rank1": application(node, rank=1, job=job)}
    return raw_batch(node, seq, raw_lines("rank1", bodies, first=first), attributes=attributes)


def _sent(outputs: Iterable[Output]) -> dict[str, list[str]]:
    """Event ids by key, in the order sent."""
    sent: dict[str, list[str]] = {}
    for batch in batches(outputs):
        sent.setdefault(batch.job_key, []).extend(event.event_id for event in batch.events)
    return sent


def _names(outputs: Iterable[Output]) -> list[str]:
    return [event.name for batch in batches(outputs) for event in batch.events]


def _gaps(outputs: Iterable[Output]) -> list[Gap]:
    return [gap for batch in batches(outputs) for gap in batch.gaps]


# --- batches ------------------------------------------------------------------------------------------------------


def test_a_batch_that_is_sent_again_gives_nothing() -> None:
    fold = _fold()
    batch = _kernel_batch(1, KERNEL_LINE)
    assert _names(_apply(fold, batch)) == ["gpu.xid"]
    assert _apply(fold, batch) == []


def test_the_id_of_an_event_names_the_line_and_not_the_delivery() -> None:
    once = batches(_apply(_fold(), _kernel_batch(1, KERNEL_LINE)))[0].events[0]
    again = batches(_apply(_fold(), _kernel_batch(7, KERNEL_LINE, shipper="s2")))[0].events[0]
    elsewhere = batches(_apply(_fold(), _kernel_batch(1, KERNEL_LINE, first=5)))[0].events[0]
    assert once.event_id == again.event_id
    assert once.event_id != elsewhere.event_id


def test_the_same_text_at_two_places_of_a_rank_log_is_folded_per_second_with_a_count() -> None:
    same = "RuntimeError: CUDA error: unspecified launch failure"
    events = [e for b in batches(_apply(_fold(), _rank_batch(1, STEP_LINE, *[same] * 40))) for e in b.events]
    errors = [event for event in events if event.name == "cuda.error"]
    assert [event.count for event in errors] == [40]


def test_noise_makes_no_event() -> None:
    noise = "beta:800:801 [0] NCCL INFO Call to connect returned Connection refused, retrying"
    assert _names(_apply(_fold(), _rank_batch(1, noise, "hello", ""))) == []


# --- shippers -----------------------------------------------------------------------------------------------------


def test_a_shipper_that_is_replaced_once_is_no_conflict() -> None:
    fold = _fold()
    outputs = _apply(fold, _kernel_batch(1, KERNEL_LINE), _kernel_batch(1, KERNEL_LINE, first=9, shipper="s2"))
    assert not _gaps(outputs)


def test_two_shippers_alive_under_one_name_are_named_once() -> None:
    fold = _fold()
    outputs = _apply(
        fold,
        _kernel_batch(1, KERNEL_LINE),
        _kernel_batch(1, KERNEL_LINE, first=20, shipper="s2"),
        _kernel_batch(2, KERNEL_LINE, first=1),
        _kernel_batch(2, KERNEL_LINE, first=21, shipper="s2"),
        _kernel_batch(3, KERNEL_LINE, first=2),
    )
    reasons = {gap.reason for gap in _gaps(outputs)}
    assert reasons == {"conflict: shippers s1 and s2 are both alive as test/beta; stop one"}


def test_a_conflict_is_reported_once_however_long_it_lasts_and_over_restarts() -> None:
    fold, outputs = _fold(), []
    for number in range(20):
        shipper = ("s1", "s2", "s3")[number % 2 if number < 12 else number % 3]
        outputs += _apply(fold, _kernel_batch(number + 1, KERNEL_LINE, first=number, shipper=shipper))
        fold = NodeFold.restore(SIGNALS, fold.snapshot())
    reasons = [gap.reason for gap in _gaps(outputs)]
    assert len(reasons) == len(set(reasons)) == 3
    assert reasons[0] == "conflict: shippers s1 and s2 are both alive as test/beta; stop one"


def test_both_shippers_lines_are_kept_in_a_conflict() -> None:
    outputs = _apply(_fold(), _kernel_batch(1, KERNEL_LINE), _kernel_batch(1, KERNEL_LINE, first=20, shipper="s2"))
    assert _names(outputs) == ["gpu.xid", "gpu.xid"]


# --- who gets what ------------------------------------------------------------------------------------------------


def test_a_kernel_line_of_a_node_without_a_job_goes_to_the_node() -> None:
    assert list(_sent(_apply(_fold(), _kernel_batch(1, KERNEL_LINE)))) == [f"node:{CLUSTER}/beta/boot-beta"]


def test_a_kernel_line_that_came_before_the_job_was_known_is_sent_on_with_the_same_id() -> None:
    fold = _fold()
    before = _sent(_apply(fold, _kernel_batch(1, KERNEL_LINE)))
    after = _apply(fold, _rank_batch(2, STEP_LINE, INIT_LINE))
    backfilled = [batch for batch in batches(after) if batch.backfill]
    assert [event.event_id for batch in backfilled for event in batch.events] == before[
        f"node:{CLUSTER}/beta/boot-beta"
    ]
    assert {batch.job_key for batch in backfilled} == {JOB_KEY}
    assert not [b for b in batches(_apply(fold, _rank_batch(3, STEP_LINE, first=8))) if b.backfill]


def test_a_placement_from_another_reporter_is_enough_to_send_it_on() -> None:
    fold = _fold()
    before = _sent(_apply(fold, _kernel_batch(1, KERNEL_LINE)))
    spans = [PlacementSpan(job_id=JOB, start_unix_nano=T0 - 60 * SECOND, rank=1)]
    placement = Placement(run="post_mortem", run_id="", cluster=CLUSTER, node="beta", spans=spans)
    later = _sent(_apply(fold, placement, _kernel_batch(2, "nothing"), raw_progress("beta", ended=True)))

    assert later.get(JOB_KEY) == next(iter(before.values()))


def test_a_placement_before_the_first_line_of_the_node_brings_the_job_along() -> None:
    fold = _fold()
    spans = [PlacementSpan(job_id=JOB, start_unix_nano=T0 - 60 * SECOND, rank=1)]
    placement = Placement(run="post_mortem", run_id="", cluster=CLUSTER, node="beta", spans=spans)
    assert list(_sent(_apply(fold, placement, _kernel_batch(1, KERNEL_LINE)))) == [JOB_KEY]


def test_a_span_without_a_start_does_not_make_the_job_begin_in_1970() -> None:
    fold = _fold()
    timeless = _rank_batch(1, INIT_LINE)
    stale = "2026-01-04T05:06:07.000000+00:00 beta kernel: " + XID_79
    placements = [output.record for output in _apply(_fold(), timeless) if isinstance(output.record, Placement)]
    assert all(isinstance(record, Placement) for record in placements)
    outputs = _apply(fold, *placements, _rank_batch(2, STEP_LINE), _kernel_batch(3, stale))

    assert JOB_KEY not in _sent([o for o in outputs if isinstance(o.record, EventBatch) and "gpu.xid" in _names([o])])


def test_a_fault_of_long_before_the_job_is_not_the_jobs() -> None:
    xid = "NVRM: Xid (PCI:0000:5e:00): 74, NVLink: fatal error detected on link 8"
    stale = f"2026-03-04T03:06:07.000000+00:00 beta kernel: {xid}"
    outputs = _apply(_fold(), _rank_batch(1, STEP_LINE, INIT_LINE), _kernel_batch(2, stale))
    assert [b.job_key for b in batches(outputs) if "gpu.xid" in [e.name for e in b.events]] == [
        f"node:{CLUSTER}/beta/boot-beta"
    ]


def test_two_jobs_on_a_node_both_get_the_nodes_line_and_only_their_own_lines() -> None:
    fold = _fold()
    second = raw_batch(
        "beta", 2, raw_lines("other", [STEP_LINE, INIT_LINE]), attributes={"other": application("beta", job="7002")}
    )
    _apply(fold, _rank_batch(1, STEP_LINE, INIT_LINE), second)
    sent = _sent(_apply(fold, _kernel_batch(3, KERNEL_LINE)))
    assert set(sent) == {JOB_KEY, f"{CLUSTER}/7002/0"}
    assert len({tuple(ids) for ids in sent.values()}) == 1


def test_a_line_about_another_node_is_that_nodes() -> None:
    line = f"{INIT.format(node='gamma', pid=900, rank=3, world=4, bus='43')}"
    attributes = {"job": {**application(""), "node": ""}}
    outputs = _apply(_fold(), raw_batch("login", 1, raw_lines("job", [line]), attributes=attributes))
    (event,) = [event for batch in batches(outputs) for event in batch.events]
    assert event.subject.node == "gamma"
    assert event.clock_id != "login/wall"


def test_who_runs_on_another_node_is_told_to_that_nodes_reporter() -> None:
    line = "[rank3]: " + INIT.format(node="gamma", pid=900, rank=3, world=4, bus="43")
    attributes = {"job": {**application(""), "node": ""}}
    outputs = _apply(_fold(), raw_batch("login", 1, raw_lines("job", [line]), attributes=attributes))
    told = [output for output in outputs if isinstance(output.record, Placement)]
    assert [(output.topic, output.key) for output in told] == [(topics.RAW.name, b"test/gamma")]


def test_a_table_of_failures_says_until_when_a_rank_was_here_and_not_since_when() -> None:
    table = [
        "E0304 05:06:08.250000 650 torch/distributed/elastic/multiprocessing/api.py:874] failed (exitcode: -6) "
        "local_rank: 1 (pid: 900) of binary: /opt/venv/bin/python",
        "============================================================",
        "Root Cause (first observed failure):",
        "[0]:",
        "  time      : 2026-03-04_05:06:07",
        "  host      : beta",
        "  rank      : 3 (local_rank: 1)",
        "  exitcode  : -6 (pid: 900)",
        "============================================================",
    ]
    record = raw_batch("beta", 1, raw_lines("agent", table), attributes={"agent": application("beta")})
    outputs = _apply(_fold(), record, raw_progress("beta", ended=True))
    spans = [s for o in outputs if isinstance(o.record, Placement) for s in o.record.spans]

    assert [(s.rank, s.pid, s.start_unix_nano, s.end_unix_nano) for s in spans] == [(3, 900, 0, T0 + 1_250_000_000)]


def test_an_init_line_without_a_rank_prefix_places_the_rank_too() -> None:
    line = INIT.format(node="gamma", pid=900, rank=3, world=4, bus="43")
    attributes = {"job": {**application(""), "node": ""}}
    outputs = _apply(_fold(), raw_batch("login", 1, raw_lines("job", [line]), attributes=attributes))
    spans = [s for o in outputs if isinstance(o.record, Placement) for s in o.record.spans]

    assert [(s.rank, s.pci_bus_id, s.world_size) for s in spans] == [(3, "0000:43:00.0", 4)]


def test_a_job_that_nobody_names_is_named_by_its_communicator() -> None:
    outputs = _apply(_fold(), _rank_batch(1, INIT_LINE, f"[rank1]:{WATCHDOG}", job=None))
    assert set(_sent(outputs)) == {f"{CLUSTER}/comm-77aa/0"}


# --- clocks -------------------------------------------------------------------------------------------------------


def _live(seq: int, wall_ns: int, *lines: RawLine) -> RawBatch:
    clock = ClockReading(raw_ns=0, mono_ns=0, boottime_ns=0, wall_ns=wall_ns)
    return raw_batch("beta", seq, lines, attributes={"kern": kernel("beta")}, run="live", clock=clock)


@pytest.mark.parametrize("wall_ns", [1_000 * SECOND, 4_070_908_800 * SECOND], ids=["1970", "2099"])
def test_a_bad_clock_is_named_once_and_its_lines_are_kept_with_bounds_from_their_arrival(wall_ns: int) -> None:
    fold = _fold()
    outputs = _apply(fold, *(_live(n, wall_ns, *raw_lines("kern", [KERNEL_LINE], first=n * 10)) for n in (1, 2)))
    assert len({gap.reason for gap in _gaps(outputs)}) == 1
    assert "the clock of beta runs" in _gaps(outputs)[0].reason
    events = [event for batch in batches(outputs) for event in batch.events]
    assert len(events) == 2
    assert {(event.quality, event.hi_unix_nano) for event in events} == {("none", T0)}


@pytest.mark.parametrize("wall_ns", [1_000 * SECOND, 4_070_908_800 * SECOND], ids=["1970", "2099"])
def test_the_progress_of_a_bad_clock_moves_no_watermark(wall_ns: int) -> None:
    fold = _fold()
    _apply(fold, _live(1, wall_ns, *raw_lines("kern", [KERNEL_LINE])))
    progress = raw_progress("beta", through_ns=wall_ns, run="live", wall_ns=wall_ns)
    said = [output.record for output in _apply(fold, progress) if isinstance(output.record, NodeProgress)]
    assert said
    assert {record.through_unix_nano for record in said} == {0}


def _events(outputs: Iterable[Output]) -> list[Event]:
    return [event for batch in batches(outputs) for event in batch.events]


def _two_nodes(beta_off_ns: int) -> Engine:
    """Rank 0 loses its GPU on alpha; beta, with rank 1, is read beside it and its clock is off by so much."""
    engine = Engine()
    init = [
        INIT.format(node=node, pid=800, rank=rank, world=2, bus="5e") for rank, node in enumerate(("alpha", "beta"))
    ]
    xid = f"2026-03-04T05:06:07.000000+00:00 alpha kernel: {XID_79}"
    failed = "[rank0]: RuntimeError: CUDA error: unspecified launch failure"
    attributes = {
        "alpha": {"rank": application("alpha", rank=0), "kern": kernel("alpha")},
        "beta": {"rank": application("beta", rank=1)},
    }
    lines = {
        "alpha": [*raw_lines("kern", [xid]), *raw_lines("rank", [init[0], STEP_LINE, failed])],
        "beta": raw_lines("rank", [init[1]]),
    }
    for node, off_ns in (("beta", beta_off_ns), ("alpha", 0)):
        clock = ClockReading(raw_ns=1, mono_ns=1, boottime_ns=1, wall_ns=T0 + off_ns)
        record = raw_batch(node, 1, lines[node], attributes=attributes[node], run="live", clock=clock)
        engine.feed(key(node), record, now_ns=T0)
    for later_s in range(0, 120, 5):
        now_ns = T0 + later_s * SECOND
        for node, off_ns in (("beta", beta_off_ns), ("alpha", 0)):
            progress = raw_progress(node, through_ns=now_ns + off_ns, wall_ns=now_ns + off_ns, run="live")
            engine.feed(key(node), progress, now_ns=now_ns)
    return engine


@pytest.mark.parametrize("off_ns", [1_000 * SECOND - T0, -61 * 86_400 * SECOND], ids=["1970", "two months behind"])
def test_a_node_with_a_bad_clock_does_not_hold_the_verdict_of_its_job_and_is_named(off_ns: int) -> None:
    (incident,) = _two_nodes(off_ns).incidents()
    assert (incident.class_, incident.verdict) == ("hardware/gpu_xid_79", "settled")
    (reason,) = {gap.reason for gap in incident.gaps if gap.node == "beta" and gap.source == "shipper"}
    assert reason.startswith("the clock runs ")
    assert reason.endswith("behind; left out of the watermark")
    assert any(gap.source == "clock" and "beta" in gap.reason for gap in incident.gaps)


def test_nodes_with_good_clocks_have_no_gaps() -> None:
    (incident,) = _two_nodes(0).incidents()
    assert (incident.verdict, incident.gaps) == ("settled", [])


def test_no_line_of_a_node_with_a_bad_clock_claims_a_time_of_its_own() -> None:
    bodies = [KERNEL_LINE, f"[   56.123456] {XID_79}", f"Mar  4 05:06:07 beta kernel: {XID_79}", XID_79]
    outputs = _apply(_fold(), _live(1, 1_000 * SECOND, *raw_lines("kern", bodies, time_ns=None)))
    assert sum(event.count for event in _events(outputs)) == len(bodies)
    assert {(event.quality, event.raw_ns, event.clock_id) for event in _events(outputs)} == {("none", None, "")}


def test_a_clock_that_is_set_again_is_believed_again() -> None:
    fold = _fold()
    _apply(fold, _live(1, 1_000 * SECOND, *raw_lines("kern", [KERNEL_LINE])))
    outputs = _apply(fold, _live(2, T0, *raw_lines("kern", [KERNEL_LINE], first=10)))
    assert [(event.quality, event.aligned_time_unix_nano) for event in _events(outputs)] == [("holdover", T0)]
    assert not _gaps(outputs)


def test_the_claim_of_the_reporter_is_not_applied_to_a_line_of_another_node() -> None:
    claim = ClockClaim(offset_ns=-37 * SECOND, bound_ns=SECOND // 100, by="test")
    bodies = [f"2026-03-04T05:06:07.000000+00:00 {node} kernel: {XID_79}" for node in ("login", "gamma")]
    attributes = {"all": {"kind": "kernel"}}
    record = raw_batch("login", 1, raw_lines("all", bodies), attributes=attributes, claim=claim)
    own, other = _events(_apply(_fold(), record))
    assert (own.node, own.clock_id, own.quality, own.aligned_time_unix_nano) == (
        "login", "login/wall", "good", T0 - 37 * SECOND,
    )  # fmt: skip
    assert (other.node, other.clock_id, other.quality, other.aligned_time_unix_nano) == (
        "gamma", "gamma/wall", "holdover", T0,
    )  # fmt: skip
    assert (other.lo_unix_nano, other.hi_unix_nano) == (T0 - DEFAULT_BOUND_NS, T0 + 1_000_000 + DEFAULT_BOUND_NS)


def test_a_stamp_of_the_boot_clock_does_not_spoil_the_year_of_the_stamps_after_it() -> None:
    bodies = [f"[   56.123456] {XID_79}", f"Mar  4 05:06:07 beta kernel: {XID_79}"]
    events = _events(_apply(_fold(), _kernel_batch(1, *bodies)))
    assert [event.aligned_time_unix_nano for event in events] == [None, T0]


@pytest.mark.parametrize(
    ("name", "value", "reason"),
    [
        ("job.attempt", "first", "attribute job.attempt = 'first' is no number"),
        ("job.attempt", "-1", "attribute job.attempt = '-1' is no number"),
        ("rank", "٣", "attribute rank = '٣' is no number"),
        ("time.year", "9" * 40, f"attribute time.year = {'9' * 40!r} is no number"),
        ("time.zone", "Mars", "attribute time.zone = 'Mars'; write it as +02:00"),
    ],
    ids=["attempt", "negative attempt", "rank in other digits", "endless year", "zone"],
)
def test_a_bad_attribute_is_a_gap_and_the_lines_are_still_read(name: str, value: str, reason: str) -> None:
    fold = _fold()
    attributes = {"rank1": {**application("beta"), name: value}, "kern": kernel("beta")}
    outputs = []
    for seq in (1, 2):
        lines = [
            *raw_lines("kern", [KERNEL_LINE], first=seq),
            *raw_lines(
                "rank1",
                [STEP_LINE, INIT_LINE, "[rank1]: RuntimeError: CUDA error: unspecified launch failure"],
                first=10 * seq,
            ),
        ]
        outputs.append(_apply(fold, raw_batch("beta", seq, lines, attributes=attributes)))
    for output in outputs:
        assert {"gpu.xid", "nccl.init", "cuda.error"} <= set(_names(output))
    assert {(gap.source, gap.node, gap.reason) for gap in _gaps(outputs[0])} == {("rank1", "beta", reason)}
    assert _gaps(outputs[1]) == []


# --- first sight --------------------------------------------------------------------------------------------------


def _seen_live(age_ns: int, *, run: str = "live") -> tuple[Engine, list[Event]]:
    """A kernel line of `age_ns` ago, read by an agent that is new on the node."""
    clock = ClockReading(raw_ns=1, mono_ns=1, boottime_ns=1, wall_ns=T0 + age_ns)
    record = raw_batch("beta", 1, raw_lines("kern", [KERNEL_LINE]), attributes={"kern": kernel("beta")}, clock=clock)
    record = msgspec.structs.replace(record, run=run, run_id="" if run == "live" else "r1")
    engine = Engine()
    engine.feed(key("beta"), record, now_ns=T0 + age_ns)
    return engine, _events(_apply(_fold(), record, now_ns=T0 + age_ns))


@pytest.mark.parametrize(
    ("age_ns", "alerts"),
    [
        (7 * 86_400 * SECOND, False),
        (FIRST_SIGHT_NS + 6 * SECOND, False),
        (FIRST_SIGHT_NS + 4 * SECOND, True),
        (300 * SECOND, True),
        (0, True),
    ],
)
def test_what_a_new_agent_finds_of_the_past_is_recorded_and_opens_no_incident(age_ns: int, alerts: bool) -> None:
    engine, events = _seen_live(age_ns)
    assert FIRST_SIGHT_NS == 900 * SECOND
    assert [(event.name, event.alerts) for event in events] == [("gpu.xid", alerts)]
    assert [incident.class_ for incident in engine.incidents()] == (["hardware/gpu_xid_79"] if alerts else [])


def test_a_replay_of_the_past_does_open_an_incident() -> None:
    engine, events = _seen_live(7 * 86_400 * SECOND, run="replay")
    assert [event.alerts for event in events] == [True]
    assert len(engine.incidents()) == 1


def test_a_line_that_waited_in_a_spool_of_a_known_source_alerts() -> None:
    fold = _fold()
    _apply(fold, _live(1, T0, *raw_lines("kern", ["all is well"])), now_ns=T0)
    late_ns = T0 + 5 * 3_600 * SECOND
    events = _events(_apply(fold, _live(2, late_ns, *raw_lines("kern", [KERNEL_LINE], first=5)), now_ns=late_ns))
    assert [event.alerts for event in events] == [True]


# --- progress and gaps --------------------------------------------------------------------------------------------


def test_progress_is_handed_to_every_key_of_the_node() -> None:
    fold = _fold()
    _apply(fold, _kernel_batch(1, KERNEL_LINE), _rank_batch(2, STEP_LINE, INIT_LINE))
    said = [o.record for o in _apply(fold, raw_progress("beta", through_ns=T0)) if isinstance(o.record, NodeProgress)]
    assert {record.job_key for record in said} == {JOB_KEY, f"node:{CLUSTER}/beta/boot-beta"}
    # Without a claim of its clock the node may be five seconds behind.
    assert {record.through_unix_nano for record in said} == {T0 - DEFAULT_BOUND_NS}
    assert said[0].kinds == {"application": "on", "kernel": "on"}


@pytest.mark.parametrize(("world", "told"), [(2, 60), (8, 60), (600, 10), (16_384, 6)])
def test_a_job_of_many_nodes_hears_of_each_now_and_then(world: int, told: int) -> None:
    fold = _fold()
    init = INIT.format(node="beta", pid=800, rank=1, world=world, bus="5e")
    _apply(fold, _rank_batch(1, STEP_LINE, f"2026-03-04T05:06:00.000000+00:00 {init}"))
    _apply(fold, raw_progress("beta", through_ns=T0), now_ns=T0)
    seconds = [T0 + n * SECOND for n in range(1, 61)]
    said = [_progress_of(fold, through_ns=at_ns, now_ns=at_ns) for at_ns in seconds]
    assert abs(sum(map(len, said)) - told) <= 1
    # Another broker takes over, whose clock is an hour behind.
    seconds = [at_ns - 3_600 * SECOND for at_ns in seconds]
    said = [_progress_of(fold, through_ns=T0 + 60 * SECOND, now_ns=at_ns) for at_ns in seconds]
    assert abs(sum(map(len, said)) - told) <= 1
    # What changes is told at once.
    ended = _progress_of(fold, through_ns=T0 + 61 * SECOND, now_ns=T0 + 61 * SECOND, ended=True)
    assert [record.ended for record in ended] == [True]


def _progress_of(fold: NodeFold, *, through_ns: int, now_ns: int, ended: bool = False) -> list[NodeProgress]:
    outputs = _apply(fold, raw_progress("beta", through_ns=through_ns, ended=ended), now_ns=now_ns)
    return [output.record for output in outputs if isinstance(output.record, NodeProgress)]


def test_a_node_is_read_only_as_far_as_its_slowest_source() -> None:
    fold = _fold()
    _apply(fold, _rank_batch(1, STEP_LINE, INIT_LINE))
    progress = raw_progress("beta", through_ns=T0)
    slow = msgspec.structs.replace(progress.sources[0], read_through_unix_nano=T0 - 90 * SECOND)
    off = msgspec.structs.replace(progress.sources[1], state="off", read_through_unix_nano=0)
    said = _apply(fold, msgspec.structs.replace(progress, sources=[slow, off, progress.sources[1]]))
    assert [o.record.through_unix_nano for o in said if isinstance(o.record, NodeProgress)] == [
        T0 - 90 * SECOND - DEFAULT_BOUND_NS
    ]


def test_a_job_that_becomes_known_after_the_last_progress_gets_it() -> None:
    fold = _fold()
    _apply(fold, _kernel_batch(1, KERNEL_LINE), raw_progress("beta", through_ns=T0, ended=True))
    outputs = _apply(fold, _rank_batch(2, STEP_LINE, INIT_LINE))
    assert [o.record.ended for o in outputs if isinstance(o.record, NodeProgress)] == [True]


def test_a_fault_shortly_before_a_reboot_settles() -> None:
    engine = Engine()
    engine.feed(key("beta"), _live(1, T0, *raw_lines("kern", [KERNEL_LINE])), now_ns=T0)
    for later_s in range(30, 120, 5):
        now_ns = T0 + later_s * SECOND
        rebooted = _live(later_s, now_ns, *raw_lines("kern", ["all is well"], first=later_s))
        progress = raw_progress("beta", through_ns=now_ns, wall_ns=now_ns, run="live", kinds={"kernel": "on"})
        for record in (rebooted, progress):
            engine.feed(key("beta"), msgspec.structs.replace(record, boot_id="after"), now_ns=now_ns)
    assert [incident.verdict for incident in engine.incidents()] == ["settled"]


def test_gaps_are_forwarded_with_the_node_to_every_job_of_it() -> None:
    fold = _fold()
    _apply(fold, _rank_batch(1, STEP_LINE, INIT_LINE))
    outputs = _apply(fold, raw_batch("beta", 2, gaps=[Gap(source="spool", reason="full", lost_lines=12)]))
    assert [(b.job_key, b.gaps) for b in batches(outputs)] == [
        (JOB_KEY, [Gap(source="spool", reason="full", node="beta", lost_lines=12)])
    ]


def test_gaps_of_a_node_without_a_job_are_not_lost() -> None:
    outputs = _apply(_fold(), raw_batch("beta", 1, gaps=[Gap(source="spool", reason="full")]))
    assert [gap.node for gap in _gaps(outputs)] == ["beta"]


# --- snapshots ----------------------------------------------------------------------------------------------------

_STORY: Sequence[msgspec.Struct] = [
    _kernel_batch(1, KERNEL_LINE),
    _rank_batch(2, STEP_LINE, INIT_LINE),
    _rank_batch(3, *[f"[rank1]:[E304 05:16:09.123456789 ProcessGroupNCCL.cpp:629] [Rank 1] {WATCHDOG}"] * 2, first=10),
    raw_progress("beta", through_ns=T0),
    _kernel_batch(4, "2026-03-04T05:07:07.000000+00:00 beta kernel: " + XID_79, first=10),
    _rank_batch(5, "Root Cause (first observed failure):", "  time      : 2026-03-04_05:06:07", first=20),
    _rank_batch(6, "  host      : beta", "  rank      : 1 (local_rank: 0)", "  exitcode  : -6 (pid: 800)", first=30),
    raw_batch("beta", 7, gaps=[Gap(source="x", reason="y")]),
    raw_progress("beta", through_ns=T0 + SECOND, ended=True),
]


def _texts(outputs: Iterable[Output]) -> list[str]:
    return [f"{o.topic} {o.key!r} {msgspec.json.encode(o.record, order='sorted').decode()}" for o in outputs]


@given(cuts=st.sets(st.integers(0, len(_STORY))), again=st.sets(st.integers(0, len(_STORY) - 1)))
@settings(max_examples=40, deadline=None)
def test_snapshots_and_repeats_anywhere_change_no_output(cuts: set[int], again: set[int]) -> None:
    whole = _fold()
    expected = [_texts(_apply(whole, record)) for record in _STORY]
    fold = _fold()
    for number, record in enumerate(_STORY):
        if number in cuts:
            fold = NodeFold.restore(SIGNALS, fold.snapshot())
        assert _texts(_apply(fold, record)) == expected[number]
        if number in again and isinstance(record, RawBatch):
            assert _apply(fold, record) == []


@given(st.integers(1, 6))
@settings(deadline=None)
def test_where_a_source_is_cut_into_batches_does_not_change_its_events(size: int) -> None:
    bodies = [STEP_LINE, INIT_LINE, "Root Cause (first observed failure):", "  host      : beta",
              "  rank      : 1 (local_rank: 0)", "  exitcode  : -6 (pid: 800)"]  # fmt: skip
    fold = _fold()
    lines = raw_lines("rank1", bodies)
    attributes: Mapping[str, Mapping[str, str]] = {"rank1": application("beta", rank=1)}
    events: list[Event] = []
    for seq, start in enumerate(range(0, len(lines), size), 1):
        outputs = _apply(fold, raw_batch("beta", seq, lines[start : start + size], attributes=attributes))
        events.extend(event for batch in batches(outputs) for event in batch.events)
    whole = batches(_apply(_fold(), raw_batch("beta", 1, lines, attributes=attributes)))
    assert events == [event for batch in whole for event in batch.events]


def test_a_line_with_a_hint_that_no_pattern_fits_is_counted_and_opens_nothing() -> None:
    missed = "NET/IB : Got completion from peer 10.9.0.7<50321> with satus={}"
    lines = raw_lines("rank1", [missed.format(number) for number in range(3)])
    outputs = _apply(_fold(), raw_batch("beta", 1, lines, attributes={"rank1": application("beta")}))
    events = [event for batch in batches(outputs) for event in batch.events]
    near = [event for event in events if event.name == "unmatched.near_miss"]
    assert [(e.count, e.attributes["signal"], e.alerts, e.role) for e in near] == [
        (3, "nccl.ib.completion", False, "noise")
    ]


def test_a_clock_that_is_not_measured_is_first_told_as_not_measured_yet() -> None:
    fold = _fold()

    def told(raw_s: int, boot_id: str = "b1") -> list[str]:
        reading = ClockReading(raw_ns=raw_s * SECOND, mono_ns=1, boottime_ns=1, wall_ns=T0)
        heard = msgspec.structs.replace(raw_progress("beta", run="live"), clock=reading, boot_id=boot_id)
        return [o.record.reason for o in _apply(fold, heard) if isinstance(o.record, ClockSegment)]

    assert [told(100), told(130), told(161), told(400), told(5, "b2")] == [
        [NOT_YET], [], [NOT_MEASURED], [NOT_MEASURED], [NOT_YET],
    ]  # fmt: skip
