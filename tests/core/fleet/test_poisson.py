"""Counts and time at risk."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy import stats

from pipeline.core.fleet.poisson import (
    WIDEST_DISPERSION,
    Interval,
    clustered_rate,
    dispersion,
    garwood,
    mtbf,
    rate,
    ratio,
    top_share,
)

COUNTS = st.integers(0, 10_000)
EXPOSURES = st.floats(1e-3, 1e9)


def test_garwood_covers_at_least_95_percent() -> None:
    """Exact, nothing is drawn: the probabilities of all counts whose interval holds mu, for 2,000 mu."""
    bounds = [garwood(n) for n in range(1_000)]
    lo, hi = np.array([one.lo for one in bounds]), np.array([one.hi for one in bounds])
    covered = [
        float(stats.poisson.pmf(np.flatnonzero((lo <= mu) & (mu <= hi)), mu).sum())
        for mu in np.geomspace(0.5, 500, 2000)
    ]
    assert min(covered) >= 0.95
    assert np.mean(covered) < 0.97


@given(COUNTS, st.sampled_from([0.5, 0.8, 0.95, 0.99]))
def test_garwood_leaves_half_of_the_rest_in_each_tail(n: int, level: float) -> None:
    found = garwood(n, level)
    assert found.hi is not None
    assert stats.poisson.cdf(n, found.hi) == pytest.approx((1 - level) / 2, rel=1e-9)
    assert n == found.lo == 0 or stats.poisson.sf(n - 1, found.lo) == pytest.approx((1 - level) / 2, rel=1e-9)


@given(COUNTS)
def test_garwood_holds_the_count_and_grows_with_it(n: int) -> None:
    now, more = garwood(n), garwood(n + 1)
    assert now.hi is not None
    assert more.hi is not None
    assert now.lo <= n < now.hi < more.hi
    assert now.lo < more.lo


def test_a_negative_count_is_refused() -> None:
    for function in (rate, mtbf):
        with pytest.raises(ValueError, match="a count of -1"):
            function(-1, 1.0)
    with pytest.raises(ValueError, match="an exposure of"):
        rate(1, float("nan"))


def test_no_failure_gives_a_bound_and_never_infinity() -> None:
    found = mtbf(0, 1000)
    assert (found.value, found.hi) == (None, None)
    assert found.lo == pytest.approx(1000 / 3.689, rel=1e-4)
    # One-sided 95 %, NIST e-Handbook 8.4.5.1: T / -ln(0.05).
    assert mtbf(0, 1000, level=0.9).lo == pytest.approx(1000 / -np.log(0.05))


def test_without_exposure_nothing_is_known() -> None:
    for found in (rate(3, 0), mtbf(3, 0), rate(0, 0), mtbf(0, 0)):
        assert (found.value, found.lo, found.hi) == (None, 0.0, None)


@given(st.integers(1, 10_000), EXPOSURES)
def test_mtbf_is_one_over_the_rate_with_bounds_changed_over(n: int, exposure: float) -> None:
    per, between = rate(n, exposure), mtbf(n, exposure)
    assert between.value is not None
    assert per.value is not None
    assert per.hi is not None
    assert between.hi is not None
    assert between.value * per.value == pytest.approx(1)
    assert between.lo * per.hi == pytest.approx(1)
    assert between.hi * per.lo == pytest.approx(1)
    assert between.lo < between.value < between.hi


@given(st.integers(0, 300), EXPOSURES, st.integers(0, 300), EXPOSURES)
def test_a_ratio_turned_round_is_one_over_it(n1: int, e1: float, n2: int, e2: float) -> None:
    one, other = ratio(n1, e1, n2, e2), ratio(n2, e2, n1, e1)
    assert one.p_value == pytest.approx(other.p_value, rel=1e-6)
    if one.hi is not None and n2:
        assert other.lo == pytest.approx(1 / one.hi, rel=1e-6)
    if one.value and other.value:
        assert one.value * other.value == pytest.approx(1)
        assert one.lo < one.value < (one.hi or 0)


def test_a_ratio_to_nothing_has_only_a_lower_bound() -> None:
    found = ratio(8, 100.0, 0, 100.0)
    assert (found.value, found.hi) == (None, None)
    assert found.lo > 1.5
    assert ratio(0, 1.0, 0, 1.0).p_value == 1.0
    assert ratio(1, 0.0, 5, 1.0).value is None
    with pytest.raises(ValueError, match="counts -1 and 2"):
        ratio(-1, 1.0, 2, 1.0)


def test_poisson_counts_have_dispersion_one_and_clusters_more() -> None:
    dice = np.random.default_rng(7)
    mu = dice.uniform(0.2, 3, 4000)
    even = dispersion(dice.poisson(mu).tolist(), mu.tolist())
    clustered = dispersion(dice.poisson(mu * dice.gamma(0.5, 2, mu.size)).tolist(), mu.tolist())
    assert even == pytest.approx(1, abs=0.1)
    assert clustered is not None
    assert clustered > WIDEST_DISPERSION


def test_dispersion_needs_two_units_of_which_something_is_expected() -> None:
    assert dispersion([3], [1.0]) is None
    assert dispersion([3, 0, 0], [1.0, 0.0, 0.0]) is None
    assert dispersion([2, 0], [1.0, 1.0]) == 2.0
    with pytest.raises(ValueError, match="2 counts, 1 units"):
        dispersion([1, 2], [1.0])


@pytest.mark.parametrize("units", [400, 12_000])
def test_clustered_units_have_a_wider_interval(units: int) -> None:
    dice = np.random.default_rng(3)
    counts = dice.poisson(dice.gamma(0.05, 20, units)).tolist()
    exposures = dice.uniform(20, 28, units).tolist()
    whole = rate(sum(counts), sum(exposures))
    found = clustered_rate(counts, exposures, seed=1)
    assert whole.hi is not None
    assert found.hi is not None
    assert found.hi - found.lo > 3 * (whole.hi - whole.lo)
    assert found.lo < (whole.value or 0) < found.hi
    assert found == clustered_rate(counts, exposures, seed=1)


def test_resampling_and_its_limit_agree() -> None:
    """Many units with clusters: 9,999 are resampled, of 10,001 the spread is taken."""
    dice = np.random.default_rng(5)
    counts = dice.poisson(dice.gamma(0.5, 2, 10_001)).tolist()
    few, many = (clustered_rate(counts[:n], [1.0] * n, seed=1) for n in (9_999, 10_001))
    assert few.lo == pytest.approx(many.lo, rel=0.01)
    assert few.hi == pytest.approx(many.hi, rel=0.01)


def test_clustered_rate_covers_what_garwood_misses() -> None:
    """200 units of which few have most events: of 200 fleets at least 85 % of intervals hold the true rate."""
    dice = np.random.default_rng(11)
    held = plain = 0
    for fleet in range(200):
        counts = dice.poisson(dice.gamma(0.5, 4, 200)).tolist()
        wide, narrow = clustered_rate(counts, [1.0] * 200, seed=fleet), rate(sum(counts), 200.0)
        held += wide.lo <= 2.0 <= (wide.hi or 0)
        plain += narrow.lo <= 2.0 <= (narrow.hi or 0)
    assert held >= 170
    assert plain < 150


@given(st.lists(st.integers(0, 5), max_size=30), st.integers(0, 3))
def test_a_clustered_interval_is_never_narrower_than_garwoods(counts: list[int], seed: int) -> None:
    exposures = [1.0 + i % 3 for i in range(len(counts))]
    whole, found = rate(sum(counts), sum(exposures)), clustered_rate(counts, exposures, seed=seed)
    assert found.lo <= whole.lo
    assert found.hi == whole.hi is None or (found.hi or 0) >= (whole.hi or 0)


def test_units_without_exposure_are_not_resampled() -> None:
    assert clustered_rate([4, 9], [2.0, 0.0], seed=1) == Interval(lo=rate(4, 2.0).lo, hi=rate(4, 2.0).hi)
    assert clustered_rate([], [], seed=1) == Interval(lo=0.0, hi=None)


def test_the_share_of_the_worst_units() -> None:
    """Of 38,905 uncontained errors on Delta four GPUs had more than nine tenths (arXiv 2503.11901 v1)."""
    assert top_share([1, 7, 2]) == 0.7
    assert top_share([1, 7, 2], first=2) == 0.9
    assert top_share([1], first=10) == 1.0
    assert top_share([0, 0]) is None
    assert top_share([]) is None
