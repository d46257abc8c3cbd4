"""What the files of a folder show of the clocks of its nodes: `pipeline/core/content_clock`, over what is looked at."""

from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from typing import Final

from msgspec import Struct

from pipeline.core.clocks.node import NodeClock
from pipeline.core.content_clock.lines import MAX_NODES_OF_DUMPS, WORDS, Seen, marks_of, seen_in, seen_in_dump
from pipeline.core.content_clock.meetings import Mark
from pipeline.core.content_clock.solve import Alignment, align, combined
from pipeline.core.dating import NOTHING_SAID, Dating
from pipeline.core.line_reader import line_reader
from pipeline.core.parse import ParsedLine
from pipeline.core.times import DEFAULT_BOUND_NS
from pipeline.flight_files import dumps_in
from pipeline.logfiles import UnreadableFileError
from schemas import signals
from schemas.records import ClockClaim

# One rank of a node tells as much of its clock as all do.
DUMPS_OF_NODE: Final = 1


class WallClock(Struct, frozen=True, kw_only=True):
    """The wall clock of a node whose clocks were recorded: reference minus wall clock at last, None where no beacon
    tells it, and how far it was stepped last (ns, 0: it was not).
    """

    node: str
    offset_ns: int | None
    stepped_ns: int


def wall_clock_of(node: str, clock: NodeClock) -> WallClock:
    """What was measured of a node's wall clock."""
    stepped = [boot.wall.stepped_ns for boot in clock.boots if boot.wall.stepped_ns]
    offset_ns, wall = None, clock.boots[0].wall
    if wall.last_ns is not None and wall.ahead_ns is not None:
        found = clock.boots[0].offset(wall.last_ns)
        offset_ns = None if found is None else found[1].offset_ns - wall.ahead_ns
    return WallClock(node=node, offset_ns=offset_ns, stepped_ns=stepped[0] if stepped else 0)


class Heard(Struct, frozen=True, kw_only=True):
    """What one file tells of events of several nodes."""

    node: str
    source: str
    job: str
    dating: Dating
    seen: list[Seen]


class Listener:
    """Reads the lines of a file that may tell of such an event."""

    def __init__(self) -> None:
        self._reader = line_reader(signals.load())
        self.seen: list[Seen] = []

    def hear(self, line: str) -> ParsedLine | None:
        """What the prefixes of a line say, where it was read; None where nothing in it is of interest."""
        if not any(word in line for word in WORDS):
            return None
        parsed, match = self._reader.read(line)
        seen = seen_in(parsed, match)
        if seen is not None:
            self.seen.append(seen)
        return parsed


def dump_marks(files: Iterable[tuple[str, str, Path]]) -> Iterator[Heard]:
    """What dumps of the flight recorder tell; `files`: node, name and path."""
    count: Counter[str] = Counter()
    for node, name, path in files:
        count[node] += bool(node)
        if node and count[node] <= DUMPS_OF_NODE and len(count) <= MAX_NODES_OF_DUMPS:
            try:
                dumps = dumps_in(path)
            except UnreadableFileError:
                continue
            if len(dumps) == 1:
                yield Heard(node=node, source=name, job="", dating=NOTHING_SAID, seen=list(seen_in_dump(dumps[0])))


def clocks_of(heard: Iterable[Heard], claims: Mapping[str, ClockClaim | None]) -> Alignment:
    """What is shown of the clocks of all nodes, by what is claimed of them: of jobs that share no node, job by job."""
    heard = list(heard)
    known = {node: claim for node, claim in claims.items() if claim is not None}
    groups = _groups(heard)
    if known or len(groups) < 2:
        return align(_marks(heard), claims, known, DEFAULT_BOUND_NS)
    found = [align(_marks(one for one in heard if one.node in nodes), nodes, {}, DEFAULT_BOUND_NS) for nodes in groups]
    return combined(found, claims)


def _marks(heard: Iterable[Heard]) -> list[Mark]:
    return [mark for one in heard for mark in marks_of(one.seen, one.node, one.source, one.job, one.dating)]


def _groups(heard: Iterable[Heard]) -> list[set[str]]:
    """The nodes of jobs, those of jobs that share a node together."""
    by_job: dict[str, set[str]] = defaultdict(set)
    for one in heard:
        if one.job:
            by_job[one.job].add(one.node)
    groups: list[set[str]] = []
    for nodes in by_job.values():
        apart = [group for group in groups if not group & nodes]
        groups = [*apart, nodes.union(*(group for group in groups if group & nodes))]
    return groups
