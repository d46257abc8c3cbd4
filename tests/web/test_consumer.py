"""The consumer against librdkafka's in-process broker, which speaks the wire protocol on a loopback port."""

import asyncio
import socket
from collections.abc import Awaitable, Callable, Iterator

import msgspec
import pytest
from confluent_kafka import Producer

from pipeline.metrics import Metrics
from pipeline.web.consumer import KafkaIncidents
from pipeline.web.feed import Feed
from schemas.codec import encode
from schemas.records import Incident, Verdict
from schemas.topics import INCIDENTS, VERDICTS

replace = msgspec.structs.replace
Eventually = Callable[[Callable[[], bool]], Awaitable[None]]


class Broker:
    """A broker that lives as long as its producer."""

    def __init__(self) -> None:
        self.producer: Producer | None = Producer(
            {"bootstrap.servers": "mock", "test.mock.num.brokers": 1, "log_level": 0}
        )
        broker = next(iter(self.producer.list_topics(timeout=10).brokers.values()))
        self.bootstrap = f"127.0.0.1:{broker.port}"

        for topic in (INCIDENTS.name, VERDICTS.name):
            self.producer.list_topics(topic, timeout=10)

    def send(self, value: bytes, key: bytes = b"k", topic: str = INCIDENTS.name) -> None:
        assert self.producer is not None
        self.producer.produce(topic, value=value, key=key)
        assert self.producer.flush(10) == 0


@pytest.fixture
def broker() -> Iterator[Broker]:
    one = Broker()
    yield one
    one.producer = None


async def stop(task: "asyncio.Task[None]") -> None:
    task.cancel()
    await asyncio.gather(task, return_exceptions=True)


async def test_the_feed_is_filled_from_the_beginning_and_then_followed(
    broker: Broker, eventually: Eventually, fell_off: Incident, timed_out: Incident
) -> None:
    broker.send(encode(replace(fell_off, revision=1)))
    broker.send(encode(fell_off))
    feed, source = Feed(), KafkaIncidents(bootstrap=broker.bootstrap, metrics=Metrics())
    assert not source.health().ok

    task = asyncio.create_task(source.follow(feed))
    try:
        await eventually(lambda: source.health().ok)
        assert feed.get(fell_off.incident_id) == fell_off

        broker.send(encode(timed_out))
        await eventually(lambda: feed.get(timed_out.incident_id) == timed_out)
    finally:
        await stop(task)


async def test_of_verdicts_the_nodes_of_a_job_are_kept(
    broker: Broker, eventually: Eventually, fell_off: Incident
) -> None:
    verdict = Verdict(verdict_id="v", job_key="borealis/7/1", incident=fell_off, nodes=["bor-1", "bor-2"])
    broker.send(encode(verdict), topic=VERDICTS.name)
    feed, source = Feed(), KafkaIncidents(bootstrap=broker.bootstrap, metrics=Metrics())

    task = asyncio.create_task(source.follow(feed))
    try:
        await eventually(lambda: source.health().ok)
    finally:
        await stop(task)

    (attempt,) = feed.jobs.of_job("7", "live", "")
    assert (attempt.attempt, attempt.all_nodes()) == (1, ["bor-1", "bor-2"])
    assert len(feed) == 0


async def test_what_is_not_an_incident_is_counted_and_its_neighbours_are_shown(
    broker: Broker, eventually: Eventually, fell_off: Incident, timed_out: Incident
) -> None:
    metrics = Metrics()
    for value in (encode(fell_off), b"\xff\x00 garbage", b'{"record": "incident", "v": 99}', encode(timed_out)):
        broker.send(value)
    feed, source = Feed(), KafkaIncidents(bootstrap=broker.bootstrap, metrics=metrics)

    task = asyncio.create_task(source.follow(feed))
    try:
        await eventually(lambda: len(feed) == 2 and source.health().ok)
    finally:
        await stop(task)

    assert b'rootrank_dead_letters_total{stage="feed"} 2.0' in metrics.text()


async def test_a_broker_that_is_away_is_waited_for_and_said_once(
    eventually: Eventually, caplog: pytest.LogCaptureFixture
) -> None:
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        source = KafkaIncidents(bootstrap=f"127.0.0.1:{taken.getsockname()[1]}", metrics=Metrics(), backoff_s=(0.01,))
        task = asyncio.create_task(source.follow(Feed()))
        try:
            await eventually(lambda: source.attempts >= 3)
            assert source.health().state == "unreachable"
        finally:
            await stop(task)

    said = [r for r in caplog.records if r.name == "pipeline.web.consumer"]
    assert len(said) == 1


async def test_a_broker_that_dies_is_noticed(broker: Broker, eventually: Eventually, fell_off: Incident) -> None:
    broker.send(encode(fell_off))
    feed = Feed()
    source = KafkaIncidents(bootstrap=broker.bootstrap, metrics=Metrics(), ask_s=0.2)
    task = asyncio.create_task(source.follow(feed))
    try:
        await eventually(lambda: source.health().ok)

        broker.producer = None

        await eventually(lambda: source.health().state == "unreachable")
        assert len(feed) == 1
    finally:
        broker.producer = None
        await stop(task)

    assert source.health().state == "stopped"
