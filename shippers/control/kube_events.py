"""Events of Kubernetes as the lines that `kubectl get events` prints."""

from collections.abc import Iterable
from typing import Any, Final

from shippers.control.kube_placed import Placed, attributes
from shippers.control.kube_watch import Fact
from shippers.control.told import Line, at, time_ns, words

# Of one event so many occurrences are told; then every doubling: a counter that runs is no news.
_EACH: Final = 5


class Events:
    """Core events (those of events.k8s.io are the same objects)."""

    remembers = False
    is_asked_of = False

    def __init__(self, placed: Placed, skip: Iterable[str], namespace: str = "") -> None:
        self.name = "kubernetes/events" + (f"/{namespace}" if namespace else "")
        self._placed = placed
        self._skip = frozenset(skip)
        self._path = f"/api/v1/namespaces/{namespace}/events" if namespace else "/api/v1/events"

    def path(self) -> str:
        """Where events are."""
        return self._path

    def rule(self) -> str:
        """What a Role must have."""
        return 'apiGroups [""], resources ["events"], verbs ["list", "watch"]'

    def forget(self, shape: dict[str, Any]) -> None:
        """Events are deleted after an hour; that is no news."""

    def facts(self, shape: dict[str, Any], known: dict[str, str]) -> Iterable[Fact]:
        """One line an occurrence."""
        reason = words(shape.get("reason"))
        if reason in self._skip and shape.get("type") != "Warning":
            return
        series, about = at(shape, "series"), at(shape, "involvedObject") or {}
        count = _count(at(series, "count") or shape.get("count"))
        told = known.get("")
        if told is not None and count > _EACH and count < 2 * int(told):
            return
        last = (at(series, "lastObservedTime"), shape.get("lastTimestamp"), shape.get("eventTime"))
        at_ns = next(filter(None, map(time_ns, last)), 0) or time_ns(at(shape, "metadata", "creationTimestamp"))
        kind, name = words(about.get("kind")).lower(), words(about.get("name"))
        text = (
            f"kubectl events: LASTSEEN=0s, TYPE={words(shape.get('type')) or 'Normal'}, REASON={reason}, "
            f"OBJECT={kind}/{name}, MESSAGE={words(shape.get('message'))}"
        )
        yield Fact(
            side="", value=str(count),
            line=Line(
                generation=str(at(shape, "metadata", "uid")), offset=count, text=text, at_ns=at_ns,
                attributes=self._about(shape, kind, name),
            ),
        )  # fmt: skip

    def _about(self, shape: dict[str, Any], kind: str, name: str) -> dict[str, str]:
        """Of which node and job an event speaks."""
        about = at(shape, "involvedObject") or {}
        uid = str(about.get("uid") or "")
        place = self._placed.of(uid)
        jobs = place.jobs if kind == "pod" else tuple(filter(None, (uid, name)))
        host = str(at(shape, "source", "host") or shape.get("reportingInstance") or "")
        is_kubelet = "kubelet" in (at(shape, "source", "component"), shape.get("reportingComponent"))
        node = name if kind == "node" else place.node or (host if is_kubelet else self._placed.nodes_of(jobs))
        return attributes(
            node=node, jobs=() if kind == "node" else jobs, count=str(_count(shape.get("count"))),
            namespace=words(about.get("namespace")), object=f"{kind}/{name}",
        )  # fmt: skip


def _count(value: object) -> int:
    return value if isinstance(value, int) and 0 < value < 2**53 else 1
