"""Counts of failures over time at risk: rates, MTBF, their intervals, and whether the counts are Poisson at all.

Exposure is in any one unit (GPU-hours, node-days); rates are per that unit, MTBF in that unit.
"""

from collections.abc import Sequence
from typing import Any, Final

import numpy as np
from msgspec import Struct
from numpy.typing import NDArray
from scipy import stats

_Array = NDArray[np.floating[Any]]

# Above this dispersion an interval made for a Poisson count is too narrow to print.
WIDEST_DISPERSION: Final = 1.5
_RESAMPLES: Final = 1999
_DRAWN_AT_ONCE: Final = 2_000_000
# Above it resampling takes seconds and its percentiles are those of the normal distribution that it tends to.
_MOST_RESAMPLED: Final = 10_000


class Interval(Struct, frozen=True, kw_only=True):
    """From `lo` to `hi`; `hi` None: without bound."""

    lo: float
    hi: float | None


class Rate(Struct, frozen=True, kw_only=True):
    """n events over `exposure`. `value` None: no estimate, only bounds; `hi` None: without bound."""

    n: int
    exposure: float
    value: float | None
    lo: float
    hi: float | None


class Ratio(Struct, frozen=True, kw_only=True):
    """One rate divided by another. `p_value`: two-sided, that both are the same."""

    value: float | None
    lo: float
    hi: float | None
    p_value: float


def garwood(n: int, level: float = 0.95) -> Interval:
    """Bound the expected count where n were counted. Exact for Poisson counts: covers at least `level` (Garwood 1936).

    Raises ValueError for a negative count.
    """
    lo, hi = _garwood(n, level)
    return Interval(lo=lo, hi=hi)


def rate(n: int, exposure: float, level: float = 0.95) -> Rate:
    """Events per unit of exposure. Without exposure nothing is known: no value, no upper bound."""
    lo, hi = _garwood(n, level)
    if _checked(exposure) == 0:
        return Rate(n=n, exposure=0.0, value=None, lo=0.0, hi=None)
    return Rate(n=n, exposure=exposure, value=n / exposure, lo=lo / exposure, hi=hi / exposure)


def mtbf(n: int, exposure: float, level: float = 0.95) -> Rate:
    """Exposure per event (NIST/SEMATECH e-Handbook 8.4.5.1).

    Without an event there is a lower bound and nothing else; it is never infinity.
    """
    lo, hi = _garwood(n, level)
    if n == 0:
        return Rate(n=0, exposure=_checked(exposure), value=None, lo=exposure / hi, hi=None)
    if _checked(exposure) == 0:
        return Rate(n=n, exposure=0.0, value=None, lo=0.0, hi=None)
    return Rate(n=n, exposure=exposure, value=exposure / n, lo=exposure / hi, hi=exposure / lo)


def ratio(n1: int, exposure1: float, n2: int, exposure2: float, level: float = 0.95) -> Ratio:
    """Rate 1 / rate 2, exact: of n1 + n2 events n1 are binomial (Przyborowski and Wilenski 1940, Clopper-Pearson)."""
    if n1 < 0 or n2 < 0:
        raise ValueError(f"counts {n1} and {n2} are not both at least 0")
    if n1 + n2 == 0 or _checked(exposure1) == 0 or _checked(exposure2) == 0:
        return Ratio(value=None, lo=0.0, hi=None, p_value=1.0)
    share = stats.binomtest(n1, n1 + n2, exposure1 / (exposure1 + exposure2))
    bounds = share.proportion_ci(confidence_level=level, method="exact")
    per = exposure2 / exposure1
    return Ratio(
        value=n1 / n2 * per if n2 else None,
        lo=float(bounds.low / (1 - bounds.low) * per),
        hi=float(bounds.high / (1 - bounds.high) * per) if n2 else None,
        p_value=float(share.pvalue),
    )


def dispersion(counts: Sequence[int], expected: Sequence[float]) -> float | None:
    """Pearson's sum((n - mu)^2 / mu) / (units - 1): about 1 for Poisson counts, more where events cluster on few units.

    Units of which nothing is expected say nothing; None: fewer than two others.
    """
    n, mu = _pair(counts, expected)
    n, mu = n[mu > 0], mu[mu > 0]
    return float(np.sum((n - mu) ** 2 / mu) / (mu.size - 1)) if mu.size > 1 else None


def clustered_rate(counts: Sequence[int], exposures: Sequence[float], *, seed: int, level: float = 0.95) -> Interval:
    """Bound the rate of units whose counts cluster: percentiles of a bootstrap over whole units.

    Of more than 10,000 units: the normal distribution with the variance between units (linearised ratio). Never
    narrower than Garwood's, which holds without any clustering. Good for about 20 units and more.
    """
    n, exposure = _pair(counts, exposures)
    n, exposure = n[exposure > 0], exposure[exposure > 0]
    whole = rate(int(n.sum()), float(exposure.sum()), level)
    if whole.hi is None or n.size < 2:
        return Interval(lo=whole.lo, hi=whole.hi)
    lo, hi = _resampled(n, exposure, seed, level) if n.size <= _MOST_RESAMPLED else _spread(n, exposure, level)
    return Interval(lo=min(whole.lo, lo), hi=max(whole.hi, hi))


def top_share(counts: Sequence[int], first: int = 1) -> float | None:
    """Tell which share of all events is on the `first` units with the most; None: no event."""
    total = sum(counts)
    return sum(sorted(counts, reverse=True)[:first]) / total if total else None


def _garwood(n: int, level: float) -> tuple[float, float]:
    if n < 0:
        raise ValueError(f"a count of {n}")
    tail = (1 - level) / 2
    lo = float(stats.chi2.ppf(tail, 2 * n)) / 2 if n else 0.0
    return lo, float(stats.chi2.isf(tail, 2 * n + 2)) / 2


def _checked(exposure: float) -> float:
    if not 0 <= exposure < float("inf"):
        raise ValueError(f"an exposure of {exposure}")
    return exposure


def _pair(counts: Sequence[int], per_unit: Sequence[float]) -> tuple[_Array, _Array]:
    if len(counts) != len(per_unit):
        raise ValueError(f"{len(counts)} counts, {len(per_unit)} units")
    return np.asarray(counts, dtype=float), np.asarray(per_unit, dtype=float)


def _pooled(counts: _Array, exposures: _Array, axis: int = -1) -> _Array:
    pooled: _Array = counts.sum(axis=axis) / exposures.sum(axis=axis)
    return pooled


def _resampled(counts: _Array, exposures: _Array, seed: int, level: float) -> tuple[float, float]:
    found = stats.bootstrap(
        (counts, exposures),
        _pooled,
        paired=True,
        n_resamples=_RESAMPLES,
        batch=max(1, _DRAWN_AT_ONCE // counts.size),
        confidence_level=level,
        method="percentile",
        rng=np.random.default_rng(seed),
    ).confidence_interval
    return float(found.low), float(found.high)


def _spread(counts: _Array, exposures: _Array, level: float) -> tuple[float, float]:
    pooled = counts.sum() / exposures.sum()
    squares = float(((counts - pooled * exposures) ** 2).sum()) * counts.size / (counts.size - 1)
    width = float(stats.norm.isf((1 - level) / 2)) * squares**0.5 / exposures.sum()
    return float(max(0.0, pooled - width)), float(pooled + width)
