"""Pods: how their containers ended, why they were taken off their node."""

from collections.abc import Iterable, Mapping
from typing import Any, Final

from shippers.control.kube_placed import Place, Placed, attributes
from shippers.control.kube_watch import Fact
from shippers.control.told import SECOND_NS, Line, at, entries, time_ns, words
from shippers.probes.probe import said

_OOM: Final = "OOMKilled"


class Pods:
    """Pods of all namespaces, or of one."""

    remembers = False
    is_asked_of = True

    def __init__(self, placed: Placed, namespace: str = "") -> None:
        self.name = "kubernetes/pods" + (f"/{namespace}" if namespace else "")
        self._placed = placed
        self._path = f"/api/v1/namespaces/{namespace}/pods" if namespace else "/api/v1/pods"

    def path(self) -> str:
        """Where pods are."""
        return self._path

    def rule(self) -> str:
        """What a Role must have."""
        return 'apiGroups [""], resources ["pods"], verbs ["list", "watch"]'

    def forget(self, shape: dict[str, Any]) -> None:
        """Events about it still come: its place is kept."""

    def facts(self, shape: dict[str, Any], known: dict[str, str]) -> Iterable[Fact]:
        """Containers that ended otherwise than well, the end of the pod itself, and who disturbed it."""
        place = self._placed.note(shape)
        for table in ("initContainerStatuses", "containerStatuses"):
            for status in entries(shape, "status", table):
                for ended in (at(status, "lastState", "terminated"), at(status, "state", "terminated")):
                    if isinstance(ended, Mapping):
                        yield from _ended(shape, place, status, ended)
        yield from _failed(shape, place)
        yield from _disrupted(shape, place)


def _ended(
    shape: Mapping[str, Any], place: Place, status: Mapping[str, Any], ended: Mapping[str, Any]
) -> Iterable[Fact]:
    """One end of one container."""
    code, reason = ended.get("exitCode"), words(ended.get("reason"))
    if not isinstance(code, int) or (code == 0 and reason != _OOM):
        return
    uid, pod, namespace = _names(shape)
    container = words(status.get("name"))
    at_ns = time_ns(ended.get("finishedAt")) or time_ns(ended.get("startedAt"))
    about = attributes(node=place.node, jobs=place.jobs, pod=pod, namespace=namespace)
    text = said(
        "container.exited", namespace=namespace, pod=pod, container=container, node=place.node or None, exitcode=code,
        signal=ended.get("signal") or None, reason=reason,
    )  # fmt: skip
    generation, offset = f"{uid}/{container}", at_ns // SECOND_NS
    yield Fact(
        side=f"{container}/{offset}", value=str(code),
        line=Line(generation=generation, offset=offset, text=text, at_ns=at_ns, attributes=about),
    )  # fmt: skip
    if reason == _OOM:
        line = Line(
            generation=f"{generation}/{_OOM}",
            offset=offset,
            text=_row(shape, place, _OOM),
            at_ns=at_ns,
            attributes=about,
        )
        yield Fact(side=f"{container}/{offset}/{_OOM}", value=_OOM, line=line)


def _failed(shape: Mapping[str, Any], place: Place) -> Iterable[Fact]:
    """The pod as a whole: evicted, rejected, shut down with its node."""
    reason, message = words(at(shape, "status", "reason")), words(at(shape, "status", "message"))
    if at(shape, "status", "phase") != "Failed" or not reason:
        return
    uid, pod, namespace = _names(shape)
    at_ns = _last_ns(shape)
    text = f"Pod {namespace}/{pod} on {place.node or 'no node'} failed: {reason}: {message}"
    about = attributes(node=place.node, jobs=place.jobs, pod=pod, namespace=namespace)
    line = Line(generation=f"{uid}/failed", offset=at_ns // SECOND_NS, text=text, at_ns=at_ns, attributes=about)
    yield Fact(side="failed", value=reason, line=line)
    if reason == "Evicted":
        row = _row(shape, place, reason)
        line = Line(generation=f"{uid}/row", offset=at_ns // SECOND_NS, text=row, at_ns=at_ns, attributes=about)
        yield Fact(side="row", value=reason, line=line)


def _disrupted(shape: Mapping[str, Any], place: Place) -> Iterable[Fact]:
    """The condition that says who takes the pod away, set before it is."""
    for condition in entries(shape, "status", "conditions"):
        if condition.get("type") != "DisruptionTarget" or condition.get("status") != "True":
            continue
        uid, pod, namespace = _names(shape)
        at_ns, reason = time_ns(condition.get("lastTransitionTime")), words(condition.get("reason"))
        text = said(
            "pod.disrupted", namespace=namespace, pod=pod, node=place.node or None, reason=reason,
            message=words(condition.get("message")) or None,
        )  # fmt: skip
        about = attributes(node=place.node, jobs=place.jobs, pod=pod, namespace=namespace)
        line = Line(generation=f"{uid}/disrupted", offset=at_ns // SECOND_NS, text=text, at_ns=at_ns, attributes=about)
        yield Fact(side="disrupted", value=reason, line=line)


def _row(shape: Mapping[str, Any], place: Place, status: str) -> str:
    """As `kubectl get pods -o wide` shows it."""
    restarts = sum(int(s.get("restartCount") or 0) for s in entries(shape, "status", "containerStatuses"))
    wide = f", IP=<none>, NODE={place.node}, NOMINATEDNODE=<none>, READINESSGATES=<none>" if place.node else ""
    containers = len(entries(shape, "spec", "containers"))
    name = _names(shape)[1]
    return f"kubectl get pods: NAME={name}, READY=0/{containers}, STATUS={status}, RESTARTS={restarts}, AGE=0s{wide}"


def _names(shape: Mapping[str, Any]) -> tuple[str, str, str]:
    meta = at(shape, "metadata") or {}
    return str(meta.get("uid")), words(meta.get("name")), words(meta.get("namespace"))


def _last_ns(shape: Mapping[str, Any]) -> int:
    """When the pod last changed, by what it says of itself."""
    times = [time_ns(condition.get("lastTransitionTime")) for condition in entries(shape, "status", "conditions")]
    statuses = entries(shape, "status", "containerStatuses")
    times += [time_ns(at(status, "state", "terminated", "finishedAt")) for status in statuses]
    return max(times, default=0) or time_ns(at(shape, "metadata", "creationTimestamp"))
