"""Join: verdicts become incidents with revisions."""

from collections.abc import Iterable

import msgspec
from hypothesis import given, settings
from hypothesis import strategies as st

from pipeline.core.join import FORGET_NS, Join
from pipeline.core.outputs import Output
from schemas.records import Engine, Incident, Job, Verdict
from schemas.vocabulary import IncidentState
from tests.strategies import CLUSTER, SECOND, T0, incidents, text

NODE_KEY = f"node:{CLUSTER}/beta/boot-beta"


def _verdict(
    name: str,
    *,
    key: str = f"{CLUSTER}/1/0",
    class_: str = "hardware/gpu_xid_79",
    roots: Iterable[str] = ("line-1",),
    explained: Iterable[str] = (),
    jobs: Iterable[str] = (),
    confidence: float = 0.9,
    withdrawn: bool = False,
    as_of_ns: int = 0,
    seq: int = 0,
    state: IncidentState = "open",
) -> Verdict:
    incident = Incident(
        incident_id=name, engine=Engine(version="1", rules_digest="x"), run="live", run_id="", cluster=CLUSTER,
        class_=class_, confidence=confidence, jobs=[Job(job_id=job) for job in jobs], state=state,
    )  # fmt: skip
    return Verdict(
        verdict_id=name, job_key=key, incident=incident, root_events=list(roots),
        explained_events=sorted({*roots, *explained}), content_hash=f"{class_} {confidence} {state}",
        withdrawn=withdrawn, as_of_unix_nano=as_of_ns, seq=seq,
    )  # fmt: skip


def _gone(name: str, key: str = f"{CLUSTER}/1/0") -> Verdict:
    return Verdict(verdict_id=name, job_key=key, withdrawn=True)


def _apply(join: Join, *verdicts: Verdict, now_ns: int = T0) -> list[Incident]:
    outputs: list[Output] = [output for verdict in verdicts for output in join.apply(verdict, now_ns=now_ns)]
    return incidents(outputs)


def test_the_first_verdict_is_revision_1_and_says_when_it_was_detected() -> None:
    (incident,) = _apply(Join(), _verdict("a"))
    assert (incident.revision, incident.state) == (1, "open")
    assert incident.detected_at == "2026-03-04T05:06:07.000000Z"


def test_the_same_content_again_is_no_revision() -> None:
    join = Join()
    assert [i.revision for i in _apply(join, _verdict("a"), _verdict("a"), _verdict("a"))] == [1]


def test_other_content_counts_up_and_keeps_the_time_of_detection() -> None:
    join = Join()
    _apply(join, _verdict("a"))
    (revised,) = _apply(join, _verdict("a", confidence=0.95), now_ns=T0 + 60 * SECOND)
    assert revised.revision == 2
    assert revised.detected_at == "2026-03-04T05:06:07.000000Z"


def test_a_restart_from_a_snapshot_does_not_number_again() -> None:
    join = Join()
    _apply(join, _verdict("a"), _verdict("a", confidence=0.8))
    join = Join.restore(join.snapshot())
    assert _apply(join, _verdict("a", confidence=0.8)) == []
    assert [i.revision for i in _apply(join, _verdict("a", confidence=0.7))] == [3]


def test_verdicts_that_a_killed_worker_says_again_are_no_news() -> None:
    said = [
        _verdict("a", as_of_ns=T0, seq=1),
        _verdict("a", confidence=0.8, as_of_ns=T0 + 1, seq=2),
        _verdict("a", confidence=0.7, as_of_ns=T0 + 1, seq=3),
    ]
    join = Join()
    assert [i.revision for i in _apply(join, *said)] == [1, 2, 3]
    assert _apply(join, *said) == []
    assert _apply(Join.restore(join.snapshot()), *said) == []
    (news,) = _apply(join, _verdict("a", as_of_ns=T0 + 1, seq=4))
    assert (news.revision, news.confidence) == (4, 0.9)


def test_a_withdrawn_verdict_retracts_its_incident_once() -> None:
    join = Join()
    _apply(join, _verdict("a"))
    (retracted,) = _apply(join, _gone("a"))
    assert (retracted.state, retracted.revision) == ("retracted", 2)
    assert _apply(join, _gone("a")) == []


def test_a_withdrawn_verdict_that_was_never_published_says_nothing() -> None:
    assert _apply(Join(), _gone("a")) == []


def test_a_verdict_that_returns_opens_the_incident_again() -> None:
    join = Join()
    _apply(join, _verdict("a"), _gone("a"))
    (back,) = _apply(join, _verdict("a"))
    assert (back.state, back.revision) == ("open", 3)


def test_a_benign_verdict_is_no_incident_but_retracts_one() -> None:
    assert _apply(Join(), _verdict("a", class_="benign/gpu_row_remap")) == []
    join = Join()
    _apply(join, _verdict("a"))
    assert [i.state for i in _apply(join, _verdict("a", class_="benign/shutdown_noise"))] == ["retracted"]


def test_a_nodes_verdict_is_superseded_by_the_jobs_verdict_that_explains_the_same_line() -> None:
    join = Join()
    _apply(join, _verdict("node", key=NODE_KEY, roots=["line-1"]))
    said = {i.incident_id: i for i in _apply(join, _verdict("job", roots=["line-0"], explained=["line-1"]))}
    assert said["node"].state == "superseded"
    assert said["node"].superseded_by == "job"
    assert said["job"].state == "open"


def test_a_nodes_verdict_that_comes_second_is_superseded_at_once() -> None:
    join = Join()
    _apply(join, _verdict("job", roots=["line-0"], explained=["line-1"]))
    assert [(i.incident_id, i.state) for i in _apply(join, _verdict("node", key=NODE_KEY))] == [("node", "superseded")]


def test_a_nodes_verdict_about_other_lines_stands() -> None:
    join = Join()
    _apply(join, _verdict("job", roots=["line-0"]))
    assert [i.state for i in _apply(join, _verdict("node", key=NODE_KEY, roots=["line-9"]))] == ["open"]


def test_a_nodes_verdict_stands_again_when_the_job_is_explained_otherwise() -> None:
    join = Join()
    _apply(join, _verdict("node", key=NODE_KEY), _verdict("job", roots=["line-0"], explained=["line-1"]))
    said = _apply(join, _verdict("job", class_="software/cuda_oom", roots=["line-7"]))

    assert ("node", "open") in [(i.incident_id, i.state) for i in said]


def test_a_nodes_verdict_stands_again_when_the_jobs_is_withdrawn() -> None:
    join = Join()
    _apply(join, _verdict("node", key=NODE_KEY), _verdict("job", roots=["line-0"], explained=["line-1"]))
    assert ("node", "open") in [(i.incident_id, i.state) for i in _apply(join, _gone("job"))]


def test_two_jobs_that_rest_on_the_same_line_are_one_incident_with_both_jobs() -> None:
    join = Join()
    _apply(join, _verdict("a", key=f"{CLUSTER}/1/0", jobs=["1"]))
    said = {i.incident_id: i for i in _apply(join, _verdict("b", key=f"{CLUSTER}/2/0", jobs=["2"]))}
    assert said["b"].state == "superseded"
    assert said["b"].superseded_by == "a"
    assert [job.job_id for job in said["a"].jobs] == ["1", "2"]


def test_an_incident_of_two_jobs_is_over_once_it_is_for_both() -> None:
    join = Join()
    said = _apply(
        join,
        _verdict("a", key=f"{CLUSTER}/1/0", jobs=["1"], state="resolved"),
        _verdict("b", key=f"{CLUSTER}/2/0", jobs=["2"]),
        _verdict("b", key=f"{CLUSTER}/2/0", jobs=["2"], state="resolved"),
    )
    assert [i.state for i in said if i.incident_id == "a"] == ["resolved", "open", "resolved"]


def test_of_many_jobs_on_one_line_one_speaks_for_all_whenever_it_comes() -> None:
    join = Join()
    said = {
        incident.incident_id: incident
        for n in range(20)
        for incident in _apply(join, _verdict(f"v{(n * 7 + 3) % 20:02}", key=f"{CLUSTER}/{n}/0", jobs=[str(n)]))
    }
    assert {name: incident.superseded_by for name, incident in said.items() if incident.state == "superseded"} == {
        f"v{n:02}": "v00" for n in range(1, 20)
    }
    assert len(said["v00"].jobs) == 20


def test_two_jobs_that_fail_at_once_on_different_lines_stay_two_incidents() -> None:
    join = Join()
    said = _apply(join, _verdict("a", jobs=["1"]), _verdict("b", key=f"{CLUSTER}/2/0", jobs=["2"], roots=["line-2"]))
    assert [(i.incident_id, i.state) for i in said] == [("a", "open"), ("b", "open")]


_STORY = [
    _verdict("node", key=NODE_KEY),
    _verdict("a", roots=["line-0"], explained=["line-1"], jobs=["1"]),
    _verdict("b", key=f"{CLUSTER}/2/0", roots=["line-0"], jobs=["2"]),
    _verdict("c", key=f"{CLUSTER}/3/0", roots=["line-5"], jobs=["3"]),
    _gone("c", key=f"{CLUSTER}/3/0"),
    _verdict("a", roots=["line-0"], explained=["line-1"], jobs=["1"], confidence=0.7),
]


@given(order=st.permutations([0, 1, 2, 3]), cuts=st.sets(st.integers(0, 5)))
@settings(deadline=None)
def test_the_last_revision_of_each_incident_does_not_depend_on_the_order_or_on_restarts(
    order: list[int], cuts: set[int]
) -> None:
    def last_said(verdicts: Iterable[Verdict], restarts: set[int]) -> dict[str, str]:
        join, said = Join(), {}
        for number, verdict in enumerate(verdicts):
            if number in restarts:
                join = Join.restore(join.snapshot())
            for incident in _apply(join, verdict):
                said[incident.incident_id] = text(msgspec.structs.replace(incident, revision=0))
        return said

    shuffled = [*(_STORY[n] for n in order), *_STORY[4:]]
    assert last_said(shuffled, cuts) == last_said(_STORY, set())


def test_the_time_of_detection_outlives_revisions_withdrawal_and_restart() -> None:
    join = Join()
    (first,) = _apply(join, _verdict("a"))
    assert first.detected_at == "2026-03-04T05:06:07.000000Z"
    story = [_verdict("a", confidence=0.8), _gone("a"), _verdict("a", confidence=0.7), _verdict("a", confidence=0.6)]
    said = []
    for number, verdict in enumerate(story, 1):
        join = Join.restore(join.snapshot())
        said += _apply(join, verdict, now_ns=T0 + number * 60 * SECOND)
    assert [(incident.revision, incident.detected_at) for incident in said] == [
        (revision, first.detected_at) for revision in (2, 3, 4, 5)
    ]


def test_a_verdict_is_forgotten_seven_days_after_it_was_last_said() -> None:
    join = Join()
    assert FORGET_NS == 7 * 86_400 * SECOND
    _apply(join, _verdict("node", key=NODE_KEY), now_ns=T0)
    _apply(join, _verdict("node", key=NODE_KEY), now_ns=T0 + SECOND)
    kept_ns = T0 + SECOND + FORGET_NS
    assert [i.incident_id for i in _apply(Join.restore(join.snapshot()), _verdict("a"), now_ns=kept_ns)] == [
        "a",
        "node",
    ]
    assert [i.incident_id for i in _apply(join, _verdict("a"), now_ns=kept_ns + 1)] == ["a"]
    assert list(msgspec.json.decode(join.snapshot())["standing"]) == ["a"]


def test_what_was_forgotten_holds_no_line() -> None:
    join = Join()
    _apply(join, *(_verdict(f"v{n}", key=f"{CLUSTER}/{n}/0", roots=[f"line-{n}"]) for n in range(20)), now_ns=T0)
    size = len(join.snapshot())
    _apply(join, _verdict("last", roots=["line-3"]), now_ns=T0 + FORGET_NS + 1)
    assert len(join.snapshot()) < size / 10
    assert set(join._by_line) == {"line-3"}


def test_a_quiet_job_verdict_does_not_hide_the_fault_of_a_node_that_it_explains() -> None:
    for class_ in ("scheduler/time_limit", "scheduler/preempted", "benign/shutdown_noise"):
        join = Join()
        assert [i.state for i in _apply(join, _verdict("node", key=NODE_KEY))] == ["open"]
        assert _apply(join, _verdict("job", class_=class_, roots=["line-0"], explained=["line-1"])) == []
        later = Join()
        _apply(later, _verdict("job", class_=class_, roots=["line-0"], explained=["line-1"]))
        assert [i.state for i in _apply(later, _verdict("node", key=NODE_KEY))] == ["open"]


def test_a_node_stands_again_when_the_job_turns_out_to_have_ended_quietly() -> None:
    join = Join()
    _apply(join, _verdict("node", key=NODE_KEY), _verdict("job", roots=["line-0"], explained=["line-1"]))
    quiet = _verdict("job", class_="scheduler/time_limit", roots=["line-0"], explained=["line-1"])
    assert {(i.incident_id, i.state) for i in _apply(join, quiet)} == {("job", "retracted"), ("node", "open")}
