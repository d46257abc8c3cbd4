"""Join, one partition: verdicts become incidents with revisions.

A node's verdict is superseded by the job's verdict that explains the same line; verdicts of several jobs that rest on
the same line, or blame the same element (a file server, a switch) at about the same time, are one incident with all
its jobs. Nothing is joined by time alone, and nothing across runs.
"""

from collections import defaultdict
from collections.abc import Iterable
from typing import Final

import msgspec
from msgspec import Struct, field

from pipeline.core import keys
from pipeline.core.capture_requests import requests_of
from pipeline.core.investigation import content_hash
from pipeline.core.outputs import Output
from pipeline.core.recurrence import marks_of, related_of, same_element
from pipeline.core.shown_times import rfc3339
from schemas import topics
from schemas.records import Incident, Job, Related, Verdict
from schemas.vocabulary import QUIET_CLASSES

# Broker time. After this a verdict is neither revised nor joined with another one.
FORGET_NS: Final = 7 * 24 * 3600 * 1_000_000_000


# By run, whether the verdict is a node's, and the lines and elements it rests on: how well the best of the jobs tells.
_Best = dict[tuple[str, bool, frozenset[str]], tuple[int, str] | None]


class Standing(Struct, kw_only=True):
    """The last verdict of one investigation and entity, and what was published of it."""

    verdict: Verdict
    said_ns: int
    revision: int = 0
    published_hash: str = ""
    detected_at: str | None = None
    asked: list[str] = field(default_factory=list)

    @property
    def run(self) -> str:
        """The run prefix of its keys."""
        return keys.run_of(self.verdict.job_key)

    @property
    def is_quiet(self) -> bool:
        """Whether it is withdrawn, or an ending that is no incident: it speaks for nobody."""
        incident = self.verdict.incident
        return self.verdict.withdrawn or not isinstance(incident, Incident) or incident.class_ in QUIET_CLASSES


class JoinState(Struct, kw_only=True):
    """All verdicts that stand, by run and id; goes into a snapshot as it is."""

    standing: dict[str, Standing] = field(default_factory=dict)


class Join:
    """Join's only fold."""

    def __init__(self, state: JoinState | None = None, *, asks_captures: bool = False) -> None:
        self._state = state or JoinState()
        self._asks_captures = asks_captures
        self._by_line: dict[str, set[str]] = defaultdict(set)
        self._by_mark: dict[str, set[str]] = defaultdict(set)
        for name, standing in self._state.standing.items():
            self._index(name, standing.verdict)

    @classmethod
    def restore(cls, data: bytes, *, asks_captures: bool = False) -> "Join":
        """The fold that `snapshot` described."""
        return cls(msgspec.json.decode(data, type=JoinState), asks_captures=asks_captures)

    @property
    def wants_snapshot(self) -> bool:
        """Never out of turn: verdicts that are read again give the same revisions again."""
        return False

    def snapshot(self) -> bytes:
        """The state as bytes."""
        return msgspec.json.encode(self._state)

    def apply(self, record: object, *, now_ns: int) -> Iterable[Output]:
        """Take one verdict; give the incidents whose content changed by it."""
        if not isinstance(record, Verdict):
            return []
        self._forget(now_ns)
        name = f"{keys.run_of(record.job_key)}{record.verdict_id}"
        known = self._state.standing.get(name)
        if known is None and record.withdrawn:
            return []
        if known is not None and _age(record) <= _age(known.verdict) and record.as_of_unix_nano:
            # A worker that was killed says again what it said before.
            return []
        touched = {name}
        if known is not None:
            touched |= self._unindex(name, known.verdict)
            known.said_ns, known_before = now_ns, known.verdict
            known.verdict = record
            if record.withdrawn:
                known.verdict = msgspec.structs.replace(
                    record, incident=known_before.incident, root_events=known_before.root_events,
                    explained_events=known_before.explained_events,
                )  # fmt: skip
        else:
            known = self._state.standing[name] = Standing(verdict=record, said_ns=now_ns)
        touched |= self._index(name, known.verdict)
        best: _Best = {}
        outputs = []
        for standing in (self._state.standing[other] for other in sorted(touched)):
            incident = self._publish(standing, now_ns, best)
            if incident is not None:
                key = f"{standing.run}{incident.incident_id}".encode()
                outputs.append(Output(topic=topics.INCIDENTS.name, key=key, record=incident))
                if self._asks_captures:
                    outputs.extend(requests_of(incident, standing.asked, now_ns))
        return outputs

    # --- who shares a line with whom ------------------------------------------------------------------------------

    def _index(self, name: str, verdict: Verdict) -> set[str]:
        """Note the lines and entities of a verdict; the names of all that share one."""
        sharing = set()
        for place, key in self._places(verdict):
            place[key].add(name)
            sharing |= place[key]
        return sharing

    def _unindex(self, name: str, verdict: Verdict) -> set[str]:
        sharing = set()
        for place, key in self._places(verdict):
            names = place.get(key, set())
            names.discard(name)
            sharing |= names
            if not names:
                place.pop(key, None)
        return sharing

    def _places(self, verdict: Verdict) -> Iterable[tuple[dict[str, set[str]], str]]:
        run = keys.run_of(verdict.job_key)
        yield from ((self._by_line, run + line) for line in _lines(verdict))
        yield from ((self._by_mark, run + mark) for mark in marks_of(verdict))

    def _sharing(self, standing: Standing) -> list[Standing]:
        """The other verdicts that rest on or explain a line on which this one rests, or blame the same element."""
        names = {n for line in standing.verdict.root_events for n in self._by_line.get(standing.run + line, ())}
        names |= {n for n in self._marked(standing) if same_element(self._state.standing[n].verdict, standing.verdict)}
        others = (self._state.standing[name] for name in sorted(names))
        return [other for other in others if other is not standing and not other.is_quiet]

    def _marked(self, standing: Standing) -> set[str]:
        """The verdicts about the same machine, device, element or code."""
        return {n for mark in marks_of(standing.verdict) for n in self._by_mark.get(standing.run + mark, ())}

    def _forget(self, now_ns: int) -> None:
        old = [name for name, standing in self._state.standing.items() if now_ns - standing.said_ns > FORGET_NS]
        for name in old:
            self._unindex(name, self._state.standing.pop(name).verdict)

    # --- what is published ----------------------------------------------------------------------------------------

    def _publish(self, standing: Standing, now_ns: int, best: _Best) -> Incident | None:
        incident = self._incident(standing, best)
        if incident is None:
            return None
        said = content_hash(incident)
        if said == standing.published_hash:
            return None
        standing.published_hash = said
        standing.revision += 1
        standing.detected_at = standing.detected_at or (rfc3339(now_ns) if now_ns else None)
        return msgspec.structs.replace(incident, revision=standing.revision, detected_at=standing.detected_at)

    def _incident(self, standing: Standing, best: _Best) -> Incident | None:
        incident = standing.verdict.incident
        if not isinstance(incident, Incident) or (standing.is_quiet and standing.revision == 0):
            return None
        if standing.is_quiet:
            return msgspec.structs.replace(incident, state="retracted")
        above = self._superseding(standing, best)
        if above is not None:
            return msgspec.structs.replace(incident, state="superseded", superseded_by=above)
        jobs, is_over = self._hit(standing, incident)
        return msgspec.structs.replace(
            incident, jobs=jobs, state="resolved" if is_over else "open", related=self._related(standing, best)
        )

    def _related(self, standing: Standing, best: _Best) -> list[Related]:
        """The earlier incidents on the same machine, device or code."""
        same = {id(other) for other in self._sharing(standing)}
        others = (self._state.standing[name] for name in sorted(self._marked(standing)))
        earlier = [o.verdict for o in others if o is not standing and not o.is_quiet and id(o) not in same]
        earlier = [v for v in earlier if self._superseding(self._by_id(standing, v), best) is None]
        return related_of(standing.verdict, earlier)

    def _by_id(self, standing: Standing, verdict: Verdict) -> Standing:
        return self._state.standing[f"{standing.run}{verdict.verdict_id}"]

    def _superseding(self, standing: Standing, best: _Best) -> str | None:
        """The verdict that speaks for this one too: a job's over a node's; of several jobs the one that tells most."""
        verdict = standing.verdict
        is_node = keys.is_node_key(verdict.job_key, standing.run)
        # Hundreds of jobs may rest on one line of their node: who tells most is worked out once for all of them.
        group = (standing.run, is_node, frozenset((*verdict.root_events, *verdict.elements)))
        if group not in best:
            jobs = (other for other in (*self._sharing(standing), standing) if _may_speak_for(other, standing))
            best[group] = min((_told(other.verdict) for other in jobs), default=None)
        told = best[group]
        return told[1] if told is not None and (is_node or told < _told(verdict)) else None

    def _hit(self, standing: Standing, incident: Incident) -> tuple[list[Job], bool]:
        """The jobs of every verdict that rests on the same line, and whether it is over for each of them."""
        others = (o.verdict for o in self._sharing(standing) if _is_one(o.verdict, standing.verdict))
        found = [incident, *(other.incident for other in others if isinstance(other.incident, Incident))]
        jobs = {(job.job_id, job.attempt): job for one in found for job in one.jobs}
        is_over = all(one.state == "resolved" for one in found if one is incident or one.jobs)
        return [jobs[name] for name in sorted(jobs)], is_over


def _may_speak_for(other: Standing, standing: Standing) -> bool:
    """Whether the other one is a job's and, where this one is a job's too, rests on a line of it."""
    run, verdict = standing.run, standing.verdict
    if keys.is_node_key(other.verdict.job_key, run):
        return False
    if keys.is_node_key(verdict.job_key, run):
        return True
    return _is_one(other.verdict, verdict)


def _is_one(a: Verdict, b: Verdict) -> bool:
    """Whether two verdicts blame one fault: they rest on the same line, or on the same element at one time."""
    return bool(set(a.root_events) & set(b.root_events)) or same_element(a, b)


def _told(verdict: Verdict) -> tuple[int, str]:
    """How well a verdict tells the story: the one with more steps first; the id where they are equal."""
    steps = len(verdict.incident.chain) if isinstance(verdict.incident, Incident) else 0
    return -steps, verdict.verdict_id


def _age(verdict: Verdict) -> tuple[int, int]:
    return verdict.as_of_unix_nano, verdict.seq


def _lines(verdict: Verdict) -> set[str]:
    return {*verdict.root_events, *verdict.explained_events}
