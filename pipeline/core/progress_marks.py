"""Marks of progress of one job attempt, folded into little: a hang that prints nothing shows in marks that stop.

The limit is max(3 times the slow-step time, 120 s), more in known phases and at the start. Time moves by what was read,
never by silence: the job stalls where the sources of its marks were read past the newest mark and the limit. What was
read to its end is no proof by itself, as a copy of a log ends somewhere: then another dated line of the job, or one of
a kernel about a process that hangs, must stand behind the limit. It may also be an excerpt: of writers with fewer than
five marks nothing is concluded. A job that says within the limit that it ends or fails, whose bar is full, or whose
file is gone does not stall. The first new mark takes a stall back.

The lines of one source arrive in their order; all else is a minimum, a maximum or a sum, so that the order of arrival
of sources does not matter. Times are reference time in ns.
"""

from collections.abc import Collection, Mapping
from typing import Final, NamedTuple

import msgspec
from msgspec import Struct, field

from pipeline.core.marks import (
    HANGS,
    LEAST_NS,
    MARKS,
    RECORDS,
    SECOND_NS,
    SLOW_FACTOR,
    STALLED,
    UNKNOWN_NS,
    Gaps,
    Writer,
    ends,
    phase_of,
    position,
    writer_of,
)
from pipeline.core.order import canonical
from schemas.records import TIME_MAX_NS, Entity, Event, Printer

# A phase that was seen so often has a usual time; its limit is not shorter than this.
MIN_PHASES: Final = 3
PHASE_LEAST_NS: Final = 300 * SECOND_NS
# What is told so shortly before the newest mark belongs to it: clocks differ, and ranks run on.
NEAR_NS: Final = 60 * SECOND_NS
# Clocks of nodes without a claim agree within this.
CLOCKS_NS: Final = 10 * SECOND_NS
# So many ranks may have stopped before the others; of more nobody is the odd one. Ranks that wait for each other run on
# for a few steps; a log that ends earlier was cut, or its rank prints no more.
MAX_FIRST: Final = 4
MAX_AHEAD: Final = 10

MAX_WRITERS: Final = 20_000
MAX_ENDS: Final = 1_024
END_BUCKET_NS: Final = 10 * SECOND_NS
BODY_CHARACTERS: Final = 500


class Reader(NamedTuple):
    """How far the reporter of some marks was read. `is_out`: silent, or its clock is wrong; nobody waits for it."""

    through_ns: int
    ended: bool
    is_out: bool


class Deadline(Struct, array_like=True):
    """From when on, and for how long, a silence is none. `phase`: a known one, empty while the job trains.

    `lag_ns`: how much later marks may be read; `is_sure`: the step time rests on enough marks to judge a log that ends.
    """

    since_ns: int
    limit_ns: int
    lag_ns: int
    is_sure: bool
    phase: str = ""

    @property
    def end_ns(self) -> int:
        """When it has passed."""
        return self.since_ns + self.limit_ns

    @property
    def at_ns(self) -> int:
        """How far the marks must be read until that is known."""
        return self.end_ns + self.lag_ns


class Stall(Struct, frozen=True):
    """Marks that stopped, as an event with the newest mark's line, and the writers that stopped before all others."""

    event: Event
    stopped_first: frozenset[str]


class ProgressMarks(Struct, kw_only=True):
    """The fold. Its size depends on the number of writers, not of marks.

    `newest_ns`: the newest mark or phase; `told_ns`: the newest dated line that proves that time went on; `ended`: when
    ends were told, the first of every 10 s; `phases`: the newest of each source, and `pauses`: how long marks waited in
    them; `carriers`: the sources with marks of each reporter, and `unread` those of them that are not read now.
    """

    writers: dict[str, Writer] = field(default_factory=dict)
    last: Event | None = None
    newest_ns: int = 0
    phases: dict[str, tuple[int, str]] = field(default_factory=dict)
    pauses: dict[str, Gaps] = field(default_factory=dict)
    ended: dict[int, int] = field(default_factory=dict)
    told_ns: int = 0
    carriers: dict[str, list[str]] = field(default_factory=dict)
    unread: dict[str, list[str]] = field(default_factory=dict)
    deadline: Deadline | None = None
    is_stale: bool = True

    # --- taking -----------------------------------------------------------------------------------------------------

    def take(self, event: Event, reporter: str) -> bool:
        """Take one event of the job; whether it is news of progress, of a phase or of an end."""
        at_ns = event.aligned_time_unix_nano
        if at_ns is None or event.hi_unix_nano >= TIME_MAX_NS:
            return False
        is_own = event.source_kind == "application"
        if is_own or event.name in HANGS:
            self.told_ns = max(self.told_ns, event.lo_unix_nano)
        news = ends(event) and self._end(at_ns)
        if is_own and event.name in MARKS:
            news = self._mark(event, at_ns, reporter) or news
        phase = phase_of(event) if is_own else ""
        if phase:
            news = self._enter(f"{reporter}\x1f{event.source}", at_ns, phase) or news
        self.is_stale = self.is_stale or news
        return news

    def hear(self, reporter: str, sources: Collection[str]) -> None:
        """Take the names of the sources that a reporter reads now; none means that it does not say."""
        mine = self.carriers.get(reporter, []) if sources else []
        gone = [source for source in mine if source not in sources]
        if gone != self.unread.get(reporter, []):
            self.unread[reporter] = gone
            self.is_stale = True

    def _end(self, at_ns: int) -> bool:
        bucket = at_ns // END_BUCKET_NS
        if at_ns < self.newest_ns - NEAR_NS or self.ended.get(bucket, TIME_MAX_NS) <= at_ns:
            return False
        self.ended[bucket] = at_ns
        if len(self.ended) > MAX_ENDS:
            del self.ended[sorted(self.ended)[MAX_ENDS // 2]]
        return True

    def _enter(self, of_source: str, at_ns: int, phase: str) -> bool:
        before = self.phases.get(of_source, (0, ""))
        if (at_ns, phase) <= before or (not before[0] and len(self.phases) >= MAX_WRITERS):
            return False
        self.phases[of_source] = (at_ns, phase)
        self._move(at_ns)
        return True

    def _mark(self, event: Event, at_ns: int, reporter: str) -> bool:
        name = writer_of(event)
        writer = self.writers.get(name)
        if writer is None:
            if len(self.writers) >= MAX_WRITERS:
                return False
            writer = self.writers[name] = Writer(reporter, event.source, event.subject.rank)
            carried = self.carriers.setdefault(reporter, [])
            if event.source not in carried and event.source != RECORDS:
                carried.append(event.source)
        if not writer.went_on(event):
            return False
        phase_ns, phase = self.phases.get(f"{reporter}\x1f{event.source}", (0, ""))
        phase = phase if phase_ns >= writer.last_ns else ""
        took_ns = writer.take(event, at_ns, phase)
        if took_ns:
            self.pauses.setdefault(phase, Gaps()).add(took_ns)
        if self.last is None or _later(event, self.last):
            self.last = event if len(event.body) <= BODY_CHARACTERS else _cut(event)
        self._move(at_ns)
        return True

    def _move(self, at_ns: int) -> None:
        if at_ns <= self.newest_ns:
            return
        self.newest_ns = at_ns
        if self.ended:
            self.ended = {bucket: end for bucket, end in self.ended.items() if end >= at_ns - NEAR_NS}

    # --- concluding -------------------------------------------------------------------------------------------------

    def may_be_due(self, through_ns: int) -> bool:
        """Whether what was read so far may reach past the limit. Costs nothing while the job goes on."""
        if self.last is None or through_ns < self.newest_ns + LEAST_NS:
            return False
        return self.is_stale or (self.deadline is not None and through_ns >= self.deadline.at_ns)

    def has_stopped(self, readers: Mapping[str, Reader]) -> bool:
        """Whether the reading shows that marks stopped. `readers`: by name, all who carry marks."""
        if self.is_stale:
            self.deadline, self.is_stale = self._deadline(), False
        return self.deadline is not None and self._has_passed(self.deadline, readers)

    def stall(self, readers: Mapping[str, Reader]) -> Stall | None:
        """The stall that the reading shows, where it does."""
        if not self.has_stopped(readers) or self.deadline is None:
            return None
        return Stall(event=self._event(self.deadline), stopped_first=self._stopped_first())

    def _has_passed(self, deadline: Deadline, readers: Mapping[str, Reader]) -> bool:
        """Whether each who is still read was read past it, and one at least was; or the lines themselves go past it."""
        at_ns, past = deadline.at_ns, False
        told = deadline.is_sure and self.told_ns >= deadline.end_ns
        for reader in readers.values():
            here = reader.through_ns >= at_ns or (reader.ended and told)
            if not here and not reader.ended and not reader.is_out:
                return False
            past = past or here
        return past

    def _deadline(self) -> Deadline | None:
        """When the silence after the newest mark is too long; None where nobody waits for another mark."""
        if self.last is None or not self.last.alerts:
            return None
        last_ns = max(writer.last_ns for writer in self.writers.values())
        near = [writer for writer in self.writers.values() if writer.last_ns >= last_ns - NEAR_NS]
        # Who missed one mark is still of those by whose pace the silence is judged; who stopped long before is not.
        current = [writer for writer in near if 2 * writer.slow_ns >= max(last_ns - writer.last_ns, 1)]
        if not current or any(writer.is_full or self._is_unread(writer) for writer in near):
            return None
        warm = [writer for writer in current if writer.is_warm]
        limit_ns, slack_ns = min(writer.limit_ns for writer in warm or current), NEAR_NS
        since_ns, phase = self._phase(last_ns)
        if phase:
            limit_ns = max(limit_ns, self._phase_limit_ns(phase))
            # What starts again was told to end before.
            slack_ns = 0 if phase == "init" else NEAR_NS
        lag_ns = max(writer.lag_ns for writer in current)
        deadline = Deadline(max(since_ns, last_ns), limit_ns, lag_ns, bool(warm), phase)
        first_ns, past_ns = deadline.since_ns - slack_ns, deadline.end_ns
        return None if any(first_ns <= end <= past_ns for end in self.ended.values()) else deadline

    def _phase(self, last_ns: int) -> tuple[int, str]:
        """The newest phase that no later mark of its own source ends, and since when; others may run on a little."""
        marked: dict[str, int] = {}
        for writer in self.writers.values():
            of_source = f"{writer.reporter}\x1f{writer.source}"
            marked[of_source] = max(marked.get(of_source, 0), writer.last_ns)
        lasting = [
            (at_ns, phase)
            for of_source, (at_ns, phase) in self.phases.items()
            if at_ns >= last_ns - NEAR_NS and at_ns >= marked.get(of_source, last_ns - CLOCKS_NS)
        ]
        return max(lasting, default=(0, ""))

    def _is_unread(self, writer: Writer) -> bool:
        return writer.source in self.unread.get(writer.reporter, ())

    def _phase_limit_ns(self, phase: str) -> int:
        known = self.pauses.get(phase)
        if known is None or known.total < MIN_PHASES or phase in ("init", "compile"):
            return UNKNOWN_NS
        return max(SLOW_FACTOR * known.slow_ns, PHASE_LEAST_NS)

    def _event(self, deadline: Deadline) -> Event:
        """The stall began at some time between the newest mark and the limit."""
        assert self.last is not None
        last, width_ns = self.last, deadline.end_ns - (self.last.aligned_time_unix_nano or 0)
        step, _ = position(last)
        attributes = {"limit_s": str(deadline.limit_ns // SECOND_NS)}
        if step is not None:
            attributes["last_step"] = str(step)
        if deadline.phase:
            attributes["phase"] = deadline.phase
        # The line's place in its file does not order what is concluded from it.
        return msgspec.structs.replace(
            last, name=STALLED, generation=f"{last.generation} stalled", role="symptom", severity="error", scope="job",
            resolution_ns=last.resolution_ns + width_ns, hi_unix_nano=last.hi_unix_nano + width_ns,
            until_unix_nano=None, kernel=None, count=1, subject=Entity(), printer=Printer(), attributes=attributes,
        )  # fmt: skip

    def _stopped_first(self) -> frozenset[str]:
        """The few writers of ranks or tasks that missed a mark which the others still made."""
        ranks: dict[str, tuple[int, str]] = {}
        for name, writer in self.writers.items():
            if writer.is_warm and _is_of_rank(name, writer):
                who = name if writer.rank is None else f"rank {writer.rank}"
                ranks[who] = max(ranks.get(who, (0, "")), (writer.last_ns, name))
        if len(ranks) < 2:
            return frozenset()
        newest = self.writers[max(ranks.values())[1]]
        behind = frozenset(name for _, name in ranks.values() if _is_behind(self.writers[name], newest))
        return behind if len(behind) <= MAX_FIRST and 2 * len(behind) < len(ranks) else frozenset()


def _is_of_rank(name: str, writer: Writer) -> bool:
    """Whether the lines say of which rank or task they are."""
    return writer.rank is not None or bool(name.split("\x1f")[3])


def _is_behind(writer: Writer, newest: Writer) -> bool:
    """Whether it missed a mark that it would have made before the newest one: by its steps, else by time."""
    if writer.step is not None and newest.step is not None and writer.stride > 0:
        return 1 <= (newest.step - writer.step) / writer.stride <= MAX_AHEAD
    gone_ns = newest.last_ns - writer.last_ns
    return 2 * writer.slow_ns + CLOCKS_NS < gone_ns <= MAX_AHEAD * writer.slow_ns + CLOCKS_NS


def _later(event: Event, other: Event) -> bool:
    at_ns, other_ns = event.aligned_time_unix_nano or 0, other.aligned_time_unix_nano or 0
    return (at_ns, canonical(event)) > (other_ns, canonical(other))


def _cut(event: Event) -> Event:
    return msgspec.structs.replace(event, body=f"{event.body[:BODY_CHARACTERS]} …[cut]")
