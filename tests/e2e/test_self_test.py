"""`rootrank-shipper check --self-test` on real parts: the marked line arrives, or it is said where it got stuck."""

import json
import os
import subprocess
import sys
import threading
from pathlib import Path
from typing import Any

import pytest

from shippers.__main__ import main
from shippers.agent import Agent
from shippers.config import load
from tests.e2e.fleet import Fleet
from tests.polling import until

pytestmark = [pytest.mark.kafka, pytest.mark.clickhouse, pytest.mark.slow]


@pytest.fixture
def settings(tmp_path: Path, fleet: Fleet) -> Path:
    """A node with a log of its own."""
    (tmp_path / "rank0.log").write_text("step 1\n", encoding="utf-8")
    path = tmp_path / "node.toml"
    path.write_text(
        f"""
cluster = "selftest-{tmp_path.name}"
reporter = "n1"
profile = "none"
[sources]
self_test = true
[kafka]
bootstrap = "{fleet.bootstrap}"
[spool]
dir = "{tmp_path / "spool"}"
[[source]]
name = "rank0.log"
path = "{tmp_path / "rank0.log"}"
""",
        encoding="utf-8",
    )
    until(lambda: "raw" in fleet_topics(fleet), what="the topics")
    return path


def fleet_topics(fleet: Fleet) -> set[str]:
    from kafka import KafkaConsumer

    consumer = KafkaConsumer(bootstrap_servers=fleet.bootstrap)
    try:
        return set(consumer.topics())
    finally:
        consumer.close()


def marked(settings: Path, fleet: Fleet, *, wait_s: float) -> tuple[int, dict[str, Any]]:
    """The command as a person on the node runs it: a process of its own."""
    answer = subprocess.run(
        [sys.executable, "-m", "shippers", "check", "--config", str(settings), "--self-test", "--json",
         "--wait-s", str(wait_s), "--clickhouse-url", fleet.clickhouse_url],
        capture_output=True, text=True, check=False, env=dict(os.environ),
    )  # fmt: skip
    assert answer.stdout, answer.stderr
    found: dict[str, Any] = json.loads(answer.stdout)["self_test"]
    return answer.returncode, found


def reached(test: dict[str, Any]) -> dict[str, bool | None]:
    return {station["name"]: station["reached"] for station in test["stations"]}


ALL = {"spool": True, "Kafka": True, "worker": True, "ClickHouse": True}


def test_the_marked_line_arrives_without_an_agent_and_beside_a_running_one(settings: Path, fleet: Fleet) -> None:
    _, alone = marked(settings, fleet, wait_s=60)
    agent = Agent(load(settings))
    running = threading.Thread(target=agent.run)
    running.start()
    try:
        _, beside = marked(settings, fleet, wait_s=60)
    finally:
        agent.request_stop()
        running.join()

    assert (alone["passed"], reached(alone)) == (True, ALL), alone
    assert (beside["passed"], reached(beside)) == (True, ALL), beside
    assert "no agent runs" in alone["stations"][0]["says"]
    assert "the running agent has put it" in beside["stations"][0]["says"]
    assert_recognisable(fleet, load(settings).cluster, {alone["token"], beside["token"]})


def assert_recognisable(fleet: Fleet, cluster: str, tokens: set[str]) -> None:
    """Each is one event of a name of its own, and nothing became an incident of it."""
    rows = fleet.sql(
        f"SELECT attributes['mark'], role, severity FROM events WHERE cluster = '{cluster}' "
        "AND name = 'agent.self_test'"
    )
    assert {(row[0], row[1], row[2]) for row in rows} == {(token, "context", "info") for token in tokens}
    assert len(rows) == len(tokens)
    assert fleet.sql(f"SELECT count() FROM gaps WHERE cluster = '{cluster}' AND reason LIKE '%conflict%'") == [(0,)]
    assert fleet.revisions(cluster) == []


def test_without_a_worker_it_gets_stuck_there(settings: Path, fleet: Fleet) -> None:
    for worker in fleet.workers:
        worker.stop()
    fleet.workers.clear()
    code, test = marked(settings, fleet, wait_s=8)

    assert (code, test["passed"], test["stuck_at"]) == (1, False, "worker")
    assert reached(test) == {"spool": True, "Kafka": True, "worker": False, "ClickHouse": None}
    assert "rootrank worker" in test["do"]


def test_without_a_store_it_gets_stuck_before_clickhouse(settings: Path, fleet: Fleet) -> None:
    for store in fleet.stores:
        store.stop()
    fleet.stores.clear()
    until(lambda: marked(settings, fleet, wait_s=5)[1]["stuck_at"] == "ClickHouse", what="the worker reads")
    code, test = marked(settings, fleet, wait_s=5)

    assert (code, test["stuck_at"]) == (1, "ClickHouse")
    assert reached(test) == {"spool": True, "Kafka": True, "worker": True, "ClickHouse": False}


def test_without_kafka_the_mark_waits_in_the_spool_and_a_person_is_told(
    settings: Path, fleet: Fleet, capsys: pytest.CaptureFixture[str]
) -> None:
    text = settings.read_text(encoding="utf-8").replace(fleet.bootstrap, "127.0.0.1:1")
    settings.write_text(text, encoding="utf-8")

    code = main(["check", "--config", str(settings), "--self-test", "--wait-s", "1",
                 "--clickhouse-url", fleet.clickhouse_url])  # fmt: skip
    said = " ".join(capsys.readouterr().out.split())

    assert code == 3
    assert "spool yes written to" in said
    assert "Kafka NO Kafka at 127.0.0.1:1: nothing listens there" in said
    assert "the marked line got stuck: Kafka" in said
