"""Align, keyed by reporter: raw lines become events on one timeline, sent to the jobs they concern.

One `NodeFold` holds what is known of one reporter: how far each shipper was read (a re-sent batch is dropped), what
its sources carry from line to line, which jobs run there and since when, and the recent events of the node itself
(kernel, services) so that a job that becomes known late still gets them, with the same ids.
"""

from collections.abc import Iterable
from typing import Final

import msgspec
from msgspec import Struct, field

from pipeline.core import times
from pipeline.core.keys import digest, job_key, node_key
from pipeline.core.outputs import Output
from pipeline.core.parse import ParsedLine, parse_line
from pipeline.core.times import SECOND_NS, When
from schemas import topics
from schemas.records import (
    TIME_MAX_NS,
    TIME_MIN_NS,
    Entity,
    Event,
    EventBatch,
    Gap,
    NodeProgress,
    Placement,
    PlacementSpan,
    Progress,
    RawBatch,
    RawLine,
    SourceProgress,
)
from schemas.signals import Match, SignalSet
from schemas.vocabulary import Run, SourceState

# A fault of the node may come before the job prints its first line, and the job may hang in silence for the longest
# default time-out (30 min) before it prints the next one.
BEFORE_JOB_NS: Final = 600 * SECOND_NS
AFTER_JOB_NS: Final = 2_400 * SECOND_NS
RECENT_EVENTS: Final = 2_000
# Carried blocks are short; more attributes than this are not a block.
MAX_CARRIED: Final = 16
BODY_CHARACTERS: Final = 2_000
CUT_MARK: Final = " …[cut]"


class SourceMemory(Struct, kw_only=True):
    """What one source carries from line to line."""

    since: When = times.UNKNOWN
    job: str | None = None
    blocks: dict[str, dict[str, str]] = field(default_factory=dict)


class JobHere(Struct, kw_only=True):
    """A job attempt on this node, and the time its lines cover (reference ns)."""

    job_id: str
    attempt: int
    first_ns: int = TIME_MAX_NS
    last_ns: int = TIME_MIN_NS
    always: bool = False

    def covers(self, event: Event) -> bool:
        """Whether an event of the node may concern this job."""
        if self.always or self.first_ns == TIME_MAX_NS or event.aligned_time_unix_nano is None:
            return True
        return self.first_ns - BEFORE_JOB_NS <= event.hi_unix_nano and event.lo_unix_nano <= self.last_ns + AFTER_JOB_NS


class Recent(Struct, kw_only=True):
    """An event of the node itself and the keys it was sent to."""

    event: Event
    sent_to: list[str]


class NodeState(Struct, kw_only=True):
    """The whole state of one reporter; goes into a snapshot as it is."""

    run: Run = "live"
    run_id: str = ""
    shippers: dict[str, int] = field(default_factory=dict)
    active_shipper: str = ""
    conflicts: list[str] = field(default_factory=list)
    clock_faults: list[str] = field(default_factory=list)
    sources: dict[str, SourceMemory] = field(default_factory=dict)
    jobs: dict[str, JobHere] = field(default_factory=dict)
    recent: list[Recent] = field(default_factory=list)
    spans: dict[str, PlacementSpan] = field(default_factory=dict)
    node_keys: list[str] = field(default_factory=list)
    speaks_of_itself: bool = False
    last: RawBatch | None = None
    progress: Progress | None = None


class Pass:
    """What one record produces, collected by key."""

    def __init__(self) -> None:
        self.events: dict[str, list[Event]] = {}
        self.backfill: dict[str, list[Event]] = {}
        self.gaps: list[Gap] = []
        self.new_jobs: list[str] = []
        self.placed = False


class NodeFold:
    """Align's fold of one `cluster/reporter`."""

    def __init__(self, signals: SignalSet, state: NodeState | None = None) -> None:
        self._signals = signals
        self._state = state or NodeState()

    @property
    def wants_snapshot(self) -> bool:
        """Nothing here is worth a snapshot out of turn."""
        return False

    def snapshot(self) -> bytes:
        """The state as bytes."""
        return msgspec.json.encode(self._state)

    @classmethod
    def restore(cls, signals: SignalSet, data: bytes) -> "NodeFold":
        """The fold that `snapshot` described."""
        return cls(signals, msgspec.json.decode(data, type=NodeState))

    def apply(self, record: object, *, now_ns: int) -> Iterable[Output]:
        """Take one record of the raw topic. `now_ns` is the broker's time of the message."""
        if isinstance(record, RawBatch):
            return self._batch(record, now_ns)
        if isinstance(record, Progress):
            return self._progress(record, now_ns)
        if isinstance(record, Placement):
            return self._placement(record)
        return []

    # --- lines ----------------------------------------------------------------------------------------------------

    def _batch(self, batch: RawBatch, now_ns: int) -> list[Output]:
        state = self._state
        state.run, state.run_id = batch.run, batch.run_id
        out = Pass()
        if batch.batch_seq <= state.shippers.get(batch.shipper_id, 0):
            return []
        self._watch_shippers(batch, out)
        state.shippers[batch.shipper_id] = batch.batch_seq
        state.last = msgspec.structs.replace(batch, records=[], source_attributes={}, clock_samples=[], gaps=[])
        fault = times.clock_fault(batch.run, batch.clock.wall_ns, now_ns)
        if fault and fault.split()[-1] not in state.clock_faults:
            state.clock_faults.append(fault.split()[-1])
            out.gaps.append(Gap(source="clock", node=batch.reporter, reason=f"the clock of {batch.reporter} {fault}"))
        arrival = times.arrived(now_ns) if fault else None
        for source, lines in _by_source(batch).items():
            SourceReader(self._signals, state, batch, source, arrival).read(lines, out)
        out.gaps.extend(msgspec.structs.replace(gap, node=gap.node or batch.reporter) for gap in batch.gaps)
        return self._send(batch, out)

    def _watch_shippers(self, batch: RawBatch, out: Pass) -> None:
        """A shipper that speaks again after another one took over: two are alive under one name."""
        state = self._state
        if batch.shipper_id == state.active_shipper:
            return
        pair = " and ".join(sorted((batch.shipper_id, state.active_shipper)))
        if batch.shipper_id in state.shippers and pair not in state.conflicts:
            state.conflicts.append(pair)
            reason = f"conflict: shippers {pair} are both alive as {batch.cluster}/{batch.reporter}; stop one"
            out.gaps.append(Gap(source="shipper", node=batch.reporter, reason=reason))
        state.active_shipper = batch.shipper_id

    def _send(self, batch: RawBatch, out: Pass) -> list[Output]:
        """Event batches for every key concerned, late placement included."""
        state = self._state
        self._backfill(out)
        keys = dict.fromkeys([*out.backfill, *out.events])
        if out.gaps:
            keys.update(dict.fromkeys(state.jobs or [node_key(batch.cluster, batch.reporter, batch.boot_id)]))
        outputs = []
        for key in keys:
            for events, backfill in ((out.backfill.get(key, []), True), (out.events.get(key, []), False)):
                gaps = out.gaps if not backfill else []
                if events or gaps:
                    outputs.append(self._event_batch(batch, key, events, gaps, backfill))
        if out.placed:
            outputs.extend(self._publish_placement(batch.cluster, batch.reporter))
        if out.new_jobs and state.progress:
            outputs.extend(self._node_progress(state.progress, out.new_jobs))
        return outputs

    def _event_batch(self, batch: RawBatch, key: str, events: list[Event], gaps: list[Gap], backfill: bool) -> Output:
        job = self._state.jobs.get(key)
        if job is None and key not in self._state.node_keys:
            self._state.node_keys.append(key)
        record = EventBatch(
            run=batch.run, run_id=batch.run_id, cluster=batch.cluster, reporter=batch.reporter, job_key=key,
            boot_id=batch.boot_id, shipper_id=batch.shipper_id, batch_seq=batch.batch_seq,
            job_id=job.job_id if job else None, attempt=job.attempt if job else 0,
            node=batch.reporter if self._state.speaks_of_itself else None,
            machine_id=batch.machine_id, events=events, gaps=gaps, backfill=backfill,
        )  # fmt: skip
        return Output(topic=topics.EVENTS.name, key=key.encode(), record=record)

    def _backfill(self, out: Pass) -> None:
        """Recent events of the node that a job covers by now and did not get yet."""
        state = self._state
        fresh = {event.event_id for events in out.events.values() for event in events}
        for recent in state.recent:
            for key, job in state.jobs.items():
                if key not in recent.sent_to and job.covers(recent.event):
                    recent.sent_to.append(key)
                    bucket = out.events if recent.event.event_id in fresh else out.backfill
                    bucket.setdefault(key, []).append(recent.event)
        del state.recent[:-RECENT_EVENTS]

    # --- progress and placement -----------------------------------------------------------------------------------

    def _progress(self, progress: Progress, now_ns: int) -> list[Output]:
        state = self._state
        state.run, state.run_id = progress.run, progress.run_id
        if times.clock_fault(progress.run, progress.clock.wall_ns, now_ns):
            # A source's claimed time never moves a watermark.
            progress = msgspec.structs.replace(
                progress, sources=[msgspec.structs.replace(s, read_through_unix_nano=0) for s in progress.sources]
            )
        state.progress = progress
        reporting = (source.attributes.get("node", progress.reporter) for source in progress.sources)
        state.speaks_of_itself = state.speaks_of_itself or progress.reporter in reporting
        return self._node_progress(progress, [*state.jobs, *state.node_keys])

    def _node_progress(self, progress: Progress, keys: list[str]) -> list[Output]:
        offset_ns = progress.clock_claim.offset_ns if progress.clock_claim else 0
        read_ns = min((s.read_through_unix_nano for s in progress.sources if s.state == "on"), default=0)
        through_ns = read_ns + offset_ns if read_ns else 0
        record = NodeProgress(
            run=progress.run, run_id=progress.run_id, cluster=progress.cluster, reporter=progress.reporter, job_key="",
            node=progress.reporter if self._state.speaks_of_itself else "", through_unix_nano=through_ns,
            ended=progress.ended, kinds=_kinds(progress.sources), sources=sorted(s.source for s in progress.sources),
        )  # fmt: skip
        return [
            Output(topic=topics.EVENTS.name, key=key.encode(), record=msgspec.structs.replace(record, job_key=key))
            for key in keys
        ]

    def _placement(self, placement: Placement) -> list[Output]:
        """What another reporter's lines say about who runs here."""
        out = Pass()
        for span in placement.spans:
            key = job_key(placement.cluster, span.job_id, span.attempt)
            if key not in self._state.jobs:
                self._state.jobs[key] = JobHere(job_id=span.job_id, attempt=span.attempt)
                out.new_jobs.append(key)
            job = self._state.jobs[key]
            if span.start_unix_nano:
                job.first_ns = min(job.first_ns, span.start_unix_nano)
                job.last_ns = max(job.last_ns, span.start_unix_nano)
        # Where nothing of this node was read yet, its first batch brings the job along.
        return self._send(self._state.last, out) if self._state.last else []

    def _publish_placement(self, cluster: str, reporter: str) -> list[Output]:
        """The node's own list to everybody; what concerns other nodes to their own reporters."""
        state = self._state
        by_node: dict[str, list[PlacementSpan]] = {}
        for name, span in state.spans.items():
            by_node.setdefault(name.split("\x1f")[0], []).append(span)
        outputs = []
        for node, spans in sorted(by_node.items()):
            record = Placement(run=state.run, run_id=state.run_id, cluster=cluster, node=node, spans=spans)
            topic = topics.PLACEMENT.name if node == reporter else topics.RAW.name
            outputs.append(Output(topic=topic, key=topics.key_of(cluster, node), record=record))
        return outputs


class SourceReader:
    """Reads the lines of one source in one batch."""

    def __init__(
        self, signals: SignalSet, state: NodeState, batch: RawBatch, source: str, arrival: When | None
    ) -> None:
        self._signals = signals
        self._state = state
        self._batch = batch
        self._source = source
        self._arrival = arrival
        self._attributes = batch.source_attributes.get(source, {})
        self._node = self._attributes.get("node", batch.reporter)
        self._kind = self._attributes.get("kind", "application")
        self._memory = state.sources.setdefault(source, SourceMemory())
        # A job's output on a login node speaks of others only: its reporter is no node of the job.
        state.speaks_of_itself = state.speaks_of_itself or self._node == batch.reporter
        self._folded: dict[tuple[str, str, int | None], int] = {}
        self._events: list[tuple[str | None, Event]] = []

    def read(self, lines: list[RawLine], out: Pass) -> None:
        """Turn the lines into events and hand them to the keys they concern."""
        self._declare_job(out)
        scanned = 0
        for index, line in enumerate(lines):
            if not self._signals.hit(line.body):
                continue
            parsed = parse_line(line.body)
            own = self._own_time(line, parsed)
            if own is None:
                self._remember_stamp(lines[scanned:index])
            elif own.raw_ns is not None:
                self._memory.since = own
            scanned = index + 1
            match = self._signals.match(parsed.body)
            if match is not None:
                self._event(line, parsed, own, match, out)
        self._remember_stamp(lines[scanned:])
        self._cover(lines, out)
        self._deliver(out)

    def _declare_job(self, out: Pass) -> None:
        """The job that the source itself states, by its attributes."""
        job_id = self._attributes.get("job.id")
        if not job_id:
            return
        attempt = int(self._attributes.get("job.attempt", "0"))
        self._bind(job_id, attempt, out, always=self._kind != "application")

    def _bind(self, job_id: str, attempt: int, out: Pass, *, always: bool = False) -> None:
        key = job_key(self._batch.cluster, job_id, attempt)
        self._memory.job = key
        if key not in self._state.jobs:
            self._state.jobs[key] = JobHere(job_id=job_id, attempt=attempt)
            out.new_jobs.append(key)
        if always:
            self._state.jobs[key].always = True

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
            hint = self._memory.since.raw_ns or line.observed_time_unix_nano or None
            when = times.stamped(parsed.stamp, self._attributes, hint, node, self._batch)
            return None if when is times.UNKNOWN else when
        if parsed.boot_ns is not None:
            return times.kernel_time(parsed.boot_ns, 1_000, node, self._batch)
        return None

    def _clock_node(self, parsed: ParsedLine) -> str:
        """Whose wall clock stamped the line; a source that names no machine has a clock of its own."""
        return parsed.node or self._node or f"{self._batch.reporter}/{self._source}"

    def _remember_stamp(self, lines: list[RawLine]) -> None:
        """The last stamp among lines that nobody parsed, so that the next line without one has a lower bound."""
        for line in reversed(lines):
            own = self._own_time(line, parse_line(line.body))
            if own is not None and own.raw_ns is not None:
                self._memory.since = own
                return

    def _cover(self, lines: list[RawLine], out: Pass) -> None:
        """Widen the time that the source's job is known to have been here."""
        if self._memory.job is None or self._kind != "application":
            return
        job = self._state.jobs[self._memory.job]
        first = self._first_stamp(lines) if job.first_ns == TIME_MAX_NS else self._memory.since
        for when in (first, self._memory.since):
            if when.aligned_ns is not None:
                job.first_ns = min(job.first_ns, when.aligned_ns)
                job.last_ns = max(job.last_ns, when.aligned_ns)

    def _first_stamp(self, lines: list[RawLine]) -> When:
        for line in lines:
            own = self._own_time(line, parse_line(line.body))
            if own is not None and own.aligned_ns is not None:
                return own
        return times.UNKNOWN

    # --- events ---------------------------------------------------------------------------------------------------

    def _event(self, line: RawLine, parsed: ParsedLine, own: When | None, match: Match, out: Pass) -> None:
        completed = self._completed(parsed, match)
        if completed is None or completed.role == "noise":
            return
        when = own or times.unstamped(line, self._memory.since, self._clock_node(parsed), self._batch)
        event = self._build(line, parsed, when, completed)
        if match.event == "nccl.init":
            self._bind_by_communicator(event, out)
        self._place(event, match, out)
        second = None if when.raw_ns is None else when.raw_ns // SECOND_NS
        fold = (event.name, "", None) if completed.one_per_batch else (event.name, event.body, second)
        if fold in self._folded:
            place = self._folded[fold]
            key, first = self._events[place]
            self._events[place] = (key, msgspec.structs.replace(first, count=first.count + 1))
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
            event_id=digest(batch.cluster, batch.reporter, self._source, line.generation, line.offset, line.body),
            name=match.event, node=subject.node or "", source=self._source, generation=line.generation,
            offset=line.offset, line_no=line.line_no, body=body, clock_id=when.clock_id, raw_ns=when.raw_ns,
            resolution_ns=when.resolution_ns, seq=line.seq, observed_time_unix_nano=line.observed_time_unix_nano,
            aligned_time_unix_nano=when.aligned_ns, lo_unix_nano=when.lo_ns, hi_unix_nano=when.hi_ns,
            source_kind=self._kind, quality=when.quality, severity=match.severity, label=match.label, role=match.role,
            scope=match.scope,
            subject=subject, attributes=match.attributes,
        )  # fmt: skip

    def _subject(self, parsed: ParsedLine, match: Match) -> Entity:
        """Who the line speaks of: what it says itself, then what its prefixes say, then what its source is."""
        rank = self._attributes.get("rank")
        said = match.subject
        return msgspec.structs.replace(
            said,
            node=said.node or parsed.node or self._node or None,
            machine_id=said.machine_id or (self._batch.machine_id if self._node == self._batch.reporter else None),
            rank=_first(said.rank, parsed.rank, int(rank) if rank is not None else None),
            local_rank=_first(said.local_rank, parsed.local_rank),
            pid=_first(said.pid, parsed.pid),
        )

    def _bind_by_communicator(self, event: Event, out: Pass) -> None:
        """The last resort for a job key: the id of a communicator, taken to be the world's until a larger one comes."""
        comm = event.attributes.get("comm_id")
        if self._memory.job is None and comm:
            self._bind(f"comm-{comm.removeprefix('0x')}", 0, out)

    def _place(self, event: Event, match: Match, out: Pass) -> None:
        """Remember who runs where, and the line that says so."""
        subject, job = event.subject, self._state.jobs.get(self._memory.job or "")
        world, numbered = event.attributes.get("nranks"), event.attributes.get("rank")
        rank = int(numbered) if world and numbered else subject.rank
        if not match.placement or job is None or subject.node is None or rank is None:
            return
        span = PlacementSpan(
            job_id=job.job_id, attempt=job.attempt, start_unix_nano=event.aligned_time_unix_nano or 0,
            rank=rank, local_rank=subject.local_rank, world_size=int(world) if world else None,
            pid=subject.pid, gpu_uuid=subject.gpu_uuid, pci_bus_id=subject.pci_bus_id, gpu_index=subject.gpu_index,
            source=f"{event.source}:{event.line_no or event.offset}",
        )  # fmt: skip
        name = "\x1f".join((subject.node, job.job_id, str(job.attempt), str(rank), world or ""))
        if name not in self._state.spans:
            self._state.spans[name] = span
            out.placed = True

    def _deliver(self, out: Pass) -> None:
        """Lines of a job go to the job; lines of the node to every job it covers, else to the node's own key."""
        state, batch = self._state, self._batch
        for key, event in self._events:
            if self._kind == "application" and key is not None:
                out.events.setdefault(key, []).append(event)
                continue
            covering = [job for job, here in state.jobs.items() if here.covers(event)]
            targets = covering or [node_key(batch.cluster, event.node or batch.reporter, batch.boot_id)]
            for target in targets:
                out.events.setdefault(target, []).append(event)
            state.recent.append(Recent(event=event, sent_to=targets))


def _by_source(batch: RawBatch) -> dict[str, list[RawLine]]:
    """Lines by source. Applications first: what they say of their job decides where the node's own lines go."""
    groups: dict[str, list[RawLine]] = {}
    for line in batch.records:
        groups.setdefault(line.source, []).append(line)

    def last_if_of_the_node(source: str) -> bool:
        return batch.source_attributes.get(source, {}).get("kind", "application") != "application"

    return {source: groups[source] for source in sorted(groups, key=last_if_of_the_node)}


def _kinds(sources: list[SourceProgress]) -> dict[str, SourceState]:
    """Per source kind: on where any source of it is on."""
    kinds: dict[str, SourceState] = {}
    for source in sources:
        if source.state == "on" or source.kind not in kinds:
            kinds[source.kind] = source.state
    return dict(sorted(kinds.items()))


def _first(*values: int | None) -> int | None:
    return next((value for value in values if value is not None), None)
