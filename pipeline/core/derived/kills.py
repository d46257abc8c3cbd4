"""Whether the job felt what the kernel killed."""

from collections.abc import Mapping
from typing import Final

import msgspec

from pipeline.core.chains import Resolved
from pipeline.core.derived.scene import Changes, Scene

UNFELT: Final = ", unfelt"
# The attribute of a kernel's record that says why it killed.
_RECORDS: Final[Mapping[str, str]] = {"host.oom.kill": "kind", "host.oom.constraint": "constraint"}
# Ends that a process killed by the kernel leaves behind, by event and attribute.
_ENDS: Final[Mapping[str, tuple[str, tuple[str, ...]]]] = {
    "elastic.failed": ("exitcode", ("-9", "137")),
    "elastic.rank_failed": ("exitcode", ("-9", "137")),
    "launcher.exit": ("exitcode", ("-9", "137")),
    "launcher.rank_failed": ("signal", ("9",)),
    "container.exited": ("exitcode", ("137",)),
    "slurm.task_exit": ("how", ("Killed", "Out Of Memory")),
    "service.exited": ("name", ("KILL",)),
}
_BY_NAME: Final = ("dataloader.killed", "slurm.oom", "pod.oom_killed", "container.oom", "shell.killed", "ray.oom")
# What shows that processes of the job ended, so that a kill would have shown too.
_REPORTS: Final = ("elastic.failed", "elastic.rank_failed", "slurm.task_exit", "launcher.rank_failed", "launcher.exit")


def unfelt(scene: Scene) -> Changes:
    """Kills that nothing of the job tells of, though it tells how its processes ended: perhaps somebody else's."""
    if not scene.named(*_REPORTS) or _is_felt(scene):
        return
    ours = {(entity.node, entity.pid) for entity in scene.placement.ranks.values() if entity.pid is not None}
    for name, attribute in _RECORDS.items():
        for item in scene.named(name):
            said = item.episode.attributes.get(attribute, "")
            if said and (item.subject.node, item.subject.pid) not in ours and item.subject.rank is None:
                event = item.episode.first
                event = msgspec.structs.replace(event, attributes={**event.attributes, attribute: f"{said}{UNFELT}"})
                episode = msgspec.structs.replace(item.episode, first=event)
                yield id(item), [Resolved(episode=episode, subject=item.subject)]


def _is_felt(scene: Scene) -> bool:
    if scene.named(*_BY_NAME):
        return True
    return any(
        item.episode.attributes.get(attribute) in values
        for name, (attribute, values) in _ENDS.items()
        for item in scene.named(name)
    )
