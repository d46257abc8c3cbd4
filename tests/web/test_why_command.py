"""`rootrank why JOB`: what feed and store know of any attempt, and what neither knows."""

import asyncio
import json
import socket
from collections.abc import Callable, Iterator
from contextlib import AbstractAsyncContextManager

import msgspec
import pytest
import typer
from typer.testing import CliRunner

from pipeline.commands.why import why
from pipeline.embedded.clickhouse import ClickHouseServer
from pipeline.report.why_text import why_lines
from pipeline.store import migrations
from pipeline.store.clickhouse import Store
from pipeline.store.history import JobHistory
from pipeline.web.answers import AttemptNodes, JobView
from pipeline.web.feed import Feed
from pipeline.why import known_of
from schemas.records import Verdict
from tests.core.failed_jobs import failed
from tests.store import seed
from tests.store.conftest import new_database, put, url_of

replace = msgspec.structs.replace
Serve = Callable[..., AbstractAsyncContextManager[str]]

app = typer.Typer()
app.command()(why)


@pytest.fixture(scope="module")
def store(clickhouse_server: ClickHouseServer) -> Iterator[Store]:
    """job7 failed and has an incident; job8 got to step 20 and finished; both ran on n1."""
    step = replace(
        seed.event(20), event_id="step", name="train.step", label="context/progress", role="context", severity="info",
        body="step 20 loss 2.1",
    )  # fmt: skip
    end = replace(step, event_id="end", name="train.end", label="context/lifecycle", body="training finished")
    with new_database(clickhouse_server.url) as found:
        migrations.apply(found, migrations.load_migrations())
        put(
            found, seed.batch(), seed.progress(), seed.event_batch([seed.event(1)]), seed.incident(),
            seed.event_batch([step, end], job_id="job8", job_key="c1/job8/0"),
        )  # fmt: skip
        yield found


@pytest.fixture
def nobody() -> Iterator[str]:
    """An address where nobody can answer."""
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        yield f"http://127.0.0.1:{taken.getsockname()[1]}"


async def ask(job: str, *words: str, feed: str, store: str) -> tuple[int, str, str]:
    options = ["--url", feed, "--clickhouse-url", store, "--wait-s", "60"]
    result = await asyncio.to_thread(CliRunner().invoke, app, [job, *options, *words])
    return result.exit_code, result.stdout, result.stderr


@pytest.mark.clickhouse
async def test_a_job_with_an_incident_is_told_from_both(serve: Serve, store: Store) -> None:
    feed = Feed()
    feed.apply(seed.incident(2, class_="hardware/nvme"))
    async with serve(feed) as url:
        code, out, _ = await ask("job7", feed=url, store=url_of(store.settings))

    assert code == 1
    assert "attempt 0  cluster c1" in out
    assert "nodes     1: n1" in out
    assert "2026-03-01 10:00:01.000 to 2026-03-01 10:00:01.000 UTC, 2 lines that mean something, 2 errors" in out
    assert "incident  Local NVMe disk lost (Xid 79): node n1 · GPU 2 · rank 3  95 % sure" in out
    assert "Do now: Drain n1." in out
    assert "watched   kernel on 1 of 1 nodes; read through 2026-03-01 10:00:00.000 UTC" in out
    assert "not known how far it got" in out
    assert "gpu_xid_79" not in out  # the store's older revision of the same incident


@pytest.mark.clickhouse
async def test_a_job_that_ended_without_an_incident_is_told_too(serve: Serve, store: Store) -> None:
    async with serve(Feed()) as url:
        code, out, _ = await ask("job8", feed=url, store=url_of(store.settings))

    assert code == 0
    assert "got to    2026-03-01 10:00:20.000 UTC  rank 3 on n1: step 20 loss 2.1  (kern.log:21)" in out
    assert "ended     2026-03-01 10:00:20.000 UTC  rank 3 on n1: training finished" in out
    assert "incident  none\n" in out
    assert "not known" not in out


@pytest.mark.clickhouse
async def test_a_job_that_nobody_knows_is_said_to_be_unknown(serve: Serve, store: Store) -> None:
    async with serve(Feed()) as url:
        code, out, _ = await ask("job9", feed=url, store=url_of(store.settings))

    assert code == 0
    assert "job job9\nnot known\n  - anything of job job9: no line that was read belongs to it." in out
    assert "not shown" not in out


@pytest.mark.clickhouse
async def test_a_job_that_only_other_runs_know_is_said_to_be_there(serve: Serve, store: Store, nobody: str) -> None:
    feed = Feed()
    feed.apply(seed.incident(run="replay"))
    async with serve(feed) as url:
        code, out, _ = await ask("job7", "--run", "drill", feed=url, store=f"{nobody}/x")
        _, from_store, _ = await ask("job7", "--run", "drill", feed=nobody, store=url_of(store.settings))

    assert code == 0
    assert "anything of job job7 in the run asked for: 1 attempt of run replay, not shown: add --run replay" in out
    assert "1 attempt of run live, not shown: add --run live" in from_store


@pytest.mark.clickhouse
async def test_lines_that_were_old_at_first_sight_are_counted_and_explained(serve: Serve, store: Store) -> None:
    old = replace(seed.event(31), event_id="old", alerts=False)
    missed = replace(seed.near_miss(), alerts=False)
    put(store, seed.event_batch([old, missed], job_id="job6", job_key="c1/job6/0"))
    async with serve(Feed()) as url:
        code, out, _ = await ask("job6", feed=url, store=url_of(store.settings))

    assert code == 0
    assert "old       2 lines are older than 15 minutes at first sight: recorded, no incident is made of them" in out
    assert "`rootrank diagnose` on the files" in out
    assert "looks like a failure" not in out


@pytest.mark.clickhouse
async def test_json_holds_the_same(serve: Serve, store: Store) -> None:
    async with serve(Feed()) as url:
        code, out, _ = await ask("job7", "--json", feed=url, store=url_of(store.settings))

    (attempt,) = json.loads(out)["attempts"]
    assert code == 1
    assert attempt["incidents"][0]["class"] == "hardware/gpu_xid_79"
    assert attempt["errors"][0] == {
        "at": "2026-03-01T10:00:01.000000Z", "node": "n1", "rank": 3, "name": "gpu.xid", "source": "kern.log",
        "line_no": 2, "text": seed.event(1).body,
    }  # fmt: skip
    assert attempt["coverage"][0]["kinds"] == ["kernel"]


async def test_without_the_store_the_feed_answers_and_says_what_is_missing(serve: Serve, nobody: str) -> None:
    feed = Feed()
    note = Verdict(verdict_id="v", job_key="c1/job7/1", incident=failed("scheduler/time_limit"), nodes=["n1"], seq=1)
    feed.jobs.apply(note)
    async with serve(feed) as url:
        code, out, _ = await ask("job7", feed=url, store=f"{nobody}/x")

    assert code == 0
    assert "attempt 1  cluster c1" in out
    assert "what the store keeps, progress, endings and which logs were read: ClickHouse at" in out


@pytest.mark.clickhouse
async def test_without_the_feed_the_store_answers_and_says_what_is_missing(store: Store, nobody: str) -> None:
    code, out, _ = await ask("job7", feed=nobody, store=url_of(store.settings))

    assert code == 1
    assert "incident  GPU fell off the bus (Xid 79)" in out
    assert f"no feed answers at {nobody}" in out


async def test_without_either_it_is_exit_code_3_and_says_what_to_do(nobody: str) -> None:
    code, out, err = await ask("job7", feed=nobody, store=f"{nobody}/x")

    assert code == 3
    assert "no feed answers" in out
    assert "rootrank up" in err


async def test_a_run_that_does_not_exist_is_a_usage_error(serve: Serve, nobody: str) -> None:
    async with serve(Feed()) as url:
        code, _, err = await ask("job7", "--run", "dead", feed=url, store=f"{nobody}/x")

    assert code == 2
    assert "use one of live" in err


async def test_log_text_cannot_steer_the_terminal(serve: Serve, nobody: str) -> None:
    feed = Feed()
    feed.apply(failed("software/cuda_oom", explanation="\x1b[2Jgone\u202e\nforged", cluster="a\nb"))
    async with serve(feed) as url:
        _, out, _ = await ask("4711", feed=url, store=f"{nobody}/x")

    assert "\\x1b[2Jgone\\u202e\\nforged" in out
    assert not any(bad in out for bad in ("\x1b", "\u202e", "a\nb"))


def test_a_node_that_two_replays_read_is_counted_once() -> None:
    row = {
        "cluster": "red", "node": "n1", "attempts": [0], "kinds_read": ["kernel"], "refused": [],
        "read_through": "2026-03-01 10:00:00.000000000", "reported_at": "2026-03-01 10:00:01.000",
    }  # fmt: skip
    newer = {**row, "reported_at": "2026-03-01 11:00:01.000", "read_through": "2026-03-01 10:30:00.000000000"}
    view = JobView(
        job_id="1", attempts=[AttemptNodes(cluster="red", attempt=0, nodes=["n1"])], incidents=[], notes=[],
        following=True, reason="",
    )  # fmt: skip

    lines = list(why_lines(known_of("1", view, JobHistory(nodes=[newer, row]), [])))

    assert "  watched   kernel on 1 of 1 nodes; read through 2026-03-01 10:30:00.000 UTC" in lines


def test_a_note_is_told_with_its_line() -> None:
    note = failed("scheduler/time_limit", explanation="Out of time.", text="DUE TO TIME LIMIT")
    view = JobView(job_id="4711", attempts=[], incidents=[], notes=[note], following=True, reason="")

    lines = list(why_lines(known_of("4711", view, JobHistory(), [])))

    assert "  note      Time limit of the job reached: Out of time." in lines
    assert "            DUE TO TIME LIMIT" in lines
