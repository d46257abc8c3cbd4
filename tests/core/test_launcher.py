"""The answer for a launcher, worked out from incidents of this and earlier attempts."""

from datetime import UTC, datetime
from typing import Any

import pytest
from msgspec.structs import replace

from pipeline.core.calibration import CERTAIN
from pipeline.core.launch_policy import POLICY
from pipeline.core.launcher import Advice, Asked, Told, advise, is_settled
from schemas.records import Incident
from schemas.vocabulary import CLASSES
from tests.core.failed_jobs import JOB, culprit, failed, job

NOW = datetime(2026, 5, 1, 13, tzinfo=UTC)
NODES = ["gpu06", "gpu07", "gpu08"]
KEY_ERROR: dict[str, Any] = {"failure": "KeyError in run_epoch of /srv/train/loop.py"}


def answer(*incidents: Incident, notes: list[Incident] | None = None, **asked: Any) -> Advice:
    nodes = asked.pop("nodes", NODES)
    told = Told(incidents=list(incidents), notes=notes or [], nodes=nodes)
    return advise(told, Asked(job=asked.pop("job", JOB), **asked), NOW)


def left_out(advice: Advice) -> list[str]:
    return [one.node for one in advice.nodes]


# --- the table ----------------------------------------------------------------------------------------------------


def test_every_class_has_a_policy_and_no_other_has() -> None:
    assert POLICY.keys() == CLASSES


def test_whatever_leaves_a_node_out_says_for_how_long_and_nothing_else_does() -> None:
    assert {policy.kind for policy in POLICY.values() if policy.hours > 0} == {"exclude"}
    assert all(policy.hours > 0 for policy in POLICY.values() if policy.kind == "exclude")


@pytest.mark.parametrize(
    ("class_", "said"),
    [
        ("hardware/gpu_xid_79", "restart_excluding"),
        ("hardware/host_memory", "restart_excluding"),
        ("network/ib_link_flap", "restart_excluding"),
        ("infra/node_failure", "restart_excluding"),
        ("storage/local_disk_error", "restart_excluding"),
        ("network/ib_retry_exceeded", "restart"),
        ("storage/nfs_unresponsive", "restart"),
        ("software/python_exception", "restart"),
        ("resource/cgroup_oom", "restart"),
        ("infra/process_killed", "restart"),
        ("operator/sigint", "undecided"),
        ("external/supervisor_sigterm", "undecided"),
    ],
)
def test_the_first_failure_of_a_class(class_: str, said: str) -> None:
    advice = answer(failed(class_))

    assert (advice.answer, advice.class_) == (said, class_)
    assert left_out(advice) == (["gpu07"] if said == "restart_excluding" else [])


@pytest.mark.parametrize(
    ("class_", "said"),
    [
        ("scheduler/time_limit", "restart"),
        ("scheduler/preempted", "restart"),
        ("scheduler/cancelled", "undecided"),
        ("benign/gpu_row_remap", "restart"),
    ],
)
def test_an_ending_that_is_no_incident_is_answered_as_the_scheduler_says(class_: str, said: str) -> None:
    assert answer(notes=[failed(class_)]).answer == said


def test_a_fault_decides_and_not_the_stop_by_the_scheduler_that_followed_it() -> None:
    advice = answer(failed("hardware/gpu_xid_79"), notes=[failed("scheduler/cancelled")])

    assert advice.answer == "restart_excluding"


def test_a_class_of_a_newer_version_is_undecided() -> None:
    advice = answer(failed("hardware/gpu_of_next_year"))

    assert (advice.answer, left_out(advice)) == ("undecided", [])


# --- nodes --------------------------------------------------------------------------------------------------------


def test_a_node_is_left_out_until_its_time_is_over_counted_from_the_failure() -> None:
    (one,) = answer(failed("hardware/gpu_xid_79")).nodes

    assert one.expires_at == "2026-05-02T12:00:00Z"
    assert "hardware/gpu_xid_79" in one.reason


def test_of_a_recording_the_time_is_counted_from_now() -> None:
    (one,) = answer(failed("hardware/gpu_xid_79", run="post_mortem", ended_at="2019-01-01T00:00:00Z")).nodes

    assert one.expires_at == "2026-05-02T13:00:00Z"


def test_a_node_whose_time_is_over_is_used_again() -> None:
    advice = answer(failed("hardware/gpu_xid_79", ended_at="2026-04-29T12:00:00Z"))

    assert (advice.answer, left_out(advice)) == ("restart", [])
    assert "gpu07 out is over" in advice.reason


@pytest.mark.parametrize("stamp", ["2099-01-01T00:00:00Z", "yesterday", "2026-05-01T12:00:00"])
def test_a_time_that_cannot_be_is_taken_for_now(stamp: str) -> None:
    (one,) = answer(failed("hardware/gpu_xid_79", ended_at=stamp)).nodes

    assert one.expires_at == "2026-05-02T13:00:00Z"


def test_all_culprits_are_left_out_each_once() -> None:
    advice = answer(failed("hardware/gpu_ecc_uncorrectable", culprits=[culprit(), culprit("gpu08"), culprit()]))

    assert left_out(advice) == ["gpu07", "gpu08"]


def test_a_fault_that_stands_beside_the_failure_has_its_node_left_out_too() -> None:
    beside = failed("hardware/nvme", incident_id="beside", culprits=[culprit("gpu06")])

    advice = answer(beside, failed("software/python_exception"))

    assert (advice.answer, advice.class_) == ("restart_excluding", "software/python_exception")
    assert left_out(advice) == ["gpu06"]


def test_a_node_of_an_earlier_attempt_stays_out_until_its_time_is_over() -> None:
    before = failed("hardware/gpu_xid_79", 0)
    long_before = failed("hardware/gpu_xid_79", 1, culprits=[culprit("gpu08")], ended_at="2026-04-20T00:00:00Z")

    advice = answer(before, long_before, failed("storage/fs_hang", 2))

    assert (advice.answer, advice.attempt, left_out(advice)) == ("restart_excluding", 2, ["gpu07"])


def test_a_node_that_a_list_spells_in_full_is_named_as_the_list_spells_it() -> None:
    advice = answer(failed("hardware/gpu_xid_79"), nodes=["gpu06.lab.example", "gpu07.lab.example"])

    assert left_out(advice) == ["gpu07.lab.example"]


@pytest.mark.parametrize(
    ("changed", "nodes", "why"),
    [
        ({}, ["gpu01"], "not one of the nodes"),
        ({}, ["gpu07.a.example", "gpu07.b.example"], "not one of the nodes"),
        ({}, [], "not one of the nodes"),
        ({}, None, "no list of the nodes"),
        ({"confidence": CERTAIN - 0.01}, NODES, "certainty"),
        ({"culprits": [culprit(confidence=0.4)]}, NODES, "certainty"),
        ({"why_unknown": "one of two ends"}, NODES, "certainty"),
        ({"synthetic": True}, NODES, "drill"),
        ({"run": "drill"}, NODES, "drill"),
        ({"culprits": [culprit("gpu07.lab.invalid")]}, ["gpu07.lab.invalid"], "drill"),
        ({"culprits": [culprit("drill-gpu07")]}, ["drill-gpu07"], "drill"),
        ({"culprits": [culprit("$(reboot)")]}, ["$(reboot)"], "not the name of a node"),
        ({"culprits": [culprit("--all")]}, ["--all"], "not the name of a node"),
    ],
)
def test_a_node_that_is_not_certain_is_never_left_out(changed: dict[str, Any], nodes: list[str], why: str) -> None:
    advice = answer(failed("hardware/gpu_xid_79", **changed), nodes=nodes)

    assert (advice.answer, left_out(advice)) == ("undecided", [])
    (refused,) = advice.refused
    assert why in refused.why


def test_a_rank_is_no_node() -> None:
    named = [replace(culprit(None), rank=5, local_rank=1)]

    advice = answer(failed("hardware/gpu_xid_79", culprits=named))

    assert (advice.answer, left_out(advice), advice.refused) == ("undecided", [], [])


def test_without_a_node_a_link_or_a_lost_node_is_no_reason_to_wait() -> None:
    assert answer(failed("network/ib_link_flap", culprits=[])).answer == "restart"
    assert answer(failed("infra/node_failure", culprits=[])).answer == "restart"


def test_the_node_of_another_fault_is_no_stand_in_for_the_one_that_failed() -> None:
    beside = failed("hardware/nvme", incident_id="beside", culprits=[culprit("gpu06")])

    advice = answer(failed("hardware/gpu_xid_79", culprits=[]), beside)

    assert (advice.answer, left_out(advice)) == ("undecided", ["gpu06"])


# --- unknown ------------------------------------------------------------------------------------------------------


def test_an_unknown_cause_that_points_at_no_node_is_a_restart_once_settled() -> None:
    unknown = failed("unknown/collective_timeout", culprits=[], confidence=0.3)

    assert answer(unknown).answer == "restart"
    assert answer(replace(unknown, verdict="provisional")).answer == "undecided"


def test_a_silent_rank_on_a_node_is_undecided_and_the_node_is_not_left_out() -> None:
    advice = answer(failed("unknown/silent_rank", confidence=0.6))

    assert (advice.answer, left_out(advice)) == ("undecided", [])
    assert "gpu07" in advice.reason


def test_what_is_known_of_nobody_is_undecided() -> None:
    advice = answer()

    assert (advice.answer, advice.class_, advice.incident_id) == ("undecided", None, None)
    assert f"nothing is known of job {JOB}" in advice.reason


@pytest.mark.parametrize("state", ["retracted", "superseded"])
def test_what_no_longer_stands_is_not_answered_from(state: str) -> None:
    assert answer(failed("hardware/gpu_xid_79", state=state)).answer == "undecided"


def test_another_job_or_attempt_is_not_answered_for() -> None:
    assert answer(failed("hardware/gpu_xid_79"), job="12").answer == "undecided"
    assert answer(failed("storage/fs_hang", 3), attempt=2).answer == "undecided"


# --- the same failure again ---------------------------------------------------------------------------------------


def test_the_same_failure_in_an_earlier_attempt_is_no_restart() -> None:
    advice = answer(
        failed("software/python_exception", **KEY_ERROR), failed("software/python_exception", 1, **KEY_ERROR)
    )

    assert advice.answer == "do_not_restart"
    assert f"{JOB} attempt 0" in advice.reason


def test_another_failure_of_the_same_class_is_the_first_of_its_kind() -> None:
    other = failed("software/python_exception", failure="KeyError in validate of /srv/train/loop.py")

    assert answer(other, failed("software/python_exception", 1, **KEY_ERROR)).answer == "restart"


def test_failures_that_an_older_version_did_not_name_are_not_taken_for_the_same() -> None:
    before, again = (failed("software/python_exception", attempt, failure="") for attempt in (0, 1))

    assert answer(before, again).answer == "restart"


def test_another_class_with_the_same_words_is_another_failure() -> None:
    advice = answer(failed("software/assertion", **KEY_ERROR), failed("software/python_exception", 1, **KEY_ERROR))

    assert advice.answer == "restart"


def test_an_earlier_job_counts_where_it_is_named_as_an_attempt_at_the_same_work() -> None:
    before = failed("software/cuda_oom", jobs=[job(job_id="4700")])

    assert answer(before, failed("software/cuda_oom")).answer == "restart"
    assert answer(before, failed("software/cuda_oom"), earlier=("4700",)).answer == "do_not_restart"


def test_a_later_attempt_is_no_earlier_one() -> None:
    advice = answer(failed("software/cuda_oom", 0), failed("software/cuda_oom", 1), attempt=0)

    assert advice.answer == "restart"


def test_the_same_failure_again_in_one_attempt_is_no_restart() -> None:
    assert answer(failed("software/cuda_oom", repeats=1)).answer == "do_not_restart"


def test_an_exception_that_speaks_of_the_storage_may_go_well_next_time() -> None:
    raised = {"label": "storage/nfs_stall", **KEY_ERROR}

    advice = answer(failed("software/python_exception", **raised), failed("software/python_exception", 1, **raised))

    assert advice.answer == "restart"


def test_a_doubtful_verdict_that_may_still_change_stops_nobody() -> None:
    again = failed("software/python_exception", 1, verdict="provisional", confidence=0.4, **KEY_ERROR)

    advice = answer(failed("software/python_exception", **KEY_ERROR), again)

    assert advice.answer == "restart"
    assert "provisional" in advice.reason


# --- which attempt, and whether to wait ---------------------------------------------------------------------------


def test_the_last_attempt_is_meant_where_none_is_given() -> None:
    assert answer(failed("storage/fs_hang", 0), failed("hardware/nvme", 2)).attempt == 2


def test_an_attempt_of_which_only_its_nodes_are_known_is_the_last_one() -> None:
    told = Told(incidents=[failed("storage/fs_hang", 0)], attempts=[0, 1], nodes=NODES)

    advice = advise(told, Asked(job=JOB), NOW)

    assert (advice.answer, advice.attempt) == ("undecided", 1)


@pytest.mark.parametrize(
    ("incident", "settled"),
    [
        (failed("hardware/gpu_xid_79"), True),
        (failed("hardware/gpu_xid_79", verdict="provisional"), False),
        (failed("hardware/gpu_slow", interruption="slow"), False),
        (failed("benign/gpu_row_remap"), False),
        (failed("hardware/gpu_xid_79", 1), False),
    ],
)
def test_waiting_ends_with_a_settled_verdict_about_the_end_of_the_attempt(incident: Incident, settled: bool) -> None:
    assert is_settled(Told(incidents=[incident]), Asked(job=JOB, attempt=0)) is settled


def test_a_node_without_a_job_is_answered_for_where_no_job_is_asked() -> None:
    advice = answer(failed("hardware/gpu_xid_79", jobs=[]), job=None)

    assert (advice.answer, advice.job, left_out(advice)) == ("restart_excluding", None, ["gpu07"])


def test_a_job_that_shares_the_fault_of_another_is_answered_for_too() -> None:
    shared = failed("hardware/nvswitch_sxid", jobs=[job(0, "1"), job(3)])

    assert left_out(answer(shared)) == ["gpu07"]
