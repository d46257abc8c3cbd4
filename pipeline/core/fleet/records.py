"""The facts that fleet statistics are made of. Pure values; times are Unix time in ns, spans are [from, to).

A unit is a GPU (by UUID, else serial number) or a node (by machine id, else name): names and bus ids move, units do
not.
"""

from typing import Final, Literal

from msgspec import Struct

UnitKind = Literal["gpu", "node"]
# `installed`: the unit is there. `facts`: what holds of it for a time (driver, rack), no state of its own.
# `drain` to `reset`: it is not in service. `busy`: inside a job attempt. `observed`: an agent told of its progress.
SpanKind = Literal[
    "installed", "facts", "drain", "repair", "maintenance", "upgrade", "boot", "reset", "busy", "observed"
]
ExposureKind = Literal["installed", "in_service", "busy", "observed"]
# Never in one figure: what broke by itself, what somebody planned, what the user's own program did, what nobody knows.
Category = Literal["infrastructure", "planned", "user_code", "unknown"]
AttemptEnd = Literal["running", "completed", "failed", "node_failure", "cancelled", "preempted", "timed_out", "unknown"]


class Cohort(Struct, frozen=True, kw_only=True, order=True):
    """What units are compared by; empty text where not known."""

    sku: str = ""
    rack: str = ""
    position: str = ""
    driver: str = ""
    firmware: str = ""
    batch: str = ""


COHORT_FIELDS: Final = Cohort.__struct_fields__


class FleetSpan(Struct, frozen=True, kw_only=True):
    """Something that holds of a unit in [from_ns, to_ns); `to_ns` None: still.

    `node` is the machine that a GPU sits in. `facts` are fields of a Cohort and, beside them, of a node its other name
    (`name` or `machine_id`, whichever `unit` is not), how many `gpus` it has (of a busy span: the job had of them) and
    its wiring (`leaf_switch`, `nvlink_domain`, `power_feed`), of a GPU `pci_bus_id` and `serial`. `source` and `row`
    say where it stands written: a file and its line, or who told it and which of its records.
    """

    cluster: str
    unit_kind: UnitKind
    unit: str
    kind: SpanKind
    from_ns: int
    to_ns: int | None = None
    node: str = ""
    facts: dict[str, str] = {}
    job_id: str = ""
    attempt: int = 0
    action: str = ""
    outcome: str = ""
    ticket: str = ""
    source: str = ""
    row: int = 0


class Exposure(Struct, frozen=True, kw_only=True):
    """Time at risk of one unit while it belonged to one cohort, by kind, in ns."""

    cluster: str
    unit_kind: UnitKind
    unit: str
    node: str
    cohort: Cohort
    installed_ns: int = 0
    in_service_ns: int = 0
    busy_ns: int = 0
    observed_ns: int = 0


class Defect(Struct, frozen=True, kw_only=True):
    """Data that cannot be true or cannot be counted, with its address. `kind` is a short name in snake case."""

    kind: str
    cluster: str
    unit: str
    detail: str
    source: str = ""
    row: int = 0
    at_ns: int | None = None


class Failure(Struct, frozen=True, kw_only=True):
    """One incident that stopped or slowed work, on the unit that it is blamed on (`unit` empty: on nobody)."""

    cluster: str
    incident_id: str
    at_ns: int
    class_: str
    category: Category
    component: str
    unit_kind: UnitKind = "node"
    unit: str = ""
    node: str = ""
    cohort: Cohort = Cohort()
    job_ids: tuple[str, ...] = ()
    job_gpus: int | None = None
    lost_gpu_hours: float | None = None
    corrected_by: str = ""


class JobAttempt(Struct, frozen=True, kw_only=True):
    """One attempt of a job. `queued_ns`: how long it was eligible and waited."""

    cluster: str
    job_id: str
    attempt: int
    nodes: tuple[str, ...]
    gpus: int | None
    from_ns: int
    to_ns: int | None
    end: AttemptEnd = "unknown"
    queued_ns: int | None = None
    owner: str = ""
    source: str = ""
    row: int = 0


class Repair(Struct, frozen=True, kw_only=True):
    """A unit's way back: failed, drained, repair begun and ended, trusted again. None: not yet, or nobody said. Where
    no failure is known (`has_failure`), `failed_ns` is when it was taken away.
    """

    cluster: str
    unit_kind: UnitKind
    unit: str
    failed_ns: int
    has_failure: bool = True
    drained_ns: int | None = None
    begun_ns: int | None = None
    ended_ns: int | None = None
    trusted_ns: int | None = None
    action: str = ""
    outcome: str = ""
    ticket: str = ""


class Life(Struct, frozen=True, kw_only=True):
    """When a unit was installed and removed (None: it is still there)."""

    cluster: str
    unit_kind: UnitKind
    unit: str
    from_ns: int
    to_ns: int | None = None


class EpisodeCount(Struct, frozen=True, kw_only=True):
    """Episodes of one kind of event on one unit in one cohort; `by_window`: episodes by coalescing window in s."""

    cluster: str
    unit_kind: UnitKind
    unit: str
    cohort: Cohort
    name: str
    xid: int | None
    lines: int
    episodes: int
    by_window: dict[int, int] = {}


class Fleet(Struct, frozen=True, kw_only=True):
    """Everything a report of [from_ns, to_ns) is made of. `unbuilt_ns`: of how much of it nothing is known, by cluster;
    under the empty name that of all of them.
    """

    from_ns: int
    to_ns: int
    unbuilt_ns: dict[str, int] = {}
    exposures: list[Exposure] = []
    lives: list[Life] = []
    failures: list[Failure] = []
    attempts: list[JobAttempt] = []
    repairs: list[Repair] = []
    episodes: list[EpisodeCount] = []
    defects: list[Defect] = []
