"""More and more failures, or fewer and fewer."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy import stats

from pipeline.core.fleet.trend import crow_amsaa, laplace


def power_law(beta: float, expected: float, seed: int) -> list[float]:
    """Failures of a power law in (0, 1)."""
    dice = np.random.default_rng(seed)
    return [float(at) for at in dice.uniform(0, 1, dice.poisson(expected)) ** (1 / beta)]


def test_laplace_tells_growth_from_decay_and_from_neither() -> None:
    grows, even, falls = (laplace(power_law(beta, 200, 1), 0, 1) for beta in (2, 1, 0.5))
    assert grows is not None
    assert even is not None
    assert falls is not None
    assert grows.z > 3 > 1.5 > abs(even.z)
    assert falls.z < -3
    assert max(grows.p_value, falls.p_value) < 0.003
    assert even.p_value > 0.1


def test_laplace_by_hand() -> None:
    found = laplace([6, 7, 8, 9], 0, 10)
    assert found is not None
    assert found.z == pytest.approx((7.5 - 5) / (10 / np.sqrt(12 * 4)))
    assert found.p_value == pytest.approx(2 * stats.norm.sf(found.z))


def test_laplace_calls_few_even_streams_a_trend() -> None:
    called = [laplace(power_law(1, 30, seed), 0, 1) for seed in range(400)]
    assert 0.02 < np.mean([one is not None and one.p_value < 0.05 for one in called]) < 0.08


def test_crow_amsaa_bounds_beta_with_the_certainty_it_says() -> None:
    for beta in (0.6, 1.0, 1.8):
        found = [crow_amsaa(power_law(beta, 40, seed), 0, 1) for seed in range(300)]
        held = [one.lo <= beta <= one.hi for one in found if one is not None]
        assert len(held) == 300
        assert 0.92 < np.mean(held) < 0.98


def test_crow_amsaa_by_hand() -> None:
    found = crow_amsaa([25, 50, 75], 0, 100)
    assert found is not None
    assert found.beta == pytest.approx(3 / (np.log(4) + np.log(2) + np.log(4 / 3)))
    assert found.lo == pytest.approx(found.beta * stats.chi2.ppf(0.025, 6) / 6)
    assert found.hi == pytest.approx(found.beta * stats.chi2.ppf(0.975, 6) / 6)


@given(st.lists(st.floats(0.01, 0.99), min_size=4, max_size=30), st.floats(0.1, 1e6), st.floats(-1e3, 1e3))
def test_trends_do_not_depend_on_the_scale_of_time(shares: list[float], length: float, begin: float) -> None:
    moved = [begin + share * length for share in shares]
    one, other = laplace(shares, 0, 1), laplace(moved, begin, begin + length)
    first, second = crow_amsaa(shares, 0, 1), crow_amsaa(moved, begin, begin + length)
    assert one is not None
    assert other is not None
    assert other.z == pytest.approx(one.z, abs=1e-6)
    assert first is not None
    assert second is not None
    assert second.beta == pytest.approx(first.beta, rel=1e-6)


def test_few_failures_have_no_trend() -> None:
    assert laplace([1, 2, 3], 0, 10) is None
    assert crow_amsaa([1], 0, 10) is None
    assert crow_amsaa([10, 10], 0, 10) is None


def test_a_failure_at_the_very_begin_leaves_beta_finite() -> None:
    found = crow_amsaa([0, 5], 0, 10)
    assert found is not None
    assert 0.1 < found.beta < 0.2


def test_times_outside_the_window_are_refused() -> None:
    with pytest.raises(ValueError, match="11 is not in the window from 0 to 10"):
        laplace([11], 0, 10)
    with pytest.raises(ValueError, match="a window from 5 to 5"):
        crow_amsaa([], 5, 5)
