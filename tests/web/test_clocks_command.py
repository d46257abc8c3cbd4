import asyncio
import json
import socket
import time
from collections.abc import Callable
from contextlib import AbstractAsyncContextManager

import pytest
import typer
from typer.testing import CliRunner

from pipeline.commands.clocks import clocks
from pipeline.web.feed import Feed
from pipeline.web.health import Health
from pipeline.web.query import RUNS
from schemas.records import ClockSegment
from tests.web.clocks import MS, S, fleet, segment, unmeasured

Serve = Callable[..., AbstractAsyncContextManager[str]]
HOSTILE = "\x1b[2Jgpu\u202e\r\n" + "x" * 300

app = typer.Typer()
app.command()(clocks)


def feed_of(*told: ClockSegment) -> Feed:
    feed = Feed()
    for one in told:
        feed.clocks.apply(one, time.time_ns() // MS)
    return feed


async def ask(*arguments: str, columns: int = 80) -> tuple[int, str, str]:
    """Run the command beside the server, which lives in this loop."""
    environment = {"COLUMNS": str(columns), "NO_COLOR": "1"}
    result = await asyncio.to_thread(CliRunner().invoke, app, list(arguments), env=environment)
    return result.exit_code, result.stdout, result.stderr


async def test_a_row_says_offset_drift_bound_quality_and_last_jump_in_eighty_columns(serve: Serve) -> None:
    async with serve(feed_of(*fleet(40), segment("gpu-with-a-name-that-is-long-" + "y" * 40, cluster="beta"))) as url:
        code, out, _ = await ask("--url", url)

    assert code == 1
    rows = {line.split()[0]: line for line in out.splitlines() if line.startswith("alpha/")}
    assert rows["alpha/gpu-021"].split()[1:] == ["holdover", "-204", "µs", "±", "4.01", "ms", "+9.3", "ppm", "-"]
    assert rows["alpha/gpu-013"].split()[-2:] == ["-5", "s"]
    assert "  the wall clock jumped " in out
    assert "  no beacon was acknowledged for 90 s" in out
    assert "41 nodes: 38 good, 1 holdover, 1 stepped, 1 none" in out
    assert max(map(len, out.splitlines())) <= 80
    assert "\x1b" not in out


async def test_a_recent_jump_stands_in_its_row_and_a_clock_of_1970_does_not_break_the_table(serve: Serve) -> None:
    began = (time.time_ns() // S - 20) * S
    unset = segment("gpu-1970", wall_offset_ns=began, b_ppb=-100_000, wall_step_ns=-5 * S, a_ns=began)
    async with serve(feed_of(unset)) as url:
        _, out, _ = await ask("--url", url)

    row = next(line for line in out.splitlines() if line.startswith("gpu-1970"))
    assert "days  ± 655 µs -100.0 ppm" in row
    assert row.endswith(" s ago")
    assert len(row) == 80


async def test_only_bad_ones_where_asked_for_and_the_whole_fleet_in_a_line(serve: Serve) -> None:
    async with serve(feed_of(*fleet(40))) as url:
        code, out, _ = await ask("--url", url, "--bad")

    assert code == 1
    assert [line.split()[0] for line in out.splitlines() if line.startswith("gpu-")] == [
        "gpu-007", "gpu-033", "gpu-021",
    ]  # fmt: skip
    assert "40 nodes: 37 good" in out


async def test_a_wide_terminal_also_shows_broker_and_epoch(serve: Serve) -> None:
    async with serve(feed_of(segment(epoch=4, broker_id=3))) as url:
        _, out, _ = await ask("--url", url, columns=120)

    assert out.splitlines()[0].split()[-3:] == ["broker", "epoch", "told"]
    assert "     3     4" in out


async def test_json_is_the_answer_of_the_api(serve: Serve) -> None:
    async with serve(feed_of(segment(wall_step_ns=-S))) as url:
        code, out, _ = await ask("--url", url, "--json")

    assert code == 0
    (clock,) = json.loads(out)["clocks"]
    assert (clock["node"], clock["wall_offset_ns"], clock["bound_ns"]) == ("gpu-001", -2_113_482, 655_000)
    assert clock["last_wall_step_ns"] == -S


@pytest.mark.parametrize(
    ("told", "code"),
    [
        ([segment(), segment("b", quality="holdover"), segment("c", quality="stepped")], 0),
        ([segment(), unmeasured("b")], 1),
        ([], 1),
    ],
)
async def test_the_exit_code_says_whether_every_clock_can_be_used(
    serve: Serve, told: list[ClockSegment], code: int
) -> None:
    async with serve(feed_of(*told)) as url:
        assert (await ask("--url", url))[0] == code


async def test_where_there_is_none_it_says_what_to_do(serve: Serve) -> None:
    async with serve(feed_of(segment(run="replay", run_id="r"))) as url:
        code, out, err = await ask("--url", url)

    assert (code, out) == (1, "No clocks.\n")
    assert "rootrank-shipper check" in err
    assert "1 of run replay, not shown: add --run replay." in err


async def test_a_feed_that_does_not_know_clocks_yet_is_exit_code_3(serve: Serve) -> None:
    waiting = Health(state="starting", reason="waiting for the topic clock.segments to be created")
    async with serve(Feed(), clock_health=lambda: waiting) as url:
        code, _, err = await ask("--url", url)

    assert code == 3
    assert "waiting for the topic clock.segments" in err


async def test_no_feed_and_a_wrong_run_are_told_apart(serve: Serve) -> None:
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))  # bound, never listening: nobody can answer here
        code, out, err = await ask("--url", f"http://127.0.0.1:{taken.getsockname()[1]}")
    assert (code, out) == (3, "")
    assert "rootrank up" in err
    async with serve(Feed()) as url:
        code, _, err = await ask("--url", url, "--run", "dead")
    assert code == 2
    assert "use one of live" in err


async def test_names_and_reasons_cannot_steer_the_terminal(serve: Serve) -> None:
    async with serve(feed_of(segment(HOSTILE, cluster=HOSTILE), unmeasured(HOSTILE + "2", HOSTILE))) as url:
        _, out, _ = await ask("--url", url)

    assert all(line.isprintable() for line in out.splitlines())
    assert max(map(len, out.splitlines())) <= 80


async def test_a_wall_clock_that_is_off_is_marked_and_can_be_used(serve: Serve) -> None:
    async with serve(feed_of(segment(), segment("ntp-is-dead", wall_offset_ns=-4 * S))) as url:
        code, out, _ = await ask("--url", url, "--bad")

    assert code == 0
    assert [line for line in out.splitlines() if line.startswith("gpu-")] == []
    assert "  wall clock 4 s ahead" in out.splitlines()
    assert "2 nodes: 2 good; 1 wall clock off by more than 1 s" in out


async def test_all_silent_at_once_is_said_in_a_line_and_blames_no_node(serve: Serve) -> None:
    feed = Feed()
    for name in ("a", "b"):
        feed.clocks.apply(segment(name), time.time_ns() // MS - 300_000)
    async with serve(feed) as url:
        code, out, _ = await ask("--url", url)

    assert code == 1
    assert "All nodes at once: the worker or Kafka is away." in out
    assert "  nothing told for 5 min; it was ± 655 µs then" in out.splitlines()
    assert "shipper has stopped" not in out


async def test_a_cluster_that_nobody_knows_is_named_with_those_that_are(serve: Serve) -> None:
    async with serve(feed_of(segment(), segment(cluster="beta"))) as url:
        code, _, err = await ask("--url", url, "--cluster", "nope")

    assert code == 1
    assert "No node of cluster nope is known. Known: alpha, beta." in err
    assert "beacons" not in err


def test_help_lists_every_run_that_can_be_asked_for() -> None:
    text = " ".join(CliRunner().invoke(app, ["--help"], env={"COLUMNS": "200", "NO_COLOR": "1"}).output.split())
    assert f"{', '.join(RUNS[:-1])} or {RUNS[-1]}." in text
