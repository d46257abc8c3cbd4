"""The runner of a stage: a keyed fold that loses nothing when it is killed.

Order of things, which is the whole guarantee:

1. A message is applied and its outputs are handed to the producer at once.
2. A checkpoint waits until the broker has acknowledged all outputs of the states it is about to save,
3. appends the snapshots to the changelog topic and waits for the broker again,
4. and only then acknowledges messages, from the left of their partition, up to the first one in no snapshot.

After a crash, messages beyond a snapshot are read again and give the same outputs (same ids); messages already in it
are skipped. After every assignment all memory is dropped and loaded again from the snapshot topic, because Faust reads
kept partitions again from their committed offsets too. Within an assignment each partition must deliver every offset
exactly once and in order; a gap stops the app, which then reads again from its committed offsets.
"""

import asyncio
import logging
import time
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

from aiokafka.errors import MessageSizeTooLargeError

from pipeline.agents.changelog import Changelog
from pipeline.agents.fold import SECOND_NS, BadMessage, Fold, Output, Stage
from pipeline.agents.ledger import Ledger
from pipeline.agents.snapshots import Snapshot, SnapshotStore, UnreadableSnapshotError

log = logging.getLogger(__name__)

# A rebalance waits no longer than this for a running checkpoint.
REVOKE_WAIT_S = 5.0


class SkippedMessagesError(RuntimeError):
    """Faust delivered an offset beyond the next one."""


# topic, partition, expected offset, found offset
Hole = tuple[str, int, int, int]


class Entity:
    """One fold in memory with its place in the source partition."""

    __slots__ = ("applied", "asked", "fold", "key", "last_ns", "partition", "saved", "touched_s", "unsaved",
                 "unsaved_since_s")  # fmt: skip

    def __init__(self, key: bytes, partition: int, fold: Fold, saved: int) -> None:
        self.key = key
        self.partition = partition
        self.fold = fold
        self.applied = saved
        self.saved = saved
        self.last_ns = 0
        self.asked = False
        self.unsaved = 0
        self.unsaved_since_s = 0.0
        self.touched_s = 0.0


@dataclass(frozen=True, slots=True)
class Planned:
    """A snapshot taken from an entity, not yet durable."""

    entity: Entity
    applied: int
    messages: int
    packed: bytes


@dataclass(slots=True)
class Counters:
    """What the runner did since it started; read by metrics."""

    messages: int = 0
    skipped: int = 0
    bad: int = 0
    outputs: int = 0
    snapshots: int = 0
    snapshot_bytes: int = 0
    acknowledged: int = 0
    checkpoints: int = 0
    forgotten: int = 0
    resets: int = 0


class StageRunner:
    """Runs one stage inside a Faust app."""

    def __init__(self, app: Any, stage: Stage, changelog: Changelog, known_holes: set[Hole]) -> None:
        self._app = app
        self._stage = stage
        self._changelog = changelog
        self._known_holes = known_holes
        self._store = SnapshotStore()
        self._pace = stage.pace
        self._entities: dict[bytes, Entity] = {}
        self._dirty: dict[bytes, Entity] = {}
        self._ledgers: dict[int, Ledger] = {}
        self._pending: list[asyncio.Future[Any]] = []
        self._generation = -1
        self._open = False
        self._stopping = False
        self._loading: asyncio.Task[None] | None = None
        self._loaded = asyncio.Event()
        self._due = asyncio.Event()
        self._room = asyncio.Event()
        self._stepping = asyncio.Lock()
        self._checkpointing = asyncio.Lock()
        self._swept_s = 0.0
        self.counters = Counters()

    # --- what Faust calls ------------------------------------------------------------------------------------------

    async def run(self, stream: Any) -> None:
        """The agent. Any error here stops the app: going on would leave a hole in a state."""
        try:
            async for event in stream.noack().events():
                await self._take(event.message)
        except Exception as error:
            log.exception("stage %s failed", self._stage.name)
            await self._app.crash(error)

    async def checkpoint_forever(self) -> None:
        """The task that saves states, also when nothing arrives any more."""
        while not self._stopping:
            try:
                await asyncio.wait_for(self._due.wait(), timeout=self._pace.tick_s)
            except asyncio.TimeoutError:
                pass
            self._due.clear()
            await self.checkpoint()
            await self._forget_old()

    async def on_assigned(self, _: Any, assigned: set[Any], **__: Any) -> None:
        """Drop all memory: whatever was not acknowledged is read again, in kept partitions too."""
        if self._loading is not None:
            self._loading.cancel()
        self._reset(self._app.consumer_generation_id)
        partitions = {tp.partition for tp in assigned if tp.topic == self._stage.source_topic}
        self._loading = asyncio.create_task(self._load_partitions(partitions))

    async def on_revoked(self, *_: Any, **__: Any) -> None:
        """Let a running checkpoint end before others may take over the partitions; start no new one."""
        self._open = False
        try:
            async with asyncio.timeout(REVOKE_WAIT_S):
                async with self._checkpointing:
                    pass
        except TimeoutError:
            log.warning("stage %s: a checkpoint is still waiting for the broker during a rebalance", self._stage.name)

    async def finish(self) -> None:
        """Take no more messages and save everything: the last act before a clean shutdown."""
        self._stopping = True
        self._due.set()
        await self.checkpoint(everything=True)

    async def _load_partitions(self, partitions: set[int]) -> None:
        try:
            self._store.keep_only(partitions)
            starts = await self._changelog.catch_up(self._store, partitions)
        except Exception as error:
            log.warning("stage %s cannot read its snapshots: %s", self._stage.name, error)
            await self._app.crash(error)
            return
        self._ledgers = {partition: Ledger(start) for partition, start in starts.items()}
        self._open = True
        self._loaded.set()

    # --- messages --------------------------------------------------------------------------------------------------

    async def _take(self, message: Any) -> None:
        await self._loaded.wait()
        await self._wait_for_room()
        async with self._stepping:
            if self._open and not self._stopping and self._is_current(message):
                await self._send(message, self._step(message))

    def _is_current(self, message: Any) -> bool:
        app = self._app
        return bool(app.flow_control.is_active()) and (
            message.generation_id == app.consumer_generation_id == self._generation
        )

    async def _wait_for_room(self) -> None:
        while self._held() >= 2 * self._pace.held_messages and not self._stopping:
            self._room.clear()
            self._due.set()
            await self._room.wait()

    def _held(self) -> int:
        return sum(len(ledger) for ledger in self._ledgers.values())

    def _step(self, message: Any) -> Iterable[Output]:
        """Apply one message. No await in here: a state is never seen half way."""
        ledger = self._ledgers[message.partition]
        if message.offset < ledger.expected:
            return ()
        if message.offset > ledger.expected:
            self._check_hole((message.topic, message.partition, ledger.expected, message.offset))
        self.counters.messages += 1
        key, value = message.key or b"", message.value
        now_ns = round((message.timestamp or 0.0) * 1000) * 1_000_000
        try:
            record = self._stage.decode(value)
            entity_key = self._stage.entity_key(key, record)
        except Exception as error:
            ledger.add(message, None)
            return (self._bad(message, error, now_ns),)
        entity = self._entity(message.partition, entity_key)
        ledger.add(message, entity)
        if message.offset <= entity.applied:
            self.counters.skipped += 1
            outputs: Iterable[Output] = ()
        else:
            outputs = self._apply(entity, message, record, now_ns)
        # The payload is not needed again: a held message then costs some 300 bytes whatever it carried.
        message.key = message.value = None
        return outputs

    def _check_hole(self, hole: Hole) -> None:
        """A hole that is still there after reading again is one of the log (transactions, compaction)."""
        if hole in self._known_holes:
            return
        self._known_holes.add(hole)
        raise SkippedMessagesError("{}/{}: offset {} was expected, {} came".format(*hole))

    def _apply(self, entity: Entity, message: Any, record: object, now_ns: int) -> Iterable[Output]:
        try:
            outputs: Iterable[Output] = tuple(entity.fold.apply(record, now_ns=now_ns))
        except Exception as error:
            log.exception("stage %s cannot apply %s/%d/%d", self._stage.name, message.topic, message.partition,
                          message.offset)  # fmt: skip
            outputs = (self._bad(message, error, now_ns),)
        now_s = time.monotonic()
        if not entity.unsaved:
            entity.unsaved_since_s = now_s
            self._dirty[entity.key] = entity
        entity.applied = message.offset
        entity.last_ns = now_ns
        entity.unsaved += 1
        entity.touched_s = now_s
        entity.asked = entity.asked or entity.fold.wants_snapshot or entity.unsaved >= self._pace.entity_messages
        if entity.asked:
            self._due.set()
        return outputs

    def _entity(self, partition: int, key: bytes) -> Entity:
        entity = self._entities.get(key)
        if entity is None:
            entity = self._entities[key] = self._load(partition, key)
        if entity.partition != partition:
            raise RuntimeError(
                f"stage {self._stage.name}: messages of entity {key!r} lie in partitions {entity.partition} and "
                f"{partition} of {self._stage.source_topic}; key them so that an entity has one partition"
            )
        return entity

    def _load(self, partition: int, key: bytes) -> Entity:
        try:
            snapshot = self._store.read(partition, key)
            if snapshot is None:
                return Entity(key, partition, self._stage.new(key), -1)
            fold = self._stage.restore(key, snapshot.state)
        except Exception as error:
            raise UnreadableSnapshotError(
                f"stage {self._stage.name} cannot restore entity {key!r} from {self._changelog.topic} partition "
                f"{partition}: {error}. Run the version that wrote it, or delete the topic and read "
                f"{self._stage.source_topic} again from its start"
            ) from error
        entity = Entity(key, partition, fold, snapshot.applied)
        entity.last_ns = snapshot.last_ns
        return entity

    def _bad(self, message: Any, error: Exception, now_ns: int) -> Output:
        self.counters.bad += 1
        return self._stage.on_bad(
            BadMessage(
                topic=message.topic, partition=message.partition, offset=message.offset, key=message.key,
                value=message.value, reason=f"{type(error).__name__}: {error}", now_ns=now_ns,
            )
        )  # fmt: skip

    async def _send(self, message: Any, outputs: Iterable[Output]) -> None:
        for output in outputs:
            value = self._stage.encode(output.record)
            try:
                await self._hand_over(output.topic, output.key, value, None)
            except MessageSizeTooLargeError:
                error = ValueError(f"its output of {len(value)} bytes is too large for topic {output.topic}")
                letter = self._bad(message, error, 0)
                await self._hand_over(letter.topic, letter.key, self._stage.encode(letter.record), None)
            self.counters.outputs += 1

    async def _hand_over(self, topic: str, key: bytes, value: bytes | None, partition: int | None) -> None:
        producer = self._app.producer
        try:
            future = await producer.send(topic, key, value, partition, None, None)
        except Exception as error:
            raise (error.__cause__ or error) from None
        self._pending.append(future)

    # --- checkpoints -----------------------------------------------------------------------------------------------

    async def checkpoint(self, *, everything: bool = False) -> None:
        """Save what is due (or every changed entity) and acknowledge what that covers."""
        async with self._checkpointing:
            async with self._stepping:
                generation = self._generation
                if not self._may_write(generation):
                    return
                marks = {partition: ledger.expected for partition, ledger in self._ledgers.items()}
                outputs, self._pending = self._pending, []
                plan = self._plan(everything or self._held() >= self._pace.held_messages)
            await _all_acknowledged(outputs)
            if not self._may_write(generation):
                return
            await self._write(plan)
            if not self._may_write(generation):
                return
            self._mark_saved(plan)
            self._acknowledge(marks)
            self._drop_idle()
            self.counters.checkpoints += 1

    def _may_write(self, generation: int) -> bool:
        return self._open and self._generation == generation == self._app.consumer_generation_id

    def _plan(self, everything: bool) -> list[Planned]:
        now_s = time.monotonic()
        oldest_s = now_s - self._pace.entity_age_s
        due = [e for e in self._dirty.values() if everything or e.asked or e.unsaved_since_s <= oldest_s]
        return [self._save(entity, now_s) for entity in due]

    def _save(self, entity: Entity, now_s: float) -> Planned:
        # What arrives while the broker is awaited may ask again.
        entity.asked = False
        entity.unsaved_since_s = now_s
        state = Snapshot(applied=entity.applied, last_ns=entity.last_ns, state=entity.fold.snapshot())
        return Planned(entity, entity.applied, entity.unsaved, state.pack())

    async def _write(self, plan: list[Planned]) -> None:
        topic, producer = self._changelog.topic, self._app.producer
        sent = [
            await producer.send(topic, planned.entity.key, planned.packed, planned.entity.partition, None, None)
            for planned in plan
        ]
        await _all_acknowledged(sent)

    def _mark_saved(self, plan: list[Planned]) -> None:
        for planned in plan:
            entity = planned.entity
            self._store.put(entity.partition, entity.key, planned.packed)
            entity.saved = planned.applied
            entity.unsaved -= planned.messages
            if not entity.unsaved:
                del self._dirty[entity.key]
            self.counters.snapshots += 1
            self.counters.snapshot_bytes += len(planned.packed)

    def _acknowledge(self, marks: dict[int, int]) -> None:
        consumer = self._app.consumer
        for partition, below in marks.items():
            for message in self._ledgers[partition].release(below=below):
                message.ack(consumer)  # type: ignore[attr-defined]
                self.counters.acknowledged += 1
        self._room.set()

    def _drop_idle(self) -> None:
        oldest_s = time.monotonic() - self._pace.idle_entity_s
        idle = [key for key, entity in self._entities.items() if not entity.unsaved and entity.touched_s < oldest_s]
        for key in idle:
            del self._entities[key]

    def _reset(self, generation: int) -> None:
        self._generation = generation
        self._open = False
        self._loaded.clear()
        self._entities.clear()
        self._dirty.clear()
        self._ledgers.clear()
        self._pending.clear()
        self._room.set()
        self.counters.resets += 1

    # --- old entities ----------------------------------------------------------------------------------------------

    async def _forget_old(self) -> None:
        """Delete states without a message for `forget_after_s`, if all their messages are committed."""
        if time.monotonic() - self._swept_s < min(600.0, self._pace.forget_after_s):
            return
        self._swept_s = time.monotonic()
        horizon_ns = time.time_ns() - int(self._pace.forget_after_s * SECOND_NS)
        async with self._checkpointing:
            for partition, key, applied in self._store.older_than(horizon_ns):
                if not self._may_write(self._generation):
                    return
                if key not in self._dirty and self._committed(partition) > applied:
                    await self._forget(partition, key)

    def _committed(self, partition: int) -> int:
        committed: int = self._app.monitor.tp_committed_offsets.get((self._stage.source_topic, partition), 0)
        return committed

    async def _forget(self, partition: int, key: bytes) -> None:
        await (await self._app.producer.send(self._changelog.topic, key, None, partition, None, None))
        self._entities.pop(key, None)
        self._store.drop(partition, key)
        self.counters.forgotten += 1


async def _all_acknowledged(sent: list[asyncio.Future[Any]]) -> None:
    """Wait for the broker. Raises the first error: then nothing is acknowledged and the app stops."""
    if sent:
        await asyncio.gather(*sent)
