"""What is not proven moves nothing and is told; what comes again counts once; what a person releases counts."""

from typing import Any

import msgspec
import pytest

from pipeline.core.align import NodeFold
from pipeline.core.outputs import Output
from pipeline.core.trust import SENT_AGAIN, Judged
from schemas import signals
from schemas.records import Event, EventBatch, Gap, NodeProgress, SourceProgress
from tests.trust.signed import NOW_NS, S, batch, clock, progress, release

XID = "NVRM: Xid (PCI:0000:3b:00): 79, pid=1, name=python, GPU has fallen off the bus."
DAY_NS = 86400 * S


@pytest.fixture(scope="module")
def known() -> signals.SignalSet:
    return signals.load()


@pytest.fixture
def fold(known: signals.SignalSet) -> NodeFold:
    return NodeFold(known)


def take(fold: NodeFold, record: object, at_ns: int = NOW_NS, **judged: Any) -> list[Output]:
    return list(fold.apply(Judged(record=record, **judged) if judged or record else record, now_ns=at_ns))


def events(outputs: list[Output]) -> list[Event]:
    return [each for out in outputs if isinstance(out.record, EventBatch) for each in out.record.events]


def gaps(outputs: list[Output]) -> list[Gap]:
    return [each for out in outputs if isinstance(out.record, EventBatch) for each in out.record.gaps]


def test_a_proven_batch_is_read(fold: NodeFold) -> None:
    (event,) = events(take(fold, batch(XID)))
    assert event.name == "gpu.xid"


def test_what_is_not_proven_changes_nothing_but_the_count_and_is_told_once(fold: NodeFold) -> None:
    take(fold, batch("one", seq=1))
    before = msgspec.json.encode(msgspec.structs.replace(fold.state, trust=fold.state.trust))
    forged = batch(XID, "x", seq=10**9, clock=clock(wall_ns=4 * 10**18))

    first = take(fold, forged, doubt="not signed")
    again = take(fold, forged, doubt="not signed")

    assert events(first + again) == []
    assert [gap.reason for gap in gaps(first + again)] == ["lines of n1 are left out: not signed"]
    assert gaps(first)[0].lost_lines == 2
    assert fold.state.trust.left_out["not signed"].lines == 4
    emptied = msgspec.json.decode(msgspec.json.encode(fold.state))
    told = {"trust": None, "node_keys": None}
    assert {**emptied, **told} == {**msgspec.json.decode(before), **told}


def test_a_flood_is_told_of_ever_more_rarely(fold: NodeFold) -> None:
    take(fold, batch("one", seq=1))
    said = [
        gap
        for number in range(1000)
        for gap in gaps(take(fold, batch("x"), NOW_NS + number * 30 * S, doubt="not signed"))
    ]
    assert [gap.lost_lines for gap in said] == [1, 3, 6, 12, 24, 48, 96, 192, 384, 768]


def test_reasons_that_somebody_makes_up_do_not_grow_the_state(fold: NodeFold) -> None:
    take(fold, batch("one", seq=1))
    for number in range(200):
        take(fold, batch("x"), doubt=f"signed with key '{number}', which is not known")
    assert len(fold.state.trust.left_out) == 21


def test_where_the_policy_is_to_warn_it_is_told_and_counts(fold: NodeFold) -> None:
    take(fold, batch("one", seq=1), doubt="not signed", counts=True)
    outputs = take(fold, batch(XID, seq=2), NOW_NS + 61 * S, doubt="not signed", counts=True)
    assert [event.name for event in events(outputs)] == ["gpu.xid"]
    assert [gap.reason for gap in gaps(outputs)] == ["lines of n1 are counted all the same: not signed"]


def test_a_batch_that_comes_again_counts_once_and_is_told(fold: NodeFold) -> None:
    first = take(fold, batch(XID, seq=5))
    again = take(fold, batch(XID, seq=5))
    lower = take(fold, batch("older", seq=4))
    assert len(events(first)) == 1
    assert events(again + lower) == []
    assert [gap.reason for gap in gaps(again)] == [f"lines of n1 are left out: {SENT_AGAIN}"]
    assert gaps(again)[0].lost_lines is None


def test_a_batch_that_comes_again_after_a_restart_of_the_worker_counts_once(
    fold: NodeFold, known: signals.SignalSet
) -> None:
    take(fold, batch(XID, seq=5))
    restarted = NodeFold.restore(known, fold.snapshot())
    assert events(take(restarted, batch(XID, seq=5))) == []


def test_an_old_batch_of_a_shipper_that_is_not_known_any_more_is_not_believed(fold: NodeFold) -> None:
    old = batch(XID, clock=clock(wall_ns=NOW_NS - 8 * DAY_NS))
    assert events(take(fold, old)) == []
    assert "more than 7 days" in next(iter(fold.state.trust.left_out))
    assert len(events(take(fold, batch(XID, clock=clock(wall_ns=NOW_NS - 6 * DAY_NS))))) == 1


def told(outputs: list[Output]) -> list[str]:
    return [out.record.node for out in outputs if isinstance(out.record, NodeProgress)]


def test_progress_counts_only_ahead_of_what_was_told_and_of_this_boot(fold: NodeFold) -> None:
    on = SourceProgress(source="kmsg", state="on", kind="kernel", read_through_unix_nano=NOW_NS)
    take(fold, batch(XID, seq=1))
    assert told(take(fold, progress(11 * S, sources=[on]))) == ["n1"]
    assert told(take(fold, progress(11 * S, sources=[on]))) == []
    assert told(take(fold, progress(9 * S, sources=[on]))) == []
    assert told(take(fold, progress(1 * S, boot_id="b2", sources=[on]))) == ["n1"]
    assert told(take(fold, progress(12 * S, sources=[on]))) == []


def test_two_agents_of_a_control_plane_take_turns_and_neither_is_taken_for_an_old_boot(fold: NodeFold) -> None:
    on = SourceProgress(source="slurm/jobs", state="on", kind="control", read_through_unix_nano=NOW_NS)
    take(fold, batch(XID, seq=1))
    for raw_ns, boot_id, counts in ((11, "b1", True), (1, "b2", True), (12, "b1", True), (12, "b1", False)):
        found = told(take(fold, progress(raw_ns * S, boot_id=boot_id, sources=[on])))
        assert found == (["n1"] if counts else [])


def test_what_a_person_releases_counts_with_its_name_and_once(fold: NodeFold) -> None:
    take(fold, batch("one", seq=1))
    forged = batch(XID, seq=7, shipper_id="other", source_attributes={"kmsg": {"kind": "kernel"}})
    assert events(take(fold, forged, doubt="not signed")) == []

    later_ns = NOW_NS + 3600 * S
    (event,) = events(take(fold, release(forged, later_ns, key_id="ops"), later_ns))
    assert (event.name, event.node, event.alerts) == ("gpu.xid", "n1", True)
    assert events(take(fold, release(forged, later_ns, key_id="ops"), later_ns)) == []
    assert len(events(take(fold, batch(XID, seq=2)))) == 1
    assert fold.state.shippers == {"s1": 2}


def test_a_release_that_nobody_may_give_is_left_out(fold: NodeFold) -> None:
    take(fold, batch("one", seq=1))
    assert events(take(fold, release(batch(XID, seq=7)), doubt="signed with key 'k', which is not known")) == []


def test_a_release_speaks_for_its_reporter_alone(fold: NodeFold) -> None:
    take(fold, batch("one", seq=1))
    (event,) = events(take(fold, release(batch(XID, reporter="n9"), key_id="ops")))
    assert event.node == "n1"


@pytest.mark.parametrize("kind", ["kernel", "telemetry"])
def test_a_reporter_speaks_only_for_itself_of_its_own_hardware(fold: NodeFold, kind: str) -> None:
    outputs = list(fold.apply(batch(XID, source_attributes={"kmsg": {"kind": kind, "node": "n2"}}), now_ns=NOW_NS))
    assert events(outputs) == []
    (gap,) = gaps(outputs)
    assert gap.reason == "n1 speaks for 'n2' in a source that is of its own machine alone; left out"
    assert (gap.source, gap.lost_lines) == ("kmsg", 1)


def test_a_log_of_ranks_may_speak_of_others_and_so_may_recorded_runs(fold: NodeFold, known: signals.SignalSet) -> None:
    said = {"kmsg": {"kind": "application", "node": "n2"}}
    assert [event.node for event in events(list(fold.apply(batch(XID, source_attributes=said), now_ns=NOW_NS)))] == [
        "n2"
    ]
    recorded = batch(XID, run="replay", source_attributes={"kmsg": {"kind": "kernel", "node": "n2"}})
    assert [event.node for event in events(list(NodeFold(known).apply(recorded, now_ns=NOW_NS)))] == ["n2"]
