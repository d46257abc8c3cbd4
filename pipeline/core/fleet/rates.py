"""Rates of failures by cohort, component and class, each with all that it takes to judge it."""

from collections import Counter, defaultdict
from collections.abc import Sequence
from typing import Final

from msgspec import Struct

from pipeline.core.fleet.answers import By, Estimate, IntervalKind, RateRow
from pipeline.core.fleet.at_risk import COHORT_FIELDS, DAY_HOURS, HOUR_NS, AtRisk, Blame, Group, Unit, blamed
from pipeline.core.fleet.poisson import WIDEST_DISPERSION, clustered_rate, dispersion, garwood, top_share
from pipeline.core.fleet.records import Category, ExposureKind, Fleet

PER_UNIT_DAYS: Final = 1000
OF_FAILURES: Final = frozenset({"component", "class"})


class How(Struct, frozen=True, kw_only=True):
    """How rates are counted: time at risk of which kind, the level of intervals, the seed of the bootstrap."""

    exposure: ExposureKind = "in_service"
    level: float = 0.95
    seed: int = 0


class Count(Struct, frozen=True, kw_only=True):
    """How many were expected, from how many there were: the interval of a count, and what says whether to trust it."""

    n: int
    lo: float
    hi: float | None
    interval: IntervalKind
    dispersion: float | None


def rates_by(fleet: Fleet, category: Category, by: By, units: AtRisk, how: How) -> list[RateRow]:
    """Rates of one category by one property, the most frequent first. `units`: at risk, by it if it is one of units.

    By a property of units each of its values has a row, also where nothing failed, but none has one where nobody knows
    the property of any unit, or of any that failed: a rate of 0 would be a lie. By component or class only what
    occurred has a row, over the time at risk of all units.
    """
    found: dict[str, list[Blame]] = defaultdict(list)
    for failure in fleet.failures:
        if failure.category == category:
            blame = blamed(failure, units)
            found[_key(blame, by)].append(blame)
    if by in COHORT_FIELDS and (not any(units.groups) or (found and not any(found))):
        return []
    apart = by not in OF_FAILURES
    keys = {""} if by == "all" else units.groups.keys() | found.keys() if apart else found.keys()
    rows = [
        _row(fleet, category, by, key, units.groups.get(key, Group()) if apart else units.whole, found[key], units, how)
        for key in sorted(keys)
    ]
    return sorted(rows, key=lambda row: (-row.n, -(row.rate.value or 0), row.value))


def _key(blame: Blame, by: By) -> str:
    match by:
        case "component":
            return blame.failure.component
        case "class":
            return blame.failure.class_
        case _:
            return blame.value


def _row(
    fleet: Fleet, category: Category, by: By, value: str, group: Group, found: Sequence[Blame], units: AtRisk,
    how: How,
) -> RateRow:  # fmt: skip
    counted = [blame for blame in found if blame.at_risk]
    count = count_of(Counter(blame.unit for blame in counted), group.by_unit, how)
    on = Counter(name for blame in counted if (name := _carrier(blame)))
    hours = group.total_ns / HOUR_NS
    window_hours = (fleet.to_ns - fleet.from_ns) / HOUR_NS
    return RateRow(
        by=by,
        value=value,
        category=category,
        n=count.n,
        exposure_kind=how.exposure,
        unit_kind=units.unit_kind,
        units=len(group.by_unit),
        exposure_hours=hours,
        gpu_hours=group.gpu_ns / HOUR_NS,
        rate=per_unit_days(count, hours),
        system_mtbf_hours=time_between(count, window_hours if hours else 0.0),
        node_mtbf_hours=time_between(count, group.node_ns / HOUR_NS) if group.node_ns else None,
        gpu_mtbf_hours=time_between(count, group.gpu_ns / HOUR_NS) if group.gpu_ns else None,
        interval=count.interval,
        dispersion=count.dispersion,
        top_1_share=top_share(list(on.values())),
        top_10_share=top_share(list(on.values()), first=10),
        top_unit=on.most_common(1)[0][0] if on else "",
        nobody=count.n - on.total(),
        uncounted=len(found) - len(counted),
        unobserved_share=group.unobserved_share,
    )


def count_of(by_unit: Counter[Unit | None], exposure_ns: dict[Unit, int], how: How) -> Count:
    """A count with its interval: exact for a Poisson process, from resampled units where units differ too much."""
    n = by_unit.total()
    total_ns = sum(exposure_ns.values())
    units = list(exposure_ns)
    counts = [by_unit.get(unit, 0) for unit in units]
    placed = sum(by_unit.get(unit, 0) for unit in units)
    spread = dispersion(counts, [placed * exposure_ns[unit] / total_ns for unit in units]) if placed else None
    if spread is not None and spread > WIDEST_DISPERSION:
        hours = [exposure_ns[unit] / HOUR_NS for unit in units]
        bounds = clustered_rate(counts, hours, seed=how.seed, level=how.level)
        scale = total_ns / HOUR_NS * n / placed
        hi = None if bounds.hi is None else bounds.hi * scale
        return Count(n=n, lo=bounds.lo * scale, hi=hi, interval="bootstrap over units", dispersion=spread)
    exact = garwood(n, how.level)
    return Count(n=n, lo=exact.lo, hi=exact.hi, interval="Garwood", dispersion=spread)


def per_unit_days(count: Count, hours: float) -> Estimate:
    """Events per 1,000 unit-days; all None where nothing was at risk."""
    if hours <= 0:
        return Estimate(None, None, None)
    scale = PER_UNIT_DAYS * DAY_HOURS / hours
    return Estimate(count.n * scale, count.lo * scale, None if count.hi is None else count.hi * scale)


def time_between(count: Count, hours: float) -> Estimate:
    """Hours per event. Without events only the lower bound is known."""
    if hours <= 0:
        return Estimate(None, None, None)
    return Estimate(
        hours / count.n if count.n else None,
        hours / count.hi if count.hi else None,
        hours / count.lo if count.lo > 0 else None,
    )


def _carrier(blame: Blame) -> str:
    """The unit of the counted kind, else the one that is blamed; empty where nobody is."""
    return blame.unit[1] if blame.unit else blame.failure.unit or blame.failure.node
