"""Where the cgroups of a controller are, in the old hierarchies and in the one of version 2."""

from collections.abc import Iterator
from dataclasses import dataclass

from shippers.probes.thresholds import thresholds
from shippers.probes.tree import Tree

ROOT = "/sys/fs/cgroup"


@dataclass(frozen=True, slots=True, kw_only=True)
class Hierarchy:
    """One tree of cgroups. `base` is its folder."""

    base: str
    is_v2: bool


def hierarchy(tree: Tree, controller: str) -> Hierarchy | None:
    """The tree that the controller (`cpu`, `memory`) is in; None where there is none."""
    if controller in (tree.text(f"{ROOT}/cgroup.controllers") or "").split():
        return Hierarchy(base=ROOT, is_v2=True)
    for name in tree.names(ROOT):
        if controller in name.split(",") and tree.is_there(f"{ROOT}/{name}/cgroup.procs"):
            return Hierarchy(base=f"{ROOT}/{name}", is_v2=False)
    if controller in (tree.text(f"{ROOT}/unified/cgroup.controllers") or "").split():
        return Hierarchy(base=f"{ROOT}/unified", is_v2=True)
    return None


def below(tree: Tree, where: Hierarchy) -> Iterator[str]:
    """The cgroups, parents first, as paths within the tree (the root is empty); a bounded number of them."""
    limits = thresholds().limits
    left = int(limits["cgroups"])
    waiting = [("", 0)]
    while waiting and left > 0:
        group, depth = waiting.pop(0)
        left -= 1
        yield group
        if depth < limits["cgroup_depth"]:
            waiting.extend((f"{group}/{name}", depth + 1) for name in tree.folders(where.base + group))


def a_process(tree: Tree, where: Hierarchy, group: str) -> str | None:
    """The pid of a process of the cgroup itself, where it has one."""
    first, _, _ = (tree.text(f"{where.base}{group}/cgroup.procs") or "").partition("\n")
    return first if first.isdecimal() else None
