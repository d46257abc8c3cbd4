"""Attempts of jobs that more than one file tells."""

from typing import Any

from pipeline.core.fleet.attempts import distinct
from pipeline.core.fleet.records import JobAttempt


def attempt(from_ns: int, to_ns: int | None, *, source: str, number: int = 0, **more: Any) -> JobAttempt:
    return JobAttempt(
        cluster="c1", job_id="7", attempt=number, nodes=("n1",), gpus=8, from_ns=from_ns, to_ns=to_ns, source=source,
        **more,
    )  # fmt: skip


def test_an_attempt_that_two_files_tell_is_one_and_the_one_that_knows_its_end_counts() -> None:
    early, late = attempt(10, None, source="march"), attempt(10, 90, source="april", end="failed")
    assert distinct([late, early]) == ([late], [])


def test_attempts_of_one_number_that_began_apart_are_two_whoever_numbered_them() -> None:
    first, second = attempt(10, 20, source="monday"), attempt(30, 40, source="tuesday")
    assert distinct([second, first]) == ([first, second], [])


def test_a_file_that_tells_an_attempt_twice_is_a_defect() -> None:
    kept, defects = distinct([attempt(10, 20, source="march", row=2), attempt(10, 25, source="march", row=9)])
    assert ([one.row for one in kept], [(d.kind, d.row) for d in defects]) == ([9], [("duplicate_attempt", 2)])
