"""How far each source has been read: what the spool keeps beside every batch, and resumes from."""

import os
import zlib
from pathlib import Path
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
    is still to be passed over. `memo` is whatever else a source needs to go on: a cursor, counters as last told.
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
    memo: str = ""


class Finished(Struct, frozen=True, array_like=True):
    """A file that was read to its end; inodes are used again, so its first bytes are remembered too."""

    inode: int
    head: Mark


class SourcePosition(Struct, frozen=True, kw_only=True, omit_defaults=True):
    """All generations of a source that are not read to their end (oldest first), and files that are.

    `path_bytes` stands for `path` where that is not UTF-8.
    """

    path: str = ""
    path_bytes: bytes = b""
    generations: tuple[Position, ...] = ()
    finished: tuple[Finished, ...] = ()

    @property
    def real_path(self) -> Path:
        """The path to open."""
        return Path(os.fsdecode(self.path_bytes) if self.path_bytes else self.path)

    @property
    def memo(self) -> str:
        """What one of its generations keeps."""
        return next((each.memo for each in self.generations if each.memo), "")


Positions = dict[str, SourcePosition | None]  # None: the source is gone and forgotten

_DECODER: Final = msgspec.json.Decoder(Positions)


def mark_of(data: bytes) -> Mark:
    """The mark of `data`."""
    return Mark(len(data), zlib.crc32(data))


def encode(positions: Positions) -> bytes:
    """Bytes for the spool. A position that cannot be written is left out: its source is read again."""
    try:
        return msgspec.json.encode(positions)
    except (TypeError, ValueError, OverflowError):
        return msgspec.json.encode(dict(filter(_is_writable, positions.items())))


def decode(data: bytes) -> Positions:
    """What `encode` wrote. Raises msgspec.DecodeError."""
    return _DECODER.decode(data) if data else {}


def apply(known: Positions, changed: Positions) -> None:
    """Bring known positions up to date; of sources that are gone nothing is kept."""
    for name, position in changed.items():
        if position is None:
            known.pop(name, None)
        else:
            known[name] = position


def _is_writable(item: tuple[str, SourcePosition | None]) -> bool:
    try:
        msgspec.json.encode(item)
    except (TypeError, ValueError, OverflowError):
        return False
    return True
