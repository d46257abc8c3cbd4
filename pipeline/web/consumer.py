"""Fills the feed from Kafka, without a group: from `incidents` and `verdicts` from their beginning, from
`clock.segments` the last hour.

Of verdicts only what an incident does not tell is kept: nodes of a job, endings that are no incident. Clocks have a
connection of their own, so that incidents never wait for them. aiokafka stays in this file.
"""

import asyncio
import contextlib
import logging
import time
from dataclasses import dataclass, field
from typing import Final

from aiokafka import AIOKafkaConsumer, ConsumerRecord, TopicPartition
from aiokafka.errors import KafkaError

from pipeline.kafka_access import client_options
from pipeline.metrics import Metrics
from pipeline.report.words import instant_ns
from pipeline.web.clocks import FORGET_MS
from pipeline.web.feed import Feed
from pipeline.web.health import Health
from schemas.codec import UnreadableRecordError, decode
from schemas.kafka_access import PLAIN, Access, AccessError
from schemas.records import ClockSegment, Incident, Verdict
from schemas.topics import CLOCK_SEGMENTS, INCIDENTS, VERDICTS

_LOG: Final = logging.getLogger(__name__)
# How long any question to a broker may take before it counts as gone.
_ANSWER_S: Final = 5.0
_POLL_MS: Final = 500
_SHORTLY_S: Final = 0.02
# Of a partition of clocks at most so many messages are read at the start; an hour of a thousand nodes is less.
_CLOCKS_AT_MOST: Final = 100_000


@dataclass(kw_only=True)
class _Follower:
    """Follows topics for ever: waits for a broker that is away, says so once, goes on where it was."""

    bootstrap: str
    metrics: Metrics
    access: Access = PLAIN
    backoff_s: tuple[float, ...] = (0.5, 1, 2, 4, 8)
    ask_s: float = 5.0
    attempts: int = field(default=0, init=False)
    _health: Health = field(default_factory=lambda: Health(state="starting", reason="not connected yet"), init=False)
    _unreadable: int = field(default=0, init=False)
    _topics: tuple[str, ...] = field(default=(), init=False)
    _what: str = field(default="", init=False)

    def health(self) -> Health:
        """Whether the feed is the present."""
        return self._health

    async def follow(self, feed: Feed) -> None:
        """Read until cancelled. Re-reading is harmless: the feed knows what it has."""
        try:
            await self._follow(feed)
        except Exception:
            _LOG.exception("the %s consumer failed", self._what)
            raise
        finally:
            self._health = Health(state="stopped", reason="the consumer has ended; see the log, restart the web feed")

    async def _follow(self, feed: Feed) -> None:
        failures = 0
        while True:
            self.attempts += 1
            try:
                await self._session(feed)
            except (KafkaError, AccessError, OSError, TimeoutError, asyncio.CancelledError) as error:
                # aiokafka lets its own cancelled futures out when a broker dies in the middle of a question.
                if _is_being_cancelled():
                    raise
                failures = 0 if self._health.ok else failures + 1
                self._say_unreachable(error)
                await asyncio.sleep(self.backoff_s[min(failures, len(self.backoff_s) - 1)])

    def _say_unreachable(self, error: BaseException) -> None:
        if self._health.state != "unreachable":
            _LOG.warning("Kafka at %s cannot be reached (%r); waiting for it", self.bootstrap, error)
        reason = f"Kafka at {self.bootstrap} cannot be reached; the page shows what was known before"
        self._health = Health(state="unreachable", reason=reason, unreadable=self._unreadable)

    async def _session(self, feed: Feed) -> None:
        consumer = AIOKafkaConsumer(
            bootstrap_servers=self.bootstrap, group_id=None, enable_auto_commit=False, auto_offset_reset="earliest",
            client_id="rootrank-web", request_timeout_ms=10_000, metadata_max_age_ms=30_000,
            max_partition_fetch_bytes=INCIDENTS.max_message_bytes, **client_options(self.access),
        )  # fmt: skip
        try:
            await consumer.start()
            partitions = await self._assigned(consumer)
            await self._begin(consumer, partitions)
            await self._read(consumer, partitions, feed)
        finally:
            with contextlib.suppress(KafkaError, OSError, TimeoutError):
                await consumer.stop()

    async def _assigned(self, consumer: AIOKafkaConsumer) -> list[TopicPartition]:
        # Asking for all topics, because asking for one would make the broker create it with wrong settings.
        while missing := set(self._topics) - await asyncio.wait_for(consumer.topics(), _ANSWER_S):
            self._health = Health(state="starting", reason=f"waiting for the topic {min(missing)} to be created")
            await asyncio.sleep(self.backoff_s[0])
        # Without a group, a subscription is all partitions from their beginning.
        consumer.subscribe(self._topics)
        async with asyncio.timeout(_ANSWER_S):
            while not consumer.assignment():  # noqa: ASYNC110 (aiokafka has no event for it)
                await asyncio.sleep(_SHORTLY_S)
        return sorted(consumer.assignment())

    async def _begin(self, consumer: AIOKafkaConsumer, partitions: list[TopicPartition]) -> None:
        """Choose where to begin; the beginning where nothing is done here."""

    async def _read(self, consumer: AIOKafkaConsumer, partitions: list[TopicPartition], feed: Feed) -> None:
        loop = asyncio.get_running_loop()
        ask_at = loop.time()
        while True:
            # A broker that is gone shows as silence in getmany, so ask it something now and then.
            if self._health.state != "following" or loop.time() >= ask_at:
                await self._ask(consumer, partitions)
                ask_at = loop.time() + self.ask_s
            batches = await consumer.getmany(*partitions, timeout_ms=_POLL_MS)
            for messages in batches.values():
                for message in messages:
                    self._take(message, feed)

    async def _ask(self, consumer: AIOKafkaConsumer, partitions: list[TopicPartition]) -> None:
        ends = await asyncio.wait_for(consumer.end_offsets(partitions), _ANSWER_S)
        positions = [await asyncio.wait_for(consumer.position(partition), _ANSWER_S) for partition in partitions]
        lags = dict.fromkeys(self._topics, 0)
        for partition, at in zip(partitions, positions, strict=True):
            lags[partition.topic] += max(0, ends[partition] - at)
        for topic, behind in lags.items():
            self.metrics.consumer_lag.labels(topic=topic).set(behind)
        lag = sum(lags.values())
        if self._health.state == "following" or lag == 0:
            if self._health.state == "unreachable":
                _LOG.warning("Kafka at %s answers again", self.bootstrap)
            self._health = Health(state="following", unreadable=self._unreadable)
        elif self._health.state == "starting":
            self._health = Health(state="starting", reason=f"reading {lag} older messages", unreadable=self._unreadable)

    def _take(self, message: ConsumerRecord, feed: Feed) -> None:
        # Compaction leaves empty messages where a key was deleted.
        if message.value is None:
            return
        try:
            self._apply(decode(message.topic, message.value), message.timestamp, feed)
        except UnreadableRecordError as error:
            self._unreadable += 1
            self.metrics.dead_letters.labels(stage="feed").inc()
            at = f"{message.topic}/{message.partition}/{message.offset}"
            _LOG.warning("message %s cannot be used (%s); skipped", at, error)

    def _apply(self, record: Incident | Verdict | ClockSegment, timestamp_ms: int, feed: Feed) -> None:
        raise NotImplementedError


@dataclass(kw_only=True)
class KafkaIncidents(_Follower):
    """Incidents and verdicts; its health is the feed's."""

    def __post_init__(self) -> None:
        """Say what to follow."""
        self._topics, self._what = (INCIDENTS.name, VERDICTS.name), "incident"

    def _apply(self, record: Incident | Verdict | ClockSegment, timestamp_ms: int, feed: Feed) -> None:
        if isinstance(record, Verdict):
            feed.jobs.apply(record)
        elif isinstance(record, Incident) and feed.apply(record) and record.revision == 1:
            self._count(record)

    def _count(self, incident: Incident) -> None:
        self.metrics.incidents.labels(domain=incident.class_.split("/")[0], run=incident.run).inc()
        if incident.run == "live" and incident.started_at and incident.detected_at:
            took_s = (instant_ns(incident.detected_at) - instant_ns(incident.started_at)) / 1e9
            self.metrics.event_to_incident.observe(max(0.0, took_s))


@dataclass(kw_only=True)
class KafkaClocks(_Follower):
    """Clock segments. Its health is its own: without clocks the feed is still the feed."""

    def __post_init__(self) -> None:
        """Say what to follow."""
        self._topics, self._what = (CLOCK_SEGMENTS.name,), "clock"

    async def _begin(self, consumer: AIOKafkaConsumer, partitions: list[TopicPartition]) -> None:
        # The topic holds a week: from the beginning would be millions of messages.
        since_ms = int(time.time() * 1_000) - FORGET_MS
        found = await asyncio.wait_for(consumer.offsets_for_times(dict.fromkeys(partitions, since_ms)), _ANSWER_S)
        ends = await asyncio.wait_for(consumer.end_offsets(partitions), _ANSWER_S)
        for partition in partitions:
            first = found[partition].offset if found.get(partition) else ends[partition]
            consumer.seek(partition, max(first, ends[partition] - _CLOCKS_AT_MOST, 0))

    def _apply(self, record: Incident | Verdict | ClockSegment, timestamp_ms: int, feed: Feed) -> None:
        # What is read at the start was counted by whoever ran then.
        jumped = isinstance(record, ClockSegment) and feed.clocks.apply(record, timestamp_ms)
        if jumped and self._health.ok:
            self.metrics.clock_wall_steps.inc()


def _is_being_cancelled() -> bool:
    task = asyncio.current_task()
    return task is not None and task.cancelling() > 0
