"""Lemons: units that fail more often than the others of their cohort by more than chance, and than these differ.

Judge them on the weeks that follow, not on the window that they were found in.
"""

from collections import defaultdict
from collections.abc import Sequence
from math import ceil, log
from typing import Any, Final, NamedTuple

import numpy as np
from msgspec import Struct
from numpy.typing import NDArray
from scipy import stats

from pipeline.core.fleet.records import Cohort
from pipeline.core.fleet.variation import variation

_Array = NDArray[np.floating[Any]]

# What smallest_window answers for: one unit of a hundred fails ten times as often; nine of ten such are to be found.
LEMON_FACTOR: Final = 10.0
LEMON_SHARE: Final = 0.01
RECALL: Final = 0.9
LONGEST_WINDOW_DAYS: Final = 3650
# With so many events of a healthy unit no lemon is missed.
CERTAIN: Final = 10_000


class UnitCount(Struct, frozen=True, kw_only=True):
    """Events of one unit while it belonged to one cohort. All exposures in the same unit of time."""

    unit: str
    cohort: Cohort = Cohort()
    n: int
    exposure: float


class Lemon(Struct, frozen=True, kw_only=True):
    """A unit next to the others of its cohort. `expected`: by the rate of the others; None where it is the only one.

    `p_value`: that so many or more come by chance at the rate of the others. `cohort_p_value`: that a healthy unit has
    so many or more, as those of its cohort differ, by the coefficient of variation `cohort_cv` of their rates; None:
    they show no more variation than chance, or are too few to tell. `shrunk_rate`: its rate drawn to the cohort's, the
    more the less is known of it (empirical Bayes, gamma-Poisson); per unit of exposure.
    """

    unit: str
    cohort: Cohort
    n: int
    expected: float | None
    p_value: float
    cohort_p_value: float | None
    cohort_cv: float | None
    is_lemon: bool
    shrunk_rate: float


def lemons(units: Sequence[UnitCount], q: float = 0.05) -> list[Lemon]:
    """Compare every unit with the others of its cohort; of those called lemons about `q` are none (Benjamini-Hochberg).

    Lemons first, then by shrunk rate, highest first. The p-value is that of a Poisson count with the others' rate,
    exact for how uncertain that rate is: given all events of both, a unit's are binomial by exposure. Where the cohort
    shows more variation than Poisson counts have, the larger of `p_value` and `cohort_p_value` decides: a lemon is
    neither chance nor one of the worse of the healthy, and a fit never accuses a unit that chance would clear.
    """
    members: dict[Cohort, list[UnitCount]] = defaultdict(list)
    for unit in units:
        if unit.exposure > 0:
            members[unit.cohort].append(unit)
    if not members:
        return []
    ordered = [unit for cohort in members.values() for unit in cohort]
    columns = [_compared(cohort) for cohort in members.values()]
    expected, p_values, varied, cv, shrunk = (np.concatenate(column) for column in zip(*columns, strict=True))
    is_lemon = stats.false_discovery_control(np.fmax(p_values, varied), method="bh") <= q
    found = [
        Lemon(
            unit=unit.unit,
            cohort=unit.cohort,
            n=unit.n,
            expected=_known(expected[i]),
            p_value=float(p_values[i]),
            cohort_p_value=_known(varied[i]),
            cohort_cv=_known(cv[i]),
            is_lemon=bool(is_lemon[i]),
            shrunk_rate=float(shrunk[i]),
        )
        for i, unit in enumerate(ordered)
    ]
    return sorted(found, key=lambda lemon: (not lemon.is_lemon, -lemon.shrunk_rate, lemon.p_value, lemon.unit))


def expected_recall(per_unit_day: float, days: float, *, units: int, q: float = 0.05) -> float:
    """Share of lemons (LEMON_SHARE, LEMON_FACTOR) that `lemons` finds, where a healthy unit has `per_unit_day` events.

    A large-fleet approximation: it takes the count from which Benjamini and Hochberg accept on average.
    """
    healthy = per_unit_day * days
    if healthy > CERTAIN:
        return 1.0
    lemon = healthy * LEMON_FACTOR
    cohort = healthy * (1 - LEMON_SHARE) + lemon * LEMON_SHARE
    counts = np.arange(1, int(lemon + 10 * lemon**0.5) + 20)
    p_values = stats.poisson.sf(counts - 1, cohort)
    found = stats.poisson.sf(counts - 1, lemon)
    called = (1 - LEMON_SHARE) * stats.poisson.sf(counts - 1, healthy) + LEMON_SHARE * found
    # With few units at least one must be called for the least p-value to be q / units.
    accepted = p_values <= q * np.maximum(called, 1 / units)
    return float(found[int(np.argmax(accepted))]) if accepted.any() else 0.0


def smallest_window_days(per_unit_day: float, *, units: int, q: float = 0.05) -> int | None:
    """Days after which `lemons` finds RECALL of the lemons; None: not within LONGEST_WINDOW_DAYS.

    A shorter window is too short: that it shows no lemons does not say that there are none.
    """
    if per_unit_day <= 0:
        return None
    # Fewer of the lemons have any event at all in a shorter one.
    least = ceil(-log(1 - RECALL) / (LEMON_FACTOR * per_unit_day))
    longer = range(max(1, least), LONGEST_WINDOW_DAYS + 1)
    return next((days for days in longer if expected_recall(per_unit_day, days, units=units, q=q) >= RECALL), None)


class _Columns(NamedTuple):
    """Of the units of a cohort; nan: not known."""

    expected: _Array
    p_values: _Array
    cohort_p_values: _Array
    cohort_cv: _Array
    shrunk: _Array


def _compared(units: Sequence[UnitCount]) -> _Columns:
    n = np.array([unit.n for unit in units])
    exposure = np.array([unit.exposure for unit in units])
    others = exposure.sum() - exposure
    unknown = np.full(n.size, np.nan)
    if n.size == 1:
        return _Columns(unknown, np.array([1.0]), unknown, unknown, n / exposure)
    expected = np.divide(exposure * (n.sum() - n), others, out=unknown.copy(), where=others > 0)
    p_values = np.clip(stats.binom.sf(n - 1, n.sum(), exposure / exposure.sum()), 0.0, 1.0)
    shrunk = _shrunk(n, exposure)
    differ = variation(n, exposure)
    if differ is None:
        return _Columns(expected, p_values, unknown, unknown, shrunk)
    return _Columns(expected, p_values, differ.p_values(n, exposure), np.full(n.size, differ.cv), shrunk)


def _known(value: np.float64) -> float | None:
    return None if np.isnan(value) else float(value)


def _shrunk(n: NDArray[np.int64], exposure: NDArray[np.float64]) -> NDArray[np.float64]:
    """Posterior means of rates whose gamma prior has the mean and the variance that the cohort shows (moments)."""
    rate = n.sum() / exposure.sum()
    excess = float((((n - exposure * rate) ** 2) - exposure * rate).sum())
    between = excess / float((exposure**2).sum())
    if between <= 0:
        return np.full(n.size, rate)
    weight = rate / between  # exposure that the prior is worth
    shrunk: NDArray[np.float64] = (rate * weight + n) / (weight + exposure)
    return shrunk
