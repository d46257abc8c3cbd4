"""The folds of a stage in memory: loaded from their snapshots, advanced message by message, saved again.

Nothing here awaits, so a state is never seen half way.
"""

import logging
import time
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

from pipeline.agents.fold import BadMessage, Fold, Output, Stage
from pipeline.agents.snapshots import Snapshot, SnapshotStore, UnreadableSnapshotError

log = logging.getLogger(__name__)


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

    def advance(self, message: Any) -> tuple[Entity | None, Iterable[Output]]:
        """Take one message: the entity it belongs to (None where that cannot be said) and what is to be sent."""
        self.counters.messages += 1
        now_ns = timestamp_ns(message)
        try:
            record = self._stage.decode(message.value)
            key = self._stage.entity_key(message.key or b"", record)
        except Exception as error:
            return None, (self.bad(message, error),)
        entity = self._entity(message.partition, key)
        if message.offset <= entity.applied:
            self.counters.skipped += 1
            return entity, ()
        return entity, self._apply(entity, message, record, now_ns)

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
        entity.asked = entity.asked or entity.fold.wants_snapshot or entity.unsaved >= self._pace.entity_messages
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
        """The dead letter of a message."""
        self.counters.bad += 1
        return self._stage.on_bad(
            BadMessage(
                topic=message.topic, partition=message.partition, offset=message.offset, key=message.key,
                value=message.value, reason=f"{type(error).__name__}: {error}", now_ns=timestamp_ns(message),
            )
        )  # fmt: skip

    def due(self, min_age_s: float) -> list[Entity]:
        """The entities that asked to be saved or have an unsaved message of this age."""
        now_s = time.monotonic()
        return [e for e in self._unsaved.values() if e.asked or now_s - e.unsaved_since_s >= min_age_s]

    def plan(self, entity: Entity) -> Planned:
        """The state of an entity as it is now, to be written."""
        # What arrives while the broker is awaited may ask again.
        entity.asked = False
        entity.unsaved_since_s = time.monotonic()
        state = Snapshot(applied=entity.applied, last_ns=entity.last_ns, state=entity.fold.snapshot())
        return Planned(entity, entity.applied, entity.unsaved, state.pack())

    def saved(self, plan: Iterable[Planned]) -> None:
        """The broker has these."""
        for planned in plan:
            entity = planned.entity
            self.store.put(entity.partition, entity.key, planned.packed)
            entity.saved = planned.applied
            entity.unsaved -= planned.messages
            if not entity.unsaved:
                del self._unsaved[entity.key]
            self.counters.snapshots += 1
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
        self.counters.forgotten += 1

    def clear(self) -> None:
        """Drop all that is in memory only."""
        self._entities.clear()
        self._unsaved.clear()
        self.counters.resets += 1


def timestamp_ns(message: Any) -> int:
    """The Kafka timestamp, exact to the millisecond that Kafka keeps."""
    return round((message.timestamp or 0.0) * 1000) * 1_000_000
