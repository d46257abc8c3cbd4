"""How much the healthy units of a cohort differ among themselves: a gamma-Poisson fit that the worst do not widen."""

from math import ceil, exp, log, sqrt
from typing import Any, Final, NamedTuple

import numpy as np
from msgspec import Struct
from numpy.typing import NDArray
from scipy import optimize, special, stats

_Array = NDArray[np.floating[Any]]

# With fewer units one lemon looks like units that differ: of five alike ones a fit would hide one lemon in ten.
LEAST_UNITS: Final = 10
# Of a count above what so many healthy units would have, only that it is above is used.
BELOW: Final = 0.95
# So many of the units, and one at any rate, may be above it for reasons of their own.
MOST_STRANGE: Final = 0.05
# Units that are all alike are taken to differ in one cohort of twenty.
SURE: Final = 0.05

# Twice the gain in log-likelihood that alike units exceed so seldom. Half of the time there is none, since the variance
# cannot be negative (Self and Liang 1987).
_GAIN: Final = float(stats.chi2.isf(2 * SURE, 1))
# Squared coefficients of variation: as good as none, the greatest, and where the search begins.
_POISSON: Final = 1e-6
_WIDEST: Final = 20.0
_BEGIN: Final = 0.3
# Ceilings and fit need each other; after three rounds neither moves much.
_ROUNDS: Final = 3
# Logarithms of nothing.
_LEAST_EVENTS: Final = 0.01
_TINY: Final = 1e-300


class Variation(Struct, frozen=True, kw_only=True):
    """Rates of healthy units: gamma, with this mean (per unit of exposure) and this coefficient of variation.

    `cv`: the likeliest. `most_cv`: the greatest within one standard error, with `rate` the likeliest beside it.
    """

    cv: float
    most_cv: float
    rate: float

    def p_values(self, n: _Array, exposure: _Array) -> _Array:
        """Tell how likely healthy units have such counts or higher ones, taking that they differ by `most_cv`."""
        return np.where(n > 0, _above(np.maximum(n - 1, 0), self.rate * exposure, self.most_cv**2), 1.0)


class _Point(NamedTuple):
    """Mean rate (log), squared coefficient of variation, share of strange units; and how unlikely (-log likelihood)."""

    log_rate: float
    squared_cv: float
    strange: float
    lost: float


class _Counts(NamedTuple):
    """Units with the same count and exposure are one entry. `ceiling`: above it a count is only known to be above.

    `rates`: between which (log) the mean rate of the healthy must be.
    """

    n: _Array
    exposure: _Array
    units: _Array
    ceiling: _Array
    rates: tuple[float, float]

    @property
    def most_strange(self) -> float:
        return max(MOST_STRANGE, 1 / float(self.units.sum()))

    def below(self, at: _Point) -> "_Counts":
        """The same with ceilings of its own for each exposure, from what is likeliest so far."""
        shape, mean = 1 / at.squared_cv, exp(at.log_rate) * self.exposure
        return self._replace(ceiling=stats.nbinom.ppf(BELOW, shape, 1 / (1 + mean * at.squared_cv)))

    def lost(self, log_rate: float, squared_cv: float, strange: float) -> float:
        """Minus the log-likelihood. A unit is healthy, or strange and somewhere above the ceiling."""
        mean = np.maximum(exp(log_rate) * self.exposure, _TINY)
        over = self.n > self.ceiling
        below = np.log1p(-strange) + _log_pmf(self.n[~over], mean[~over], squared_cv)
        tail = strange + (1 - strange) * _above(self.ceiling[over], mean[over], squared_cv)
        above = np.log(np.maximum(tail, _TINY))
        return -float((self.units[~over] * below).sum() + (self.units[over] * above).sum())


def variation(counts: NDArray[np.int64], exposures: _Array) -> Variation | None:
    """Fit how healthy units differ. None: they show no more variation than chance does, or are too few to tell.

    The counts are negative binomial (a Poisson count whose rate is gamma distributed over the units). Only counts that
    nineteen of twenty healthy units stay below are used as they are; of higher ones only how many there are, and of
    those up to a twentieth of the units may be there for any reason. A fit is kept if it is likelier than equal rates
    by more than chance (likelihood ratio at 5 %). All exposures are above 0 and in the same unit of time.
    """
    if counts.size < LEAST_UNITS or not counts.any():
        return None
    pairs, units = np.unique(np.stack([counts, exposures]), axis=1, return_counts=True)
    pooled = log(counts.sum() / exposures.sum())
    seen = _Counts(pairs[0], pairs[1], units.astype(float), pairs[0], _rates(counts, exposures))
    best = _Point(pooled, _POISSON, 0.0, 0.0)
    for _ in range(_ROUNDS):
        seen = seen.below(best)
        best = _likeliest(seen, best)
    alike = _likeliest_beside(seen, best._replace(squared_cv=_POISSON))
    if 2 * (alike.lost - best.lost) <= _GAIN:
        return None
    widest = _widest(seen, best)
    return Variation(cv=best.squared_cv**0.5, most_cv=widest.squared_cv**0.5, rate=exp(widest.log_rate))


def _rates(counts: NDArray[np.int64], exposures: _Array) -> tuple[float, float]:
    """Bound the log of the healthy units' mean rate by half of what is left without the worst, and by twice of all.

    Without such a bound a cohort in which half of the units never fail is one of healthy units that never do.
    """
    without = np.sort(counts)[: -ceil(MOST_STRANGE * counts.size)].sum()
    return log(max(without, _LEAST_EVENTS) / 2 / exposures.sum()), log(2 * counts.sum() / exposures.sum())


def _likeliest(seen: _Counts, start: _Point) -> _Point:
    found = optimize.minimize(
        lambda x: seen.lost(x[0], x[1], x[2]),
        [start.log_rate, max(start.squared_cv, _BEGIN), start.strange],
        method="L-BFGS-B",
        bounds=[seen.rates, (_POISSON, _WIDEST), (0.0, seen.most_strange)],
    )
    log_rate, squared_cv, strange = map(float, found.x)
    return _Point(log_rate, squared_cv, strange, float(found.fun))


def _likeliest_beside(seen: _Counts, start: _Point) -> _Point:
    """Return the likeliest rate and share of strange units, given how the others vary."""
    found = optimize.minimize(
        lambda x: seen.lost(x[0], start.squared_cv, x[1]),
        [start.log_rate, start.strange],
        method="L-BFGS-B",
        bounds=[seen.rates, (0.0, seen.most_strange)],
    )
    return _Point(float(found.x[0]), start.squared_cv, float(found.x[1]), float(found.fun))


def _widest(seen: _Counts, best: _Point) -> _Point:
    """Return the greatest variation whose profile likelihood is within half a unit of the best: one standard error."""

    def beyond(log_squared_cv: float) -> float:
        """About a straight line, so that its zero is found in a few steps."""
        worse = _likeliest_beside(seen, best._replace(squared_cv=exp(log_squared_cv))).lost - best.lost
        return sqrt(max(worse, 0.0)) - sqrt(0.5)

    low, most = log(best.squared_cv), log(_WIDEST)
    high = min(low + 0.5, most)
    while high < most and beyond(high) < 0:
        low, high = high, min(high + 1, most)
    if beyond(high) > 0:
        high = float(optimize.brentq(beyond, low, high, xtol=0.01))
    return _likeliest_beside(seen, best._replace(squared_cv=exp(high)))


def _log_pmf(n: _Array, mean: _Array, squared_cv: float) -> _Array:
    """Negative binomial by its mean and the squared coefficient of variation of the rates."""
    shape = 1 / squared_cv
    ways = special.gammaln(n + shape) - special.gammaln(shape) - special.gammaln(n + 1)
    log_pmf: _Array = ways - (n + shape) * np.log1p(mean * squared_cv) + special.xlogy(n, mean * squared_cv)
    return log_pmf


def _above(n: _Array, mean: _Array, squared_cv: float) -> _Array:
    """Probability of a count above n."""
    above: _Array = special.betainc(n + 1, 1 / squared_cv, mean * squared_cv / (1 + mean * squared_cv))
    return above
