"""Orders that are not certain."""

import pytest

from pipeline.core.clocks.odds import is_probable, odds_before


def test_odds_follow_a_normal_distribution() -> None:
    assert odds_before(0, 300, 400) == 0.5
    assert odds_before(500, 300, 400) == pytest.approx(0.995, abs=1e-6)  # u99 of both together, one-sided
    assert odds_before(-500, 300, 400) == pytest.approx(0.005, abs=1e-6)
    assert odds_before(5_000_000, 300, 400) == 1.0


def test_odds_of_exact_times_are_certain() -> None:
    assert [odds_before(gap, 0, 0) for gap in (-1, 0, 1)] == [0.0, 0.5, 1.0]


def test_an_order_is_probable_beyond_both_errors_together() -> None:
    assert is_probable(501, 300, 400)
    assert not is_probable(500, 300, 400)
    assert not is_probable(-501, 300, 400)
