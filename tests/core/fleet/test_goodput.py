"""Time that trained; the figures of Kokolis et al. are in test_published.py."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pipeline.core.fleet.goodput import daly_young_s, expected_ettr, goodput, measured_ettr
from pipeline.core.fleet.records import JobAttempt

HOUR = 3_600_000_000_000


def attempt(number: int, begin: int, end: int | None, queued: int | None = 0) -> JobAttempt:
    return JobAttempt(
        cluster="c",
        job_id="7",
        attempt=number,
        nodes=("n1",),
        gpus=8,
        from_ns=begin * HOUR,
        to_ns=None if end is None else end * HOUR,
        queued_ns=None if queued is None else queued * HOUR,
    )


def test_ettr_counts_queueing_and_what_was_trained_twice() -> None:
    found = measured_ettr([attempt(0, 0, 6, 1), attempt(1, 7, None, 1)], unproductive_s=3600, until_ns=9 * HOUR)
    assert (found.scheduled_hours, found.queued_hours, found.unproductive_hours) == (8, 2, 1)
    assert found.value == 0.7
    assert (found.attempts, found.queue_unknown) == (2, 0)


def test_ettr_says_whose_queueing_is_unknown() -> None:
    found = measured_ettr([attempt(0, 0, 4, None)], unproductive_s=0, until_ns=9 * HOUR)
    assert (found.value, found.queue_unknown) == (1.0, 1)


def test_ettr_of_a_job_that_never_ran_is_unknown() -> None:
    assert measured_ettr([], unproductive_s=0, until_ns=HOUR).value is None
    assert measured_ettr([attempt(0, 5, None)], unproductive_s=0, until_ns=HOUR).attempts == 0
    assert measured_ettr([attempt(0, 0, 1)], unproductive_s=9_999, until_ns=HOUR).value == 0.0


def test_goodput_of_no_capacity_is_unknown() -> None:
    assert goodput(30, 40) == 0.75
    assert goodput(0, 0) is None


def test_a_job_that_loses_more_than_all_has_no_ettr() -> None:
    assert expected_ettr(nodes=1e5, per_node_day=0.01, interval_s=7200, restart_s=600) == 0.0
    with pytest.raises(ValueError, match="interval of 0 s"):
        expected_ettr(nodes=1, per_node_day=0.01, interval_s=0, restart_s=0)


def test_without_failures_there_is_no_best_interval() -> None:
    assert daly_young_s(60, 0) is None
    assert daly_young_s(50, 0.0001) == 1000


@given(st.floats(1, 60), st.floats(10, 3000), st.floats(0.001, 0.01), st.floats(0.3, 3))
def test_no_interval_beats_daly_and_young(write_s: float, nodes: float, per_node_day: float, by: float) -> None:
    """Of the expected ETTR with small losses; the formula is of first order, so a hundredth is left to it."""
    best = daly_young_s(write_s, nodes * per_node_day / 86_400)
    assert best is not None
    at_best, elsewhere = (
        expected_ettr(nodes=nodes, per_node_day=per_node_day, interval_s=one, restart_s=60, write_s=write_s)
        for one in (best, best * by)
    )
    assert elsewhere <= at_best + 0.01
