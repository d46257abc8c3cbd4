"""Finds batches on the topic raw that were left out, and sends them again as what an operator lets count."""

import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Final

from kafka import KafkaConsumer, KafkaProducer, TopicPartition
from kafka.partitioner.default import murmur2
from msgspec import Struct

from pipeline.core.trust import Judged, stale
from pipeline.kafka_access import client_options
from pipeline.kafka_client import KafkaClient
from pipeline.trust.judge import APART, Judge
from schemas.codec import UnreadableRecordError, decode, encode
from schemas.kafka_access import Access
from schemas.private_key import PrivateKeyError, read_private_key
from schemas.records import RawBatch, Release
from schemas.signing import attach, fingerprint, to_sign
from schemas.topics import RAW, key_of

_POLL_MS: Final = 500
_ACK_S: Final = 30.0


class OperatorKeyError(ValueError):
    """A key that cannot sign. The text says what to do."""


class Failed(Struct, frozen=True, kw_only=True):
    """A batch that was left out, with its address and why."""

    partition: int
    offset: int
    at_ms: int
    why: str
    batch: RawBatch


class Asked(Struct, frozen=True, kw_only=True):
    """Whose batches, of which time (of the broker, ms; the end is not in it)."""

    cluster: str
    reporter: str
    from_ms: int
    to_ms: int

    @property
    def key(self) -> bytes:
        """The Kafka key of the reporter."""
        return key_of("live", "live", self.cluster, self.reporter)


class Operator:
    """Signs releases."""

    def __init__(self, path: Path, key_id: str = "") -> None:
        """Read the key. Raises OperatorKeyError."""
        try:
            key = read_private_key(path)
        except PrivateKeyError as error:
            raise OperatorKeyError(f"{error}; make one with `rootrank-shipper keygen --operator`") from None
        self.key_id = key_id or fingerprint(key.public_key().public_bytes_raw())
        self._key = key

    def signed(self, release: Release) -> bytes:
        """The release as it is sent."""
        data = encode(release)
        return attach(data, self._key.sign(to_sign(data)))


def find(bootstrap: str, access: Access, judge: Judge, asked: Asked) -> list[Failed]:
    """The live batches under the key of the reporter that fail their check and were not released yet.

    Raises KafkaError, AccessError.
    """
    consumer = KafkaConsumer(
        bootstrap_servers=bootstrap, enable_auto_commit=False, kafka_client=KafkaClient,
        fetch_max_bytes=64 * 1024 * 1024, max_partition_fetch_bytes=16 * 1024 * 1024, **client_options(access),
    )  # fmt: skip
    found: list[Failed] = []
    released: set[int] = set()
    try:
        place = TopicPartition(RAW.name, (murmur2(asked.key) & 0x7FFFFFFF) % RAW.partitions)
        for message in _messages(consumer, place, asked.from_ms):
            if message.key != asked.key:
                continue
            judged = _judged(judge, message)
            if isinstance(judged.record, Release) and not judged.doubt:
                released.add(judged.record.offset)
            elif message.timestamp < asked.to_ms:
                found.extend(_failed(judged, message))
    finally:
        consumer.close()
    return [each for each in found if each.offset not in released]


def _messages(consumer: Any, place: TopicPartition, from_ms: int) -> Iterator[Any]:
    """Of one partition, from a time to what is its end now."""
    consumer.assign([place])
    end = consumer.end_offsets([place])[place]
    first = consumer.offsets_for_times({place: from_ms})[place]
    consumer.seek(place, first.offset if first is not None else end)
    while consumer.position(place) < end:
        for message in consumer.poll(timeout_ms=_POLL_MS).get(place, []):
            if message.offset < end:
                yield message


def _judged(judge: Judge, message: Any) -> Judged:
    try:
        record = judge.examine(decode(RAW.name, message.value), message.value, message.timestamp * 1_000_000)
    except UnreadableRecordError:
        return Judged(record=None)
    return record if isinstance(record, Judged) else Judged(record=record)


def _failed(judged: Judged, message: Any) -> Iterator[Failed]:
    batch = judged.record
    if isinstance(batch, RawBatch) and batch.records:
        why = judged.doubt or (stale(batch, message.timestamp * 1_000_000) if batch.run not in APART else "")
        if why:
            at_ms, offset = message.timestamp, message.offset
            yield Failed(partition=message.partition, offset=offset, at_ms=at_ms, why=why, batch=batch)


def send(
    bootstrap: str, access: Access, operator: Operator, asked: Asked, failed: list[Failed], who: str, why: str
) -> int:
    """Let the lines of these batches count. Returns how many. Raises KafkaError, AccessError."""
    producer = KafkaProducer(
        bootstrap_servers=bootstrap, acks="all", max_request_size=RAW.max_message_bytes, compression_type="gzip",
        **client_options(access),
    )  # fmt: skip
    try:
        lines = 0
        began_ns = time.time_ns()
        for number, each in enumerate(failed):
            release = Release(
                run=each.batch.run, run_id=each.batch.run_id, cluster=asked.cluster, reporter=asked.reporter, who=who,
                why=why, released_unix_nano=began_ns + number, partition=each.partition, offset=each.offset,
                batch=each.batch, key_id=operator.key_id,
            )  # fmt: skip
            producer.send(RAW.name, key=asked.key, value=operator.signed(release)).get(_ACK_S)
            lines += len(each.batch.records)
    finally:
        producer.close()
    return lines
