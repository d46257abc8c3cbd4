"""One file of the spool: records of a header, positions and an encoded batch, checked by CRC-32."""

import os
import struct
import zlib
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Final

_HEADER: Final = struct.Struct("<4sIIIQQI")
_MAGIC: Final = b"RRS1"
_CRC_FROM: Final = 8  # the checksum covers all that follows it
HEADER_BYTES: Final = _HEADER.size


@dataclass(frozen=True, slots=True, kw_only=True)
class Header:
    """What stands before the bytes of a record. `next_line_seq` is the first number not used up to here."""

    crc: int
    positions_bytes: int
    payload_bytes: int
    batch_seq: int
    next_line_seq: int
    lines: int

    @property
    def size(self) -> int:
        """Bytes of the whole record."""
        return HEADER_BYTES + self.positions_bytes + self.payload_bytes


@dataclass(frozen=True, slots=True, kw_only=True)
class Entry:
    """A record to be written or read back. Without a payload it only keeps positions and is never sent."""

    batch_seq: int
    next_line_seq: int
    lines: int
    positions: bytes
    payload: bytes


def frame(entry: Entry) -> bytes:
    """The bytes of a record."""
    head = _HEADER.pack(
        _MAGIC, 0, len(entry.positions), len(entry.payload), entry.batch_seq, entry.next_line_seq, entry.lines
    )
    crc = zlib.crc32(entry.payload, zlib.crc32(entry.positions, zlib.crc32(head[_CRC_FROM:])))
    return b"".join((_MAGIC, struct.pack("<I", crc), head[_CRC_FROM:], entry.positions, entry.payload))


def read_header(fd: int, offset: int) -> Header | None:
    """The header at `offset`; None where there is none or its record does not fit into the file."""
    data = os.pread(fd, HEADER_BYTES, offset)
    if len(data) < HEADER_BYTES:
        return None
    magic, crc, positions_bytes, payload_bytes, batch_seq, next_line_seq, lines = _HEADER.unpack(data)
    header = Header(
        crc=crc, positions_bytes=positions_bytes, payload_bytes=payload_bytes, batch_seq=batch_seq,
        next_line_seq=next_line_seq, lines=lines,
    )  # fmt: skip
    if magic != _MAGIC or offset + header.size > os.fstat(fd).st_size:
        return None
    return header


def read_entry(fd: int, offset: int) -> tuple[Entry, int] | None:
    """The record at `offset` and where the next one begins; None where it is torn or damaged."""
    header = read_header(fd, offset)
    if header is None:
        return None
    data = os.pread(fd, header.size, offset)
    if len(data) < header.size or zlib.crc32(memoryview(data)[_CRC_FROM:]) != header.crc:
        return None
    split = HEADER_BYTES + header.positions_bytes
    entry = Entry(
        batch_seq=header.batch_seq, next_line_seq=header.next_line_seq, lines=header.lines,
        positions=data[HEADER_BYTES:split], payload=data[split:],
    )  # fmt: skip
    return entry, offset + header.size


def headers(fd: int) -> Iterator[tuple[int, Header]]:
    """All headers of a file with their offsets, up to the first that is not whole. Bodies are not checked."""
    offset = 0
    while (header := read_header(fd, offset)) is not None:
        yield offset, header
        offset += header.size


def entries(fd: int) -> Iterator[tuple[int, Entry, int]]:
    """All whole records of a file with where they begin and end, up to the first that is torn or damaged."""
    offset = 0
    while (found := read_entry(fd, offset)) is not None:
        entry, end = found
        yield offset, entry, end
        offset = end
