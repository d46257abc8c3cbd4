"""What ties incidents to each other: the same element at one time, and the same machine, device or code again.

Pure. A mark is a name of something that may fail twice; two verdicts with a common mark are compared, no others.
"""

from collections.abc import Iterable, Mapping
from datetime import datetime, timedelta
from typing import Final

from pipeline.core import keys
from schemas.records import Culprit, Incident, Related, Verdict

# Jobs that hang on one server or switch notice it within minutes of each other: their clients retry at their own pace.
ONE_FAULT: Final = timedelta(minutes=15)
# An earlier failure of the same machine or device says something for so long.
RECENT: Final = timedelta(days=7)
MAX_RELATED: Final = 3
# Classes whose fault is in what several jobs use; of these the server or file system is the element.
_SHARED: Final = ("storage/", "network/fabric_congestion", "hardware/nvswitch_sxid", "hardware/fabric_manager",
                  "hardware/imex", "hardware/nvlink_fault")  # fmt: skip
_CODE: Final = "software/"


def elements_of(class_: str, attributes: Mapping[str, str], culprits: Iterable[Culprit]) -> dict[str, str]:
    """The shared elements that a root blames, by name: what people call each. Empty where it blames none.

    A Lustre target (`scratch-OST0003_UUID`) belongs to the file system in front of its number.
    """
    if not class_.startswith(_SHARED):
        return {}
    found = {}
    server, target = attributes.get("server", ""), attributes.get("target", "")
    if server and class_.startswith("storage/"):
        found[f"server {server}"] = f"the server {server}"
    if "-OST" in target or "-MDT" in target:
        name = target.partition("-OST")[0].partition("-MDT")[0]
        found[f"lustre {name}"] = f"the file system {name}"
    for culprit in culprits:
        if culprit.nvlink_domain:
            found[f"nvlink domain {culprit.nvlink_domain}"] = f"the NVLink domain {culprit.nvlink_domain}"
        if culprit.switch and culprit.node:
            found[f"switch {culprit.node} {culprit.switch}"] = f"the switch {culprit.switch} of {culprit.node}"
    return found


def same_element(a: Verdict, b: Verdict) -> bool:
    """Whether two verdicts blame the same element for the same at about the same time."""
    if not a.elements.keys() & b.elements.keys():
        return False
    first, second = _incident(a), _incident(b)
    if first is None or second is None or first.class_ != second.class_:
        return False
    began, other = _time(first), _time(second)
    return began is not None and other is not None and abs(began - other) <= ONE_FAULT


def marks_of(verdict: Verdict) -> set[str]:
    """The names under which a verdict may be found again."""
    incident = _incident(verdict)
    if incident is None:
        return set()
    return {*verdict.elements, *(name for name, _ in _things(incident))}


def related_of(verdict: Verdict, others: Iterable[Verdict]) -> list[Related]:
    """The last few of the others that failed on the same thing earlier, the latest first."""
    incident = _incident(verdict)
    began = _time(incident) if incident is not None else None
    if incident is None or began is None:
        return []
    mine = dict(reversed(_things(incident)))
    found = []
    for other in others:
        earlier = _incident(other)
        at = _time(earlier) if earlier is not None else None
        if earlier is None or at is None or not timedelta(0) < began - at <= RECENT:
            continue
        what = next((words for name, words in _things(earlier) if name in mine), None)
        if what is not None:
            found.append((at, Related(incident_id=earlier.incident_id, why=_why(what, earlier, began - at))))
    found.sort(key=lambda pair: (pair[0], pair[1].incident_id), reverse=True)
    return [related for _, related in found[:MAX_RELATED]]


def _things(incident: Incident) -> list[tuple[str, str]]:
    """What failed, the narrowest first: (name, words)."""
    things = []
    for culprit in incident.culprits:
        place = f"{incident.cluster}/{culprit.machine_id or culprit.node}"
        numbers = [number for number in (culprit.gpu_uuid, culprit.serial) if number is not None]
        things += [(f"gpu {number}", "the same GPU") for number in numbers]
        if culprit.node is None and culprit.machine_id is None:
            continue
        if culprit.pci_bus_id is not None:
            things.append((f"device {place} {culprit.pci_bus_id}", "the same device"))
        if culprit.nic is not None:
            things.append((f"nic {place} {culprit.nic}", "the same network card"))
        if not incident.class_.startswith(_CODE):
            things.append((f"node {place}", "the same node"))
    if incident.class_.startswith(_CODE) and incident.failure:
        things += [
            (f"code {incident.cluster}/{job.job_id} {_code(incident)}", "the same code") for job in incident.jobs
        ]
    return things


def _code(incident: Incident) -> str:
    return keys.digest(incident.class_, incident.failure)


def _why(what: str, earlier: Incident, ago: timedelta) -> str:
    hours = ago.total_seconds() / 3600
    when = f"{hours / 24:.1f} days" if hours >= 48 else f"{hours:.1f} h" if hours >= 1 else f"{hours * 60:.0f} min"
    return f"{what} failed {when} earlier ({earlier.class_})"


def _incident(verdict: Verdict) -> Incident | None:
    return verdict.incident if isinstance(verdict.incident, Incident) else None


def _time(incident: Incident) -> datetime | None:
    return datetime.fromisoformat(incident.started_at) if incident.started_at else None
