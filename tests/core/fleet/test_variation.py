"""How much healthy units differ, whatever the worst of them do."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from numpy.typing import NDArray
from scipy import stats

from pipeline.core.fleet.variation import LEAST_UNITS, Variation, variation


def counts(seed: int, cv: float, exposures: NDArray[np.float64], rate: float = 0.045) -> NDArray[np.int64]:
    dice = np.random.default_rng(seed)
    own = dice.gamma(cv**-2, cv**2, exposures.size) if cv else np.ones(exposures.size)
    return dice.poisson(rate * own * exposures)


EVEN = np.full(2000, 28.0)
UNEVEN = np.random.default_rng(1).uniform(1, 55, 2000)


@pytest.mark.parametrize("exposures", [EVEN, UNEVEN])
@pytest.mark.parametrize("cv", [0.5, 1.0, 2.0])
def test_the_spread_of_the_rates_is_found_with_even_and_uneven_exposures(
    exposures: NDArray[np.float64], cv: float
) -> None:
    found = [variation(counts(seed, cv, exposures), exposures) for seed in range(5)]
    assert np.mean([one.cv for one in found if one]) == pytest.approx(cv, rel=0.1)
    assert np.mean([one.rate for one in found if one]) == pytest.approx(0.045, rel=0.1)
    assert all(one and one.most_cv > one.cv for one in found)


def test_of_alike_units_few_cohorts_are_taken_to_differ() -> None:
    differ = [variation(counts(seed, 0.0, EVEN[:400]), EVEN[:400]) for seed in range(60)]
    assert sum(one is not None for one in differ) <= 6


@pytest.mark.parametrize("strange", [20, 60])
def test_the_worst_few_per_cent_do_not_widen_it(strange: int) -> None:
    """A fit to all of them would say that rates differ by far more than 50 %."""
    healthy = counts(7, 0.5, EVEN)
    clean = variation(healthy, EVEN)
    mixed = healthy.copy()
    mixed[:strange] = np.random.default_rng(8).poisson(12.6, strange)
    found = variation(mixed, EVEN)
    assert clean is not None
    assert found is not None
    assert found.cv == pytest.approx(clean.cv, abs=0.1)
    plain_cv = (mixed.var() - mixed.mean()) ** 0.5 / mixed.mean()
    assert plain_cv > found.most_cv + 0.2


def test_lemons_among_alike_units_are_no_variation() -> None:
    mixed = counts(9, 0.0, EVEN)
    mixed[:60] = 13
    assert variation(mixed, EVEN) is None


def test_too_few_units_or_no_event_tell_nothing() -> None:
    few = np.array([0, 30] * LEAST_UNITS)
    assert variation(few[: LEAST_UNITS - 1], EVEN[: LEAST_UNITS - 1]) is None
    assert variation(few[:LEAST_UNITS], EVEN[:LEAST_UNITS]) is not None
    assert variation(np.zeros(2000, dtype=np.int64), EVEN) is None


def test_where_half_never_fail_the_other_half_are_not_strange() -> None:
    found = variation(np.array([0, 30] * 20), EVEN[:40])
    assert found is not None
    assert found.p_values(np.array([30.0]), np.array([28.0]))[0] > 0.01


def test_p_values_are_those_of_negative_binomial_counts() -> None:
    n = np.arange(8.0)
    found = Variation(cv=0.4, most_cv=0.5, rate=0.05).p_values(n, np.full(8, 40.0))
    assert found == pytest.approx(stats.nbinom.sf(n - 1, 4, 1 / (1 + 2 * 0.25)))
    assert found[0] == 1


def test_the_unit_of_exposure_does_not_matter() -> None:
    seen = counts(11, 1.0, UNEVEN)
    days, hours = variation(seen, UNEVEN), variation(seen, UNEVEN * 24)
    assert days is not None
    assert hours is not None
    assert hours.rate * 24 == pytest.approx(days.rate, rel=1e-3)
    assert hours.most_cv == pytest.approx(days.most_cv, rel=0.02)


@given(st.lists(st.tuples(st.integers(0, 100_000), st.floats(1e-9, 1e6)), min_size=1, max_size=30))
def test_no_counts_make_it_fail(units: list[tuple[int, float]]) -> None:
    n, exposure = np.array([one[0] for one in units]), np.array([one[1] for one in units])
    found = variation(n, exposure)
    if found is not None:
        assert 0 < found.cv <= found.most_cv < 5
        p_values = found.p_values(n, exposure)
        assert ((p_values >= 0) & (p_values <= 1)).all()
