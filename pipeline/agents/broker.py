"""Kafka before the first message: wait until it answers, create the topics the worker reads."""

import asyncio
import logging
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace

from aiokafka.admin import AIOKafkaAdminClient, NewTopic
from aiokafka.errors import KafkaError, TopicAlreadyExistsError, for_code

from pipeline.kafka_access import client_options, refusal
from schemas.kafka_access import PLAIN, Access, AccessError

log = logging.getLogger(__name__)

MAX_MESSAGE_BYTES = 16 * 1024 * 1024
COMPACTION_LAG_MS = 3_600_000


class TopicError(RuntimeError):
    """A topic cannot be created, or exists with another number of partitions than this pipeline needs."""


@dataclass(frozen=True, kw_only=True, slots=True)
class TopicPlan:
    """A topic to create. No partitions: one per broker."""

    name: str
    partitions: int
    settings: Mapping[str, str] = field(default_factory=dict)


def changelog_plan(name: str, partitions: int) -> TopicPlan:
    """The snapshot topic of a stage.

    Compacted; an hour of lag keeps the newest state readable even when a worker that had lost its partition appended
    an older one behind it (recovery takes the highest applied offset).
    """
    return TopicPlan(
        name=name,
        partitions=partitions,
        settings={
            "cleanup.policy": "compact",
            "min.compaction.lag.ms": str(COMPACTION_LAG_MS),
            "segment.ms": str(24 * COMPACTION_LAG_MS),
            "max.message.bytes": str(MAX_MESSAGE_BYTES),
        },
    )


async def wait_for_kafka(bootstrap: str, stop: asyncio.Event, access: Access = PLAIN) -> bool:
    """Wait with growing pauses until a broker answers. False when `stop` was set first. Says once that it waits."""
    pause_s, said = 0.25, False
    while not stop.is_set():
        why = await _why_away(bootstrap, access)
        if not why:
            if said:
                log.warning("Kafka at %s answers again", bootstrap)
            return True
        if not said:
            log.warning("Kafka at %s does not answer (%s); waiting for it", bootstrap, why)
            said = True
        try:
            async with asyncio.timeout(pause_s):
                await stop.wait()
        except TimeoutError:
            pause_s = min(pause_s * 2, 5.0)
    return False


async def _why_away(bootstrap: str, access: Access) -> str:
    """Empty where a broker answers and lets us in."""
    try:
        client = AIOKafkaAdminClient(bootstrap_servers=bootstrap, request_timeout_ms=5_000, **client_options(access))
    except AccessError as error:
        return str(error)
    try:
        await client.start()
    except (KafkaError, OSError) as error:
        # The client says only that it found no broker; who refuses whom is asked for once more.
        return await asyncio.to_thread(refusal, bootstrap, access) or str(error)
    finally:
        await client.close()
    return ""


async def create_topics(
    bootstrap: str, plans: Iterable[TopicPlan], *, replication: int, access: Access = PLAIN
) -> None:
    """Create what is missing. Raises TopicError where a topic exists with other partitions."""
    client = AIOKafkaAdminClient(bootstrap_servers=bootstrap, **client_options(access))
    await client.start()
    try:
        brokers = len((await client.describe_cluster())["brokers"])
        wanted = {plan.name: plan for plan in plans}
        known = set(await client.list_topics())
        missing = [replace(p, partitions=p.partitions or brokers) for p in wanted.values() if p.name not in known]
        await _create(client, missing, replication or min(3, brokers))
        # Where there is one partition per broker, a broker that came or went is no mistake.
        fixed = {name for name in known & wanted.keys() if wanted[name].partitions}
        for description in await client.describe_topics(sorted(fixed)) if fixed else ():
            name, found = description["topic"], len(description["partitions"])
            if found != wanted[name].partitions:
                raise TopicError(
                    f"topic {name} has {found} partitions, this pipeline needs {wanted[name].partitions}. "
                    f"Partition counts are fixed at creation: drain and delete it, or set the count it has"
                )
    finally:
        await client.close()


async def _create(client: AIOKafkaAdminClient, plans: list[TopicPlan], replication: int) -> None:
    if not plans:
        return
    topics = [NewTopic(plan.name, plan.partitions, replication, topic_configs=dict(plan.settings)) for plan in plans]
    response = await client.create_topics(topics)
    for name, code, *_ in response.topic_errors:
        if code and for_code(code) is not TopicAlreadyExistsError:
            raise TopicError(f"Kafka refuses to create topic {name}: {for_code(code).__name__}")
