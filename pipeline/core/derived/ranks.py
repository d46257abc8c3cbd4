"""Whom reports name, and who is out of step with the others."""

from collections import Counter, defaultdict
from collections.abc import Iterator
from typing import Final

import msgspec

from pipeline.core.chains import Resolved
from pipeline.core.derived.scene import Change, Changes, Scene, as_event
from pipeline.core.episodes import process_group
from pipeline.core.order import Place, canonical
from schemas.records import Entity

# Reports that name ranks which are missing or behind. Of more than so many nobody is the odd one.
_NAMING: Final = {
    "collective.desync": ("finished collective", "never joined any collectives"),
    "torch.monitored_barrier": ("failed",),
    "checkpoint.write_failed": (),
}
# Lines of a coordinator, or of another process, about one that is gone: they say its number and not its node.
UNHEARD: Final = "jax.task_lost"
LISTED: Final = "jax.task_named"
_GONE: Final = (UNHEARD, LISTED)
MAX_NAMED: Final = 4
# Of a list of all who did not come to a barrier so many are named.
MAX_LISTED: Final = 64
# The counts of one process group lie near each other; those of two groups need not.
MAX_GAP: Final = 256
# Operations that have one size on all ranks of a group.
_OF_ONE_SIZE: Final = frozenset(("ALLREDUCE", "BROADCAST", "REDUCE", "_ALLGATHER_BASE", "_REDUCE_SCATTER_BASE"))
# Lines about a collective that does not fit: the end that notices is not the end that is wrong.
_NOTICED: Final = ("gloo.mismatch", "nccl.mismatch")
# Lines of somebody who waits for others to join, unless they name who does not.
_ABSENT: Final = ("tcpstore.join_timeout", "elastic.rendezvous.failed", "slurm.launch_failed")


# A place in time of a member of a crowd.
Start = tuple[int, int, str, str, int]


def named(scene: Scene) -> Changes:
    """Reports that name ranks are of these ranks, not of who reports."""
    for name, kinds in _NAMING.items():
        for item in scene.named(name):
            attributes = item.episode.attributes
            ranks = numbers(attributes.get("ranks", ""))
            if ranks and len(ranks) <= MAX_NAMED and (not kinds or attributes.get("what") in kinds):
                yield id(item), [Resolved(episode=item.episode, subject=scene.rank(rank)) for rank in ranks]
    for item in scene.named(*_GONE):
        if item.subject.rank is not None and item.subject.rank != item.episode.first.printer.rank:
            yield id(item), [Resolved(episode=item.episode, subject=scene.rank(item.subject.rank))]
    for item in scene.named("jax.barrier"):
        barrier = item.episode.attributes.get("id")
        listed = {one.subject.rank for one in scene.named(LISTED) if one.episode.attributes.get("id") == barrier}
        missing = sorted(rank for rank in listed if rank is not None)[:MAX_LISTED]
        if barrier and missing:
            yield id(item), [Resolved(episode=item.episode, subject=scene.rank(rank)) for rank in missing]
    for item in scene.named("python.exception"):
        exhausted = numbers(item.episode.attributes.get("exhausted_rank", ""))
        if exhausted:
            yield id(item), [Resolved(episode=item.episode, subject=scene.rank(exhausted[0]))]


def odd_of_statements(scene: Scene) -> Changes:
    """Of lines that set two ranks against each other, the rank that is in all of them; of one line nobody."""
    items = scene.named("collective.mismatch")
    pairs = set()
    for item in items:
        both = (item.episode.attributes.get("rank", ""), item.episode.attributes.get("other_rank", ""))
        if all(one.isdecimal() for one in both):
            pairs.add(frozenset(both))
    shared = frozenset.intersection(*pairs) if pairs else frozenset()
    odd = scene.rank(int(next(iter(shared)))) if len(pairs) > 1 and len(shared) == 1 else None
    for item in items:
        yield id(item), [Resolved(episode=item.episode, subject=odd or Entity())]


def odd_of_waiters(scene: Scene) -> Changes:
    """The one rank of a process group that waits in another collective than all others of it, which agree.

    Not where it is known who fell silent: ranks that wait for it in several places are no mismatch.
    """
    if scene.silent is not None:
        return
    groups: dict[str, list[Resolved]] = defaultdict(list)
    for item in scene.named("nccl.watchdog.timeout"):
        if item.episode.attributes.get("seq", "").isdecimal():
            groups[process_group(item.episode.first)].append(item)
    alone = len({process_group(item.episode.first) for item in scene.items} - {""}) < 2
    for items in groups.values():
        yield from _odd_of(scene, items, alone=alone)


def _odd_of(scene: Scene, items: list[Resolved], *, alone: bool) -> Changes:
    """`alone`: no line tells of another process group, so that all these ranks are of one."""
    first: dict[int, tuple[Place | Start, Resolved]] = {}
    for item in items:
        for rank, begun in _begun(item):
            if rank not in first or begun < first[rank][0]:
                first[rank] = begun, item
    waits = {rank: _signature(item) for rank, (_, item) in first.items()}
    counts = Counter(waits.values())
    if len(counts) == 2 and len(waits) >= 3 and min(counts.values()) == 1:
        ((common, _), (single, _)) = counts.most_common()
        if abs(int(common[0]) - int(single[0])) <= MAX_GAP:
            (rank,) = (rank for rank, wait in waits.items() if wait == single)
            yield _mismatch(first[rank][1], single, common, scene.rank(rank))
            return
    pairs = ((one, other) for one in sorted(counts) for other in sorted(counts) if one < other)
    fault = next((pair for pair in pairs if _is_mismatch(*pair)), None) if alone else None
    if fault is not None:
        rank = min(rank for rank, wait in waits.items() if wait == fault[0])
        yield _mismatch(first[rank][1], *fault, Entity())


def _is_mismatch(one: tuple[str, str, str], other: tuple[str, str, str]) -> bool:
    """Whether two ranks of a group called different collectives under one number."""
    seq, op, numel = one
    if seq != other[0] or not (op and other[1]):
        return False
    return op != other[1] or (op in _OF_ONE_SIZE and numel != other[2] and bool(numel and other[2]))


def _mismatch(item: Resolved, one: tuple[str, str, str], other: tuple[str, str, str], subject: Entity) -> Change:
    """What a rank waits in, as a mismatch: of `subject`, or of nobody who is known."""
    said = {"differ": f"{_call(one)}, the others {_call(other)}"}
    if subject.rank is not None:
        said["rank"] = str(subject.rank)
    event = msgspec.structs.replace(
        item.episode.first, name="collective.mismatch", role="cause", label="software/collective_mismatch",
        attributes={**item.episode.first.attributes, **said},
    )  # fmt: skip
    found = as_event(item, event, subject)
    return id(item), [found] if len(item.ranks) == 1 else [item, found]


def _call(wait: tuple[str, str, str]) -> str:
    return f"{wait[1]} number {wait[0]}" + (f" of {wait[2]} elements" if wait[2] else "")


def stuck(scene: Scene) -> Changes:
    """Where the watchdogs of several ranks stand still, the first to print it is not known to be the first."""
    items = scene.named("nccl.watchdog.stuck")
    if len({rank for item in items for rank in item.ranks}) > 1:
        for item in items:
            yield id(item), [Resolved(episode=item.episode, subject=Entity(), crowd_ranks=item.ranks)]


def _begun(item: Resolved) -> Iterator[tuple[int, Place | Start]]:
    """Each rank of an item, and the place in time of its line."""
    if not item.episode.crowd:
        return ((rank, canonical(item.episode.first)) for rank in item.ranks)
    return ((m.rank, m.place) for m in item.episode.crowd.values() if m.rank is not None)


def _signature(item: Resolved) -> tuple[str, str, str]:
    attributes = item.episode.attributes
    return attributes["seq"], attributes.get("op", ""), attributes.get("numel_in", "")


def noticed(scene: Scene) -> Changes:
    """Who notices that a collective does not fit is not who is wrong."""
    for item in scene.named(*_NOTICED):
        yield id(item), [Resolved(episode=item.episode, subject=Entity())]
    for item in scene.named(*_ABSENT):
        printer, subject = item.episode.first.printer, item.subject
        if subject.node is None or subject.node == printer.node or subject.rank is not None:
            yield id(item), [Resolved(episode=item.episode, subject=Entity())]


def numbers(text: str) -> list[int]:
    """Ranks of a list, "[3, 4]" or "3, 4"."""
    parts = [part.strip() for part in text.strip("[] ").split(",")]
    return sorted({int(part) for part in parts if part.isdecimal() and len(part) < 8})
