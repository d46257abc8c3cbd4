"""How far each source has been read: what the spool keeps beside every batch, and resumes from."""

import zlib
from typing import Final

import msgspec
from msgspec import Struct

HEAD_BYTES: Final = 256
TAIL_BYTES: Final = 64


class Mark(Struct, frozen=True, array_like=True):
    """Length and CRC-32 of some bytes: enough to know them again."""

    size: int = 0
    crc: int = 0


class Position(Struct, frozen=True, kw_only=True, omit_defaults=True):
    """How far one generation of a source is read.

    `offset` is in bytes (kernel ring: the next sequence number). `head` and `tail` mark the first bytes and those
    just before `offset`. `cuts` counts how often the file was truncated; `skipping`: the rest of an over-long line
    is still to be passed over.
    """

    generation: str
    inode: int = 0
    offset: int = 0
    line_no: int | None = 0
    head: Mark = Mark()
    tail: Mark = Mark()
    cuts: int = 0
    skipping: bool = False
    mtime_ns: int = 0


class Finished(Struct, frozen=True, array_like=True):
    """A file that was read to its end; inodes are used again, so its first bytes are remembered too."""

    inode: int
    head: Mark


class SourcePosition(Struct, frozen=True, kw_only=True, omit_defaults=True):
    """All generations of a source that are not read to their end (oldest first), and files that are."""

    path: str = ""
    generations: tuple[Position, ...] = ()
    finished: tuple[Finished, ...] = ()


Positions = dict[str, SourcePosition | None]  # None: the source is gone and forgotten

_DECODER: Final = msgspec.json.Decoder(Positions)


def mark_of(data: bytes) -> Mark:
    """The mark of `data`."""
    return Mark(len(data), zlib.crc32(data))


def encode(positions: Positions) -> bytes:
    """Bytes for the spool."""
    return msgspec.json.encode(positions)


def decode(data: bytes) -> Positions:
    """What `encode` wrote. Raises msgspec.DecodeError."""
    return _DECODER.decode(data) if data else {}
