"""Memory of a GPU that a process holds which is no longer there."""

from collections.abc import Mapping
from typing import Final

import msgspec

from pipeline.core.derived.scene import Changes, Scene, as_event
from pipeline.core.groups import differ
from schemas.records import Entity

HELD: Final = "gpu.memory_held"
# What nvidia-smi prints for a process that does not exist (any more, or in this container).
_GONE: Final = "[not found]"
# Less than this share of the memory is left over from a context, not from a job.
MIN_SHARE: Final = 0.2
_MIB: Final = {"gib": 1_024.0, "mib": 1.0, "kib": 1 / 1_024, "bytes": 1 / 1_048_576}


def held(scene: Scene) -> Changes:
    """The row of a table of processes that shows who holds the memory that a rank missed on the same GPU.

    Inside a container no number of a process is known by name, that of the rank itself neither: only what the rank does
    not account for is held by others.
    """
    for oom in scene.named("cuda.oom"):
        said = oom.episode.attributes
        total, others = _mib(said, "total"), _of_others(said)
        if total is None or others is None or others < total * MIN_SHARE:
            continue
        for row in scene.named("gpu.memory_process"):
            attributes = row.episode.attributes
            used = _mib(attributes, "memory")
            is_gone = attributes.get("process", "").lower() == _GONE
            # PyTorch lists who holds memory of the GPU, by the number that the process has for the driver.
            is_named = f"Process {attributes.get('pid')} has " in oom.episode.first.body
            is_there = not _is_elsewhere(oom.subject, row.subject) and (
                is_named or _is_same_gpu(oom.subject, row.subject)
            )
            if is_gone and is_there and used is not None and used >= total * MIN_SHARE:
                event = msgspec.structs.replace(row.episode.first, name=HELD, role="cause")
                yield id(row), [as_event(row, event, _both(row.subject, oom.subject))]


def _of_others(said: Mapping[str, str]) -> float | None:
    """The used memory that is not of the process that ran out of it; None where it does not say what is its own."""
    total, free, whole = _mib(said, "total"), _mib(said, "free"), _mib(said, "process")
    parts = [part for part in (_mib(said, "allocated"), _mib(said, "unallocated")) if part is not None]
    own = whole or _mib(said, "reserved") or sum(parts)
    return None if total is None or free is None or not own else total - free - own


def _mib(said: Mapping[str, str], name: str) -> float | None:
    """An amount of memory, in whatever unit it is given."""
    given = ((said.get(f"{name}_{unit}", ""), size) for unit, size in _MIB.items())
    return next((float(text) * size for text, size in given if _is_number(text)), None)


def _is_elsewhere(a: Entity, b: Entity) -> bool:
    """Whether the two are of different nodes or GPUs, by whatever both say."""
    return any(differ(getattr(a, name), getattr(b, name)) for name in ("node", "gpu_uuid", "pci_bus_id"))


def _is_number(text: str) -> bool:
    return text.replace(".", "", 1).isdecimal() and len(text) < 12


def _is_same_gpu(a: Entity, b: Entity) -> bool:
    if a.gpu_uuid is not None and b.gpu_uuid is not None:
        return a.gpu_uuid == b.gpu_uuid
    if a.node is None or a.node != b.node:
        return False
    pairs = ((a.pci_bus_id, b.pci_bus_id), (a.gpu_index, b.gpu_index))
    return any(mine is not None and mine == other for mine, other in pairs)


def _both(row: Entity, oom: Entity) -> Entity:
    """The GPU and the rank that misses its memory. The process that holds it is no longer there."""
    known = {name: value for name, value in msgspec.structs.asdict(row).items() if value is not None and name != "pid"}
    return msgspec.structs.replace(oom, **known, pid=None)
