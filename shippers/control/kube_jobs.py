"""Jobs, JobSets and Kueue's workloads: that one failed, was evicted or is started again."""

from collections.abc import Iterable, Mapping
from typing import Any, Final

from shippers.control.kube_api import Api, MissingError
from shippers.control.kube_placed import Placed, attributes, of_itself
from shippers.control.kube_watch import Fact
from shippers.control.told import SECOND_NS, Line, at, entries, time_ns, words
from shippers.probes.probe import said

# By kind: API group, the plural name, and the conditions that tell something when they are True.
GROUPS: Final[Mapping[str, tuple[str, str, tuple[str, ...]]]] = {
    "jobs": ("batch", "jobs", ("Failed",)),
    "jobsets": ("jobset.x-k8s.io", "jobsets", ("Failed",)),
    "workloads": ("kueue.x-k8s.io", "workloads", ("Evicted",)),
}


class JobObjects:
    """One kind of job object, in the version that the server prefers."""

    remembers = False
    is_asked_of = False

    def __init__(self, api: Api, placed: Placed, kind: str, namespace: str = "") -> None:
        self._placed = placed
        self._group, self._plural, self._telling = GROUPS[kind]
        self.name = f"kubernetes/{kind}" + (f"/{namespace}" if namespace else "")
        self._api = api
        self._namespace = namespace
        self._version = "v1" if kind == "jobs" else ""

    def path(self) -> str:
        """Where the objects are: asked of the server once. MissingError where the cluster has no such kind."""
        if not self._version:
            found = self._api.get(f"/apis/{self._group}")
            self._version = str(at(found, "preferredVersion", "version") or "")
            if not self._version:
                raise MissingError(f"/apis/{self._group}: no version")
        within = f"namespaces/{self._namespace}/" if self._namespace else ""
        return f"/apis/{self._group}/{self._version}/{within}{self._plural}"

    def rule(self) -> str:
        """What a Role must have."""
        return f'apiGroups ["{self._group}"], resources ["{self._plural}"], verbs ["list", "watch"]'

    def forget(self, shape: dict[str, Any]) -> None:
        """Nothing is kept of it."""

    def facts(self, shape: dict[str, Any], known: dict[str, str]) -> Iterable[Fact]:
        """Conditions that tell something, and restarts."""
        meta = at(shape, "metadata") or {}
        uid, name = str(meta.get("uid")), f"{words(meta.get('namespace'))}/{words(meta.get('name'))}"
        jobs = of_itself(shape)
        about = attributes(node=self._placed.nodes_of(jobs), jobs=jobs, object=f"{self._plural}/{name}")
        for condition in entries(shape, "status", "conditions"):
            kind = words(condition.get("type"))
            if kind in self._telling and condition.get("status") == "True":
                yield self._condition(uid, name, kind, condition, about)
        restarts = at(shape, "status", "restarts")
        if isinstance(restarts, int) and 0 < restarts < 2**53:
            at_ns = max(
                (time_ns(c.get("lastTransitionTime")) for c in entries(shape, "status", "conditions")), default=0
            )
            at_ns = at_ns or time_ns(meta.get("creationTimestamp"))
            text = said("job.restarted", kind=self._plural, job=name, restarts=restarts)
            line = Line(generation=f"{uid}/restarts", offset=restarts, text=text, at_ns=at_ns, attributes=about)
            yield Fact(side="restarts", value=str(restarts), line=line)

    def _condition(self, uid: str, name: str, kind: str, condition: Mapping[str, Any], about: dict[str, str]) -> Fact:
        reason, message = words(condition.get("reason")), words(condition.get("message"))
        since_ns = time_ns(condition.get("lastTransitionTime"))
        # Kueue's own events call an eviction so.
        what = f"EvictedDueTo{reason}" if kind == "Evicted" else f"{kind}: {reason}"
        line = Line(
            generation=f"{uid}/{kind}", offset=since_ns // SECOND_NS, at_ns=since_ns, attributes=about,
            text=f"{self._plural} {name} {what}: {message}",
        )  # fmt: skip
        return Fact(side=f"{kind} {since_ns}", value=reason, line=line)
