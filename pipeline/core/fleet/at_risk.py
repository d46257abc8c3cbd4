"""Who was at risk: exposure grouped by cohort, and the cohort and unit that each failure belongs to.

Rates are counted on nodes where the fleet knows nodes, else on GPUs: a failure of a GPU is one of its node too. Where
only GPUs have a fact (a driver), the rates by it are counted on GPUs.
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
class Group:
    """Time at risk of one cohort, in ns: by unit of the kind that is counted, and of all GPUs, in service, observed."""

    by_unit: dict[Unit, int] = field(default_factory=lambda: defaultdict(int))
    node_ns: int = 0
    gpu_ns: int = 0
    in_service_ns: int = 0
    observed_ns: int = 0

    @property
    def total_ns(self) -> int:
        """Time at risk of the units that are counted."""
        return sum(self.by_unit.values())

    @property
    def unobserved_share(self) -> float | None:
        """The share of time in service in which no agent told of progress: failures may be missing there."""
        if not self.in_service_ns:
            return None
        return max(0.0, 1 - self.observed_ns / self.in_service_ns)


@dataclass(frozen=True, kw_only=True)
class AtRisk:
    """Time at risk by the values of `by`. `facts`: the value of all that is in a node; `known`: time of each unit."""

    by: str
    unit_kind: UnitKind
    groups: dict[str, Group]
    facts: dict[Unit, str]
    known: dict[UnitKind, dict[Unit, int]]

    @property
    def whole(self) -> Group:
        """Where the units are not told apart: all of them."""
        return self.groups.get("", Group())


@dataclass(frozen=True, kw_only=True)
class Blame:
    """A failure, the value that it counts for, and its unit of the kind that is counted (None: on none of them)."""

    failure: Failure
    value: str
    unit: Unit | None
    at_risk: bool


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
    """Who was at risk for how long, by the values of a property of units (a cohort field or `cluster`), else together.

    Units are nodes, or GPUs where no node has the property. A failure is counted only on a unit with time at risk.
    """
    unit_kind = counted_kind(fleet, by)
    facts = _facts_of_nodes(fleet.exposures, by)
    groups: dict[str, Group] = defaultdict(Group)
    known: dict[UnitKind, dict[Unit, int]] = {"node": defaultdict(int), "gpu": defaultdict(int)}
    for exposure in fleet.exposures:
        value = value_of(by, exposure.cluster, exposure.cohort)
        if not value and exposure.unit_kind != unit_kind:
            value = facts.get((exposure.cluster, exposure.node), "")
        time_ns = exposure_ns(exposure, kind)
        known[exposure.unit_kind][exposure.cluster, exposure.unit] += time_ns
        _add(groups[value], exposure, time_ns, unit_kind)
    used = {value: group for value, group in groups.items() if group.by_unit or group.gpu_ns or group.node_ns}
    return AtRisk(by=by, unit_kind=unit_kind, groups=used, facts=facts, known=known)


def counted_kind(fleet: Fleet, by: str) -> UnitKind:
    """The kind of unit that rates by this are counted on."""
    if by in COHORT_FIELDS:
        knowing = {e.unit_kind for e in fleet.exposures if value_of(by, e.cluster, e.cohort)}
        if knowing:
            return "node" if "node" in knowing else "gpu"
    return "node" if any(e.unit_kind == "node" for e in fleet.exposures) else "gpu"


def _add(group: Group, exposure: Exposure, time_ns: int, unit_kind: UnitKind) -> None:
    if exposure.unit_kind == "gpu":
        group.gpu_ns += time_ns
    else:
        group.node_ns += time_ns
    if exposure.unit_kind != unit_kind:
        return
    group.in_service_ns += exposure.in_service_ns
    group.observed_ns += min(exposure.observed_ns, exposure.in_service_ns)
    if time_ns:
        group.by_unit[exposure.cluster, exposure.unit] += time_ns


def _facts_of_nodes(exposures: Iterable[Exposure], by: str) -> dict[Unit, str]:
    """What holds of a node and all that is in it, where its parts agree."""
    if by not in COHORT_FIELDS:
        return {}
    seen: dict[Unit, set[str]] = defaultdict(set)
    for exposure in exposures:
        if value := value_of(by, exposure.cluster, exposure.cohort):
            node = exposure.unit if exposure.unit_kind == "node" else exposure.node
            seen[exposure.cluster, node].add(value)
    return {node: next(iter(values)) for node, values in seen.items() if len(values) == 1}


def blamed(failure: Failure, units: AtRisk) -> Blame:
    """Where a failure counts: nowhere if its unit had no time at risk, on no unit if nobody is blamed."""
    node = failure.unit if failure.unit_kind == "node" else failure.node
    place = (failure.cluster, node)
    value = value_of(units.by, failure.cluster, failure.cohort) or units.facts.get(place, "")
    if not failure.unit and not node:
        return Blame(failure=failure, value=value, unit=None, at_risk=True)
    name = node if units.unit_kind == "node" else failure.unit if failure.unit_kind == "gpu" else ""
    own = units.known[failure.unit_kind].get((failure.cluster, failure.unit or node), 0)
    return Blame(
        failure=failure,
        value=value,
        unit=(failure.cluster, name) if name else None,
        at_risk=bool(own or units.known["node"].get(place, 0)),
    )
