"""Episodes: identical events of one entity, coalesced. Adding events in any order gives the same episodes."""

from bisect import bisect_left
from collections.abc import Iterable, Mapping
from typing import Final

import msgspec
from msgspec import Struct

from pipeline.core.facts import group_of
from pipeline.core.order import canonical
from pipeline.core.readings import TELEMETRY, Readings
from pipeline.core.readings import of_event as readings_of
from schemas.records import Entity, Event

DEFAULT_WINDOW_S: Final = 60
PROGRESS: Final = "context/progress"
PLACEMENT: Final = "context/placement"


# Counters say something only by what was added.
_GROWING: Final = "counters"
LASTING: Final = ("cause", "intermediate")


class Coalescing(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """How events of one name become episodes: which attributes keep them apart, and the longest silence inside one.

    `crowd`: many ranks print it alike, as a symptom or of who runs where; they are one episode with a list of who
    printed it. `by_group`: those of each process group by themselves. `witnessed`: the kernel and the node agent tell
    the same one (`pipeline.core.witnesses`).
    """

    event: str
    variant: list[str] = []
    window_s: int = DEFAULT_WINDOW_S
    crowd: bool = False
    by_group: bool = False
    witnessed: bool = False
    reference: str = ""


class Member(Struct, frozen=True, kw_only=True, array_like=True, gc=False):
    """Who printed a line that many print alike, and when first: as much of it as tells before from after."""

    node: str
    rank: int | None
    pid: int | None
    lo_unix_nano: int
    hi_unix_nano: int
    clock_id: str
    raw_ns: int | None
    resolution_ns: int
    aligned_time_unix_nano: int | None
    source: str
    generation: str
    offset: int
    kernel: None = None
    reference_broker: int | None = None

    @classmethod
    def of(cls, event: Event) -> "Member":
        """The printer of an event."""
        subject = event.subject
        return cls(
            node=event.node, rank=subject.rank, pid=subject.pid, lo_unix_nano=event.lo_unix_nano,
            hi_unix_nano=event.hi_unix_nano, clock_id=event.clock_id, raw_ns=event.raw_ns,
            resolution_ns=event.resolution_ns, aligned_time_unix_nano=event.aligned_time_unix_nano,
            source=event.source, generation=event.generation, offset=event.offset,
            reference_broker=event.reference_broker,
        )  # fmt: skip

    @property
    def writer(self) -> str:
        """The node that wrote the line: what many print alike each prints of itself."""
        return self.node

    @property
    def name(self) -> str:
        """What tells it from the others: its rank, else its process."""
        return str(self.rank) if self.rank is not None else f"{self.node}/{self.pid}"

    @property
    def place(self) -> tuple[int, int, str, str, int]:
        """A total order by time, as far as the evidence goes."""
        return self.lo_unix_nano, self.hi_unix_nano, self.node, self.source, self.offset


class Episode(Struct, kw_only=True, gc=False):
    """Events of one name, variant and entity without a longer silence than the window. `first` is the evidence.

    `last` is kept of marks of progress and of what is measured: what was still going on, or was finished, shows in the
    last one; and of faults that repeat: the first and the last of them may say different things. `crowd`: everybody who
    printed it, by name. `readings`: what the lines measure.
    """

    first: Event
    start_ns: int
    end_ns: int
    count: int
    event_ids: list[str] = []
    last: Event | None = None
    crowd: dict[str, Member] = {}
    readings: Readings | None = None

    @property
    def name(self) -> str:
        """Event name."""
        return self.first.name

    @property
    def newest(self) -> Event:
        """Its last line where that is kept, else its first."""
        return self.last or self.first

    @property
    def subject(self) -> Entity:
        """What it happened to."""
        return self.first.subject

    @property
    def attributes(self) -> dict[str, str]:
        """Attributes of the first line."""
        return self.first.attributes


MAX_IDS: Final = 32
MAX_CROWD: Final = 65_536
# An investigation must fit into one message: so many episodes, with so much of their text.
MAX_EPISODES: Final = 20_000
# What happens again and again is told by its beginning and its end: so many of one key, and fewer where there are many.
MAX_OF_KEY: Final = 200
FEW_OF_KEY: Final = 4
# Where there is no room, of each name that is no cause the earliest: fewer and fewer of it until there is.
MOST_OF_NAME: Final = (1_024, 256, 64)
BODY_CHARACTERS: Final = 500


class Episodes(Struct, kw_only=True):
    """All episodes of an investigation; part of its snapshot.

    `last_of_name`: of names of which only the earliest are kept, the place of the last one that is.
    """

    by_key: dict[str, list[Episode]] = {}
    kept: int = 0
    dropped: int = 0
    last_of_name: dict[str, tuple[int, str]] = {}

    def add(self, event: Event, coalescing: Mapping[str, Coalescing]) -> None:
        """Fold one event in. What there is no room for is counted, not kept."""
        if len(event.body) > BODY_CHARACTERS:
            event = msgspec.structs.replace(event, body=f"{event.body[:BODY_CHARACTERS]} …[cut]")
        how = coalescing.get(event.name)
        window_ns = (how.window_s if how else DEFAULT_WINDOW_S) * 1_000_000_000
        fresh = of_event(event)
        at_ns = fresh.start_ns
        if is_crowd := _is_crowd(event, how):
            member = Member.of(event)
            fresh.crowd = {member.name: member}
        key = _key(event, how, is_crowd=is_crowd)
        if key not in self.by_key and not self._has_room(fresh, key):
            self.dropped += event.count
            return
        known = self.by_key.setdefault(key, [])
        # Episodes of one key are further apart than the window: only those beside the new one can be near it.
        place = bisect_left(known, at_ns, key=_start)
        if place and _near(known[place - 1], fresh, window_ns):
            place -= 1
        while place < len(known) and _near(known[place], fresh, window_ns):
            fresh = merged(known.pop(place), fresh)
            self.kept -= 1
        known.insert(place, fresh)
        self.kept += 1
        most = MAX_OF_KEY if self.kept <= MAX_EPISODES else FEW_OF_KEY
        while len(known) > most:
            self.dropped += known.pop(len(known) // 2).count
            self.kept -= 1

    def _has_room(self, fresh: Episode, key: str) -> bool:
        """Whether there is room for another key. A storm of symptoms takes none from the causes that come after it."""
        last = self.last_of_name.get(fresh.name)
        if last is not None and (fresh.start_ns, key) > last:
            return False
        if len(self.by_key) < MAX_EPISODES or (fresh.first.role == "cause" and len(self.by_key) < 2 * MAX_EPISODES):
            return True
        for most in MOST_OF_NAME:
            self._thin(most)
            if len(self.by_key) < MAX_EPISODES:
                break
        last = self.last_of_name.get(fresh.name)
        return len(self.by_key) < MAX_EPISODES and (last is None or (fresh.start_ns, key) <= last)

    def _thin(self, most: int) -> None:
        """Of each name keep the earliest few. What is compared among all, and causes, stay."""
        by_name: dict[str, list[tuple[int, str]]] = {}
        for key, known in self.by_key.items():
            first = known[0]
            if first.first.role != "cause" and first.readings is None and first.first.label != PROGRESS:
                by_name.setdefault(first.name, []).append((first.start_ns, key))
        for name, places in by_name.items():
            if len(places) > most:
                places.sort()
                for _, key in places[most:]:
                    gone = self.by_key.pop(key)
                    self.kept -= len(gone)
                    self.dropped += sum(episode.count for episode in gone)
                self.last_of_name[name] = places[most - 1]

    def sorted(self) -> list[Episode]:
        """All episodes in canonical order."""
        return sorted((e for group in self.by_key.values() for e in group), key=lambda e: canonical(e.first))


def of_event(event: Event) -> Episode:
    """The episode of one event."""
    at_ns = event.aligned_time_unix_nano if event.aligned_time_unix_nano is not None else -1
    measured = readings_of(event)
    return Episode(
        first=event, start_ns=at_ns, end_ns=max(at_ns, event.until_unix_nano or -1), count=event.count,
        event_ids=[event.event_id], last=event if event.label == PROGRESS or measured is not None else None,
        readings=measured,
    )  # fmt: skip


def _start(episode: Episode) -> int:
    return episode.start_ns


def _is_crowd(event: Event, how: Coalescing | None) -> bool:
    """Whether a line is one that many print alike, and says which process prints it."""
    if how is None or not how.crowd or event.source_kind != "application":
        return False
    if event.role != "symptom" and event.label != PLACEMENT:
        return False
    return event.subject.rank is not None or (event.subject.pid is not None and bool(event.node))


def process_group(event: Event) -> str:
    """The process group that a line names in its prefix; empty where it names none."""
    return "\x1f".join(group_of(event.printer.process_group) or ())


def _key(event: Event, how: Coalescing | None, *, is_crowd: bool) -> str:
    variant = [event.attributes.get(name, "") for name in how.variant] if how else []
    if how is not None and how.by_group:
        variant.append(process_group(event))
    if event.name.endswith(_GROWING):
        # Where each counter has a line of its own, each is counted by itself.
        variant = [*variant, *sorted(event.attributes)]
    if is_crowd:
        return "\x1f".join(("crowd", event.name, *variant))
    subject = msgspec.structs.astuple(event.subject)
    # Lines of two tasks may be of two ranks, which the lines alone do not say.
    task = () if event.printer.task is None else (event.printer.task,)
    return "\x1f".join(str(part) for part in (event.name, *variant, *subject, *task))


def _near(a: Episode, b: Episode, window_ns: int) -> bool:
    if a.start_ns == -1 or b.start_ns == -1:
        return a.start_ns == b.start_ns
    return a.start_ns - window_ns <= b.end_ns and b.start_ns - window_ns <= a.end_ns


def merged(a: Episode, b: Episode) -> Episode:
    """One episode of both."""
    big, small = (a, b) if len(a.crowd) >= len(b.crowd) else (b, a)
    return Episode(
        first=min(a.first, b.first, key=canonical),
        start_ns=min(a.start_ns, b.start_ns),
        end_ns=max(a.end_ns, b.end_ns),
        count=a.count + b.count,
        event_ids=_ids(a.event_ids, b.event_ids),
        last=_last_of(a, b),
        crowd=_together(big.crowd, small.crowd),
        readings=_taken(a.readings, b.readings),
    )


def _ids(a: list[str], b: list[str]) -> list[str]:
    """The first few of both, by name; a list that is full and has nothing above the other's is the answer."""
    if len(a) >= MAX_IDS and b and a[-1] < min(b):
        return a
    return sorted({*a, *b})[:MAX_IDS]


def _together(big: dict[str, Member], small: dict[str, Member]) -> dict[str, Member]:
    """Everybody of both, each with its first line. The larger one is extended in place."""
    for name, member in small.items():
        known = big.get(name)
        if known is None and len(big) >= MAX_CROWD:
            continue
        if known is None or member.place < known.place:
            big[name] = member
    return big


def _last_of(a: Episode, b: Episode) -> Event | None:
    """The last line of both, where it is worth keeping."""
    kept = a.first.label == PROGRESS or a.first.role in LASTING or a.readings is not None
    if not kept and not a.first.name.endswith(_GROWING):
        return None
    return max((event for one in (a, b) for event in (one.first, one.last) if event is not None), key=canonical)


def _taken(known: Readings | None, more: Readings | None) -> Readings | None:
    """What two episodes measure. The first of them is replaced by both, so that its readings may grow."""
    if known is None or more is None:
        return known or more
    known.take(more)
    return known


def bouts(episodes: list[Episode], gap_ns: int) -> list[list[Episode]]:
    """Episodes in groups with less than `gap_ns` of quiet inside a group; those without a time are in the first one.

    Telemetry never pauses and joins nothing: it is in the last group. The groups depend on the set of episodes only.
    """
    running = [e for e in episodes if e.first.label == TELEMETRY]
    episodes = [e for e in episodes if e.first.label != TELEMETRY]
    timed = sorted((e for e in episodes if e.start_ns >= 0), key=lambda e: (e.start_ns, canonical(e.first)))
    groups: list[list[Episode]] = []
    end_ns = 0
    for episode in timed:
        if not groups or episode.start_ns - end_ns > gap_ns:
            groups.append([])
        groups[-1].append(episode)
        end_ns = max(end_ns, episode.end_ns)
    untimed = [e for e in episodes if e.start_ns < 0]
    if untimed:
        groups = [[*untimed, *(groups[0] if groups else [])], *groups[1:]]
    if running:
        groups = [*groups[:-1], [*(groups[-1] if groups else []), *running]]
    return [sorted(group, key=lambda e: canonical(e.first)) for group in groups]


def of_events(events: Iterable[Event], coalescing: Mapping[str, Coalescing]) -> list[Episode]:
    """Episodes of a set of events, in canonical order."""
    episodes = Episodes()
    for event in events:
        episodes.add(event, coalescing)
    return episodes.sorted()
