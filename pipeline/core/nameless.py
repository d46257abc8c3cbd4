"""Kernel logs of which no line names the machine: whose they are, as far as the job they stand beside shows it."""

from collections.abc import Iterable, Mapping
from typing import Final

import msgspec

from pipeline.core.episodes import Episode
from pipeline.core.placement import PlacementMap, is_whole
from schemas.records import Entity, Event

# What syslogd prints above the line of a kernel that it shows to all users.
_BROADCAST: Final = "host.broadcast"
_KERNEL: Final = ("host.hard_lockup", "host.soft_lockup", "host.hardware_error", "host.panic", "host.mce")
# Source and generation of a file.
File = tuple[str, str]


def machines_of(episodes: Iterable[Episode], placement: PlacementMap) -> dict[File, str]:
    """The machine of each kernel log without a name, where exactly one can be it: whose lines syslogd shows on a
    terminal; where a process of the job has the number that a line gives, and its GPU if the line gives one; else, of
    one such log that tells of GPUs, the only machine on which the job is known to run.
    """
    shown: dict[File, set[str]] = {}
    pairs: dict[File, set[tuple[int, str | None]]] = {}
    tell_of_gpus: set[File] = set()
    logs: set[File] = set()
    for event in (episode.first for episode in episodes):
        if event.name == _BROADCAST and event.subject.node is not None:
            shown.setdefault((event.source, event.generation), set()).add(event.subject.node)
        if _is_of_kernel(event) and not event.node and event.subject.node is None:
            file = (event.source, event.generation)
            pairs.setdefault(file, set()).update(_process(event))
            if event.source_kind == "kernel":
                logs.add(file)
            if event.name.startswith("gpu."):
                tell_of_gpus.add(file)
    ranks = placement.ranks.values()
    found: dict[File, str] = {}
    for file, said in pairs.items():
        nodes = shown.get(file, set())
        if not nodes and file in logs:
            nodes = {r.node for r in ranks if r.node and {(r.pid, r.pci_bus_id), (r.pid, None)} & said}
        if not nodes and len(logs) == 1 and file in logs & tell_of_gpus:
            nodes = _only_machine(placement)
        if len(nodes) == 1:
            found[file] = nodes.pop()
    return found


def _is_of_kernel(event: Event) -> bool:
    """Whether the kernel says it: in its own log, or on a terminal."""
    return event.source_kind == "kernel" or event.name.startswith(_KERNEL)


def _process(event: Event) -> Iterable[tuple[int, str | None]]:
    """The process that a line is about, or that it names together with a GPU."""
    pid = event.attributes.get("pid", "")
    if event.subject.pci_bus_id is not None and pid.isdecimal() and len(pid) < 10:
        yield int(pid), event.subject.pci_bus_id
    elif event.subject.pci_bus_id is None and event.subject.pid is not None:
        yield event.subject.pid, None


def _only_machine(placement: PlacementMap) -> set[str]:
    """The one machine on which all ranks run, which are numbered from 0 without gaps up to the size of the job."""
    ranks, nodes = placement.ranks, {rank.node for rank in placement.ranks.values()}
    whole = is_whole(ranks, placement.world_size or len(ranks))
    return {node for node in nodes if node} if ranks and whole and len(nodes) == 1 else set()


def told_where(subject: Entity, event: Event, machines: Mapping[File, str], placement: PlacementMap) -> Entity:
    """The subject of a line of such a log, on its machine."""
    machine = machines.get((event.source, event.generation))
    if machine is None or subject.node is not None or not _is_of_kernel(event):
        return subject
    return placement.resolve(msgspec.structs.replace(subject, node=machine), event.aligned_time_unix_nano)
