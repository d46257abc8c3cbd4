"""How long units live."""

import warnings
from collections.abc import Sequence

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy import stats

from pipeline.core.fleet.survival import (
    Weibull,
    cumulative_incidence,
    exponential_check,
    kaplan_meier,
    weibull,
)

LIVES = st.lists(st.tuples(st.integers(1, 40), st.booleans()), min_size=1, max_size=60)


def invented(n: int, shape: float, seed: int) -> tuple[list[float], list[bool]]:
    """Units that wear by a Weibull of scale 5, and are lost from sight at random."""
    dice = np.random.default_rng(seed)
    life, lost = 5 * dice.weibull(shape, n), dice.uniform(0, 8, n)
    return np.minimum(life, lost).tolist(), (life <= lost).tolist()


def of_scipy(durations: Sequence[float], died: Sequence[bool]) -> stats.CensoredData:
    ends, dead = np.array(durations, dtype=float), np.array(died)
    return stats.CensoredData(uncensored=ends[dead], right=ends[~dead])


@given(LIVES)
def test_kaplan_meier_and_greenwood_equal_scipys(lives: list[tuple[int, bool]]) -> None:
    durations, died = [float(end) for end, _ in lives], [dead for _, dead in lives]
    found, theirs = kaplan_meier(durations, died), stats.ecdf(of_scipy(durations, died)).sf
    with np.errstate(all="ignore"), warnings.catch_warnings(action="ignore"):
        bounds = theirs.confidence_interval(0.95, method="log-log")
    for i, time in enumerate(found.times):
        at = int(np.searchsorted(theirs.quantiles, time))
        assert theirs.quantiles[at] == time
        assert found.survival[i] == pytest.approx(theirs.probabilities[at], abs=1e-12)
        if found.survival[i] > 0:
            assert found.lo[i] == pytest.approx(bounds.low.probabilities[at], abs=1e-9)
            assert found.hi[i] == pytest.approx(bounds.high.probabilities[at], abs=1e-9)
    assert [found.at(time) for time in (0.5, *range(41))] == pytest.approx(
        theirs.evaluate([0.5, *range(41)]).tolist(), abs=1e-12
    )


def test_greenwood_by_the_sum_of_its_terms() -> None:
    durations, died = invented(500, 1.4, 2)
    found = kaplan_meier(durations, died)
    lost = 0.0
    for i, time in enumerate(found.times):
        n = sum(end >= time for end in durations)
        d = sum(end == time and dead for end, dead in zip(durations, died, strict=True))
        lost += d / (n * (n - d)) if n > d else 0.0
        assert (found.at_risk[i], found.deaths[i]) == (n, d)
        if found.survival[i] > 0:
            assert found.std_error[i] == pytest.approx(found.survival[i] * lost**0.5, abs=1e-12)


def test_where_the_last_one_dies_survival_is_zero_and_its_error_unknown() -> None:
    found = kaplan_meier([1, 2, 2], [True, True, True])
    assert found.survival == pytest.approx((2 / 3, 0.0))
    assert np.isnan(found.std_error[1])
    assert found.lo[1] == 0.0
    assert found.hi[1] == found.hi[0] < 1
    alone = kaplan_meier([1], [True])
    assert (alone.lo, alone.hi) == ((0.0,), (1.0,))


def test_nobody_died_and_nobody_was_there() -> None:
    for found in (kaplan_meier([3, 4], [False, False]), kaplan_meier([], [])):
        assert found.times == ()
        assert found.at(2) == 1.0
        assert found.std_error_at(2) == 0.0
        assert found.median() is None
        assert found.median_bounds() == (None, None)


def test_a_unit_that_dies_at_once_was_at_risk() -> None:
    found = kaplan_meier([0, 1], [True, False], entered=[0, 0])
    assert (found.times, found.at_risk, found.survival) == ((0.0,), (2,), (0.5,))


def test_a_unit_is_not_at_risk_before_it_was_seen() -> None:
    found = kaplan_meier([1, 3, 4], [True, True, False], entered=[0, 2, 0.5])
    assert found.at_risk == (2, 2)
    assert found.survival == (0.5, 0.25)


def test_left_truncation_recovers_what_leaving_it_out_would_hide() -> None:
    dice = np.random.default_rng(4)
    life, seen_from = 5 * dice.weibull(2, 40_000), dice.uniform(0, 6, 40_000)
    seen = life > seen_from
    life, seen_from = life[seen], seen_from[seen]
    true = Weibull(scale=5, shape=2, log_likelihood=0)
    truncated = kaplan_meier(life.tolist(), [True] * life.size, seen_from.tolist())
    blind = kaplan_meier(life.tolist(), [True] * life.size)
    assert truncated.at(3) == pytest.approx(true.at(3), abs=0.02)
    assert blind.at(3) > true.at(3) + 0.1
    fit = weibull(life.tolist(), [True] * life.size, seen_from.tolist())
    assert fit is not None
    assert (fit.scale, fit.shape) == pytest.approx((5, 2), rel=0.03)


def test_median_and_its_bounds() -> None:
    durations, died = invented(400, 1.0, 5)
    found = kaplan_meier(durations, died)
    median, (low, high) = found.median(), found.median_bounds()
    assert median is not None
    assert low is not None
    assert high is not None
    assert low < median < high
    assert low < 5 * np.log(2) < high
    assert found.at(median) <= 0.5 < found.at(np.nextafter(median, 0))


def test_open_repairs_lengthen_the_mean_that_closed_ones_tell() -> None:
    """The mean of closed repairs alone is too short."""
    dice = np.random.default_rng(8)
    hours, patience = dice.exponential(10, 20_000), dice.uniform(0, 30, 20_000)
    closed = hours <= patience
    found = kaplan_meier(np.minimum(hours, patience).tolist(), closed.tolist()).restricted_mean(24)
    assert found == pytest.approx(10 * (1 - np.exp(-2.4)), rel=0.02)
    assert hours[closed].mean() < 8


def test_restricted_mean_by_hand_and_where_the_curve_ends() -> None:
    found = kaplan_meier([1, 3, 4], [True, True, False])
    assert found.restricted_mean(2) == pytest.approx(1 + 2 / 3)
    assert found.restricted_mean(4) == pytest.approx(1 + 2 * 2 / 3 + 1 / 3)
    assert found.restricted_mean(5) is None
    assert kaplan_meier([1, 3], [True, True]).restricted_mean(5) == 2.0


@given(LIVES)
def test_without_censoring_the_restricted_mean_is_the_mean(lives: list[tuple[int, bool]]) -> None:
    durations = [float(end) for end, _ in lives]
    found = kaplan_meier(durations, [True] * len(durations)).restricted_mean(50)
    assert found == pytest.approx(np.mean(durations))


@given(LIVES)
def test_survival_falls_within_its_bounds(lives: list[tuple[int, bool]]) -> None:
    found = kaplan_meier([end for end, _ in lives], [dead for _, dead in lives])
    assert list(found.survival) == sorted(found.survival, reverse=True)
    for share, lo, hi in zip(found.survival, found.lo, found.hi, strict=True):
        assert 0 <= lo <= share <= hi <= 1


@given(LIVES, st.data())
def test_causes_share_out_what_died(lives: list[tuple[int, bool]], data: st.DataObject) -> None:
    """Together they are one minus Kaplan-Meier of all; alone, a cause is Kaplan-Meier and Greenwood."""
    durations = [float(end) for end, _ in lives]
    causes = [data.draw(st.sampled_from(["gpu", "fan"])) if dead else None for _, dead in lives]
    whole = kaplan_meier(durations, [cause is not None for cause in causes])
    parts = cumulative_incidence(durations, causes)
    assert set(parts) == {cause for cause in causes if cause}
    for i, time in enumerate(whole.times):
        assert sum(part.incidence[i] for part in parts.values()) == pytest.approx(1 - whole.survival[i], abs=1e-12)
        assert sum(part.at(time) for part in parts.values()) == pytest.approx(1 - whole.at(time), abs=1e-12)
    for part in parts.values():
        assert all(lo <= share <= hi for lo, share, hi in zip(part.lo, part.incidence, part.hi, strict=True))
    alone = cumulative_incidence(durations, [cause and "any" for cause in causes])
    for i, survival in enumerate(whole.survival):
        if survival > 0:
            assert alone["any"].std_error[i] == pytest.approx(whole.std_error[i], abs=1e-7)


def test_incidence_and_its_error_equal_the_product_of_matrices() -> None:
    """Aalen-Johansen as a chain of states, with the covariance carried from time to time."""
    dice = np.random.default_rng(6)
    durations = dice.integers(1, 30, 300)
    causes = dice.choice(["gpu", "fan", ""], 300)
    found = cumulative_incidence(durations.tolist(), [cause or None for cause in causes])
    state, spread = np.array([1.0, 0.0, 0.0]), np.zeros((3, 3))  # alive, fan, gpu
    for i, time in enumerate(found["gpu"].times):
        n = int((durations >= time).sum())
        d = np.array([((durations == time) & (causes == cause)).sum() for cause in ("fan", "gpu")]) / n
        step = np.eye(3)
        step[0] = [1 - d.sum(), *d]
        p = step[0]
        spread = step.T @ spread @ step + state[0] ** 2 * (np.diag(p) - np.outer(p, p)) / n
        state = state @ step
        for j, cause in ((1, "fan"), (2, "gpu")):
            assert found[cause].incidence[i] == pytest.approx(state[j], abs=1e-12)
            # The delta method divides by the survivors where the chain divides by those at risk.
            assert found[cause].std_error[i] == pytest.approx(spread[j, j] ** 0.5, rel=0.03)


def test_what_kills_first_hides_what_kills_later() -> None:
    """One minus Kaplan-Meier of a cause alone overstates how many it ends."""
    dice = np.random.default_rng(9)
    gpu, fan = dice.exponential(4, 5000), dice.exponential(4, 5000)
    ends, causes = np.minimum(gpu, fan), np.where(gpu < fan, "gpu", "fan")
    found = cumulative_incidence(ends.tolist(), causes.tolist())["gpu"].at(20)
    alone = 1 - kaplan_meier(ends.tolist(), (causes == "gpu").tolist()).at(20)
    assert found == pytest.approx(0.5, abs=0.03)
    assert alone > 0.95


@pytest.mark.parametrize("shape", [0.6, 1.0, 2.6])
def test_weibull_equals_scipys_fit(shape: float) -> None:
    durations, died = invented(800, shape, 1)
    found = weibull(durations, died)
    theirs = stats.weibull_min.fit(of_scipy(durations, died), floc=0)
    assert found is not None
    assert found.shape == pytest.approx(theirs[0], rel=1e-3)
    assert found.scale == pytest.approx(theirs[2], rel=1e-3)
    assert found.log_likelihood == pytest.approx(_log_likelihood(durations, died, found.shape, found.scale), rel=1e-12)
    assert found.log_likelihood >= _log_likelihood(durations, died, theirs[0], theirs[2])


def _log_likelihood(durations: Sequence[float], died: Sequence[bool], shape: float, scale: float) -> float:
    known = stats.weibull_min(shape, scale=scale)
    ends, dead = np.array(durations), np.array(died)
    return float(known.logpdf(ends[dead]).sum() + known.logsf(ends[~dead]).sum())


def test_lives_that_no_weibull_describes() -> None:
    assert weibull([3], [True]) is None
    assert weibull([3, 3], [True, True]) is None
    assert weibull([0, 3, 4], [True, True, True]) is None
    assert weibull([1, 2], [False, False]) is None


@given(st.lists(st.floats(0.01, 100), min_size=5, max_size=30, unique=True), st.floats(1e-9, 1e12))
def test_weibull_does_not_depend_on_the_unit_of_time(durations: list[float], unit: float) -> None:
    one, other = (
        weibull(durations, [True] * len(durations)),
        weibull([d * unit for d in durations], [True] * len(durations)),
    )
    if one is not None and other is not None:
        assert other.shape == pytest.approx(one.shape, rel=1e-6)
        assert other.scale == pytest.approx(one.scale * unit, rel=1e-6)


def test_the_exponential_is_wrong_for_units_that_wear_out() -> None:
    found = exponential_check(*invented(2000, 2.6, 3))
    assert found is not None
    assert found.is_wrong
    assert found.p_value is not None
    assert found.p_value < 1e-6
    assert found.dead < found.expected_dead / 5
    assert "units wear out" in found.why
    assert "a constant rate expects" in found.why


def test_the_exponential_is_wrong_for_the_weak_that_die_early() -> None:
    found = exponential_check(*invented(2000, 0.6, 3))
    assert found is not None
    assert found.dead > 1.5 * found.expected_dead
    assert "the weak die early" in found.why


def test_the_exponential_is_seldom_called_wrong_where_it_holds() -> None:
    called = [exponential_check(*invented(300, 1.0, seed)) for seed in range(200)]
    assert sum(one is not None and one.is_wrong for one in called) <= 8  # 2 tests of 1 % each


def test_a_departure_too_small_to_matter_is_not_called() -> None:
    found = exponential_check(*invented(200_000, 1.04, 3))
    assert found is not None
    assert found.p_value is not None
    assert found.p_value < 1e-6
    assert not found.is_wrong
    assert found.why == ""


def test_early_deaths_of_few_are_found_though_the_shape_looks_like_one() -> None:
    """A tenth dies at once, the others wear out: the shapes cancel."""
    dice = np.random.default_rng(2)
    ends = np.concatenate([dice.uniform(0, 0.05, 300), 5 * dice.weibull(1.6, 2700)])
    found = exponential_check(ends.tolist(), [True] * ends.size, early=0.05)
    assert found is not None
    assert "by 0.05 a constant rate expects" in found.why


def test_no_death_gives_no_check() -> None:
    assert exponential_check([1, 2], [False, False]) is None
    assert exponential_check([0], [True]) is None
    one = exponential_check([5], [True])
    assert one is not None
    assert (one.p_value, one.shape, one.is_wrong) == (None, None, False)
    with pytest.raises(ValueError, match="by 0 nobody can have died"):
        exponential_check([1], [True], early=0)


def test_lives_that_cannot_be_are_refused() -> None:
    for durations, died, entered, why in (
        ([1.0], [True, False], None, "1 durations, 2 ends"),
        ([-1.0], [True], None, "finite and not negative"),
        ([float("nan")], [True], None, "finite and not negative"),
        ([2.0], [True], [2.0], "no time at risk"),
    ):
        with pytest.raises(ValueError, match=why):
            kaplan_meier(durations, died, entered)


def test_half_is_half_though_products_round() -> None:
    found = kaplan_meier(list(range(1, 30_001)), [True] * 30_000)
    assert found.at(15_000) != 0.5
    assert found.median() == 15_000
