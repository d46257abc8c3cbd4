"""Rates of failures by cohort, component and class, each with all that it takes to judge it."""

from collections import Counter, defaultdict
from collections.abc import Sequence
from typing import Final

from msgspec import Struct

from pipeline.core.fleet.answers import By, Estimate, IntervalKind, RateRow
from pipeline.core.fleet.at_risk import DAY_HOURS, HOUR_NS, AtRisk, Blame, Group, Unit, blamed
from pipeline.core.fleet.poisson import WIDEST_DISPERSION, clustered_rate, dispersion, garwood, top_share
from pipeline.core.fleet.records import COHORT_FIELDS, Category, ExposureKind, Fleet, UnitKind

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
            for key in _keys(blame, by):
                found[key].append(blame)
    if by in COHORT_FIELDS and (not any(units.groups) or (found and not any(found))):
        return []
    apart = by not in OF_FAILURES

    def hours_of(value: str) -> float:
        """How long the failures of a value were counted."""
        unbuilt_ns = fleet.unbuilt_ns.get(value if by == "cluster" else "", 0)
        return (fleet.to_ns - fleet.from_ns - unbuilt_ns) / HOUR_NS

    keys = {""} if by == "all" else units.groups.keys() | found.keys() if apart else found.keys()
    rows = [
        _row(Asked(category=category, by=by, value=key, window_hours=hours_of(key), how=how), group, found[key])
        for key in sorted(keys)
        for group in [units.groups.get(key, Group()) if apart else units.whole]
    ]
    return sorted(rows, key=lambda row: (-row.n, -(row.rate.value or 0), row.value))


class Asked(Struct, frozen=True, kw_only=True):
    """Of what a row is, and how it is counted."""

    category: Category
    by: By
    value: str
    window_hours: float
    how: How


def _keys(blame: Blame, by: By) -> tuple[str, ...]:
    match by:
        case "component":
            return (blame.failure.component,)
        case "class":
            return (blame.failure.class_,)
        case _:
            return blame.values


def _row(asked: Asked, group: Group, found: Sequence[Blame]) -> RateRow:
    kind = group.counted
    units = group.of(kind)
    counted = [blame for blame in found if kind in blame.counts_on]
    count = count_of(Counter(blame.unit(kind) for blame in counted), units.at_risk_ns, asked.how)
    on = Counter(name for blame in counted if (name := _carrier(blame, kind)))
    hours, node_hours, gpu_hours = (one.total_ns / HOUR_NS for one in (units, group.node, group.gpu))
    return RateRow(
        by=asked.by,
        value=asked.value,
        category=asked.category,
        n=count.n,
        exposure_kind=asked.how.exposure,
        unit_kind=kind,
        units=len(units.at_risk_ns),
        exposure_hours=hours,
        gpu_hours=gpu_hours,
        rate=per_unit_days(count, hours),
        system_mtbf_hours=time_between(count, asked.window_hours if hours else 0.0),
        node_mtbf_hours=time_between(count, node_hours) if node_hours else None,
        gpu_mtbf_hours=time_between(count, gpu_hours) if gpu_hours else None,
        interval=count.interval,
        dispersion=count.dispersion,
        top_1_share=top_share(list(on.values())),
        top_10_share=top_share(list(on.values()), first=10),
        top_unit=on.most_common(1)[0][0] if on else "",
        nobody=count.n - on.total(),
        uncounted=len(found) - len(counted),
        unobserved_share=units.unobserved_share,
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


def _carrier(blame: Blame, kind: UnitKind) -> str:
    """The unit of the counted kind, else the one that is blamed; empty where nobody is."""
    unit = blame.unit(kind)
    return unit[1] if unit else blame.failure.unit or blame.failure.node
