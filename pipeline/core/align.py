"""Align, keyed by reporter: raw lines become events on one timeline, sent to the jobs they concern.

One `NodeFold` holds what is known of one reporter: how far each shipper was read (a re-sent batch is dropped), what
its sources carry from line to line, which jobs run there and since when, and the recent events of the node itself
(kernel, services) so that a job that becomes known late still gets them, with the same ids.
"""

from collections.abc import Iterable, Iterator
from typing import Final

import msgspec
from msgspec import Struct, field

from pipeline.core import keys, placing, relays, times
from pipeline.core.annotations import events_of
from pipeline.core.clocks.node import NodeClock
from pipeline.core.here import Here
from pipeline.core.outputs import Output
from pipeline.core.passed_on import is_due, passed_on, says_the_same, to_each
from pipeline.core.routes import CONTROL
from pipeline.core.segments import UNMEASURED_AGAIN_NS, segments_of, unmeasured
from pipeline.core.source_clock import SourceMemory
from pipeline.core.source_reader import Pass, SourceReader
from pipeline.core.stamps import EARLIEST_NS, LATEST_NS
from pipeline.core.times import When
from pipeline.core.trust import SENT_AGAIN, Judged, Trust, left_out, own_voice, released, why_old
from schemas import topics
from schemas.records import (
    Annotation,
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
    Relay,
    Release,
)
from schemas.signals import SignalSet

# Broker time after which the last lines of a file are taken for its end, for the time being.
REST_NS: Final = 5 * times.SECOND_NS
# Broker time after which a silent source is forgotten: files of pods have new names every time.
FORGET_SOURCE_NS: Final = 7 * times.DAY_NS
# Sources are read in this order, by kind; the others after them.
_TURNS: Final = {"telemetry": 0, "application": 1}


class NodeState(Struct, kw_only=True):
    """The whole state of one reporter; goes into a snapshot as it is."""

    shippers: dict[str, int] = field(default_factory=dict)
    active_shipper: str = ""
    conflicts: list[str] = field(default_factory=list)
    clock_fault: str = ""
    clock: NodeClock = field(default_factory=NodeClock)
    unmeasured_ns: int = 0
    sources: dict[str, SourceMemory] = field(default_factory=dict)
    here: Here = field(default_factory=Here)
    spans: dict[str, PlacementSpan] = field(default_factory=dict)
    gpus: dict[int, Entity] = field(default_factory=dict)
    node_keys: list[str] = field(default_factory=list)
    closing: list[str] = field(default_factory=list)
    speaks_of_itself: bool = False
    last: RawBatch | None = None
    progress: Progress | None = None
    passed: NodeProgress | None = None
    trust: Trust = field(default_factory=Trust)


class NodeFold:
    """Align's fold of one `cluster/reporter` (of one run)."""

    def __init__(self, signals: SignalSet, state: NodeState | None = None) -> None:
        self._signals = signals
        self._state = state or NodeState()

    @property
    def state(self) -> NodeState:
        """All that it knows."""
        return self._state

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
        if isinstance(record, Judged):
            return self._judged(record, now_ns)
        if isinstance(record, RawBatch):
            return self._batch(record, now_ns)
        if isinstance(record, Progress):
            return self._progress(record, now_ns)
        if isinstance(record, Placement):
            return self._placement(record, now_ns)
        if isinstance(record, Annotation):
            return self._annotation(record, now_ns)
        if isinstance(record, Relay):
            return self._relay(record, now_ns)
        return []

    # --- trust ----------------------------------------------------------------------------------------------------

    def _judged(self, judged: Judged, now_ns: int) -> list[Output]:
        """Take what is proven; of what is not, tell, and take it only where it counts all the same."""
        record = judged.record
        doubt = judged.doubt or why_old(record, self._state.trust, self._state.shippers, now_ns)
        if doubt:
            told = self._tell_left_out(record, doubt, now_ns, counts=judged.counts)
            return [*told, *self.apply(record, now_ns=now_ns)] if judged.counts else told
        return self._release(record, now_ns) if isinstance(record, Release) else list(self.apply(record, now_ns=now_ns))

    def _tell_left_out(self, record: object, why: str, now_ns: int, *, counts: bool) -> list[Output]:
        """A gap for the jobs of the reporter, or for itself where nothing runs there. Nothing else is believed."""
        batch = record.batch if isinstance(record, Release) else record
        lines = len(batch.records) if isinstance(batch, RawBatch) and why != SENT_AGAIN else 0
        state, last = self._state, self._state.last
        reporter = last.reporter if last is not None else ""
        gap = left_out(state.trust, why, lines, now_ns, reporter, counts=counts)
        if gap is None or last is None:
            return []
        teller = msgspec.structs.replace(last, shipper_id="trust", batch_seq=now_ns)
        keys = list(state.here.jobs) or [_node_key(last, last.reporter)]
        return [self._event_batch(teller, key, [], [gap], backfill=False) for key in keys]

    def _release(self, release: Release, now_ns: int) -> list[Output]:
        """Read lines that a person lets count. Nothing is learned of the clock or the shipper that they came from."""
        batch = released(self._state.trust, release)
        out = Pass(now_ns=now_ns)
        seen_ns = max(1, batch.clock.wall_ns)
        batch, out.gaps = own_voice(batch)
        memories = {source: SourceMemory(seen_ns=seen_ns) for source in batch.source_attributes}
        for reader, lines in self._readers(batch, out, memories):
            reader.read(lines)
        for reader, _ in self._readers(batch, out, memories):
            reader.finish()  # no more of them comes
        return self._send(batch, out)

    # --- lines ----------------------------------------------------------------------------------------------------

    def _batch(self, batch: RawBatch, now_ns: int) -> list[Output]:
        state = self._state
        if batch.batch_seq <= state.shippers.get(batch.shipper_id, 0):
            return []
        out = Pass(now_ns=now_ns)
        self._watch_shippers(batch, out)
        closed = state.clock.hear(batch.boot_id, batch.clock, batch.clock_samples)
        self._watch_clock(batch, now_ns, out)
        batch, refused = own_voice(batch)
        out.gaps.extend(refused)
        for reader, lines in self._readers(batch, out, state.sources):
            # A job's output on a login node speaks of others only: its reporter is no node of the job.
            state.speaks_of_itself = state.speaks_of_itself or reader.node == batch.reporter
            reader.read(lines)
        out.gaps.extend(msgspec.structs.replace(gap, node=gap.node or batch.reporter) for gap in batch.gaps)
        self._forget(batch, out)
        state.shippers[batch.shipper_id] = batch.batch_seq
        state.last = msgspec.structs.replace(batch, records=[], source_attributes={}, clock_samples=[], gaps=[])
        return [*self._send(batch, out), *segments_of(batch, closed)]

    def _readers(
        self, batch: RawBatch, out: Pass, memories: dict[str, SourceMemory]
    ) -> Iterator[tuple[SourceReader, list[RawLine]]]:
        """A reader for each source of a batch, with the lines that it is to read."""
        arrival, clock = self._times(out.now_ns)
        for source, lines in _by_source(batch).items():
            memory = memories.setdefault(source, SourceMemory())
            yield SourceReader(self._signals, batch, source, memory, self._state.here, arrival, out, clock), lines

    def _times(self, now_ns: int) -> tuple[When | None, NodeClock | None]:
        """What times go by: the arrival where the clock cannot be right, else what is measured of it, if at all."""
        state = self._state
        if state.clock_fault:
            return times.arrived(now_ns), None
        return None, state.clock if state.clock.is_measured else None

    def _watch_shippers(self, batch: RawBatch, out: Pass) -> None:
        """A shipper that speaks again after another one took over: two are alive under one name."""
        state = self._state
        if batch.shipper_id == state.active_shipper or _is_of_control_plane(batch):
            return
        pair = " and ".join(sorted((batch.shipper_id, state.active_shipper)))
        if batch.shipper_id in state.shippers and pair not in state.conflicts:
            state.conflicts.append(pair)
            reason = f"conflict: shippers {pair} are both alive as {batch.cluster}/{batch.reporter}; stop one"
            out.gaps.append(Gap(source="shipper", node=batch.reporter, reason=reason))
        state.active_shipper = batch.shipper_id

    def _watch_clock(self, batch: RawBatch, now_ns: int, out: Pass) -> None:
        """Say once that the node's clock cannot be right; forget it when it is set."""
        fault = self._fault(batch, now_ns)
        if fault and not self._state.clock_fault:
            out.gaps.append(Gap(source="clock", node=batch.reporter, reason=f"the clock of {batch.reporter} {fault}"))
        self._state.clock_fault = fault

    def _fault(self, record: RawBatch | Progress, now_ns: int) -> str:
        """Why the node's wall clock cannot be believed. Where it is measured, it need only show a time that is one."""
        if self._state.clock.is_measured and EARLIEST_NS <= record.clock.wall_ns < LATEST_NS:
            return ""
        return times.clock_fault(record.run, record.clock.wall_ns, now_ns) or ""

    def _forget(self, batch: RawBatch, out: Pass) -> None:
        """Drop jobs and events that are over, sources that fell silent, and node keys of earlier boots."""
        state = self._state
        over, crowded = state.here.forget(out.now_ns)
        out.closed.extend(over)
        if crowded:
            reason = f"{crowded} older events of the node are not kept for jobs that become known later"
            out.gaps.append(Gap(source="align", node=batch.reporter, reason=reason))
        gone = {(key.rsplit("/", 2)[1], key.rsplit("/", 1)[1]) for key in over}
        state.spans = {n: s for n, s in state.spans.items() if (s.job_id, str(s.attempt)) not in gone}
        # What is replayed ended long ago by the broker's clock.
        placing.forget(state.spans, out.now_ns if batch.run == "live" else 0)
        state.sources = {
            name: memory
            for name, memory in state.sources.items()
            if memory.job not in over and out.now_ns - memory.heard_ns <= FORGET_SOURCE_NS
        }
        if state.last is not None and state.last.boot_id != batch.boot_id:
            out.closed.extend(state.node_keys)
            state.node_keys.clear()
            state.gpus.clear()  # numbers of processes begin anew

    def _send(self, batch: RawBatch, out: Pass) -> list[Output]:
        """Event batches for every key concerned, late placement included."""
        state = self._state
        self._place(batch, out)
        backfill: dict[str, list[Event]] = {}
        fresh = {event.event_id for events in out.events.values() for event in events}
        for key, events in state.here.late(out.widened, batch.reporter).items():
            for event in events:
                bucket = out.events if event.event_id in fresh else backfill
                bucket.setdefault(key, []).append(event)
        wanted = dict.fromkeys([*backfill, *out.events])
        if out.gaps:
            wanted.update(dict.fromkeys(state.here.jobs or [_node_key(batch, batch.reporter)]))
        outputs = []
        for key in wanted:
            if key in backfill:
                outputs.append(self._event_batch(batch, key, backfill[key], [], backfill=True))
            if key in out.events or out.gaps:
                outputs.append(self._event_batch(batch, key, out.events.get(key, []), out.gaps, backfill=False))
        if out.placed:
            outputs.extend(self._publish_placement(batch))
        if out.new_jobs and state.progress:
            outputs.extend(self._node_progress(state.progress, out.new_jobs, out.now_ns))
        state.closing.extend(out.closed)
        outputs += [*relays.sent(batch, out.relays), *relays.late(state.here, out.widened, batch)]
        return [*outputs, *self._close(out.now_ns)]

    def _close(self, now_ns: int) -> list[Output]:
        """Tell what is over here that no more will come; at the next progress where none is known yet."""
        state = self._state
        if not state.closing or state.progress is None:
            return []
        closing, state.closing = state.closing, []
        return self._node_progress(msgspec.structs.replace(state.progress, ended=True), closing, now_ns)

    def _event_batch(
        self, batch: RawBatch, key: str, events: list[Event], gaps: list[Gap], *, backfill: bool
    ) -> Output:
        job = self._state.here.jobs.get(key)
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

    # --- progress and placement -----------------------------------------------------------------------------------

    def _progress(self, progress: Progress, now_ns: int) -> list[Output]:
        state = self._state
        segments = self._hear(progress)
        state.clock_fault = self._fault(progress, now_ns)
        state.progress = progress
        reporting = (source.attributes.get("node", progress.reporter) for source in progress.sources)
        state.speaks_of_itself = state.speaks_of_itself or progress.reporter in reporting
        rest = self._rest(progress, now_ns)
        said, spans = self._passed_on(progress, now_ns), state.spans.values()
        is_news = not says_the_same(state.passed, said)
        wanted = [k for k, job in state.here.jobs.items() if is_news or is_due(job, spans, progress.reporter, now_ns)]
        state.passed = said
        for key in wanted:
            state.here.jobs[key].passed_ns = now_ns
        return [*rest, *to_each(said, [*wanted, *state.node_keys]), *segments, *self._close(now_ns)]

    def _hear(self, progress: Progress) -> list[Output]:
        """What the record says of the clocks; segments that have ended, or that nothing is measured."""
        state = self._state
        # Ahead of a backlog the reading is of a time after all that is still to come, whose own readings say more.
        heard = [] if progress.spool_backlog_bytes else state.clock.hear(progress.boot_id, progress.clock)
        segments = segments_of(progress, heard)
        for source in progress.sources:
            if source.kind == "kernel" and source.state == "on" and source.at_end:
                state.clock.note_read(progress.boot_id, source.read_through_unix_nano)
        if progress.run != "live" or state.clock.is_known:
            return segments
        if not 0 <= progress.clock.raw_ns - state.unmeasured_ns < UNMEASURED_AGAIN_NS:
            is_first = not 0 < state.unmeasured_ns <= progress.clock.raw_ns
            state.unmeasured_ns = progress.clock.raw_ns
            before = state.clock.is_measured
            segments.append(unmeasured(progress, state.clock_fault, before=before, is_first=is_first))
        return segments

    def _rest(self, progress: Progress, now_ns: int) -> list[Output]:
        """What the last lines of files began: once nothing more of it has come for a while."""
        state, out = self._state, Pass(now_ns=now_ns)
        if state.last is None:
            return []
        for source in progress.sources:
            memory = state.sources.get(source.source)
            if memory is None or not memory.pending.waits:
                continue
            if progress.ended or (source.at_end and now_ns - memory.heard_ns >= REST_NS):
                batch = msgspec.structs.replace(state.last, source_attributes={source.source: source.attributes})
                arrival, clock = self._times(now_ns)
                SourceReader(self._signals, batch, source.source, memory, state.here, arrival, out, clock).finish()
        self._place(state.last, out)
        # Its batch was sent: these events come to it late.
        late = [self._event_batch(state.last, key, said, [], backfill=True) for key, said in out.events.items()]
        return [*late, *(self._publish_placement(state.last) if out.placed else [])]

    def _node_progress(self, progress: Progress, wanted: list[str], now_ns: int) -> list[Output]:
        return to_each(self._passed_on(progress, now_ns), wanted)

    def _passed_on(self, progress: Progress, now_ns: int) -> NodeProgress:
        state = self._state
        clock = self._times(now_ns)[1]
        return passed_on(progress, clock, state.clock_fault, now_ns, is_of_node=state.speaks_of_itself)

    def _placement(self, placement: Placement, now_ns: int) -> list[Output]:
        """What another reporter's lines say about who runs here."""
        out = Pass(now_ns=now_ns)
        for span in placement.spans:
            run_key = keys.run_prefix(placement.run, placement.run_id)
            key = keys.job_key(run_key, placement.cluster, span.job_id, span.attempt)
            job, is_new = self._state.here.job(key, span.job_id, span.attempt, now_ns)
            if is_new:
                out.new_jobs.append(key)
            at_ns = span.start_unix_nano or span.end_unix_nano
            wider = at_ns is not None and at_ns != 0 and job.widen(at_ns)
            if is_new or wider:
                out.widened.add(key)
        # Where nothing of this node was read yet, its first batch brings the job along.
        return self._send(self._state.last, out) if self._state.last else []

    def _annotation(self, record: Annotation, now_ns: int) -> list[Output]:
        """A mark that a job sends by itself. What a rank sends again, or after something newer, is dropped."""
        state = self._state
        key = keys.job_key(keys.run_prefix(record.run, record.run_id), record.cluster, record.job_id, record.attempt)
        job, is_new = state.here.job(key, record.job_id, record.attempt, now_ns)
        job.widen(record.start_unix_nano)
        marks = list(events_of(record, state.last, *self._times(now_ns)))
        said = EventBatch(
            run=record.run, run_id=record.run_id, cluster=record.cluster, reporter=record.reporter, job_key=key,
            boot_id=state.last.boot_id if state.last else "", shipper_id=f"annotation/{record.rank}",
            batch_seq=record.start_unix_nano, job_id=record.job_id, attempt=record.attempt,
            node=record.node if record.node == record.reporter else None, events=marks,
        )  # fmt: skip
        outputs = [Output(topic=topics.EVENTS.name, key=key.encode(), record=said)]
        if is_new and state.progress:
            outputs += self._node_progress(state.progress, [key], now_ns)
        return outputs

    def _relay(self, record: Relay, now_ns: int) -> list[Output]:
        """What a control plane tells of this node and its jobs."""
        state = self._state
        outputs = relays.taken(state.here, record, state.last.boot_id if state.last else "", now_ns)
        for output in outputs:
            key = output.key.decode()
            if key not in state.here.jobs and key not in state.node_keys:
                state.node_keys.append(key)
        return outputs

    def _place(self, batch: RawBatch, out: Pass) -> None:
        """Remember who runs where, and the line that says so."""
        state = self._state
        for node, pid, entity in out.uses:
            if node == batch.reporter:
                out.placed = placing.use(state.gpus, state.spans, node, pid, entity) or out.placed
        for key, node, span in out.spans:
            if placing.add(state.spans, node, span, state.gpus if node == batch.reporter else {}):
                out.placed = True
            job = state.here.jobs.get(key)
            if job is not None and node not in job.nodes:
                job.nodes.append(node)
                out.widened.add(key)
        for ended in out.ended:
            job = state.here.jobs.get(ended.key)
            if job is not None and placing.end(state.spans, job, ended):
                out.placed = True

    def _publish_placement(self, batch: RawBatch) -> list[Output]:
        """The node's own list to everybody; what concerns other nodes to their own reporters."""
        by_node: dict[str, list[PlacementSpan]] = {}
        for name, span in self._state.spans.items():
            by_node.setdefault(name.split("\x1f")[0], []).append(span)
        outputs = []
        for node, spans in sorted(by_node.items()):
            record = Placement(run=batch.run, run_id=batch.run_id, cluster=batch.cluster, node=node, spans=spans)
            topic = topics.PLACEMENT.name if node == batch.reporter else topics.RAW.name
            key = topics.key_of(batch.run, batch.run_id, batch.cluster, node)
            outputs.append(Output(topic=topic, key=key, record=record))
        return outputs


def _is_of_control_plane(batch: RawBatch) -> bool:
    """Whether it comes from one of several agents that read one control plane in turn."""
    return bool(batch.records) and all(said.get("kind") == CONTROL for said in batch.source_attributes.values())


def _node_key(batch: RawBatch, node: str) -> str:
    return keys.node_key(keys.run_prefix(batch.run, batch.run_id), batch.cluster, node, batch.boot_id)


def _by_source(batch: RawBatch) -> dict[str, list[RawLine]]:
    """Lines by source. The agent and applications first: what they say of jobs decides where the node's lines go."""
    groups: dict[str, list[RawLine]] = {}
    for line in batch.records:
        groups.setdefault(line.source, []).append(line)

    def last_if_of_the_node(source: str) -> int:
        kind = batch.source_attributes.get(source, {}).get("kind", "application")
        return _TURNS.get(kind, len(_TURNS))

    return {source: groups[source] for source in sorted(groups, key=last_if_of_the_node)}
