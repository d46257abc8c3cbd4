"""Join, one partition: verdicts become incidents with revisions.

A node's verdict is superseded by the job's verdict that explains the same line; verdicts of several jobs that rest on
the same line are one incident with all its jobs. Nothing is joined by time alone.
"""

from collections.abc import Iterable

import msgspec
from msgspec import Struct, field

from pipeline.core import keys
from pipeline.core.incidents import rfc3339
from pipeline.core.investigation import content_hash
from pipeline.core.outputs import Output
from schemas import topics
from schemas.records import Incident, Job, Verdict
from schemas.vocabulary import QUIET_CLASSES


class Standing(Struct, kw_only=True):
    """The last verdict of one investigation and entity, and what was published of it."""

    verdict: Verdict
    revision: int = 0
    published_hash: str = ""
    detected_at: str | None = None


class JoinState(Struct, kw_only=True):
    """All verdicts that stand; goes into a snapshot as it is."""

    standing: dict[str, Standing] = field(default_factory=dict)


class Join:
    """Join's only fold."""

    def __init__(self, state: JoinState | None = None) -> None:
        self._state = state or JoinState()

    @classmethod
    def restore(cls, data: bytes) -> "Join":
        """The fold that `snapshot` described."""
        return cls(msgspec.json.decode(data, type=JoinState))

    @property
    def wants_snapshot(self) -> bool:
        """Revisions must not be counted twice: after each message."""
        return True

    def snapshot(self) -> bytes:
        """The state as bytes."""
        return msgspec.json.encode(self._state)

    def apply(self, record: object, *, now_ns: int) -> Iterable[Output]:
        """Take one verdict; give the incidents whose content changed by it."""
        if not isinstance(record, Verdict):
            return []
        standing = self._state.standing
        known = standing.get(record.verdict_id)
        if record.withdrawn and known is None:
            return []
        lines = _lines(record) | (_lines(known.verdict) if known else set())
        if known is None:
            standing[record.verdict_id] = Standing(verdict=record)
        elif record.withdrawn:
            known.verdict = msgspec.structs.replace(known.verdict, withdrawn=True)
        else:
            known.verdict = record
        return [
            Output(topic=topics.INCIDENTS.name, key=incident.incident_id.encode(), record=incident)
            for verdict_id in sorted({record.verdict_id} | self._touched(lines))
            if (incident := self._publish(standing[verdict_id], now_ns)) is not None
        ]

    def _touched(self, lines: set[str]) -> set[str]:
        """Every verdict that rests on one of these lines."""
        return {name for name, other in self._state.standing.items() if lines & _lines(other.verdict)}

    def _publish(self, standing: Standing, now_ns: int) -> Incident | None:
        incident = self._incident(standing)
        if incident is None:
            return None
        said = content_hash(incident)
        if said == standing.published_hash:
            return None
        standing.published_hash = said
        standing.revision += 1
        standing.detected_at = standing.detected_at or (rfc3339(now_ns) if now_ns else None)
        return msgspec.structs.replace(incident, revision=standing.revision, detected_at=standing.detected_at)

    def _incident(self, standing: Standing) -> Incident | None:
        verdict = standing.verdict
        incident = verdict.incident
        if not isinstance(incident, Incident):
            return None
        if incident.class_ in QUIET_CLASSES and standing.revision == 0:
            return None
        if verdict.withdrawn or incident.class_ in QUIET_CLASSES:
            return msgspec.structs.replace(incident, state="retracted")
        above = self._superseding(verdict)
        if above is not None:
            return msgspec.structs.replace(incident, state="superseded", superseded_by=above)
        return msgspec.structs.replace(incident, jobs=self._jobs(verdict, incident))

    def _superseding(self, verdict: Verdict) -> str | None:
        """The verdict that speaks for this one too: a job's over a node's; of several jobs the smallest id."""
        roots = set(verdict.root_events)
        others = self._standing_others(verdict)
        return min((o.verdict_id for o in others if self._speaks_for(o, verdict, roots)), default=None)

    def _speaks_for(self, other: Verdict, verdict: Verdict, roots: set[str]) -> bool:
        if keys.is_node_key(other.job_key):
            return False
        if keys.is_node_key(verdict.job_key):
            return bool(roots & {*other.root_events, *other.explained_events})
        return bool(roots & set(other.root_events)) and other.verdict_id < verdict.verdict_id

    def _standing_others(self, verdict: Verdict) -> list[Verdict]:
        return [
            standing.verdict
            for verdict_id, standing in self._state.standing.items()
            if verdict_id != verdict.verdict_id and not standing.verdict.withdrawn
        ]

    def _jobs(self, verdict: Verdict, incident: Incident) -> list[Job]:
        """The jobs of every verdict that rests on the same line."""
        jobs = {(job.job_id, job.attempt): job for job in incident.jobs}
        for other in self._standing_others(verdict):
            if isinstance(other.incident, Incident) and set(other.root_events) & set(verdict.root_events):
                jobs.update({(job.job_id, job.attempt): job for job in other.incident.jobs})
        return [jobs[name] for name in sorted(jobs)]


def _lines(verdict: Verdict) -> set[str]:
    return {*verdict.root_events, *verdict.explained_events}
