"""Where pods are, and under which names their job may be known elsewhere: what an event about a pod does not say."""

import threading
from collections import OrderedDict
from collections.abc import Mapping
from typing import Any, Final

from msgspec import Struct

from shippers.control.told import at, entries

MAX_PODS: Final = 100_000
MAX_NODES: Final = 4  # of a job: enough to find where it is known
# Labels that name the job of a pod, or its identity.
JOB_LABELS: Final = (
    "batch.kubernetes.io/controller-uid", "controller-uid", "batch.kubernetes.io/job-name", "job-name",
    "jobset.sigs.k8s.io/jobset-uid", "jobset.sigs.k8s.io/jobset-name", "training.kubeflow.org/job-name",
    "leaderworkerset.sigs.k8s.io/name", "volcano.sh/job-name", "ray.io/cluster",
)  # fmt: skip


class Place(Struct, frozen=True, kw_only=True):
    """The node of a pod (empty: none yet) and the names of its job."""

    node: str = ""
    jobs: tuple[str, ...] = ()


class Placed:
    """The pods that were seen, by uid. Those that are gone stay until there is no room: events come after them."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._pods: OrderedDict[str, Place] = OrderedDict()
        self._nodes: OrderedDict[str, dict[str, None]] = OrderedDict()

    def note(self, shape: Mapping[str, Any]) -> Place:
        """Where a pod is."""
        place = Place(node=str(at(shape, "spec", "nodeName") or ""), jobs=jobs_of(shape))
        with self._lock:
            self._pods[str(at(shape, "metadata", "uid"))] = place
            while len(self._pods) > MAX_PODS:
                self._pods.popitem(last=False)
            for name in place.jobs if place.node else ():
                nodes = self._nodes.setdefault(name, {})
                nodes[place.node] = None
                if len(nodes) > MAX_NODES:
                    del nodes[next(iter(nodes))]
            while len(self._nodes) > MAX_PODS:
                self._nodes.popitem(last=False)
        return place

    def nodes_of(self, jobs: tuple[str, ...]) -> str:
        """Some nodes on which pods of a job are or were, with commas between."""
        with self._lock:
            return next((",".join(self._nodes[name]) for name in jobs if name in self._nodes), "")

    def of(self, uid: str) -> Place:
        """Where a pod is or was."""
        with self._lock:
            return self._pods.get(uid, Place())


def jobs_of(shape: Mapping[str, Any]) -> tuple[str, ...]:
    """The names and ids of what a pod, a job or a workload belongs to, the pod's own job first."""
    labels = at(shape, "metadata", "labels") or {}
    names = [str(labels[label]) for label in JOB_LABELS if labels.get(label)]
    for owner in entries(shape, "metadata", "ownerReferences"):
        names += [str(owner[key]) for key in ("uid", "name") if owner.get(key)]
    namespace = str(at(shape, "metadata", "namespace") or "")
    qualified = [f"{namespace}/{name}" for name in names if namespace]
    return tuple(dict.fromkeys([*names, *qualified]))


def of_itself(shape: Mapping[str, Any]) -> tuple[str, ...]:
    """The names of a job object, and of what it belongs to."""
    meta = at(shape, "metadata") or {}
    name, namespace = str(meta.get("name") or ""), str(meta.get("namespace") or "")
    own = [str(meta.get("uid") or ""), name, f"{namespace}/{name}" if namespace else ""]
    return tuple(dict.fromkeys([*filter(None, own), *jobs_of(shape)]))


def attributes(*, node: str = "", jobs: tuple[str, ...] = (), **more: str) -> dict[str, str]:
    """What goes with a line: of which node it speaks, and which names its job may have."""
    said = {"node": node, "jobs": ",".join(jobs[:16]), **more}
    return {name: value for name, value in said.items() if value}
