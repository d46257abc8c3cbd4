"""How far best values may be off, learned from what is known later."""

import msgspec
import pytest

from pipeline.core.clocks.spread import FIRST, LATER_NS, LEAST, UNSEEN, Spread


def taught(errors: list[float]) -> Spread:
    spread = Spread()
    for error in errors:
        spread.judge(error * 1000, 1000)
    return spread


def test_too_few_values_teach_nothing() -> None:
    assert taught([0.01] * 98).share == FIRST
    assert taught([0.01] * 99).share == LEAST


def test_the_share_follows_the_largest_of_100_errors_and_not_the_usual_one() -> None:
    assert taught([0.1] * 991 + [0.45] * 9).share == LEAST
    assert taught([0.1] * 970 + [-0.455] * 30).share == pytest.approx(0.46 * UNSEEN)
    assert taught([5.0] * 200).share == 1.0


def test_old_errors_fade() -> None:
    spread = taught([0.5] * 3000)
    for _ in range(30_000):
        spread.judge(10, 1000)
    assert spread.share == LEAST
    assert len(msgspec.json.encode(spread)) < 400


def test_u99_is_never_more_than_the_certain_bound_and_not_less_where_luck_made_it_narrow() -> None:
    spread = Spread()
    for _ in range(1000):
        spread.see(1000)
    assert spread.u99(1000, 1200) == 700
    assert spread.u99(500, 1200) == 700
    assert spread.u99(500, 600) == 600
    assert spread.u99(2000, 9000) == 1400


def test_a_value_is_judged_once_and_only_when_later_ones_are_known() -> None:
    spread = Spread()
    assert spread.expects(0)
    spread.await_(0, 5, 1000)
    assert not spread.expects(1e9)
    assert spread.expects(4e9)
    assert spread.due(LATER_NS - 1.0) is None
    assert spread.due(float(LATER_NS)) == (0, 5, 1000)
    assert spread.due(float(LATER_NS)) is None
