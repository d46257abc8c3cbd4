"""Confidence: from a rule's own estimate to how often such verdicts were right."""

from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pipeline.core.calibration import MOST, Calibration, fitted
from pipeline.drill.calibrate import Judged, as_toml, bins, error, fit
from pipeline.rules import load_rules
from tests.core.concluding import concluded
from tests.strategies import lost_gpu, placed, waited

VERDICTS = st.lists(
    st.tuples(st.sampled_from([0.3, 0.45, 0.6, 0.75, 0.9, 0.95]), st.booleans()), min_size=1, max_size=80
)


@given(VERDICTS)
def test_what_is_fitted_rises_and_leaves_a_doubt(verdicts: list[tuple[float, bool]]) -> None:
    points = fitted(verdicts)
    assert all(x0 < x1 and y0 <= y1 for (x0, y0), (x1, y1) in pairwise(points))
    assert all(0 < y <= MOST for _, y in points)


@given(VERDICTS)
def test_the_order_of_the_verdicts_does_not_matter(verdicts: list[tuple[float, bool]]) -> None:
    assert fitted(verdicts) == fitted(verdicts[::-1])


def test_estimates_that_fall_are_pooled_and_few_verdicts_prove_little() -> None:
    lower = [(0.5, True)] * 8 + [(0.5, False)] * 2
    higher = [(0.9, True)] * 5 + [(0.9, False)] * 5
    assert fitted(lower) == [(0.5, 0.75)]
    assert fitted([*lower, *higher]) == [(0.5, round(14 / 22 - 0.02, 4)), (0.9, round(14 / 22 + 0.02, 4))]
    assert fitted([(0.2, True)]) == [(0.2, round(2 / 3, 4))]


@pytest.mark.parametrize(("estimate", "sure"), [(0.1, 0.6), (0.4, 0.6), (0.6, 0.7), (0.8, 0.8), (0.9, 0.9), (1.0, 0.9)])
def test_between_two_points_the_line_that_joins_them_counts(estimate: float, sure: float) -> None:
    calibration = Calibration(cause=[(0.4, 0.6), (0.8, 0.8), (0.9, 0.9)])
    assert calibration.of(estimate, "cause") == pytest.approx(sure)
    assert calibration.of(estimate, "unknown") == calibration.of(estimate, "silent") == estimate


def test_the_error_is_the_mean_distance_of_what_is_said_from_what_is_right() -> None:
    verdicts = [Judged(0.55, "cause", True)] * 3 + [Judged(0.55, "cause", False)] + [Judged(0.95, "silent", True)] * 4
    table = bins(verdicts, Calibration())
    assert [row.verdicts for row in table] == [4, 4]
    assert error(table) == pytest.approx((4 * 0.2 + 4 * 0.05) / 8)


def test_of_two_rivals_half_is_said_and_nothing_is_learnt() -> None:
    pair = Judged(0.9, "cause", False, rivals=2)
    assert pair.said(Calibration(cause=[(0.9, 0.98)])) == pytest.approx(0.49)
    assert fit([pair, *([Judged(0.9, "cause", True)] * 8)]).cause == [(0.9, 0.9)]


def test_the_file_that_ships_was_made_and_rises() -> None:
    shipped = load_rules().calibration
    assert shipped.on == "simulated incidents"
    for points in (shipped.cause, shipped.silent, shipped.unknown):
        assert points
        assert all(x0 < x1 and y0 <= y1 for (x0, y0), (x1, y1) in pairwise(points))
    assert 'on = "simulated incidents"' in as_toml(shipped)


def test_an_incident_says_what_its_confidence_was_measured_on() -> None:
    incident = concluded(
        placed(0, "alpha"), placed(1, "beta", bus="0000:5e:00.0"), lost_gpu("beta"), waited(0, "alpha")
    )
    rule = next(rule for rule in load_rules().rules if rule.class_ == incident.class_)
    assert incident.engine.calibrated_on == "simulated incidents"
    assert incident.confidence == pytest.approx(load_rules().calibration.of(rule.confidence, "cause"), abs=0.001)
