"""Lines to paste: only where the logs show what runs the node, and with no name that could be something else."""

from collections.abc import Sequence

import msgspec
import pytest

from pipeline.core.episodes import of_event
from pipeline.core.operator_lines import operator_lines
from schemas.records import Culprit, Event
from schemas.vocabulary import ActionKind, Run
from tests.strategies import event

UUID = "GPU-6f0d2c1e-77aa-4b1e-9d0c-51b2f3a4c5d6"
SLURM = event("slurm.step_task", node="beta")
DESCRIBED = event("pod.where", attributes={"node": "beta"})
DRAIN = "scontrol update nodename=beta state=drain reason='it is lost'"


def lines(
    *said: Event, kind: ActionKind = "drain_node", culprits: Sequence[Culprit] = (Culprit(node="beta"),),
    run: Run = "live",
) -> list[str]:  # fmt: skip
    blamed = [msgspec.structs.replace(one, confidence=one.confidence or 0.95) for one in culprits]
    return operator_lines(kind, blamed, [of_event(one) for one in said], run=run, reason="it is lost")


def test_where_slurm_speaks_the_node_is_drained_with_a_reason() -> None:
    assert lines(SLURM) == [DRAIN]
    both = lines(SLURM, culprits=[Culprit(node="gx07"), Culprit(node="gx08"), Culprit(node="gx07")])
    assert both == ["scontrol update nodename='gx[07-08]' state=drain reason='it is lost'"]


def test_a_suspect_is_not_taken_out_of_service() -> None:
    assert lines(SLURM, culprits=[Culprit(node="beta", confidence=0.7)]) == []


def test_where_kubernetes_names_the_node_it_is_cordoned() -> None:
    assert lines(DESCRIBED) == ["kubectl cordon beta"]


@pytest.mark.parametrize(
    "said",
    [[], [event("gpu.xid")], [event("pod.where", attributes={"node": "other"})], [SLURM, DESCRIBED]],
    ids=["nobody speaks", "the kernel speaks", "of another node", "both speak"],
)
def test_where_nothing_shows_what_runs_the_node_nothing_is_to_paste(said: list[Event]) -> None:
    assert lines(*said) == []


@pytest.mark.parametrize("kind", ["none", "restart_in_place", "fix_code", "check_network", "contact_support"])
def test_what_takes_no_node_out_of_service_has_no_line(kind: ActionKind) -> None:
    assert lines(SLURM, kind=kind) == []


def test_a_gpu_is_reset_by_its_uuid_or_bus_address_once_its_node_is_out() -> None:
    by_uuid = Culprit(node="beta", gpu_uuid=UUID, pci_bus_id="0000:5e:00.0")
    on = "  # on beta, when nothing uses the GPU"

    assert lines(SLURM, kind="reset_gpu", culprits=[by_uuid]) == [DRAIN, f"nvidia-smi -r -i {UUID}{on}"]
    by_bus = msgspec.structs.replace(by_uuid, gpu_uuid=None)
    assert lines(SLURM, kind="reset_gpu", culprits=[by_bus]) == [DRAIN, f"nvidia-smi -r -i 0000:5e:00.0{on}"]
    assert lines(SLURM, kind="reset_gpu") == [DRAIN]


@pytest.mark.parametrize("run", ["live", "post_mortem", "replay"])
@pytest.mark.parametrize("node", ["drill-07", "n1.invalid"])
def test_nodes_of_a_drill_are_nobodys_to_drain(node: str, run: Run) -> None:
    assert lines(SLURM, DESCRIBED, culprits=[Culprit(node=node)], run=run) == []
    assert lines(SLURM, run="drill") == []


@pytest.mark.parametrize(
    "name",
    [
        "beta;reboot",
        "$(reboot)",
        "`reboot`",
        "be ta",
        "-h",
        "beta\nreboot",
        "beta'",
        "ALL[0-9]",
        "10.0.0.7",
        "",
        "a" * 70,
    ],
)
def test_a_name_made_up_in_a_log_makes_no_command(name: str) -> None:
    described = event("pod.where", attributes={"node": name})

    assert lines(SLURM, culprits=[Culprit(node=name)]) == []
    assert lines(described, culprits=[Culprit(node=name)]) == []
    gpu = Culprit(node="beta", gpu_uuid=f"GPU-{name}", pci_bus_id=name)
    assert lines(SLURM, kind="reset_gpu", culprits=[gpu]) == [DRAIN]


@pytest.mark.parametrize("name", ["ALL", "all", "localhost"])
def test_a_word_that_slurm_takes_for_more_than_one_node_makes_no_command(name: str) -> None:
    assert lines(SLURM, culprits=[Culprit(node=name)]) == []
