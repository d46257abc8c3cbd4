"""A conclusion written as the incident that people read."""

from collections.abc import Sequence

import msgspec
import pytest

from pipeline.core.incidents import MAX_STEPS
from pipeline.core.investigation import Investigation
from pipeline.core.shown_times import rfc3339
from pipeline.rules import load_rules
from schemas.records import Entity, Event, Incident
from tests.strategies import (
    JOB,
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
FAR_NS = T0 + 10_000 * SECOND


def _all(*events: Event) -> list[Incident]:
    """The incidents over the events of one job, each event sent by its own node."""
    investigation = Investigation.new(RULES, "test", JOB_KEY)
    nodes = sorted({one.node for one in events})
    found = []
    for node in nodes:
        part = [one for one in events if one.node == node]
        found += verdicts(investigation.apply(event_batch(node, 1, part), now_ns=T0))
    for node in nodes:
        found += verdicts(investigation.apply(node_progress(node, FAR_NS, ended=True), now_ns=T0))
    last = {v.verdict_id: v for v in found}
    return [incident_of(v) for v in last.values() if not v.withdrawn]


def _one(*events: Event) -> Incident:
    (incident,) = _all(*events)
    return incident


def _storm(ranks: int, per_node: int = 8) -> list[Event]:
    """Rank 3 lost its GPU on n0; all others time out ten minutes later and die; plus launchers' lines."""
    events: list[Event] = [lost_gpu("n0", bus="0000:03:00.0")]
    for rank in range(ranks):
        node, local = f"n{rank // per_node}", rank % per_node
        events.append(placed(rank, node, world=ranks, bus=f"0000:{local:02x}:00.0", pid=1_000 + rank))
        if rank == 3:
            continue
        at_ns = T0 + 600 * SECOND + rank * 1_000_000
        events.append(waited(rank, node, at_ns=at_ns, bound_ns=SECOND))
        events.append(event("nccl.watchdog.down", node=node, source=f"rank{rank}", offset=9_100, rank=rank,
                            at_ns=at_ns + 1, bound_ns=SECOND, resolution_ns=SECOND, count=2))  # fmt: skip
        events.append(event("elastic.failed", node=node, source="agent", offset=rank, at_ns=at_ns + 3 * SECOND,
                            pid=1_000 + rank, bound_ns=SECOND,
                            attributes={"exitcode": "-6", "pid": str(1_000 + rank)}))  # fmt: skip
    return events


def test_a_storm_of_512_ranks_is_a_chain_of_at_most_30_steps() -> None:
    incident = _one(*_storm(512))
    assert incident.class_ == "hardware/gpu_xid_79"
    assert 2 < len(incident.chain) <= MAX_STEPS
    assert [(c.node, c.rank) for c in incident.culprits] == [("n0", 3)]
    timeouts = [step for step in incident.chain if step.event == "nccl.watchdog.timeout"]
    assert [step.count for step in timeouts] == [511]
    assert timeouts[0].where == "511 ranks"


def test_what_the_chain_folds_is_counted() -> None:
    incident = _one(*_storm(64))
    assert incident.suppressed.by_event["nccl.watchdog.timeout"] == 62
    assert incident.suppressed.by_event["nccl.watchdog.down"] == 63 * 2 - 1
    assert incident.suppressed.count == sum(incident.suppressed.by_event.values())
    shown = sum(step.count for step in incident.chain)
    assert shown == len(incident.chain) + incident.suppressed.count


def test_a_chain_of_too_many_different_things_drops_the_least_and_counts_it() -> None:
    many = [
        event("elastic.failed", node="beta", source="agent", offset=n, at_ns=T0 + (n + 1) * SECOND, pid=800,
              attributes={"exitcode": str(n + 1), "pid": "800"})
        for n in range(60)
    ]  # fmt: skip
    incident = _one(lost_gpu("beta"), placed(1, "beta", bus="0000:5e:00.0", pid=800), *many, waited(0, "alpha"))
    assert len(incident.chain) <= MAX_STEPS
    assert incident.chain[0].role == "root"
    assert sum(step.count for step in incident.chain) + incident.suppressed.count >= 61


def _assert_explained(incident: Incident) -> None:
    explained = {edge.to: edge for edge in incident.edges}
    known = not incident.class_.startswith("unknown/")
    for step in incident.chain:
        hangs = step.role == "root" or step.step in explained or (step.step == 1 and not known)
        assert hangs, f"step {step.step} hangs on nothing"
    assert ("root" in {step.role for step in incident.chain}) == known
    assert {edge.from_ for edge in incident.edges} <= {step.step for step in incident.chain}
    assert all(edge.why for edge in incident.edges)


@pytest.mark.parametrize("ranks", [4, 64, 512])
def test_every_step_but_the_root_has_an_edge(ranks: int) -> None:
    _assert_explained(_one(*_storm(ranks)))


def test_every_step_of_an_unknown_incident_but_the_root_has_an_edge() -> None:
    incident = _one(placed(0, "alpha"), placed(1, "beta"), waited(0, "alpha"), waited(1, "beta"))
    assert incident.class_ == "unknown/collective_timeout"
    _assert_explained(incident)


def test_a_step_stands_below_what_led_to_it() -> None:
    died = event("cuda.error", node="beta", source="rank1", offset=50, rank=1, at_ns=None)
    incident = _one(lost_gpu("beta"), placed(1, "beta", bus="0000:5e:00.0"), died, waited(0, "alpha"))

    assert all(edge.from_ < edge.to for edge in incident.edges)


def test_edges_say_how_sure_the_clocks_are() -> None:
    incident = _one(lost_gpu("beta", bound_ns=SECOND), waited(0, "alpha", bound_ns=SECOND))
    assert [edge.order for edge in incident.edges] == ["certain"]
    close = _one(lost_gpu("beta", bound_ns=SECOND), waited(0, "alpha", at_ns=T0 + SECOND, bound_ns=SECOND))
    assert [edge.order for edge in close.edges] == ["concurrent"]


def test_a_fault_that_came_after_the_stall_for_certain_is_not_its_cause() -> None:
    found = _all(
        placed(0, "alpha"), placed(1, "beta"), waited(0, "alpha", at_ns=T0), lost_gpu("beta", at_ns=T0 + 3_600 * SECOND)
    )
    main = [incident for incident in found if incident.class_.startswith("unknown/")]
    assert len(main) == 1
    assert all(step.event != "gpu.xid" for step in main[0].chain)


def test_times_are_those_of_the_root_and_of_the_last_step_with_their_errors() -> None:
    incident = _one(lost_gpu("beta", bound_ns=2 * SECOND), waited(0, "alpha", bound_ns=SECOND))
    assert incident.started_at == "2026-03-04T05:06:07.000000Z"
    assert incident.started_error_ns == 2 * SECOND
    assert incident.ended_at == "2026-03-04T05:16:07.500000Z"
    assert incident.ended_error_ns == SECOND + SECOND // 2


def test_a_stamp_of_whole_seconds_is_shown_as_the_middle_of_its_bounds() -> None:
    incident = _one(lost_gpu("beta"), waited(0, "alpha", bound_ns=20_000_000))
    step = incident.chain[-1]
    assert (step.when, step.error_ns) == ("2026-03-04T05:16:07.500000Z", 520_000_000)
    assert step.lag_ns == 600 * SECOND + SECOND // 2


def test_the_stall_started_where_the_line_says_minus_its_own_duration() -> None:
    incident = _one(lost_gpu("beta"), waited(0, "alpha", at_ns=T0 + 601 * SECOND))
    assert incident.stall_started_at == "2026-03-04T05:06:08.489000Z"


def test_a_root_without_a_time_says_no_time() -> None:
    timeless = event("gpu.xid", node="beta", source="kern", bus="0000:5e:00.0", at_ns=None, attributes={"xid": "79"})
    incident = _one(timeless, waited(0, "alpha"))
    assert incident.started_at is None
    assert incident.started_error_ns is None
    assert incident.chain[0].when is None


def test_the_blast_radius_counts_ranks_nodes_and_who_reported() -> None:
    incident = _one(*_storm(64))
    assert (incident.blast_radius.ranks, incident.blast_radius.nodes) == (64, 8)
    assert incident.blast_radius.reporting_ranks == 63
    assert incident.blast_radius.first_failing_rank == 3
    assert incident.jobs[0].world_size == 64


def _saved(step: int, at_ns: int, offset: int) -> Event:
    return event("checkpoint.saved", node="alpha", source="rank0", offset=offset, rank=0, at_ns=at_ns, role="context",
                 attributes={"path": f"/data/ckpt/step_{step}.pt", "step": str(step)})  # fmt: skip


def test_recovery_names_the_last_checkpoint_before_the_fault() -> None:
    saves = [_saved(100, T0 - 900 * SECOND, 1), _saved(200, T0 - 300 * SECOND, 2), _saved(300, T0 + 60 * SECOND, 3)]
    incident = _one(lost_gpu("beta"), *saves, waited(0, "alpha"))
    assert incident.recovery.last_checkpoint == "/data/ckpt/step_200.pt"
    assert incident.recovery.checkpoint_at == "2026-03-04T05:01:07.000000Z"
    assert incident.recovery.resume_from == "checkpoint"


def test_recovery_is_empty_where_nothing_was_saved() -> None:
    incident = _one(lost_gpu("beta"), waited(0, "alpha"))
    assert (incident.recovery.last_checkpoint, incident.recovery.resume_from) == (None, None)


def test_labels_begin_with_the_roots() -> None:
    incident = _one(lost_gpu("beta"), waited(0, "alpha"))
    assert incident.xid == 79


def test_texts_name_the_culprit_and_leave_no_placeholder() -> None:
    incident = _one(*_storm(16))
    texts = (incident.explanation, incident.action.target, incident.action.why, incident.not_network_because or "")
    assert "rank 3" in incident.explanation
    assert "n0" in incident.action.target
    assert not [text for text in texts if "{" in text or "?" in text]


def test_a_culprit_of_which_little_is_known_leaves_no_question_marks() -> None:
    killed = event("host.oom.kill", node="beta", source="kern", attributes={"kind": "global"})
    incident = _one(killed, waited(0, "alpha"))
    texts = (incident.explanation, incident.action.target, incident.action.why, incident.not_network_because or "")

    assert not [text for text in texts if "?" in text]


def test_an_incident_that_names_nobody_reads_as_a_sentence() -> None:
    lost = event("disk.lost", source="dmesg", attributes={"what": "Removing after probe failure"}, role="cause")
    lost = msgspec.structs.replace(lost, node="", subject=Entity(), source_kind="kernel")
    incident = _one(lost)
    assert (incident.explanation, incident.culprits) == ("A local disk of an unnamed node was lost.", [])
    assert "?" not in incident.action.target


def test_a_sentence_that_begins_with_a_name_leaves_the_name_as_it_is_spelled() -> None:
    incident = _one(event("slurm.node_failure", node="gpu07"), waited(0, "alpha"))

    assert incident.explanation.startswith("Node gpu07 failed")


def test_nodes_that_one_line_lists_are_named_each() -> None:
    events = [event("slurm.node_failure", node="gpu[07-08]"), placed(0, "gpu06", world=2), placed(1, "gpu07", world=2)]
    incident = _one(*events, waited(0, "gpu06"))

    assert [culprit.node for culprit in incident.culprits] == ["gpu07", "gpu08"]
    assert [job.job_id for job in incident.jobs] == [JOB]


def test_a_fault_outside_the_job_says_nothing_of_how_the_job_went_on() -> None:
    steps = event("train.step", node="alpha", source="rank0", offset=5, at_ns=T0 - SECOND, role="context")
    incident = _one(placed(0, "alpha", world=1), steps, event("slurm.node_failure", node="beta"))

    assert incident.jobs == []
    assert [step.event for step in incident.chain] == ["slurm.node_failure"]


def test_an_action_on_a_part_that_no_line_names_is_one_on_its_node() -> None:
    assert _one(lost_gpu("beta", bus="0000:5e:00.0"), waited(0, "alpha")).action.target == "beta GPU 0000:5e:00.0"
    nameless = msgspec.structs.replace(lost_gpu("beta"), subject=Entity(node="beta"))
    assert _one(nameless, waited(0, "alpha")).action.target == "beta"


def test_an_action_on_what_no_line_names_has_no_target() -> None:
    lost = event("disk.lost", source="dmesg", attributes={"what": "Removing after probe failure"}, role="cause")
    incident = _one(msgspec.structs.replace(lost, node="", subject=Entity(), source_kind="kernel"))

    assert (incident.action.kind, incident.action.target) == ("drain_node", "")


def test_where_slurm_runs_the_node_the_action_has_a_line_that_names_the_incident() -> None:
    incident = _one(lost_gpu("beta"), waited(0, "alpha"), event("slurm.node_failure", node="beta", offset=9))
    reason = f"rootrank hardware/gpu_xid_79, incident {incident.incident_id}"

    assert incident.action.commands == [f"scontrol update nodename=beta state=drain reason='{reason}'"]
    assert _one(lost_gpu("beta"), waited(0, "alpha")).action.commands == []


@pytest.mark.parametrize("name", ["CPU_SrcID#1_MC#1_Chan#0_DIMM#0", "{node}{0}"])
def test_a_memory_module_is_named_as_the_line_names_it(name: str) -> None:
    edac = event("host.edac", node="beta", source="kern", attributes={"kind": "UE", "dimm": name}, role="cause")
    incident = _one(msgspec.structs.replace(edac, source_kind="kernel"), waited(0, "alpha"))

    assert (incident.class_, incident.action.target) == ("hardware/host_memory", f"beta (memory module {name})")


def test_braces_in_a_log_line_do_no_harm() -> None:
    odd = event("gpu.xid", node="{0.__class__}", source="kern", bus="0000:5e:00.0", attributes={"xid": "79"})
    incident = _one(odd, waited(0, "alpha"))
    assert "{0.__class__}" in incident.explanation


def test_the_port_and_not_the_rank_that_saw_it_is_the_culprit_of_a_link_fault() -> None:
    ranks = [placed(r, "beta", world=4, bus=f"0000:{r:02x}:00.0", pid=900 + r) for r in range(4)]
    saw = [event("nccl.ib.async", node="beta", source=f"rank{r}", offset=20, rank=r, nic="mlx5_3", pid=900 + r,
                 attributes={"event": "port error"}, role="cause") for r in range(4)]  # fmt: skip
    down = event("ib.port.down", node="beta", source="kern", offset=3, nic="mlx5_3", bus="0000:9a:00.0", role="cause")
    retry = event("nccl.ib.completion", node="alpha", source="rank9", rank=9, at_ns=T0 + 20 * SECOND,
                  attributes={"status": "12"}, role="intermediate")  # fmt: skip
    incident = _one(*ranks, *saw, down, retry, waited(9, "alpha"))
    assert incident.class_ == "network/ib_link_flap"
    (culprit,) = incident.culprits
    assert (culprit.node, culprit.nic) == ("beta", "mlx5_3")

    assert (culprit.rank, culprit.pid, culprit.gpu_index) == (None, None, None)


def test_equal_faults_on_two_nodes_that_nothing_orders_are_not_told_apart_by_a_coin() -> None:
    ranks: Sequence[Event] = [placed(0, "alpha", bus="0000:1b:00.0"), placed(1, "beta", bus="0000:5e:00.0")]
    faults = [
        lost_gpu("alpha", bus="0000:1b:00.0", bound_ns=5 * SECOND),
        lost_gpu("beta", at_ns=T0 + SECOND, bound_ns=5 * SECOND),
    ]
    found = _all(*ranks, *faults, waited(9, "gamma", bound_ns=5 * SECOND))
    named = {c.node for incident in found for c in incident.culprits}

    assert named == {"alpha", "beta"}


def test_rfc_3339_has_microseconds_and_no_rounding_up() -> None:
    assert rfc3339(T0 + 999_999_999) == "2026-03-04T05:06:07.999999Z"
    assert rfc3339(None) is None


def test_a_slow_gpu_that_ends_the_job_is_an_error_and_the_job_goes_on_from_its_checkpoint() -> None:
    hot = event("gpu.clocks_reduced", node="beta", source="smi", bus="0000:5e:00.0", role="cause",
                attributes={"clocks_hw_thermal_slowdown": "active"})  # fmt: skip
    alone, failed = _one(hot), _one(hot, waited(0, "alpha"), waited(1, "alpha"))
    assert (alone.class_, alone.severity, alone.recovery.resume_from) == ("hardware/thermal", "warning", "in_place")
    assert (failed.class_, failed.severity, failed.recovery.resume_from) == ("hardware/thermal", "error", None)
