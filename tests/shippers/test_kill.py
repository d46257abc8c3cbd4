"""kill -9 of the node agent, of the broker under it, and what must have arrived in the end."""

import json
import os
import random
import signal
import subprocess
import sys
import uuid
from functools import partial
from pathlib import Path
from typing import Any

import pytest
from kafka import KafkaAdminClient
from kafka.admin import NewTopic
from kafka.errors import TopicAlreadyExistsError

from schemas.topics import CLOCK_BEACON, RAW
from tests.shippers.fakes import append, eventually
from tests.shippers.test_sink import consumed

ROOT = Path(__file__).parents[2]
ENVIRONMENT = {**os.environ, "PYTHONPATH": str(ROOT)}


def write_config(folder: Path, reporter: str, bootstrap: str = "127.0.0.1:1") -> Path:
    path = folder / "node.toml"
    path.write_text(
        f"""
cluster = "c"
reporter = "{reporter}"
profile = "none"
start_at = "beginning"
end_file = "{folder / "end"}"
[batch]
lines = 50
linger_ms = 5
[kafka]
bootstrap = "{bootstrap}"
[spool]
dir = "{folder / "spool"}"
[[source]]
name = "rank0.log"
path = "{folder / "rank0.log"}"
[[source]]
name = "rank1.log"
path = "{folder / "rank1.log"}"
""",
        encoding="utf-8",
    )
    return path


def _has_size(path: Path, size: int) -> bool:
    return path.exists() and path.stat().st_size >= size


def _has_more_lines(bootstrap: str, reporter: str, count: int) -> bool:
    return len(lines_of(shipped(bootstrap, reporter))) > count


def start(*arguments: str | Path) -> subprocess.Popen[bytes]:
    return subprocess.Popen(
        [sys.executable, *map(str, arguments)], env=ENVIRONMENT, stderr=subprocess.PIPE, stdin=subprocess.DEVNULL
    )


def kill(process: subprocess.Popen[bytes]) -> None:
    process.send_signal(signal.SIGKILL)
    process.communicate(timeout=20)


def lines_of(records: list[dict[str, Any]]) -> list[tuple[str, int, str]]:
    """Lines with their address, each batch number counted once, as the pipeline does."""
    seen: set[tuple[str, int]] = set()
    found: list[tuple[str, int, str]] = []
    for record in records:
        if record["record"] == "raw_batch" and (number := (record["shipper_id"], record["batch_seq"])) not in seen:
            seen.add(number)
            found.extend((line["source"], line["offset"], line["body"]) for line in record.get("records", []))
    return found


def parsed(line: bytes) -> dict[str, Any] | None:
    """A record; None for the line that a killed process did not finish."""
    try:
        record: dict[str, Any] = json.loads(line)
    except json.JSONDecodeError:
        return None
    return record


def check_complete(records: list[dict[str, Any]], written: dict[str, list[str]]) -> None:
    lines = lines_of(records)
    for source, bodies in written.items():
        assert [body for name, _, body in lines if name == source] == bodies
    numbers = [record["batch_seq"] for record in records if record["record"] == "raw_batch"]
    first_seen = list(dict.fromkeys(numbers))
    assert first_seen == list(range(1, len(first_seen) + 1))
    contents: dict[int, dict[str, Any]] = {}
    for record in records:
        if record["record"] == "raw_batch":
            assert contents.setdefault(record["batch_seq"], record) == record


@pytest.mark.slow
def test_each_line_arrives_once_under_one_number_however_often_the_agent_is_killed(tmp_path: Path) -> None:
    chance = random.Random(7)
    out = tmp_path / "records.jsonl"
    config = write_config(tmp_path, "n1")
    written: dict[str, list[str]] = {"rank0.log": [], "rank1.log": []}
    program = Path(__file__).with_name("agent_process.py")
    for _ in range(8):
        for source, bodies in written.items():
            fresh = [f"{source} line {len(bodies) + number}" for number in range(chance.randrange(100, 2000))]
            append(tmp_path / source, "\n".join(fresh) + "\n")
            bodies.extend(fresh)
        size = out.stat().st_size if out.exists() else 0
        process = start(program, config, out)
        wanted = size + chance.randrange(1, 60_000)
        eventually(partial(_has_size, out, wanted), "some records are out")
        kill(process)
    (tmp_path / "end").touch()
    process = start(program, config, out)
    _, errors = process.communicate(timeout=60)
    records = [record for line in out.read_bytes().splitlines() if (record := parsed(line)) is not None]

    assert process.returncode == 0, errors
    assert records[-1]["ended"] is True
    check_complete(records, written)


def make_topics(bootstrap: str) -> None:
    admin = KafkaAdminClient(bootstrap_servers=bootstrap)
    for topic in (RAW, CLOCK_BEACON):
        try:
            admin.create_topics(
                [
                    NewTopic(
                        name=topic.name,
                        num_partitions=topic.partitions or 1,
                        replication_factor=1,
                        topic_configs=topic.settings(),
                    )
                ]
            )
        except TopicAlreadyExistsError:
            continue
    admin.close()


def shipped(bootstrap: str, reporter: str) -> list[dict[str, Any]]:
    records = [json.loads(value) for _, value in consumed(bootstrap, RAW.name)]
    return [record for record in records if record["reporter"] == reporter]


@pytest.mark.kafka
@pytest.mark.slow
def test_a_killed_shipper_goes_on_through_a_real_broker_and_sends_clock_samples(
    kafka_broker: Any, tmp_path: Path
) -> None:
    make_topics(kafka_broker.bootstrap)
    reporter = f"n-{uuid.uuid4().hex}"
    config = write_config(tmp_path, reporter, kafka_broker.bootstrap)
    written: dict[str, list[str]] = {"rank0.log": [], "rank1.log": []}
    for _ in range(3):
        for source, bodies in written.items():
            fresh = [f"{source} line {len(bodies) + number}" for number in range(3000)]
            append(tmp_path / source, "\n".join(fresh) + "\n")
            bodies.extend(fresh)
        before = len(lines_of(shipped(kafka_broker.bootstrap, reporter)))
        process = start("-m", "shippers", "run", "--config", config)
        eventually(partial(_has_more_lines, kafka_broker.bootstrap, reporter, before), "more lines")
        kill(process)
    process = start("-m", "shippers", "run", "--config", config)
    eventually(
        lambda: any(record.get("clock_samples") for record in shipped(kafka_broker.bootstrap, reporter)),
        "clock samples",
    )
    (tmp_path / "end").touch()
    _, errors = process.communicate(timeout=60)
    records = shipped(kafka_broker.bootstrap, reporter)

    begins, ends = errors.splitlines()
    assert (process.returncode, b"ships as" in begins, ends) == (0, True, b"rootrank-shipper: stopped; all was sent")
    check_complete(records, written)
    assert records[-1]["ended"] is True
    sample = next(record["clock_samples"][0] for record in records if record.get("clock_samples"))
    assert sample["t0_ns"] < sample["t1_ns"]
    assert sample["broker_time_ms"] > 1_600_000_000_000


@pytest.mark.kafka
@pytest.mark.slow
def test_a_shipper_that_is_stopped_while_kafka_is_away_says_that_and_nothing_else(
    kafka_jars: Path, tmp_path: Path
) -> None:
    from pipeline.embedded.kafka import KafkaBroker

    broker = KafkaBroker(tmp_path / "kafka", jars_dir=kafka_jars)
    broker.start()
    try:
        make_topics(broker.bootstrap)
        config = write_config(tmp_path, "n1", broker.bootstrap)
        append(tmp_path / "rank0.log", "one\n")
        process = start("-m", "shippers", "run", "--config", config)
        eventually(lambda: len(lines_of(shipped(broker.bootstrap, "n1"))) == 1, "the first line", 60)
        broker.kill()
        append(tmp_path / "rank0.log", "two\n")
        stderr = process.stderr
        assert stderr is not None
        begins, *said = stderr.readline(), stderr.readline()
        process.terminate()
        _, rest = process.communicate(timeout=30)
        said += rest.splitlines()
    finally:
        broker.stop()

    assert process.returncode == 0
    assert b"ships as n1 of" in begins
    assert [b"batches are kept" in said[0], b"the next start sends them" in said[-1], len(said)] == [True, True, 2]


@pytest.mark.kafka
@pytest.mark.slow
def test_a_killed_broker_is_waited_for_said_once_and_nothing_is_lost(kafka_jars: Path, tmp_path: Path) -> None:
    from pipeline.embedded.kafka import KafkaBroker

    broker = KafkaBroker(tmp_path / "kafka", jars_dir=kafka_jars)
    broker.start()
    try:
        make_topics(broker.bootstrap)
        config = write_config(tmp_path, "n1", broker.bootstrap)
        bodies = [f"line {number}" for number in range(2000)]
        append(tmp_path / "rank0.log", "\n".join(bodies[:1000]) + "\n")
        process = start("-m", "shippers", "run", "--config", config)
        eventually(lambda: len(lines_of(shipped(broker.bootstrap, "n1"))) == 1000, "the first lines", 60)
        broker.kill()
        append(tmp_path / "rank0.log", "\n".join(bodies[1000:]) + "\n")
        (tmp_path / "end").touch()
        stderr = process.stderr
        assert stderr is not None
        begins, *said = stderr.readline(), stderr.readline()
        broker.start()
        _, rest = process.communicate(timeout=90)
        said += rest.splitlines()
        records = shipped(broker.bootstrap, "n1")
    finally:
        broker.stop()

    assert process.returncode == 0
    assert b"ships as n1 of" in begins
    assert said.pop().endswith(b"stopped; all was sent")
    assert [b"batches are kept" in line or b"answers again" in line for line in said] == [True, True]
    check_complete(records, {"rank0.log": bodies})
