"""Evidence that no line gives alone: whom a report names, who is out of step, what went on when a stall began.

Each finding is one of the items with another subject, another name or one more attribute: the line stays its evidence.
It takes the place of the item, so that a line stands on a chain once. Nothing here depends on the order of the items.
"""

from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator, Sequence
from typing import Final

import msgspec

from pipeline.core.chains import SECOND_NS, Resolved
from pipeline.core.order import Place, canonical, lag_ns, order
from pipeline.core.placement import PlacementMap
from schemas.records import Entity, Event

# Names and attributes that no signal gives.
EVENTS: Final = frozenset(
    ("checkpoint.unfinished", "data.download.unfinished", "data.preprocess.unfinished", "train.end.early")
)
ATTRIBUTES: Final = {"host.hung_task": frozenset(("blocked_in",)), "collective.mismatch": frozenset(("differ",))}

# Reports that name ranks which are missing or behind. Of more than so many nobody is the odd one.
_NAMING: Final = {
    "collective.desync": ("finished collective", "never joined any collectives"),
    "torch.monitored_barrier": ("failed",),
    "checkpoint.write_failed": (),
}
MAX_NAMED: Final = 4
# The counts of one process group lie near each other; those of two groups need not.
MAX_GAP: Final = 256
# Lines about a collective that does not fit: the end that notices is not the end that is wrong.
_NOTICED: Final = ("gloo.mismatch", "nccl.mismatch")
# A save that begins so long after the others began to wait was not what they waited for.
MAX_LATE_S: Final = 120
# How long after the line about a hung task its stack is printed.
STACK_S: Final = 60
# Bars with one of these words count work on the data before training.
_PREPARING: Final = (
    "prepar", "preproc", "tokeniz", "filter", "map", "pack", "group", "dataset", "index", "cach", "convert", "extract",
    "generating", "loading data", "building",
)  # fmt: skip
_BLOCKED_IN: Final = {
    "storage/nfs_stall": "nfs", "storage/lustre_evict": "lustre", "storage/fs_stall": "file system",
}  # fmt: skip


def derive(
    items: list[Resolved], stalls: Sequence[Resolved], placement: PlacementMap, silent: int | None
) -> list[Resolved]:
    """The items with what follows from several of them. `silent`: the one rank that did not report the stall."""
    by_name: dict[str, list[Resolved]] = defaultdict(list)
    for item in items:
        by_name[item.episode.name].append(item)
    changed: dict[int, list[Resolved]] = {}
    changed.update(_named(by_name, placement))
    changed.update(_odd_of_statements(by_name["collective.mismatch"], placement))
    noticed = [item for name in _NOTICED for item in by_name[name]]
    changed.update((id(item), [Resolved(episode=item.episode, subject=Entity())]) for item in noticed)
    changed.update(_over(by_name["nfs.stall"], by_name["nfs.ok"], stalls))
    changed.update(_odd_of_waiters(by_name["nccl.watchdog.timeout"]))
    changed.update(_hung(by_name["host.hung_task"], by_name["host.stack"]))
    if stalls:
        changed.update(_unfinished(by_name, stalls, placement, silent))
    return [one for item in items for one in changed.get(id(item), [item])]


def unheard_of(reporters: set[int | None]) -> list[int]:
    """Rank 0 where each of ranks 1 to n reports a stall and it does not: a job of any size has a rank 0."""
    wanted = set(range(1, len(reporters) + 1))
    return [0] if len(reporters) > 1 and reporters == wanted else []


# --- whom reports name --------------------------------------------------------------------------------------------


def _named(by_name: dict[str, list[Resolved]], placement: PlacementMap) -> Iterator[tuple[int, list[Resolved]]]:
    for name, kinds in _NAMING.items():
        for item in by_name[name]:
            attributes = item.episode.attributes
            ranks = _numbers(attributes.get("ranks", ""))
            if ranks and len(ranks) <= MAX_NAMED and (not kinds or attributes.get("what") in kinds):
                yield id(item), [Resolved(episode=item.episode, subject=_rank(rank, placement)) for rank in ranks]
    for item in by_name["python.exception"]:
        exhausted = _numbers(item.episode.attributes.get("exhausted_rank", ""))
        if exhausted:
            yield id(item), [Resolved(episode=item.episode, subject=_rank(exhausted[0], placement))]


def _odd_of_statements(items: list[Resolved], placement: PlacementMap) -> Iterator[tuple[int, list[Resolved]]]:
    """Of lines that set two ranks against each other, the rank that is in all of them; of one line nobody."""
    pairs = set()
    for item in items:
        both = (item.episode.attributes.get("rank", ""), item.episode.attributes.get("other_rank", ""))
        if all(one.isdecimal() for one in both):
            pairs.add(frozenset(both))
    shared = frozenset.intersection(*pairs) if pairs else frozenset()
    odd = _rank(int(next(iter(shared))), placement) if len(pairs) > 1 and len(shared) == 1 else None
    for item in items:
        yield id(item), [Resolved(episode=item.episode, subject=odd or Entity())]


def _odd_of_waiters(items: list[Resolved]) -> Iterator[tuple[int, list[Resolved]]]:
    """The one rank that waits in another collective than all others, which agree."""
    first: dict[int, Resolved] = {}
    for item in sorted(items, key=_place):
        if item.subject.rank is not None and item.episode.attributes.get("seq", "").isdecimal():
            first.setdefault(item.subject.rank, item)
    waits = {rank: _signature(item) for rank, item in first.items()}
    counts = Counter(waits.values())
    if len(counts) != 2 or len(waits) < 3 or min(counts.values()) != 1:
        return
    ((common, _), (single, _)) = counts.most_common()
    if abs(int(common[0]) - int(single[0])) > MAX_GAP:
        return
    (rank,) = (rank for rank, wait in waits.items() if wait == single)
    differ = f"{single[1]} number {single[0]}, the others {common[1]} number {common[0]}"
    event = msgspec.structs.replace(
        first[rank].episode.first, name="collective.mismatch", role="cause", label="software/collective_mismatch",
        attributes={**first[rank].episode.attributes, "rank": str(rank), "differ": differ},
    )  # fmt: skip
    yield id(first[rank]), [_with(first[rank], event, first[rank].subject)]


def _signature(item: Resolved) -> tuple[str, str, str]:
    attributes = item.episode.attributes
    return attributes["seq"], attributes.get("op", ""), attributes.get("numel_in", "")


# --- what a hung task waits for -----------------------------------------------------------------------------------


def _hung(tasks: list[Resolved], stacks: list[Resolved]) -> Iterator[tuple[int, list[Resolved]]]:
    for task in tasks:
        near = {stack.episode.first.label for stack in stacks if _under(task, stack)}
        found = next((words for label, words in _BLOCKED_IN.items() if label in near), None)
        if found:
            event = task.episode.first
            event = msgspec.structs.replace(event, attributes={**event.attributes, "blocked_in": found})
            yield id(task), [_with(task, event, task.subject)]


def _under(task: Resolved, stack: Resolved) -> bool:
    """Whether the stack is printed under the line about the task."""
    a, b = task.episode.first, stack.episode.first
    if (a.node, a.source) != (b.node, b.source) or order(b, a) == "before":
        return False
    lag = lag_ns(a, b)
    return lag is None or lag[0] <= STACK_S * SECOND_NS


# --- stores that answered again -----------------------------------------------------------------------------------


def _over(
    lost: list[Resolved], found: list[Resolved], stalls: Sequence[Resolved]
) -> Iterator[tuple[int, list[Resolved]]]:
    """What was over before any rank began to wait led to nothing: such items are left out."""
    for item in lost:
        ends = [one.episode.first for one in found if _same_store(item, one)]
        ends = [end for end in ends if order(item.episode.first, end) == "before"]
        if stalls and ends and all(any(_began_after(end, stall) for end in ends) for stall in stalls):
            yield id(item), []


def _same_store(lost: Resolved, found: Resolved) -> bool:
    a, b = lost.episode.first, found.episode.first
    return a.node == b.node and a.attributes.get("server") == b.attributes.get("server")


def _began_after(end: Event, stall: Resolved) -> bool:
    """Whether the rank began to wait after it, as far as its line says for how long it had waited."""
    lag = lag_ns(end, stall.episode.first)
    ran_ms = stall.episode.attributes.get("ran_for_ms", "")
    if lag is None or not ran_ms.isdecimal() or len(ran_ms) > 9:
        return False
    return lag[0] > int(ran_ms) * 1_000_000


# --- what went on when a stall began ------------------------------------------------------------------------------


def _unfinished(
    by_name: dict[str, list[Resolved]], stalls: Sequence[Resolved], placement: PlacementMap, silent: int | None
) -> Iterator[tuple[int, list[Resolved]]]:
    """The last save, download or preparation of each file that had not ended when the stall was reported."""
    reporters = {stall.subject.rank for stall in stalls}
    steps = _lasts(by_name["train.step"])
    finished = _lasts(by_name["checkpoint.saved"])
    for item, event in _newest(by_name["checkpoint.started"]):
        if not _went_on(event, [*finished, *steps]) and _before(event, stalls) and not _late(event, stalls):
            yield id(item), [_marked(item, event, "checkpoint.unfinished", _who(item, reporters, placement, silent))]
    for item in by_name["train.end"]:
        rank, event = item.subject.rank, item.episode.first
        others = len(reporters - {None}) > 1
        if rank is not None and rank not in reporters and others and _before(event, stalls):
            yield id(item), [_marked(item, event, "train.end.early", item.subject)]
    for name in ("data.download", "data.preprocess", "progress.bar"):
        kind = "data.download" if name == "data.download" else "data.preprocess"
        for item, event in _newest(item for item in by_name[name] if name != "progress.bar" or _prepares(item)):
            if item.subject.rank in reporters and item.subject.rank is not None:
                continue
            ended_late = _ended(event) and _after(event, stalls)
            going_on = not _ended(event) and _before(event, stalls)
            if (going_on or ended_late) and not _went_on(event, steps):
                yield id(item), [_marked(item, event, f"{kind}.unfinished", _who(item, reporters, placement, silent))]


def _lasts(items: Iterable[Resolved]) -> list[Event]:
    return [item.episode.last or item.episode.first for item in items]


def _newest(items: Iterable[Resolved]) -> list[tuple[Resolved, Event]]:
    """Of each file the item whose last line is the last one."""
    newest: dict[tuple[str, str], tuple[Resolved, Event]] = {}
    for item in items:
        event = item.episode.last or item.episode.first
        key = (event.node, event.source)
        if key not in newest or canonical(newest[key][1]) < canonical(event):
            newest[key] = (item, event)
    return list(newest.values())


def _went_on(event: Event, later: list[Event]) -> bool:
    """Whether a line of the same file comes after it."""
    return any((one.node, one.source) == (event.node, event.source) and order(event, one) == "before" for one in later)


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


def _who(item: Resolved, reporters: set[int | None], placement: PlacementMap, silent: int | None) -> Entity:
    """The rank that the line is of, unless it waits itself; else the one that fell silent."""
    if item.subject.rank is not None and item.subject.rank not in reporters:
        return item.subject
    if silent is not None:
        return _rank(silent, placement)
    return Entity(node=item.subject.node) if item.subject.rank is None else Entity()


def _marked(item: Resolved, event: Event, name: str, subject: Entity) -> Resolved:
    return _with(item, msgspec.structs.replace(event, name=name, role="intermediate"), subject)


# --- small things -------------------------------------------------------------------------------------------------


def _with(item: Resolved, event: Event, subject: Entity) -> Resolved:
    """The same episode with another line as its evidence, and another subject."""
    episode = msgspec.structs.replace(item.episode, first=event, last=None)
    return Resolved(episode=episode, subject=subject)


def _place(item: Resolved) -> Place:
    return canonical(item.episode.first)


def _rank(rank: int, placement: PlacementMap) -> Entity:
    return placement.ranks.get(rank) or Entity(rank=rank)


def _numbers(text: str) -> list[int]:
    """Ranks of a list, "[3, 4]" or "3, 4"."""
    parts = [part.strip() for part in text.strip("[] ").split(",")]
    return sorted({int(part) for part in parts if part.isdecimal() and len(part) < 8})
