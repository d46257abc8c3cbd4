"""What verdicts say of job attempts beyond their incidents: nodes, and endings that are no incident. Bounded."""

from collections.abc import Iterator
from dataclasses import dataclass, field

from msgspec import Struct

from pipeline.core import keys
from schemas.records import Incident, Verdict
from schemas.vocabulary import QUIET_CLASSES


class Attempt(Struct, kw_only=True):
    """One attempt of a job, and per verdict: the age of what was said last, the nodes, and the note if it is one."""

    run: str
    cluster: str
    job_id: str
    attempt: int
    ages: dict[str, tuple[int, int]] = {}
    nodes: dict[str, list[str]] = {}
    notes: dict[str, Incident] = {}

    def all_nodes(self) -> list[str]:
        """Every node that any of its verdicts names."""
        return sorted({node for nodes in self.nodes.values() for node in nodes})


@dataclass(kw_only=True)
class JobBook:
    """Attempts by key, those last heard of last. Idempotent: a verdict that is said again is no news."""

    keep_attempts: int = 5_000
    _attempts: dict[str, Attempt] = field(default_factory=dict, init=False)

    def apply(self, verdict: Verdict) -> None:
        """Take a verdict in. One of a node without a job, or that tells nothing new, changes nothing."""
        run = keys.run_of(verdict.job_key)
        if keys.is_node_key(verdict.job_key, run):
            return
        name = keys.bare(verdict.job_key, run)
        cluster, _, rest = name.partition("/")
        job_id, _, attempt = rest.rpartition("/")
        if not job_id or not attempt.isdecimal():
            return
        known = self._attempts.pop(verdict.job_key, None) or Attempt(
            run=run.partition(":")[0] or "live", cluster=cluster, job_id=job_id, attempt=int(attempt)
        )
        self._attempts[verdict.job_key] = known
        _learn(known, verdict)
        while len(self._attempts) > self.keep_attempts:
            del self._attempts[next(iter(self._attempts))]

    @property
    def held(self) -> int:
        """How many attempts are held."""
        return len(self._attempts)

    def of_job(self, job_id: str, run: str, cluster: str) -> Iterator[Attempt]:
        """The attempts of a job that are held. `run` "all" and an empty `cluster` mean any."""
        for attempt in self._attempts.values():
            if attempt.job_id == job_id and run in ("all", attempt.run) and cluster in ("", attempt.cluster):
                yield attempt


def _learn(known: Attempt, verdict: Verdict) -> None:
    age = (verdict.as_of_unix_nano, verdict.seq)
    if age <= known.ages.get(verdict.verdict_id, (-1, -1)):
        return
    known.ages[verdict.verdict_id] = age
    known.notes.pop(verdict.verdict_id, None)
    if verdict.withdrawn or not isinstance(verdict.incident, Incident):
        return
    known.nodes[verdict.verdict_id] = verdict.nodes
    if verdict.incident.class_ in QUIET_CLASSES:
        known.notes[verdict.verdict_id] = verdict.incident
