"""Everything that is known of a job, attempt by attempt, also of one that ended without an incident. Pure.

Joins what the feed holds with what the store keeps, and says what neither knows.
"""

from typing import Any

import msgspec

from pipeline.core.other_runs import left_out
from pipeline.store.history import JobHistory
from pipeline.web.answers import JobView
from schemas.records import Incident, Shown
from schemas.vocabulary import STANDING


class Mark(Shown, frozen=True, kw_only=True):
    """A line that tells how far an attempt got, how it ended or what went wrong, and where it stands."""

    at: str | None
    node: str
    rank: int | None
    name: str
    source: str
    line_no: int | None
    text: str


class Reading(Shown, frozen=True, kw_only=True):
    """How far one node's sources are read: kinds that are on, sources that cannot be read, and times (RFC 3339)."""

    node: str
    kinds: list[str]
    refused: list[str]
    read_through: str | None
    reported_at: str | None


class AttemptKnown(Shown, frozen=True, kw_only=True):
    """One attempt. Times are RFC 3339; null and empty lists are what is not known."""

    cluster: str
    attempt: int
    nodes: list[str]
    first_at: str | None
    last_at: str | None
    lines: int | None
    error_lines: int | None
    old_lines: int | None
    progress: list[Mark]
    endings: list[Mark]
    errors: list[Mark]
    incidents: list[Incident]
    notes: list[Incident]
    coverage: list[Reading]
    not_known: list[str]


class Known(Shown, frozen=True, kw_only=True):
    """The job, its attempts, what could not be asked, and where nothing is known, how many attempts other runs know."""

    job: str
    attempts: list[AttemptKnown]
    not_known: list[str]
    other_runs: dict[str, int] = msgspec.field(default_factory=dict)


def known_of(job: str, view: JobView | None, history: JobHistory | None, problems: list[str]) -> Known:
    """What feed and store tell together. `problems`: why one of them could not be asked."""
    view = view or JobView(job_id=job, attempts=[], incidents=[], notes=[], following=True, reason="")
    kept = history or JobHistory()
    names = sorted(_names(job, view, kept))
    attempts = [_attempt(job, name, view, kept, asked_store=history is not None) for name in names]
    not_known, elsewhere = list(problems), {} if attempts else {**view.other_runs, **kept.other_runs}
    if not view.following:
        not_known.append(f"whether the feed shows the present: {view.reason}")
    if not attempts:
        not_known.append(_nothing(job, elsewhere))
    return Known(job=job, attempts=attempts, not_known=not_known, other_runs=elsewhere)


def _nothing(job: str, elsewhere: dict[str, int]) -> str:
    if elsewhere:
        return f"anything of job {job} in the run asked for: {'; '.join(left_out(elsewhere))}"
    return (
        f"anything of job {job}: no line that was read belongs to it. Its id must be what the scheduler or the "
        "shipper's settings (job.id) say, and the run and cluster asked for must be its own"
    )


def _names(job: str, view: JobView, kept: JobHistory) -> set[tuple[str, int]]:
    """Cluster and number of every attempt that anybody knows."""
    said = {(one.cluster, one.attempt) for one in view.attempts}
    said |= {(str(row["cluster"]), int(row["attempt"])) for row in kept.attempts}
    for incident in (*view.incidents, *view.notes, *kept.incidents):
        said |= {(incident.cluster, one.attempt) for one in incident.jobs if one.job_id == job}
    return said


def _attempt(job: str, name: tuple[str, int], view: JobView, kept: JobHistory, *, asked_store: bool) -> AttemptKnown:
    cluster, attempt = name
    row = next((one for one in kept.attempts if _is_of(one, name)), None)
    marks = [one for one in kept.marks if _is_of(one, name)]
    nodes = {node for one in view.attempts if (one.cluster, one.attempt) == name for node in one.nodes}
    nodes |= set(row["node_names"]) if row else set()
    known = AttemptKnown(
        cluster=cluster,
        attempt=attempt,
        nodes=sorted(nodes),
        first_at=_rfc3339(row["first_at"]) if row else None,
        last_at=_rfc3339(row["last_at"]) if row else None,
        lines=int(row["lines"]) if row else None,
        error_lines=int(row["error_lines"]) if row else None,
        old_lines=int(row["old_lines"]) if row else None,
        progress=_marks(marks, "progress"),
        endings=_marks(marks, "ending"),
        errors=_marks(marks, "error"),
        incidents=_newest([i for i in (*view.incidents, *kept.incidents) if _names_it(i, job, name)]),
        notes=_newest([note for note in view.notes if _names_it(note, job, name)]),
        coverage=_coverage(kept, name),
        not_known=[],
    )
    return msgspec.structs.replace(known, not_known=_gaps(known, asked_store=asked_store))


def _gaps(known: AttemptKnown, *, asked_store: bool) -> list[str]:
    """What nobody told of an attempt, in words. Of what was not asked only that is said."""
    missing = [] if known.nodes else ["on which nodes it ran"]
    if not asked_store:
        return missing
    if not known.progress:
        missing.append("how far it got: no line tells a step or a checkpoint")
    if not (known.endings or known.notes or known.incidents):
        missing.append(f"how it ended: no line says so, and {_found(known.old_lines or 0)}")
    if not known.coverage:
        missing.append("which logs of its nodes were read")
    return missing


def _found(old_lines: int) -> str:
    if old_lines:
        return "of lines that are old at first sight no incident is made"
    return "nothing was found that looks like a failure"


def _is_of(row: dict[str, Any], name: tuple[str, int]) -> bool:
    return (str(row["cluster"]), int(row["attempt"])) == name


def _names_it(incident: Incident, job: str, name: tuple[str, int]) -> bool:
    return incident.cluster == name[0] and any(one.job_id == job and one.attempt == name[1] for one in incident.jobs)


def _newest(found: list[Incident]) -> list[Incident]:
    """Each incident once, in its newest revision, those that stand first."""
    newest: dict[tuple[str, str], Incident] = {}
    for incident in found:
        known = newest.setdefault((incident.run_id, incident.incident_id), incident)
        if known.revision < incident.revision:
            newest[incident.run_id, incident.incident_id] = incident
    return sorted(newest.values(), key=lambda i: (i.state not in STANDING, -i.confidence, i.incident_id))


def _marks(rows: list[dict[str, Any]], kind: str) -> list[Mark]:
    """The marks of one kind, the last one first."""
    return [
        Mark(
            at=_rfc3339(row["at"]), node=row["node"], rank=row["rank"], name=row["name"], source=row["source"],
            line_no=None if row["line_no"] is None else int(row["line_no"]), text=row["body"],
        )
        for row in rows
        if row["kind"] == kind
    ]  # fmt: skip


def _coverage(kept: JobHistory, name: tuple[str, int]) -> list[Reading]:
    """One reading per node: of a folder that was replayed twice the newer one."""
    rows = [row for row in kept.nodes if row["cluster"] == name[0] and name[1] in row["attempts"]]
    newest = {row["node"]: row for row in sorted(rows, key=lambda row: row["reported_at"] or "")}
    return [_reading(newest[node]) for node in sorted(newest)]


def _reading(row: dict[str, Any]) -> Reading:
    return Reading(
        node=row["node"], kinds=sorted(row["kinds_read"]), refused=sorted(row["refused"]),
        read_through=_rfc3339(row["read_through"]), reported_at=_rfc3339(row["reported_at"]),
    )  # fmt: skip


def _rfc3339(text: str | None) -> str | None:
    """A time as ClickHouse writes it in UTC, to microseconds."""
    return f"{text[:26].replace(' ', 'T')}Z" if text else None
