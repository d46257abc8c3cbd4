"""`rootrank verdict JOB` against a real feed server: waiting, the deadline, and whatever may be away."""

import asyncio
import contextlib
import json
import os
import socket
import subprocess
import sys
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import AbstractAsyncContextManager
from pathlib import Path
from typing import Any

import pytest
import typer
from typer.testing import CliRunner

from pipeline.commands.verdict import verdict
from pipeline.web.feed import Feed
from schemas.records import Incident, Verdict
from tests.core.failed_jobs import CLUSTER, JOB, culprit, failed, job

Serve = Callable[..., AbstractAsyncContextManager[str]]
Eventually = Callable[[Callable[[], bool]], Awaitable[None]]
ROOT = Path(__file__).parents[2]
# Long enough for whoever waits for it on a busy machine; a test that ends early never sees it.
LONG_S = "120"

app = typer.Typer()
app.command()(verdict)


async def ask(*words: str, job_id: str = JOB) -> tuple[int, str, str]:
    """Run the command beside the server, which lives in this loop."""
    clean = {"CLICKHOUSE_URL": "", "ROOTRANK_URL": "http://127.0.0.1:1"}
    result = await asyncio.to_thread(CliRunner().invoke, app, [f"job:{job_id}", *words], env=clean)
    return result.exit_code, result.stdout, result.stderr


async def answer(*words: str, job_id: str = JOB) -> dict[str, Any]:
    code, out, _ = await ask(*words, job_id=job_id)
    assert code == 0
    found: dict[str, Any] = json.loads(out)
    return found


class Counting(Feed):
    """A feed that counts how often it was asked for a job."""

    asked = 0

    def of_job(self, job_id: str, run: str, cluster: str) -> list[Incident]:
        self.asked += 1
        return super().of_job(job_id, run, cluster)


def with_nodes(*names: str, attempt: int = 0, incident: Incident | None = None) -> Counting:
    """A feed that knows the nodes of the job."""
    feed = Counting()
    told = Verdict(
        verdict_id="v", job_key=f"{CLUSTER}/{JOB}/{attempt}", incident=incident or failed("software/cuda_oom", attempt),
        nodes=list(names), seq=1, as_of_unix_nano=1,
    )  # fmt: skip
    feed.jobs.apply(told)
    return feed


async def test_a_settled_fault_of_a_node_of_the_job_is_a_restart_without_it(serve: Serve) -> None:
    feed = with_nodes("gpu06", "gpu07")
    feed.apply(failed("hardware/gpu_xid_79", ended_at=None, run="live"))
    async with serve(feed) as url:
        said = await answer("--url", url, "--wait-s", LONG_S)

    (node,) = said["nodes"]
    assert said.items() >= {
        "answer": "restart_excluding", "job": JOB, "attempt": 0, "cluster": CLUSTER, "class": "hardware/gpu_xid_79",
        "confidence": 0.95, "verdict": "settled", "refused": [],
    }.items()  # fmt: skip
    assert node["node"] == "gpu07"
    assert node["expires_at"] > said["as_of"]


async def test_a_provisional_verdict_is_waited_for_until_it_settles(serve: Serve, eventually: Eventually) -> None:
    feed = with_nodes("gpu07")
    feed.apply(failed("unknown/silent_rank", verdict="provisional", revision=1))
    async with serve(feed) as url:
        asking = asyncio.create_task(answer("--url", url, "--wait-s", LONG_S))
        await eventually(lambda: feed.asked >= 2)
        assert not asking.done()
        feed.apply(failed("hardware/gpu_xid_79", ended_at=None, revision=2))
        said = await asking

    assert (said["answer"], said["verdict"]) == ("restart_excluding", "settled")


async def test_a_job_of_which_nothing_is_known_yet_is_waited_for(serve: Serve, eventually: Eventually) -> None:
    feed = Counting()
    async with serve(feed) as url:
        asking = asyncio.create_task(answer("--url", url, "--wait-s", LONG_S))
        await eventually(lambda: feed.asked >= 2)
        feed.apply(failed("storage/nfs_unresponsive"))
        said = await asking

    assert said["answer"] == "restart"


async def test_an_attempt_is_waited_for_although_the_one_before_is_settled(
    serve: Serve, eventually: Eventually
) -> None:
    feed = Counting()
    feed.apply(failed("software/cuda_oom", 0))
    async with serve(feed) as url:
        asking = asyncio.create_task(answer("--url", url, "--attempt", "1", "--wait-s", LONG_S))
        await eventually(lambda: feed.asked >= 2)
        assert not asking.done()
        feed.apply(failed("software/cuda_oom", 1))
        said = await asking

    assert (said["answer"], said["attempt"]) == ("do_not_restart", 1)


async def test_at_the_deadline_the_answer_is_what_is_known_by_then(serve: Serve) -> None:
    feed = with_nodes("gpu07")
    feed.apply(failed("hardware/gpu_xid_79", ended_at=None, verdict="provisional"))
    async with serve(feed) as url:
        said = await answer("--url", url, "--wait-s", "1")

    assert (said["answer"], said["verdict"]) == ("restart_excluding", "provisional")
    assert "more lines may still come" in said["reason"]
    assert "did not answer" not in said["reason"]


async def test_an_ending_by_the_scheduler_is_known_from_its_note(serve: Serve) -> None:
    async with serve(with_nodes("gpu07", incident=failed("scheduler/preempted"))) as url:
        said = await answer("--url", url, "--wait-s", LONG_S)

    assert (said["answer"], said["class"]) == ("restart", "scheduler/preempted")


async def test_without_a_list_of_nodes_none_is_left_out_and_a_given_list_is_one(serve: Serve) -> None:
    feed = Feed()
    feed.apply(failed("hardware/gpu_xid_79", ended_at=None))
    async with serve(feed) as url:
        without = await answer("--url", url)
        listed = await answer("--url", url, "--nodes", "gpu[01-09]")
        elsewhere = await answer("--url", url, "--nodes", "cpu[01-09]")
        nonsense = await answer("--url", url, "--nodes", "gpu[01-")

    assert [said["answer"] for said in (without, listed, elsewhere, nonsense)] == [
        "undecided", "restart_excluding", "undecided", "undecided",
    ]  # fmt: skip
    assert "give --nodes" in without["reason"]
    assert "--nodes is no host list" in nonsense["reason"]


async def test_a_job_id_in_two_clusters_is_undecided_until_one_is_named(serve: Serve) -> None:
    feed = Feed()
    for cluster in ("red", "blue"):
        feed.apply(failed("storage/fs_hang", cluster=cluster, incident_id=cluster))
    async with serve(feed) as url:
        both = await answer("--url", url, "--wait-s", "1")
        one = await answer("--url", url, "--cluster", "blue")

    assert (both["answer"], one["answer"], one["cluster"]) == ("undecided", "restart", "blue")
    assert "blue, red" in both["reason"]


async def test_an_earlier_job_is_asked_for_too(serve: Serve) -> None:
    feed = with_nodes("gpu07")
    feed.apply(failed("hardware/gpu_xid_79", jobs=[job(job_id="4700")], ended_at=None))
    feed.apply(failed("storage/fs_hang"))
    async with serve(feed) as url:
        said = await answer("--url", url, "--earlier", "4700")

    assert [one["node"] for one in said["nodes"]] == ["gpu07"]


@pytest.mark.parametrize(("run", "said"), [("live", "undecided"), ("replay", "restart"), ("drill", "undecided")])
async def test_a_replay_is_only_answered_from_when_asked_and_a_drill_never(serve: Serve, run: str, said: str) -> None:
    feed = Feed()
    feed.apply(failed("storage/fs_hang", run="replay", run_id="r"))
    feed.apply(failed("storage/fs_hang", run="drill", run_id="d", synthetic=True))
    async with serve(feed) as url:
        assert (await answer("--url", url, "--run", run, "--wait-s", "1"))["answer"] == said


# --- forms --------------------------------------------------------------------------------------------------------


async def test_slurm_gets_a_host_list_and_the_answer_as_a_comment_on_standard_error(serve: Serve) -> None:
    feed = with_nodes("gpu07", "gpu11", "gpu12")
    found = [culprit("gpu07"), culprit("gpu11")]
    feed.apply(failed("hardware/gpu_ecc_uncorrectable", ended_at=None, culprits=found))
    async with serve(feed) as url:
        code, out, err = await ask("--url", url, "--format", "slurm-exclude")

    assert (code, out) == (0, "gpu[07,11]\n")
    assert err.startswith("# restart_excluding: hardware/gpu_ecc_uncorrectable")


async def test_slurm_gets_an_empty_line_where_nothing_is_to_be_left_out(serve: Serve) -> None:
    feed = Feed()
    feed.apply(failed("storage/fs_hang"))
    async with serve(feed) as url:
        code, out, err = await ask("--url", url, "--format", "slurm-exclude")

    assert (code, out) == (0, "\n")
    assert err.startswith("# restart: ")


async def test_kubernetes_gets_an_affinity_without_names_that_it_cannot_have(serve: Serve) -> None:
    feed = with_nodes("gpu07", "GPU_8")
    found = [culprit("gpu07"), culprit("GPU_8")]
    feed.apply(failed("hardware/gpu_ecc_uncorrectable", ended_at=None, culprits=found))
    async with serve(feed) as url:
        code, out, err = await ask("--url", url, "--format", "k8s-affinity")

    terms = json.loads(out)["nodeAffinity"]["requiredDuringSchedulingIgnoredDuringExecution"]["nodeSelectorTerms"]
    assert code == 0
    assert terms[0]["matchExpressions"][0]["values"] == ["gpu07"]
    assert "not left out: GPU_8" in err


HOSTILE = ["$(touch /tmp/x)", "gpu07;id", "gpu07 --uid=0", "gpu07\nrm", "`id`", "--wrap=id", "\u202egpu07", "g'\"7"]


@pytest.mark.parametrize("form", ["json", "slurm-exclude", "k8s-affinity"])
async def test_a_name_made_up_in_a_log_reaches_no_shell(serve: Serve, form: str) -> None:
    feed = with_nodes("gpu07", *HOSTILE)
    feed.apply(failed("hardware/nvme", ended_at=None, culprits=[culprit(name) for name in HOSTILE]))
    async with serve(feed) as url:
        code, out, err = await ask("--url", url, "--format", form)

    assert code == 0
    if form == "json":
        assert json.loads(out)["nodes"] == []
        assert {one["name"] for one in json.loads(out)["refused"]} == set(HOSTILE)
    else:
        assert out == {"slurm-exclude": "\n", "k8s-affinity": "{}\n"}[form]
    assert "not the name of a node" in err
    assert "\u202e" not in err
    assert len(err.splitlines()) == (len(HOSTILE) if form == "json" else 1)


# --- away ---------------------------------------------------------------------------------------------------------


async def test_a_feed_that_is_not_there_is_undecided_with_exit_code_0() -> None:
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))  # bound, never listening: nobody can answer here
        said = await answer("--url", f"http://127.0.0.1:{taken.getsockname()[1]}", "--wait-s", "1")

    assert said["answer"] == "undecided"
    assert "no feed answers" in said["reason"]


async def test_a_feed_that_comes_back_within_the_time_is_asked_again(serve: Serve, eventually: Eventually) -> None:
    feed = Feed()
    feed.apply(failed("storage/fs_hang"))
    async with speaking(b"") as (url, heard):
        asking = asyncio.create_task(answer("--url", url, "--wait-s", LONG_S))
        await eventually(lambda: len(heard) >= 2)
    async with serve(feed, port=int(url.rpartition(":")[2])):
        said = await asking

    assert said["answer"] == "restart"
    assert "no feed answers" not in said["reason"]


@contextlib.asynccontextmanager
async def speaking(answer: bytes | None) -> AsyncIterator[tuple[str, list[bytes]]]:
    """A server that gives every request the same answer, or none at all (None); and what it was asked."""
    heard: list[bytes] = []
    open_ones: set[asyncio.Task[None]] = set()

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        task = asyncio.current_task()
        assert task is not None
        open_ones.add(task)
        heard.append(await reader.read(65_536))
        if answer is None:
            await reader.read()
        writer.write(answer or b"")
        writer.close()
        with contextlib.suppress(OSError):
            await writer.wait_closed()

    server = await asyncio.start_server(serve, "127.0.0.1", 0)
    async with server:
        yield f"http://127.0.0.1:{server.sockets[0].getsockname()[1]}", heard
        await asyncio.gather(*open_ones)


async def test_a_feed_that_never_answers_holds_nobody_up() -> None:
    async with speaking(None) as (url, _):
        process = await asyncio.create_subprocess_exec(
            sys.executable, "-m", "pipeline", "verdict", f"job:{JOB}", "--url", url, "--wait-s", "1",
            stdout=subprocess.PIPE, cwd=ROOT, env={**os.environ, "PYTHONPATH": str(ROOT), "CLICKHOUSE_URL": url},
        )  # fmt: skip
        async with asyncio.timeout(60):
            out, _ = await process.communicate()

    said = json.loads(out)
    assert (process.returncode, said["answer"]) == (0, "undecided")
    assert "did not answer in time" in said["reason"]


async def test_something_else_than_a_feed_is_undecided() -> None:
    async with speaking(b"HTTP/1.1 200 OK\r\nContent-Length: 5\r\n\r\nhello") as (url, _):
        assert (await answer("--url", url, "--wait-s", "1"))["answer"] == "undecided"


@pytest.mark.parametrize(
    "words", [["--url", "nonsense"], ["--run", "dead"], ["--clickhouse-url", "nonsense"], ["--nodes", "[[["]]
)
async def test_a_wrong_value_is_undecided_and_says_so(serve: Serve, words: list[str]) -> None:
    async with serve(Feed()) as url:
        said = await answer("--url", url, *words, "--wait-s", "1")

    assert said["answer"] == "undecided"
    assert len(said["reason"]) > len(f"nothing is known of job {JOB}")


async def test_no_job_at_all_is_undecided() -> None:
    said = await answer(job_id="")

    assert said["answer"] == "undecided"
    assert "no job is named" in said["reason"]


async def test_an_option_that_does_not_exist_is_a_usage_error() -> None:
    assert (await ask("--format", "pbs"))[0] == 2


def test_the_command_needs_nothing_but_the_plain_installation() -> None:
    code = "import sys, pipeline.commands.verdict, pipeline.commands.why; print(*sys.modules)"
    loaded = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, cwd=ROOT, check=True)

    assert not {"starlette", "uvicorn", "aiokafka", "clickhouse_connect", "faust"} & set(loaded.stdout.split())


async def test_a_job_that_only_another_run_knows_is_said_to_be_there(serve: Serve) -> None:
    feed = Feed()
    feed.apply(failed("software/cuda_oom", run="replay", run_id="r1"))
    async with serve(feed) as url:
        said = await answer("--url", url, "--wait-s", "1")
        replayed = await answer("--url", url, "--wait-s", "1", "--run", "replay")

    assert said["answer"] == "undecided"
    assert said["reason"] == f"nothing is known of job {JOB}; 1 attempt of run replay, not shown: add --run replay"
    assert "not shown" not in replayed["reason"]
