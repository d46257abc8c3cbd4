"""When the lines of one source were written: by their own stamps, by their transport, or by the lines around them."""

import msgspec
from msgspec import Struct, field

from pipeline.core import times
from pipeline.core.clocks.node import NodeClock
from pipeline.core.dating import Dating, ZoneWatch, iso_stamp
from pipeline.core.measured import measured
from pipeline.core.parse import ParsedLine
from pipeline.core.stamps import Stamp
from pipeline.core.statements import Pending
from pipeline.core.times import When
from schemas.clock_notes import MARKS
from schemas.records import RawBatch, RawLine
from schemas.signals import Match


class SourceMemory(Struct, kw_only=True):
    """What one source carries from line to line. `seen_ns`, `heard_ns`: broker time of its first and last lines.

    `dated_ns`: what its last stamp without a year or a date was taken for; the next one is near it. `by_time`: its job
    is the one that ran when its lines were written; nobody states it.
    """

    since: When = times.UNKNOWN
    dated_ns: int | None = None
    zone: ZoneWatch = field(default_factory=ZoneWatch)
    job: str | None = None
    by_time: bool = False
    pending: Pending = field(default_factory=Pending)
    seen_ns: int = 0
    heard_ns: int = 0


class SourceClock:
    """Times of the lines of one source in one batch, written by `node` unless they say otherwise."""

    def __init__(
        self, batch: RawBatch, source: str, memory: SourceMemory, node: str, said: Dating, arrival: When | None,
        clock: NodeClock | None,
    ) -> None:  # fmt: skip
        self._batch = batch
        self._source = source
        self._memory = memory
        self._node = node
        self._said = said
        self._arrival = arrival
        self._clock = clock
        self._believe_zone()

    def own_time(self, line: RawLine, parsed: ParsedLine) -> When | None:
        """When this very line was written, or None where it does not say."""
        if self._arrival is not None:
            return self._arrival
        node = self._clock_node(parsed)
        when = times.transported(line, node, self._batch, self._source, self._dating)
        if when is None and parsed.stamp is not None:
            return self._stamped(line, parsed.stamp, node, parsed.boot_ns)
        if when is None and parsed.boot_ns is not None:
            when = times.kernel_time(
                parsed.boot_ns, times.KERNEL_STAMP_NS, node, self._batch, self._source, self._dating
            )
        return None if when is None else self._measured(when, node)

    def _measured(self, when: When, node: str) -> When:
        """By what is measured of the node's clocks, where that is the node that reports."""
        if self._clock is None:
            return when
        batch = self._batch
        return measured(when, self._clock, node, batch.reporter, batch.boot_id, self._memory.since, batch.clock)

    def relate(self, line: RawLine) -> None:
        """A line of the kernel's ring relates its clock to the others: it was made before it was read."""
        if self._clock is None or line.kernel_time_ns is None:
            return
        marks = [line.attributes.get(name, "") for name in MARKS]
        mark = (int(marks[0]), int(marks[1])) if all(m.isdecimal() and len(m) < 19 for m in marks) else None
        if mark is None and not line.observed_time_unix_nano:
            return
        self._clock.note_kernel(self._batch.boot_id, line.kernel_time_ns, line.observed_time_unix_nano, mark)

    def unstamped(self, line: RawLine, parsed: ParsedLine) -> When:
        """When a line without a time of its own was written."""
        node = self._clock_node(parsed)
        seen = times.observed(line, node, self._batch)
        return times.unstamped(self._memory.since, seen if seen is times.UNKNOWN else self._measured(seen, node))

    def said_at(self, line: RawLine, parsed: ParsedLine, match: Match, by: str = "at") -> When | None:
        """When a line was written that says so in its middle (`CANCELLED AT …`), by the clock of the node it names."""
        stamp, node = iso_stamp(match.attributes.get(by, "")), match.subject.node or match.attributes.get("node", "")
        if stamp is None:
            return None
        # A list of nodes is written with brackets; one of them wrote the line.
        return self._stamped(line, stamp, self._clock_node(parsed) if not node or "[" in node else node)

    def seen(self, line: RawLine) -> When:
        """When a line was read."""
        seen = times.observed(line, self._node, self._batch)
        return seen if seen is times.UNKNOWN else self._measured(seen, self._node)

    def _stamped(self, line: RawLine, stamp: Stamp, node: str, boot_ns: int | None = None) -> When | None:
        """When a line with a stamp was written, or None where the stamp cannot be true."""
        read_ns = line.observed_time_unix_nano or None
        said = self._said
        learns = not stamp.has_zone and not said.zone_is_stated
        if learns and read_ns is not None and self._memory.zone.hear(stamp, read_ns, said.zone_s):
            self._believe_zone()
        when = times.stamped(
            stamp, self._dating, None if stamp.has_year else self._hint(stamp), node, self._batch, source=self._source,
            read_ns=None if stamp.has_date and self._dating.year is not None else read_ns, boot_ns=boot_ns,
        )  # fmt: skip
        if when is times.UNKNOWN:
            return None
        wall_ns, when = when.raw_ns, self._measured(when, node)
        # A stamp from after the line was read is of another zone or another clock, unless that was set back since; when
        # it was read is certain.
        if read_ns and wall_ns and wall_ns > read_ns + times.FUTURE_NS and when.monotonic_raw_ns is None:
            return None
        if not stamp.has_year:
            self._memory.dated_ns = wall_ns
        return when

    def _hint(self, stamp: Stamp) -> int | None:
        """A time near that of a stamp without a year or date, where one is known."""
        since = self._memory.since
        last_ns = since.raw_ns if since.aligned_ns is not None else None
        first_ns = self._dating.near_ns
        if not stamp.has_date and last_ns is not None:
            return last_ns
        # A stamp with a year may be a part of the text; those that leave it out go by their own kind.
        if self._memory.dated_ns is not None:
            return self._memory.dated_ns
        return last_ns if first_ns is None else first_ns

    def _believe_zone(self) -> None:
        """The zone by which lines were read when they were written stands in for one that nobody states."""
        said, zone_s = self._said, self._memory.zone.zone_s
        if zone_s is None or said.zone_is_stated:
            self._dating = said
        else:
            self._dating = msgspec.structs.replace(said, zone_s=zone_s, other_zones_s=())

    def _clock_node(self, parsed: ParsedLine) -> str:
        """Whose wall clock stamped the line; a source that names no machine has a clock of its own."""
        return parsed.node or self._node or f"{self._batch.reporter}/{self._source}"
