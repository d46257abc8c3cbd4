"""The sink between a real broker and a real engine: nothing lost, nothing twice, whatever is killed."""

import logging
import os
import subprocess
import sys
import threading
import uuid
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from typing import Any

import pytest
from kafka import KafkaConsumer, KafkaProducer, OffsetAndMetadata, TopicPartition
from kafka.admin import KafkaAdminClient, NewTopic

from pipeline.embedded.clickhouse import ClickHouseServer
from pipeline.embedded.kafka import KafkaBroker
from pipeline.kafka_client import KafkaClient
from pipeline.store import migrations
from pipeline.store.clickhouse import Store
from pipeline.store.sink import TOPICS, SinkSettings, StoreSink
from schemas import topics
from schemas.codec import encode
from tests.store import seed
from tests.store.conftest import eventually, new_database, url_of, value

pytestmark = [pytest.mark.kafka, pytest.mark.clickhouse]
ROOT = Path(__file__).parents[2]
PROGRAM = Path(__file__).with_name("sink_process.py")


class Wire:
    """The topics, seen by one test: what it sends carries its own run id, so that tests share a broker."""

    def __init__(self, bootstrap: str) -> None:
        self.bootstrap = bootstrap
        self.run_id = uuid.uuid4().hex
        self.group = f"sink-{self.run_id}"
        self._producer: Any = None

    def send(self, topic: str, key: str, data: bytes) -> None:
        if self._producer is None:
            self._producer = KafkaProducer(bootstrap_servers=self.bootstrap, linger_ms=5)
        self._producer.send(topic, key=key.encode(), value=data)

    def hang_up(self) -> None:
        """Send what is left and close the connection; the next message opens another one."""
        if self._producer is not None:
            self._producer.flush(30)
            self._producer.close()
            self._producer = None

    def lines(self, first: int, count: int, *, size: int = 50, reporter: str = "n1") -> None:
        """`count` batches of `size` lines."""
        for i in range(first, first + count):
            batch = seed.batch(reporter, seq=i, first=i * size, lines=size, run_id=self.run_id)
            self.send("raw", f"c1/{reporter}", encode(batch))
        self.hang_up()

    def caught_up(self) -> bool:
        """Whether the group has committed every message."""
        consumer = KafkaConsumer(
            bootstrap_servers=self.bootstrap, group_id=self.group, enable_auto_commit=False, kafka_client=KafkaClient
        )
        try:
            parts = [TopicPartition(name, p) for name in TOPICS for p in range(topics.BY_NAME[name].partitions)]
            ends = consumer.end_offsets(parts)
            return all((consumer.committed(part) or 0) >= end for part, end in ends.items())
        finally:
            consumer.close(autocommit=False)

    def rewind(self) -> None:
        """Set the group back to the start of every topic, as after a lost commit."""
        admin = KafkaAdminClient(bootstrap_servers=self.bootstrap)
        parts = [TopicPartition(name, p) for name in TOPICS for p in range(topics.BY_NAME[name].partitions)]
        admin.alter_group_offsets(self.group, {part: OffsetAndMetadata(0, "", -1) for part in parts})
        admin.close()


def create_topics(bootstrap: str, *names: str) -> None:
    admin = KafkaAdminClient(bootstrap_servers=bootstrap)
    known = set(admin.list_topics())
    wanted = [t for t in topics.TOPICS if t.name in names and t.name not in known]
    if wanted:
        admin.create_topics(
            [NewTopic(t.name, t.partitions, 1, topic_configs={"cleanup.policy": t.cleanup}) for t in wanted]
        )
    admin.close()


@pytest.fixture(scope="module")
def broker(kafka_jars: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[KafkaBroker]:
    """A broker for this file alone: the topics have their real names, and one test kills it."""
    broker = KafkaBroker(tmp_path_factory.mktemp("kafka"), jars_dir=kafka_jars)
    broker.start()
    yield broker
    broker.stop()


@pytest.fixture
def wire(broker: KafkaBroker) -> Iterator[Wire]:
    create_topics(broker.bootstrap, *TOPICS)
    wire = Wire(broker.bootstrap)
    yield wire
    wire.hang_up()


def settings_for(store: Store, wire: Wire) -> SinkSettings:
    return SinkSettings(bootstrap=wire.bootstrap, store=store.settings, group=wire.group, max_rows=2_000, max_age_s=0.1)


@contextmanager
def running(settings: SinkSettings) -> Iterator[StoreSink]:
    """A sink in a thread."""
    sink, stop = StoreSink(settings), threading.Event()
    thread = threading.Thread(target=sink.run, args=(stop,))
    thread.start()
    try:
        yield sink
    finally:
        stop.set()
        thread.join(30)
        assert not thread.is_alive()


@contextmanager
def process(store: Store, wire: Wire, log: Path | None = None) -> Iterator[Callable[[], None]]:
    """A sink in a process, its standard error in `log`; what is yielded kills it with -9."""
    with (log or Path(os.devnull)).open("wb") as output:
        child = subprocess.Popen(
            [sys.executable, str(PROGRAM), wire.bootstrap, url_of(store.settings), wire.group],
            env={**os.environ, "PYTHONPATH": str(ROOT)}, stderr=output,
        )  # fmt: skip

    def kill() -> None:
        child.kill()
        child.wait()

    try:
        yield kill
    finally:
        kill()


def counts(store: Store, wire: Wire) -> tuple[int, int]:
    sql = f"SELECT count(), uniqExact(line_id) FROM raw_lines WHERE run_id = '{wire.run_id}'"
    count, distinct = store.rows(sql)[0]
    return count, distinct


def more_than(store: Store, wire: Wire, count: int) -> bool:
    return counts(store, wire)[0] > count


def test_every_record_reaches_its_table(store: Store, wire: Wire) -> None:
    wire.lines(0, 4)
    wire.send("raw", "c1/n1", encode(seed.progress()))
    wire.send("events", "c1/job7/0", encode(seed.event_batch([seed.event(1), seed.event(2)])))
    wire.send("incidents", "i1", encode(seed.incident()))
    wire.send("placement", "c1/n1", encode(seed.placement()))
    wire.send("clock.segments", "c1/n1/b1/1", encode(seed.segment()))
    wire.send("clock.segments", "c1/n1/b1/1", encode(seed.segment(at_s=16, half_ns=400_000)))
    wire.send("dead.letter", "raw/2/7", encode(seed.dead_letter()))
    wire.hang_up()
    with running(settings_for(store, wire)):
        eventually(wire.caught_up, "everything is committed")
        assert counts(store, wire) == (200, 200)
        for table, count in {
            "events": 2,
            "event_jobs": 2,
            "incidents": 1,
            "chain_steps": 2,
            "placement": 2,
            "clock_segments": 2,
        }.items():
            assert value(store, f"SELECT count() FROM {table}") >= count, table
        assert value(store, "SELECT count() FROM dead_letters WHERE partition = 2 AND offset = 7") == 1
        assert value(store, "SELECT count() FROM progress WHERE reporter = 'n1'") == 2
        assert store.rows("SELECT node, bound_ns FROM clocks") == [("n1", 401_000)]


def test_garbage_between_good_messages_is_counted_and_passed(store: Store, wire: Wire) -> None:
    wire.lines(0, 2)
    for garbage in (b"\xff\xfe", b"", b"{}", b'{"record":"raw_batch","v":99}', encode(seed.batch())[:-30]):
        wire.send("raw", "c1/n1", garbage)
    wire.lines(2, 2)
    with running(settings_for(store, wire)) as sink:
        eventually(wire.caught_up, "everything is committed")
        assert sink.counts.unreadable["raw"] >= 5
    assert counts(store, wire) == (200, 200)


def test_messages_that_come_again_are_skipped(store: Store, wire: Wire) -> None:
    wire.lines(0, 10)
    with running(settings_for(store, wire)):
        eventually(wire.caught_up, "everything is committed")
    wire.rewind()
    wire.lines(10, 1)
    with running(settings_for(store, wire)) as sink:
        eventually(wire.caught_up, "everything is committed again")
        assert sink.counts.skipped["raw"] >= 10
        assert sink.counts.rows["raw_lines_rows"] == 50
    assert counts(store, wire) == (550, 550)


@pytest.mark.slow
def test_a_sink_killed_again_and_again_stores_each_line_once(store: Store, wire: Wire) -> None:
    sent = 0
    for _ in range(3):
        with process(store, wire) as kill:
            before = counts(store, wire)[0]
            wire.lines(sent, 60)
            sent += 60
            eventually(partial(more_than, store, wire, before), "some lines are stored")
            kill()
        count, distinct = counts(store, wire)
        assert count == distinct
    with running(settings_for(store, wire)):
        eventually(wire.caught_up, "the last sink is through")
        assert counts(store, wire) == (sent * 50, sent * 50)


@pytest.mark.slow
def test_two_sinks_share_the_work_and_store_each_line_once(store: Store, wire: Wire) -> None:
    with running(settings_for(store, wire)):
        for i in range(10):
            wire.lines(0, 10, reporter=f"m{i}")
        with running(settings_for(store, wire)):
            for i in range(10):
                wire.lines(10, 10, reporter=f"m{i}")
            eventually(wire.caught_up, "both are through")
            assert counts(store, wire) == (10_000, 10_000)


def test_a_topic_created_again_is_stored_from_its_start(store: Store, wire: Wire) -> None:
    for node in ("a", "b", "c"):
        wire.send("placement", f"c1/{node}", encode(seed.placement(node=node)))
    wire.hang_up()
    with running(settings_for(store, wire)):
        eventually(wire.caught_up, "the first topic is stored")
    admin = KafkaAdminClient(bootstrap_servers=wire.bootstrap)
    admin.delete_topics(["placement"])
    eventually(lambda: "placement" not in admin.list_topics(), "the topic is gone")
    admin.delete_group_offsets(wire.group, [TopicPartition("placement", p) for p in range(4)])
    admin.close()
    create_topics(wire.bootstrap, "placement")
    wire.send("placement", "c1/d", encode(seed.placement(node="d")))
    wire.hang_up()
    with running(settings_for(store, wire)):
        eventually(lambda: value(store, "SELECT count() FROM placement WHERE node = 'd'") == 2, "node d is stored")


@pytest.mark.slow
def test_an_engine_killed_in_the_middle_is_waited_for_and_nothing_is_lost(
    wire: Wire, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    server = ClickHouseServer(tmp_path)
    server.start()
    with new_database(server.url) as store:
        migrations.apply(store, migrations.load_migrations())
        with caplog.at_level(logging.INFO), running(settings_for(store, wire)):
            wire.lines(0, 40)
            eventually(partial(more_than, store, wire, 0), "some lines are stored")
            server.kill()
            wire.lines(40, 40)
            eventually(lambda: "does not answer" in caplog.text, "the sink says that it waits")
            server.start()
            eventually(wire.caught_up, "everything is committed")
        assert counts(store, wire) == (4000, 4000)
    server.stop()
    assert len([r for r in caplog.records if "waiting" in r.getMessage()]) == 1


@pytest.mark.slow
def test_a_broker_killed_in_the_middle_is_waited_for_said_once_and_nothing_is_lost(
    store: Store, wire: Wire, broker: KafkaBroker, tmp_path: Path
) -> None:
    log = tmp_path / "sink.log"
    with process(store, wire, log):
        wire.lines(0, 40)
        eventually(partial(more_than, store, wire, 0), "some lines are stored")
        broker.kill()
        eventually(lambda: "waiting" in log.read_text(), "the sink says that it waits")
        broker.start()
        wire.lines(40, 40)
        eventually(wire.caught_up, "everything is committed")
        assert counts(store, wire) == (4000, 4000)
    # Other lines may stand there too: a commit that the broker's death cut off is said as well.
    said = [line for line in log.read_text().splitlines() if "does not answer" in line or "answers again" in line]
    assert len(said) == 2, said
    assert "does not answer" in said[0]
    assert "answers again" in said[1]


def test_a_broker_that_is_not_there_is_waited_for_and_said_once(store: Store, caplog: pytest.LogCaptureFixture) -> None:
    settings = SinkSettings(bootstrap="127.0.0.1:1", store=store.settings, group="g")
    with caplog.at_level(logging.WARNING, logger="pipeline"), running(settings):
        eventually(lambda: caplog.records, "it says that it waits")
    assert len([r for r in caplog.records if r.name.startswith("pipeline")]) == 1
