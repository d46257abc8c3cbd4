"""The sink: reads the topics, writes the tables, then commits. A plain loop without Faust; idempotent throughout.

Poll, turn into rows, insert table by table, write the offsets beside the rows, commit to Kafka. A message that comes
again is skipped by the stored offset; where the process died between the rows and the offset, the rows replace
themselves. While ClickHouse or Kafka is away the loop waits and nothing is committed.
"""

import logging
import socket
import threading
import time
from collections import Counter
from collections.abc import Mapping
from functools import partial
from typing import Any, Final

from kafka import ConsumerRebalanceListener, KafkaConsumer, OffsetAndMetadata, TopicPartition
from kafka.admin import KafkaAdminClient
from kafka.errors import KafkaError, UnknownTopicOrPartitionError
from msgspec import Struct, field

from pipeline.kafka_access import client_options
from pipeline.kafka_client import KafkaClient
from pipeline.store.buffer import Block, Buffer, Place
from pipeline.store.clickhouse import Store
from pipeline.store.errors import StoreError
from pipeline.store.patience import StoppedError, persist
from pipeline.store.rows import Delivery, rows_of
from pipeline.store.settings import StoreSettings
from pipeline.store.sqlfiles import statement
from pipeline.store.tables import SINK_OFFSETS, TABLES
from pipeline.trust.judge import Judge, TrustSettings
from schemas.codec import UnreadableRecordError, decode
from schemas.kafka_access import PLAIN, Access, AccessError
from schemas.topics import CLOCK_SEGMENTS, DEAD_LETTER, EVENTS, INCIDENTS, PLACEMENT, RAW

log = logging.getLogger(__name__)

TOPICS: Final[tuple[str, ...]] = (
    RAW.name, EVENTS.name, INCIDENTS.name, PLACEMENT.name, CLOCK_SEGMENTS.name, DEAD_LETTER.name,
)  # fmt: skip
POLL_MS: Final = 100
# Shippers speak every second: after so long without a word, ask whether the broker is there at all.
SILENCE_S: Final = 5.0
# A consumer that hears nothing for so long although the broker answers may be stuck; another one costs little.
DEAF_S: Final = 20.0
COMMIT_EVERY_S: Final = 0.2
# An answer that has not come by then is not waited for.
COMMIT_AGAIN_S: Final = 5.0
LAST_COMMIT_MS: Final = 5_000
POLL_MESSAGES: Final = 500


class SinkSettings(Struct, frozen=True, kw_only=True):
    """How the sink runs. `access`: how it logs in to Kafka, `trust`: what must be signed."""

    bootstrap: str
    store: StoreSettings
    group: str = "rootrank-store"
    max_rows: int = 20_000
    max_bytes: int = 32 * 1024 * 1024
    max_age_s: float = 1.0
    access: Access = PLAIN
    trust: TrustSettings = TrustSettings()


class SinkCounts(Struct, kw_only=True):
    """What the sink has done since it started; for metrics."""

    rows: Counter[str] = field(default_factory=Counter)
    blocks: int = 0
    skipped: Counter[str] = field(default_factory=Counter)
    unreadable: Counter[str] = field(default_factory=Counter)
    unverified: Counter[str] = field(default_factory=Counter)


class StoreSink:
    """Fills ClickHouse from Kafka until told to stop. One instance is for one thread."""

    def __init__(self, settings: SinkSettings) -> None:
        self.settings = settings
        self.counts = SinkCounts()
        self._store = Store(settings.store)
        self._judge = Judge(settings.trust)
        self.counts.unverified = self._judge.doubts
        self._buffer = Buffer(max_rows=settings.max_rows, max_bytes=settings.max_bytes, max_age_s=settings.max_age_s)
        # Per partition the highest offset that is stored; a partition that is not in here has not been asked for yet.
        self._stored: dict[Place, int] = {}
        # What is stored but not known to be committed, and when to say it next.
        self._to_commit: dict[Place, int] = {}
        self._commit_at_s = 0.0
        self._topic_ids: dict[str, str] = {}
        # When a message last came, and when the broker was last heard of.
        self._spoken_s = 0.0
        self._heard_s = 0.0
        self._stop = threading.Event()

    def run(self, stop: threading.Event) -> None:
        """Work until `stop` is set, then write what is at hand once more. Raises nothing for a service that is away."""
        self._stop = stop
        try:
            while not stop.is_set():
                self._follow(stop)
        except StoppedError:
            log.info("the sink stops while a service is away; what is not committed is read again at the next start")
        finally:
            self._store.close()

    def _follow(self, stop: threading.Event) -> None:
        """Work with one consumer until told to stop, or until it has been deaf for so long that a new one is better."""
        consumer = self._kafka(self._subscribe)
        began_s = time.monotonic()
        try:
            while not stop.is_set() and time.monotonic() - max(self._spoken_s, began_s) < DEAF_S:
                self._step(consumer)
            self._finish(consumer)
        finally:
            consumer.close(autocommit=False)

    def _step(self, consumer: Any) -> None:
        polled = self._kafka(lambda: consumer.poll(timeout_ms=POLL_MS, max_records=POLL_MESSAGES))
        for partition, messages in polled.items():
            place = (partition.topic, partition.partition)
            if place not in self._stored:
                self._stored[place] = self._ask_stored(consumer, partition)
            for message in messages:
                self._take(place, message)
                self._write_if_due(consumer)
        self._write_if_due(consumer)
        self._commit(consumer)
        if polled:
            self._heard_s = self._spoken_s = time.monotonic()
        elif time.monotonic() - self._heard_s > SILENCE_S:
            self._kafka(lambda: _knock(self.settings.bootstrap))
            self._heard_s = time.monotonic()

    def _write_if_due(self, consumer: Any) -> None:
        if self._buffer.due(time.monotonic()):
            block = self._buffer.take()
            self._clickhouse(lambda: self._write(block))
            self._to_commit.update(block.offsets)
            self._commit(consumer)

    def _finish(self, consumer: Any) -> None:
        block = self._buffer.take()
        try:
            if block.offsets:
                self._write(block)
                self._to_commit.update(block.offsets)
            consumer.commit(_mine(consumer, self._to_commit), timeout_ms=LAST_COMMIT_MS)
        except (StoreError, KafkaError) as error:
            log.warning("the end is not written or committed (%s); it is read again at the next start", error)

    def _take(self, place: Place, message: Any) -> None:
        topic = place[0]
        rows: Any = ()
        if message.offset <= self._stored.get(place, -1):
            self.counts.skipped[topic] += 1
        else:
            try:
                record = decode(topic, message.value)
            except UnreadableRecordError as error:
                # Its dead letter is written by the stage that works on the topic; compaction leaves empty messages.
                if message.value is not None:
                    self.counts.unreadable[topic] += 1
                    log.debug("%s/%d offset %d: %s", *place, message.offset, error)
            else:
                judged = self._judge.examine(record, message.value, message.timestamp * 1_000_000)
                delivery = Delivery(timestamp_ms=message.timestamp, offset=message.offset, partition=place[1])
                rows = rows_of(judged, delivery)
        size = len(message.value or b"")
        self._buffer.add(place, message.offset, rows, size=size, now_s=time.monotonic())

    def _write(self, block: Block) -> None:
        for table in TABLES:
            rows = block.rows.get(table.name)
            if rows:
                self._store.insert(table, rows)
        self._store.insert(
            SINK_OFFSETS,
            [
                (self.settings.group, topic, self._topic_ids[topic], partition, offset)
                for (topic, partition), offset in block.offsets.items()
            ],
        )
        self.counts.blocks += 1
        for name, rows in block.rows.items():
            self.counts.rows[name] += len(rows)

    # --- Kafka ---------------------------------------------------------------------------------------------------

    def _commit(self, consumer: Any) -> None:
        """Tell Kafka what is stored, without waiting: the stored offsets alone keep rows from coming twice."""
        now_s = time.monotonic()
        if not self._to_commit or now_s < self._commit_at_s:
            return
        self._commit_at_s = now_s + COMMIT_AGAIN_S
        asked = dict(self._to_commit)
        consumer.commit_async(_mine(consumer, asked), callback=partial(self._committed, asked))

    def _committed(self, asked: dict[Place, int], _offsets: Any, result: Any) -> None:
        self._commit_at_s = time.monotonic() + COMMIT_EVERY_S
        if isinstance(result, Exception):
            log.debug("offsets are not committed yet: %s", result)
            return
        for place, offset in asked.items():
            if self._to_commit.get(place) == offset:
                del self._to_commit[place]

    def _subscribe(self) -> Any:
        # The client logs every attempt to reconnect; the sink says once that the broker is away.
        logging.getLogger("kafka").setLevel(logging.CRITICAL)
        _knock(self.settings.bootstrap)
        options = {
            "bootstrap_servers": self.settings.bootstrap, "bootstrap_timeout_ms": 10_000,
            **client_options(self.settings.access),
        }  # fmt: skip
        admin = KafkaAdminClient(**options)
        try:
            described = admin.describe_topics(list(TOPICS))
        finally:
            admin.close()
        if missing := [topic["name"] for topic in described if topic["error_code"]]:
            raise UnknownTopicOrPartitionError(
                f"topics {', '.join(missing)} do not exist yet (the worker creates them)"
            )
        self._topic_ids = {topic["name"]: str(topic["topic_id"]) for topic in described}
        consumer = KafkaConsumer(
            kafka_client=KafkaClient,
            group_id=self.settings.group,
            enable_auto_commit=False,
            auto_offset_reset="earliest",
            session_timeout_ms=6_000,
            heartbeat_interval_ms=2_000,
            metadata_max_age_ms=5_000,  # a broker that has just started may not know all topics at the first assignment
            fetch_max_bytes=64 * 1024 * 1024,
            max_partition_fetch_bytes=16 * 1024 * 1024,
            **options,
        )
        consumer.subscribe(list(TOPICS), listener=_Forget(self._stored))
        return consumer

    def _ask_stored(self, consumer: Any, partition: Any) -> int:
        parameters = {
            "sink": self.settings.group,
            "topic": partition.topic,
            "topic_id": self._topic_ids[partition.topic],
        }
        rows = self._clickhouse(lambda: self._store.rows(statement("sink_offsets"), parameters))
        stored = next((int(offset) for number, offset in rows if number == partition.partition), -1)
        # As of the last fetch; asking the broker would block for half a minute where it has just died.
        end = consumer.highwater(partition)
        if end is not None and stored >= end:
            log.warning(
                "%s/%d: offset %d is stored but Kafka ends at %d: the topic has lost messages; storing from here on",
                partition.topic, partition.partition, stored, end,
            )  # fmt: skip
            return -1
        return stored

    def _kafka(self, call: Any) -> Any:
        return persist(call, failures=(KafkaError, AccessError, OSError), stop=self._stop)

    def _clickhouse(self, call: Any) -> Any:
        return persist(call, failures=(StoreError,), stop=self._stop)


def _mine(consumer: Any, offsets: Mapping[Place, int]) -> dict[Any, Any]:
    """Offsets as Kafka wants them, of the partitions this sink holds. Those of others are stored all the same."""
    held = consumer.assignment()
    return {
        partition: OffsetAndMetadata(offset + 1, "", -1)
        for (topic, number), offset in offsets.items()
        if (partition := TopicPartition(topic, number)) in held
    }


def _knock(bootstrap: str) -> None:
    """Raise unless one of the brokers takes a connection. Quicker than Kafka's clients, and silent."""
    why: OSError | None = None
    for server in bootstrap.split(","):
        host, _, port = server.strip().rpartition(":")
        try:
            socket.create_connection((host.strip("[]"), int(port)), timeout=5).close()
        except OSError as error:
            why = error
        else:
            return
    raise ConnectionError(f"Kafka at {bootstrap} does not answer ({why})")


class _Forget(ConsumerRebalanceListener):  # type: ignore[misc]
    """After every assignment what is stored is asked again: another sink may have written meanwhile."""

    def __init__(self, stored: dict[Place, int]) -> None:
        self._stored = stored

    def on_partitions_revoked(self, revoked: Any) -> None:
        """Nothing: rows at hand are written with the next block."""

    def on_partitions_assigned(self, assigned: Any) -> None:
        """Forget all partitions, kept ones too."""
        self._stored.clear()
