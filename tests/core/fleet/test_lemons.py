"""Units that fail more often than the others."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy import stats

from pipeline.core.fleet.lemons import UnitCount, expected_recall, lemons, smallest_window_days
from pipeline.core.fleet.records import Cohort

OLD, NEW = Cohort(batch="old"), Cohort(batch="new")
UNITS = st.lists(
    st.builds(
        UnitCount,
        unit=st.uuids().map(str),
        cohort=st.sampled_from([OLD, NEW]),
        n=st.integers(0, 20),
        exposure=st.just(0.0) | st.floats(1e-9, 100),
    ),
    max_size=25,
)


def fleet(counts: list[int], exposure: float = 28.0, cohort: Cohort = OLD) -> list[UnitCount]:
    return [UnitCount(unit=f"n{i}", cohort=cohort, n=n, exposure=exposure) for i, n in enumerate(counts)]


def test_the_one_that_fails_ten_times_as_often_is_found() -> None:
    found = lemons(fleet([1, 0, 2, 1, 1, 15, 0, 1, 2, 1] * 1 + [1] * 30))
    assert [one.unit for one in found if one.is_lemon] == ["n5"]
    assert found[0].unit == "n5"
    assert found[0].expected == pytest.approx(39 / 39)
    assert found[0].shrunk_rate < 15 / 28


def test_in_a_large_cohort_the_p_value_is_that_of_a_poisson_count() -> None:
    counts = np.random.default_rng(1).poisson(1.3, 2000).tolist()
    for one in lemons(fleet(counts)):
        assert one.expected is not None
        assert one.p_value == pytest.approx(stats.poisson.sf(one.n - 1, one.expected), rel=0.02)


def test_two_nodes_with_few_failures_are_no_evidence() -> None:
    """The other's rate is as good as unknown; a Poisson count with rate 0 would be impossible."""
    found = {one.unit: one for one in lemons(fleet([3, 0]))}
    assert found["n0"].p_value == pytest.approx(0.125)
    assert found["n0"].expected == 0.0
    assert not found["n0"].is_lemon


def test_exposure_explains_counts() -> None:
    """A node that is in every big job has more failures because it works more."""
    units = [UnitCount(unit=f"n{i}", n=10 if i == 0 else 1, exposure=280.0 if i == 0 else 28.0) for i in range(30)]
    assert not any(one.is_lemon for one in lemons(units))


def test_units_are_compared_within_their_cohort() -> None:
    units = fleet([8] * 40, cohort=OLD) + [UnitCount(unit=f"m{i}", cohort=NEW, n=0, exposure=28.0) for i in range(40)]
    assert not any(one.is_lemon for one in lemons(units))


def test_a_unit_without_others_or_without_exposure_is_not_judged() -> None:
    (alone,) = lemons([UnitCount(unit="a", n=9, exposure=1.0), UnitCount(unit="b", n=0, exposure=0.0)])
    assert (alone.unit, alone.expected, alone.p_value, alone.is_lemon, alone.shrunk_rate) == ("a", None, 1.0, False, 9)
    assert lemons([]) == []


def test_where_healthy_units_differ_the_worse_of_them_are_no_lemons() -> None:
    """Rates that differ by 50 %, and exposures of which none is like another."""
    dice = np.random.default_rng(21)
    exposures = dice.uniform(10, 46, 2000)
    rates = 0.045 * dice.gamma(4, 0.25, 2000)
    rates[:20] = 0.45
    counts = dice.poisson(rates * exposures).tolist()
    units = [UnitCount(unit=f"n{i}", n=n, exposure=e) for i, (n, e) in enumerate(zip(counts, exposures, strict=True))]
    found = lemons(units)
    called = [one for one in found if one.is_lemon]
    false = [one for one in called if int(one.unit[1:]) >= 20]
    assert len(called) - len(false) >= 14
    assert len(false) <= 1
    assert found[0].cohort_cv == pytest.approx(0.5, abs=0.15)
    by_chance_alone = stats.false_discovery_control([one.p_value for one in found]) <= 0.05
    assert sum(by_chance_alone) >= len(called) + 4


def test_where_units_are_alike_chance_alone_decides_and_that_is_said() -> None:
    found = lemons(fleet([*np.random.default_rng(22).poisson(1.3, 300).tolist(), 13]))
    assert {(one.cohort_p_value, one.cohort_cv) for one in found} == {(None, None)}
    assert [one.unit for one in found if one.is_lemon] == ["n300"]


@pytest.mark.parametrize("others", [1, 2, 5, 8])
def test_a_small_cohort_is_judged_by_chance_alone(others: int) -> None:
    """Units that differ cannot be told from a lemon there, so nothing is fitted that would hide it."""
    found = lemons(fleet([*[3] * others, 40]))
    assert [one.unit for one in found if one.is_lemon] == [f"n{others}"]
    assert {one.cohort_p_value for one in found} == {None}


def test_one_lemon_does_not_make_ten_units_differ() -> None:
    (first, *_) = lemons(fleet([10, 7, 13, 9, 10, 12, 8, 11, 10, 60]))
    assert (first.unit, first.is_lemon, first.cohort_p_value) == ("n9", True, None)


def test_each_cohort_has_its_own_variation() -> None:
    dice = np.random.default_rng(23)
    alike = dice.poisson(5, 400).tolist()
    unlike = dice.poisson(5 * dice.gamma(1, 1, 400)).tolist()
    found = lemons(fleet(alike, cohort=OLD) + fleet(unlike, cohort=NEW))
    assert {one.cohort_cv for one in found if one.cohort == OLD} == {None}
    (cv,) = {one.cohort_cv for one in found if one.cohort == NEW}
    assert cv == pytest.approx(1, abs=0.15)
    assert not any(one.is_lemon for one in found)
    assert sum(one.p_value < 1e-4 for one in found if one.cohort == NEW) >= 5


def test_healthy_units_of_one_rate_all_shrink_to_it() -> None:
    found = lemons(fleet([1, 1, 1, 1]))
    assert {one.shrunk_rate for one in found} == {1 / 28}


def test_shrinking_comes_nearer_to_the_true_rates_than_counting() -> None:
    dice = np.random.default_rng(3)
    true = dice.gamma(2, 0.02, 3000)
    counts = dice.poisson(true * 28)
    order = {f"n{i}": i for i in range(3000)}
    shrunk = np.zeros(3000)
    for one in lemons(fleet(counts.tolist())):
        shrunk[order[one.unit]] = one.shrunk_rate
    assert ((shrunk - true) ** 2).mean() < 0.5 * ((counts / 28 - true) ** 2).mean()
    # As good as if the spread of the true rates were known: gamma with shape 2 over 50 days.
    best = (2 + counts) / (50 + 28)
    assert ((shrunk - true) ** 2).mean() < 1.02 * ((best - true) ** 2).mean()


@given(UNITS, st.sampled_from([0.01, 0.05, 0.2]))
def test_every_unit_at_risk_is_judged_once_and_lemons_come_first(units: list[UnitCount], q: float) -> None:
    found = lemons(units, q)
    assert sorted(one.unit for one in found) == sorted(one.unit for one in units if one.exposure > 0)
    flags = [one.is_lemon for one in found]
    assert flags == sorted(flags, reverse=True)
    for one in found:
        assert 0 <= one.p_value <= 1
        assert one.shrunk_rate >= 0
        assert one.cohort_p_value is None or 0 <= one.cohort_p_value <= 1
        assert (one.cohort_p_value is None) == (one.cohort_cv is None)
        assert not one.is_lemon or max(one.p_value, one.cohort_p_value or 0.0) <= q
    assert {one.unit for one in found if one.is_lemon} <= {
        one.unit for one in lemons(units, min(1.0, 2 * q)) if one.is_lemon
    }


def test_among_equal_units_seldom_any_is_called() -> None:
    dice = np.random.default_rng(5)
    called = [any(one.is_lemon for one in lemons(fleet(dice.poisson(1.3, 500).tolist()))) for _ in range(100)]
    assert np.mean(called) <= 0.1


@pytest.mark.parametrize(("per_1000", "recall"), [(2.34, 0.01), (6.5, 0.1), (20, 0.5), (45, 0.92)])
def test_four_weeks_find_lemons_only_where_there_are_enough_episodes(per_1000: float, recall: float) -> None:
    assert expected_recall(per_1000 / 1000, 28, units=2000) == pytest.approx(recall, abs=0.03)


def test_expected_recall_is_what_simulated_fleets_give() -> None:
    dice = np.random.default_rng(1)
    rates = np.where(np.arange(2000) < 20, 0.2, 0.02)
    shares = []
    for _ in range(40):
        found = lemons(fleet(dice.poisson(rates * 28).tolist()))
        shares.append(sum(one.is_lemon and int(one.unit[1:]) < 20 for one in found) / 20)
    assert np.mean(shares) == pytest.approx(expected_recall(0.02, 28, units=2000), abs=0.05)


@pytest.mark.parametrize("per_day", [8.64e10, 1e300])
def test_units_that_always_fail_need_one_day_and_no_memory(per_day: float) -> None:
    assert smallest_window_days(per_day, units=1) == 1
    assert expected_recall(9_999, 1, units=2000) == pytest.approx(1.0, abs=1e-12)


def test_the_smallest_window_is_the_first_that_finds_enough() -> None:
    days = smallest_window_days(0.045, units=2000)
    assert days is not None
    assert days <= 28
    assert expected_recall(0.045, days, units=2000) >= 0.9 > expected_recall(0.045, days - 1, units=2000)
    longer = smallest_window_days(0.00234, units=2000)
    assert longer is not None
    assert longer > 365


def test_where_hardly_anything_fails_no_window_is_long_enough() -> None:
    assert smallest_window_days(0.0, units=2000) is None
    assert smallest_window_days(1e-7, units=2000) is None
    assert smallest_window_days(2e-4, units=2000) is None
