"""The agent only calls out: nobody can call it."""

import subprocess
import sys
from pathlib import Path

import pytest

from pipeline.embedded.kafka import KafkaBroker
from tests.shippers.fakes import append, eventually
from tests.shippers.test_kill import ENVIRONMENT, make_topics, shipped, write_config

LISTENING = "0A"


def sockets_of(pid: int) -> set[str]:
    """Inodes of the sockets of a process."""
    found = set()
    for each in Path(f"/proc/{pid}/fd").iterdir():
        try:
            target = str(each.readlink())
        except OSError:
            continue
        if target.startswith("socket:["):
            found.add(target[8:-1])
    return found


def listening() -> set[str]:
    """Inodes of all sockets of this machine that wait for calls, TCP of both kinds, and of all bound UDP ones."""
    found = set()
    for name in ("tcp", "tcp6", "udp", "udp6"):
        table = Path(f"/proc/net/{name}")
        for row in table.read_text(encoding="ascii").splitlines()[1:] if table.exists() else []:
            fields = row.split()
            if fields[3] == LISTENING or name.startswith("udp"):
                found.add(fields[9])
    return found


@pytest.mark.kafka
def test_a_running_agent_listens_on_no_port(tmp_path: Path, kafka_broker: KafkaBroker) -> None:
    make_topics(kafka_broker.bootstrap)
    config = write_config(tmp_path, "silent", kafka_broker.bootstrap)
    append(tmp_path / "rank0.log", "one\n")
    agent = subprocess.Popen(
        [sys.executable, "-m", "shippers", "run", "--config", str(config)],
        env=ENVIRONMENT, stdin=subprocess.DEVNULL, stderr=subprocess.DEVNULL,
    )  # fmt: skip
    try:
        eventually(lambda: len(shipped(kafka_broker.bootstrap, "silent")) > 1, "lines and progress", 40)
        own = sockets_of(agent.pid)
        assert own, "it has a connection to Kafka"
        assert own & listening() == set()
    finally:
        agent.terminate()
        assert agent.wait(20) == 0
