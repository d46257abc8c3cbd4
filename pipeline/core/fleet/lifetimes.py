"""Time to the first failure of units: survival, the models beside it, and which component ends it."""

from bisect import bisect_left
from collections import defaultdict
from collections.abc import Iterable, Sequence
from typing import Final, NamedTuple

from pipeline.core.fleet.answers import CurvePoint, Incidence, Survival
from pipeline.core.fleet.at_risk import HOUR_NS, Unit
from pipeline.core.fleet.installed import SEEN
from pipeline.core.fleet.records import Failure, Fleet, FleetSpan, Life, UnitKind
from pipeline.core.fleet.survival import (
    Curve,
    cumulative_incidence,
    exponential_check,
    kaplan_meier,
    weibull,
)

FEWEST_UNITS: Final = 2
ENOUGH_UNITS: Final = 10
MOST_POINTS: Final = 200


class _Span(NamedTuple):
    """Hours of a unit: its age where it came under observation and where it left, and what it failed of."""

    entered: float
    left: float
    component: str


def lives(spans: Iterable[FleetSpan]) -> list[Life]:
    """When each unit was installed first and removed last. Where nobody states it, when it was seen first and last."""
    found: dict[tuple[str, UnitKind, str], list[FleetSpan]] = defaultdict(list)
    for span in spans:
        if span.kind == "installed":
            found[span.cluster, span.unit_kind, span.unit].append(span)
    return [_life(of_one) for _, of_one in sorted(found.items())]


def _life(spans: Sequence[FleetSpan]) -> Life:
    told = [span for span in spans if span.action != SEEN] or spans
    ends = [span.to_ns for span in told if span.to_ns is not None]
    return Life(
        cluster=told[0].cluster,
        unit_kind=told[0].unit_kind,
        unit=told[0].unit,
        from_ns=min(span.from_ns for span in told),
        to_ns=max(ends) if len(ends) == len(told) else None,
    )


def survival_of(fleet: Fleet, unit_kind: UnitKind, level: float) -> tuple[Survival, list[Incidence]] | None:
    """Survival to the first infrastructure failure in the window; None where fewer than two units are known.

    Units that did not fail are censored where they were removed or where the window ends.
    """
    first = _first_failures(fleet.failures, unit_kind)
    ages = _spans_by_age(fleet, unit_kind, first)
    every = ages or _spans_in_window(fleet, unit_kind, first)
    if len(every) < FEWEST_UNITS:
        return None
    begin = _first_age(every)
    spans = [span._replace(entered=max(span.entered, begin)) for span in every if span.left > begin]
    left, died, entered = [s.left for s in spans], [bool(s.component) for s in spans], [s.entered for s in spans]
    curve = kaplan_meier(left, died, entered, level)
    horizon = curve.last
    check = exponential_check(left, died, entered, unit="h")
    fit = weibull(left, died, entered)
    survival = Survival(
        unit_kind=unit_kind,
        clock="age" if ages else "window",
        from_hours=begin,
        units=len(spans),
        failed=sum(died),
        points=_points(curve),
        median_hours=None if (median := curve.median()) is None else median - begin,
        restricted_mean_hours=None if (mean := curve.restricted_mean(horizon)) is None else mean - begin,
        horizon_hours=horizon,
        exponential_mttf_hours=check.mean if check else None,
        weibull_scale_hours=fit.scale if fit else None,
        weibull_shape=fit.shape if fit else None,
        exponential_p=check.p_value if check else None,
        exponential_is_wrong=bool(check and check.is_wrong),
        why=check.why if check else "",
    )
    return survival, _incidence(spans, unit_kind, horizon, level)


def _first_age(spans: Sequence[_Span]) -> float:
    """The age from which on a quarter of all is at risk, or ten: where one is, its failure would end the curve."""
    came, left = sorted(span.entered for span in spans), sorted(span.left for span in spans)
    at_risk = [number - bisect_left(left, age) for number, age in enumerate(came, start=1)]
    enough = min(max(at_risk), max(FEWEST_UNITS, min(ENOUGH_UNITS, len(spans) // 4)))
    return next(age for age, number in zip(came, at_risk, strict=True) if number >= enough)


def _first_failures(failures: Iterable[Failure], unit_kind: UnitKind) -> dict[Unit, Failure]:
    first: dict[Unit, Failure] = {}
    for failure in sorted(failures, key=lambda f: f.at_ns):
        if failure.category == "infrastructure" and (name := _name(failure, unit_kind)):
            first.setdefault((failure.cluster, name), failure)
    return first


def _name(failure: Failure, unit_kind: UnitKind) -> str:
    """A failed GPU is a failure of its node; a failed node is none of its GPUs."""
    if failure.unit_kind == unit_kind:
        return failure.unit or (failure.node if unit_kind == "node" else "")
    return failure.node if unit_kind == "node" else ""


def _spans_by_age(fleet: Fleet, unit_kind: UnitKind, first: dict[Unit, Failure]) -> list[_Span]:
    spans = []
    for life in fleet.lives:
        failure = first.get((life.cluster, life.unit))
        begin = max(life.from_ns, fleet.from_ns)
        end = min(fleet.to_ns if life.to_ns is None else life.to_ns, fleet.to_ns)
        if life.unit_kind != unit_kind or begin >= end:
            continue
        if failure is not None and not begin < failure.at_ns <= end:
            failure = None
        end = failure.at_ns if failure else end
        spans.append(
            _Span(
                (begin - life.from_ns) / HOUR_NS,
                (end - life.from_ns) / HOUR_NS,
                failure.component if failure else "",
            )
        )
    return spans


def _spans_in_window(fleet: Fleet, unit_kind: UnitKind, first: dict[Unit, Failure]) -> list[_Span]:
    """Where no installation is known: from the begin of the window to the failure, or for as long as in service."""
    hours: dict[Unit, int] = {}
    for exposure in fleet.exposures:
        if exposure.unit_kind == unit_kind and exposure.in_service_ns:
            unit = (exposure.cluster, exposure.unit)
            hours[unit] = hours.get(unit, 0) + exposure.in_service_ns
    spans = []
    for unit, in_service_ns in hours.items():
        failure = first.get(unit)
        left_ns = failure.at_ns - fleet.from_ns if failure else min(in_service_ns, fleet.to_ns - fleet.from_ns)
        if left_ns > 0:
            spans.append(_Span(0.0, left_ns / HOUR_NS, failure.component if failure else ""))
    return spans


def _points(curve: Curve) -> list[CurvePoint]:
    """The steps of the curve, thinned to what a drawing shows; first and last are kept."""
    every = range(len(curve.times))
    kept: Sequence[int] = every
    if len(every) > MOST_POINTS:
        kept = sorted({round(i * (len(every) - 1) / (MOST_POINTS - 1)) for i in range(MOST_POINTS)})
    return [CurvePoint(curve.times[i], curve.survival[i], curve.lo[i], curve.hi[i], curve.at_risk[i]) for i in kept]


def _incidence(spans: Sequence[_Span], unit_kind: UnitKind, hours: float, level: float) -> list[Incidence]:
    """Nobody was seen longer than `hours`: what the curves end at holds there."""
    causes = [span.component or None for span in spans]
    curves = cumulative_incidence([s.left for s in spans], causes, [s.entered for s in spans], level)
    rows = [
        Incidence(
            unit_kind=unit_kind, component=name, failed=causes.count(name), hours=hours, share=curve.at(hours),
            lo=curve.lo[-1], hi=curve.hi[-1],
        )
        for name, curve in curves.items()
    ]  # fmt: skip
    return sorted(rows, key=lambda row: (-row.share, row.component))
