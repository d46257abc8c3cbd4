"""Confidence: from a rule's own estimate to how often such verdicts were right."""

from itertools import pairwise
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pipeline.core.calibration import MOST, Calibration, fitted, kind_of
from pipeline.diagnose import diagnose
from pipeline.drill.calibrate import Judged, as_toml, bins, error, fit
from pipeline.rules import load_rules
from schemas.records import Coverage
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


def _coverage(**seen: int) -> dict[str, Coverage]:
    return {kind: Coverage(expected=2, seen=number) for kind, number in seen.items()}


@pytest.mark.parametrize(
    ("class_", "coverage", "names_somebody", "kind"),
    [
        ("hardware/nvme", _coverage(application=2, kernel=1), True, "cause"),
        ("hardware/nvme", _coverage(application=2, kernel=0), True, "partial"),
        ("hardware/nvme", _coverage(application=0, kernel=2), True, "partial"),
        ("hardware/nvme", {}, True, "partial"),
        ("unknown/silent_rank", _coverage(application=2, kernel=0), True, "silent"),
        ("unknown/silent_rank", _coverage(application=2, kernel=2), False, "unknown"),
    ],
)
def test_a_cause_without_a_whole_kind_of_log_is_of_its_own_kind(
    class_: str, coverage: dict[str, Coverage], names_somebody: bool, kind: str
) -> None:
    assert kind_of(class_, coverage, names_somebody=names_somebody) == kind


def test_without_a_whole_kind_of_log_what_is_sure_else_is_less_sure() -> None:
    shipped = load_rules().calibration
    sure = {rule.confidence for rule in load_rules().rules if rule.confidence >= 0.75}

    assert all(shipped.of(one, "partial") < shipped.of(one, "cause") for one in sure)


def test_a_kill_of_which_only_the_kernel_tells_is_no_sure_cause(tmp_path: Path) -> None:
    kill = "2026-03-04T05:06:07.1+00:00 gx-02 kernel: Memory cgroup out of memory: Killed process 8812 (python3) "
    (tmp_path / "kern.log").write_text(f"{kill}total-vm:9kB, anon-rss:6kB, file-rss:0kB, shmem-rss:0kB, UID:0\n")
    (tmp_path / "other.log").write_text(
        "2026-03-04T05:06:07.1+00:00 gx-03 kernel: NVRM: Xid (PCI:0000:5e:00): 79, GPU has fallen off the bus.\n"
    )
    sure = {one.class_: one.confidence for one in diagnose([tmp_path]).incidents}

    assert sure["resource/cgroup_oom"] < 0.7
    assert sure["hardware/gpu_xid_79"] >= 0.9


def test_the_file_that_ships_was_made_and_rises() -> None:
    shipped = load_rules().calibration
    assert shipped.on == "simulated incidents"
    for points in (shipped.cause, shipped.partial, shipped.silent, shipped.unknown):
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


def test_fewer_logs_make_nothing_surer() -> None:
    calibration = Calibration(cause=[(0.5, 0.6), (0.9, 0.8)], partial=[(0.5, 0.4), (0.9, 0.95)])
    assert calibration.of(0.5, "partial") == 0.4
    assert calibration.of(0.9, "partial") == calibration.of(0.9, "cause") == 0.8
