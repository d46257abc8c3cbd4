"""`rootrank placement`: who ran where, as far as a folder of logs says, with the line behind each field."""

from collections import deque
from typing import Any

import msgspec
from msgspec import Struct

from pipeline.core.align import NodeFold
from pipeline.core.contradictions import gaps_of
from pipeline.core.outputs import Output
from pipeline.core.placement import Facts, Known, PlacementMap
from pipeline.folder import FolderPlan
from pipeline.reader import records
from schemas import signals, topics
from schemas.records import EventBatch, Gap, RawBatch

MAX_TEXT = 300


class JobMap(Struct, kw_only=True):
    """The map of one job attempt, or of a node without a job (`job_id` empty)."""

    key: str
    job_id: str = ""
    attempt: int = 0
    facts: Facts = msgspec.field(default_factory=Facts)
    reporters: set[str] = msgspec.field(default_factory=set)
    events: set[str] = msgspec.field(default_factory=set)

    def map(self) -> PlacementMap:
        """The look-ups."""
        return PlacementMap(self.facts, sorted(self.reporters))


class Placements(Struct, frozen=True, kw_only=True):
    """The maps of all jobs and nodes of a folder, the lines they rest on, and what could not be read."""

    jobs: list[tuple[JobMap, PlacementMap]]
    lines: dict[str, str]
    gaps: list[Gap]
    unreadable: list[Gap]

    @property
    def is_empty(self) -> bool:
        """Whether no line says who ran where."""
        return not any(found.ranks or found.unranked() or found.gpus() for _, found in self.jobs)

    def shape(self) -> dict[str, Any]:
        """The JSON object of `--json`."""
        return {
            "jobs": [self._job(job, found) for job, found in self.jobs],
            "gaps": [msgspec.to_builtins(gap) for gap in (*self.gaps, *self.unreadable)],
        }

    def _job(self, job: JobMap, found: PlacementMap) -> dict[str, Any]:
        world = None
        if found.world_size is not None:
            world = self._field(found.world_size, "stated", found.world_size_at)
        return {
            "key": job.key, "job_id": job.job_id, "attempt": job.attempt, "world_size": world,
            "ranks": [{"rank": one.rank, **self._fields(one)} for one in found.known()],
            "processes": [self._fields(one) for one in found.unranked()],
            "gpus": [self._fields(one) for one in found.gpus()],
            "groups": [
                {
                    "kind": group.kind, "name": group.name, "description": group.description, "size": group.size,
                    "members": [
                        {
                            "group_rank": number, "rank": member.rank, "node": member.host, "pid": member.pid,
                            "where": member.where,
                        }
                        for number, member in sorted(group.members.items())
                    ],
                }
                for group in found.groups()
            ],
            "contradictions": [gap.reason for gap in gaps_of(found.contradictions)],
        }  # fmt: skip

    def _fields(self, one: Known) -> dict[str, Any]:
        return {name: self._field(told.value, told.how, told.where) for name, told in one.fields.items()}

    def _field(self, value: str | int, how: str, where: str) -> dict[str, Any]:
        return {"value": value, "how": how, "where": where, "line": self.lines.get(where)}


def placements(folder: FolderPlan) -> Placements:
    """Read a planned folder and join what its lines say."""
    jobs: dict[str, JobMap] = {}
    nodes: dict[bytes, NodeFold] = {}
    broken: list[Gap] = []
    loaded = signals.load()
    for keyed in records(folder):
        if isinstance(keyed.record, RawBatch):
            broken += keyed.record.gaps
        pending = deque([Output(topic=topics.RAW.name, key=keyed.key, record=keyed.record)])
        while pending:
            message = pending.popleft()
            if message.topic == topics.RAW.name:
                node = nodes.setdefault(message.key, NodeFold(loaded))
                pending.extend(node.apply(message.record, now_ns=0))
            elif isinstance(message.record, EventBatch):
                _learn(jobs, message.record)
    found = [(job, job.map()) for _, job in sorted(jobs.items())]
    return Placements(
        jobs=found, lines=_lines(folder, found), gaps=folder.gaps, unreadable=[*folder.unreadable, *broken]
    )


def _learn(jobs: dict[str, JobMap], batch: EventBatch) -> None:
    job = jobs.setdefault(batch.job_key, JobMap(key=batch.job_key, job_id=batch.job_id or "", attempt=batch.attempt))
    if batch.node is not None:
        job.reporters.add(batch.node)
    for event in batch.events:
        if event.event_id not in job.events:
            job.events.add(event.event_id)
            job.facts.learn(event)


def _lines(folder: FolderPlan, found: list[tuple[JobMap, PlacementMap]]) -> dict[str, str]:
    """The text of every line that the maps rest on."""
    wanted: set[str] = set()
    for _, one in found:
        wanted.add(one.world_size_at)
        for known in (*one.known(), *one.unranked(), *one.gpus()):
            wanted |= {told.where for told in known.fields.values()}
    texts: dict[str, str] = {}
    for keyed in records(folder):
        if isinstance(keyed.record, RawBatch):
            for line in keyed.record.records:
                where = f"{line.source}:{line.line_no or line.offset}"
                if where in wanted:
                    texts[where] = line.body[:MAX_TEXT]
    return texts
