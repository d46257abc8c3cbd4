from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pipeline.report.axis import Axis, Moment, axis_of

MS, SECOND = 1_000_000, 1_000_000_000
LEFT, RIGHT = 100.0, 800.0


def placed(*moments: tuple[int | None, int]) -> Axis:
    return axis_of([Moment(key=str(n), at_ns=at, error_ns=error) for n, (at, error) in enumerate(moments)], LEFT, RIGHT)


moments = st.lists(
    st.tuples(st.one_of(st.none(), st.integers(1, 10**15)), st.sampled_from([0, 1, MS, 5 * SECOND, 10**14])),
    max_size=30,
)


@given(moments)
def test_every_moment_has_a_column_of_its_own_within_the_axis(told: list[tuple[int | None, int]]) -> None:
    columns = sorted(placed(*told).columns.values())

    assert len(columns) == len(told)
    assert all(LEFT <= x <= RIGHT for x in columns)
    assert all(one < other for one, other in pairwise(columns))


@given(moments)
def test_columns_stand_in_the_order_of_time(told: list[tuple[int | None, int]]) -> None:
    axis = placed(*told)
    timed = sorted((axis.columns[str(n)], at) for n, (at, _) in enumerate(told) if at is not None)

    assert [at for _, at in timed] == sorted(at for _, at in timed)


@given(moments)
def test_bounds_that_are_apart_are_drawn_apart(told: list[tuple[int | None, int]]) -> None:
    axis = placed(*told)
    bounds = [(at - error, at + error) for at, error in told if at is not None]

    for low, high in bounds:
        assert axis.left <= axis.low(low) <= axis.high(high) <= axis.right
        for other_low, _ in bounds:
            if high < other_low:
                assert axis.high(high) <= axis.low(other_low)


def test_a_longer_wait_has_more_room_but_never_all_of_it() -> None:
    axis = placed((0, 0), (4 * MS, 0), (4 * MS + SECOND, 0), (600 * SECOND, 0))
    widths = [gap.right - gap.left for gap in axis.gaps]

    assert widths == sorted(widths)
    assert widths[0] > 40
    assert widths[2] < 6 * widths[0]


def test_only_what_is_drawn_far_too_short_is_cut() -> None:
    assert [gap.cut for gap in placed((0, 0), (2 * MS, 0), (5 * MS, 0), (600 * SECOND, 0)).gaps] == [False, False, True]
    assert [gap.cut for gap in placed((0, 0), (SECOND, 0), (3 * SECOND, 0)).gaps] == [False, False]


def test_a_moment_without_a_time_stands_behind_the_one_told_before_it() -> None:
    axis = placed((9 * SECOND, 0), (None, 0), (2 * SECOND, 0), (None, 0))

    assert sorted(axis.columns, key=axis.columns.__getitem__) == ["2", "3", "0", "1"]


def test_columns_of_one_time_are_one_moment_with_bounds_around_all_of_them() -> None:
    axis = placed((SECOND, 0), (SECOND, 0), (2 * SECOND, 0))

    assert axis.low(SECOND) == axis.columns["0"]
    assert axis.high(SECOND) == axis.columns["1"]
    assert [gap.ns for gap in axis.gaps] == [0, SECOND]


@pytest.mark.parametrize("told", [[], [(None, 0)], [(None, 0), (None, 0)]])
def test_without_a_clock_there_is_an_axis_without_times(told: list[tuple[int | None, int]]) -> None:
    axis = placed(*told)

    assert axis.times == []
    assert axis.gaps == []
