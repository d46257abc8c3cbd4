"""Units beside their peers: which of them fail too often to be chance."""

from collections import Counter, defaultdict
from typing import Final

from pipeline.core.fleet.answers import LemonRow, Lemons
from pipeline.core.fleet.at_risk import DAY_HOURS, HOUR_NS, at_risk, blamed, exposure_ns, facts_of_nodes
from pipeline.core.fleet.lemons import UnitCount, lemons, smallest_window_days
from pipeline.core.fleet.rates import PER_UNIT_DAYS, How
from pipeline.core.fleet.records import Cohort, Fleet

Q: Final = 0.05
MOST_ROWS: Final = 20


def lemons_of(fleet: Fleet, how: How) -> Lemons:
    """Infrastructure failures of each unit beside those of its SKU in its cluster: the lemons, and the worst others.

    The SKU of a node that tells none is that of its GPUs.
    """
    at = at_risk(fleet, "all", how.exposure)
    kind, of_gpus = at.whole.counted, facts_of_nodes(fleet.exposures, "sku")
    days: dict[tuple[str, str], float] = defaultdict(float)
    sku: dict[tuple[str, str], str] = {}
    for exposure in fleet.exposures:
        if exposure.unit_kind == kind and (at_risk_ns := exposure_ns(exposure, how.exposure)):
            peer = exposure.cluster, exposure.unit
            days[peer] += at_risk_ns / HOUR_NS / DAY_HOURS
            sku[peer] = exposure.cohort.sku or of_gpus.get(peer, "")
    found = [blamed(failure, at) for failure in fleet.failures if failure.category == "infrastructure"]
    counts = Counter(unit for blame in found if kind in blame.counts_on and (unit := blame.unit(kind)))
    several = len({cluster for cluster, _ in days}) > 1
    units = [
        UnitCount(
            unit=f"{unit[0]}/{unit[1]}" if several else unit[1],
            cohort=Cohort(sku=f"{unit[0]}/{sku[unit]}" if several else sku[unit]),
            n=counts[unit],
            exposure=exposure,
        )
        for unit, exposure in days.items()
    ]
    rows = [lemon for lemon in lemons(units, Q) if lemon.is_lemon or lemon.n > 1]
    per_day = sum(counts.values()) / sum(days.values()) if days else 0.0
    needed = smallest_window_days(per_day, units=len(units), q=Q) if per_day else None
    return Lemons(
        unit_kind=kind,
        rows=[
            LemonRow(
                unit=lemon.unit,
                cohort=lemon.cohort.sku,
                n=lemon.n,
                expected=lemon.expected,
                p_value=lemon.p_value,
                cohort_p_value=lemon.cohort_p_value,
                cohort_cv=lemon.cohort_cv,
                is_lemon=lemon.is_lemon,
                shrunk_rate=lemon.shrunk_rate * PER_UNIT_DAYS,
            )
            for number, lemon in enumerate(rows)
            if lemon.is_lemon or number < MOST_ROWS
        ],
        tested=len(units),
        q=Q,
        smallest_window_days=needed,
        warning=_warning((fleet.to_ns - fleet.from_ns) / HOUR_NS / DAY_HOURS, per_day, needed),
    )


def _warning(window_days: float, per_day: float, needed: int | None) -> str:
    if not per_day:
        return "Nothing failed, so no unit can be told from its peers."
    if needed is None:
        return "Failures are too rare for any window to tell lemons from chance."
    if needed > window_days:
        return (
            f"A window of {needed} days is needed at this rate to find nine in ten units that fail ten times as often "
            f"as others, if those are alike, and a longer one if not; {window_days:.0f} days miss some."
        )
    return ""
