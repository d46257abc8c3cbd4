"""Whether failures become more or fewer. Times in any unit, and on any scale that failures should be even on.

Where the fleet grows or shrinks, clock time is not even: give the exposure gathered until each failure instead.
"""

from collections.abc import Sequence
from math import log, sqrt
from typing import Final

from msgspec import Struct
from scipy import stats

# Below it the normal distribution of Laplace's z is too coarse to be called a probability.
_FEWEST: Final = 4
# A failure at the very begin has no logarithm; it counts as one this part of the window later.
_SOONEST: Final = 1e-6


class Laplace(Struct, frozen=True, kw_only=True):
    """z > 0: failures come late in the window, they increase. `p_value`: two-sided, that the rate is constant."""

    n: int
    z: float
    p_value: float


class CrowAmsaa(Struct, frozen=True, kw_only=True):
    """Expected failures until t grow as t^beta: 1 constant, above 1 more and more, below 1 fewer and fewer."""

    n: int
    beta: float
    lo: float
    hi: float


def laplace(times: Sequence[float], begin: float, end: float) -> Laplace | None:
    """Laplace's test of a constant rate in a window that was fixed beforehand; None: fewer than four failures.

    Raises ValueError for a time outside the window.
    """
    shares = _shares(times, begin, end)
    if len(shares) < _FEWEST:
        return None
    z = (sum(shares) / len(shares) - 0.5) * sqrt(12 * len(shares))
    return Laplace(n=len(shares), z=z, p_value=float(2 * stats.norm.sf(abs(z))))


def crow_amsaa(times: Sequence[float], begin: float, end: float, level: float = 0.95) -> CrowAmsaa | None:
    """Power law of the failures of a repaired system: most likely beta, exact interval (MIL-HDBK-189, time truncated).

    None: fewer than two failures, or all at the very end. Raises ValueError for a time outside the window.
    """
    n = len(times)
    logs = -sum(log(max(share, _SOONEST)) for share in _shares(times, begin, end))
    if n < 2 or logs == 0:
        return None
    tail = (1 - level) / 2
    lo, hi = float(stats.chi2.ppf(tail, 2 * n)), float(stats.chi2.isf(tail, 2 * n))
    return CrowAmsaa(n=n, beta=n / logs, lo=lo / (2 * logs), hi=hi / (2 * logs))


def _shares(times: Sequence[float], begin: float, end: float) -> list[float]:
    if not begin < end:
        raise ValueError(f"a window from {begin} to {end}")
    outside = [at for at in times if not begin <= at <= end]
    if outside:
        raise ValueError(f"{outside[0]} is not in the window from {begin} to {end}")
    return [(at - begin) / (end - begin) for at in times]
