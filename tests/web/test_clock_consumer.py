"""Clocks from a real broker: the last hour, then what comes; a topic that is not there holds nothing up."""

import asyncio
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest
from kafka import KafkaProducer
from kafka.admin import KafkaAdminClient, NewTopic

from pipeline.embedded.kafka import KafkaBroker
from pipeline.metrics import Metrics
from pipeline.web.clocks import FORGET_MS
from pipeline.web.consumer import KafkaClocks, KafkaIncidents
from pipeline.web.feed import Feed
from pipeline.web.query import ClockQuery
from schemas.codec import encode
from schemas.records import ClockSegment, Incident
from schemas.topics import CLOCK_SEGMENTS, INCIDENTS, VERDICTS
from tests.web.clocks import S, segment

pytestmark = pytest.mark.kafka
Eventually = Callable[[Callable[[], bool]], Awaitable[None]]


@pytest.fixture
def bootstrap(kafka_jars: Path, tmp_path: Path) -> Iterator[str]:
    """A broker for one test: the topics have their real names, and one is missing at first."""
    broker = KafkaBroker(tmp_path / "kafka", jars_dir=kafka_jars)
    broker.start()
    yield broker.bootstrap
    broker.stop()


def create(bootstrap: str, *names: str, stamp: str = "LogAppendTime") -> None:
    admin = KafkaAdminClient(bootstrap_servers=bootstrap)
    admin.create_topics(
        [NewTopic(name, 2, 1, topic_configs={"message.timestamp.type": stamp}) for name in names]
    )  # fmt: skip
    admin.close()


def send(bootstrap: str, *told: ClockSegment | Incident | bytes | None, topic: str, at_ms: int | None = None) -> None:
    producer: Any = KafkaProducer(bootstrap_servers=bootstrap)
    for one in told:
        value = encode(one) if isinstance(one, ClockSegment | Incident) else one
        key = one.node if isinstance(one, ClockSegment) else "k"
        producer.send(topic, key=key.encode(), value=value, timestamp_ms=at_ms)
    producer.flush(30)
    producer.close()


@asynccontextmanager
async def following(source: KafkaClocks | KafkaIncidents, feed: Feed) -> AsyncIterator[None]:
    task = asyncio.create_task(source.follow(feed))
    try:
        yield
    finally:
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)


def nodes(feed: Feed) -> list[str]:
    return sorted(clock.node for clock in feed.clocks.select(ClockQuery(), time.time_ns() // 1_000_000))


async def test_a_topic_that_is_not_there_is_named_and_incidents_do_not_wait_for_it(
    bootstrap: str, eventually: Eventually, fell_off: Incident
) -> None:
    create(bootstrap, INCIDENTS.name, VERDICTS.name)
    send(bootstrap, fell_off, topic=INCIDENTS.name)
    feed, metrics = Feed(), Metrics()
    clocks = KafkaClocks(bootstrap=bootstrap, metrics=metrics)
    incidents = KafkaIncidents(bootstrap=bootstrap, metrics=metrics)
    async with following(clocks, feed), following(incidents, feed):
        await eventually(lambda: len(feed) == 1 and incidents.health().ok)
        await eventually(lambda: "clock.segments" in clocks.health().reason)

        create(bootstrap, CLOCK_SEGMENTS.name)
        send(bootstrap, segment(), topic=CLOCK_SEGMENTS.name)

        await eventually(lambda: clocks.health().ok and nodes(feed) == ["gpu-001"])


async def test_the_last_hour_is_read_and_what_comes_is_followed_and_its_jumps_are_counted(
    bootstrap: str, eventually: Eventually
) -> None:
    create(bootstrap, CLOCK_SEGMENTS.name, stamp="CreateTime")
    now_ms = time.time_ns() // 1_000_000
    old = [segment(f"old-{n}") for n in range(8)]
    recent = [segment(f"new-{n}", wall_step_ns=S) for n in range(8)]
    send(bootstrap, *old, topic=CLOCK_SEGMENTS.name, at_ms=now_ms - FORGET_MS - 600_000)
    send(bootstrap, *recent, topic=CLOCK_SEGMENTS.name, at_ms=now_ms - 60_000)
    feed, metrics = Feed(), Metrics()
    source = KafkaClocks(bootstrap=bootstrap, metrics=metrics)
    async with following(source, feed):
        await eventually(lambda: source.health().ok)
        assert len(feed.clocks) == 8
        assert nodes(feed) == [f"new-{n}" for n in range(8)]
        assert b"rootrank_clock_wall_steps_total 0.0" in metrics.text()

        jumped = segment("new-3", wall_step_ns=-S, t_from_raw_ns=16 * S, t_to_raw_ns=32 * S)
        send(bootstrap, None, b"\xff garbage", jumped, topic=CLOCK_SEGMENTS.name)

        await eventually(lambda: b"rootrank_clock_wall_steps_total 1.0" in metrics.text())
        await eventually(lambda: b'rootrank_dead_letters_total{stage="feed"} 1.0' in metrics.text())
    assert source.health().state == "stopped"


async def test_a_feed_that_starts_again_counts_no_jump_twice(bootstrap: str, eventually: Eventually) -> None:
    create(bootstrap, CLOCK_SEGMENTS.name)
    feed, metrics = Feed(), Metrics()
    for _ in range(2):
        source = KafkaClocks(bootstrap=bootstrap, metrics=metrics)
        async with following(source, feed):
            await eventually(lambda source=source: source.health().ok)  # type: ignore[misc]
            if not len(feed.clocks):
                send(bootstrap, segment(wall_step_ns=S), topic=CLOCK_SEGMENTS.name)
            await eventually(lambda: b"rootrank_clock_wall_steps_total 1.0" in metrics.text())
    assert b"rootrank_clock_wall_steps_total 1.0" in metrics.text()
