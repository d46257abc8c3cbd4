import asyncio
import json
import os
import socket
import sys
from collections.abc import Awaitable, Callable
from contextlib import AbstractAsyncContextManager
from pathlib import Path

import msgspec
import pytest
import typer
from typer.testing import CliRunner

from pipeline.incidents import incidents
from pipeline.web.feed import Feed
from schemas.records import Incident

replace = msgspec.structs.replace
Serve = Callable[..., AbstractAsyncContextManager[str]]
Eventually = Callable[[Callable[[], bool]], Awaitable[None]]
ROOT = Path(__file__).parents[2]
COMMAND = "import typer; from pipeline.incidents import incidents; typer.run(incidents)"

app = typer.Typer()
app.command()(incidents)


async def ask(*arguments: str) -> tuple[int, str, str]:
    """Run the command beside the server, which lives in this loop."""
    result = await asyncio.to_thread(CliRunner().invoke, app, list(arguments), env={"COLUMNS": "80", "NO_COLOR": "1"})
    return result.exit_code, result.stdout, result.stderr


async def test_a_table_fits_eighty_columns_and_names_the_culprit(serve: Serve, fell_off: Incident) -> None:
    feed = Feed()
    feed.apply(fell_off)
    async with serve(feed) as url:
        code, out, _ = await ask("--url", url)

    assert code == 0
    assert "aur-g017" in out
    assert "CRITICAL" in out
    assert max(len(line) for line in out.splitlines()) <= 80
    assert "\x1b" not in out


async def test_json_is_the_answer_of_the_api(serve: Serve, fell_off: Incident) -> None:
    feed = Feed()
    feed.apply(fell_off)
    async with serve(feed) as url:
        code, out, _ = await ask("--url", url, "--json")

    assert code == 0
    assert msgspec.convert(json.loads(out)["incidents"], list[Incident]) == [fell_off]


async def test_an_empty_live_list_says_that_replayed_incidents_exist(serve: Serve, fell_off: Incident) -> None:
    feed = Feed()
    feed.apply(replace(fell_off, run="replay"))
    async with serve(feed) as url:
        code, out, err = await ask("--url", url)
        _, replayed, _ = await ask("--url", url, "--run", "replay")

    assert code == 0
    assert "No incidents." in out
    assert "--run replay" in err
    assert "aur-g017" in replayed


async def test_a_feed_that_is_not_there_is_exit_code_3_and_a_sentence() -> None:
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))  # bound, never listening: nobody can answer here
        code, out, err = await ask("--url", f"http://127.0.0.1:{taken.getsockname()[1]}")

    assert code == 3
    assert out == ""
    assert "rootrank up" in err


@pytest.mark.parametrize("url", ["nonsense", "ftp://x", "http://127.0.0.1:port"])
async def test_an_address_that_is_none_is_exit_code_3_too(url: str) -> None:
    code, _, err = await ask("--url", url)

    assert code == 3
    assert "address" in err


async def test_a_run_that_does_not_exist_is_a_usage_error_with_the_choices(serve: Serve) -> None:
    async with serve(Feed()) as url:
        code, _, err = await ask("--url", url, "--run", "dead")

    assert code == 2
    assert "use one of live" in err


async def test_following_goes_on_after_a_restart_of_the_feed_and_misses_nothing(
    serve: Serve, eventually: Eventually, fell_off: Incident, timed_out: Incident, out_of_memory: Incident
) -> None:
    feed = Feed()
    feed.apply(fell_off)
    seen: list[str] = []
    async with serve(feed, heartbeat_s=0.1) as url:
        process = await asyncio.create_subprocess_exec(
            sys.executable, "-c", COMMAND, "--follow", "--json", "--url", url,
            stdout=asyncio.subprocess.PIPE, stderr=asyncio.subprocess.DEVNULL, limit=2**20,
            env={**os.environ, "PYTHONPATH": str(ROOT)},
        )  # fmt: skip
        assert process.stdout is not None
        reading = asyncio.create_task(collect(process.stdout, seen))
        try:
            await eventually(lambda: len(seen) == 1)
            feed.apply(timed_out)
            await eventually(lambda: len(seen) == 2)
            port = int(url.rpartition(":")[2])
        except BaseException:
            process.kill()
            raise
    try:
        feed.apply(out_of_memory)
        async with serve(feed, port=port, heartbeat_s=0.1):
            await eventually(lambda: len(seen) == 3)
    finally:
        process.kill()
        await process.wait()
        await reading

    assert seen == [i.incident_id for i in (fell_off, timed_out, out_of_memory)]


async def collect(lines: asyncio.StreamReader, into: list[str]) -> None:
    async for line in lines:
        into.append(json.loads(line)["incident_id"])
