"""What a launcher should do with a job that failed, from what is known of its attempts. Pure: the time is an argument.

The policy per class is data (`pipeline.core.launch_policy`). A node is left out only where an incident names it with
certainty, it is one of the job's or the cluster's nodes, and its name is one that a shell and a scheduler can take.
Where that is not so, the answer is weaker, never another node.
"""

from collections.abc import Iterable
from datetime import UTC, datetime, timedelta
from typing import Final, Literal

import msgspec
from msgspec import Struct

from pipeline.core import keys
from pipeline.core.calibration import CERTAIN
from pipeline.core.hosts import may_be_one
from pipeline.core.launch_policy import POLICY, Policy
from pipeline.core.node_names import is_drill_name, is_plain_name
from schemas.records import Culprit, Incident, Shown
from schemas.vocabulary import STANDING, VerdictState

Answer = Literal["restart", "restart_excluding", "do_not_restart", "undecided"]

# Runs whose recorded times say nothing of today: a node of theirs is left out from now on.
_RECORDED: Final = frozenset({"post_mortem", "replay"})
_GOES_ON: Final = frozenset({"slow", "none"})


class LeftOut(Shown, frozen=True, kw_only=True):
    """A node to leave out, why, and until when (RFC 3339)."""

    node: str
    reason: str
    expires_at: str


class Refused(Shown, frozen=True, kw_only=True):
    """A name that an incident gives for a node and that is not used, and why."""

    name: str
    why: str


class Advice(Shown, frozen=True, kw_only=True):
    """The answer. `nodes` are to be left out whatever is done; null is what is not known."""

    answer: Answer
    job: str | None
    attempt: int | None
    cluster: str | None
    nodes: list[LeftOut]
    reason: str
    class_: str | None = msgspec.field(name="class")
    confidence: float | None
    incident_id: str | None
    verdict: VerdictState | None
    as_of: str
    refused: list[Refused]


class Told(Struct, frozen=True, kw_only=True):
    """What is known of a job: incidents and notes of all attempts, attempts, and nodes of the job or of its cluster.

    `nodes` None: no list of nodes is known. `remarks`: what whoever asked could not learn, one sentence each.
    """

    incidents: list[Incident] = []
    notes: list[Incident] = []
    attempts: list[int] = []
    nodes: list[str] | None = None
    remarks: list[str] = []


class Asked(Struct, frozen=True, kw_only=True):
    """Which job, which attempt of it (None: the last one known), and which earlier jobs were attempts at the same work.

    `job` None: incidents of nodes on which no job is known.
    """

    job: str | None
    attempt: int | None = None
    earlier: tuple[str, ...] = ()


def advise(told: Told, asked: Asked, now: datetime) -> Advice:
    """The answer to what is known now."""
    attempt = last_attempt(told, asked)
    mine = _of_attempt(told, asked.job, attempt)
    earlier = _earlier(told, asked, attempt)
    found = _left_out(mine, told, now)
    nodes = {**_left_out(earlier, told, now).nodes, **found.nodes}
    lead = mine[0] if mine else None
    answer, reason = _answer(lead, mine, earlier, told, now) if lead else ("undecided", _nothing(asked.job, attempt))
    if answer == "restart" and nodes:
        answer = "restart_excluding"
    refused = [one for name, one in sorted(found.refused.items()) if name not in nodes]
    remarks = [*_remarks(lead, refused), *told.remarks]
    return Advice(
        answer=answer, job=asked.job, attempt=attempt, cluster=lead.cluster if lead else None,
        nodes=[nodes[name] for name in sorted(nodes)], reason="; ".join([reason, *remarks]),
        class_=lead.class_ if lead else None, confidence=lead.confidence if lead else None,
        incident_id=lead.incident_id if lead else None, verdict=lead.verdict if lead else None, as_of=_rfc3339(now),
        refused=refused,
    )  # fmt: skip


def is_settled(told: Told, asked: Asked) -> bool:
    """Whether waiting can bring nothing but a correction: the attempt's end is explained, and all of it is settled.

    A job goes on after what only slowed it down and after a harmless notice: its end is still to come.
    """
    mine = _of_attempt(told, asked.job, last_attempt(told, asked))
    ended = bool(mine) and mine[0].interruption not in _GOES_ON and not mine[0].class_.startswith("benign/")
    return ended and all(incident.verdict == "settled" for incident in mine)


def last_attempt(told: Told, asked: Asked) -> int | None:
    """The attempt that is asked about: the given one, else the last one known."""
    if asked.attempt is not None or asked.job is None:
        return asked.attempt
    said = [job.attempt for i in (*told.incidents, *told.notes) for job in i.jobs if job.job_id == asked.job]
    return max([*said, *told.attempts], default=None)


# --- which incidents ----------------------------------------------------------------------------------------------


def _of_attempt(told: Told, job: str | None, attempt: int | None) -> list[Incident]:
    """What stands of an attempt, the one that speaks for its failure first. Notes only where there is no incident."""
    for found in (told.incidents, told.notes):
        mine = [i for i in found if i.state in STANDING and _concerns(i, job, attempt)]
        if mine:
            return sorted(mine, key=_main_first)
    return []


def _concerns(incident: Incident, job: str | None, attempt: int | None) -> bool:
    if job is None:
        return not incident.jobs
    return any(one.job_id == job and one.attempt == attempt for one in incident.jobs)


def _main_first(incident: Incident) -> tuple[bool, float, str, str]:
    """By its id: the incident that speaks for an attempt's failure bears the attempt's own name."""
    own = {
        keys.digest("incident", keys.job_key("", incident.cluster, job.job_id, job.attempt), "")
        for job in incident.jobs
    }
    return incident.incident_id not in own, -incident.confidence, incident.started_at or "", incident.incident_id


def _earlier(told: Told, asked: Asked, attempt: int | None) -> list[Incident]:
    """What stands of the attempts before, and of jobs that were attempts at the same work."""

    def is_before(incident: Incident) -> bool:
        return any(
            job.job_id in asked.earlier or (job.job_id == asked.job and attempt is not None and job.attempt < attempt)
            for job in incident.jobs
        )

    return [i for i in told.incidents if i.state in STANDING and is_before(i)]


# --- the answer ---------------------------------------------------------------------------------------------------


def _answer(
    lead: Incident, mine: list[Incident], earlier: list[Incident], told: Told, now: datetime
) -> tuple[Answer, str]:
    """The answer to the incident that speaks for the failure, and the reason."""
    policy = POLICY.get(lead.class_)
    if policy is None:
        return "undecided", f"{lead.class_} is a class that this version does not know"
    said = f"{lead.class_}: {policy.advice}"
    if _is_unreal(lead):
        return "undecided", f"{said}; but this is a drill, nothing really broke"
    match policy.kind:
        case "recurs":
            return _recurring(lead, earlier, said)
        case "exclude":
            return _excluding(policy, _left_out([lead], told, now), said)
        case "ask":
            return "undecided", said
        case "unknown":
            return _unknown(lead, mine, said)
    return "restart", said


def _recurring(lead: Incident, earlier: list[Incident], said: str) -> tuple[Answer, str]:
    if lead.verdict != "settled" and lead.confidence < CERTAIN:
        return "restart", said
    if _is_of_surroundings(lead):
        return "restart", f"{said}; what it met lies outside the program"
    if lead.repeats:
        return "do_not_restart", f"{said}; the same failure came {lead.repeats + 1} times in this attempt"
    for before in earlier:
        same = before.class_ == lead.class_ and before.failure == lead.failure and lead.failure
        if same and before.incident_id != lead.incident_id:
            where = ", ".join(f"{job.job_id} attempt {job.attempt}" for job in before.jobs[:4])
            return "do_not_restart", f"{said}; the same failure as before ({where}, incident {before.incident_id})"
    return "restart", f"{said}; it is the first time that this is seen"


def _excluding(policy: Policy, found: "_Found", said: str) -> tuple[Answer, str]:
    if found.nodes:
        return "restart_excluding", said
    if found.over and not found.refused:
        return "restart", f"{said}; the time to leave {', '.join(sorted(found.over)[:8])} out is over"
    return policy.nameless, f"{said}; no node can be named for certain"


def _unknown(lead: Incident, mine: list[Incident], said: str) -> tuple[Answer, str]:
    if lead.verdict != "settled":
        return "undecided", f"{said} yet"
    suspects = sorted({c.node for incident in mine for c in incident.culprits if c.node})
    if suspects:
        return "undecided", f"{said}; suspicion falls on {', '.join(suspects[:8])}"
    return "restart", f"{said}, and nothing points at a node"


def _nothing(job: str | None, attempt: int | None) -> str:
    if job is None:
        return "no incident is known"
    if attempt is None:
        return f"nothing is known of job {job}"
    return f"no incident and no ending is known of job {job}, attempt {attempt}"


def _remarks(lead: Incident | None, refused: list[Refused]) -> list[str]:
    remarks = [f"not left out: {one.name} ({one.why})" for one in refused[:8]]
    if lead is not None and lead.verdict != "settled":
        remarks.insert(0, "the verdict is provisional, more lines may still come")
    return remarks


def _is_of_surroundings(incident: Incident) -> bool:
    """Whether what the program raised speaks of storage, network or hardware, which another try may find well."""
    label = next((step.label for step in incident.chain if step.role == "root"), "")
    return incident.class_.startswith("software/") and label.startswith(("storage/", "network/", "hardware/"))


# --- nodes --------------------------------------------------------------------------------------------------------


class _Found(Struct, kw_only=True):
    """By name: the nodes to leave out, the names refused, and the nodes whose time is over."""

    nodes: dict[str, LeftOut] = {}
    refused: dict[str, Refused] = {}
    over: set[str] = set()


def _left_out(incidents: Iterable[Incident], told: Told, now: datetime) -> _Found:
    """The nodes that these incidents give reason to leave out, each for the longest time."""
    found = _Found()
    for incident in incidents:
        policy = POLICY.get(incident.class_)
        if policy is None or policy.kind != "exclude":
            continue
        until = _from(incident, now) + timedelta(hours=policy.hours)
        one = LeftOut(node="", reason=f"{incident.class_}: {policy.advice}", expires_at=_rfc3339(until))
        for culprit in incident.culprits:
            if culprit.node is None:
                continue
            name, why = _usable(culprit.node, culprit, incident, told.nodes)
            if why:
                found.refused[name] = Refused(name=name, why=why)
            elif until <= now:
                found.over.add(name)
            elif name not in found.nodes or found.nodes[name].expires_at < one.expires_at:
                found.nodes[name] = msgspec.structs.replace(one, node=name)
    return found


def _usable(name: str, culprit: Culprit, incident: Incident, known: list[str] | None) -> tuple[str, str]:
    """The name as the list of nodes spells it, and why it may not be used; empty where it may."""
    if not is_plain_name(name):
        return name, "not the name of a node"
    if _is_unreal(incident) or is_drill_name(name):
        return name, "of a drill"
    if incident.why_unknown is not None or min(incident.confidence, culprit.confidence) < CERTAIN:
        return name, "not named with certainty"
    if known is None:
        return name, "no list of the nodes is known; give --nodes"
    matching = [name] if name in known else [other for other in known if may_be_one(name, other)]
    if len(matching) != 1 or not is_plain_name(matching[0]):
        return name, "not one of the nodes of the job or its cluster"
    return matching[0], ""


def _is_unreal(incident: Incident) -> bool:
    return incident.synthetic or incident.run == "drill"


def _from(incident: Incident, now: datetime) -> datetime:
    """From when a node is left out: from the failure; of a recording, from now."""
    said = incident.ended_at or incident.started_at or incident.detected_at
    if incident.run in _RECORDED or said is None:
        return now
    try:
        return min(datetime.fromisoformat(said), now)
    except (ValueError, TypeError):
        return now


def _rfc3339(moment: datetime) -> str:
    return f"{moment.astimezone(UTC):%Y-%m-%dT%H:%M:%S}Z"
