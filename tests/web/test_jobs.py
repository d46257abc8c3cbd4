"""What the feed knows of a job: over its API, and the book that it keeps of verdicts."""

from collections.abc import Callable

import msgspec
import pytest
from starlette.testclient import TestClient

from pipeline.web.answers import JobView
from pipeline.web.app import create_app
from pipeline.web.feed import Feed
from pipeline.web.health import Health
from pipeline.web.jobs import JobBook
from schemas.records import Verdict
from tests.core.failed_jobs import failed, job

replace = msgspec.structs.replace


def verdict(
    name: str = "v", *, key: str = "red/4711/0", seq: int = 1, nodes: str = "a b", note: bool = False
) -> Verdict:
    incident = failed("scheduler/time_limit" if note else "software/cuda_oom")
    return Verdict(verdict_id=name, job_key=key, incident=incident, nodes=nodes.split(), seq=seq, as_of_unix_nano=1)


def view(feed: Feed, path: str, *, health: Health | None = None) -> JobView:
    state = health or Health(state="following")
    answer = TestClient(create_app(feed, lambda: state)).get(f"/api/jobs/{path}")
    assert answer.status_code == 200
    return msgspec.json.decode(answer.content, type=JobView)


def test_a_job_is_its_incidents_notes_and_nodes_over_all_attempts() -> None:
    feed = Feed()
    feed.apply(failed("software/cuda_oom", 1))
    feed.apply(failed("hardware/nvme", jobs=[job(job_id="12")]))
    feed.jobs.apply(verdict(note=True))
    feed.jobs.apply(verdict("w", key="red/4711/1", nodes="c"))

    seen = view(feed, "4711")

    assert [(one.cluster, one.attempt, one.nodes) for one in seen.attempts] == [
        ("red", 0, ["a", "b"]), ("red", 1, ["c"]),
    ]  # fmt: skip
    assert [incident.class_ for incident in seen.incidents] == ["software/cuda_oom"]
    assert [note.class_ for note in seen.notes] == ["scheduler/time_limit"]
    assert seen.following


def test_a_job_of_which_nothing_is_known_is_empty_and_no_error() -> None:
    seen = view(Feed(), "4711")

    assert (seen.attempts, seen.incidents, seen.notes) == ([], [], [])


def test_a_feed_that_is_behind_says_so() -> None:
    seen = view(Feed(), "4711", health=Health(state="unreachable", reason="Kafka is away"))

    assert (seen.following, seen.reason) == (False, "Kafka is away")


def test_a_job_id_may_hold_a_slash_and_anything_else() -> None:
    feed = Feed()
    feed.jobs.apply(verdict(key="red/team a/train#7?/0"))

    assert len(view(feed, "team%20a%2Ftrain%237%3F").attempts) == 1


def test_runs_and_clusters_are_kept_apart() -> None:
    feed = Feed()
    feed.apply(failed("software/cuda_oom", run="replay", run_id="r1"))
    feed.jobs.apply(verdict(key="replay:r1/red/4711/0"))
    feed.jobs.apply(verdict(key="blue/4711/0"))

    assert [one.cluster for one in view(feed, "4711").attempts] == ["blue"]
    assert [one.cluster for one in view(feed, "4711?run=replay").attempts] == ["red"]
    assert len(view(feed, "4711?run=replay").incidents) == 1
    assert len(view(feed, "4711?run=all").attempts) == 2
    assert view(feed, "4711?run=all&cluster=green").attempts == []
    assert view(feed, "4711").other_runs == {"replay": 1}
    assert view(feed, "4711?run=drill").other_runs == {"live": 1, "replay": 1}
    assert view(feed, "4711?run=all").other_runs == {}
    assert view(feed, "12").other_runs == {}


def test_a_run_that_does_not_exist_is_refused(healthy: Callable[[], Health]) -> None:
    assert TestClient(create_app(Feed(), healthy)).get("/api/jobs/1?run=dead").status_code == 400


# --- the book -----------------------------------------------------------------------------------------------------


def test_a_verdict_that_is_said_again_or_late_changes_nothing() -> None:
    book = JobBook()
    for one in (verdict(seq=5, nodes="a"), verdict(seq=5, nodes="x"), verdict(seq=4, nodes="y")):
        book.apply(one)

    (attempt,) = book.of_job("4711", "live", "")
    assert attempt.all_nodes() == ["a"]


def test_a_note_that_turns_out_a_fault_or_is_withdrawn_is_no_note() -> None:
    book = JobBook()
    book.apply(verdict("v", note=True))
    book.apply(verdict("w", note=True))
    book.apply(verdict("v", seq=2))
    book.apply(Verdict(verdict_id="w", job_key="red/4711/0", withdrawn=True, seq=2, as_of_unix_nano=1))

    (attempt,) = book.of_job("4711", "live", "")
    assert attempt.notes == {}


@pytest.mark.parametrize("key", ["node:red/n1/boot", "red", "red/7", "red//0", "red/7/x", ""])
def test_what_is_no_attempt_of_a_job_is_left_alone(key: str) -> None:
    book = JobBook()
    book.apply(verdict(key=key))

    assert not book.held


def test_the_attempts_heard_of_longest_ago_are_dropped() -> None:
    book = JobBook(keep_attempts=2)
    for seq, name in enumerate("1213", 1):
        book.apply(verdict(key=f"red/{name}/0", seq=seq))

    assert [len(list(book.of_job(name, "live", ""))) for name in "123"] == [1, 0, 1]
