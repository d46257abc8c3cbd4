"""One file of the spool: records of a header, positions and an encoded batch, checked by CRC-32."""

import os
import struct
import zlib
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Final

_HEADER: Final = struct.Struct("<4sIIIQQI")
# The last character is the version of the format. A later one is refused, never taken for damage.
_MAGIC: Final = b"RRS1"
_FAMILY: Final = _MAGIC[:3]
_VERSIONS: Final = b"123456789ABCDEFGHIJKLMNOPQRSTUVWXYZ"
_CRC_FROM: Final = 8  # the checksum covers all that follows it
HEADER_BYTES: Final = _HEADER.size


class NewerFormatError(Exception):
    """A record that a later version of the shipper has written. The text is that version of the format."""


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


@dataclass(frozen=True, slots=True, kw_only=True)
class Damage:
    """Bytes between whole records that are none. `lines`: how many were lost, where the numbers of the others tell."""

    lines: int | None


def check_format(fd: int) -> None:
    """Raises NewerFormatError where the file was begun by a later version."""
    start = os.pread(fd, len(_MAGIC), 0)
    if start[:-1] == _FAMILY and start != _MAGIC and start[-1:] in _VERSIONS:
        raise NewerFormatError(start[-1:].decode())


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
    """All whole records of a file with where they begin and end."""
    for offset, found, end in scan(fd):
        if isinstance(found, Entry):
            yield offset, found, end


def scan(fd: int) -> Iterator[tuple[int, Entry | Damage, int]]:
    """All whole records of a file and the damage between them; not what is torn behind the last whole one."""
    offset, following = 0, None
    while True:
        found = read_entry(fd, offset)
        if found is None:
            begin = next_whole(fd, offset)
            found = None if begin is None else read_entry(fd, begin)
            if begin is None or found is None:
                return
            yield offset, Damage(lines=_between(following, found[0])), begin
            offset = begin
        entry, end = found
        yield offset, entry, end
        offset, following = end, entry.next_line_seq


def next_whole(fd: int, offset: int) -> int | None:
    """Where the first whole record behind a damaged one begins; None where there is none."""
    data = os.pread(fd, os.fstat(fd).st_size, 0)
    at = data.find(_MAGIC, offset + 1)
    while at >= 0:
        if read_entry(fd, at) is not None:
            return at
        at = data.find(_MAGIC, at + 1)
    return None


def _between(following: int | None, entry: Entry) -> int | None:
    """How many line numbers lie between two records."""
    if following is None or not entry.payload:
        return None
    return max(0, entry.next_line_seq - entry.lines - following)
