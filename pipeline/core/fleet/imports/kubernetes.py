"""Nodes, drains and jobs from `kubectl get nodes,pods,events -A -o json`: the state at a moment and what it remembers.

A node object tells since when the node is there, what it is (labels) and that it is cordoned or not ready (a drain, as
it takes no work); events tell cordons that are over. Pods with GPUs are job attempts: those of one job that run at one
time are one attempt. What still holds (a node that is there, a cordon, a pod that runs) holds up to the last time told
(a kubelet's heartbeat), for what comes after it the next snapshot tells. What was removed before is not told: import a
snapshot every day, each under its own name.
"""

from collections import defaultdict
from collections.abc import Iterable, Mapping
from typing import Any, Final, cast

import msgspec
from msgspec import Struct

from pipeline.core.fleet.attempts import busy_spans
from pipeline.core.fleet.defects import of_span
from pipeline.core.fleet.history import GPUS
from pipeline.core.fleet.imports.told import ImportFormatError, Told, instants, numbered
from pipeline.core.fleet.installed import SEEN
from pipeline.core.fleet.records import AttemptEnd, Defect, FleetSpan, JobAttempt

_RESOURCES: Final = ("nvidia.com/gpu", "amd.com/gpu")
# The first label that a node has counts.
_LABELS: Final[Mapping[str, tuple[str, ...]]] = {
    "sku": ("nvidia.com/gpu.product", "amd.com/gpu.product-name", "cloud.google.com/gke-accelerator"),
    "driver": ("nvidia.com/cuda.driver-version.full", "nvidia.com/gpu.driver-version", "amd.com/gpu.driver-version"),
    "rack": (
        "topology.kubernetes.io/rack",
        "network.topology.nvidia.com/leaf",
        "topology.k8s.aws/network-node-layer-3",
    ),
}
_JOB_LABELS: Final = (
    "jobset.sigs.k8s.io/jobset-name", "training.kubeflow.org/job-name", "leaderworkerset.sigs.k8s.io/name",
    "volcano.sh/job-name", "ray.io/cluster", "batch.kubernetes.io/job-name", "job-name",
)  # fmt: skip
_BEGINS: Final[Mapping[str, str]] = {"NodeNotSchedulable": "cordon", "NodeNotReady": "not ready"}
_ENDS: Final[Mapping[str, str]] = {"NodeSchedulable": "cordon", "NodeReady": "not ready"}
_POD_ENDS: Final[Mapping[str, AttemptEnd]] = {
    "Preempted": "preempted", "Preempting": "preempted", "NodeLost": "node_failure", "NodeShutdown": "node_failure",
    "Terminated": "node_failure", "DeadlineExceeded": "timed_out", "Shutdown": "node_failure",
}  # fmt: skip


class _Pod(Struct, frozen=True, kw_only=True):
    job: str
    node: str
    gpus: int
    made_ns: int | None
    from_ns: int
    to_ns: int | None
    end: AttemptEnd


class _Doubt(Exception):
    """What an item says cannot be used: kind and text."""


def parse_kubernetes(text: str, *, cluster: str, source: str) -> Told:
    """Spans and attempts of a snapshot. Raises ImportFormatError for what is no list of Kubernetes objects."""
    try:
        document = msgspec.json.decode(text)
    except (msgspec.DecodeError, RecursionError) as error:
        raise ImportFormatError(
            f"this is no JSON: {error}. Take it with: kubectl get nodes,pods,events -A -o json"
        ) from None
    items = document.get("items") if isinstance(document, dict) else None
    if not isinstance(items, list):
        raise ImportFormatError("there is no list `items`. Take it with: kubectl get nodes,pods,events -A -o json")
    reading = _Reading(cluster, source)
    for number, item in enumerate(items, 1):
        reading.take(item, number)
    return reading.told()


class _Reading:
    """What the items seen so far tell."""

    def __init__(self, cluster: str, source: str) -> None:
        self._cluster, self._source = cluster, source
        self._nodes: dict[str, tuple[int, dict[str, Any]]] = {}
        self._pods: list[_Pod] = []
        self._events: dict[tuple[str, str], list[tuple[int, bool]]] = defaultdict(list)
        self._defects: list[Defect] = []
        self._skipped: dict[str, int] = defaultdict(int)
        self._last_ns = 0

    def take(self, item: object, number: int) -> None:
        """Read one object; one that cannot be read is a defect."""
        name, kind = str(_at(item, "metadata", "name") or ""), _at(item, "kind")
        try:
            match kind:
                case "Node" if name:
                    self._nodes[name] = (number, cast("dict[str, Any]", item))
                case "Pod":
                    self._take_pod(item)
                case "Event":
                    self._take_event(item)
                case _:
                    self._skipped["objects that are no Node, Pod or Event"] += 1
        except _Doubt as doubt:
            self._defects.append(
                Defect(
                    kind=doubt.args[0], cluster=self._cluster, unit=f"{kind} {name}",
                    detail=f"{doubt.args[1]}; not read", source=self._source, row=number,
                )
            )  # fmt: skip

    def told(self) -> Told:
        """All of it, once everything is read."""
        attempts = self._attempts()
        spans = [span for name in sorted(self._nodes) for span in self._of_node(name)]
        spans = [self._until_told(span) for span in spans]
        spans += [span for attempt in attempts for span in busy_spans(attempt, self._last_ns)]
        return Told(
            spans=numbered(spans), attempts=attempts, defects=self._defects, skipped=dict(self._skipped)
        )  # fmt: skip

    def _until_told(self, span: FleetSpan) -> FleetSpan:
        """What still holds is told up to the snapshot only: the next one may lack the node, or have it uncordoned."""
        is_over = span.to_ns is not None
        return span if is_over else msgspec.structs.replace(span, to_ns=max(span.from_ns, self._last_ns))

    def _time(self, text: object) -> int | None:
        if not text:
            return None
        found = instants(str(text), None)
        if not found:
            raise _Doubt("bad_time", f"{str(text)!r} is no time in 2000 to 2099 with a zone")
        self._last_ns = max(self._last_ns, found[0])
        return found[0]

    def _take_pod(self, pod: object) -> None:
        gpus = sum(_pod_gpus(pod))
        node, start = _at(pod, "spec", "nodeName"), self._time(_at(pod, "status", "startTime"))
        if not gpus or not node or start is None:
            self._skipped["pods without a GPU" if not gpus else "pods that never started"] += 1
            return
        ended = self._ended(pod)
        phase = _at(pod, "status", "phase")
        if phase in ("Succeeded", "Failed") and ended is None:
            raise _Doubt("bad_time", "the pod has ended, and nothing says when")
        if ended is not None and ended < start:
            raise _Doubt("inverted_span", "the pod ends before it begins")
        end: AttemptEnd = "completed" if phase == "Succeeded" else "running"
        if phase == "Failed":
            end = _POD_ENDS.get(str(_at(pod, "status", "reason")), "failed")
        self._pods.append(
            _Pod(
                job=_job(pod), node=str(node), gpus=gpus, made_ns=self._time(_at(pod, "metadata", "creationTimestamp")),
                from_ns=start, to_ns=ended if phase in ("Succeeded", "Failed") else None, end=end,
            )
        )  # fmt: skip

    def _ended(self, pod: object) -> int | None:
        statuses = _list(_at(pod, "status", "containerStatuses"))
        told = [self._time(_at(s, "state", "terminated", "finishedAt")) for s in statuses]
        told += [
            self._time(_at(c, "lastTransitionTime"))
            for c in _list(_at(pod, "status", "conditions"))
            if not any(told) and _at(c, "type") in ("DisruptionTarget", "Ready")
        ]
        return max((t for t in told if t is not None), default=None)

    def _take_event(self, event: object) -> None:
        reason = str(_at(event, "reason"))
        node = _at(event, "involvedObject", "name") or _at(event, "regarding", "name")
        if _at(event, "involvedObject", "kind") != "Node" and _at(event, "regarding", "kind") != "Node":
            return
        why = _BEGINS.get(reason) or _ENDS.get(reason)
        times = [_at(event, name) for name in ("lastTimestamp", "eventTime", "firstTimestamp")]
        at_ns = self._time(next((t for t in times if t), None))
        if why and node and at_ns is not None:
            self._events[str(node), why].append((at_ns, reason in _BEGINS))

    def _of_node(self, name: str) -> list[FleetSpan]:
        number, node = self._nodes[name]
        try:
            made_ns = self._time(_at(node, "metadata", "creationTimestamp"))
            for condition in _list(_at(node, "status", "conditions")):
                self._time(_at(condition, "lastHeartbeatTime"))
            begun = {"cordon": self._cordoned_ns(node), "not ready": self._not_ready_ns(node)}
        except _Doubt as doubt:
            self._note(name, number, *doubt.args)
            return []
        if made_ns is None:
            self._note(name, number, "bad_time", "nothing says since when the node is there; not read")
            return []
        spans = [self._span(name, made_ns, None, "installed", _facts(node), SEEN)]
        for why, since_ns in begun.items():
            is_on = why == "cordon" and bool(_at(node, "spec", "unschedulable"))
            spans += self._drains(name, number, why, since_ns, is_on=is_on)
        return spans

    def _drains(self, name: str, number: int, why: str, since_ns: int | None, *, is_on: bool) -> list[FleetSpan]:
        """What events tell from begin to end, and what is on since then."""
        spans: list[FleetSpan] = []
        begun: int | None = None
        for at_ns, is_begin in sorted(self._events[name, why]):
            if is_begin:
                begun = at_ns if begun is None else begun
            elif begun is not None:
                spans.append(self._span(name, begun, at_ns, "drain", {}, "", outcome=why))
                begun = None
        since = since_ns if since_ns is not None else begun if is_on else None
        if since is not None:
            spans.append(self._span(name, since, None, "drain", {}, "", outcome=why))
        elif is_on:
            self._note(name, number, "no_begin", "the node is cordoned, and nothing says since when; not counted")
        return spans

    def _cordoned_ns(self, node: object) -> int | None:
        added = [
            self._time(_at(taint, "timeAdded"))
            for taint in _list(_at(node, "spec", "taints"))
            if _at(taint, "key") == "node.kubernetes.io/unschedulable"
        ]
        return min((t for t in added if t is not None), default=None)

    def _not_ready_ns(self, node: object) -> int | None:
        for condition in _list(_at(node, "status", "conditions")):
            if _at(condition, "type") == "Ready" and _at(condition, "status") != "True":
                return self._time(_at(condition, "lastTransitionTime"))
        return None

    def _attempts(self) -> list[JobAttempt]:
        by_job: dict[str, list[_Pod]] = defaultdict(list)
        for pod in sorted(self._pods, key=lambda p: (p.from_ns, p.node)):
            by_job[pod.job].append(pod)
        found: list[JobAttempt] = []
        for job, pods in sorted(by_job.items()):
            for number, group in enumerate(_at_one_time(pods)):
                found.append(_attempt(self._cluster, self._source, job, number, group, len(found) + 1))
        return found

    def _span(
        self, name: str, from_ns: int, to_ns: int | None, kind: Any, facts: dict[str, str], action: str,
        outcome: str = "",
    ) -> FleetSpan:  # fmt: skip
        return FleetSpan(
            cluster=self._cluster, unit_kind="node", unit=name, kind=kind, from_ns=from_ns, to_ns=to_ns, facts=facts,
            action=action, outcome=outcome, source=self._source,
        )  # fmt: skip

    def _note(self, name: str, number: int, kind: str, text: str) -> None:
        span = self._span(name, 0, None, "installed", {}, "")
        self._defects.append(of_span(kind, msgspec.structs.replace(span, row=number), text))


def _at_one_time(pods: list[_Pod]) -> list[list[_Pod]]:
    """Groups of pods, in order, each of which begins after all of the one before have ended."""
    groups: list[list[_Pod]] = []
    end_ns: int | None = 0
    for pod in pods:
        if not groups or (end_ns is not None and pod.from_ns >= end_ns):
            groups.append([])
            end_ns = pod.to_ns
        groups[-1].append(pod)
        end_ns = None if end_ns is None or pod.to_ns is None else max(end_ns, pod.to_ns)
    return groups


def _attempt(cluster: str, source: str, job: str, number: int, pods: list[_Pod], row: int) -> JobAttempt:
    """The worst end of a pod is that of the attempt; one that still has pods goes on."""
    ends = {pod.end for pod in pods}
    order: tuple[AttemptEnd, ...] = (
        "running", "node_failure", "preempted", "timed_out", "failed", "completed", "unknown",
    )  # fmt: skip
    made = [pod.made_ns for pod in pods if pod.made_ns is not None]
    begin = min(pod.from_ns for pod in pods)
    ended = [pod.to_ns for pod in pods if pod.to_ns is not None]
    return JobAttempt(
        cluster=cluster, job_id=job, attempt=number, nodes=tuple(sorted({pod.node for pod in pods})),
        gpus=sum(pod.gpus for pod in pods), from_ns=begin, to_ns=max(ended) if len(ended) == len(pods) else None,
        end=next(end for end in order if end in ends), queued_ns=max(begin - min(made), 0) if made else None,
        source=source, row=row,
    )  # fmt: skip


def _facts(node: object) -> dict[str, str]:
    labels = _at(node, "metadata", "labels")
    told = {
        field: next((str(_at(labels, name)) for name in names if _at(labels, name)), "")
        for field, names in _LABELS.items()
    }
    machine_id = str(_at(node, "status", "nodeInfo", "machineID") or "")
    gpus = sum(_count(_at(node, "status", "capacity", resource)) for resource in _RESOURCES)
    told |= {"machine_id": machine_id, GPUS: str(gpus) if gpus else ""}
    return {field: value for field, value in told.items() if value}


def _job(pod: object) -> str:
    """Namespace and name of the job that a pod belongs to, else of the pod."""
    labels = _at(pod, "metadata", "labels")
    name = next((_at(labels, label) for label in _JOB_LABELS if _at(labels, label)), _at(pod, "metadata", "name"))
    return f"{_at(pod, 'metadata', 'namespace') or 'default'}/{name}"


def _pod_gpus(pod: object) -> Iterable[int]:
    for container in _list(_at(pod, "spec", "containers")):
        for resource in _RESOURCES:
            told = _at(container, "resources", "limits", resource) or _at(container, "resources", "requests", resource)
            yield _count(told)


def _count(value: object) -> int:
    text = str(value or "0")
    return int(text) if text.isascii() and text.isdigit() and len(text) < 7 else 0


def _at(value: object, *path: str) -> object:
    """What lies at a path of keys; None where anything on the way is missing or no mapping."""
    for key in path:
        value = value.get(key) if isinstance(value, dict) else None
    return value


def _list(value: object) -> list[object]:
    return value if isinstance(value, list) else []
