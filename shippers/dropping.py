"""What is given up of a spool that is full or too old: which lines go, which stay, and how that survives a kill.

The oldest files go first, but two things in them stay: lines of sources that drop their newest ones, and the first
batch that Kafka has not acknowledged, of which nobody knows whether it arrived. A file with either is written anew.
Which files are given up is written into the same record as the gap markers; what a kill leaves undone is done at the
next start.
"""

import os
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Final

import msgspec

from schemas import codec
from schemas.records import Gap, RawBatch
from schemas.topics import RAW
from shippers import claim, segment
from shippers.losses import losses_by_source
from shippers.positions import Position, Positions, SourcePosition, encode
from shippers.saved import positions_in
from shippers.segment import Entry
from shippers.signing import Signer

NAME: Final = "spool"  # among the positions


@dataclass(frozen=True, slots=True, kw_only=True)
class Drop:
    """The files numbered `files` are given up, but the batches in `heads` and the lines of the sources in `kept`."""

    files: frozenset[int]
    heads: frozenset[int] = frozenset()
    kept: frozenset[str] = frozenset()

    @classmethod
    def saved(cls, positions: Positions) -> "Drop | None":
        """As it was written beside its gap markers; None where nothing was given up."""
        position = positions.get(NAME)
        if position is None or not position.generations:
            return None
        try:
            return msgspec.json.decode(position.generations[0].memo, type=cls)
        except msgspec.DecodeError:
            return None

    def position(self) -> SourcePosition:
        """What to write beside the gap markers."""
        memo = msgspec.json.encode(self).decode()
        return SourcePosition(generations=(Position(generation="dropped", memo=memo),))

    def with_more(self, other: "Drop | None") -> "Drop":
        """Both: what was given up before it goes into the same record."""
        if other is None:
            return self
        return Drop(files=self.files | other.files, heads=self.heads | other.heads, kept=self.kept | other.kept)


@dataclass(slots=True)
class Plan:
    """What giving up a file means."""

    gaps: list[Gap] = field(default_factory=list)
    kept: set[str] = field(default_factory=set)
    kept_bytes: int = 0


def plan(path: Path, acked: int, head: int, is_kept: Callable[[str], bool], reason: str) -> Plan:
    """What is lost with a file, as gap markers, and what stays of it."""
    found = Plan()
    lost: list[msgspec.Struct] = []
    for entry in _unacked(path, acked, found.gaps):
        if entry.batch_seq == head:
            found.kept_bytes += _size_of(entry)
            continue
        batch = codec.decode(RAW.name, entry.payload)
        if not isinstance(batch, RawBatch):
            lost.append(batch)
            continue
        kept = {line.source for line in batch.records if is_kept(line.source)}
        found.kept |= kept
        if kept:
            found.kept_bytes += _size_of(entry)
        gone = [line for line in batch.records if line.source not in kept]
        lost.append(msgspec.structs.replace(batch, records=gone, gaps=[] if kept else batch.gaps))
    found.gaps.extend(losses_by_source(lost, reason))
    return found


def rewrite(path: Path, acked: int, drop: Drop, signer: Signer | None = None) -> list[Entry]:
    """Leave in a file only what stays of it, and return that; no file where nothing does. Raises OSError."""
    left = staying(path, acked, drop, signer)
    if not left:
        path.unlink(missing_ok=True)
        return []
    # Were the newer files lost, the positions after this one would be the best there are.
    left[0] = replace(left[0], positions=encode(positions_in(path)))
    status = path.stat()
    scratch = path.with_suffix(".new")
    fd = os.open(scratch, os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_CLOEXEC, 0o640)
    try:
        for entry in left:
            data = segment.frame(entry)
            if os.write(fd, data) != len(data):
                raise OSError("short write")
        os.utime(fd, ns=(status.st_atime_ns, status.st_mtime_ns))
        os.fsync(fd)
    finally:
        os.close(fd)
    scratch.replace(path)
    claim.fsync_folder(path.parent)
    return left


def staying(path: Path, acked: int, drop: Drop, signer: Signer | None = None) -> list[Entry]:
    """The batches that stay of a file, without the lines that do not, signed anew where that changed them."""
    return [each for entry in _unacked(path, acked, []) if (each := _left_of(entry, drop, signer)) is not None]


def _left_of(entry: Entry, drop: Drop, signer: Signer | None) -> Entry | None:
    if entry.batch_seq in drop.heads:
        return entry
    batch = codec.decode(RAW.name, entry.payload)
    if not isinstance(batch, RawBatch):
        return None
    lines = [line for line in batch.records if line.source in drop.kept]
    if not lines:
        return None
    if len(lines) == len(batch.records):
        return entry
    named = {line.source for line in lines}
    attributes = {name: said for name, said in batch.source_attributes.items() if name in named}
    key_id = signer.key_id if signer is not None else None
    rest = msgspec.structs.replace(
        batch, records=lines, source_attributes=attributes, signature=None, key_id=key_id
    )  # fmt: skip
    data = codec.encode(rest)
    return replace(entry, payload=signer.signed(data) if signer is not None else data)


def _unacked(path: Path, acked: int, gaps: list[Gap]) -> Iterator[Entry]:
    """Batches of a file that Kafka is not known to have; damage between them becomes gap markers."""
    fd = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
    try:
        for offset, found, _ in segment.scan(fd):
            if isinstance(found, segment.Damage):
                reason = f"{path.name} was damaged at byte {offset}; the batches that stood there are lost"
                gaps.append(Gap(source=NAME, reason=reason, lost_lines=found.lines))
            elif found.payload and found.batch_seq > acked:
                yield found
    finally:
        os.close(fd)


def _size_of(entry: Entry) -> int:
    return segment.HEADER_BYTES + len(entry.positions) + len(entry.payload)
