"""How often one kind of error is followed by another: on the same GPU, on the same node, and on other nodes.

Published tables look at one node only, since its lines have one clock. Here the order of two nodes' lines is that of
`pipeline.core.order`: an effect counts where it came after the cause for certain, or probably. What the clocks cannot
order is counted apart: the truth is between `followed` and `followed + concurrent`.
"""

from bisect import bisect_left, bisect_right
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from itertools import islice
from math import sqrt
from typing import Final, Literal, NamedTuple

from msgspec import Struct

from pipeline.core.clocks.odds import odds_before
from pipeline.core.order import TIMELINES_APART_NS, canonical, lag_ns, sureness
from schemas.records import TIME_MAX_NS, Event

Place = Literal["unit", "node", "other"]
_SIDES: Final = ("followed", "concurrent", "preceded")
# So many of a kind are compared with a source, before it and after it.
_NEAREST: Final = 64
_SIGMAS_OF_95: Final = 1.959963984540054


class Sighting(Struct, frozen=True, kw_only=True):
    """The first line of an episode, of which kind it is, and where it was seen.

    `kind` is the name by which it is counted, as `gpu.xid 119`. `groups` are what nodes have in common at that time:
    the job attempts on it, its NVLink domain.
    """

    kind: str
    unit: str
    node: str
    event: Event
    groups: tuple[str, ...] = ()


class Propagation(Struct, frozen=True, kw_only=True):
    """Of `sources` episodes of one kind, how many were followed by one of another (or the same) kind within the window.

    `share` is followed / sources with its 95 % interval (Wilson), which takes the sources as independent: see
    `top_share`, that of the unit with most of them. `same_unit`, `same_node` and `other_node` count sources by where an
    effect was, one source in as many as it had effects in. `concurrent`: not followed for all that is known, but the
    clocks cannot say of something near it which was first. `by_odds`: the share where these count by how likely they
    were first, as far as clocks have an error that is known in 99 of 100 cases; the better guess where effects come as
    soon as clocks differ. `preceded`: had one as long before it, which is what chance, or the other direction, makes of
    `followed`. `untimed`: sources that have no time, not among `sources`.
    """

    cause: str
    effect: str
    sources: int
    followed: int
    share: float
    lo: float
    hi: float
    same_unit: int
    same_node: int
    other_node: int
    concurrent: int
    preceded: int
    top_share: float
    by_odds: float
    untimed: int = 0


class _Line(NamedTuple):
    """Sightings of one kind on one node or in one group by the earliest time they may be of.

    Each may be up to `reach_ns` later than that.
    """

    los_ns: list[int]
    sightings: list[Sighting]
    reach_ns: int

    def near(self, source: Sighting, within_ns: int) -> Iterator[Sighting]:
        """Those that may be within so long of a source: the nearest, and beyond them one that is surely after it and
        one that is surely before it. When a job ends, each of its GPUs may print the same.
        """
        a = source.event
        behind = bisect_left(self.los_ns, a.lo_unix_nano - within_ns - self.reach_ns)
        here = bisect_left(self.los_ns, a.lo_unix_nano)
        ahead = bisect_right(self.los_ns, a.hi_unix_nano + within_ns + self.reach_ns)
        first, last = max(behind, here - _NEAREST), min(ahead, here + _NEAREST)
        yield from self.sightings[first:last]
        after = bisect_right(self.los_ns, a.hi_unix_nano + self.reach_ns, last, ahead)
        before = bisect_left(self.los_ns, a.lo_unix_nano - self.reach_ns, behind, first)
        for sure in (range(after, ahead), range(before - 1, behind - 1, -1)):
            # One on another node will do: those of its own are few, and on a line by themselves.
            yield from islice((self.sightings[n] for n in sure if self.sightings[n].node != source.node), 1)


class _Found(NamedTuple):
    """Kinds near a source. `concurrent`: with the odds that none of it was an effect."""

    followed: set[tuple[str, Place]]
    concurrent: dict[str, float]
    preceded: set[str]


def propagation(sightings: Iterable[Sighting], within_ns: int) -> list[Propagation]:
    """The table of causes and effects that follow within so long, the most frequent pairs first.

    Pairs that are not in the table did not occur. Sightings without a time are nobody's effect.
    """
    timed: list[Sighting] = []
    untimed: Counter[str] = Counter()
    for sighting in sightings:
        if sighting.event.aligned_time_unix_nano is None or sighting.event.hi_unix_nano >= TIME_MAX_NS:
            untimed[sighting.kind] += 1
        else:
            timed.append(sighting)
    lines = _lines(timed)
    counts: Counter[tuple[str, str, str]] = Counter()
    likely: dict[tuple[str, str], float] = {}
    for source in timed:
        found = _around(source, lines, within_ns)
        effects = {kind for kind, _ in found.followed}
        counts.update((source.kind, kind, place) for kind, place in found.followed)
        counts.update((source.kind, kind, "followed") for kind in effects)
        counts.update((source.kind, kind, "preceded") for kind in found.preceded)
        for kind in found.concurrent.keys() - effects:
            counts[source.kind, kind, "concurrent"] += 1
            likely[source.kind, kind] = likely.get((source.kind, kind), 0.0) + 1 - found.concurrent[kind]
    return _table(timed, counts, likely, untimed)


def wilson(successes: int, trials: int, sigmas: float = _SIGMAS_OF_95) -> tuple[float, float]:
    """Lower and upper bound of a share by Wilson's score (1927); 0 and 1 where nothing was tried."""
    if trials == 0:
        return 0.0, 1.0
    share, z2 = successes / trials, sigmas * sigmas
    middle = (share + z2 / (2 * trials)) / (1 + z2 / trials)
    half = sigmas / (1 + z2 / trials) * sqrt(share * (1 - share) / trials + z2 / (4 * trials * trials))
    # At the ends the bound is exact; rounding must not leave the share outside.
    return 0.0 if successes == 0 else middle - half, 1.0 if successes == trials else middle + half


def _lines(timed: Sequence[Sighting]) -> dict[str, list[_Line]]:
    """What was seen on each node and in each group, ascending. A group of a node's name is no node."""
    by_place: dict[str, dict[str, list[Sighting]]] = {}
    # Timelines may be apart where the times are on several.
    apart_ns = TIMELINES_APART_NS if len({one.event.reference_broker for one in timed}) > 1 else 0
    for sighting in sorted(timed, key=lambda one: canonical(one.event)):
        for place in _places(sighting):
            by_place.setdefault(place, {}).setdefault(sighting.kind, []).append(sighting)
    return {place: [_line(seen, apart_ns) for seen in kinds.values()] for place, kinds in by_place.items()}


def _line(seen: list[Sighting], apart_ns: int) -> _Line:
    widest_ns = max(one.event.hi_unix_nano - one.event.lo_unix_nano for one in seen)
    return _Line([one.event.lo_unix_nano for one in seen], seen, widest_ns + apart_ns)


def _places(sighting: Sighting) -> list[str]:
    groups = [f"group {group}" for group in dict.fromkeys(sighting.groups)]
    return [f"node {sighting.node}", *groups] if sighting.node else groups


def _around(source: Sighting, lines: dict[str, list[_Line]], within_ns: int) -> _Found:
    """Kinds that were seen near a source, and on which side of it."""
    found = _Found(set(), {}, set())
    a = source.event
    for other in _near(source, lines, within_ns):
        lag = lag_ns(a, other.event)
        if lag is None or lag[0] > within_ns or lag[1] < -within_ns:
            continue
        middle_ns = (lag[0] + lag[1]) // 2
        if sureness(a, other.event)[0] != "concurrent":
            if middle_ns <= within_ns:
                found.followed.add((other.kind, _where(source, other)))
        elif sureness(other.event, a)[0] != "concurrent":
            if middle_ns >= -within_ns:
                found.preceded.add(other.kind)
        elif lag[1] > 0:
            none = found.concurrent.get(other.kind, 1.0)
            found.concurrent[other.kind] = none * (1 - _odds(a, other.event))
    return found


def _near(source: Sighting, lines: dict[str, list[_Line]], within_ns: int) -> Iterator[Sighting]:
    """Others on its node and in its groups, each once."""
    seen = {id(source)}
    for line in (line for place in _places(source) for line in lines[place]):
        for other in line.near(source, within_ns):
            if id(other) not in seen:
                seen.add(id(other))
                yield other


def _odds(a: Event, b: Event) -> float:
    """How likely a was before b, where the clocks tell no order; 0 where nothing is known of their errors."""
    a_ns, b_ns = a.aligned_time_unix_nano, b.aligned_time_unix_nano
    if a_ns is None or b_ns is None or a.u99_ns is None or b.u99_ns is None:
        return 0.0
    return odds_before(b_ns - a_ns, a.u99_ns, b.u99_ns) if a.reference_broker == b.reference_broker else 0.0


def _where(source: Sighting, effect: Sighting) -> Place:
    if source.unit and source.unit == effect.unit:
        return "unit"
    return "node" if source.node and source.node == effect.node else "other"


def _table(
    timed: Sequence[Sighting], counts: Counter[tuple[str, str, str]], likely: Mapping[tuple[str, str], float],
    untimed: Counter[str],
) -> list[Propagation]:  # fmt: skip
    units: dict[str, Counter[str]] = {}
    for one in timed:
        units.setdefault(one.kind, Counter())[one.unit] += 1
    table: list[Propagation] = []
    for cause, effect in {(cause, effect) for cause, effect, _ in counts}:
        count = {what: counts[cause, effect, what] for what in ("unit", "node", "other", *_SIDES)}
        sources, followed = units[cause].total(), count["followed"]
        lo, hi = wilson(followed, sources)
        row = Propagation(
            cause=cause, effect=effect, sources=sources, followed=followed, share=followed / sources, lo=lo, hi=hi,
            same_unit=count["unit"], same_node=count["node"], other_node=count["other"],
            concurrent=count["concurrent"], preceded=count["preceded"],
            top_share=max(units[cause].values()) / sources,
            by_odds=(followed + likely.get((cause, effect), 0.0)) / sources, untimed=untimed[cause],
        )  # fmt: skip
        table.append(row)
    return sorted(table, key=lambda row: (-row.followed, -row.share, row.cause, row.effect))
