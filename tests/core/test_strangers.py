"""What goes wrong where the job does not run is not its cause."""

from collections.abc import Sequence

import msgspec
import pytest

from pipeline.core.chains import Resolved
from pipeline.core.episodes import of_events
from pipeline.core.facts import Facts
from pipeline.core.placement import PlacementMap
from pipeline.core.strangers import _divisors, all_heard
from schemas.records import Event, Incident
from tests.core.concluding import concluded
from tests.strategies import (
    event,
    lost_gpu,
    placed,
    waited,
)

LOST = msgspec.structs.replace(lost_gpu("node-x"), source_kind="kernel")


def _ranks(nodes: str, world: int) -> list[Event]:
    """Ranks that are known to run and that give up waiting; `nodes`: a letter for each rank, `.` for an unknown one."""
    known = [(rank, f"node-{name}") for rank, name in enumerate(nodes) if name != "."]
    return [one for rank, node in known for one in (placed(rank, node, world=world), waited(rank, node))]


def _nodes_of(incident: Incident) -> list[str | None]:
    return [culprit.node for culprit in incident.culprits]


@pytest.mark.parametrize(
    ("nodes", "may_be_home"),
    [
        ("aabb", False),  # all ranks are known
        ("aab.", False),  # two each: the last one is on b
        ("aa..", True),  # one node of two is missing
        ("a.bb", False),  # two each
        ("a.b.", True),  # one or two each
        ("ab.b", True),  # no blocks: nobody knows where the other one is
        ("a..ab...", False),
        ("aa......", True),  # 2, 4 or 8 each
    ],
)
def test_a_node_may_run_ranks_only_where_some_block_of_ranks_has_no_node(nodes: str, may_be_home: bool) -> None:
    found = _nodes_of(concluded(*_ranks(nodes, len(nodes)), LOST))
    assert ("node-x" in found) is may_be_home


def test_only_block_sizes_that_divide_the_job_are_tried() -> None:
    for size in range(1, 200):
        assert _divisors(size) == [each for each in range(1, size + 1) if size % each == 0]
    # Not number by number, which would never end.
    assert len(_divisors(10**12)) == 169


def test_where_the_job_lists_its_nodes_no_other_is_looked_at() -> None:
    said = event("env.variable", node="node-a", source="slurm", offset=1, at_ns=None, role="context",
                 attributes={"name": "SLURM_JOB_NODELIST", "value": "node-a,node-c"})  # fmt: skip
    assert "node-x" in _nodes_of(concluded(*_ranks("aa..", 4), LOST))
    assert "node-x" not in _nodes_of(concluded(*_ranks("aa..", 4), LOST, said))


def _kill(memcg: str, process: str = "python3") -> Sequence[Event]:
    said = {"constraint": "memcg", "memcg": memcg, "process": process, "pid": "4410"}
    killed = [
        event("host.oom.constraint", node="node-b", source="kern", offset=5, role="cause", pid=4410, attributes=said),
        event("host.oom.kill", node="node-b", source="kern", offset=6, role="cause", pid=4410,
              attributes={"kind": "memcg", "process": process}),
    ]  # fmt: skip
    return [msgspec.structs.replace(each, source_kind="kernel") for each in killed]


@pytest.mark.parametrize(
    ("memcg", "scheduled", "blamed"),
    [
        ("/user.slice/user-1207.slice/session-9.scope", True, False),
        ("/user.slice/user-1207.slice/session-9.scope", False, True),
        ("/system.slice/slurmstepd.scope/job_4711/step_0", True, True),
    ],
)
def test_a_kill_for_the_limit_of_a_login_is_not_of_a_job_that_a_scheduler_runs(
    memcg: str, scheduled: bool, blamed: bool
) -> None:
    stopped = event("slurm.step_aborted", node="node-a", source="slurm", offset=3, at_ns=None)
    incident = concluded(*_ranks("ab.", 3), *_kill(memcg), *([stopped] if scheduled else []))
    assert ("node-b" in _nodes_of(incident)) is blamed


@pytest.mark.parametrize(
    ("process", "memcg", "blamed"),
    [
        ("jupyter-lab", "/user.slice/user-1207.slice/session-9.scope", False),
        ("pt_data_worker", "/user.slice/user-1207.slice/session-9.scope", True),
        ("jupyter-lab", "/system.slice/train.service", True),
    ],
)
def test_a_program_of_a_login_that_can_be_no_rank_is_not_of_a_job(process: str, memcg: str, blamed: bool) -> None:
    incident = concluded(*_ranks("ab.", 3), *_kill(memcg, process))
    assert ("node-b" in _nodes_of(incident)) is blamed


def test_a_step_cancelled_for_a_failed_node_names_its_first_node_not_the_failed_one() -> None:
    cancelled = event("slurm.cancelled", node="node-a", source="slurm", offset=3, role="cause",
                      attributes={"reason": "NODE FAILURE"})  # fmt: skip
    failed = event("slurm.node_failure", node="node-b", source="ctld", role="cause", attributes={"how": ""})
    alone = concluded(*_ranks("a.", 2), cancelled)
    assert (alone.class_, alone.culprits) == ("infra/node_failure", [])
    assert alone.why_unknown
    named = concluded(*_ranks("a.", 2), cancelled, failed)
    assert (named.class_, _nodes_of(named)) == ("infra/node_failure", ["node-b"])


# --- whether all of the job was read ------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("ranks", "world", "reporting", "heard"),
    [
        ("aabb", 4, ["node-a", "node-b", "node-x"], True),  # node-x has no rank
        ("aa..", 4, ["node-a"], False),
        ("aa", None, ["node-a"], True),
        ("aa", None, ["node-a", "node-x"], False),  # nobody knows whether node-x has ranks
        (".a", None, ["node-a"], False),
        ("a", None, ["node-a", "node-z"], False),  # tools and the scheduler speak of node-z, no process of the job does
    ],
)
def test_a_job_was_heard_where_no_node_may_have_ranks_of_which_nothing_was_read(
    ranks: str, world: int | None, reporting: list[str], heard: bool
) -> None:
    lines = [
        event("train.step", node=f"node-{name}", source=f"rank{rank}", rank=rank, role="context")
        for rank, name in enumerate(ranks) if name != "."
    ]  # fmt: skip
    if world:
        lines.append(event("nccl.init", node="node-a", rank=0, role="context", source="rank0", offset=3,
                           attributes={"rank": "0", "nranks": str(world)}))  # fmt: skip
    beside = ("gpu.listed", "slurm.step_aborted", "env.variable")
    lines += [event(name, node="node-z", source=name, role="context") for name in beside if "node-z" in reporting]
    lines = [msgspec.structs.replace(line, source_kind="application") for line in lines]
    facts = Facts()
    for line in lines:
        facts.learn(line)
    placement = PlacementMap(facts)
    items = [Resolved(episode=one, subject=placement.subject(one.first)) for one in of_events(lines, {})]
    assert all_heard(items, placement, reporting) is heard
