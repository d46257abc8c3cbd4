"""What a node knows of its jobs and its recent events, and when it forgets them (broker time)."""

from collections.abc import Iterable

import msgspec
from hypothesis import given
from hypothesis import strategies as st

from pipeline.core.align import NodeFold, NodeState
from pipeline.core.here import FORGET_EVENT_NS, FORGET_JOB_NS, RECENT_EVENTS, Here, Recent
from pipeline.core.outputs import Output
from schemas import signals
from schemas.records import Event, Gap, NodeProgress, Placement, PlacementSpan, RawBatch, Relay
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
    event,
    kernel,
    raw_batch,
    raw_lines,
    raw_progress,
)

SIGNALS = signals.load()
HOUR = 3_600 * SECOND
DAY = 24 * HOUR
NODE_KEY = f"node:{CLUSTER}/beta/boot-beta"
COMM_KEY = f"{CLUSTER}/comm-77aa/0"
INIT_LINE = INIT.format(node="beta", pid=800, rank=1, world=2, bus="5e")
STEP_LINE = "[2026-03-04 05:05:00] step 10 loss 2.5"
WAITED_LINE = f"[rank1]:[E305 06:05:00.123456789 ProcessGroupNCCL.cpp:629] [Rank 1] {WATCHDOG}"
KERNEL_LINE = f"2026-03-04T05:06:07.000000+00:00 beta kernel: {XID_79}"


def _kernel_batch(seq: int, *bodies: str) -> RawBatch:
    lines = raw_lines("kern", bodies, first=seq * 10_000)
    return raw_batch("beta", seq, lines, attributes={"kern": kernel("beta")})


def _rank_batch(seq: int, *bodies: str, job: str | None = JOB) -> RawBatch:
    lines = raw_lines("rank1", bodies, first=seq * 100)
    return raw_batch("beta", seq, lines, attributes={"rank1": application("beta", rank=1, job=job)})


def _apply(fold: NodeFold, record: msgspec.Struct, now_ns: int) -> list[Output]:
    return list(fold.apply(record, now_ns=now_ns))


def _state(fold: NodeFold) -> NodeState:
    return msgspec.json.decode(fold.snapshot(), type=NodeState)


def _told(outputs: Iterable[Output]) -> set[str]:
    """Keys that were told of the progress of the node."""
    return {output.record.job_key for output in outputs if isinstance(output.record, NodeProgress)}


def _gaps(outputs: Iterable[Output]) -> list[Gap]:
    return [gap for batch in batches(outputs) for gap in batch.gaps]


# --- jobs ---------------------------------------------------------------------------------------------------------


def test_a_job_that_printed_nothing_for_a_week_is_dropped_with_its_spans_and_sources() -> None:
    fold = NodeFold(SIGNALS)
    _apply(fold, _rank_batch(1, STEP_LINE, INIT_LINE), T0)
    before = _state(fold)
    assert (list(before.here.jobs), len(before.spans), list(before.sources)) == ([JOB_KEY], 1, ["rank1"])

    _apply(fold, _kernel_batch(2, "all is well"), T0 + 7 * DAY + SECOND)
    after = _state(fold)
    assert (after.here.jobs, after.spans, list(after.sources)) == ({}, {}, ["kern"])


def test_a_dropped_job_gets_no_more_progress_and_no_more_lines_of_the_node() -> None:
    fold = NodeFold(SIGNALS)
    _apply(fold, _rank_batch(1, STEP_LINE, INIT_LINE), T0)
    assert _told(_apply(fold, raw_progress("beta", through_ns=T0), T0)) == {JOB_KEY}

    later_ns = T0 + 7 * DAY + SECOND
    _apply(fold, _kernel_batch(2, "all is well"), later_ns)
    sent = batches(_apply(fold, _kernel_batch(3, KERNEL_LINE), later_ns))
    assert [batch.job_key for batch in sent] == [NODE_KEY]
    assert _told(_apply(fold, raw_progress("beta", through_ns=later_ns), later_ns)) == {NODE_KEY}


def test_a_quiet_job_is_dropped_after_a_day_once_another_one_prints() -> None:
    fold = NodeFold(SIGNALS)
    _apply(fold, _rank_batch(1, STEP_LINE, INIT_LINE), T0)
    _apply(fold, _kernel_batch(2, "all is well"), T0 + DAY + SECOND)
    assert list(_state(fold).here.jobs) == [JOB_KEY]

    attributes = {"new": application("beta", job="other")}
    other = raw_batch("beta", 3, raw_lines("new", [STEP_LINE]), attributes=attributes)
    _apply(fold, other, T0 + DAY + 2 * SECOND)
    assert JOB_KEY not in _state(fold).here.jobs


def test_a_job_that_was_silent_for_less_than_a_day_is_kept() -> None:
    fold = NodeFold(SIGNALS)
    _apply(fold, _rank_batch(1, STEP_LINE, INIT_LINE), T0)
    _apply(fold, _kernel_batch(2, "all is well"), T0 + FORGET_JOB_NS)
    assert list(_state(fold).here.jobs) == [JOB_KEY]
    assert len(_state(fold).spans) == 1


def test_a_job_that_prints_any_line_stays_however_long_it_runs() -> None:
    fold = NodeFold(SIGNALS)
    for seq in range(1, 8):
        _apply(fold, _rank_batch(seq, "nothing of note"), T0 + seq * 20 * HOUR)
    assert list(_state(fold).here.jobs) == [JOB_KEY]


def test_a_job_that_only_its_communicator_names_stays_while_it_prints() -> None:
    fold = NodeFold(SIGNALS)
    _apply(fold, _rank_batch(1, INIT_LINE, job=None), T0)
    for seq in range(2, 6):
        _apply(fold, _rank_batch(seq, "nothing of note", job=None), T0 + (seq - 1) * 20 * HOUR)
    sent = batches(_apply(fold, _rank_batch(6, WAITED_LINE, job=None), T0 + 100 * HOUR))
    assert [(batch.job_key, batch.job_id) for batch in sent] == [(COMM_KEY, "comm-77aa")]


def test_a_source_that_falls_silent_is_forgotten_with_or_without_a_job() -> None:
    fold = NodeFold(SIGNALS)
    _apply(fold, _rank_batch(1, STEP_LINE, job=None), T0)
    _apply(fold, _kernel_batch(2, "all is well"), T0 + 7 * DAY)
    assert sorted(_state(fold).sources) == ["kern", "rank1"]
    _apply(fold, _kernel_batch(3, "all is well"), T0 + 7 * DAY + 1)
    assert sorted(_state(fold).sources) == ["kern"]


def test_other_jobs_of_the_node_keep_their_spans_and_sources() -> None:
    fold = NodeFold(SIGNALS)
    other = raw_batch(
        "beta", 2, raw_lines("other", [STEP_LINE, INIT_LINE]), attributes={"other": application("beta", job="7002")}
    )
    _apply(fold, _rank_batch(1, STEP_LINE, INIT_LINE), T0)
    _apply(fold, other, T0 + 2 * HOUR)
    _apply(fold, _kernel_batch(3, "all is well"), T0 + DAY + SECOND)
    state = _state(fold)
    assert list(state.here.jobs) == [f"{CLUSTER}/7002/0"]
    assert [span.job_id for span in state.spans.values()] == ["7002"]
    assert "other" in state.sources
    assert "rank1" not in state.sources


def test_a_job_that_another_reporter_still_names_is_not_over() -> None:
    fold = NodeFold(SIGNALS)
    spans = [PlacementSpan(job_id=JOB, start_unix_nano=T0, rank=1)]
    placement = Placement(run="post_mortem", run_id="", cluster=CLUSTER, node="beta", spans=spans)
    _apply(fold, _kernel_batch(1, "all is well"), T0)
    _apply(fold, placement, T0)
    _apply(fold, placement, T0 + 20 * HOUR)
    _apply(fold, _kernel_batch(2, "all is well"), T0 + 30 * HOUR)
    assert list(_state(fold).here.jobs) == [JOB_KEY]


def test_a_job_that_speaks_again_after_it_was_dropped_is_known_again() -> None:
    fold = NodeFold(SIGNALS)
    _apply(fold, _rank_batch(1, STEP_LINE, INIT_LINE), T0)
    _apply(fold, _kernel_batch(2, "all is well"), T0 + DAY + SECOND)
    sent = batches(_apply(fold, _rank_batch(3, WAITED_LINE), T0 + 2 * DAY))
    assert [(batch.job_key, batch.job_id) for batch in sent] == [(JOB_KEY, JOB)]


def test_a_fault_before_the_first_words_of_a_quiet_job_in_days_is_still_the_jobs() -> None:
    fold = NodeFold(SIGNALS)
    _apply(fold, _rank_batch(1, STEP_LINE, INIT_LINE), T0)
    fault_ns = T0 + 30 * HOUR
    fault = f"2026-03-05T11:06:07.000000+00:00 beta kernel: {XID_79}"
    waited = f"[rank1]:[E305 11:36:09.123456789 ProcessGroupNCCL.cpp:629] [Rank 1] {WATCHDOG}"
    outputs = [
        *_apply(fold, _kernel_batch(2, "all is well"), fault_ns - HOUR),
        *_apply(fold, _kernel_batch(3, fault), fault_ns),
        *_apply(fold, _rank_batch(4, waited), fault_ns + 1_802 * SECOND),
    ]
    got = {batch.job_key for batch in batches(outputs) if "gpu.xid" in {one.name for one in batch.events}}
    assert JOB_KEY in got


# --- recent events of the node ------------------------------------------------------------------------------------


def test_an_event_of_the_node_waits_six_hours_for_its_job() -> None:
    for waited_ns, expected in ((FORGET_EVENT_NS, [NODE_KEY, JOB_KEY]), (FORGET_EVENT_NS + SECOND, [NODE_KEY])):
        fold = NodeFold(SIGNALS)
        outputs = _apply(fold, _kernel_batch(1, KERNEL_LINE), T0)
        outputs += _apply(fold, _kernel_batch(2, "all is well"), T0 + waited_ns)
        outputs += _apply(fold, _rank_batch(3, STEP_LINE, INIT_LINE), T0 + waited_ns)
        got = [batch.job_key for batch in batches(outputs) if "gpu.xid" in {one.name for one in batch.events}]
        assert got == expected


def test_six_hours_are_six_hours() -> None:
    assert (FORGET_EVENT_NS, FORGET_JOB_NS, RECENT_EVENTS) == (6 * HOUR, DAY, 2_000)


def _storm(number: int) -> list[str]:
    """Lines of which each is an event of its own."""
    return [
        f"2026-03-04T05:{6 + n // 3_000:02d}:{n // 50 % 60:02d}.{n % 50:06d}+00:00 beta kernel: NVRM: Xid "
        f"(PCI:0000:5e:00): 45, pid={n + 1}, name=python, Ch 00000010"
        for n in range(number)
    ]


def test_events_of_the_node_are_kept_up_to_a_limit_and_the_rest_is_a_named_gap() -> None:
    fold = NodeFold(SIGNALS)
    outputs = _apply(fold, _kernel_batch(1, *_storm(RECENT_EVENTS + 7)), T0)
    assert sum(len(batch.events) for batch in batches(outputs)) == RECENT_EVENTS + 7
    assert [(gap.node, gap.source, gap.reason) for gap in _gaps(outputs)] == [
        ("beta", "align", "7 older events of the node are not kept for jobs that become known later")
    ]
    kept = _state(fold).here.recent
    assert len(kept) == RECENT_EVENTS
    assert kept[0].event.line_no == 10_000 + 7 + 1


def test_a_node_within_the_limit_has_no_gap() -> None:
    fold = NodeFold(SIGNALS)
    assert _gaps(_apply(fold, _kernel_batch(1, *_storm(RECENT_EVENTS)), T0)) == []
    assert len(_state(fold).here.recent) == RECENT_EVENTS


@given(st.lists(st.integers(0, 10 * HOUR), max_size=30))
def test_what_is_kept_is_never_older_than_six_hours(steps: list[int]) -> None:
    here, now_ns = Here(), T0
    for number, step in enumerate(steps):
        now_ns += step
        one: Event = event("gpu.xid", node="beta", source="kern", offset=number)
        here.recent.append(Recent(event=one, arrived_ns=now_ns, sent_to=[NODE_KEY]))
        here.forget(now_ns)
        assert all(now_ns - recent.arrived_ns <= FORGET_EVENT_NS for recent in here.recent)
        assert here.recent[-1].event is one


def test_what_a_control_plane_tells_of_a_node_without_an_agent_stays_bounded() -> None:
    fold = NodeFold(SIGNALS)
    for seq in range(RECENT_EVENTS // 100 + 5):
        told = [event("k8s.event", node="beta", offset=100 * seq + at) for at in range(100)]
        _apply(fold, _relay(seq, told), T0)
    assert len(fold.state.here.recent) == RECENT_EVENTS

    _apply(fold, _relay(999, []), T0 + FORGET_EVENT_NS + SECOND)
    assert fold.state.here.recent == []


def _relay(seq: int, events: list[Event]) -> Relay:
    told = [msgspec.structs.replace(each, source_kind="control") for each in events]
    return Relay(
        run="live", run_id="", cluster=CLUSTER, reporter="control", node="beta", boot_id="b", shipper_id="s",
        batch_seq=seq, events=told,
    )  # fmt: skip
