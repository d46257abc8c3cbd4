"""Whom the kernel killed, and whether the job felt it."""

from collections.abc import Mapping
from typing import Final

import msgspec

from pipeline.core.chains import Resolved
from pipeline.core.derived.scene import Changes, Scene
from pipeline.core.order import lag_ns
from schemas.records import Entity, Event

UNFELT: Final = ", unfelt"
UNHEARD: Final = ", unheard"
# The two lines of one kill are printed at once.
_SAME_KILL_NS: Final = 1_000_000_000
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


def kills(scene: Scene) -> Changes:
    """Who was killed where two lines tell of one kill, and kills that perhaps were somebody else's: nothing of the job
    tells of them, though it tells how its processes ended; or of the job nothing is read at all.
    """
    unfelt = bool(scene.named(*_REPORTS)) and not _is_felt(scene)
    strange = UNFELT if unfelt else UNHEARD if _is_unheard(scene) else ""
    ours = {(entity.node, entity.pid) for entity in scene.placement.ranks.values() if entity.pid is not None}
    for name, attribute in _RECORDS.items():
        for item in scene.named(name):
            found = _of_victim(item, scene)
            said = found.episode.attributes.get(attribute, "")
            if strange and said and (found.subject.node, found.subject.pid) not in ours and found.subject.rank is None:
                found = _with(found, {attribute: f"{said}{strange}"}, found.subject)
            if found is not item:
                yield id(item), [found]


def _of_victim(item: Resolved, scene: Scene) -> Resolved:
    """A kill as of the process that died. Kernels before 5.0 first name the process they chose, then the one they
    killed, which may be a child of it.
    """
    if "score" not in item.episode.attributes:
        return item
    first = item.episode.first
    others = [other for other in scene.named("host.oom.kill") if "kind" not in other.episode.attributes]
    others = [other for other in others if _comes_next(first, other.episode.first)]
    victim = min(others, key=lambda other: other.episode.first.offset, default=None)
    if victim is None or victim.subject.pid in (None, item.subject.pid):
        return item
    said = {name: victim.episode.attributes[name] for name in ("pid", "process")}
    return _with(item, said, victim.subject)


def _comes_next(chosen: Event, killed: Event) -> bool:
    if (chosen.source, chosen.generation) != (killed.source, killed.generation) or killed.offset < chosen.offset:
        return False
    lag = lag_ns(chosen, killed)
    return lag is None or lag[0] <= _SAME_KILL_NS


def _with(item: Resolved, said: Mapping[str, str], subject: Entity) -> Resolved:
    event = item.episode.first
    event = msgspec.structs.replace(event, attributes={**event.attributes, **said})
    return Resolved(episode=msgspec.structs.replace(item.episode, first=event), subject=subject)


def _is_unheard(scene: Scene) -> bool:
    """Whether only machines speak."""
    return not scene.placement.ranks and all(item.episode.first.source_kind == "kernel" for item in scene.items)


def _is_felt(scene: Scene) -> bool:
    if scene.named(*_BY_NAME):
        return True
    return any(
        item.episode.attributes.get(attribute) in values
        for name, (attribute, values) in _ENDS.items()
        for item in scene.named(name)
    )
