"""Settings of the agent that reads the control plane of a cluster."""

from typing import Literal

from msgspec import Struct


class _Table(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """A table of the file; an unknown key is an error."""


class KubernetesSettings(_Table, frozen=True, kw_only=True):
    """Which API server, and what is watched there. Without `kubeconfig` it is the cluster that the agent runs in.

    `namespaces`: only these (then a Role in each of them is enough, and nodes are not watched); empty: all. `skip` are
    reasons of events that tell nothing: what a healthy pod goes through.
    """

    kubeconfig: str = ""
    context: str = ""
    namespaces: tuple[str, ...] = ()
    pod_selector: str = ""
    watch: tuple[Literal["events", "pods", "nodes", "jobs", "jobsets", "workloads"], ...] = (
        "events", "pods", "nodes", "jobs", "jobsets", "workloads",
    )  # fmt: skip
    skip: tuple[str, ...] = (
        "Pulling", "Pulled", "Created", "Started", "Scheduled", "SuccessfulCreate", "SuccessfulDelete", "Completed",
        "SandboxChanged", "ScalingReplicaSet", "LeaderElection", "SuccessfulMountVolume", "SuccessfulAttachVolume",
        "QuotaReserved", "Admitted", "CreatedWorkload", "NodeHasSufficientMemory", "NodeHasNoDiskPressure",
        "NodeHasSufficientPID", "NodeAllocatableEnforced", "RegisteredNode", "Synced",
    )  # fmt: skip
    lease: str = "rootrank-control"
    lease_namespace: str = ""
    timeout_s: float = 30.0


class SlurmSettings(_Table, frozen=True, kw_only=True):
    """How Slurm is asked: `scontrol` by name or path, so often, and how long it may take."""

    scontrol: str = "scontrol"
    every_s: float = 15.0
    timeout_s: float = 10.0
    conf: str = ""


class TopologySettings(_Table, frozen=True, kw_only=True):
    """A file of who hangs where: a table (`.csv`) with the columns node, rack, nvlink_domain, leaf_switch,
    power_feed, or a topology.conf of Slurm.
    """

    table: str
    every_s: float = 300.0


class ControlSettings(_Table, frozen=True, kw_only=True):
    """The whole table `[control]`. Of several agents with one reporter name one is active: it has the seat.

    `seat`: `lease` is a Lease of Kubernetes, `file` a file that all of them see (`seat_file`), `none`: there is only
    this one. `auto`: a lease where Kubernetes is read, else the file where one is named, else none.
    A stand-by takes over when the seat was not renewed for `seat_s`.
    """

    identity: str = ""
    seat: Literal["auto", "lease", "file", "none"] = "auto"
    seat_file: str = ""
    seat_s: float = 15.0
    renew_s: float = 5.0
    kubernetes: KubernetesSettings | None = None
    slurm: SlurmSettings | None = None
    topology: TopologySettings | None = None
