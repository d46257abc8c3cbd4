"""A fleet's report: everything that `rootrank mtbf` prints, from the facts of a window.

Nothing here adds up failures of different categories into a rate: infrastructure, planned and user code stand apart.
"""

from collections import Counter
from collections.abc import Iterable, Sequence
from datetime import UTC, datetime
from typing import Final, get_args

from msgspec import Struct

from pipeline.core.fleet.answers import By, DefectCount, FleetReport, Incidence, RateRow, Survival
from pipeline.core.fleet.at_risk import HOUR_NS, at_risk, exposure_ns
from pipeline.core.fleet.components import CATEGORIES
from pipeline.core.fleet.costs import costs_of, shares_over_time, unknown_share
from pipeline.core.fleet.jobs import Saving, goodput_of, jobs_of
from pipeline.core.fleet.lifetimes import survival_of
from pipeline.core.fleet.peers import lemons_of
from pipeline.core.fleet.propagation import Propagation
from pipeline.core.fleet.rates import OF_FAILURES, How, rates_by
from pipeline.core.fleet.records import Defect, ExposureKind, Fleet, UnitKind
from pipeline.core.fleet.repair_times import repair_times, repeat_rows
from pipeline.core.fleet.sensitive import sensitivity_of
from pipeline.core.fleet.trends import trends_of

EXPOSURES: Final[tuple[ExposureKind, ...]] = get_args(ExposureKind)
DEFAULT_BY: Final[tuple[By, ...]] = ("cluster", "sku", "driver", "rack", "component", "class")
_ALL: Final[By] = "all"
MOST_EXAMPLES: Final = 5


class Options(Struct, frozen=True, kw_only=True):
    """What to report by, and how. `as_of` and `run` are printed as they are."""

    by: tuple[By, ...] = DEFAULT_BY
    how: How = How()
    saving: Saving = Saving()
    as_of: str = ""
    run: str = "live"


def fleet_report(fleet: Fleet, options: Options, propagation: Sequence[Propagation] = ()) -> FleetReport:
    """Make the report. Equal facts and options give an equal report."""
    how = options.how
    lived = [found for kind in get_args(UnitKind) if (found := survival_of(fleet, kind, how.level)) is not None]
    survival: list[Survival] = [curve for curve, _ in lived]
    incidence: list[Incidence] = [row for _, rows in lived for row in rows]
    return FleetReport(
        from_=_day(fleet.from_ns),
        to=_day(fleet.to_ns - 1),
        as_of=options.as_of,
        run=options.run,
        clusters=sorted({e.cluster for e in fleet.exposures} | {f.cluster for f in fleet.failures}),
        nodes=_units(fleet, "node"),
        gpus=_units(fleet, "gpu"),
        window_hours=(fleet.to_ns - fleet.from_ns) / HOUR_NS,
        node_hours=_hours(fleet, "node"),
        gpu_hours=_hours(fleet, "gpu"),
        level=how.level,
        exposure_kind=how.exposure,
        by=list(options.by),
        rates=_rates(fleet, options),
        trends=trends_of(fleet, how.level),
        survival=survival,
        incidence=incidence,
        repair_times=repair_times(fleet),
        repeats=repeat_rows(fleet),
        jobs=jobs_of(fleet, options.saving, how.level),
        goodput=goodput_of(fleet),
        lemons=lemons_of(fleet, how),
        propagation=list(propagation),
        sensitivity=sensitivity_of(fleet, how),
        shares=shares_over_time(fleet),
        unknown_share=unknown_share(fleet.failures),
        costs=costs_of(fleet.failures),
        defects=_defects(fleet.defects),
    )


def _rates(fleet: Fleet, options: Options) -> list[RateRow]:
    """Infrastructure always has its total, also where nothing failed; other categories where they occurred."""
    present = {failure.category for failure in fleet.failures} | {"infrastructure"}
    kind = options.how.exposure
    together = at_risk(fleet, _ALL, kind)
    asked = [by for by in dict.fromkeys(options.by) if by != _ALL]
    units = {by: together if by in OF_FAILURES else at_risk(fleet, by, kind) for by in asked}
    return [
        row
        for category in CATEGORIES
        if category in present
        for by in (_ALL, *asked)
        for row in rates_by(fleet, category, by, units.get(by, together), options.how)
    ]


def _units(fleet: Fleet, kind: UnitKind) -> int:
    return len({(e.cluster, e.unit) for e in fleet.exposures if e.unit_kind == kind})


def _hours(fleet: Fleet, kind: UnitKind) -> dict[ExposureKind, float]:
    units = [exposure for exposure in fleet.exposures if exposure.unit_kind == kind]
    return {name: sum(exposure_ns(exposure, name) for exposure in units) / HOUR_NS for name in EXPOSURES}


def _defects(defects: Iterable[Defect]) -> list[DefectCount]:
    every = list(defects)
    return [
        DefectCount(kind=kind, n=n, examples=[d for d in every if d.kind == kind][:MOST_EXAMPLES])
        for kind, n in Counter(defect.kind for defect in every).most_common()
    ]


def _day(at_ns: int) -> str:
    return datetime.fromtimestamp(at_ns // 1_000_000_000, UTC).strftime("%Y-%m-%d")
