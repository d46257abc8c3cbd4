"""Time to failure of jobs by their size."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from pipeline.core.fleet.job_size import failed_attempts, mttf_by_size, node_failure_rate
from pipeline.core.fleet.records import AttemptEnd, Failure, JobAttempt

MINUTE = 60_000_000_000
HOUR = 60 * MINUTE


def attempt(
    job_id: str, begin_hours: float, end_hours: float | None, end: AttemptEnd = "completed", gpus: int | None = 8
) -> JobAttempt:
    return JobAttempt(
        cluster="c",
        job_id=job_id,
        attempt=0,
        nodes=tuple(f"n{i}" for i in range(max(1, (gpus or 8) // 8))),
        gpus=gpus,
        from_ns=int(begin_hours * HOUR),
        to_ns=None if end_hours is None else int(end_hours * HOUR),
        end=end,
    )


def failure(at_hours: float, *job_ids: str, node: str = "") -> Failure:
    return Failure(
        cluster="c",
        incident_id=f"{at_hours}",
        at_ns=round(at_hours * HOUR),
        class_="gpu_fell_off_bus",
        category="infrastructure",
        component="gpu",
        node=node,
        job_ids=job_ids,
    )


def test_a_failure_that_names_the_job_explains_its_bad_end() -> None:
    attempts = [attempt("a", 0, 5, "failed"), attempt("b", 0, 5, "cancelled"), attempt("c", 0, 5, "failed")]
    assert failed_attempts(attempts, [failure(1, "a", "b")]) == {("c", "a", 0), ("c", "b", 0)}


def test_a_job_that_completed_was_not_ended_by_a_failure() -> None:
    attempts = [attempt("a", 0, 5), attempt("b", 0, 5, "preempted"), attempt("r", 0, None, "running")]
    assert failed_attempts(attempts, [failure(1, "a", "b", "r")]) == set()


def test_a_node_failure_counts_though_nobody_saw_it() -> None:
    assert failed_attempts([attempt("a", 0, 5, "node_failure")], []) == {("c", "a", 0)}


@pytest.mark.parametrize(("minutes", "counts"), [(-11, False), (-10, True), (0, True), (5, True), (6, False)])
def test_a_failure_of_a_node_explains_ends_shortly_after_it(minutes: int, counts: bool) -> None:
    seen = failure(5 + minutes / 60, node="n0")
    assert bool(failed_attempts([attempt("a", 0, 5, "failed")], [seen])) is counts
    assert not failed_attempts([attempt("a", 0, 5, "cancelled")], [seen])
    assert not failed_attempts([attempt("a", 0, 5, "failed")], [failure(5, node="n7")])


def test_a_failure_of_another_attempt_of_the_job_explains_nothing() -> None:
    assert not failed_attempts([attempt("a", 10, 15, "failed")], [failure(1, "a")])


def test_sizes_are_powers_of_two_from_one_node_and_the_unknown_come_last() -> None:
    sizes = [None, 1, 8, 9, 16, 17, 64, 65]
    attempts = [attempt(f"j{i}", 0, 1, gpus=gpus) for i, gpus in enumerate(sizes)]
    found = mttf_by_size(attempts, [], from_ns=0, to_ns=HOUR, per_node_day=None)
    assert [(one.gpus_from, one.gpus_to, one.jobs) for one in found] == [
        (1, 8, 2), (9, 16, 2), (17, 32, 1), (33, 64, 1), (65, 128, 1), (0, 0, 1),
    ]  # fmt: skip
    assert not any(one.is_misfit or one.predicted_hours for one in found)


def test_only_hours_in_the_window_count_and_only_ends_in_it() -> None:
    attempts = [attempt("a", 0, 30, "node_failure"), attempt("b", 20, None, "running"), attempt("d", 40, 50)]
    (found,) = mttf_by_size(attempts, [], from_ns=10 * HOUR, to_ns=25 * HOUR, per_node_day=0.01)
    assert (found.jobs, found.failures, found.busy_hours) == (2, 0, 20)
    assert found.mttf.value is None
    (later,) = mttf_by_size(attempts, [], from_ns=10 * HOUR, to_ns=35 * HOUR, per_node_day=0.01)
    assert (later.failures, later.busy_hours, later.mttf.value) == (1, 35, 35)
    assert later.predicted_hours == pytest.approx(2400)


def jobs_that_fail(per_node_day: dict[int, float], seed: int) -> list[JobAttempt]:
    """2,000 attempts of a day for each size, ended by the rates of their nodes."""
    dice = np.random.default_rng(seed)
    return [
        attempt(f"{gpus}-{i}", 0, min(24.0, hours), "node_failure" if hours < 24 else "completed", gpus)
        for gpus, r in per_node_day.items()
        for i, hours in enumerate(dice.exponential(24 / (r * gpus / 8), 2000))
    ]


def test_jobs_that_fail_by_their_nodes_fit_the_prediction() -> None:
    attempts = jobs_that_fail({8: 0.0065, 64: 0.0065, 1024: 0.0065}, 1)
    r = node_failure_rate(attempts, [], from_ns=0, to_ns=24 * HOUR)
    assert r.value == pytest.approx(0.0065, rel=0.1)
    found = mttf_by_size(attempts, [], from_ns=0, to_ns=24 * HOUR, per_node_day=0.0065)
    assert [one.is_misfit for one in found] == [False, False, False]
    assert [one.predicted_hours for one in found] == pytest.approx([24 / (n * 0.0065) for n in (1, 8, 128)])


def test_a_size_that_fails_sooner_than_its_nodes_is_a_misfit() -> None:
    """As jobs of 1,024 GPUs of RSC-1: 7.9 h were measured where 28.85 h would follow (arXiv 2410.21680)."""
    attempts = jobs_that_fail({64: 0.0065, 1024: 0.0065 * 28.85 / 7.9}, 2)
    found = mttf_by_size(attempts, [], from_ns=0, to_ns=24 * HOUR, per_node_day=0.0065)
    assert [one.is_misfit for one in found] == [False, True]
    assert found[1].mttf.value == pytest.approx(7.9, rel=0.1)
    assert found[1].predicted_hours == pytest.approx(28.85, rel=0.001)


def test_the_rate_of_nodes_is_that_of_large_jobs_only() -> None:
    attempts = [attempt("small", 0, 24, "node_failure", 128), attempt("large", 0, 24, "node_failure", 136)]
    found = node_failure_rate(attempts, [], from_ns=0, to_ns=24 * HOUR)
    assert (found.n, found.exposure) == (1, 17)
    assert node_failure_rate(attempts[:1], [], from_ns=0, to_ns=24 * HOUR).value is None


@given(
    st.lists(st.tuples(st.integers(0, 40), st.integers(0, 40), st.integers(1, 4096), st.booleans()), max_size=20),
    st.integers(0, 20),
    st.integers(1, 20),
)
def test_sizes_share_out_all_hours_and_failures(
    rows: list[tuple[int, int, int, bool]], begin: int, length: int
) -> None:
    attempts = [
        attempt(f"j{i}", min(a, b), max(a, b), "node_failure" if dead else "completed", gpus)
        for i, (a, b, gpus, dead) in enumerate(rows)
    ]
    end = begin + length
    found = mttf_by_size(attempts, [], from_ns=begin * HOUR, to_ns=end * HOUR, per_node_day=0.01)
    hours = sum(max(0, min(max(a, b), end) - max(min(a, b), begin)) for a, b, _, _ in rows)
    assert sum(one.busy_hours for one in found) == pytest.approx(hours)
    ended = sum(dead and a != b and begin < max(a, b) <= end and min(a, b) < end for a, b, _, dead in rows)
    assert sum(one.failures for one in found) == ended
