"""Snapshots of entities: framed, compressed, and never replaced by an older one."""

import struct
from collections.abc import Iterable, Iterator
from dataclasses import dataclass

import zstandard

# version, applied offset, time of the last message; then zstd
_HEAD = struct.Struct(">BqQ")
_VERSION = 1
# Kept: making a compressor costs more than compressing a small state. One thread uses it.
_COMPRESSOR = zstandard.ZstdCompressor(level=3)
_DECOMPRESSOR = zstandard.ZstdDecompressor()


class UnreadableSnapshotError(ValueError):
    """A snapshot that this version cannot read. Never skipped: its messages were acknowledged."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Snapshot:
    """The state of one entity after the message at `applied` (offset in the source partition)."""

    applied: int
    last_ns: int
    state: bytes

    def pack(self) -> bytes:
        """Bytes for the snapshot topic."""
        head = _HEAD.pack(_VERSION, self.applied, self.last_ns)
        return head + _COMPRESSOR.compress(self.state)


@dataclass(frozen=True, slots=True)
class SnapshotHead:
    """What can be read of a packed snapshot without unpacking the state."""

    applied: int
    last_ns: int


def read_head(packed: bytes) -> SnapshotHead:
    """Raises UnreadableSnapshotError on bytes that are no snapshot of this version."""
    if len(packed) < _HEAD.size or packed[0] != _VERSION:
        raise UnreadableSnapshotError(f"snapshot version {packed[:1].hex() or 'none'}, this program reads {_VERSION}")
    _, applied, last_ns = _HEAD.unpack_from(packed)
    return SnapshotHead(applied, last_ns)


def unpack(packed: bytes) -> Snapshot:
    """Raises UnreadableSnapshotError."""
    head = read_head(packed)
    try:
        state = _DECOMPRESSOR.decompress(packed[_HEAD.size :])
    except zstandard.ZstdError as error:
        raise UnreadableSnapshotError(f"snapshot at offset {head.applied} is damaged: {error}") from None
    return Snapshot(applied=head.applied, last_ns=head.last_ns, state=state)


class SnapshotStore:
    """The newest durable snapshot of every entity in the partitions that this worker owns.

    It mirrors a compacted topic: `next_offset` says from where a partition has to be read to be complete again.
    """

    def __init__(self) -> None:
        self._packed: dict[int, dict[bytes, bytes]] = {}
        self._next: dict[int, int] = {}

    def keep_only(self, partitions: Iterable[int]) -> None:
        """Forget the partitions that went to another worker."""
        for lost in self._packed.keys() - set(partitions):
            del self._packed[lost]
            self._next.pop(lost, None)

    def next_offset(self, partition: int) -> int:
        """The first offset of the snapshot topic that was not taken yet."""
        return self._next.get(partition, 0)

    def take(self, partition: int, offset: int, key: bytes, packed: bytes | None) -> None:
        """One record of the snapshot topic; None deletes.

        A worker that lost its partition while it was paused can still append a snapshot behind a newer one, so the
        highest applied offset wins and not the last record.
        """
        self._next[partition] = offset + 1
        known = self._packed.setdefault(partition, {})
        if packed is None:
            known.pop(key, None)
        elif key not in known or read_head(packed).applied >= read_head(known[key]).applied:
            known[key] = packed

    def put(self, partition: int, key: bytes, packed: bytes) -> None:
        """A snapshot of our own that the broker has acknowledged."""
        self._packed.setdefault(partition, {})[key] = packed

    def drop(self, partition: int, key: bytes) -> None:
        """Forget an entity whose deletion the broker has acknowledged."""
        self._packed[partition].pop(key, None)

    def read(self, partition: int, key: bytes) -> Snapshot | None:
        """The snapshot of an entity, or None. Raises UnreadableSnapshotError."""
        packed = self._packed.get(partition, {}).get(key)
        return None if packed is None else unpack(packed)

    def newest_applied(self, partition: int) -> int:
        """The highest source offset that any state of the partition contains, -1 without any."""
        return max((read_head(packed).applied for packed in self._packed.get(partition, {}).values()), default=-1)

    def older_than(self, last_ns: int) -> Iterator[tuple[int, bytes, int]]:
        """(partition, key, applied offset) of entities whose last message is older than `last_ns`."""
        for partition, known in self._packed.items():
            for key, packed in list(known.items()):
                head = read_head(packed)
                if head.last_ns < last_ns:
                    yield partition, key, head.applied
