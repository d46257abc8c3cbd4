"""A wall clock's history over the raw clock: stamps become raw intervals that hold the truth, steps are undone."""

from bisect import bisect_right
from random import Random

import pytest

from pipeline.core.clocks.history import KEPT, History

S = 1_000_000_000
MS = 1_000_000


class Wall:
    """A wall clock that is slewed and stepped at known raw times: (raw, ahead after it, ppm after it)."""

    def __init__(self, *legs: tuple[int, int, float]) -> None:
        self.legs = legs

    def at(self, raw_ns: int) -> int:
        begin_ns, ahead_ns, ppm = self.legs[bisect_right([leg[0] for leg in self.legs], raw_ns) - 1]
        return raw_ns + ahead_ns + round((raw_ns - begin_ns) * ppm * 1e-6)


def heard(wall: Wall, until_ns: int, every_ns: int = S) -> History:
    history = History()
    for raw_ns in range(0, until_ns + 1, every_ns):
        history.note(raw_ns, wall.at(raw_ns))
    return history


def test_a_steered_clock_gives_raw_times_within_tens_of_microseconds() -> None:
    wall = Wall((0, 1_700_000_000 * S, 23.0))
    history = heard(wall, 600 * S)
    for raw_ns in range(0, 600 * S, 7 * S // 3):
        (span,) = history.raw_of(wall.at(raw_ns))
        assert span.lo_ns <= raw_ns <= span.hi_ns
        assert span.hi_ns - span.lo_ns < 100_000
    assert len(history.stretches) == 1


@pytest.mark.parametrize("step_s", [-3600, -5, -0.002, 0.002, 5, 3600])
def test_a_step_is_undone_outside_the_second_in_which_it_came(step_s: float) -> None:
    step_ns = round(step_s * S)
    before, after = 1_700_000_000 * S, 1_700_000_000 * S + step_ns
    wall = Wall((0, before, 0.0), (100 * S + S // 2, after, 0.0))
    history = heard(wall, 200 * S)
    for raw_ns in range(S, 200 * S, S // 3):
        spans = history.raw_of(wall.at(raw_ns))
        assert any(span.lo_ns <= raw_ns <= span.hi_ns for span in spans)
        if not 100 * S <= raw_ns <= 101 * S:
            assert any(span.lo_ns <= raw_ns <= span.hi_ns and span.hi_ns - span.lo_ns < 10_000 for span in spans) or (
                abs(step_ns) <= S
            )
    assert history.stepped_ns == pytest.approx(step_ns, abs=10)
    assert history.stretches[-1].steps == 1


def test_what_was_shown_twice_has_two_times_and_what_was_never_shown_has_none() -> None:
    back = heard(Wall((0, 10_000 * S, 0.0), (100 * S + 1, 9_995 * S, 0.0)), 200 * S)
    assert [span.steps for span in back.raw_of(10_098 * S)] == [1, 0]
    forth = heard(Wall((0, 10_000 * S, 0.0), (100 * S + 1, 10_005 * S, 0.0)), 200 * S)
    assert forth.raw_of(10_103 * S) == []


def test_slewing_is_no_step() -> None:
    wall = Wall((0, 10_000 * S, 0.0), (100 * S, 10_000 * S, 500.0), (200 * S, 10_000 * S + 50 * MS, 0.0))
    history = heard(wall, 300 * S)
    assert history.stepped_ns == 0
    for raw_ns in range(0, 300 * S, S // 4):
        (span,) = history.raw_of(wall.at(raw_ns))
        assert span.lo_ns <= raw_ns <= span.hi_ns
        assert span.hi_ns - span.lo_ns < 2 * MS


def test_a_wide_reading_keeps_the_truth_in_the_interval() -> None:
    random = Random(5)
    wall = Wall((0, 10_000 * S, -40.0))
    history = History()
    for raw_ns in range(0, 300 * S, S):
        width_ns = random.choice((0, 20_000, 3 * MS))
        history.note(raw_ns, wall.at(raw_ns + random.randint(0, width_ns)), width_ns)
    for raw_ns in range(0, 298 * S, S // 2):
        assert any(span.lo_ns <= raw_ns <= span.hi_ns for span in history.raw_of(wall.at(raw_ns)))


def test_a_stamp_from_before_the_first_reading_or_long_after_the_last_has_no_raw_time() -> None:
    history = heard(Wall((0, 10_000 * S, 0.0)), 100 * S)
    assert history.raw_of(9_999 * S) == []
    assert history.raw_of(10_110 * S) == []
    (span,) = history.raw_of(10_101 * S)
    assert span.lo_ns <= 101 * S <= span.hi_ns


def test_a_clock_that_stands_still_says_nothing() -> None:
    history = History()
    for _ in range(3):
        assert history.note(5 * S, 10_000 * S) == 0
    assert len(history.stretches) == 1


def test_its_size_is_bounded_however_often_the_clock_is_stepped() -> None:
    history = History()
    for n in range(3 * KEPT):
        history.note(n * S, n * S + (n % 7) * S)
    assert len(history.stretches) == KEPT


@pytest.mark.parametrize("step_ms", [-5_300, -700, -40, 40, 500, 5_300])
@pytest.mark.parametrize("at_ms", [10, 310, 790])
def test_whole_seconds_hold_their_moment_on_both_sides_of_a_step_and_of_the_last_reading(
    step_ms: int, at_ms: int
) -> None:
    before = 1_700_000_000 * S + 790 * MS
    wall = Wall((0, before, 300.0), (50 * S + at_ms * MS, before + step_ms * MS, 300.0))
    history = heard(wall, 60 * S)
    for raw_ns in range(S, 61 * S, 10 * MS):
        spans = history.raw_of(wall.at(raw_ns) // S * S, S)
        assert any(span.lo_ns <= raw_ns <= span.hi_ns for span in spans)


def test_a_second_that_began_before_the_first_reading_is_not_known() -> None:
    history = heard(Wall((0, 1_700_000_000 * S + S // 2, 0.0)), 60 * S)
    assert history.raw_of(1_700_000_000 * S, S) == []
    assert history.raw_of(1_700_000_001 * S, S) != []
