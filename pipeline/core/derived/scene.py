"""What the kinds of derived evidence look at, and what they give."""

from bisect import bisect_left
from collections import defaultdict
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from functools import cached_property
from itertools import takewhile
from typing import NamedTuple

import msgspec

from pipeline.core.chains import Resolved
from pipeline.core.episodes import Episode
from pipeline.core.order import canonical, order
from pipeline.core.placement import PlacementMap
from pipeline.core.readings import Readings
from schemas.records import Entity, Event
from schemas.vocabulary import Role

# The item that a finding takes the place of, by identity, and what stands there now.
Change = tuple[int, list[Resolved]]
Changes = Iterator[Change]


class Measured(NamedTuple):
    """What one rank or GPU measures, who it is, and of each measure the item with its last line."""

    subject: Entity
    readings: Readings
    items: dict[str, Resolved]


class Scene:
    """All items of an investigation by event name, the lines that tell of a stall, and who ran where.

    `silent`: the one rank that did not report the stall.
    """

    def __init__(
        self, items: Sequence[Resolved], stalls: Sequence[Resolved], placement: PlacementMap, silent: int | None
    ) -> None:
        self.items = items
        self.by_name: dict[str, list[Resolved]] = defaultdict(list)
        for item in items:
            self.by_name[item.episode.name].append(item)
        self.stalls = stalls
        self.placement = placement
        self.silent = silent

    def named(self, *names: str) -> list[Resolved]:
        """The items of these event names."""
        return [item for name in names for item in self.by_name.get(name, ())]

    @cached_property
    def measured(self) -> dict[str, Measured]:
        """What each rank or GPU measures, in all its lines."""
        found: dict[str, Measured] = {}
        for item in (item for items in self.by_name.values() for item in items):
            readings, name = item.episode.readings, name_of(item.subject)
            # What rank 0 prints of all is none of its own.
            if readings is None or name is None or item.episode.name == "train.spread":
                continue
            known = found.setdefault(name, Measured(item.subject, Readings(), {}))
            known.readings.take(readings)
            for measure in readings.sums:
                before = known.items.get(measure)
                if before is None or canonical(last_of(before)) < canonical(last_of(item)):
                    known.items[measure] = item
        return found

    @cached_property
    def marks(self) -> list[Event]:
        """The last sign of each file that the job went on, the latest first."""
        files = by_file(lasts(self.named("train.step", "checkpoint.saved")))
        newest = (max(file, key=lambda mark: (mark.lo_unix_nano, mark.offset)) for file in files)
        return sorted(newest, key=lambda mark: mark.hi_unix_nano, reverse=True)

    def rank(self, rank: int) -> Entity:
        """A rank with what is known of it."""
        return self.placement.ranks.get(rank) or Entity(rank=rank)


def name_of(subject: Entity) -> str | None:
    """The one name of a rank or GPU: its rank where that is known."""
    if subject.rank is not None:
        return f"rank {subject.rank}"
    gpu = subject.pci_bus_id or subject.gpu_uuid or subject.gpu_index
    return None if gpu is None or subject.node is None else f"{subject.node} {gpu}"


def last_of(item: Resolved) -> Event:
    """The last line of an item that is kept."""
    return item.episode.newest


def newest_of(items: Iterable[Resolved], names: Collection[str]) -> dict[int, Resolved]:
    """Of each rank the item of these event names with the latest last line."""
    newest: dict[int, Resolved] = {}
    for item in items:
        rank = item.subject.rank
        if rank is not None and item.episode.name in names:
            newest[rank] = max(newest.get(rank, item), item, key=lambda one: canonical(last_of(one)))
    return newest


def progressed_after(scene: Scene, event: Event) -> bool:
    """Whether the job did steps after a line: what was over then did not stop it."""
    possible = takewhile(lambda mark: mark.hi_unix_nano >= event.lo_unix_nano, scene.marks)
    return any(order(event, mark) == "before" for mark in possible)


def as_event(item: Resolved, event: Event, subject: Entity) -> Resolved:
    """The same episode with another line as its evidence, and another subject."""
    episode = msgspec.structs.replace(item.episode, first=event, last=None)
    return Resolved(episode=episode, subject=subject)


def as_finding(
    item: Resolved,
    event: Event,
    name: str,
    subject: Entity,
    *,
    role: Role,
    label: str,
    attributes: Mapping[str, str],
    count: int = 1,
) -> Resolved:
    """What a line of an item shows beside others: a moment of its own, so that it neither begins nor ends with it."""
    said = msgspec.structs.replace(
        event, name=name, role=role, label=label, severity="warning", attributes={**event.attributes, **attributes}
    )
    at_ns = -1 if event.aligned_time_unix_nano is None else event.aligned_time_unix_nano
    episode = Episode(first=said, start_ns=at_ns, end_ns=at_ns, count=count, event_ids=[event.event_id])
    return Resolved(episode=episode, subject=subject)


def lasts(items: Iterable[Resolved]) -> list[Event]:
    """The last line of each item."""
    return [last_of(item) for item in items]


def by_file(events: Iterable[Event]) -> list[list[Event]]:
    """The lines of each file, as they stand in it; where it has stamps of several clocks, those of each."""
    files: dict[tuple[str, str, str, str], list[Event]] = defaultdict(list)
    for event in events:
        files[event.node, event.source, event.generation, event.clock_id].append(event)
    return [sorted(file, key=lambda event: event.offset) for file in files.values()]


def first_where(files: Iterable[list[Event]], is_so: Callable[[Event], bool]) -> list[Event]:
    """Of each file the first line of which something is true that is true of all lines after it too. A port may flap
    thousands of times: not every line is asked.
    """
    places = ((file, bisect_left(file, True, key=is_so)) for file in files)
    return [file[at] for file, at in places if at < len(file)]


def went_on(event: Event, later: list[Event]) -> bool:
    """Whether a line of the same file comes after it."""
    return any((one.node, one.source) == (event.node, event.source) and order(event, one) == "before" for one in later)
