"""A live drill proves an installation end to end, or says where it got lost; nobody takes it for real."""

import json
import os
import socket
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from pipeline.commands.kafka_watch import kafka_problem
from pipeline.embedded.ports import free_port
from pipeline.web.client import FeedClient
from schemas import topics
from tests.e2e.fleet import Fleet, Process
from tests.polling import until

pytestmark = [pytest.mark.kafka, pytest.mark.clickhouse, pytest.mark.slow]


@pytest.fixture
def feed(fleet: Fleet, tmp_path: Path) -> Iterator[str]:
    """The address of a running feed."""
    port = free_port()
    web = Process(tmp_path / "web.log", "web", "--kafka", fleet.bootstrap, "--port", str(port))
    until(lambda: _answers(port), what="the feed answers")
    yield f"http://127.0.0.1:{port}"
    web.stop()


def _answers(port: int) -> bool:
    with socket.socket() as probe:
        return probe.connect_ex(("127.0.0.1", port)) == 0


def drill(fleet: Fleet, url: str, folder: Path, *arguments: str) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "pipeline", "drill", "--live", "--json", "--kafka", fleet.bootstrap, "--url", url]
    return subprocess.run(
        [*command, *arguments], capture_output=True, text=True, check=False, timeout=240,
        env={**os.environ, "XDG_STATE_HOME": str(folder / "state")},
    )  # fmt: skip


def test_a_drill_is_in_the_feed_with_the_right_culprit_and_in_no_statistics(
    fleet: Fleet, feed: str, tmp_path: Path
) -> None:
    played = drill(fleet, feed, tmp_path, "--chain", "C3", "--seed", "1")

    assert played.returncode == 0, (played.stdout, played.stderr)
    said = json.loads(played.stdout)
    assert said["sentence"].startswith("incident in the feed after ")
    assert said["sentence"].endswith(" s, culprit right")
    assert min(said["stages"][name] for name in ("shippers", "lines", "events", "verdicts", "incidents")) > 0
    run_id = said["run_id"]
    client = FeedClient(url=feed)
    shown = [one for one in client.listing({"run": "drill", "limit": "1000"}).incidents if one.run_id == run_id]
    assert shown
    assert all(one.synthetic and one.run == "drill" for one in shown)
    assert all(str(culprit.node).startswith("drill-") for one in shown for culprit in one.culprits)
    assert run_id not in {one.run_id for one in client.listing({"limit": "1000"}).incidents}
    stored = f"SELECT DISTINCT run, synthetic FROM incidents WHERE run_id = '{run_id}'"
    assert until(lambda: fleet.sql(stored), what="the drill in SQL") == [("drill", True)]
    for view in ("incidents_live", "events_live", "raw_lines_live", "gaps_live", "progress_live"):
        assert fleet.sql(f"SELECT count() FROM {view} WHERE run_id = '{run_id}'") == [(0,)]
    assert not (tmp_path / "state" / "rootrank" / "replay" / run_id).exists()


def test_a_quiet_ending_raises_nothing(fleet: Fleet, feed: str, tmp_path: Path) -> None:
    played = drill(fleet, feed, tmp_path, "--chain", "C30", "--seed", "1")

    assert played.returncode == 0, (played.stdout, played.stderr)
    assert json.loads(played.stdout)["sentence"] == "no incident in the feed, as it should be"


def test_a_drill_that_gets_lost_says_after_which_stage(fleet: Fleet, feed: str, tmp_path: Path) -> None:
    # A worker that is stopped before it has made the topics is another story.
    until(lambda: not kafka_problem(fleet.bootstrap, topics.INCIDENTS.name), what="the topics")
    for worker in fleet.workers:
        worker.stop()
    played = drill(fleet, feed, tmp_path, "--chain", "C3", "--seed", "2", "--wait-s", "6")

    assert played.returncode == 1, played.stderr
    said = json.loads(played.stdout)
    assert said["stages"]["lines"] > 0
    assert said["sentence"] == (
        "lost: lines are in Kafka, but no event came of them (topic events): does `rootrank worker` run?"
    )


def test_without_a_feed_it_says_what_to_start(fleet: Fleet, tmp_path: Path) -> None:
    played = drill(fleet, f"http://127.0.0.1:{free_port()}", tmp_path, "--chain", "C3")

    assert (played.returncode, played.stdout) == (3, "")
    assert "Start one with `rootrank up`, or give --url." in played.stderr
