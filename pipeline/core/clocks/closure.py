"""What several brokers say together: bounds between events of two nodes, between brokers, and whose clock stepped.

No broker is the reference of the others: each bounds differences by itself, and certain bounds of one difference may
be intersected. An empty intersection means that one of them does not hold (a broker stepped): it gives None.
"""

from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from typing import Final

from msgspec import Struct

COMMON_NS: Final = 5_000_000_000
_FEWEST_NODES: Final = 2  # of one node alone nobody can tell whether its clock or the broker's stepped


class Bounds(Struct, frozen=True):
    """A difference or a time in ns that is certain to be within [lo_ns, hi_ns]."""

    lo_ns: int
    hi_ns: int

    def intersect(self, other: "Bounds") -> "Bounds | None":
        """Both hold; None where they contradict each other."""
        lo, hi = max(self.lo_ns, other.lo_ns), min(self.hi_ns, other.hi_ns)
        return Bounds(lo, hi) if lo <= hi else None

    def plus(self, other: "Bounds") -> "Bounds":
        """The sum."""
        return Bounds(self.lo_ns + other.lo_ns, self.hi_ns + other.hi_ns)

    def minus(self, other: "Bounds") -> "Bounds":
        """The difference of two that are not known together."""
        return Bounds(self.lo_ns - other.hi_ns, self.hi_ns - other.lo_ns)


Readings = Mapping[int, Bounds]  # by broker: what time its clock showed


def between(a: Readings, b: Readings) -> Bounds | None:
    """Bounds of (time of A) - (time of B) through every broker that bounds both; None without one, or contradictory."""
    found: Bounds | None = None
    for broker in a.keys() & b.keys():
        one = a[broker].minus(b[broker])
        found = one if found is None else found.intersect(one)
        if found is None:
            return None
    return found


Pair = tuple[int, int]


def between_brokers(readings: Iterable[Readings]) -> dict[Pair, Bounds] | None:
    """Bounds of (clock of broker i) - (clock of broker j), from what nodes read of several at one moment.

    Chains of brokers count as well (shortest paths over at most some ten brokers). None: they contradict each other.
    """
    known: dict[Pair, Bounds] = {}
    brokers: set[int] = set()
    for reading in readings:
        brokers.update(reading)
        for i in reading:
            for j in reading:
                if i != j and not _narrow(known, (i, j), reading[i].minus(reading[j])):
                    return None
    for k in sorted(brokers):
        for i in sorted(brokers - {k}):
            for j in sorted(brokers - {i, k}):
                if (i, k) not in known or (k, j) not in known:
                    continue
                if not _narrow(known, (i, j), known[i, k].plus(known[k, j])):
                    return None
    return known


def _narrow(known: dict[Pair, Bounds], pair: Pair, bounds: Bounds) -> bool:
    narrower = known[pair].intersect(bounds) if pair in known else bounds
    if narrower is None:
        return False
    known[pair] = narrower
    return True


def on_clock_of(broker: int, readings: Readings, brokers: Mapping[Pair, Bounds]) -> Bounds | None:
    """What the clock of `broker` showed, by the node's own reading of it and by those of all others."""
    found = readings.get(broker)
    for other, reading in readings.items():
        apart = brokers.get((broker, other))
        if apart is None:
            continue
        one = reading.plus(apart)
        found = one if found is None else found.intersect(one)
        if found is None:
            return None
    return found


class Opening(Struct, frozen=True):
    """A node's clock against a broker's began a new epoch, at a time of the broker's clock."""

    broker: int
    node: str
    at_ns: int


def stepped_brokers(openings: Sequence[Opening], active: Mapping[int, int]) -> dict[int, int]:
    """Brokers whose own clock stepped, and when (ns): more than half of their active nodes saw it within 5 s.

    `active` counts the nodes that talk to each broker. A step of the broker's clock moves the times of all of
    them alike, so the order of their events stays as it was.
    """
    by_broker: dict[int, list[Opening]] = defaultdict(list)
    for opening in openings:
        by_broker[opening.broker].append(opening)
    found: dict[int, int] = {}
    for broker, own in by_broker.items():
        own.sort(key=lambda o: o.at_ns)
        for first in own:
            nodes = {o.node for o in own if 0 <= o.at_ns - first.at_ns <= COMMON_NS}
            if len(nodes) >= _FEWEST_NODES and 2 * len(nodes) > active.get(broker, 0):
                found[broker] = first.at_ns
                break
    return found
