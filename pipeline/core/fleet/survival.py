"""How long units live: Kaplan-Meier, competing causes, Weibull, and whether a constant rate is wrong.

Durations are ages or times to repair, in any one unit. `died` False: censored, it was still so when it was last seen.
`entered`: the age at which a unit came under observation, if not new; before it the unit is not at risk. scipy knows
no such left truncation, so these estimators are written out; without it they equal scipy's.
"""

from bisect import bisect_right
from collections.abc import Sequence
from typing import Any, Final, NamedTuple

import numpy as np
from msgspec import Struct
from numpy.typing import NDArray
from scipy import optimize, stats

_Array = NDArray[np.floating[Any]]
# A constant rate is called wrong where it would look so bad in less than one case of a hundred.
_SURE: Final = 0.01
# Products and sums of many shares round.
_HALF: Final = 0.5 + 1e-9
_ALL: Final = 1 - 1e-12


class Curve(Struct, frozen=True, kw_only=True):
    """Survival right after each time of death. `std_error` is Greenwood's (nan where nobody is left), lo/hi log-log.

    `last`: the longest that anybody was seen; beyond it nothing is known. Few at risk at the begin (left truncation)
    may end the curve early; look at `at_risk`.
    """

    times: tuple[float, ...]
    at_risk: tuple[int, ...]
    deaths: tuple[int, ...]
    survival: tuple[float, ...]
    std_error: tuple[float, ...]
    lo: tuple[float, ...]
    hi: tuple[float, ...]
    last: float

    def at(self, time: float) -> float:
        """Share that survives `time`."""
        index = bisect_right(self.times, time)
        return self.survival[index - 1] if index else 1.0

    def std_error_at(self, time: float) -> float:
        """Greenwood's standard error of `at(time)`."""
        index = bisect_right(self.times, time)
        return self.std_error[index - 1] if index else 0.0

    def median(self) -> float | None:
        """First time that half do not survive; None: more than half survive all that was seen."""
        return self._first_at_half(self.survival)

    def median_bounds(self) -> tuple[float | None, float | None]:
        """Interval of the median (Brookmeyer and Crowley 1982); None: without bound."""
        return self._first_at_half(self.lo), self._first_at_half(self.hi)

    def restricted_mean(self, horizon: float) -> float | None:
        """Mean duration if all were stopped at `horizon`; None: the curve does not reach that far."""
        if horizon > self.last and self.at(horizon) > 0:
            return None
        inner = [time for time in self.times if time < horizon]
        edges = [0.0, *inner, horizon]
        levels = (1.0, *self.survival)
        return float(sum(level * (b - a) for level, a, b in zip(levels, edges, edges[1:], strict=False)))

    def _first_at_half(self, shares: tuple[float, ...]) -> float | None:
        return next((time for time, share in zip(self.times, shares, strict=True) if share <= _HALF), None)


class Incidence(Struct, frozen=True, kw_only=True):
    """Share that was ended by one cause until each time, while the other causes end others.

    lo and hi are log-log, without meaning (0) before the first that it ended.
    """

    times: tuple[float, ...]
    incidence: tuple[float, ...]
    std_error: tuple[float, ...]
    lo: tuple[float, ...]
    hi: tuple[float, ...]

    def at(self, time: float) -> float:
        """Share ended by this cause until `time`."""
        index = bisect_right(self.times, time)
        return self.incidence[index - 1] if index else 0.0


class Weibull(Struct, frozen=True, kw_only=True):
    """Survival exp(-(t/scale)^shape). Shape 1: exponential; above 1 units wear out, below 1 the weak die early."""

    scale: float
    shape: float
    log_likelihood: float

    def at(self, time: float) -> float:
        """Share that survives `time`."""
        return float(np.exp(-((time / self.scale) ** self.shape)))


class _Lives(NamedTuple):
    duration: _Array
    died: NDArray[np.bool_]
    entered: _Array


class _Table(NamedTuple):
    """One row a time of death."""

    times: _Array
    at_risk: NDArray[np.int64]
    deaths: NDArray[np.int64]


def kaplan_meier(
    durations: Sequence[float], died: Sequence[bool], entered: Sequence[float] | None = None, level: float = 0.95
) -> Curve:
    """Survival by age, with units that were never seen to die and units that were not seen from the begin.

    Raises ValueError for unequal lengths, negative durations and units without any time at risk.
    """
    lives = _checked(durations, died, entered)
    table = _table(lives, lives.died)
    survival = np.cumprod(1 - table.deaths / table.at_risk)
    variance = _greenwood(table)
    alive = survival > 0
    std_error = np.where(alive, survival * np.sqrt(variance), np.nan)
    lo, hi = _log_log(survival, std_error, level)
    # Where nobody is left the interval has no formula; nothing is known that would make the last bound lower.
    hi = np.where(alive, hi, hi[alive][-1] if alive.any() else 1.0)
    return Curve(
        times=_floats(table.times),
        at_risk=tuple(int(n) for n in table.at_risk),
        deaths=tuple(int(d) for d in table.deaths),
        survival=_floats(survival),
        std_error=_floats(std_error),
        lo=_floats(np.where(alive, lo, 0.0)),
        hi=_floats(hi),
        last=float(lives.duration.max(initial=0.0)),
    )


def cumulative_incidence(
    durations: Sequence[float],
    causes: Sequence[str | None],
    entered: Sequence[float] | None = None,
    level: float = 0.95,
) -> dict[str, Incidence]:
    """Share ended by each cause (None: not ended), by Aalen and Johansen; std_error by the delta method.

    One minus Kaplan-Meier of one cause alone would say what happens if no other cause existed. Raises as kaplan_meier.
    """
    lives = _checked(durations, [cause is not None for cause in causes], entered)
    table = _table(lives, lives.died)
    before = np.concatenate(([1.0], np.cumprod(1 - table.deaths / table.at_risk)[:-1]))
    return {
        cause: _incidence(table, before, _counted(lives, table, np.array([one == cause for one in causes])), level)
        for cause in sorted({cause for cause in causes if cause is not None})
    }


def weibull(durations: Sequence[float], died: Sequence[bool], entered: Sequence[float] | None = None) -> Weibull | None:
    """Most likely Weibull. None: it has none, with fewer than two different times of death or a death at time 0.

    The scale follows from the shape, so that only one equation, in the shape, is solved. Raises as kaplan_meier.
    """
    lives = _checked(durations, died, entered)
    deaths = lives.duration[lives.died]
    if deaths.size < 2 or deaths.min() == 0 or np.ptp(deaths) == 0:
        return None
    top = float(lives.duration.max())  # powers of shares of it cannot overflow
    seen = lives.duration[lives.duration > 0] / top
    unseen = lives.entered[lives.entered > 0] / top
    mean_log = float(np.log(deaths / top).mean())

    def score(shape: float) -> float:
        whole = (seen**shape).sum() - (unseen**shape).sum()
        moved = (seen**shape * np.log(seen)).sum() - (unseen**shape * np.log(unseen)).sum()
        return float(1 / shape + mean_log - moved / whole)

    low, high = 1e-3, 1.0
    while high < 1e4 and score(high) > 0:
        high *= 2
    if score(low) < 0 or score(high) > 0:
        return None
    shape = float(optimize.brentq(score, low, high, xtol=1e-13, rtol=1e-13))
    whole = float((seen**shape).sum() - (unseen**shape).sum())
    # At this scale the sum of (t/scale)^shape over all that was seen is the number of deaths.
    scale = (whole / deaths.size) ** (1 / shape)
    log_likelihood = deaths.size * (np.log(shape) - shape * np.log(scale) - 1 - np.log(top) + (shape - 1) * mean_log)
    return Weibull(scale=scale * top, shape=shape, log_likelihood=float(log_likelihood))


class ExponentialCheck(Struct, frozen=True, kw_only=True):
    """Whether exposure / deaths describes these lives. `p_value`: that the shape is 1, by likelihood ratio.

    Until `early`, at which few should have died, the exponential expects the share `expected_dead`; `dead` did, by
    Kaplan-Meier. `why` says in a sentence what is wrong; empty: nothing that matters was found.
    """

    p_value: float | None
    shape: float | None
    mean: float
    early: float
    expected_dead: float
    dead: float
    is_wrong: bool
    why: str


def exponential_check(
    durations: Sequence[float],
    died: Sequence[bool],
    entered: Sequence[float] | None = None,
    early: float | None = None,
    unit: str = "",
) -> ExponentialCheck | None:
    """Tell whether a constant rate is wrong by more than chance and by enough to matter; None: nobody died.

    Two things are asked: is the Weibull with a free shape likelier (shape outside 0.9 to 1.1), and did as many die
    `early` as expected (more than a quarter more or fewer)? Each at 1 %. `early` is, if not given, a tenth of the mean
    life, at most a quarter of the longest that was seen. `unit` of time: as `why` is to name it. Raises as
    kaplan_meier.
    """
    lives = _checked(durations, died, entered)
    deaths = int(lives.died.sum())
    if not deaths or not lives.duration.any():
        return None
    if early is not None and early <= 0:
        raise ValueError(f"by {early} nobody can have died")
    mean = float((lives.duration - lives.entered.clip(0)).sum()) / deaths
    early = min(mean / 10, float(lives.duration.max()) / 4) if early is None else early
    fit = weibull(durations, died, entered)
    p_value = _likelihood_ratio(fit, deaths, mean) if fit else None
    expected_dead = 1 - float(np.exp(-early / mean))
    dead = 1 - kaplan_meier(durations, died, entered).at(early)
    reasons = []
    if fit and p_value is not None and p_value < _SURE and not 0.9 <= fit.shape <= 1.1:
        how = "units wear out" if fit.shape > 1 else "the weak die early, or failures come in clusters"
        reasons.append(f"Weibull shape {fit.shape:.2f}, not 1: {how}")
    if _early_p_value(lives, early, mean) < _SURE and not 0.8 <= dead / expected_dead <= 1.25:
        at = f"{early:.3g} {unit}".rstrip()
        reasons.append(f"by {at} a constant rate expects {expected_dead:.2%} dead, {dead:.2%} were")
    return ExponentialCheck(
        p_value=p_value,
        shape=fit.shape if fit else None,
        mean=mean,
        early=early,
        expected_dead=expected_dead,
        dead=dead,
        is_wrong=bool(reasons),
        why="; ".join(reasons),
    )


def _likelihood_ratio(fit: Weibull, deaths: int, mean: float) -> float:
    exponential = -deaths * (float(np.log(mean)) + 1)
    return float(stats.chi2.sf(max(0.0, 2 * (fit.log_likelihood - exponential)), 1))


def _early_p_value(lives: _Lives, early: float, mean: float) -> float:
    """Two-sided, that as many died until `early` as a constant rate gives to the time at risk until then."""
    at_risk = float((np.minimum(lives.duration, early) - lives.entered.clip(0)).clip(0).sum())
    dead = int((lives.died & (lives.duration <= early)).sum())
    share = min(1.0, at_risk / mean / lives.died.sum())
    return float(stats.binomtest(dead, int(lives.died.sum()), share).pvalue)


def _checked(durations: Sequence[float], died: Sequence[bool], entered: Sequence[float] | None) -> _Lives:
    duration = np.asarray(durations, dtype=float)
    death = np.asarray(died, dtype=bool)
    # New units are at risk from before time 0: one may die at 0.
    entry = np.full(duration.size, -1.0) if entered is None else np.asarray(entered, dtype=float)
    entry = np.where(entry <= 0, -1.0, entry)
    if not duration.size == death.size == entry.size:
        raise ValueError(f"{duration.size} durations, {death.size} ends, {entry.size} entries")
    if not np.isfinite(duration).all() or (duration < 0).any():
        raise ValueError("durations must be finite and not negative")
    if not (entry < duration).all():
        raise ValueError("a unit has no time at risk: it ends no later than it came under observation")
    return _Lives(duration, death, entry)


def _table(lives: _Lives, died: NDArray[np.bool_]) -> _Table:
    times, deaths = np.unique(lives.duration[died], return_counts=True)
    left = np.searchsorted(np.sort(lives.duration), times, side="left")
    came = np.searchsorted(np.sort(lives.entered), times, side="left")
    return _Table(times, came - left, deaths)


def _counted(lives: _Lives, table: _Table, ended: NDArray[np.bool_]) -> _Array:
    counts = np.zeros(table.times.size)
    np.add.at(counts, np.searchsorted(table.times, lives.duration[ended]), 1)
    return counts


def _greenwood(table: _Table) -> _Array:
    left = table.at_risk - table.deaths
    terms = np.divide(table.deaths, table.at_risk * left.astype(float), out=np.zeros(left.size), where=left > 0)
    return np.cumsum(terms)


def _log_log(share: _Array, std_error: _Array, level: float) -> tuple[_Array, _Array]:
    """Bounds of a share that stay within 0 and 1 (Kalbfleisch and Prentice)."""
    z = float(stats.norm.isf((1 - level) / 2))
    inside = (share > 0) & (share < _ALL)
    logs = np.log(share, out=np.full(share.size, -1.0), where=inside)
    width = np.where(inside, z * std_error / np.where(inside, share * -logs, 1.0), 0.0)
    return np.where(inside, share ** np.exp(width), share), np.where(inside, share ** np.exp(-width), share)


def _incidence(table: _Table, before: _Array, counts: _Array, level: float) -> Incidence:
    n, d = table.at_risk.astype(float), table.deaths
    share = np.cumsum(before * counts / n).clip(max=1.0)
    survived = np.divide(d, n * (n - d), out=np.zeros(n.size), where=n > d)
    own = before**2 * (n - counts) / n**3 * counts
    mixed = before * counts / n**2
    # Marubini and Valsecchi 1995, eq. 10.13, with the squares of (share(t) - share(t_i)) multiplied out.
    variance = (
        share**2 * np.cumsum(survived)
        - 2 * share * np.cumsum(share * survived)
        + np.cumsum(share**2 * survived)
        + np.cumsum(own)
        - 2 * (share * np.cumsum(mixed) - np.cumsum(share * mixed))
    )
    std_error = np.sqrt(variance.clip(0))
    lo, hi = _log_log(share, std_error, level)
    # Where all were ended by it the interval has no formula; nothing is known that would make the last bound higher.
    some = (share > 0) & (share < _ALL)
    lo = np.where(share < _ALL, lo, lo[some][-1] if some.any() else 0.0)
    return Incidence(
        times=_floats(table.times),
        incidence=_floats(share),
        std_error=_floats(std_error),
        lo=_floats(lo),
        hi=_floats(hi),
    )


def _floats(values: _Array) -> tuple[float, ...]:
    return tuple(values.tolist())
