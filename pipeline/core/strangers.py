"""Whose fault concerns a job: what goes wrong on a node where the job does not run is somebody else's story."""

from collections.abc import Callable
from math import isqrt
from typing import Final, Literal

from pipeline.core.chains import Chain, Resolved
from pipeline.core.placement import PlacementMap

# What happens to somebody's processes on another node is no fault of the node.
_OWN_RISK: Final = (
    "software/segfault", "software/illegal_memory_access", "software/illegal_instruction", "resource/cgroup_oom",
    "storage/disk_full",
)  # fmt: skip

# Lines that say where the job runs, or that a scheduler runs it.
_PLACES: Final = ("placement.", "slurm.task_exit", "slurm.step")
_SCHEDULED: Final = ("slurm.", "pod.", "placement.pod")
# Lines that are printed beside the processes of the job: by its scheduler and batch script, and by tools for GPUs.
_BESIDE: Final = ("slurm.", "pod.", "node.", "placement.", "env.", "gpu.", "dcgm.", "nvml.")
# Where systemd puts what people start from their logins; a scheduler puts its jobs elsewhere.
_LOGINS: Final = "/user.slice/"
# How processes are named that may be a rank or of one: Python's, those that torch names, and Ray's workers.
_MAY_TRAIN: Final = ("python", "pt_", "torch", "ray")


def at_home(
    chains: list[Chain], items: list[Resolved], placement: PlacementMap, *, explains: Callable[[Chain], bool]
) -> tuple[list[Chain], list[Chain]]:
    """The chains that may explain the job's failure, and the faults of nodes where it does not run.

    Where ranks are missing, the fault of a node of which nothing was read may be what silenced them; what happened to
    somebody's processes there is not. `explains`: whether the failure of the job hangs on a chain.
    """
    homes = _homes(items, placement)
    scheduled = any(item.episode.name.startswith(_SCHEDULED) for item in items)
    chains = [c for c in chains if not (_is_strange(c, homes) and _is_own_risk(c))]
    chains = [c for c in chains if not (_is_of_a_login(c) and (scheduled or _cannot_train(c)))]
    ours: list[Chain] = []
    strange: list[Chain] = []
    for chain in chains:
        (strange if _is_strange(chain, homes) else ours).append(chain)
    seen = _seen(items, placement)
    # Where nothing at home explains it, perhaps more of the job runs elsewhere than its lines show.
    if seen == "all" or (seen == "no gap" and any(explains(chain) for chain in ours)):
        return ours, strange
    return chains, []


def all_heard(items: list[Resolved], placement: PlacementMap, reporting: list[str]) -> bool:
    """Whether every node of the job has lines of it among these. `reporting`: nodes that report themselves; where no
    line says how many ranks there are, one that prints nothing of the job may have others.
    """
    speaking = [item for item in items if not item.episode.name.startswith(_BESIDE)]
    heard = {*placement.nodes(), *_printing(speaking, placement)}
    if placement.listed:
        return heard.issuperset(placement.listed)
    seen = _seen(items, placement)
    return seen == "all" or (seen == "no gap" and heard.issuperset(map(placement.name, reporting)))


def _is_own_risk(chain: Chain) -> bool:
    """Whether the kernel of a node speaks of a process there that nobody knows to be the job's."""
    is_kernel = chain.root_item.episode.first.source_kind == "kernel"
    return is_kernel and chain.rule.class_.startswith(_OWN_RISK) and chain.subject.rank is None


def _is_of_a_login(chain: Chain) -> bool:
    """Whether the kernel killed somebody's process for the limit of a login session."""
    if not chain.root_item.episode.name.startswith("host.oom."):
        return False
    return any(one.item.episode.attributes.get("memcg", "").startswith(_LOGINS) for one in chain.steps)


def _cannot_train(chain: Chain) -> bool:
    """Whether the kernel names the process that it killed, and no rank is named so."""
    names = {name for one in chain.steps if (name := one.item.episode.attributes.get("process"))}
    return chain.subject.rank is None and bool(names) and not any(name.startswith(_MAY_TRAIN) for name in names)


def _seen(items: list[Resolved], placement: PlacementMap) -> Literal["all", "no gap", "not all"]:
    """How much of the job was seen: no rank of it can be on a node of which nothing of the job was read, or none need
    be, as ranks are numbered from 0.
    """
    nodes = {rank: entity.node for rank, entity in placement.ranks.items() if entity.node}
    seen = {*nodes, *(rank for item in items for rank in item.ranks)}
    size = placement.world_size
    if placement.listed or (size is not None and (len(seen) >= size or _fills(nodes, size))):
        return "all"
    return "no gap" if size is None and seen and len(seen) > max(seen) else "not all"


def _fills(nodes: dict[int, str], size: int) -> bool:
    """Whether every node of the job is among these. Launchers give each node as many ranks, one block after the other;
    of the block sizes that fit the known ranks the smallest, which has the most nodes, is taken.
    """
    for each in _divisors(size):
        blocks = {(rank // each, node) for rank, node in nodes.items()}
        if len(blocks) == len({block for block, _ in blocks}) == len({node for _, node in blocks}):
            return len(blocks) == size // each
    return False


def _divisors(size: int) -> list[int]:
    """All numbers that divide a number, in order."""
    small = [each for each in range(1, isqrt(size) + 1) if size % each == 0]
    return sorted({*small, *(size // each for each in small)})


def _is_strange(chain: Chain, homes: set[str]) -> bool:
    """Whether it is the fault of a node on which nothing of the job was seen, where others are known to run it."""
    node = chain.subject.node
    if chain.root_item.episode.first.source_kind == "application":
        return False
    return bool(homes) and node is not None and node not in homes and chain.rule.scope in ("gpu", "nic", "node", "rank")


def _homes(items: list[Resolved], placement: PlacementMap) -> set[str]:
    """The nodes on which the job is known to run: where its ranks or pods are, and where processes of it print."""
    homes = {*placement.nodes(), *placement.listed}
    for item in items:
        event = item.episode.first
        if event.name.startswith(_PLACES) and item.subject.node is not None:
            homes.add(placement.name(item.subject.node))
    return homes | _printing(items, placement)


def _printing(items: list[Resolved], placement: PlacementMap) -> set[str]:
    """The nodes on which processes of the job print."""
    nodes: set[str] = set()
    for item in items:
        event = item.episode.first
        if event.source_kind == "application":
            members = [member.node for member in item.episode.crowd.values()] or [event.printer.node or ""]
            nodes.update(placement.name(node) for node in members if node)
    return nodes
