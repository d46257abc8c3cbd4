"""Whether failures became more frequent within the window, by cluster and category."""

from typing import Final

from pipeline.core.fleet.answers import Estimate, TrendRow
from pipeline.core.fleet.at_risk import HOUR_NS
from pipeline.core.fleet.components import CATEGORIES
from pipeline.core.fleet.records import Category, Fleet
from pipeline.core.fleet.trend import CrowAmsaa, Laplace, crow_amsaa, laplace

SIGNIFICANT: Final = 0.05
TOO_FEW: Final = "too few to say"


def trends_of(fleet: Fleet, level: float) -> list[TrendRow]:
    """Laplace and Crow-AMSAA over clock time; a fleet that grows has more failures without a worse rate."""
    clusters = sorted({failure.cluster for failure in fleet.failures})
    rows = [_trend(fleet, cluster, category, level) for cluster in clusters for category in CATEGORIES]
    return [row for row in rows if row.n]


def _trend(fleet: Fleet, cluster: str, category: Category, level: float) -> TrendRow:
    times = [
        (failure.at_ns - fleet.from_ns) / HOUR_NS
        for failure in fleet.failures
        if failure.cluster == cluster and failure.category == category
    ]
    end = (fleet.to_ns - fleet.from_ns) / HOUR_NS
    test, law = laplace(times, 0.0, end), crow_amsaa(times, 0.0, end, level)
    return TrendRow(
        cluster=cluster,
        category=category,
        n=len(times),
        laplace_z=test.z if test else None,
        laplace_p=test.p_value if test else None,
        beta=Estimate(law.beta, law.lo, law.hi) if law else None,
        verdict=_verdict(test, law),
    )


def _verdict(test: Laplace | None, law: CrowAmsaa | None) -> str:
    if test is None or law is None:
        return TOO_FEW
    if test.p_value < SIGNIFICANT:
        return "more frequent" if test.z > 0 else "less frequent"
    return "no trend seen"
