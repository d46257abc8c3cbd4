"""What the kinds of derived evidence look at, and what they give."""

from collections import defaultdict
from collections.abc import Iterable, Iterator, Sequence

import msgspec

from pipeline.core.chains import Resolved
from pipeline.core.order import order
from pipeline.core.placement import PlacementMap
from schemas.records import Entity, Event

# The item that a finding takes the place of, by identity, and what stands there now.
Change = tuple[int, list[Resolved]]
Changes = Iterator[Change]


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

    def rank(self, rank: int) -> Entity:
        """A rank with what is known of it."""
        return self.placement.ranks.get(rank) or Entity(rank=rank)


def as_event(item: Resolved, event: Event, subject: Entity) -> Resolved:
    """The same episode with another line as its evidence, and another subject."""
    episode = msgspec.structs.replace(item.episode, first=event, last=None)
    return Resolved(episode=episode, subject=subject)


def lasts(items: Iterable[Resolved]) -> list[Event]:
    """The last line of each item."""
    return [item.episode.last or item.episode.first for item in items]


def went_on(event: Event, later: list[Event]) -> bool:
    """Whether a line of the same file comes after it."""
    return any((one.node, one.source) == (event.node, event.source) and order(event, one) == "before" for one in later)
