"""The lines of one source in one batch become events, with time, subject and job."""

from typing import Final

import msgspec
from msgspec import Struct, field

from pipeline.core import keys, times
from pipeline.core.clocks.node import NodeClock
from pipeline.core.episodes import LASTING, PROGRESS
from pipeline.core.here import Here, Recent
from pipeline.core.line_reader import line_reader
from pipeline.core.parse import ParsedLine, parse_line
from pipeline.core.partials import Joined
from pipeline.core.readings import TELEMETRY
from pipeline.core.routes import CONTROL, Route, route_of
from pipeline.core.source_clock import SourceClock, SourceMemory
from pipeline.core.speakers import Speakers
from pipeline.core.stated import stated
from pipeline.core.statements import Statement, Statements
from pipeline.core.times import SECOND_NS, When
from pipeline.core.told_jobs import ENDED, GPU_LEFT, GPU_USED, RANK_ENDED, Named
from pipeline.core.wrapped import wrapped_of
from schemas.records import TIME_MAX_NS, Entity, Event, Gap, PlacementSpan, Printer, RawBatch, RawLine
from schemas.signals import Match, SignalSet

# An agent that is new on a node finds weeks of logs: what is older than this at first sight is recorded, never alerted.
FIRST_SIGHT_NS: Final = 900 * SECOND_NS
PREFIX_CHARACTERS: Final = 256
BODY_CHARACTERS: Final = 2_000
CUT_MARK: Final = " …[cut]"


class Ended(Struct, frozen=True, kw_only=True, gc=False):
    """A job on a node, or one rank of it, that is over."""

    key: str
    node: str
    at_ns: int
    rank: int | None = None


class Pass(Struct, kw_only=True):
    """What one record produces: events by key, gaps, spans, which jobs are new, cover more time or are over.

    `uses`: the GPUs of processes, by node and pid; None where it is left.
    `relays`: events of a control plane, which are for the nodes that they speak of.
    """

    now_ns: int
    events: dict[str, list[Event]] = field(default_factory=dict)
    gaps: list[Gap] = field(default_factory=list)
    new_jobs: list[str] = field(default_factory=list)
    widened: set[str] = field(default_factory=set)
    spans: list[tuple[str, str, PlacementSpan]] = field(default_factory=list)
    ended: list[Ended] = field(default_factory=list)
    uses: list[tuple[str, int, Entity | None]] = field(default_factory=list)
    placed: bool = False
    closed: list[str] = field(default_factory=list)
    relays: list[tuple[Route, Event]] = field(default_factory=list)


class Fold(Struct, kw_only=True, gc=False):
    """Lines that say the same in one second: where their event is, how many came after it, and when the last one did.

    `until_ns` is reference time.
    """

    place: int
    count: int = 0
    until_ns: int = 0


class SourceReader:
    """Reads the lines of one source in one batch."""

    def __init__(
        self, signals: SignalSet, batch: RawBatch, source: str, memory: SourceMemory, here: Here,
        arrival: When | None, out: Pass, clock: NodeClock | None = None,
    ) -> None:  # fmt: skip
        self._signals = signals
        self._lines = line_reader(signals)
        self._statements = Statements(signals, memory.pending)
        self._batch = batch
        self._source = source
        self._memory = memory
        self._here = here
        self._out = out
        self._said, wrong = stated(batch.source_attributes.get(source, {}))
        self.node = batch.reporter if self._said.node is None else self._said.node
        self._clock = SourceClock(batch, source, memory, self.node, self._said.dating, arrival, clock)
        if memory.seen_ns == 0:
            memory.seen_ns = out.now_ns
            out.gaps.extend(Gap(source=source, node=batch.reporter, reason=f"attribute {text}") for text in wrong)
        self._speakers = Speakers(batch, self.node, self._said.rank)
        self._folded: dict[tuple[str | None, str, str, int | None, Entity, Printer, int | None], Fold] = {}
        self._last_of: dict[int, int] = {}
        self._near: dict[str, int] = {}
        self._events: list[tuple[str | None, Event]] = []
        self._routes: dict[str, Route] = {}

    def read(self, lines: list[RawLine]) -> None:
        """Turn the lines into events and hand them to the keys they concern."""
        self._memory.heard_ns = self._out.now_ns
        self._declare_job()
        bound = self._here.jobs.get(self._memory.job or "")
        if bound is not None:
            bound.heard_ns = max(bound.heard_ns, self._out.now_ns)
        scanned = 0
        for index, line in enumerate(lines):
            if line.kernel_time_ns is not None:
                self._clock.relate(line)
            if not self._statements.wants(line.body):
                continue
            whole = self._statements.whole(line)
            if whole is None:
                continue
            parsed, match = self._lines.read(whole.line.body)
            if self._memory.pending.wrapped is not None:
                whole, parsed, match = self._unwrapped(whole, parsed, match)
            own = self._clock.own_time(whole.line, parsed)
            if own is None:
                self._remember_stamp(lines[scanned:index])
            elif own.raw_ns is not None:
                self._memory.since = own
            scanned = index + 1
            statements = self._statements.of(whole, parsed, match)
            if match is None and not statements and not self._statements.is_taken:
                self._hold(whole.line, parsed)
                self._near_miss(whole.line, parsed, own)
            for statement in statements:
                is_same = statement.parsed.stamp is parsed.stamp and statement.line.offset == whole.line.offset
                self._event(statement, own if is_same else self._clock.own_time(statement.line, statement.parsed))
        self._remember_stamp(lines[scanned:])
        self._cover(lines)
        self._deliver()

    def _unwrapped(
        self, whole: Joined, parsed: ParsedLine, match: Match | None
    ) -> tuple[Joined, ParsedLine, Match | None]:
        """The line, or the one that it is the rest of where only both together mean something."""
        pending = self._memory.pending
        head, pending.wrapped = pending.wrapped, None
        if head is None or match is not None or not head.goes_on(whole.line, parsed):
            return whole, parsed, match
        for line in head.joined(whole.line):
            again, found = self._lines.read(line.body)
            if found is not None:
                return Joined(line, True), again, found
        if head.grow(next(head.joined(whole.line)), whole.line):
            pending.wrapped = head
        return whole, parsed, match

    def _hold(self, line: RawLine, parsed: ParsedLine) -> None:
        """Keep a line that says nothing by itself and may have been broken off."""
        if self._said.kind == "application" and self._memory.pending.wrapped is None:
            self._memory.pending.wrapped = wrapped_of(line, parsed)

    def finish(self) -> None:
        """Say what the lines began, where no more of them comes."""
        self._declare_job()
        wholes, statements = self._statements.rest()
        for whole in wholes:
            parsed, match = self._lines.read(whole.line.body)
            statements += self._statements.of(whole, parsed, match)
        for statement in statements:
            self._event(statement, self._clock.own_time(statement.line, statement.parsed))
        self._deliver()

    def _declare_job(self) -> None:
        """The job that the source itself states, by its attributes."""
        if self._said.job_id:
            self._bind(self._said.job_id, self._said.attempt)
            job = self._here.jobs[self._memory.job or ""]
            if self._said.kind != "application":
                job.always = True
            elif self._said.undated and not job.undated:
                job.undated = True
                self._out.widened.add(self._memory.job or "")

    def _bind(self, job_id: str, attempt: int) -> None:
        run = keys.run_prefix(self._batch.run, self._batch.run_id)
        key = keys.job_key(run, self._batch.cluster, job_id, attempt)
        self._memory.job = key
        _, is_new = self._here.job(key, job_id, attempt, self._out.now_ns)
        if is_new:
            self._out.new_jobs.append(key)
            self._out.widened.add(key)

    # --- where the job was ----------------------------------------------------------------------------------------

    def _remember_stamp(self, lines: list[RawLine]) -> None:
        """The last stamp among lines that nobody parsed, so that the next line without one has a lower bound."""
        for line in reversed(lines):
            own = self._clock.own_time(line, parse_line(line.body))
            if own is not None and own.raw_ns is not None:
                self._memory.since = own
                return

    def _cover(self, lines: list[RawLine]) -> None:
        """Widen the time that the source's job is known to have been here."""
        key = self._memory.job
        if key is None or self._said.kind != "application":
            return
        job = self._here.jobs[key]
        first = self._first_stamp(lines) if job.first_ns == TIME_MAX_NS else self._memory.since
        seen = [when.aligned_ns for when in (first, self._memory.since)]
        if seen == [None, None]:
            # Nothing in it is stamped: it was here when it was read.
            seen = [self._clock.seen(line).aligned_ns for line in (lines[0], lines[-1])]
        open_end = self._clock.own_time(lines[-1], parse_line(lines[-1].body)) is None
        if open_end and not job.open_end:
            job.open_end = True
            self._out.widened.add(key)
        for at_ns in seen:
            if at_ns is not None and job.widen(at_ns):
                self._out.widened.add(key)

    def _first_stamp(self, lines: list[RawLine]) -> When:
        for line in lines:
            own = self._clock.own_time(line, parse_line(line.body))
            if own is not None and own.aligned_ns is not None:
                return own
        return times.UNKNOWN

    # --- events ---------------------------------------------------------------------------------------------------

    def _event(self, statement: Statement, own: When | None) -> None:
        statement = self._as_stated(statement)
        line, parsed, match, _ = statement
        if match.role == "noise" or match.by.told_by not in ("", self._said.kind):
            return
        when = own or self._clock.said_at(line, parsed, match)
        when = when or self._clock.unstamped(line, parsed)
        self._bind_as_told(when)
        if match.event == "nccl.init":
            self._bind_by_communicator(match)
        elif match.event == "nccl.end":
            self._note_end(match, when)
        key = self._named(match, when) if match.by.names_job else self._memory.job
        self._was_here(match, when)
        self._ended_here(statement)
        subject, printer = self._speakers.of(parsed, self._spoken_of(line, match.subject))
        second = None if when.raw_ns is None else when.raw_ns // SECOND_NS
        # Lines that say who runs where are each a fact of their own place in the file.
        tells = match.placement or match.event == "env.variable"
        # Of readings that say no time each one counts.
        is_reading = second is None and match.label == TELEMETRY
        said = "" if match.one_per_second and not is_reading else parsed.body[:BODY_CHARACTERS]
        name = (key, match.event, said, second, subject, printer, line.offset if tells else None)
        fold = self._folded.get(name)
        keeps_last = match.label == PROGRESS or (match.one_per_second and match.role in LASTING)
        if fold is None:
            self._folded[name] = Fold(place=len(self._events))
        elif not keeps_last:
            fold.count += parsed.count or 1
            fold.until_ns = max(fold.until_ns, when.aligned_ns or 0)
            return
        event = self._build(statement, when, subject, printer)
        if self._said.kind == CONTROL:
            self._routes[event.event_id] = route_of(line.attributes, subject.node)
        if fold is not None:
            self._fold_last(fold.place, event)
            return
        self._place(event, match, key)
        self._events.append((key, event))

    def _spoken_of(self, line: RawLine, said: Entity) -> Entity:
        """The subject of a line of a control plane: where the line names no node, the one that it is about."""
        node = line.attributes.get("node", "") if self._said.kind == CONTROL else ""
        return said if said.node or not node or "[" in node or "," in node else msgspec.structs.replace(said, node=node)

    def _fold_last(self, place: int, event: Event) -> None:
        """The first and the last stay: what was going on, had ended or changed shows in the last one."""
        key, _ = self._events[place]
        last = self._last_of.get(place)
        if last is None:
            self._last_of[place] = len(self._events)
            self._events.append((key, event))
            return
        self._events[last] = (key, msgspec.structs.replace(event, count=self._events[last][1].count + event.count))

    def _count(self) -> None:
        """Note in each event how many lines it stands for."""
        for fold in self._folded.values():
            if fold.count:
                key, first = self._events[fold.place]
                folded = msgspec.structs.replace(
                    first, count=first.count + fold.count, until_unix_nano=fold.until_ns or None
                )
                self._events[fold.place] = (key, folded)

    def _near_miss(self, line: RawLine, parsed: ParsedLine, own: When | None) -> None:
        """Count a line with a hint that no pattern fits: for people (`sql/queries/near_misses.sql`), for no verdict."""
        match = self._signals.near_miss(parsed.body)
        if match is None:
            return
        place = self._near.get(match.attributes["signal"])
        if place is not None:
            key, first = self._events[place]
            self._events[place] = (key, msgspec.structs.replace(first, count=first.count + 1))
            return
        self._near[match.attributes["signal"]] = len(self._events)
        when = own or self._clock.unstamped(line, parsed)
        statement = Statement(line, parsed, match, match.attributes["signal"])
        event = self._build(statement, when, *self._speakers.of(parsed, match.subject))
        self._events.append((self._memory.job, msgspec.structs.replace(event, alerts=False)))

    def _as_stated(self, statement: Statement) -> Statement:
        """With what the source says of its printer, where the prefixes of the line do not."""
        if not self._said.printer:
            return statement
        missing = {name: value for name, value in self._said.printer.items() if getattr(statement.parsed, name) is None}
        if not missing:
            return statement
        return statement._replace(parsed=msgspec.structs.replace(statement.parsed, **missing))

    def _build(self, statement: Statement, when: When, subject: Entity, printer: Printer) -> Event:
        batch = self._batch
        line, parsed, match, identity = statement
        cut = line.truncated or len(parsed.body) > BODY_CHARACTERS
        body = parsed.body[:BODY_CHARACTERS] + (CUT_MARK if cut else "")
        return Event(
            event_id=keys.digest(batch.cluster, batch.reporter, self._source, line.generation, line.offset, identity),
            name=match.event, node=subject.node or "", source=self._source, generation=line.generation,
            offset=line.offset, line_no=line.line_no, body=body, prefix=_prefix(line, parsed),
            clock_id=when.clock_id, raw_ns=when.raw_ns, resolution_ns=when.resolution_ns, seq=line.seq,
            observed_time_unix_nano=line.observed_time_unix_nano,
            aligned_time_unix_nano=when.aligned_ns, lo_unix_nano=when.lo_ns, hi_unix_nano=when.hi_ns,
            source_kind=self._said.kind, quality=when.quality, kernel=when.kernel, inferred=list(when.inferred),
            monotonic_raw_ns=when.monotonic_raw_ns, monotonic_raw_width_ns=when.monotonic_raw_width_ns,
            u99_ns=when.u99_ns, clock_epoch=when.epoch, reference_broker=when.broker_id,
            alerts=self._alerts(when), severity=match.severity, label=match.label, role=match.role,
            scope=match.scope,
            subject=subject, printer=printer, attributes=match.attributes,
            count=parsed.count or 1,
        )  # fmt: skip

    def _bind_by_communicator(self, match: Match) -> None:
        """The last resort for a job key: the id of the first communicator, which is the world's."""
        comm = match.attributes.get("comm_id")
        if self._memory.job is None and comm:
            self._bind(f"comm-{comm}", 0)

    def _bind_as_told(self, when: When) -> None:
        """Lines of an application that nobody gives to a job are of the only one that the scheduler says is here."""
        memory, at_ns = self._memory, when.aligned_ns
        if self._said.kind != "application" or at_ns is None or (memory.job is not None and not memory.by_time):
            return
        if memory.job is not None and self._here.jobs[memory.job].may_be_of(at_ns):
            return
        job = self._here.only_told(at_ns)
        if job is not None:
            self._bind(job.job_id, job.attempt)
            memory.by_time = True

    def _named(self, match: Match, when: When) -> str:
        """The key of the job attempt that a line of the agent names; what it says of its time here is noted."""
        prefix = keys.run_prefix(self._batch.run, self._batch.run_id) + self._batch.cluster
        named = Named(self._here, match, prefix, when.aligned_ns, self._out.now_ns)
        if self.node not in named.job.nodes:
            named.job.nodes.append(self.node)
        if named.is_new:
            self._out.new_jobs.append(named.key)
        if named.is_new or named.is_wider:
            self._out.widened.add(named.key)
        return named.key

    def _note_end(self, match: Match, when: When) -> None:
        """A communicator that is destroyed, not aborted: the job ends in peace, unless it prints on."""
        job = self._here.jobs.get(self._memory.job or "")
        if job is not None and match.attributes.get("kind") == "Destroy" and when.aligned_ns is not None:
            job.ended_ns = max(job.ended_ns, when.aligned_ns)

    def _was_here(self, match: Match, when: When) -> None:
        """A rank that waited for so long was here for so long."""
        ran_ms, at_ns = match.attributes.get("ran_for_ms", ""), when.aligned_ns
        key = self._memory.job
        if key is None or at_ns is None or not ran_ms.isdecimal() or len(ran_ms) > 9:
            return
        if self._here.jobs[key].widen(at_ns - int(ran_ms) * 1_000_000):
            self._out.widened.add(key)

    def _ended_here(self, statement: Statement) -> None:
        """Where no line has a stamp, a launcher's table of failures may say when a rank ended."""
        key, (line, parsed, match, _) = self._memory.job, statement
        said = self._clock.said_at(line, parsed, match, by="time") if self._said.undated else None
        if key is not None and said and said.aligned_ns is not None and self._here.jobs[key].widen(said.aligned_ns):
            self._out.widened.add(key)

    def _place(self, event: Event, match: Match, key: str | None) -> None:
        """Note who runs where, and the line that says so; and who ended, and which process uses which GPU."""
        subject, said = event.subject, event.attributes
        if subject.node is None:
            return
        if match.by.told_by and match.event in (GPU_USED, GPU_LEFT) and said.get("pid", "").isdecimal():
            # A process that is dead and holds memory still has a state; it is no rank any more.
            is_used = match.event == GPU_USED and "state" not in said
            self._out.uses.append((subject.node, int(said["pid"]), subject if is_used else None))
        if key is None or not match.placement:
            return
        if match.event in (ENDED, RANK_ENDED):
            at_ns = event.aligned_time_unix_nano or event.observed_time_unix_nano
            self._out.ended.append(Ended(key=key, node=subject.node, at_ns=at_ns, rank=subject.rank))
            return
        world, numbered = said.get("nranks"), said.get("rank")
        rank = int(numbered) if world and numbered else subject.rank
        # A number in an environment may be of a node; the rank in a part of a communicator is none of the job.
        if match.event == "env.variable" or "parent" in said or (rank is None and not match.by.names_job):
            return
        world = said.get("world_size", world) if match.by.names_job else world
        job = self._here.jobs[key]
        here_ns = event.aligned_time_unix_nano
        # What tells of a trouble, as a launcher's table of failures, says until when a rank was here, not since when.
        was_here = match.role != "context"
        span = PlacementSpan(
            job_id=job.job_id, attempt=job.attempt, start_unix_nano=0 if was_here else here_ns or 0,
            end_unix_nano=here_ns if was_here else None,
            rank=rank, local_rank=subject.local_rank, world_size=int(world) if world else None,
            pid=subject.pid, gpu_uuid=subject.gpu_uuid, pci_bus_id=subject.pci_bus_id, gpu_index=subject.gpu_index,
            owner=said.get("user") if match.by.told_by else None,
            scheduler=said.get("scheduler") if match.by.told_by else None,
            source=f"{event.source}:{event.line_no or event.offset}",
        )  # fmt: skip
        self._out.spans.append((key, subject.node, span))

    def _deliver(self) -> None:
        """Lines of a job go to the job; lines of the node to every job they may concern, else to the node's own key."""
        self._count()
        batch, out = self._batch, self._out
        run = keys.run_prefix(batch.run, batch.run_id)
        for key, event in self._events:
            route = self._routes.get(event.event_id)
            if route is not None and route.nodes:
                out.relays.append((route, event))
                continue
            if key is not None and (self._said.kind == "application" or key != self._memory.job):
                out.events.setdefault(key, []).append(event)
                continue
            own = [key] if key is not None else []
            targets = own or self._here.covering(event, batch.reporter)
            targets = targets or [keys.node_key(run, batch.cluster, event.node or batch.reporter, batch.boot_id)]
            for target in targets:
                out.events.setdefault(target, []).append(event)
            # Measurements come all the time: they would crowd out the faults that a job has yet to hear of.
            if event.label != TELEMETRY:
                self._here.recent.append(Recent(event=event, arrived_ns=out.now_ns, sent_to=targets))

    def _alerts(self, when: When) -> bool:
        """Whether an event may open an incident: not what an agent finds of the past at first sight."""
        if self._batch.run != "live" or when.aligned_ns is None:
            return True
        return when.hi_ns >= self._memory.seen_ns - FIRST_SIGHT_NS


def _prefix(line: RawLine, parsed: ParsedLine) -> str:
    """What was taken off the front of a line, where nothing else of it was changed."""
    body = parsed.body
    if not line.body.endswith(body) or len(line.body) - len(body) > PREFIX_CHARACTERS:
        return ""
    return line.body[: len(line.body) - len(body)]
