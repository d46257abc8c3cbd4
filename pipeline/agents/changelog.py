"""Reads the snapshot topic of a stage, and from where Faust goes on reading its source.

Why not a Faust table: its recovery (0.15.3) resumes the flow before the source partitions seek to their committed
offsets, and clears the queues after it. Messages fetched in between are gone for this life of the worker, and any
state saved later claims to contain them. Measured: a worker restarted over a backlog of 10,000 missed 27 of them.
Without tables Faust resumes in one step. Reading a compacted topic up to its end is less code than guarding that.
"""

import logging
from collections.abc import Iterable
from dataclasses import dataclass

from aiokafka import AIOKafkaConsumer, TopicPartition

from pipeline.agents.snapshots import SnapshotStore
from pipeline.kafka_access import client_options
from schemas.kafka_access import PLAIN, Access

log = logging.getLogger(__name__)


class SourceRecreatedError(RuntimeError):
    """The source topic ends before what this group has read and saved."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Changelog:
    """Where the snapshots of a stage are, and the source that they belong to."""

    bootstrap: str
    group: str
    topic: str
    source_topic: str
    access: Access = PLAIN

    async def catch_up(self, store: SnapshotStore, partitions: Iterable[int]) -> dict[int, int]:
        """Bring `store` up to the end of the topic. Returns the offset at which each source partition goes on."""
        wanted = list(partitions)
        consumer = AIOKafkaConsumer(
            bootstrap_servers=self.bootstrap,
            group_id=self.group,
            enable_auto_commit=False,
            auto_offset_reset="earliest",
            max_partition_fetch_bytes=4 * 1024 * 1024,
            **client_options(self.access),
        )
        await consumer.start()
        try:
            await self._read(consumer, store, wanted)
            return await self._source_starts(consumer, store, wanted)
        finally:
            await consumer.stop()

    async def _read(self, consumer: AIOKafkaConsumer, store: SnapshotStore, partitions: list[int]) -> None:
        tps = [TopicPartition(self.topic, partition) for partition in partitions]
        ends = await consumer.end_offsets(tps)
        missing = {tp for tp in tps if store.next_offset(tp.partition) < ends[tp]}
        consumer.assign(sorted(missing))
        for tp in missing:
            consumer.seek(tp, store.next_offset(tp.partition))
        while missing:
            for tp, messages in (await consumer.getmany(timeout_ms=1000)).items():
                for message in messages:
                    store.take(tp.partition, message.offset, message.key, message.value)
            missing = {tp for tp in missing if await consumer.position(tp) < ends[tp]}

    async def _source_starts(
        self, consumer: AIOKafkaConsumer, store: SnapshotStore, partitions: list[int]
    ) -> dict[int, int]:
        tps = [TopicPartition(self.source_topic, partition) for partition in partitions]
        oldest, ends = await consumer.beginning_offsets(tps), await consumer.end_offsets(tps)
        starts = {}
        for tp in tps:
            committed = await consumer.committed(tp)
            read = max(committed or 0, store.newest_applied(tp.partition) + 1)
            if read > ends[tp]:
                raise SourceRecreatedError(
                    f"group {self.group} has read {tp.topic} partition {tp.partition} up to offset {read}, but it ends "
                    f"at {ends[tp]}: it was made anew. Delete {self.topic} too, or use another group name"
                )
            if committed is not None and committed < oldest[tp]:
                log.error(
                    "offsets %d to %d of %s partition %d were deleted by retention before they were read",
                    committed, oldest[tp] - 1, tp.topic, tp.partition,
                )  # fmt: skip
            starts[tp.partition] = max(committed or 0, oldest[tp])
        return starts
