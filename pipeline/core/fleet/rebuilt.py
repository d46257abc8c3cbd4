"""What a rebuild changes: incidents that were made again of the same lines, beside those that stand.

Two incidents are equal where they say the same of what happened: class, culprits, chain, jobs, action. How they were
delivered, measured confidences, error bounds and links to earlier incidents do not count: a rebuild reads every line
at once and to its end, live lines come one by one.
"""

from collections import Counter
from collections.abc import Iterable, Mapping
from typing import Any, Final, Literal

import msgspec
from msgspec import Struct

from schemas.records import Incident
from schemas.vocabulary import STANDING

ChangeKind = Literal["new", "gone", "changed"]

_CONTENT: Final = ("class", "severity", "xid", "sxid", "interruption", "failure")


class IncidentChange(Struct, frozen=True, kw_only=True):
    """One incident that a swap would add, retract or revise. `what` names the fields that differ."""

    incident_id: str
    kind: ChangeKind
    class_before: str
    class_after: str
    what: tuple[str, ...] = ()
    is_corrected: bool = False


class NameCount(Struct, frozen=True, kw_only=True):
    """Events of one name, or incidents of one class: how many stand, and how many would."""

    name: str
    before: int
    after: int
    added: int = 0
    gone: int = 0


class Comparison(Struct, frozen=True, kw_only=True):
    """What a swap would do. `left`: incidents that stay as they are, as they reach beyond what was read again."""

    events: list[NameCount]
    classes: list[NameCount]
    changes: list[IncidentChange]
    unchanged: int
    left: int

    @property
    def is_empty(self) -> bool:
        """Whether nothing would change but times and attributes of events."""
        return not self.changes and not any(count.added or count.gone for count in self.events)


def essence(incident: Incident) -> dict[str, Any]:
    """What an incident says of what happened, by field."""
    shape = msgspec.to_builtins(incident)
    said: dict[str, Any] = {name: shape[name] for name in _CONTENT}
    said["standing"] = incident.state in STANDING
    said["superseded_by"] = incident.superseded_by
    said["culprits"] = [{k: v for k, v in culprit.items() if k != "confidence"} for culprit in shape["culprits"]]
    said["jobs"] = sorted((job.job_id, job.attempt) for job in incident.jobs)
    said["chain"] = [
        (step.event, step.role, step.where, step.evidence.source, step.evidence.line_no, step.evidence.text)
        for step in incident.chain
    ]
    said["action"] = (incident.action.kind, incident.action.target)
    return said


def changes(
    stood: Mapping[str, Incident], made: Mapping[str, Incident], corrected: frozenset[str] = frozenset()
) -> list[IncidentChange]:
    """What becomes of incidents, by id. An incident that does not stand and did not stand is no change."""
    found = []
    for name in sorted(stood.keys() | made.keys()):
        before, after = stood.get(name), made.get(name)
        was, is_ = _stands(before), _stands(after)
        if not was and not is_:
            continue
        what = _differing(before, after) if before is not None and after is not None else ()
        if was and is_ and not what:
            continue
        kind: ChangeKind = "changed" if was and is_ else "new" if is_ else "gone"
        if kind == "gone" and after is not None:
            # It stands no longer by itself: another one speaks for it.
            kind = "changed"
        found.append(
            IncidentChange(
                incident_id=name, kind=kind, what=what, is_corrected=name in corrected,
                class_before=before.class_ if before is not None and was else "",
                class_after=after.class_ if after is not None and is_ else "",
            )
        )  # fmt: skip
    return found


def by_class(stood: Iterable[Incident], made: Iterable[Incident]) -> list[NameCount]:
    """Incidents that stand, by class, before and after."""
    before = Counter(incident.class_ for incident in stood if incident.state in STANDING)
    after = Counter(incident.class_ for incident in made if incident.state in STANDING)
    return [
        NameCount(name=name, before=before[name], after=after[name]) for name in sorted(before.keys() | after.keys())
    ]


def revised(change: IncidentChange, stood: Incident | None, made: Incident | None, revision: int) -> Incident | None:
    """The revision that a change becomes. What was first seen when, and what was lost on the way, is kept."""
    if made is not None:
        new = msgspec.structs.replace(made, revision=revision + 1)
        if stood is None:
            return new
        return msgspec.structs.replace(
            new, detected_at=stood.detected_at, detected_error_ns=stood.detected_error_ns, gaps=stood.gaps
        )
    if stood is None or change.kind != "gone":
        return None
    return msgspec.structs.replace(stood, revision=revision + 1, state="retracted", superseded_by=None)


def _stands(incident: Incident | None) -> bool:
    return incident is not None and incident.state in STANDING


def _differing(before: Incident, after: Incident) -> tuple[str, ...]:
    old, new = essence(before), essence(after)
    return tuple(name for name in old if old[name] != new[name])
