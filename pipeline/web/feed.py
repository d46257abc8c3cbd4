"""The current state of all incidents in memory, and the order in which it changed. One event loop, no locks."""

import asyncio
from collections import deque
from dataclasses import dataclass, field

from pipeline.report.words import instant_ns, name_of
from pipeline.web.clocks import ClockBook
from pipeline.web.jobs import JobBook
from pipeline.web.query import Query
from schemas.records import Incident


@dataclass(frozen=True, kw_only=True)
class Change:
    """One revision that came in, and its place in the order of arrival."""

    position: int
    incident: Incident

    @property
    def event_id(self) -> str:
        """The id of the server-sent event: `incident_id:revision`."""
        return event_id(self.incident)


def event_id(incident: Incident) -> str:
    """`incident_id:revision` (behind the run id of a replay), which names one state of one incident."""
    return f"{name_of(incident)}:{incident.revision}"


@dataclass(kw_only=True)
class Feed:
    """Latest revision and history per incident, bounded (about `keep_incidents`). Idempotent by id and revision."""

    keep_incidents: int = 5_000
    keep_revisions: int = 50
    keep_changes: int = 10_000
    jobs: JobBook = field(default_factory=JobBook)
    clocks: ClockBook = field(default_factory=ClockBook)
    _history: dict[str, list[Incident]] = field(default_factory=dict, init=False)
    _changes: deque[Change] = field(default_factory=deque, init=False)
    _positions: dict[str, int] = field(default_factory=dict, init=False)
    _head: int = field(default=0, init=False)
    _changed: asyncio.Event = field(default_factory=asyncio.Event, init=False)

    def apply(self, incident: Incident) -> bool:
        """Take a revision in. False where it, or a newer one, is known already."""
        history = self._history.setdefault(name_of(incident), [])
        if history and history[-1].revision >= incident.revision:
            return False
        history.append(incident)
        del history[: -self.keep_revisions]
        self._remember(incident)
        self._drop_oldest()
        self._changed.set()
        self._changed = asyncio.Event()
        return True

    def _remember(self, incident: Incident) -> None:
        self._head += 1
        change = Change(position=self._head, incident=incident)
        self._changes.append(change)
        self._positions[change.event_id] = change.position
        if len(self._changes) > self.keep_changes:
            del self._positions[self._changes.popleft().event_id]

    def _drop_oldest(self) -> None:
        # A tenth at a time: finding the oldest means looking at all of them.
        if len(self._history) > self.keep_incidents * 11 // 10:
            latest = sorted((history[-1] for history in self._history.values()), key=_newest_last)
            for incident in latest[: len(latest) - self.keep_incidents]:
                del self._history[name_of(incident)]

    def __len__(self) -> int:
        """Incidents held, of all runs and states."""
        return len(self._history)

    def get(self, name: str) -> Incident | None:
        """The latest revision of an incident."""
        history = self.revisions(name)
        return history[-1] if history else None

    def revisions(self, name: str) -> list[Incident]:
        """The revisions that are still held, oldest first. A bare id that is not live means the newest replay of it."""
        if name in self._history:
            return list(self._history[name])
        replays = [history for known, history in self._history.items() if known.endswith(f"~{name}")]
        newest = sorted(replays, key=lambda history: history[-1].detected_at or "")[-1:]
        return list(newest[0]) if newest else []

    def select(self, query: Query) -> list[Incident]:
        """The incidents that a query asks for, newest first, without its limit."""
        latest = (history[-1] for history in self._history.values())
        return sorted((i for i in latest if query.wants(i)), key=_newest_last, reverse=True)

    def of_job(self, job_id: str, run: str, cluster: str) -> list[Incident]:
        """The latest revisions that name a job, whatever their state, newest first."""
        latest = (history[-1] for history in self._history.values())
        found = [
            incident for incident in latest
            if run in ("all", incident.run) and cluster in ("", incident.cluster)
            and any(job.job_id == job_id for job in incident.jobs)
        ]  # fmt: skip
        return sorted(found, key=_newest_last, reverse=True)

    def clusters(self) -> list[str]:
        """Every cluster that has an incident."""
        return sorted({history[-1].cluster for history in self._history.values()})

    @property
    def head(self) -> int:
        """The position of the last change."""
        return self._head

    @property
    def last_event_id(self) -> str:
        """The id of the last change; empty before the first."""
        return self._changes[-1].event_id if self._changes else ""

    def position_of(self, name: str) -> int | None:
        """Where an event id stands in the order of changes; None where it is not known (any more)."""
        return self._positions.get(name)

    def changes_after(self, position: int) -> list[Change] | None:
        """Everything after a position; None where some of it is not held any more."""
        if position >= self._head:
            return []
        oldest = self._changes[0].position
        if position < oldest - 1:
            return None
        return [self._changes[n - oldest] for n in range(position + 1, self._head + 1)]

    async def wait_beyond(self, position: int) -> None:
        """Return once there is a change after `position`."""
        while self._head <= position:
            await self._changed.wait()


def _newest_last(incident: Incident) -> tuple[int, str]:
    return (instant_ns(incident.started_at or incident.detected_at), incident.incident_id)
