"""What `rootrank replay` says while it waits for Kafka."""

import asyncio
import os
import signal
import subprocess
import sys
import uuid
from pathlib import Path

import pytest

from pipeline.agents.broker import TopicPlan, create_topics
from pipeline.commands.kafka_watch import KafkaWatch
from pipeline.commands.replay import SAY_EVERY_S, now_and_then
from pipeline.embedded.kafka import KafkaBroker
from pipeline.replay import Status
from tests.polling import until

ROOT = Path(__file__).parents[1]
LINE = "2026-03-01T10:00:00.000000Z n1 kernel: NVRM: Xid (PCI:0000:3b:00): 79, GPU has fallen off the bus.\n"


def test_a_kafka_that_is_away_is_said_once_and_ctrl_c_ends_the_wait(tmp_path: Path) -> None:
    (tmp_path / "kern.log").write_text(LINE)
    process = subprocess.Popen(
        [sys.executable, "-m", "pipeline", "replay", tmp_path / "kern.log", "--kafka", "127.0.0.1:1"],
        cwd=ROOT, stdin=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True,
        env={**os.environ, "PYTHONPATH": str(ROOT), "XDG_STATE_HOME": str(tmp_path / "state")},
    )  # fmt: skip
    assert process.stderr is not None
    first = process.stderr.readline()
    process.send_signal(signal.SIGINT)
    _, rest = process.communicate(timeout=20)

    assert first.startswith("rootrank: Kafka at 127.0.0.1:1 does not answer (start it, or ")
    assert "KAFKA_BOOTSTRAP" in first
    assert (process.returncode, rest) == (3, "rootrank: replay stopped\n")


def test_without_a_terminal_a_line_says_now_and_then_how_far_it_is(capsys: pytest.CaptureFixture[str]) -> None:
    now_s = 100.0
    show = now_and_then(lambda: now_s)
    status = Status(bytes_total=200, bytes_released=50, shippers=2)
    show(status)
    now_s += SAY_EVERY_S
    show(status)
    show(status)

    assert capsys.readouterr().err == "replay: 25 % released, 0/2 shippers done\n"


def test_without_the_kafka_client_it_says_what_to_install() -> None:
    code = "import sys; sys.modules['kafka'] = None; from pipeline.__main__ import main; main()"
    ended = subprocess.run(
        [sys.executable, "-c", code, "replay", "logs"], cwd=ROOT, capture_output=True, text=True, timeout=30,
        check=False,
    )  # fmt: skip

    assert (ended.returncode, ended.stdout) == (3, "")
    assert "`replay` needs the package kafka; install it with" in ended.stderr
    assert "pip install '.[pipeline,shipper]'" in ended.stderr
    assert len(ended.stderr.splitlines()) == 1


@pytest.mark.kafka
def test_what_kafka_lacks_is_said_once_and_that_it_goes_on_once_it_is_there(kafka_broker: KafkaBroker) -> None:
    address, topic = kafka_broker.bootstrap, f"watched-{uuid.uuid4().hex[:8]}"
    said: list[str] = []
    with KafkaWatch(address, said.append, topic):
        until(lambda: said, what="it says that the topic is missing")
        asyncio.run(create_topics(address, [TopicPlan(name=topic, partitions=1)], replication=1))
        until(lambda: len(said) > 1, what="it says that Kafka answers")

    assert f"no topic {topic} yet" in said[0]
    assert said[1:] == [f"Kafka at {address} answers; going on"]
