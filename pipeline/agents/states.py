"""The folds of a stage in memory: loaded from their snapshots, advanced message by message, saved again.

Nothing here awaits, so a state is never seen half way.
"""

import logging
import time
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any

from aiokafka.partitioner import murmur2

from pipeline.agents.flood import Flood
from pipeline.agents.fold import BadMessage, Fold, Output, Stage
from pipeline.agents.snapshots import Snapshot, SnapshotStore, UnreadableSnapshotError

log = logging.getLogger(__name__)

# A state that could not be saved is tried again after this, or at once when too many messages are held.
RETRY_S = 60.0


class Entity:
    """One fold in memory with its place in the source partition. `unsavable`: its last snapshot was not to be had."""

    __slots__ = ("applied", "asked", "fold", "key", "last_ns", "partition", "saved", "touched_s", "unsavable",
                 "unsaved", "unsaved_since_s")  # fmt: skip

    def __init__(self, key: bytes, partition: int, fold: Fold, saved: int) -> None:
        self.key = key
        self.partition = partition
        self.fold = fold
        self.applied = saved
        self.saved = saved
        self.last_ns = 0
        self.asked = False
        self.unsavable = False
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
    snapshot_bytes: int = 0
    resets: int = 0


class States:
    """All entities of a stage whose partitions this worker owns."""

    def __init__(self, stage: Stage, snapshot_topic: str) -> None:
        self._stage = stage
        self._pace = stage.pace
        self._snapshot_topic = snapshot_topic
        self._entities: dict[bytes, Entity] = {}
        self._unsaved: dict[bytes, Entity] = {}
        self.store = SnapshotStore()
        self.counters = Counters()
        self.flood = Flood(stage.name, stage.pace.flood_messages)

    def advance(self, message: Any) -> tuple[Entity | None, Iterable[Output]]:
        """Take one message: the entity it belongs to (None where that cannot be said) and what is to be sent."""
        self.counters.messages += 1
        now_ns = timestamp_ns(message)
        try:
            record = self._stage.decode(message.key, message.value)
            self._check_partition(message)
            key = self._stage.entity_key(message.key or b"", record)
            record = self._stage.examine(record, message.value, now_ns)
        except Exception as error:
            return None, (self.bad(message, error),)
        entity = self._entity(message.partition, key)
        if message.offset <= entity.applied:
            self.counters.skipped += 1
            return entity, ()
        return entity, self._apply(entity, message, record, now_ns)

    def _check_partition(self, message: Any) -> None:
        home = (murmur2(message.key or b"") & 0x7FFFFFFF) % self._stage.partitions
        if message.partition != home:
            raise ValueError(
                f"partition {message.partition} is not that of its key, {home} by murmur2: let the sender use Kafka's "
                f"default partitioner (librdkafka: partitioner=murmur2_random)"
            )

    def _apply(self, entity: Entity, message: Any, record: object, now_ns: int) -> Iterable[Output]:
        try:
            outputs: Iterable[Output] = tuple(entity.fold.apply(record, now_ns=now_ns))
        except Exception as error:
            log.exception("stage %s cannot apply %s/%d/%d", self._stage.name, message.topic, message.partition,
                          message.offset)  # fmt: skip
            outputs = (self.bad(message, error),)
        now_s = time.monotonic()
        if not entity.unsaved:
            entity.unsaved_since_s = now_s
            self._unsaved[entity.key] = entity
        entity.applied = message.offset
        entity.last_ns = now_ns
        entity.unsaved += 1
        entity.touched_s = now_s
        if not entity.unsavable:
            entity.asked = entity.asked or entity.fold.wants_snapshot or entity.unsaved >= self._pace.entity_messages
        return outputs

    def _entity(self, partition: int, key: bytes) -> Entity:
        entity = self._entities.get(key)
        if entity is None:
            entity = self._entities[key] = self._load(partition, key)
        return entity

    def _load(self, partition: int, key: bytes) -> Entity:
        try:
            snapshot = self.store.read(partition, key)
            if snapshot is None:
                return Entity(key, partition, self._stage.new(key), -1)
            fold = self._stage.restore(key, snapshot.state)
        except Exception as error:
            raise UnreadableSnapshotError(
                f"stage {self._stage.name} cannot restore entity {key!r} from {self._snapshot_topic} partition "
                f"{partition}: {error}. Run the version that wrote it, or delete the topic and read "
                f"{self._stage.source_topic} again from its start"
            ) from error
        entity = Entity(key, partition, fold, snapshot.applied)
        entity.last_ns = snapshot.last_ns
        return entity

    def bad(self, message: Any, error: Exception) -> Output:
        """The dead letter of a message that was just read; it counts towards a flood."""
        bad = bad_message(message, f"{type(error).__name__}: {error}")
        self.flood.bad(bad)
        return self.letter(bad)

    def letter(self, bad: BadMessage) -> Output:
        """The dead letter of a message."""
        self.counters.bad += 1
        return self._stage.on_bad(bad)

    def due(self, min_age_s: float) -> list[Entity]:
        """The entities that asked to be saved or have an unsaved message of this age."""
        now_s = time.monotonic()
        retry_s = max(min_age_s, RETRY_S) if min_age_s else 0.0
        return [
            e for e in self._unsaved.values()
            if e.asked or now_s - e.unsaved_since_s >= (retry_s if e.unsavable else min_age_s)
        ]  # fmt: skip

    def plan(self, entity: Entity) -> Planned | None:
        """The state of an entity as it is now, to be written; None where it cannot be had."""
        # What arrives while the broker is awaited may ask again.
        entity.asked = False
        entity.unsaved_since_s = time.monotonic()
        try:
            state = Snapshot(applied=entity.applied, last_ns=entity.last_ns, state=entity.fold.snapshot())
            return Planned(entity, entity.applied, entity.unsaved, state.pack())
        except Exception as error:
            self.cannot_save(entity, repr(error))
            return None

    def cannot_save(self, entity: Entity, why: str) -> None:
        """Say once that an entity works on without a new snapshot."""
        if not entity.unsavable:
            log.error(
                "stage %s cannot save the state of entity %r in %s partition %d: %s. It works on from memory and holds "
                "its messages; make it smaller (fewer sources or nodes under one key) before the worker restarts",
                self._stage.name, entity.key, self._snapshot_topic, entity.partition, why,
            )  # fmt: skip
        entity.unsavable, entity.asked = True, False

    def let_go(self, marks: Mapping[int, int]) -> None:
        """Give up the messages below `marks` of entities that cannot be saved, so that they hold up nobody."""
        for entity in self._unsaved.values():
            last = min(entity.applied, marks.get(entity.partition, 0) - 1)
            if entity.unsavable and last > entity.saved:
                log.warning(
                    "gap: stage %s acknowledges %s partition %d up to offset %d without a snapshot of entity %r, whose "
                    "state is lost after offset %d when the worker ends or its partitions move", self._stage.name,
                    self._stage.source_topic, entity.partition, last, entity.key, entity.saved,
                )  # fmt: skip
                entity.saved = last

    def saved(self, plan: Iterable[Planned]) -> None:
        """The broker has these."""
        for planned in plan:
            entity = planned.entity
            self.store.put(entity.partition, entity.key, planned.packed)
            entity.saved = max(entity.saved, planned.applied)
            entity.unsavable = False
            entity.unsaved -= planned.messages
            if not entity.unsaved:
                del self._unsaved[entity.key]
            self.counters.snapshot_bytes += len(planned.packed)

    def drop_idle(self) -> None:
        """Forget entities that are saved and rest; they come back from their snapshot."""
        oldest_s = time.monotonic() - self._pace.idle_entity_s
        idle = [key for key, entity in self._entities.items() if not entity.unsaved and entity.touched_s < oldest_s]
        for key in idle:
            del self._entities[key]

    def is_unsaved(self, key: bytes) -> bool:
        """Whether a state is newer than its snapshot."""
        return key in self._unsaved

    def forget(self, partition: int, key: bytes) -> None:
        """An entity whose deletion the broker has acknowledged."""
        self._entities.pop(key, None)
        self.store.drop(partition, key)

    def clear(self) -> None:
        """Drop all that is in memory only."""
        self._entities.clear()
        self._unsaved.clear()
        self.flood.clear()
        self.counters.resets += 1


def bad_message(message: Any, reason: str) -> BadMessage:
    """A source message that cannot be used, with its address."""
    return BadMessage(
        topic=message.topic, partition=message.partition, offset=message.offset, key=message.key, value=message.value,
        reason=reason, now_ns=timestamp_ns(message),
    )  # fmt: skip


def timestamp_ns(message: Any) -> int:
    """The Kafka timestamp, exact to the millisecond that Kafka keeps, within what a signed 64-bit number holds."""
    return min(max(round((message.timestamp or 0.0) * 1000) * 1_000_000, 0), 2**63 - 1)
