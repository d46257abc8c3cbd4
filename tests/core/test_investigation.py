"""Detect: what an investigation concludes depends on what it was given, not on how it arrived."""

from collections.abc import Mapping, Sequence
from itertools import pairwise
from typing import Any

import msgspec
from hypothesis import given, settings
from hypothesis import strategies as st

from pipeline.core.investigation import (
    MAX_BACKFILLED,
    SETTLE_NS,
    WATCH_AGAIN_NS,
    Investigation,
    InvestigationState,
)
from pipeline.core.keys import node_key
from pipeline.core.watermark import SILENT_NS
from pipeline.rules import load_rules
from schemas.records import DELIVERY_FIELDS, Entity, Event, EventBatch, Gap, Incident, NodeProgress, Verdict
from tests.strategies import (
    CLUSTER,
    JOB_KEY,
    SECOND,
    T0,
    event,
    event_batch,
    incident_of,
    lost_gpu,
    node_progress,
    placed,
    verdicts,
    waited,
)

RULES = load_rules()
END_NS = T0 + 700 * SECOND
BETA_KEY = node_key("", CLUSTER, "beta", "boot-beta")


def _new(key: str = JOB_KEY) -> Investigation:
    return Investigation.new(RULES, "test", key)


def _apply(investigation: Investigation, *records: msgspec.Struct, now_ns: int = T0) -> list[Verdict]:
    return [v for record in records for v in verdicts(investigation.apply(record, now_ns=now_ns))]


def _content(incident: Incident) -> str:
    shape = {k: v for k, v in msgspec.to_builtins(incident).items() if k not in DELIVERY_FIELDS}
    return msgspec.json.encode(shape, order="sorted").decode()


def _last(found: Sequence[Verdict]) -> dict[str, str]:
    """The last word of each verdict; what was withdrawn is absent."""
    last: dict[str, str] = {}
    for verdict in found:
        if verdict.withdrawn:
            last.pop(verdict.verdict_id, None)
        else:
            last[verdict.verdict_id] = _content(incident_of(verdict))
    return last


# --- any order, any cut, any restart ------------------------------------------------------------------------------

ALPHA = [
    placed(0, "alpha", world=4),
    placed(1, "alpha", world=4, bus="0000:43:00.0"),
    event("nccl.socket.closed", node="alpha", source="rank0", offset=5, rank=0, at_ns=T0 + 4 * SECOND,
          bound_ns=5 * SECOND),
    waited(0, "alpha", bound_ns=5 * SECOND),
    waited(1, "alpha", bound_ns=5 * SECOND),
    event("elastic.failed", node="alpha", source="agent", offset=8, rank=0, at_ns=T0 + 603 * SECOND,
          bound_ns=5 * SECOND, attributes={"exitcode": "-6", "pid": "800"}),
]  # fmt: skip
BETA = [
    placed(2, "beta", world=4, bus="0000:5e:00.0"),
    placed(3, "beta", world=4, bus="0000:9d:00.0"),
    event("pcie.aer", node="beta", source="kern", offset=70, bus="0000:5e:00.0", at_ns=T0 - SECOND, bound_ns=5 * SECOND,
          attributes={"severity": "fatal"}, role="cause"),
    lost_gpu("beta", bound_ns=5 * SECOND),
    event("cuda.error", node="beta", source="rank2", offset=9, rank=2, at_ns=None),
    waited(3, "beta", bound_ns=5 * SECOND),
]  # fmt: skip


def _stream(node: str, events: Sequence[Event], cuts: Sequence[int], through_ns: int = END_NS) -> list[msgspec.Struct]:
    """A node's records: its events in batches cut where `cuts` says, a progress in the middle, "ended" last."""
    edges = sorted({0, len(events), *(cut for cut in cuts if cut < len(events))})
    parts = [events[a:b] for a, b in pairwise(edges)]
    records: list[msgspec.Struct] = [event_batch(node, seq, part) for seq, part in enumerate(parts, 1)]
    records.insert(len(records) // 2, node_progress(node, T0))
    return [*records, node_progress(node, through_ns, ended=True)]


_REFERENCE = [*_stream("alpha", ALPHA, []), *_stream("beta", BETA, [])]


def _reference() -> dict[str, str]:
    return _last(_apply(_new(), *_REFERENCE))


@given(
    cuts=st.tuples(st.lists(st.integers(1, 6), max_size=3), st.lists(st.integers(1, 6), max_size=3)),
    choices=st.lists(st.booleans(), min_size=12, max_size=12),
    restarts=st.sets(st.integers(0, 12), max_size=4),
    repeats=st.sets(st.integers(0, 12), max_size=4),
    steps=st.lists(st.integers(0, 3 * SECOND), min_size=12, max_size=12),
)
@settings(max_examples=120, deadline=None)
def test_any_interleaving_any_cut_any_restart_and_repeats_give_the_same_final_verdicts(
    cuts: tuple[list[int], list[int]], choices: list[bool], restarts: set[int], repeats: set[int], steps: list[int]
) -> None:
    streams = [_stream("alpha", ALPHA, cuts[0]), _stream("beta", BETA, cuts[1])]
    investigation, found, now_ns = _new(), [], T0
    for number in range(sum(len(stream) for stream in streams)):
        wanted = 0 if choices[number % len(choices)] else 1
        record = streams[wanted if streams[wanted] else 1 - wanted].pop(0)
        now_ns += steps[number % len(steps)]
        if number in restarts:
            investigation = Investigation.restore(RULES, "test", investigation.snapshot())
        found += _apply(investigation, record, now_ns=now_ns)
        if number in repeats:
            found += _apply(investigation, record, now_ns=now_ns)
    assert _last(found) == _reference()


@given(order=st.permutations([*ALPHA, *BETA]), pieces=st.integers(1, 12))
@settings(max_examples=80, deadline=None)
def test_any_order_of_events_gives_the_same_conclusion(order: list[Event], pieces: int) -> None:
    found, investigation = [], _new()
    for seq, start in enumerate(range(0, len(order), pieces), 1):
        for node in ("alpha", "beta"):
            part = [one for one in order[start : start + pieces] if one.node == node]
            found += _apply(investigation, event_batch(node, seq, part))
    found += _apply(
        investigation, node_progress("alpha", END_NS, ended=True), node_progress("beta", END_NS, ended=True)
    )
    assert _last(found) == _reference()


def test_the_reference_is_the_lost_gpu() -> None:
    (said,) = _reference().values()
    shape: dict[str, Any] = msgspec.json.decode(said)
    assert shape["class"] == "hardware/gpu_xid_79"
    assert [(c["node"], c["rank"], c["pci_bus_id"]) for c in shape["culprits"]] == [("beta", 2, "0000:5e:00.0")]
    assert shape["verdict"] == "settled"


def test_a_restart_publishes_nothing_twice() -> None:
    investigation = _new()
    assert _apply(investigation, *_REFERENCE)
    restored = Investigation.restore(RULES, "test", investigation.snapshot())
    assert _apply(restored, *_REFERENCE) == []


def test_events_that_are_backfilled_twice_count_once() -> None:
    once, twice = _new(), _new()
    backfill = event_batch("beta", 1, [lost_gpu("beta")], backfill=True)
    rest = [
        event_batch("alpha", 1, ALPHA),
        node_progress("alpha", END_NS, ended=True),
        node_progress("beta", END_NS, ended=True),
    ]
    assert _last(_apply(once, backfill, *rest)) == _last(_apply(twice, backfill, backfill, *rest, backfill))


def test_what_is_kept_of_late_events_is_bounded() -> None:
    investigation = _new()
    for seq in range(12):
        events = [event("cuda.error", offset=1_000 * seq + n) for n in range(1_000)]
        investigation.apply(event_batch("beta", seq, events, backfill=True), now_ns=T0)
    kept = msgspec.json.decode(investigation.snapshot(), type=InvestigationState).backfilled
    assert kept[-1] == events[-1].event_id
    assert len(kept) == MAX_BACKFILLED


def test_a_line_that_comes_as_backfill_and_again_as_its_own_counts_once() -> None:
    once, twice = _new(), _new()
    own = event_batch("beta", 1, [lost_gpu("beta")])
    ends = [node_progress("beta", END_NS, ended=True)]
    both = event_batch("beta", 1, [lost_gpu("beta")], backfill=True)

    assert _last(_apply(once, own, *ends)) == _last(_apply(twice, both, own, *ends))


# --- provisional, settled, revised, withdrawn ---------------------------------------------------------------------


def test_the_first_verdict_is_published_at_once_and_is_provisional() -> None:
    (verdict,) = _apply(_new(), event_batch("beta", 1, [lost_gpu("beta")]))
    assert incident_of(verdict).verdict == "provisional"


def test_a_verdict_settles_by_progress_and_never_by_silence() -> None:
    investigation = _new()
    _apply(investigation, event_batch("beta", 1, [lost_gpu("beta")]))
    early = _apply(investigation, node_progress("beta", T0 + SETTLE_NS - 1), now_ns=T0 + 3_600 * SECOND)
    assert {incident_of(verdict).verdict for verdict in early} <= {"provisional"}
    assert not investigation.wants_snapshot
    (verdict,) = _apply(investigation, node_progress("beta", T0 + SETTLE_NS), now_ns=T0 + 3_601 * SECOND)
    assert incident_of(verdict).verdict == "settled"
    assert investigation.wants_snapshot
    assert _apply(investigation, node_progress("beta", T0 + 2 * SETTLE_NS), now_ns=T0 + 3_602 * SECOND) == []


def test_the_slowest_node_holds_the_watermark() -> None:
    investigation = _new()
    both = [event_batch("alpha", 1, [placed(0, "alpha")]), event_batch("beta", 1, [lost_gpu("beta")])]
    _apply(investigation, *both, node_progress("beta", END_NS))
    assert not [v for v in _apply(investigation, node_progress("alpha", T0)) if incident_of(v).verdict == "settled"]
    settled = _apply(investigation, node_progress("alpha", END_NS))
    assert [incident_of(v).verdict for v in settled] == ["settled"]


def test_a_silent_node_is_left_out_after_a_minute_and_named() -> None:
    investigation = _new()
    both = [event_batch("alpha", 1, [placed(0, "alpha")]), event_batch("beta", 1, [lost_gpu("beta")])]
    _apply(investigation, *both, node_progress("alpha", T0), node_progress("beta", T0))
    later = T0 + SILENT_NS + SECOND
    (verdict,) = _apply(investigation, node_progress("beta", END_NS), now_ns=later)
    incident = incident_of(verdict)
    assert incident.verdict == "settled"
    assert incident.coverage["kernel"].silent == ["alpha"]
    assert [(gap.node, gap.source) for gap in incident.gaps] == [("alpha", "shipper")]


def test_a_node_that_never_sent_any_progress_does_not_hold_the_others_for_ever() -> None:
    investigation = _new()
    both = [event_batch("alpha", 1, [placed(0, "alpha")]), event_batch("beta", 1, [lost_gpu("beta")])]
    _apply(investigation, *both)
    found = _apply(investigation, node_progress("beta", END_NS), now_ns=T0 + SILENT_NS + SECOND)
    assert [incident_of(v).verdict for v in found] == ["settled"]


def test_a_line_after_settling_revises() -> None:
    investigation = _new()
    events = [event_batch("alpha", 1, ALPHA), node_progress("alpha", END_NS), node_progress("beta", END_NS)]
    first = _apply(investigation, *events)
    assert incident_of(first[-1]).class_.startswith("unknown/")
    assert incident_of(first[-1]).verdict == "settled"
    investigation = Investigation.restore(RULES, "test", investigation.snapshot())
    (late,) = _apply(
        investigation, event_batch("beta", 1, [lost_gpu("beta", bound_ns=SECOND)]), now_ns=T0 + 1_300 * SECOND
    )
    assert late.verdict_id == first[-1].verdict_id
    assert incident_of(late).class_ == "hardware/gpu_xid_79"


def test_progress_that_is_said_again_after_a_kill_is_known_as_old() -> None:
    investigation = _new()
    _apply(investigation, event_batch("beta", 1, [lost_gpu("beta")]))
    whole, ended = (
        msgspec.structs.replace(node_progress("beta", END_NS, ended=is_end), as_of_unix_nano=T0 + SECOND * second)
        for second, is_end in ((2, False), (3, True))
    )
    narrow = msgspec.structs.replace(node_progress("beta", T0), as_of_unix_nano=T0 + SECOND, kinds={})
    _apply(investigation, narrow, whole, ended)
    assert _apply(investigation, narrow, whole, ended, now_ns=T0 + 9 * SECOND) == []


def test_a_reporter_that_speaks_again_and_tells_nothing_new_opens_no_settled_verdict() -> None:
    investigation = _new()
    *_, verdict = _apply(
        investigation, event_batch("beta", 1, [lost_gpu("beta")]), node_progress("beta", T0, ended=True)
    )
    assert incident_of(verdict).verdict == "settled"
    assert _apply(investigation, node_progress("beta", T0), now_ns=T0 + 9 * SECOND) == []


def test_while_lines_pour_in_the_verdict_is_not_worked_out_for_each() -> None:
    investigation = _new()
    batches = [event_batch("beta", seq, [lost_gpu("beta", at_ns=T0 + seq)]) for seq in range(1, 51)]
    assert len(_apply(investigation, *batches)) == 1
    assert len(_apply(investigation, node_progress("beta", T0), now_ns=T0 + SECOND)) == 1


def test_a_verdict_that_no_longer_stands_is_withdrawn_once() -> None:
    investigation = _new(BETA_KEY)
    failed = event("elastic.failed", node="beta", source="agent", pid=800, at_ns=T0 + 60 * SECOND,
                   attributes={"exitcode": "-9", "pid": "800"})  # fmt: skip
    (first,) = _apply(investigation, event_batch("beta", 1, [failed], job_key=BETA_KEY))
    assert incident_of(first).class_ == "infra/process_killed"
    killed = event("host.oom.kill", node="beta", source="kern", pid=800, at_ns=T0 + 58 * SECOND, role="cause",
                   attributes={"kind": "global", "pid": "800"})  # fmt: skip
    found = _apply(investigation, event_batch("beta", 2, [killed], job_key=BETA_KEY), now_ns=T0 + 10 * SECOND)
    assert [(v.verdict_id == first.verdict_id, v.withdrawn) for v in found] == [(False, False), (True, True)]
    assert incident_of(found[0]).class_ == "resource/host_oom"

    investigation = Investigation.restore(RULES, "test", investigation.snapshot())
    end = node_progress("beta", END_NS, ended=True, job_key=BETA_KEY)
    later = _apply(investigation, end, now_ns=T0 + 20 * SECOND)
    assert [(v.verdict_id, v.withdrawn) for v in later] == [(found[0].verdict_id, False)]


def test_ids_come_from_the_job_and_not_from_the_verdict() -> None:
    as_lost = _apply(_new(), event_batch("beta", 1, [lost_gpu("beta")]))[0]
    as_memory = _apply(_new(), event_batch("beta", 1, [event("cuda.oom", node="beta", rank=1)]))[0]
    assert as_lost.verdict_id == as_memory.verdict_id
    other_job = _apply(_new(f"{CLUSTER}/7002/0"), event_batch("beta", 1, [lost_gpu("beta")]))[0]
    assert other_job.verdict_id != as_lost.verdict_id


# --- what may not decide ------------------------------------------------------------------------------------------


def test_a_node_that_is_left_out_for_its_clock_does_not_hold_the_watermark_and_is_named() -> None:
    investigation = _new()
    both = [event_batch("alpha", 1, [placed(0, "alpha")]), event_batch("beta", 1, [lost_gpu("beta")])]
    bad = msgspec.structs.replace(node_progress("alpha", 0), excluded="the clock runs 9000 s behind")
    (verdict, *_) = reversed(_apply(investigation, *both, bad, node_progress("beta", END_NS), now_ns=T0))
    incident = incident_of(verdict)
    assert incident.verdict == "settled"
    assert [(gap.node, gap.reason) for gap in incident.gaps] == [
        ("alpha", "the clock runs 9000 s behind; left out of the watermark")
    ]


def test_a_node_whose_clock_was_set_again_holds_the_watermark_again() -> None:
    investigation = _new()
    both = [event_batch("alpha", 1, [placed(0, "alpha")]), event_batch("beta", 1, [lost_gpu("beta")])]
    bad = msgspec.structs.replace(node_progress("alpha", 0), excluded="the clock runs 9000 s behind")
    found = _apply(investigation, *both, bad, node_progress("alpha", T0), node_progress("beta", END_NS))
    assert {incident_of(verdict).verdict for verdict in found} == {"provisional"}


def test_when_every_clock_is_bad_nothing_settles_before_the_end() -> None:
    investigation = _new()
    bad = msgspec.structs.replace(node_progress("beta", 0), excluded="the clock runs 9000 s behind")
    found = _apply(investigation, event_batch("beta", 1, [lost_gpu("beta")]), bad)
    assert {incident_of(verdict).verdict for verdict in found} == {"provisional"}
    end = msgspec.structs.replace(bad, ended=True)
    assert [incident_of(verdict).verdict for verdict in _apply(investigation, end)] == ["settled"]


def test_what_was_old_at_first_sight_opens_nothing_and_adds_nothing() -> None:
    old = msgspec.structs.replace(lost_gpu("beta"), alerts=False)
    investigation = _new()
    assert _apply(investigation, event_batch("beta", 1, [old]), node_progress("beta", END_NS, ended=True)) == []
    fresh = msgspec.structs.replace(lost_gpu("beta", at_ns=T0 + 60 * SECOND), offset=90, event_id="fresh")
    (verdict, *_) = _apply(investigation, event_batch("beta", 2, [fresh]), now_ns=T0 + SECOND)
    assert [step.count for step in incident_of(verdict).chain] == [1]


def test_a_fault_of_a_node_where_the_job_has_no_rank_is_not_the_cause_but_stands_beside() -> None:
    story = [placed(0, "alpha"), placed(1, "beta", bus="0000:5e:00.0"), waited(0, "alpha"), waited(1, "beta")]
    ends = [node_progress(node, END_NS, ended=True) for node in ("alpha", "beta", "gamma")]
    for node, main in (("gamma", "unknown/collective_timeout"), ("beta", "hardware/gpu_xid_79")):
        fault = event_batch(node, 9, [lost_gpu(node)])
        found = _apply(_new(), event_batch("alpha", 1, story[::2]), event_batch("beta", 1, story[1::2]), fault, *ends)
        last = {verdict.verdict_id: verdict for verdict in found}.values()
        told = {(incident_of(v).class_, v.main) for v in last if not v.withdrawn}
        beside = set() if node == "beta" else {("hardware/gpu_xid_79", False)}
        assert told == {(main, True)} | beside


def test_a_node_is_not_outside_while_a_rank_is_not_placed_yet() -> None:
    story = [placed(0, "alpha", world=3), placed(1, "beta", world=3), waited(0, "alpha")]
    fault = event_batch("gamma", 1, [lost_gpu("gamma")])
    ends = [node_progress(node, END_NS, ended=True) for node in ("alpha", "gamma")]
    found = _apply(_new(), event_batch("alpha", 1, story), fault, *ends)
    assert incident_of(found[-1]).class_ == "hardware/gpu_xid_79"


def test_a_rank_that_moved_is_blamed_where_it_ran_when_its_line_was_written() -> None:
    moves = [
        event("nccl.init", at_ns=T0 + at_s * SECOND, node=node, source=node, rank=1, pid=pid, role="context", bus=bus,
              attributes={"nranks": "2", "rank": "1"})
        for at_s, node, pid, bus in ((0, "alpha", 10_000, "0000:9a:00.0"), (100, "beta", 9_999, "0000:1a:00.0"))
    ]  # fmt: skip
    for at_s, node, pid in ((50, "alpha", 10_000), (150, "beta", 9_999)):
        hit = event("cuda.oom", node="login", source="job", rank=1, at_ns=T0 + at_s * SECOND)
        hit = msgspec.structs.replace(hit, subject=Entity(rank=1))
        (verdict,) = _apply(_new(), event_batch("login", 1, [*moves, hit]))
        assert [(c.node, c.rank, c.pid) for c in incident_of(verdict).culprits] == [(node, 1, pid)]


# --- silence as evidence ------------------------------------------------------------------------------------------


def _silent_story() -> list[EventBatch]:
    ranks = [placed(0, "alpha", world=4), placed(1, "alpha", world=4, bus="0000:43:00.0"),
             placed(2, "beta", world=4), placed(3, "beta", world=4, bus="0000:43:00.0")]  # fmt: skip
    return [
        event_batch("alpha", 1, [*ranks[:2], waited(0, "alpha"), waited(1, "alpha")]),
        event_batch("beta", 1, [*ranks[2:], waited(2, "beta")]),
    ]


def test_a_rank_is_silent_only_once_its_source_was_read_past_the_window() -> None:
    investigation = _new()
    early = _apply(investigation, *_silent_story(), node_progress("alpha", END_NS), node_progress("beta", T0))

    assert {incident_of(v).class_ for v in early} == {"unknown/collective_timeout"}


def test_a_silent_rank_is_named_when_everything_was_read() -> None:
    investigation = _new()
    _apply(investigation, *_silent_story(), node_progress("alpha", END_NS))
    found = _apply(investigation, node_progress("beta", END_NS), now_ns=T0 + SECOND)
    incident = incident_of(found[-1])
    assert incident.class_ == "unknown/silent_rank"
    assert [(c.node, c.rank) for c in incident.culprits] == [("beta", 3)]
    assert incident.blast_radius.silent_ranks == [3]


def test_the_last_words_of_a_silent_rank_are_on_the_chain_and_said() -> None:
    investigation = _new()
    error = event("cuda.error", node="beta", source="rank3", rank=3, role="cause",
                  attributes={"error": "unspecified launch failure"})  # fmt: skip
    _apply(investigation, *_silent_story(), event_batch("beta", 2, [error]), node_progress("alpha", END_NS))
    found = _apply(investigation, node_progress("beta", END_NS), now_ns=T0 + SECOND)
    incident = incident_of(found[-1])
    assert (incident.class_, [c.rank for c in incident.culprits]) == ("unknown/silent_rank", [3])
    assert "cuda.error" in [step.event for step in incident.chain]
    assert "ended with an error of its own" in incident.explanation
    assert "nothing says why" not in incident.explanation


def test_a_rank_on_a_node_that_nobody_watches_is_not_called_silent() -> None:
    investigation = _new()
    alone = [placed(r, "alpha" if r < 3 else "gone", world=4, bus=f"0000:{r:02x}:00.0") for r in range(4)]
    said = event_batch("alpha", 1, [*alone[:3], *(waited(r, "alpha") for r in range(3))])
    relayed = event_batch("alpha", 2, [alone[3]])
    found = _apply(investigation, said, relayed, node_progress("alpha", END_NS))
    incident = incident_of(found[-1])
    assert incident.class_ == "unknown/collective_timeout"
    assert incident.coverage["application"].silent == ["gone"]


# --- gaps ---------------------------------------------------------------------------------------------------------


def test_gaps_reach_the_incident_once() -> None:
    gap = Gap(source="spool", node="beta", reason="full", lost_lines=3)
    investigation = _new()
    found = _apply(
        investigation,
        event_batch("beta", 1, [lost_gpu("beta")], gaps=[gap]),
        event_batch("beta", 2, [], gaps=[gap]),
        node_progress("beta", END_NS),
    )
    assert incident_of(found[-1]).gaps == [gap]


def test_a_record_that_is_not_for_it_says_nothing() -> None:
    assert _apply(_new(), Gap(source="x", reason="y")) == []


def test_progress_without_events_concludes_nothing() -> None:
    said: Mapping[str, Any] = {}
    assert _apply(_new(), node_progress("alpha", END_NS, ended=True), **said) == []
    assert isinstance(node_progress("alpha", T0), NodeProgress)


# --- what is compared over time -----------------------------------------------------------------------------------


def _measured(minute: int) -> EventBatch:
    """One reading of each of eight GPUs on one node, of which number 3 is slow."""
    events = [
        event("gpu.telemetry", node="beta", source="smi", offset=100 * minute + gpu, bus=f"0000:{gpu:02x}:00.0",
              at_ns=T0 + 60 * minute * SECOND, role="context",
              attributes={"sm_clock_mhz": "1200" if gpu == 3 else "1950", "utilization_percent": "98"})
        for gpu in range(8)
    ]  # fmt: skip
    return event_batch("beta", minute + 1, events)


def _watched(minutes: int, key: str = JOB_KEY) -> list[Verdict]:
    investigation = _new(key)
    return [v for n in range(minutes)
            for v in _apply(investigation, _measured(n), now_ns=T0 + 60 * n * SECOND)]  # fmt: skip


def test_a_slow_gpu_is_told_while_the_job_runs_and_not_anew_with_every_reading() -> None:
    found = _watched(60)
    assert {incident_of(verdict).class_ for verdict in found} == {"hardware/gpu_slow"}
    assert {incident_of(verdict).severity for verdict in found} == {"warning"}
    assert incident_of(found[0]).ended_at is not None
    assert len(found) <= 60 // (WATCH_AGAIN_NS // (60 * SECOND))
    first_at = (found[0].as_of_unix_nano - T0) // (60 * SECOND)
    assert first_at <= 12


def test_on_a_node_without_a_job_it_stays_one_incident() -> None:
    assert len({verdict.verdict_id for verdict in _watched(60, BETA_KEY)}) == 1


def test_ordinary_readings_say_nothing() -> None:
    assert _watched(9) == []


def test_the_end_of_a_job_tells_what_its_readings_show_at_once() -> None:
    investigation = _new()
    batches = [_measured(n) for n in range(20)]
    assert _apply(investigation, *batches, now_ns=0) == []
    (verdict,) = _apply(investigation, node_progress("beta", END_NS, ended=True), now_ns=0)
    assert incident_of(verdict).class_ == "hardware/gpu_slow"
