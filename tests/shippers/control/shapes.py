"""Objects of Kubernetes as its API gives them, as small as they may be."""

from typing import Any

Shape = dict[str, Any]
EVENTS = "/api/v1/events"
PODS = "/api/v1/pods"
NODES = "/api/v1/nodes"
JOBS = "/apis/batch/v1/jobs"
WORKLOADS = "/apis/kueue.x-k8s.io/v1beta1/workloads"


def event(uid: str, reason: str, message: str, **more: Any) -> Shape:
    about = more.pop("about", {"kind": "Pod", "namespace": "ml", "name": "train-1", "uid": "pod-1"})
    return {
        "metadata": {"name": uid, "uid": uid, "namespace": "ml", "creationTimestamp": "2026-03-04T05:06:00Z"},
        "involvedObject": about, "reason": reason, "message": message, "type": more.pop("type", "Warning"),
        "lastTimestamp": "2026-03-04T05:06:07Z", "count": 1,
        "source": {"component": "kubelet", "host": "gpu17"}, **more,
    }  # fmt: skip


def pod(uid: str = "pod-1", name: str = "train-1", node: str = "gpu17", **status: Any) -> Shape:
    return {
        "metadata": {
            "name": name, "uid": uid, "namespace": "ml", "creationTimestamp": "2026-03-04T01:00:00Z",
            "labels": {"batch.kubernetes.io/job-name": "train", "batch.kubernetes.io/controller-uid": "job-uid"},
        },
        "spec": {"nodeName": node, "containers": [{"name": "main"}]}, "status": {"phase": "Running", **status},
    }  # fmt: skip


def ended(code: int, reason: str = "Error", at: str = "2026-03-04T05:06:09Z") -> Shape:
    return {
        "containerStatuses": [
            {
                "name": "main",
                "restartCount": 0,
                "state": {"terminated": {"exitCode": code, "reason": reason, "finishedAt": at}},
            }
        ]
    }


def node(
    name: str = "gpu17", ready: str = "True", *, unschedulable: bool = False, labels: Shape | None = None
) -> Shape:
    reason = "KubeletReady" if ready == "True" else "NodeStatusUnknown"
    managed = (
        [{"time": "2026-03-04T05:00:00Z", "fieldsV1": {"f:spec": {"f:unschedulable": {}}}}] if unschedulable else []
    )
    return {
        "metadata": {
            "name": name, "uid": f"uid-{name}", "labels": labels or {},
            "managedFields": managed, "creationTimestamp": "2026-01-01T00:00:00Z",
        },
        "spec": {"unschedulable": True} if unschedulable else {},
        "status": {
            "conditions": [
                {
                    "type": "Ready", "status": ready, "reason": reason,
                    "message": "Kubelet stopped posting node status.", "lastTransitionTime": "2026-03-04T05:06:07Z",
                }
            ]
        },
    }  # fmt: skip
