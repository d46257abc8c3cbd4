"""The polygon against a linear program, and against brute force over a grid."""

import numpy as np
import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st
from scipy.optimize import linprog

from pipeline.core.clocks.polygon import DRIFT_MAX, KAPPA, Hull, Point, bend, lower_hull, solve

SECOND = 1e9
Constraints = tuple[list[Point], list[Point], float]


@st.composite
def constraints(draw: st.DrawFn, apart_us: int = 300) -> Constraints:
    """Upper and lower bounds (t, offset) around some line, and a time to solve for."""

    def side(sign: int) -> list[Point]:
        times = draw(st.lists(st.integers(0, 250_000), min_size=1, max_size=30, unique=True))
        return [
            (ms * 1e6, drift * ms * 1e6 + sign * draw(st.integers(-apart_us // 3, apart_us)) * 1e3)
            for ms in sorted(times)
        ]

    drift = draw(st.floats(-9e-5, 9e-5))
    return side(1), side(-1), draw(st.integers(-20_000, 300_000)) * 1e6


def half_planes(upper: list[Point], lower: list[Point], now: float) -> tuple[list[list[float]], list[float]]:
    """The same as A x <= b over x = (offset in ns, drift in ns/s)."""
    rows, limits = [], []
    for sign, points in ((1, upper), (-1, lower)):
        for t, bound in points:
            rows.append([sign, sign * (t - now) / SECOND])
            limits.append(sign * bound + KAPPA / 2 * (t - now) ** 2)
    return rows, limits


def hulls(upper: list[Point], lower: list[Point]) -> tuple[Hull, Hull]:
    return lower_hull([(t, u + bend(t)) for t, u in upper]), lower_hull([(t, -low + bend(t)) for t, low in lower])


def slack(upper: list[Point], lower: list[Point], now: float) -> float:
    """By how much all constraints can be met at once (ns); negative: they contradict each other."""
    rows, limits = half_planes(upper, lower, now)
    rows = [[*row, 1.0] for row in rows]
    drift = (-DRIFT_MAX * SECOND, DRIFT_MAX * SECOND)
    return -float(linprog([0, 0, -1], rows, limits, bounds=[(None, None), drift, (None, None)]).fun)


@settings(max_examples=60, deadline=None, derandomize=True)
@given(constraints())
def test_it_is_empty_exactly_where_no_offset_and_drift_meet_all_constraints(given_: Constraints) -> None:
    upper, lower, now = given_
    room = slack(upper, lower, now)
    assume(abs(room) > 1)
    assert (solve(*hulls(upper, lower), now) is None) == (room < 0)


@settings(max_examples=60, deadline=None, derandomize=True)
@given(constraints(), st.integers(-100, 400))
def test_its_bounds_at_any_time_are_those_of_a_linear_program(given_: Constraints, tau_s: int) -> None:
    upper, lower, now = given_
    assume(slack(upper, lower, now) > 1)
    rows, limits = half_planes(upper, lower, now)
    drift = (-DRIFT_MAX * SECOND, DRIFT_MAX * SECOND)
    ends = [
        sign * float(linprog([sign, sign * tau_s], rows, limits, bounds=[(None, None), drift]).fun) for sign in (1, -1)
    ]
    found = solve(*hulls(upper, lower), now)
    assert found is not None
    tau = tau_s * SECOND
    assert found.bounds(tau) == pytest.approx((ends[0] - bend(tau), ends[1] + bend(tau)), abs=5)


@settings(max_examples=40, deadline=None, derandomize=True)
@given(constraints(apart_us=2000))
def test_its_centroid_is_that_of_a_fine_grid(given_: Constraints) -> None:
    upper, lower, now = given_
    found = solve(*hulls(upper, lower), now)
    assume(found is not None and found.top[-1][1] - found.top[0][1] > 1e-9)
    assert found is not None
    rows, limits = (np.array(values) for values in half_planes(upper, lower, now))
    drifts = np.linspace(found.top[0][1], found.top[-1][1], 4001) * SECOND
    room = limits[:, None] - rows[:, 1:] * drifts
    high = np.where(rows[:, :1] > 0, room, np.inf).min(axis=0)
    low = np.where(rows[:, :1] < 0, -room, -np.inf).max(axis=0)
    gap = np.maximum(high - low, 0)
    assume(gap.max() > 1)
    # A grid is off by a share of what it spans: of the middle, which leans with the drift, too.
    middle = (high + low) / 2
    off = max(20.0, gap.max() / 500, np.ptp(middle) / 2000)
    assert found.a == pytest.approx(float((gap * middle).sum() / gap.sum()), abs=off)
    assert found.b * SECOND == pytest.approx(float((gap * drifts).sum() / gap.sum()), abs=np.ptp(drifts) / 500 + 1e-6)


@settings(max_examples=40, deadline=None, derandomize=True)
@given(constraints(), st.integers(0, 400))
def test_moving_its_time_changes_no_hull(given_: Constraints, later_s: int) -> None:
    """Solved for a later time from old hulls, it is what hulls around that time give."""
    upper, lower, now = given_
    shift = now + later_s * SECOND
    moved = [[(t - shift, bound) for t, bound in side] for side in (upper, lower)]
    kept, anew = solve(*hulls(upper, lower), shift), solve(*hulls(*moved), 0.0)
    assume(kept is not None and anew is not None)
    assert kept is not None
    assert anew is not None
    assert kept.bounds(0) == pytest.approx(anew.bounds(0), abs=2)


def test_one_sample_leaves_every_drift() -> None:
    found = solve(lower_hull([(0.0, 1000.0)]), lower_hull([(500.0, 1000.0 + bend(500.0))]), 500.0)
    assert found is not None
    assert (found.top[0][1], found.top[-1][1]) == (-DRIFT_MAX, DRIFT_MAX)
    assert found.bounds(0) == pytest.approx((-1000, 1000), abs=0.1)


def test_bounds_that_meet_in_one_point_leave_that_point() -> None:
    found = solve(lower_hull([(0.0, 5.0)]), lower_hull([(0.0, -5.0)]), 0.0)
    assert found is not None
    assert found.a == pytest.approx(5.0)
