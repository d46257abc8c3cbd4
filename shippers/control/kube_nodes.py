"""Nodes: ready or not, conditions, cordons and taints; and by their labels where they hang."""

from collections.abc import Callable, Iterable, Mapping
from typing import Any, Final, TypedDict

from schemas.records import Span, Topology
from schemas.vocabulary import Run
from shippers.control.kube_placed import attributes
from shippers.control.kube_watch import Fact
from shippers.control.told import SECOND_NS, Line, at, entries, time_ns, words
from shippers.probes.probe import said

# The first label that a node has counts.
LABELS: Final[Mapping[str, tuple[str, ...]]] = {
    "rack": ("topology.kubernetes.io/rack", "network.topology.nvidia.com/block", "topology.kubernetes.io/zone"),
    "nvlink_domain": ("nvidia.com/gpu.clique", "network.topology.nvidia.com/accelerator"),
    "leaf_switch": ("network.topology.nvidia.com/leaf", "topology.k8s.aws/network-node-layer-3"),
}  # fmt: skip
# Who sets these says the same by a condition.
_OWN_TAINTS: Final = ("node.kubernetes.io/", "node.cloudprovider.kubernetes.io/")


class Head(TypedDict):
    """What all records of this agent begin with."""

    run: Run
    run_id: str
    cluster: str
    reporter: str


class Nodes:
    """All nodes of the cluster."""

    name = "kubernetes/nodes"
    remembers = True
    is_asked_of = False

    def __init__(self, head: Head, now_ns: Callable[[], int]) -> None:
        self._head = head
        self._now_ns = now_ns

    def path(self) -> str:
        """Where nodes are."""
        return "/api/v1/nodes"

    def rule(self) -> str:
        """What a ClusterRole must have."""
        return 'apiGroups [""], resources ["nodes"], verbs ["list", "watch"]'

    def forget(self, shape: dict[str, Any]) -> None:
        """That it was removed is an event of its own."""

    def facts(self, shape: dict[str, Any], known: dict[str, str]) -> Iterable[Fact]:
        """Every condition, the cordon, taints, and the labels that say where it hangs."""
        name = words(at(shape, "metadata", "name"))
        for condition in entries(shape, "status", "conditions"):
            yield from _condition(shape, name, condition)
        yield self._cordon(shape, name, known)
        yield from self._taints(shape, name, known)
        yield from self._hangs(shape, name, known)

    def _cordon(self, shape: Mapping[str, Any], name: str, known: Mapping[str, str]) -> Fact:
        """That the node takes no new pods, and the time for which it does not."""
        is_normal = at(shape, "spec", "unschedulable") is not True
        before = known.get("cordon", "")
        # Nobody writes down when a cordon ended.
        at_ns = (
            self._now_ns()
            if is_normal
            else int(before)
            if before.isdecimal()
            else _cordoned_ns(shape) or self._now_ns()
        )
        records: tuple[Span, ...] = ()
        if is_normal == bool(before):
            start_ns = int(before) if before.isdecimal() else at_ns
            records = (
                Span(
                    **self._head, node=name, kind="drain", start_unix_nano=start_ns,
                    end_unix_nano=at_ns if is_normal else None, source="kubernetes",
                ),
            )  # fmt: skip
        state = "NodeSchedulable" if is_normal else "NodeNotSchedulable"
        line = Line(
            generation=f"{_uid(shape)}/cordon", offset=_version(shape), at_ns=at_ns, attributes=attributes(node=name),
            text=f"Node {name} status is now: {state}",
        )  # fmt: skip
        return Fact(side="cordon", value=str(at_ns), is_normal=is_normal, line=line, records=records)

    def _taints(self, shape: Mapping[str, Any], name: str, known: Mapping[str, str]) -> Iterable[Fact]:
        """Taints that somebody else than Kubernetes put on: a health check, an operator."""
        found = {}
        for taint in entries(shape, "spec", "taints"):
            key = words(taint.get("key"))
            if not key.startswith(_OWN_TAINTS):
                found[f"taint {key}:{words(taint.get('effect'))}"] = words(taint.get("value"))
        for side in {**found, **{each: "" for each in known if each.startswith("taint ")}}:
            key, _, effect = side.removeprefix("taint ").rpartition(":")
            is_on = side in found
            value, what = found.get(side, ""), "node.tainted" if is_on else "node.untainted"
            line = Line(
                generation=f"{_uid(shape)}/{side}", offset=_version(shape), at_ns=self._now_ns(),
                attributes=attributes(node=name),
                text=said(what, node=name, key=key, effect=effect, value=value or None),
            )  # fmt: skip
            yield Fact(side=side, value=value or "-", is_normal=not is_on, line=line)

    def _hangs(self, shape: Mapping[str, Any], name: str, known: Mapping[str, str]) -> Iterable[Fact]:
        """Where the node hangs, by its labels; since it was made, or since they were changed."""
        labels = at(shape, "metadata", "labels") or {}
        told = {
            what: next((words(labels[label]) for label in names if labels.get(label)), "")
            for what, names in LABELS.items()
        }
        told = {what: value for what, value in told.items() if value}
        value = ",".join(f"{what}={each}" for what, each in told.items())
        before = known.get("topology", "")
        if not value and not before:
            return
        made_ns = time_ns(at(shape, "metadata", "creationTimestamp"))
        since_ns, _, was = before.partition(" ")
        records: tuple[Topology, ...] = ()
        start_ns = int(since_ns) if since_ns.isdecimal() else made_ns
        if was != value:
            now_ns = self._now_ns()
            start_ns = now_ns if before else made_ns
            if before:
                parts = dict(part.partition("=")[::2] for part in was.split(","))
                records += (self._topology(name, int(since_ns), now_ns, parts),)
            records += (self._topology(name, start_ns, None, told),)
        yield Fact(side="topology", value=f"{start_ns} {value}", records=records)

    def _topology(self, name: str, start_ns: int, end_ns: int | None, told: Mapping[str, str]) -> Topology:
        return Topology(
            **self._head, node=name, source="kubernetes labels", start_unix_nano=start_ns, end_unix_nano=end_ns,
            **{what: told[what] for what in LABELS if told.get(what)},
        )  # fmt: skip


def _condition(shape: Mapping[str, Any], name: str, condition: Mapping[str, Any]) -> Iterable[Fact]:
    """One condition. `Ready` and what ends in it is good where True, the others where False."""
    kind, status = words(condition.get("type")), words(condition.get("status"))
    is_good_if = "True" if kind.endswith("Ready") else "False"
    if status == "Unknown" and is_good_if == "False":
        return  # the node is not heard of: Ready says so
    reason, message = words(condition.get("reason")), words(condition.get("message"))
    since = words(condition.get("lastTransitionTime"))
    at_ns, is_normal = time_ns(since), status == is_good_if
    if kind == "Ready":
        text = f"Node {name} status is now: {'NodeReady' if is_normal else 'NodeNotReady'}"
    elif is_good_if == "True" and not is_normal:
        text = f"  {kind}   {status}   {words(condition.get('lastHeartbeatTime'))}   {since}   {reason}   {message}"
    else:
        text = (
            f'Node condition {kind} is now: {status}, reason: {reason}, message: "{message.replace(chr(34), chr(39))}"'
        )
    line = Line(
        generation=f"{_uid(shape)}/{kind}", offset=at_ns // SECOND_NS, text=text, at_ns=at_ns,
        attributes=attributes(node=name, reason=reason, message=message if kind == "Ready" else ""),
    )  # fmt: skip
    yield Fact(side=f"condition {kind}", value=status, is_normal=is_normal, line=line)


def _cordoned_ns(shape: Mapping[str, Any]) -> int:
    """When the node was cordoned: when somebody last wrote that field, or put the taint on."""
    times = [
        time_ns(entry.get("time"))
        for entry in entries(shape, "metadata", "managedFields")
        if isinstance(at(entry, "fieldsV1", "f:spec"), Mapping) and "f:unschedulable" in entry["fieldsV1"]["f:spec"]
    ]
    times += [
        time_ns(taint.get("timeAdded"))
        for taint in entries(shape, "spec", "taints")
        if taint.get("key") == "node.kubernetes.io/unschedulable"
    ]
    return max(times, default=0)


def _uid(shape: Mapping[str, Any]) -> str:
    return str(at(shape, "metadata", "uid"))


def _version(shape: Mapping[str, Any]) -> int:
    """What grows with every change of the object. Servers promise an opaque text; all there are count."""
    text = str(at(shape, "metadata", "resourceVersion") or "")
    return int(text) if text.isdecimal() and len(text) < 19 else 0
