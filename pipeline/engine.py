"""The pipeline without Kafka: the same folds, with topics as plain calls."""

from collections import deque
from collections.abc import Iterable

from msgspec import Struct

from pipeline import VERSION
from pipeline.core.align import NodeFold
from pipeline.core.causes import RuleSet
from pipeline.core.investigation import Investigation
from pipeline.core.join import Join
from pipeline.core.keys import is_node_key
from pipeline.core.outputs import Output
from pipeline.rules import load_rules
from schemas import signals, topics
from schemas.records import Incident, Placement, Verdict
from schemas.vocabulary import QUIET_CLASSES, STANDING


class Engine:
    """Folds by key. Feed it records of the raw topic in any order; then ask for incidents and notes."""

    def __init__(self, rules: RuleSet | None = None) -> None:
        self._signals = signals.load()
        self._rules = rules or load_rules()
        self._nodes: dict[bytes, NodeFold] = {}
        self._held: dict[bytes, list[Placement]] = {}
        self._investigations: dict[bytes, Investigation] = {}
        self._join = Join()
        self._incidents: dict[str, Incident] = {}
        self._quiet: dict[str, Incident] = {}
        self._main: set[str] = set()
        self._named: dict[str, list[str]] = {}

    def feed(self, key: bytes, record: Struct, *, now_ns: int = 0) -> None:
        """Take one record of the raw topic and everything that follows from it."""
        pending = deque([Output(topic=topics.RAW.name, key=key, record=record)])
        while pending:
            pending.extend(self._step(pending.popleft(), now_ns))

    def take(self, outputs: Iterable[Output]) -> None:
        """Take what the fold of one node gave. What it says of other nodes is held until they are read."""
        pending = deque[Output]()
        for output in outputs:
            if output.topic == topics.RAW.name and isinstance(output.record, Placement):
                self._held.setdefault(output.key, []).append(output.record)
                continue
            pending.append(output)
            while pending:
                pending.extend(self._step(pending.popleft(), 0))

    def told(self, key: bytes) -> list[Placement]:
        """What others said of a node that is about to be read; it is not held any longer."""
        return self._held.pop(key, [])

    def adopt(self, key: bytes, fold: NodeFold) -> None:
        """Go on with the fold of a node that was read."""
        self._nodes[key] = fold

    def deliver(self) -> None:
        """Tell nodes what others said of them."""
        held, self._held = self._held, {}
        for key, placements in held.items():
            for placement in placements:
                self.feed(key, placement)

    def _step(self, message: Output, now_ns: int) -> Iterable[Output]:
        if message.topic == topics.RAW.name:
            node = self._nodes.setdefault(message.key, NodeFold(self._signals))
            return node.apply(message.record, now_ns=now_ns)
        if message.topic == topics.EVENTS.name:
            if message.key not in self._investigations:
                fresh = Investigation.new(self._rules, VERSION, message.key.decode())
                self._investigations[message.key] = fresh
            return self._investigations[message.key].apply(message.record, now_ns=now_ns)
        if isinstance(message.record, Verdict):
            self._note(message.record)
            return self._join.apply(message.record, now_ns=now_ns)
        if isinstance(message.record, Incident):
            self._incidents[message.record.incident_id] = message.record
        return []

    def _note(self, verdict: Verdict) -> None:
        self._quiet.pop(verdict.verdict_id, None)
        self._named[verdict.verdict_id] = verdict.nodes
        self._main.discard(verdict.verdict_id)
        if verdict.main and not is_node_key(verdict.job_key, ""):
            self._main.add(verdict.verdict_id)
        if isinstance(verdict.incident, Incident) and verdict.incident.class_ in QUIET_CLASSES:
            self._quiet[verdict.verdict_id] = verdict.incident

    def incidents(self) -> list[Incident]:
        """The incidents that stand, those that speak for a job's failure first, in a fixed order."""
        standing = [i for i in self._incidents.values() if i.state in STANDING]
        return sorted(
            standing,
            key=lambda i: (
                i.incident_id not in self._main,
                -i.confidence,
                i.started_at is None,
                i.started_at or "",
                i.incident_id,
            ),
        )

    def nodes(self) -> list[str]:
        """The nodes that report themselves or that ranks are known to run on, of every verdict."""
        return sorted({node for nodes in self._named.values() for node in nodes})

    def notes(self) -> list[Incident]:
        """Endings that are no incidents: scheduler stops, benign notices; of one line for each job that it concerns."""
        return [self._quiet[name] for name in sorted(self._quiet)]
