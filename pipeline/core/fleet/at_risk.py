"""Who was at risk: exposure grouped by cohort, and the cohorts and unit that each failure belongs to.

A rate is counted on nodes where nodes have the property, else on GPUs. A node has what it is told to have, else what
all its GPUs agree on. A failure of a GPU is one of its node too: where the two are told different things (the SKU of a
GPU and that of its host), it counts for both, in rows of their own.
"""

from collections import defaultdict
from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Final

from pipeline.core.fleet.records import Cohort, Exposure, ExposureKind, Failure, Fleet, UnitKind

HOUR_NS: Final = 3_600_000_000_000
DAY_HOURS: Final = 24
COHORT_FIELDS: Final = Cohort.__struct_fields__
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
    """Time at risk by the values of `by`. `facts`: what holds of each node, where that is one thing all the time."""

    by: str
    groups: dict[str, Group]
    facts: dict[Unit, str]
    known: dict[tuple[UnitKind, Unit], int]

    @property
    def whole(self) -> Group:
        """Where the units are not told apart: all of them."""
        return self.groups.get("", Group())


@dataclass(frozen=True, kw_only=True)
class Blame:
    """A failure, the values that it counts for, and its node and GPU (None: none of them is blamed)."""

    failure: Failure
    values: tuple[str, ...]
    node: Unit | None
    gpu: Unit | None
    at_risk: bool

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
    return AtRisk(by=by, groups=used, facts=facts, known=known)


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
        at_risk=not (node or gpu) or any(units.known.get((kind, unit), 0) for kind, unit in _named(node, gpu)),
    )


def _named(node: Unit | None, gpu: Unit | None) -> Iterable[tuple[UnitKind, Unit]]:
    if node:
        yield "node", node
    if gpu:
        yield "gpu", gpu
