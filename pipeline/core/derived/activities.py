"""What went on when a stall began: the save, download or preparation that the others waited for."""

from collections.abc import Iterable, Sequence
from typing import Final

import msgspec

from pipeline.core.chains import SECOND_NS, Resolved
from pipeline.core.derived.scene import Changes, Scene, as_event, last_of, lasts, went_on
from pipeline.core.order import canonical, lag_ns, order
from schemas.records import Entity, Event

# A save that begins so long after the others began to wait was not what they waited for.
MAX_LATE_S: Final = 120
# Of two ranks the other one may have ended without a word.
MIN_RANKS: Final = 3
# Bars with one of these words count work on the data before training.
_PREPARING: Final = (
    "prepar", "preproc", "tokeniz", "filter", "map", "pack", "group", "dataset", "index", "cach", "convert", "extract",
    "generating", "loading data", "building",
)  # fmt: skip


# What a rank says of its own process that no longer gets on, not of others.
_OWN_HANG: Final = ("nccl.watchdog.stuck", "torch.abort.timeout")


def unfinished(scene: Scene) -> Changes:
    """The last save, download or preparation of each file that had not ended when the stall was reported."""
    stalls = scene.stalls
    if not stalls:
        return
    reporters: set[int | None] = {rank for stall in stalls for rank in (stall.ranks or (None,))}
    steps = lasts(scene.named("train.step"))
    finished = lasts(scene.named("checkpoint.saved"))
    for item, event in _newest(scene.named("checkpoint.started")):
        if not went_on(event, [*finished, *steps]) and _before(event, stalls) and not _late(event, stalls):
            yield id(item), [_marked(item, event, "checkpoint.unfinished", _who(item, reporters, scene))]
    alone = _only_end(scene)
    for item in scene.named("train.end"):
        rank, event = item.subject.rank, item.episode.first
        missed = rank not in reporters and len(reporters - {None}) > 1
        if rank is not None and (missed or item is alone) and _before(event, stalls):
            yield id(item), [_marked(item, event, "train.end.early", item.subject)]
    for name in ("data.download", "data.preprocess", "progress.bar"):
        kind = "data.download" if name == "data.download" else "data.preprocess"
        for item, event in _newest(item for item in scene.named(name) if name != "progress.bar" or _prepares(item)):
            if item.subject.rank in reporters and item.subject.rank is not None:
                continue
            ended_late = _ended(event) and _after(event, stalls)
            going_on = not _ended(event) and _before(event, stalls)
            if (going_on or ended_late) and not went_on(event, steps):
                yield id(item), [_marked(item, event, f"{kind}.unfinished", _who(item, reporters, scene))]


def _only_end(scene: Scene) -> Resolved | None:
    """The end that one rank of several tells of itself, where each rank would: its line names the rank, and it is not
    rank 0, which may speak for all.
    """
    ends = scene.named("train.end")
    if len(ends) != 1 or (scene.placement.world_size or 0) < MIN_RANKS:
        return None
    said = ends[0].episode.attributes.get("rank")
    return ends[0] if said not in (None, "", "0") else None


def _newest(items: Iterable[Resolved]) -> list[tuple[Resolved, Event]]:
    """Of each file the item whose last line is the last one."""
    newest: dict[tuple[str, str], tuple[Resolved, Event]] = {}
    for item in items:
        event = last_of(item)
        key = (event.node, event.source)
        if key not in newest or canonical(newest[key][1]) < canonical(event):
            newest[key] = (item, event)
    return list(newest.values())


def _before(event: Event, stalls: Sequence[Resolved]) -> bool:
    return all(order(stall.episode.first, event) != "before" for stall in stalls)


def _after(event: Event, stalls: Sequence[Resolved]) -> bool:
    return any(order(stall.episode.first, event) == "before" for stall in stalls)


def _late(event: Event, stalls: Sequence[Resolved]) -> bool:
    """Whether it began when all that state how long they had waited had been waiting for long."""
    begun = []
    for stall in stalls:
        ran_ms = stall.episode.attributes.get("ran_for_ms", "")
        lag = lag_ns(event, stall.episode.first)
        if lag is not None and ran_ms.isdecimal() and len(ran_ms) < 10:
            begun.append(lag[1] + MAX_LATE_S * SECOND_NS < int(ran_ms) * 1_000_000)
    return bool(begun) and all(begun)


def _prepares(item: Resolved) -> bool:
    what = item.episode.attributes.get("what", "").lower()
    return any(word in what for word in _PREPARING)


def _ended(event: Event) -> bool:
    attributes = event.attributes
    done = attributes.get("done")
    return attributes.get("state") == "downloaded" or (done is not None and done == attributes.get("total"))


def _who(item: Resolved, reporters: set[int | None], scene: Scene) -> Entity:
    """The rank that the line is of, unless it waits itself; else the one that fell silent."""
    if item.subject.rank is not None and item.subject.rank not in reporters:
        return item.subject
    if scene.silent is not None:
        return scene.rank(scene.silent)
    stuck = {rank for one in scene.named(*_OWN_HANG) for rank in (one.ranks or (None,))}
    if len(stuck) == 1 and reporters == stuck and item.subject.rank is None and None not in stuck:
        return scene.named(*_OWN_HANG)[0].subject
    if item.subject.rank is not None or _all_wait(item.episode.first, reporters, scene):
        return Entity()
    return Entity(node=item.subject.node)


def _all_wait(event: Event, reporters: set[int | None], scene: Scene) -> bool:
    """Whether every rank that prints into the file of a line waits itself, in a job that has others."""
    lines = (line for item in scene.items for line in item.episode.crowd.values() or [item.episode.first])
    mine = (line for line in lines if (line.writer, line.source) == (event.writer, event.source))
    there = {line.subject.rank if isinstance(line, Event) else line.rank for line in mine} - {None}
    return bool(there) and there <= reporters and scene.placement.is_spread


def _marked(item: Resolved, event: Event, name: str, subject: Entity) -> Resolved:
    return as_event(item, msgspec.structs.replace(event, name=name, role="intermediate"), subject)
