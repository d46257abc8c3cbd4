"""The real agent at the real broker behind TLS, SCRAM and client certificates, and what it says where it is refused."""

import json
import subprocess
import sys
import uuid
from pathlib import Path
from typing import Any

import pytest
from kafka import KafkaConsumer, TopicPartition

from pipeline.kafka_client import KafkaClient
from schemas.topics import RAW
from tests.secured_kafka import PASSWORD, USER, SecuredKafka
from tests.shippers.fakes import append, eventually
from tests.shippers.test_kill import ENVIRONMENT, lines_of

pytestmark = [pytest.mark.kafka, pytest.mark.slow]

SECRETS = (PASSWORD, "opensesame-55", "not-the-password-1")


class Node:
    """An agent's folder, with the files that its settings name."""

    def __init__(self, folder: Path, broker: SecuredKafka) -> None:
        self.folder = folder
        self.broker = broker
        self.reporter = f"n{uuid.uuid4().hex[:8]}"
        self.log = folder / "rank0.log"
        self.secret = folder / "password"
        self.write_secret(PASSWORD)

    def write_secret(self, text: str, path: Path | None = None) -> Path:
        path = path or self.secret
        path.touch(mode=0o600)
        path.write_text(text + "\n", encoding="utf-8")
        return path

    def settings(self, listener: str, **kafka: str | Path) -> Path:
        lines = "\n".join(f'{key} = "{value}"' for key, value in kafka.items())
        path = self.folder / "node.toml"
        path.write_text(
            f'cluster = "c"\nreporter = "{self.reporter}"\nstart_at = "beginning"\nend_file = "{self.folder / "end"}"\n'
            f'profile = "none"\n[kafka]\nbootstrap = "{self.broker.address(listener)}"\n{lines}\n'
            f'[spool]\ndir = "{self.folder / "spool"}"\n[[source]]\nname = "rank0.log"\npath = "{self.log}"\n',
            encoding="utf-8",
        )
        return path

    def start(self, config: Path) -> subprocess.Popen[str]:
        return subprocess.Popen(
            [sys.executable, "-m", "shippers", "run", "--config", str(config)],
            env=ENVIRONMENT, stdin=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True,
        )  # fmt: skip

    def end(self, agent: subprocess.Popen[str]) -> str:
        (self.folder / "end").touch()
        _, said = agent.communicate(timeout=40)
        assert agent.returncode == 0, said
        return said

    def check(self, config: Path) -> dict[str, Any]:
        done = subprocess.run(
            [sys.executable, "-m", "shippers", "check", "--json", "--config", str(config)],
            env=ENVIRONMENT, capture_output=True, text=True, timeout=60, check=False,
        )  # fmt: skip
        assert not any(each in done.stdout + done.stderr for each in SECRETS)
        report: dict[str, Any] = json.loads(done.stdout)
        return report

    def arrived(self) -> list[str]:
        """Lines of this node that are on the topic, read past all security."""
        consumer = KafkaConsumer(
            bootstrap_servers=self.broker.address("INTERNAL"), enable_auto_commit=False, kafka_client=KafkaClient
        )
        try:
            places = [TopicPartition(RAW.name, number) for number in consumer.partitions_for_topic(RAW.name)]
            consumer.assign(places)
            consumer.seek_to_beginning(*places)
            ends = consumer.end_offsets(places)
            found = []
            while any(consumer.position(place) < ends[place] for place in places):
                for messages in consumer.poll(timeout_ms=200).values():
                    found += [json.loads(message.value) for message in messages]
        finally:
            consumer.close()
        return [body for _, _, body in lines_of([each for each in found if each["reporter"] == self.reporter])]


@pytest.fixture
def node(tmp_path: Path, secured_kafka: SecuredKafka) -> Node:
    return Node(tmp_path, secured_kafka)


def tls(node: Node) -> dict[str, str | Path]:
    return {"security_protocol": "SSL", "ssl_cafile": node.broker.ca}


def scram(node: Node, mechanism: str = "SCRAM-SHA-512") -> dict[str, str | Path]:
    return {
        "security_protocol": "SASL_SSL", "ssl_cafile": node.broker.ca, "sasl_mechanism": mechanism,
        "sasl_username": USER, "sasl_password_file": node.secret,
    }  # fmt: skip


def mutual(node: Node) -> dict[str, str | Path]:
    pair = node.broker.locked_client
    key = node.write_secret("opensesame-55", node.folder / "of-the-key")
    return tls(node) | {"ssl_certfile": pair.certificate, "ssl_keyfile": pair.key, "ssl_password_file": key}


@pytest.mark.parametrize(
    ("listener", "way"),
    [("TLS", tls), ("LOGIN", scram), ("LOGIN", lambda node: scram(node, "SCRAM-SHA-256")), ("MUTUAL", mutual)],
    ids=["TLS", "SCRAM-SHA-512", "SCRAM-SHA-256", "client certificate"],
)
def test_the_agent_ships_through_each_door(node: Node, listener: str, way: Any) -> None:
    append(node.log, "one\ntwo\n")
    config = node.settings(listener, **way(node))

    assert node.check(config)["problems"] == []
    said = node.end(node.start(config))

    assert node.arrived() == ["one", "two"]
    assert not any(each in said for each in SECRETS)


def wrong_password(node: Node) -> tuple[str, dict[str, str | Path]]:
    node.write_secret("not-the-password-1")
    return "LOGIN", scram(node)


def unknown_authority(node: Node) -> tuple[str, dict[str, str | Path]]:
    return "TLS", tls(node) | {"ssl_cafile": node.broker.stranger.certificate}


def unreadable_key(node: Node) -> tuple[str, dict[str, str | Path]]:
    return "MUTUAL", mutual(node) | {"ssl_keyfile": node.folder / "gone.key"}


def locked_key(node: Node) -> tuple[str, dict[str, str | Path]]:
    settings = mutual(node)
    node.write_secret("not-the-password-1", node.folder / "of-the-key")
    return "MUTUAL", settings


def strange_certificate(node: Node) -> tuple[str, dict[str, str | Path]]:
    pair = node.broker.strange_client
    return "MUTUAL", tls(node) | {"ssl_certfile": pair.certificate, "ssl_keyfile": pair.key}


@pytest.mark.parametrize(
    ("case", "says", "advises"),
    [
        (wrong_password, 'it refuses user "agent"', "correct sasl_username or the password in sasl_password_file"),
        (lambda node: ("LOGIN", scram(node, "PLAIN")), "does not offer sasl_mechanism PLAIN", "set one of them"),
        (unknown_authority, "signed by nobody known here", "set ssl_cafile"),
        (lambda node: ("EXPIRED", tls(node)), "certificate has expired", "renew it there"),
        (lambda node: ("ELSEWHERE", tls(node)), "is not for 127.0.0.1", "use a name that it holds"),
        (lambda node: ("MUTUAL", tls(node)), "wants a client certificate", "set ssl_certfile and ssl_keyfile"),
        (strange_certificate, "does not accept our certificate", "an authority it trusts"),
        (unreadable_key, "gone.key cannot be read", "put it there, or correct the setting"),
        (locked_key, "cannot be used", "the password in ssl_password_file does not open the key"),
        (lambda node: ("TLS", {}), "it speaks TLS", "set security_protocol to SSL"),
        (lambda node: ("INTERNAL", tls(node)), "does not speak TLS there", "use its TLS port"),
        (lambda node: ("LOGIN", tls(node)), "it wants a login", "set security_protocol to SASL_SSL"),
    ],
    ids=[
        "wrong password", "unknown mechanism", "unknown authority", "expired", "other host", "no client certificate",
        "strange client certificate", "no key file", "locked key", "no TLS", "TLS at a plain port", "no login",
    ],
)  # fmt: skip
def test_a_refusal_is_one_sentence_that_says_what_to_do(node: Node, case: Any, says: str, advises: str) -> None:
    listener, kafka = case(node)

    report = node.check(node.settings(listener, **kafka))

    assert not report["kafka"]["answers"]
    assert says in report["kafka"]["problem"]
    assert advises in report["kafka"]["problem"]
    told = [each for each in report["problems"] if each["what"].startswith("Kafka")]
    assert len(told) == 1
    assert told[0]["do"]
    assert report["kafka"]["problem"] in (told[0]["what"], f"{told[0]['what']}; {told[0]['do']}")


def test_a_running_agent_says_once_that_it_is_refused_and_goes_on_when_the_password_file_is_right(node: Node) -> None:
    append(node.log, "one\n")
    node.write_secret("not-the-password-1")
    agent = node.start(node.settings("LOGIN", **scram(node)))
    assert agent.stderr is not None
    assert "ships as" in eventually(agent.stderr.readline, "that it ships")
    first = eventually(agent.stderr.readline, "the refusal is said")
    assert 'it refuses user "agent"' in first

    node.write_secret(PASSWORD)

    eventually(lambda: node.arrived() == ["one"], "the line", 30)
    assert 'it refuses user "agent"' not in node.end(agent)


def test_a_password_that_is_changed_at_the_broker_and_in_the_file_is_used_at_the_next_connection(node: Node) -> None:
    append(node.log, "one\n")
    agent = node.start(node.settings("LOGIN", **scram(node)))
    eventually(lambda: node.arrived() == ["one"], "the first line", 30)
    try:
        node.broker.set_password("not-the-password-1")
        node.write_secret("not-the-password-1")
        node.broker.drop_connections()
        append(node.log, "two\n")
        eventually(lambda: node.arrived() == ["one", "two"], "the second line", 60)
        assert "not-the-password-1" not in node.end(agent)
    finally:
        node.broker.set_password(PASSWORD)


def test_a_key_that_everybody_can_read_is_a_warning_and_no_obstacle(node: Node) -> None:
    append(node.log, "one\n")
    node.secret.chmod(0o644)
    config = node.settings("LOGIN", **scram(node))

    report = node.check(config)
    said = node.end(node.start(config))

    warning = f"sasl_password_file {node.secret} can be read by every user of this machine"
    assert report["problems"] == [{"what": warning, "do": "chmod 600 it"}]
    assert report["kafka"]["answers"]
    assert f"{warning}; chmod 600 it" in said
    assert node.arrived() == ["one"]
