"""Detect, keyed by job: a fold of episodes, facts and progress into verdicts.

One `Investigation` is one job attempt, or one boot of a node on which no job is known. What it concludes depends on
the set of events it was given, not on their order; it is published only when its content changes.
"""

from collections import Counter
from collections.abc import Iterable
from typing import Final

import msgspec
from msgspec import Struct, field

from pipeline.core import keys
from pipeline.core.causes import RuleSet
from pipeline.core.chains import Resolved
from pipeline.core.conclusion import Conclusion, Reported
from pipeline.core.contradictions import gaps_of
from pipeline.core.derived import SHOWN_AGAIN, is_measured, is_watched
from pipeline.core.episodes import Episode, Episodes, bouts, of_event
from pipeline.core.incidents import Frame, write
from pipeline.core.outputs import Output
from pipeline.core.placement import Facts, PlacementMap
from pipeline.core.placement_kept import PlacementKept
from pipeline.core.progress_marks import ProgressMarks, Reader
from pipeline.core.recurrence import elements_of
from pipeline.core.run_state import owner_of
from pipeline.core.verdict import conclude
from pipeline.core.watermark import SECOND_NS, NodeSeen, Reporters
from pipeline.core.witnesses import joined
from schemas import topics
from schemas.records import (
    DELIVERY_FIELDS,
    TIME_MAX_NS,
    Coverage,
    Event,
    EventBatch,
    Gap,
    Incident,
    Job,
    NodeProgress,
    Verdict,
)
from schemas.vocabulary import Run, VerdictState

# SIGTERM-to-SIGKILL chains take about a minute; after this much watermark without a further link a verdict settles.
SETTLE_NS: Final = 45 * SECOND_NS
# While lines pour in, a verdict over n episodes is worked out at most every n of these (broker time): small stories are
# told at once, and a storm does not keep the worker busy with itself. Progress records, every second, catch up.
PAUSE_PER_EPISODE_NS: Final = SECOND_NS // 2_000
PAUSE_PER_CLAIM_NS: Final = SECOND_NS // 20_000
# What is compared over time changes slowly: it is looked at so often, and seldom once something is said of it.
WATCH_NS: Final = 60 * SECOND_NS
WATCH_AGAIN_NS: Final = 600 * SECOND_NS
MAX_GAPS: Final = 100
# What comes late may come twice, after a worker was killed; that is soon after the first time.
MAX_BACKFILLED: Final = 10_000
# A node that was quiet for so long starts a new story.
BOUT_NS: Final = 3_600 * SECOND_NS


class Publication(Struct, kw_only=True):
    """What was published last under one verdict id."""

    content_hash: str
    last_ns: int = 0
    settled: bool = False
    withdrawn: bool = False
    unknown: bool = False


class InvestigationState(Struct, kw_only=True):
    """The whole state of one investigation; goes into a snapshot as it is.

    `computed_ns`: broker time when verdicts were worked out last; below 0 where they never were.
    """

    key: str
    cluster: str = ""
    run: Run = "live"
    run_id: str = ""
    job: Job | None = None
    read: dict[str, int] = field(default_factory=dict)
    backfilled: list[str] = field(default_factory=list)
    episodes: Episodes = field(default_factory=Episodes)
    facts: Facts = field(default_factory=Facts)
    reporters: dict[str, NodeSeen] = field(default_factory=dict)
    heard: dict[str, list[str]] = field(default_factory=dict)
    marks: ProgressMarks = field(default_factory=ProgressMarks)
    stalled: bool = False
    gaps: list[Gap] = field(default_factory=list)
    published: dict[str, Publication] = field(default_factory=dict)
    dirty: bool = False
    watching: bool = False
    computed_ns: int = -1
    seq: int = 0


class Investigation:
    """Detect's fold of one job attempt or node."""

    def __init__(self, rules: RuleSet, version: str, state: InvestigationState) -> None:
        self._rules = rules
        self._root_events = rules.root_events
        self._version = version
        self._state = state
        self._settled_now = False
        self._looked_ns = 0
        self._backfilled = set(state.backfilled)
        self._kept = PlacementKept()
        self._reporters = Reporters(state.reporters)
        self._is_node = keys.is_node_key(state.key, keys.run_of(state.key))

    @classmethod
    def new(cls, rules: RuleSet, version: str, key: str) -> "Investigation":
        """An empty investigation."""
        return cls(rules, version, InvestigationState(key=key))

    @classmethod
    def restore(cls, rules: RuleSet, version: str, data: bytes) -> "Investigation":
        """The investigation that `snapshot` described."""
        return cls(rules, version, msgspec.json.decode(data, type=InvestigationState))

    @property
    def wants_snapshot(self) -> bool:
        """True right after a verdict settled."""
        return self._settled_now

    def snapshot(self) -> bytes:
        """The state as bytes."""
        return msgspec.json.encode(self._state)

    def apply(self, record: object, *, now_ns: int) -> Iterable[Output]:
        """Take one record of the events topic. `now_ns` is the broker's time of the message."""
        self._settled_now = False
        self._state.seq += 1
        if isinstance(record, EventBatch):
            self._take_events(record, now_ns)
            return self._verdicts(now_ns) if self._due(now_ns) else []
        if isinstance(record, NodeProgress):
            return self._take_progress(record, now_ns)
        return []

    # --- taking ---------------------------------------------------------------------------------------------------

    def _take_events(self, batch: EventBatch, now_ns: int) -> None:
        state = self._state
        state.cluster, state.run, state.run_id = batch.cluster, batch.run, batch.run_id
        if batch.job_id is not None and state.job is None:
            state.job = Job(job_id=batch.job_id, attempt=batch.attempt)
        seen = self._reporters.seen(batch.reporter)
        seen.is_node = seen.is_node or batch.node is not None
        seen.said_ns = max(seen.said_ns, now_ns)
        shipper = f"{batch.reporter}/{batch.shipper_id}"
        if not batch.backfill and batch.batch_seq <= state.read.get(shipper, 0):
            return
        events = [event for event in batch.events if event.event_id not in self._backfilled]
        if batch.backfill:
            self._remember(event.event_id for event in events)
        else:
            state.read[shipper] = batch.batch_seq
        news = [not self._is_node and state.marks.take(event, batch.reporter) for event in events]
        events = [event for event in events if event.alerts]
        for event in events:
            if batch.node is None and event.node:
                self._hear(event)
            state.facts.learn(event)
            state.episodes.add(event, self._rules.coalescing)
        fresh_gaps = [gap for gap in batch.gaps if gap not in state.gaps]
        state.gaps = [*state.gaps, *fresh_gaps][:MAX_GAPS]
        # Marks of progress and placement alone fail nothing: they wait for a line that may.
        telling = any(event.role != "context" or event.name in self._root_events for event in events)
        telling = telling or (bool(state.published) and not all(map(is_measured, events)))
        telling = telling or (state.stalled and any(news))
        state.dirty = state.dirty or telling or bool(fresh_gaps)
        state.watching = state.watching or any(map(is_watched, events))

    def _remember(self, backfilled: Iterable[str]) -> None:
        """Note ids of events that came late."""
        known = self._state.backfilled
        known += backfilled
        del known[:-MAX_BACKFILLED]
        self._backfilled = set(known)

    def _hear(self, event: Event) -> None:
        """Remember that a node's lines come in a log of many nodes."""
        kinds = self._state.heard.setdefault(event.node, [])
        if event.source_kind not in kinds:
            kinds.append(event.source_kind)

    def _take_progress(self, progress: NodeProgress, now_ns: int) -> list[Output]:
        state = self._state
        state.cluster, state.run, state.run_id = progress.cluster, progress.run, progress.run_id
        seen = self._reporters.seen(progress.reporter)
        if (progress.as_of_unix_nano, progress.ended) < (seen.as_of_ns, seen.ended):
            # A worker that was killed says again what it said before.
            return []
        widened = self._reporters.take(progress, now_ns)
        # Who is silent is known only by progress: without a cause, progress itself may change the verdict.
        if state.published and (widened or any(p.unknown and not p.settled for p in state.published.values())):
            state.dirty = True
        self._look_at_marks(progress, now_ns)
        is_time = self._due(now_ns) or ((state.dirty or state.watching) and self._reporters.all_ended())
        is_time = is_time or self._may_settle(now_ns)
        if is_time:
            return self._verdicts(now_ns)
        if self._kept.is_due(state.facts, self._pause_ns, now_ns):
            self._placement(now_ns)
        return []

    def _placement(self, now_ns: int) -> PlacementMap:
        """Who runs where."""
        is_final = self._reporters.all_ended() or self._may_settle(now_ns)
        return self._kept.map(self._state.facts, self._reporting(), now_ns, final=is_final)

    def _look_at_marks(self, progress: NodeProgress, now_ns: int) -> None:
        """Marks that stopped are known by progress alone. At most once a second: the last progress always counts."""
        state, through_ns = self._state, self._state.reporters[progress.reporter].through_ns
        state.marks.hear(progress.reporter, progress.sources)
        if not state.marks.may_be_due(TIME_MAX_NS if progress.ended else through_ns):
            return
        if progress.ended or now_ns - self._looked_ns >= SECOND_NS:
            self._looked_ns = now_ns
            state.dirty = state.dirty or state.marks.has_stopped(self._mark_readers(now_ns)) != state.stalled

    def _mark_readers(self, now_ns: int) -> dict[str, Reader]:
        state, silent = self._state, set(self._reporters.silent(now_ns))
        return {
            name: Reader(seen.through_ns, seen.ended, name in silent or bool(seen.excluded))
            for name, seen in state.reporters.items() if name in state.marks.carriers
        }  # fmt: skip

    @property
    def _pause_ns(self) -> int:
        """How long nothing is worked out anew."""
        state = self._state
        return len(state.episodes.by_key) * PAUSE_PER_EPISODE_NS + len(state.facts.claims) * PAUSE_PER_CLAIM_NS

    def _due(self, now_ns: int) -> bool:
        state, pause_ns = self._state, self._pause_ns
        watch_ns = WATCH_AGAIN_NS if state.published else WATCH_NS
        if state.watching and now_ns - state.computed_ns >= watch_ns + pause_ns:
            return True
        return state.dirty and (state.computed_ns < 0 or now_ns - state.computed_ns >= pause_ns)

    def _may_settle(self, now_ns: int) -> bool:
        open_ones = [p.last_ns for p in self._state.published.values() if not p.settled and not p.withdrawn]
        if not open_ones:
            return False
        wanted_ns = min(open_ones) + SETTLE_NS
        return not self._reporters.hold(wanted_ns, now_ns) and self._reporters.watermark(now_ns) >= wanted_ns

    # --- verdicts -------------------------------------------------------------------------------------------------

    def _verdicts(self, now_ns: int) -> list[Output]:
        """Publish what changed since the last time, and withdraw what no longer stands."""
        state = self._state
        state.dirty, state.watching, state.computed_ns = False, False, now_ns
        verdicts = {verdict.verdict_id: (verdict, last_ns) for verdict, last_ns in self._conclude(now_ns)}
        outputs = []
        for verdict_id, (verdict, last_ns) in verdicts.items():
            last = state.published.get(verdict_id)
            settled = isinstance(verdict.incident, Incident) and verdict.incident.verdict == "settled"
            if last and last.settled and not settled and _settled_hash(verdict) == last.content_hash:
                # A reporter that speaks again opens nothing as long as it tells nothing new.
                continue
            if last is None or last.withdrawn or last.content_hash != verdict.content_hash:
                outputs.append(self._output(verdict, now_ns))
            self._settled_now = self._settled_now or (settled and not (last and last.settled))
            state.published[verdict_id] = Publication(
                content_hash=verdict.content_hash, last_ns=last_ns, settled=settled, unknown=is_unknown(verdict)
            )
        for verdict_id, last in state.published.items():
            if verdict_id not in verdicts and not last.withdrawn:
                last.withdrawn, last.settled = True, False
                gone = Verdict(verdict_id=verdict_id, job_key=state.key, withdrawn=True)
                outputs.append(self._output(gone, now_ns))
        return outputs

    def _output(self, verdict: Verdict, now_ns: int) -> Output:
        verdict = msgspec.structs.replace(verdict, as_of_unix_nano=now_ns, seq=self._state.seq)
        return Output(topic=topics.VERDICTS.name, key=self._state.key.encode(), record=verdict)

    def _conclude(self, now_ns: int) -> list[tuple[Verdict, int]]:
        """The verdicts that stand now, each with the reference time of its last linked event."""
        state = self._state
        placement = self._placement(now_ns)
        silent, stall = self._reporters.silent(now_ns), state.marks.stall(self._mark_readers(now_ns))
        state.stalled = stall is not None
        reported = Reported(
            through_ns=self._reporters.through(),
            all_ended=self._reporters.all_ended(),
            nodes=self._reporting(),
            silent=silent,
            stall=stall,
        )
        found = list(self._conclusions(placement, reported))
        if not found:
            return []
        watermark, nodes = self._reporters.watermark(now_ns), self._nodes(placement)
        frame = Frame(
            version=self._version, rules=self._rules, run=state.run, run_id=state.run_id, cluster=state.cluster,
            job=self._job(placement), nodes=nodes, verdict="provisional",
            episodes=[], known_ranks=sorted(placement.ranks), world_size=placement.world_size,
            coverage=self._coverage(placement, silent, nodes),
            gaps=[*state.gaps, *self._left_out(silent), *_doubts(placement)],
        )  # fmt: skip
        own_nodes = self._own_nodes(placement)
        verdicts = []
        named: Counter[str] = Counter()
        for episodes, conclusion in found:
            last_ns = max(step.item.episode.end_ns for step in conclusion.steps)
            settled: VerdictState = "settled" if watermark >= last_ns + SETTLE_NS else "provisional"
            frame = msgspec.structs.replace(frame, verdict=settled, episodes=episodes)
            suffix = self._suffix(conclusion)
            named[suffix] += 1
            # The same line at the same place of a rotated file: the second of its name.
            numbered = suffix if named[suffix] == 1 else f"{suffix} {named[suffix]}"
            verdicts.append((self._verdict(conclusion, frame, numbered, own_nodes), last_ns))
        return verdicts

    def _conclusions(self, placement: PlacementMap, reported: Reported) -> Iterable[tuple[list[Episode], Conclusion]]:
        """A job attempt fails once; a node lives long, and its failures are told apart by the quiet between them."""
        episodes = joined(self._state.episodes.sorted(), placement, self._rules.coalescing)
        if reported.stall is not None:
            episodes.append(of_event(reported.stall.event))
        for bout in bouts(episodes, BOUT_NS) if self._is_node else [episodes]:
            for conclusion in conclude(bout, placement, self._rules, reported):
                yield bout, conclusion

    def _left_out(self, silent: list[str]) -> list[Gap]:
        """The reporters that do not hold the watermark, and why."""
        why = dict.fromkeys(silent, "no progress for 60 s")
        why.update(self._reporters.excluded())
        gaps = [
            Gap(source="shipper", node=name, reason=f"{reason}; left out of the watermark")
            for name, reason in sorted(why.items())
        ]
        dropped = self._state.episodes.dropped
        if dropped:
            gaps.append(
                Gap(source="detect", reason="too many different events; the rest is not kept", lost_lines=dropped)
            )
        return gaps

    def _job(self, placement: PlacementMap) -> Job | None:
        job = self._state.job
        owner = owner_of(self._state.facts.variables.values())
        return msgspec.structs.replace(job, world_size=placement.world_size, owner=owner) if job else None

    def _coverage(self, placement: PlacementMap, silent: list[str], expected: list[str]) -> dict[str, Coverage]:
        """Per source kind: of all (expected) nodes of the job, how many are watched and which said nothing."""
        kinds = {kind for _, seen in self._reporters.nodes() for kind in seen.kinds} | {"kernel", "application"}
        watched = self._watched(placement, silent)
        coverage = {}
        for kind in sorted(kinds):
            missing = [node for node in expected if (node, kind) not in watched]
            coverage[kind] = Coverage(expected=len(expected), seen=len(expected) - len(missing), silent=missing)
        return coverage

    def _watched(self, placement: PlacementMap, silent: list[str]) -> set[tuple[str, str]]:
        """The nodes and kinds of which lines come: by the node's own reporter, or in somebody else's log."""
        left_out = set(silent)
        watched = {
            (placement.name(name), kind)
            for name, seen in self._state.reporters.items() if name not in left_out
            for kind, state in seen.kinds.items() if state == "on"
        }  # fmt: skip
        return watched | {(placement.name(name), kind) for name, kinds in self._state.heard.items() for kind in kinds}

    def _nodes(self, placement: PlacementMap) -> list[str]:
        """The nodes of the investigation: those that report, those that ranks run on, those that lines speak of."""
        return sorted({*self._own_nodes(placement), *(placement.name(name) for name in self._state.heard)})

    def _own_nodes(self, placement: PlacementMap) -> list[str]:
        """The nodes that report themselves or that ranks run on: not those that only some line speaks of."""
        return sorted({placement.name(name) for name in (*self._reporting(), *placement.nodes())})

    def _reporting(self) -> list[str]:
        """The nodes that report themselves."""
        return sorted(name for name, _ in self._reporters.nodes())

    def _suffix(self, conclusion: Conclusion) -> str:
        """What tells incidents of one investigation apart; empty for the one that speaks for the job's failure."""
        if not self._is_node:
            return "" if conclusion.main else conclusion.entity
        # The line the root rests on, by content: two failures of one GPU in one boot are two incidents. What lasts is
        # shown by another line each time.
        root = conclusion.root_item.episode.first
        if root.name in SHOWN_AGAIN:
            return keys.digest(conclusion.entity, root.name)
        return keys.digest(conclusion.entity, root.source, root.offset, root.body)

    def _verdict(self, conclusion: Conclusion, frame: Frame, suffix: str, nodes: list[str]) -> Verdict:
        state = self._state
        name = keys.digest("incident", keys.bare(state.key, keys.run_of(state.key)), suffix)
        incident = write(name, conclusion, frame)
        return Verdict(
            verdict_id=incident.incident_id,
            job_key=state.key,
            incident=incident,
            main=conclusion.main,
            root_events=sorted(set(conclusion.root_item.episode.event_ids)),
            explained_events=sorted(
                _host_level_ids(
                    step.item
                    for each in (conclusion, *conclusion.alternatives)
                    for step in each.steps
                    if step.role != "context"
                )
            ),
            elements=elements_of(incident.class_, conclusion.root_item.episode.attributes, incident.culprits),
            content_hash=content_hash(incident),
            nodes=nodes,
        )


def _doubts(placement: PlacementMap) -> list[Gap]:
    """What lines say of who ran where and is not used."""
    gaps = gaps_of(placement.contradictions)
    if placement.dropped:
        reason = "too many different lines say who ran where; the rest is not kept"
        gaps.append(Gap(source="placement", reason=reason, lost_lines=placement.dropped))
    return gaps


def is_unknown(verdict: Verdict) -> bool:
    """Whether a verdict names no cause."""
    return isinstance(verdict.incident, Incident) and verdict.incident.class_.startswith("unknown/")


def content_hash(incident: Incident) -> str:
    """A hash of what an incident says, without how it was delivered."""
    shape = msgspec.to_builtins(incident)
    return keys.digest(encode_shape({k: v for k, v in shape.items() if k not in DELIVERY_FIELDS}))


def _settled_hash(verdict: Verdict) -> str:
    """What the content hash of a provisional verdict would be, were it settled."""
    assert isinstance(verdict.incident, Incident)
    return content_hash(msgspec.structs.replace(verdict.incident, verdict="settled"))


def encode_shape(shape: dict[str, object]) -> str:
    """Canonical text of a plain structure."""
    return msgspec.json.encode(shape, order="sorted").decode()


def _host_level_ids(items: Iterable[Resolved]) -> set[str]:
    """Ids of lines of nodes: only those may also be in another investigation."""
    return {i for item in items if item.episode.first.source_kind != "application" for i in item.episode.event_ids}
