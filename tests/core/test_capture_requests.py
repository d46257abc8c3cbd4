"""Whom join asks for captures."""

from typing import Any

import msgspec

from pipeline.core.capture_requests import GOOD_FOR_NS, MOST_NODES
from pipeline.core.join import Join
from schemas.records import CaptureRequest, Culprit, Engine, Incident, Verdict

NOW_NS = 1_772_359_200 * 10**9


def verdict(*nodes: str, seq: int = 1, **changes: Any) -> Verdict:
    culprits = [Culprit(node=node, rank=number) for number, node in enumerate(nodes)]
    incident = Incident(
        incident_id="i1", engine=Engine(version="v", rules_digest="d"), run="live", run_id="live", cluster="c",
        class_="hardware/gpu_xid_79", culprits=culprits,
    )  # fmt: skip
    return Verdict(
        verdict_id="i1", job_key="c/job/7/0", incident=msgspec.structs.replace(incident, **changes), as_of_unix_nano=1,
        seq=seq,
    )  # fmt: skip


def requests(join: Join, record: Verdict) -> list[CaptureRequest]:
    outputs = join.apply(record, now_ns=NOW_NS)
    return [output.record for output in outputs if isinstance(output.record, CaptureRequest)]


def test_nobody_is_asked_unless_that_is_wanted() -> None:
    assert requests(Join(), verdict("n1")) == []


def test_the_blamed_node_is_asked_once_for_as_long_as_what_is_asked_for_lasts() -> None:
    join = Join(asks_captures=True)
    (asked,) = requests(join, verdict("n1"))

    assert (asked.node, asked.rank, asked.incident_id, asked.why) == ("n1", 0, "i1", "hardware/gpu_xid_79")
    assert asked.expires_unix_nano - asked.created_unix_nano == GOOD_FOR_NS
    assert asked.signature == ""
    assert requests(join, verdict("n1", seq=2, explanation="more is known")) == []
    assert [each.node for each in requests(join, verdict("n1", "n2", seq=3))] == ["n2"]


def test_a_worker_that_is_restored_knows_whom_it_asked_and_says_the_same_again_where_it_does_not() -> None:
    join = Join(asks_captures=True)
    (first,) = requests(join, verdict("n1"))
    restored = Join.restore(join.snapshot(), asks_captures=True)

    assert requests(restored, verdict("n1", seq=2, explanation="more")) == []
    (again,) = requests(Join(asks_captures=True), verdict("n1"))
    assert again.request_id == first.request_id


def test_replays_ended_incidents_and_crowds_are_not_asked() -> None:
    assert requests(Join(asks_captures=True), verdict("n1", run="replay")) == []
    assert requests(Join(asks_captures=True), verdict("n1", state="resolved")) == []
    crowd = [f"n{number}" for number in range(20)]
    assert len(requests(Join(asks_captures=True), verdict(*crowd))) == MOST_NODES
