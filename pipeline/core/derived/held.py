"""Memory of a GPU that a process holds which is no longer there."""

from typing import Final

import msgspec

from pipeline.core.derived.scene import Changes, Scene, as_event
from schemas.records import Entity

HELD: Final = "gpu.memory_held"
# What nvidia-smi prints for a process that does not exist (any more, or in this container).
_GONE: Final = "[not found]"
# Less than this share of the memory is left over from a context, not from a job.
MIN_SHARE: Final = 0.2
# Where the line about the memory that ran out does not say how much there is.
MIN_MIB: Final = 8_192


def held(scene: Scene) -> Changes:
    """The row of a table of processes that shows who holds the memory that a rank missed on the same GPU."""
    for oom in scene.named("cuda.oom"):
        total = oom.episode.attributes.get("total_gib", "")
        least = float(total) * 1024 * MIN_SHARE if _is_number(total) else MIN_MIB
        for row in scene.named("gpu.memory_process"):
            attributes = row.episode.attributes
            used = attributes.get("memory_mib", "")
            is_gone = attributes.get("process", "").lower() == _GONE
            # PyTorch lists who holds memory of the GPU, by the number that the process has for the driver.
            is_named = f"Process {attributes.get('pid')} has " in oom.episode.first.body
            is_there = is_named or _is_same_gpu(oom.subject, row.subject)
            if is_gone and is_there and _is_number(used) and float(used) >= least:
                event = msgspec.structs.replace(row.episode.first, name=HELD, role="cause")
                yield id(row), [as_event(row, event, _both(row.subject, oom.subject))]


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
