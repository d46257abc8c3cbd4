"""What a stage gives to the runner: pure folds over records, one fold per key."""

from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from typing import Any, Protocol

from pipeline.core.outputs import Output

__all__ = ["DAY_S", "SECOND_NS", "BadMessage", "Fold", "Output", "Pace", "Stage", "kafka_key"]

SECOND_NS = 1_000_000_000
DAY_S = 86_400.0


@dataclass(frozen=True, kw_only=True, slots=True)
class BadMessage:
    """A source message that could not be used, with its address."""

    topic: str
    partition: int
    offset: int
    key: bytes | None
    value: bytes | None
    reason: str
    now_ns: int


class Fold(Protocol):
    """The state of one key. Deterministic: the same messages in the same order give the same outputs and state.

    `apply` checks a record before it changes anything: when it raises, the message becomes a dead letter and the
    fold lives on. Offsets are no business of a fold; the runner keeps the applied offset beside each snapshot.
    """

    @property
    def wants_snapshot(self) -> bool:
        """Read once after each `apply`: True when this very message brought the state to a point worth saving now."""

    def apply(self, record: object, *, now_ns: int) -> Iterable[Output]:
        """Take one record. `now_ns` is the Kafka timestamp of the message, equal when it is read again."""

    def snapshot(self) -> bytes:
        """The whole state, uncompressed."""


def kafka_key(key: bytes, record: object) -> bytes:
    """Entity key of a stage whose topic is keyed by the entity itself."""
    del record
    return key


def as_it_is(record: object, data: bytes | None, now_ns: int) -> object:
    """The record of a stage that examines nothing."""
    del data, now_ns
    return record


@dataclass(frozen=True, kw_only=True, slots=True)
class Pace:
    """When snapshots are written, and when to stop. What is in no snapshot yet is read again after a crash.

    `flood_messages`: more bad messages than this in a row in one partition stop the worker.
    """

    tick_s: float = 1.0
    entity_age_s: float = 60.0
    entity_messages: int = 10_000
    held_messages: int = 50_000
    idle_entity_s: float = 120.0
    forget_after_s: float = 7 * DAY_S
    flood_messages: int = 1_000


@dataclass(frozen=True, kw_only=True)
class Stage:
    """A source topic and the fold that eats it. `name` also names the snapshot topic.

    All messages of one entity must lie in one partition of the source topic: `entity_key` gives equal keys only to
    messages whose Kafka keys put them into the same partition. `decode` takes the Kafka key and the value, and raises
    where they are no record of the topic or do not belong together. `examine` sees the record, its bytes and the
    broker's time, and may say more of it to the fold.
    """

    name: str
    source_topic: str
    partitions: int
    decode: Callable[[bytes | None, bytes | None], object]
    encode: Callable[[Any], bytes]
    new: Callable[[bytes], Fold]
    restore: Callable[[bytes, bytes], Fold]
    on_bad: Callable[[BadMessage], Output]
    entity_key: Callable[[bytes, object], bytes] = kafka_key
    examine: Callable[[object, bytes | None, int], object] = as_it_is
    pace: Pace = field(default_factory=Pace)
