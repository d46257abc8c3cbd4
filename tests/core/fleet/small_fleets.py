"""Small fleets whose every figure can be worked out by hand. Hours count from the begin of the window."""

from collections.abc import Sequence

from pipeline.core.fleet.components import category_of, component_of
from pipeline.core.fleet.records import Cohort, Exposure, Failure, Fleet, UnitKind

HOUR_NS = 3_600_000_000_000
T0 = 20_000 * 24 * HOUR_NS
UNKNOWN = Cohort()


def unit(
    name: str, hours: float, *, kind: UnitKind = "node", node: str = "", cohort: Cohort = UNKNOWN, busy: float = 0,
    observed: float | None = None, installed: float | None = None, cluster: str = "c1",
) -> Exposure:  # fmt: skip
    """A unit in service for so long, and installed and observed as long unless told otherwise."""
    return Exposure(
        cluster=cluster, unit_kind=kind, unit=name, node=node or name, cohort=cohort,
        installed_ns=_ns(hours if installed is None else installed), in_service_ns=_ns(hours), busy_ns=_ns(busy),
        observed_ns=_ns(hours if observed is None else observed),
    )  # fmt: skip


def gpu(name: str, node: str, hours: float, *, cohort: Cohort = UNKNOWN) -> Exposure:
    """A GPU in a node."""
    return unit(name, hours, kind="gpu", node=node, cohort=cohort)


def failed(
    hour: float, node: str = "", *, gpu: str = "", class_: str = "hardware/gpu_xid_79", cohort: Cohort = UNKNOWN,
    lost: float | None = 1.0, cluster: str = "c1", incident: str = "",
) -> Failure:  # fmt: skip
    """A failure of a node, of a GPU in it, or of nobody."""
    return Failure(
        cluster=cluster, incident_id=incident or f"{class_}@{hour}", at_ns=T0 + _ns(hour), class_=class_,
        category=category_of(class_), component=component_of(class_), unit_kind="gpu" if gpu else "node",
        unit=gpu or node, node=node, cohort=cohort, lost_gpu_hours=lost,
    )  # fmt: skip


def fleet(exposures: Sequence[Exposure], failures: Sequence[Failure] = (), hours: float = 240) -> Fleet:
    """A window of so many hours."""
    return Fleet(from_ns=T0, to_ns=T0 + _ns(hours), exposures=list(exposures), failures=list(failures))


def _ns(hours: float) -> int:
    return int(hours * HOUR_NS)
