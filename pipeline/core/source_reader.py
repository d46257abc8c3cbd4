"""The lines of one source in one batch become events, with time, subject and job."""

from typing import Final

import msgspec
from msgspec import Struct, field

from pipeline.core import keys, times
from pipeline.core.here import Here, Recent
from pipeline.core.line_reader import line_reader
from pipeline.core.parse import ParsedLine, parse_line
from pipeline.core.times import SECOND_NS, When
from schemas.records import TIME_MAX_NS, Entity, Event, Gap, PlacementSpan, RawBatch, RawLine
from schemas.signals import Match, SignalSet

# An agent that is new on a node finds weeks of logs: what is older than this at first sight is recorded, never alerted.
FIRST_SIGHT_NS: Final = 900 * SECOND_NS
BODY_CHARACTERS: Final = 2_000
CUT_MARK: Final = " …[cut]"
# Carried blocks are short; more attributes than this are not a block.
MAX_CARRIED: Final = 16


class SourceMemory(Struct, kw_only=True):
    """What one source carries from line to line. `seen_ns`: broker time at which it was first heard of."""

    since: When = times.UNKNOWN
    job: str | None = None
    blocks: dict[str, dict[str, str]] = field(default_factory=dict)
    seen_ns: int = 0


class Pass(Struct, kw_only=True):
    """What one record produces: events by key, gaps, spans, which jobs are new, cover more time or are over."""

    now_ns: int
    events: dict[str, list[Event]] = field(default_factory=dict)
    gaps: list[Gap] = field(default_factory=list)
    new_jobs: list[str] = field(default_factory=list)
    widened: set[str] = field(default_factory=set)
    spans: list[tuple[str, str, PlacementSpan]] = field(default_factory=list)
    placed: bool = False
    closed: list[str] = field(default_factory=list)


class Stated(Struct, frozen=True, kw_only=True):
    """What the shipper's settings say of a source, checked."""

    kind: str = "application"
    node: str | None = None
    job_id: str = ""
    attempt: int = 0
    rank: int | None = None
    zone_s: int = 0
    year: int | None = None


def stated(attributes: dict[str, str]) -> tuple[Stated, list[str]]:
    """The attributes of a source as values, and what is wrong with those that are none."""
    wrong: list[str] = []

    def number(name: str) -> int | None:
        text = attributes.get(name)
        if text is None or (text.isascii() and text.isdigit() and len(text) < 10):
            return int(text) if text else None
        wrong.append(f"{name} = {text[:40]!r} is no number")
        return None

    zone = attributes.get("time.zone", "UTC")
    zone_s = times.zone_offset_s(zone)
    if zone_s is None:
        wrong.append(f"time.zone = {zone[:40]!r}; write it as +02:00")
    return Stated(
        kind=attributes.get("kind", "application"), node=attributes.get("node"), job_id=attributes.get("job.id", ""),
        attempt=number("job.attempt") or 0, rank=number("rank"), zone_s=zone_s or 0, year=number("time.year"),
    ), wrong  # fmt: skip


class SourceReader:
    """Reads the lines of one source in one batch."""

    def __init__(
        self, signals: SignalSet, batch: RawBatch, source: str, memory: SourceMemory, here: Here,
        arrival: When | None, out: Pass,
    ) -> None:  # fmt: skip
        self._signals = signals
        self._lines = line_reader(signals)
        self._batch = batch
        self._source = source
        self._memory = memory
        self._here = here
        self._arrival = arrival
        self._out = out
        self._said, wrong = stated(batch.source_attributes.get(source, {}))
        self.node = batch.reporter if self._said.node is None else self._said.node
        if memory.seen_ns == 0:
            memory.seen_ns = out.now_ns
            out.gaps.extend(Gap(source=source, node=batch.reporter, reason=f"attribute {text}") for text in wrong)
        self._folded: dict[tuple[str, str, int | None, Entity], int] = {}
        self._events: list[tuple[str | None, Event]] = []

    def read(self, lines: list[RawLine]) -> None:
        """Turn the lines into events and hand them to the keys they concern."""
        self._declare_job()
        bound = self._here.jobs.get(self._memory.job or "")
        if bound is not None:
            bound.heard_ns = max(bound.heard_ns, self._out.now_ns)
        scanned = 0
        for index, line in enumerate(lines):
            if not self._signals.hit(line.body):
                continue
            parsed, match = self._lines.read(line.body)
            own = self._own_time(line, parsed)
            if own is None:
                self._remember_stamp(lines[scanned:index])
            elif own.raw_ns is not None:
                self._memory.since = own
            scanned = index + 1
            if match is not None:
                self._event(line, parsed, own, match)
        self._remember_stamp(lines[scanned:])
        self._cover(lines)
        self._deliver()

    def _declare_job(self) -> None:
        """The job that the source itself states, by its attributes."""
        if self._said.job_id:
            self._bind(self._said.job_id, self._said.attempt)
            if self._said.kind != "application" and self._memory.job is not None:
                self._here.jobs[self._memory.job].always = True

    def _bind(self, job_id: str, attempt: int) -> None:
        run = keys.run_prefix(self._batch.run, self._batch.run_id)
        key = keys.job_key(run, self._batch.cluster, job_id, attempt)
        self._memory.job = key
        _, is_new = self._here.job(key, job_id, attempt, self._out.now_ns)
        if is_new:
            self._out.new_jobs.append(key)
            self._out.widened.add(key)

    # --- time -----------------------------------------------------------------------------------------------------

    def _own_time(self, line: RawLine, parsed: ParsedLine) -> When | None:
        """When this very line was written, or None where it does not say."""
        if self._arrival is not None:
            return self._arrival
        node = self._clock_node(parsed)
        when = times.transported(line, node, self._batch)
        if when is not None:
            return when
        if parsed.stamp is not None:
            since = self._memory.since
            hint = since.raw_ns if since.aligned_ns is not None else line.observed_time_unix_nano or None
            said = self._said
            when = times.stamped(parsed.stamp, said.year, said.zone_s, hint, node, self._batch)
            seen_ns = line.observed_time_unix_nano
            # A stamp from after the line was read is of another zone or another clock; when it was read is certain.
            is_later = bool(seen_ns) and when.raw_ns is not None and when.raw_ns > seen_ns + times.FUTURE_NS
            return None if when is times.UNKNOWN or is_later else when
        if parsed.boot_ns is not None:
            return times.kernel_time(parsed.boot_ns, 1_000, node, self._batch)
        return None

    def _clock_node(self, parsed: ParsedLine) -> str:
        """Whose wall clock stamped the line; a source that names no machine has a clock of its own."""
        return parsed.node or self.node or f"{self._batch.reporter}/{self._source}"

    def _remember_stamp(self, lines: list[RawLine]) -> None:
        """The last stamp among lines that nobody parsed, so that the next line without one has a lower bound."""
        for line in reversed(lines):
            own = self._own_time(line, parse_line(line.body))
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
            seen = [line.observed_time_unix_nano or None for line in (lines[0], lines[-1])]
        for at_ns in seen:
            if at_ns is not None and job.widen(at_ns):
                self._out.widened.add(key)

    def _first_stamp(self, lines: list[RawLine]) -> When:
        for line in lines:
            own = self._own_time(line, parse_line(line.body))
            if own is not None and own.aligned_ns is not None:
                return own
        return times.UNKNOWN

    # --- events ---------------------------------------------------------------------------------------------------

    def _event(self, line: RawLine, parsed: ParsedLine, own: When | None, match: Match) -> None:
        completed = self._completed(parsed, match)
        if completed is None or completed.role == "noise":
            return
        when = own or times.unstamped(line, self._memory.since, self._clock_node(parsed), self._batch)
        event = self._build(line, parsed, when, completed)
        if match.event == "nccl.init":
            self._bind_by_communicator(event)
        elif match.event == "nccl.end":
            self._note_end(event)
        self._place(event, match)
        second = None if when.raw_ns is None else when.raw_ns // SECOND_NS
        fold = (event.name, "" if completed.one_per_second else event.body, second, event.subject)
        if fold in self._folded:
            place = self._folded[fold]
            key, first = self._events[place]
            until_ns = max(first.until_unix_nano or 0, when.aligned_ns or 0) or None
            folded = msgspec.structs.replace(first, count=first.count + 1, until_unix_nano=until_ns)
            self._events[place] = (key, folded)
            return
        self._folded[fold] = len(self._events)
        self._events.append((self._memory.job, event))

    def _completed(self, parsed: ParsedLine, match: Match) -> Match | None:
        """The match with what earlier lines of its block said; None where the line itself only carries."""
        writer = f"{parsed.node}\x1f{parsed.rank}\x1f{parsed.task}"
        if match.carries is not None:
            block = self._memory.blocks.setdefault(f"{match.carries}\x1f{writer}", {})
            if len(block) < MAX_CARRIED or match.keeps:
                block.update(match.attributes)
            return match if match.keeps else None
        if match.takes is None:
            return match
        carried = self._memory.blocks.pop(f"{match.takes}\x1f{writer}", {})
        return self._signals.completed(match, carried)

    def _build(self, line: RawLine, parsed: ParsedLine, when: When, match: Match) -> Event:
        batch = self._batch
        subject = self._subject(parsed, match)
        cut = line.truncated or len(parsed.body) > BODY_CHARACTERS
        body = parsed.body[:BODY_CHARACTERS] + (CUT_MARK if cut else "")
        return Event(
            event_id=keys.digest(batch.cluster, batch.reporter, self._source, line.generation, line.offset, line.body),
            name=match.event, node=subject.node or "", source=self._source, generation=line.generation,
            offset=line.offset, line_no=line.line_no, body=body, clock_id=when.clock_id, raw_ns=when.raw_ns,
            resolution_ns=when.resolution_ns, seq=line.seq, observed_time_unix_nano=line.observed_time_unix_nano,
            aligned_time_unix_nano=when.aligned_ns, lo_unix_nano=when.lo_ns, hi_unix_nano=when.hi_ns,
            source_kind=self._said.kind, quality=when.quality,
            alerts=self._alerts(when), severity=match.severity, label=match.label, role=match.role,
            scope=match.scope,
            subject=subject, attributes=match.attributes,
        )  # fmt: skip

    def _subject(self, parsed: ParsedLine, match: Match) -> Entity:
        """Who the line speaks of: what it says itself, then what its prefixes say, then what its source is."""
        said = match.subject
        return msgspec.structs.replace(
            said,
            node=said.node or parsed.node or self.node or None,
            machine_id=said.machine_id or (self._batch.machine_id if self.node == self._batch.reporter else None),
            rank=_first(said.rank, parsed.rank, self._said.rank),
            local_rank=_first(said.local_rank, parsed.local_rank),
            pid=_first(said.pid, parsed.pid),
        )

    def _bind_by_communicator(self, event: Event) -> None:
        """The last resort for a job key: the id of the first communicator, which is the world's."""
        comm = event.attributes.get("comm_id")
        if self._memory.job is None and comm:
            self._bind(f"comm-{comm}", 0)

    def _note_end(self, event: Event) -> None:
        """A communicator that is destroyed, not aborted: the job ends in peace, unless it prints on."""
        job = self._here.jobs.get(self._memory.job or "")
        if job is not None and event.attributes.get("kind") == "Destroy" and event.aligned_time_unix_nano is not None:
            job.ended_ns = max(job.ended_ns, event.aligned_time_unix_nano)

    def _place(self, event: Event, match: Match) -> None:
        """Note who runs where, and the line that says so."""
        subject, key = event.subject, self._memory.job
        world, numbered = event.attributes.get("nranks"), event.attributes.get("rank")
        rank = int(numbered) if world and numbered else subject.rank
        if not match.placement or key is None or subject.node is None or rank is None:
            return
        job = self._here.jobs[key]
        span = PlacementSpan(
            job_id=job.job_id, attempt=job.attempt, start_unix_nano=event.aligned_time_unix_nano or 0,
            rank=rank, local_rank=subject.local_rank, world_size=int(world) if world else None,
            pid=subject.pid, gpu_uuid=subject.gpu_uuid, pci_bus_id=subject.pci_bus_id, gpu_index=subject.gpu_index,
            source=f"{event.source}:{event.line_no or event.offset}",
        )  # fmt: skip
        self._out.spans.append((key, subject.node, span))

    def _deliver(self) -> None:
        """Lines of a job go to the job; lines of the node to every job they may concern, else to the node's own key."""
        batch, out = self._batch, self._out
        run = keys.run_prefix(batch.run, batch.run_id)
        for key, event in self._events:
            if self._said.kind == "application" and key is not None:
                out.events.setdefault(key, []).append(event)
                continue
            own = [key] if key is not None else []
            targets = own or self._here.covering(event, batch.reporter)
            targets = targets or [keys.node_key(run, batch.cluster, event.node or batch.reporter, batch.boot_id)]
            for target in targets:
                out.events.setdefault(target, []).append(event)
            self._here.recent.append(Recent(event=event, arrived_ns=out.now_ns, sent_to=targets))

    def _alerts(self, when: When) -> bool:
        """Whether an event may open an incident: not what an agent finds of the past at first sight."""
        if self._batch.run != "live" or when.aligned_ns is None:
            return True
        return when.hi_ns >= self._memory.seen_ns - FIRST_SIGHT_NS


def _first(*values: int | None) -> int | None:
    return next((value for value in values if value is not None), None)
