"""Who was at risk: exposure grouped by cohort, and the cohorts and unit that each failure belongs to.

A rate is counted on nodes where nodes have the property, else on GPUs. A node has what it is told to have, else what
all its GPUs agree on. A failure of a GPU is one of its node too: where the two are told different things (the SKU of a
GPU and that of its host), it counts for both, in rows of their own. Over time in jobs only what failed in a job counts.
"""

from collections import defaultdict
from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Final

from pipeline.core.fleet.intervals import Span, has, union
from pipeline.core.fleet.job_size import AFTER_END_NS
from pipeline.core.fleet.records import COHORT_FIELDS, Cohort, Exposure, ExposureKind, Failure, Fleet, UnitKind

HOUR_NS: Final = 3_600_000_000_000
DAY_HOURS: Final = 24
_BOTH: Final = frozenset[UnitKind](("node", "gpu"))
Unit = tuple[str, str]
"""Cluster and name of a unit."""


@dataclass(kw_only=True)
class Units:
    """Time of units of one kind, in ns: at risk by unit; in service and observed of all."""

    at_risk_ns: dict[Unit, int] = field(default_factory=lambda: defaultdict(int))
    in_service_ns: int = 0
    observed_ns: int = 0

    @property
    def total_ns(self) -> int:
        """Time at risk of all."""
        return sum(self.at_risk_ns.values())

    @property
    def unobserved_share(self) -> float | None:
        """The share of time in service in which no agent told of progress: failures may be missing there."""
        return max(0.0, 1 - self.observed_ns / self.in_service_ns) if self.in_service_ns else None


@dataclass(kw_only=True)
class Group:
    """Nodes and GPUs of one cohort."""

    node: Units = field(default_factory=Units)
    gpu: Units = field(default_factory=Units)

    def of(self, kind: UnitKind) -> Units:
        """Those of one kind."""
        return self.node if kind == "node" else self.gpu

    @property
    def counted(self) -> UnitKind:
        """The kind that rates are counted on."""
        return "gpu" if self.gpu.at_risk_ns and not self.node.at_risk_ns else "node"


@dataclass(frozen=True, kw_only=True)
class AtRisk:
    """Time at risk by the values of `by`. `facts`: what holds of each node, where that is one thing all the time.

    `jobs`: when each node was in a job; None: whether it was does not matter.
    """

    by: str
    groups: dict[str, Group]
    facts: dict[Unit, str]
    known: dict[tuple[UnitKind, Unit], int]
    jobs: dict[Unit, list[Span]] | None = None

    @property
    def whole(self) -> Group:
        """Where the units are not told apart: all of them."""
        return self.groups.get("", Group())


@dataclass(frozen=True, kw_only=True)
class Blame:
    """A failure, the values that it counts for, and its node and GPU (None: none of them is blamed).

    `counts_on`: in rates over the time of units of which kind it counts.
    """

    failure: Failure
    values: tuple[str, ...]
    node: Unit | None
    gpu: Unit | None
    counts_on: frozenset[UnitKind]

    def unit(self, kind: UnitKind) -> Unit | None:
        """The unit of a kind that it counts on."""
        return self.node if kind == "node" else self.gpu


def exposure_ns(exposure: Exposure, kind: ExposureKind) -> int:
    """Time at risk of one kind."""
    match kind:
        case "installed":
            return exposure.installed_ns
        case "in_service":
            return exposure.in_service_ns
        case "busy":
            return exposure.busy_ns
        case "observed":
            return exposure.observed_ns


def value_of(by: str, cluster: str, cohort: Cohort) -> str:
    """What a unit is compared by: its cluster, a field of its cohort, or nothing at all."""
    if by == "cluster":
        return cluster
    return str(getattr(cohort, by)) if by in COHORT_FIELDS else ""


def at_risk(fleet: Fleet, by: str, kind: ExposureKind) -> AtRisk:
    """Who was at risk for how long, by the values of `cluster` or a cohort field; together by anything else."""
    facts = facts_of_nodes(fleet.exposures, by)
    groups: dict[str, Group] = defaultdict(Group)
    known: dict[tuple[UnitKind, Unit], int] = defaultdict(int)
    for exposure in fleet.exposures:
        value = value_of(by, exposure.cluster, exposure.cohort) or facts.get((exposure.cluster, exposure.node), "")
        units = groups[value].of(exposure.unit_kind)
        unit, time_ns = (exposure.cluster, exposure.unit), exposure_ns(exposure, kind)
        units.in_service_ns += exposure.in_service_ns
        units.observed_ns += min(exposure.observed_ns, exposure.in_service_ns)
        known[exposure.unit_kind, unit] += time_ns
        if time_ns:
            units.at_risk_ns[unit] += time_ns
    used = {value: group for value, group in groups.items() if group.node.at_risk_ns or group.gpu.at_risk_ns}
    return AtRisk(by=by, groups=used, facts=facts, known=known, jobs=_jobs(fleet) if kind == "busy" else None)


def facts_of_nodes(exposures: Iterable[Exposure], by: str) -> dict[Unit, str]:
    """What holds of a node: what it is told to have, else what its GPUs agree on."""
    if by not in COHORT_FIELDS:
        return {}
    own: dict[Unit, set[str]] = defaultdict(set)
    inside: dict[Unit, set[str]] = defaultdict(set)
    for exposure in exposures:
        if value := value_of(by, exposure.cluster, exposure.cohort):
            (own if exposure.unit_kind == "node" else inside)[exposure.cluster, exposure.node].add(value)
    return {node: next(iter(values)) for node, values in (inside | own).items() if len(values) == 1}


def blamed(failure: Failure, units: AtRisk) -> Blame:
    """Where a failure counts: nowhere if its unit had no time at risk, on no unit if nobody is blamed."""
    name = failure.unit if failure.unit_kind == "node" else failure.node
    node = (failure.cluster, name) if name else None
    gpu = (failure.cluster, failure.unit) if failure.unit_kind == "gpu" and failure.unit else None
    told = (value_of(units.by, failure.cluster, failure.cohort), units.facts.get(node, "") if node else "")
    return Blame(
        failure=failure,
        values=tuple(dict.fromkeys(value for value in told if value)) or ("",),
        node=node,
        gpu=gpu,
        counts_on=_counts_on(node, gpu, units) if _in_job(failure, node, units) else frozenset(),
    )


def _counts_on(node: Unit | None, gpu: Unit | None, units: AtRisk) -> frozenset[UnitKind]:
    """A failure of a GPU counts over the time of nodes if its own node has any, not if only the GPU has."""
    if node is None and gpu is None:
        return _BOTH
    of_node = bool(node and units.known.get(("node", node), 0))
    of_gpu = bool(gpu and units.known.get(("gpu", gpu), 0))
    kinds: tuple[tuple[UnitKind, bool], ...] = (
        ("node", of_node if node else of_gpu), ("gpu", of_gpu if gpu else of_node),
    )  # fmt: skip
    return frozenset(kind for kind, counts in kinds if counts)


def _in_job(failure: Failure, node: Unit | None, units: AtRisk) -> bool:
    if units.jobs is None or failure.job_ids:
        return True
    return node is not None and has(units.jobs.get(node, []), failure.at_ns)


def _jobs(fleet: Fleet) -> dict[Unit, list[Span]]:
    """When each node was in a job, and so shortly after it that a failure still belongs to the job."""
    told: dict[Unit, list[Span]] = defaultdict(list)
    for attempt in fleet.attempts:
        end_ns = fleet.to_ns if attempt.to_ns is None else attempt.to_ns + AFTER_END_NS
        for node in attempt.nodes:
            told[attempt.cluster, node].append((attempt.from_ns, end_ns))
    return {node: union(spans) for node, spans in told.items()}
