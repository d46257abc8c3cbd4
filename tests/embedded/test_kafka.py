"""The real broker: start, stop, crash, restart."""

import signal
import socket
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from confluent_kafka import Consumer, Producer
from confluent_kafka.admin import AdminClient, NewTopic  # type: ignore[attr-defined]

from pipeline.embedded.errors import EmbeddedError, FolderHeldError, PortTakenError
from pipeline.embedded.kafka import KafkaBroker
from pipeline.embedded.processes import identify, is_running, read_pid_file

pytestmark = pytest.mark.kafka

Wait = Callable[[Callable[[], bool], str], None]
RUN_A_BROKER = """
import sys, pathlib
from pipeline.embedded.kafka import KafkaBroker
print(KafkaBroker(pathlib.Path(sys.argv[1]), jars_dir=pathlib.Path(sys.argv[2])).start(), flush=True)
sys.stdin.read()
"""


@pytest.fixture
def broker(tmp_path: Path, kafka_jars: Path) -> Iterator[KafkaBroker]:
    """A broker of its own, because the test stops or kills it."""
    own = KafkaBroker(tmp_path, jars_dir=kafka_jars)
    yield own
    own.stop()


def make_topic(bootstrap: str, name: str) -> None:
    admin = AdminClient({"bootstrap.servers": bootstrap})
    admin.create_topics([NewTopic(name, num_partitions=1, replication_factor=1)])[name].result(timeout=30)


def send(bootstrap: str, topic: str, *values: bytes) -> None:
    producer = Producer({"bootstrap.servers": bootstrap, "acks": "all"})
    for value in values:
        producer.produce(topic, value)
    assert producer.flush(30) == 0


def read(bootstrap: str, topic: str, count: int) -> list[bytes | None]:
    consumer = Consumer({"bootstrap.servers": bootstrap, "group.id": "reader", "auto.offset.reset": "earliest"})
    consumer.subscribe([topic])
    messages = consumer.consume(count, timeout=30)
    consumer.close()
    return [message.value() for message in messages]


def test_messages_survive_a_kill_and_the_port_stays(broker: KafkaBroker) -> None:
    before = broker.start()
    make_topic(before, "kept")
    send(before, "kept", b"one", b"two")

    broker.kill()
    assert not broker.running
    after = broker.start()

    assert after == before
    assert read(after, "kept", 2) == [b"one", b"two"]


def test_messages_survive_a_clean_stop_and_a_new_object_finds_the_port_again(
    broker: KafkaBroker, tmp_path: Path, kafka_jars: Path
) -> None:
    make_topic(broker.start(), "kept")
    send(broker.bootstrap, "kept", b"one")
    broker.stop()

    again = KafkaBroker(tmp_path, jars_dir=kafka_jars)
    try:
        assert again.start() == broker.bootstrap
        assert read(again.bootstrap, "kept", 1) == [b"one"]
    finally:
        again.stop()


def test_topics_are_made_on_purpose_only(kafka_broker: KafkaBroker) -> None:
    producer = Producer({"bootstrap.servers": kafka_broker.bootstrap, "message.timeout.ms": 2000})
    producer.produce("never-created", b"x")
    producer.flush(10)

    topics = AdminClient({"bootstrap.servers": kafka_broker.bootstrap}).list_topics(timeout=10).topics
    assert "never-created" not in topics


def test_starting_a_running_broker_changes_nothing(kafka_broker: KafkaBroker) -> None:
    pid = kafka_broker.pid

    assert kafka_broker.start() == kafka_broker.bootstrap
    assert kafka_broker.pid == pid


def test_a_second_broker_on_the_folder_is_refused(kafka_jars: Path, broker: KafkaBroker, tmp_path: Path) -> None:
    broker.start()

    with pytest.raises(FolderHeldError, match="stop that one first"):
        KafkaBroker(tmp_path, jars_dir=kafka_jars).start()

    assert broker.running


def test_a_taken_port_that_was_asked_for_is_refused(tmp_path: Path, kafka_jars: Path) -> None:
    with socket.create_server(("127.0.0.1", 0)) as server, pytest.raises(PortTakenError):
        KafkaBroker(tmp_path, jars_dir=kafka_jars, port=server.getsockname()[1]).start()


def test_a_killed_owner_leaves_no_broker_and_the_next_start_works(
    broker: KafkaBroker, tmp_path: Path, kafka_jars: Path, eventually: Wait
) -> None:
    command = [sys.executable, "-c", RUN_A_BROKER, str(tmp_path), str(kafka_jars)]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as owner:
        assert owner.stdout is not None
        bootstrap = owner.stdout.readline().strip()
        record = read_pid_file(tmp_path / "kafka" / "broker.pid")
        assert record is not None
        assert identify(record.part.pid) == record.part
        make_topic(bootstrap, "kept")
        send(bootstrap, "kept", b"one")

        owner.send_signal(signal.SIGKILL)

    eventually(lambda: not is_running(record.part), "the broker outlived its owner")
    assert broker.start() == bootstrap
    assert read(bootstrap, "kept", 1) == [b"one"]


def test_a_format_cut_short_is_done_again(broker: KafkaBroker, tmp_path: Path) -> None:
    half = tmp_path / "kafka" / "data"
    half.mkdir(parents=True)
    (half / "meta.properties").write_text("version=1\n")

    assert broker.start().startswith("127.0.0.1:")


def test_a_folder_with_spaces_and_umlauts_works(tmp_path: Path, kafka_jars: Path) -> None:
    broker = KafkaBroker(tmp_path / "my dätä \\n =", jars_dir=kafka_jars)

    assert broker.start().startswith("127.0.0.1:")
    assert (tmp_path / "my dätä \\n =" / "kafka" / "data" / "meta.properties").exists()
    broker.stop()


def test_a_folder_that_kafka_cannot_use_is_refused(tmp_path: Path, kafka_jars: Path) -> None:
    with pytest.raises(EmbeddedError, match="comma"):
        KafkaBroker(tmp_path / "a,b", jars_dir=kafka_jars).start()
