"""Opens log files, compressed or not, as streams of bytes."""

import gzip
import io
import lzma
import os
import zlib
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import IO, Any, Final, NamedTuple

import zstandard

from schemas.lines import MAX_LINE_BYTES, body_of
from schemas.names import printable
from schemas.selecting import BLOCK_BYTES

# Of lines without an end so much is looked at to tell what a file is: some files are one line of many gigabytes.
HEAD_BYTES: Final = 16 * 1024 * 1024
_HEAD_LINE_BYTES: Final = 8 * 1024
BUFFER_BYTES: Final = 256 * 1024
# So little at once that no more comes of it than memory holds: a few bytes may stand for 128 KiB.
PRESSED_BYTES: Final = 1024
_MAGIC: Final[dict[bytes, str]] = {b"\x1f\x8b": "gzip", b"\xfd7zXZ": "xz", b"\x28\xb5\x2f\xfd": "zstd"}

# What a stream raises that cannot be read, or not to its end.
BROKEN: Final = (OSError, EOFError, lzma.LZMAError, zlib.error, zstandard.ZstdError)


class UnreadableFileError(OSError):
    """A file that cannot be opened or whose compression is broken; the text says which and why."""


@contextmanager
def open_log(path: Path) -> Iterator[IO[bytes]]:
    """The (decompressed) bytes of a file. The compression is told by its content."""
    try:
        with path.open("rb") as file:
            head = file.read(6)
            file.seek(0)
            size = os.fstat(file.fileno()).st_size
            # What the kernel makes up as it is read has no size.
            yield _decompressed(io.BufferedReader(_AsItIs(file, size), BUFFER_BYTES) if size else file, head)
    except BROKEN as error:
        raise UnreadableFileError(f"{printable(str(path))}: {getattr(error, 'strerror', None) or error}") from error


def _decompressed(file: IO[bytes], head: bytes) -> IO[bytes]:
    kind = next((kind for magic, kind in _MAGIC.items() if head.startswith(magic)), None)
    if kind == "gzip":
        return io.BufferedReader(_Pieces(gzip.GzipFile(fileobj=file)))
    if kind == "xz":
        return io.BufferedReader(_Pieces(lzma.LZMAFile(file)))
    if kind == "zstd":
        return io.BufferedReader(_Zstd(file))
    return file


class _AsItIs(io.RawIOBase):
    """A file up to the size that it has now: one that grows as fast as it is read would never end."""

    def __init__(self, file: io.BufferedReader, size: int) -> None:
        self._file, self._left = file, size

    def readable(self) -> bool:
        """Always."""
        return True

    def readinto(self, buffer: Any) -> int:
        """As RawIOBase says."""
        size = self._file.readinto(memoryview(buffer)[: self._left])
        self._left -= size
        return size


class _Pieces(io.RawIOBase):
    """A decompressed stream, handed on as it comes: what stands before a break is not held back to fill a buffer."""

    def __init__(self, stream: gzip.GzipFile | lzma.LZMAFile) -> None:
        self._stream = stream

    def readable(self) -> bool:
        """Always."""
        return True

    def readinto(self, buffer: Any) -> int:
        """As RawIOBase says. Raises what the stream raises where it is broken."""
        piece = self._stream.read1(len(buffer))
        buffer[: len(piece)] = piece
        return len(piece)


class _Zstd(io.RawIOBase):
    """Frames of zstd as one stream. Unlike the library's own reader it notices a frame that ends too early."""

    def __init__(self, file: IO[bytes]) -> None:
        self._file = file
        self._frame = zstandard.ZstdDecompressor().decompressobj()
        self._fed = False
        self._ready = memoryview(b"")

    def readable(self) -> bool:
        """Always."""
        return True

    def readinto(self, buffer: Any) -> int:
        """As RawIOBase says. Raises ZstdError for a stream that is cut short."""
        while not self._ready:
            data = self._frame.unused_data if self._frame.eof else b""
            if self._frame.eof:
                self._frame, self._fed = zstandard.ZstdDecompressor().decompressobj(), False
            data = data or self._file.read(PRESSED_BYTES)
            if not data:
                if self._fed:
                    raise zstandard.ZstdError("the compressed stream ends too early")
                return 0
            self._fed = True
            self._ready = memoryview(self._frame.decompress(data))
        size = min(len(buffer), len(self._ready))
        buffer[:size], self._ready = self._ready[:size], self._ready[size:]
        return size


class Block(NamedTuple):
    """Whole lines of a file: where they begin, their bytes, and how many bytes of the file they stand for.

    A line beyond the limit is a block of its own, cut just above the limit: then `length` is more than the bytes.
    """

    offset: int
    data: bytes
    length: int


def blocks(stream: IO[bytes]) -> Iterator[Block]:
    """A file in blocks of whole lines, of about BLOCK_BYTES. Where it breaks off: first what stands before."""
    offset, rest, broken = 0, b"", None
    while broken is None:
        chunk, broken = _chunk(stream)
        if not chunk:
            break
        data = rest + chunk
        end = data.rfind(b"\n") + 1
        if end:
            yield Block(offset, data[:end], end)
            offset += end
        rest = data[end:]
        if len(rest) > MAX_LINE_BYTES and broken is None:
            skipped, broken = _skip_line(stream)
            yield Block(offset, rest[: MAX_LINE_BYTES + 1], len(rest) + skipped)
            offset, rest = offset + len(rest) + skipped, b""
    if rest:
        yield Block(offset, rest, len(rest))
    if broken is not None:
        raise broken


def _chunk(stream: IO[bytes]) -> tuple[bytes, Exception | None]:
    """The next BLOCK_BYTES, fewer at the end of the file, and how the file breaks off there, if it does."""
    pieces, size = list[bytes](), 0
    while size < BLOCK_BYTES:
        try:
            piece = stream.read1(BLOCK_BYTES - size)  # type: ignore[attr-defined]
        except BROKEN as error:
            return b"".join(pieces), error
        if not piece:
            break
        pieces.append(piece)
        size += len(piece)
    return b"".join(pieces), None


def _skip_line(stream: IO[bytes]) -> tuple[int, Exception | None]:
    """Read to the end of the line: how many bytes that took, and how the file breaks off before it, if it does."""
    length = 0
    try:
        while chunk := stream.readline(MAX_LINE_BYTES):
            length += len(chunk)
            if chunk.endswith(b"\n"):
                break
    except BROKEN as error:
        return length, error
    return length, None


def lines(stream: IO[bytes]) -> Iterator[tuple[int, bytes, int]]:
    """(offset, bytes without newline but cut just above the limit, length with newline) of each line."""
    offset = 0
    while chunk := stream.readline(MAX_LINE_BYTES + 2):
        length = len(chunk)
        data = chunk
        while not chunk.endswith(b"\n"):
            chunk = stream.readline(MAX_LINE_BYTES)
            if not chunk:
                break
            length += len(chunk)
        yield offset, data.rstrip(b"\n"), length
        offset += length


def head_lines(path: Path, count: int) -> list[str]:
    """The first lines of a file as text; long ones cut. Of a file that breaks off: those before the break.

    Raises:
        UnreadableFileError: there is no line that can be read.

    """
    sample: list[str] = []
    try:
        with open_log(path) as stream:
            left = HEAD_BYTES
            while len(sample) < count and left > 0 and (chunk := stream.readline(MAX_LINE_BYTES)):
                sample.append(body_of(chunk[:_HEAD_LINE_BYTES].rstrip(b"\n"))[0])
                left -= len(chunk)
                while left > 0 and chunk and not chunk.endswith(b"\n"):
                    chunk = stream.readline(MAX_LINE_BYTES)
                    left -= len(chunk)
    except UnreadableFileError:
        if not sample:
            raise
    return sample


def tail_lines(path: Path, size: int) -> list[str]:
    """The lines in the last `size` bytes of a file as text; none of one that is smaller, compressed or unreadable."""
    try:
        with path.open("rb") as file:
            is_pressed = file.read(6).startswith(tuple(_MAGIC))
            length = file.seek(0, io.SEEK_END)
            if is_pressed or length <= size:
                return []
            file.seek(length - size)
            return [body_of(data[:_HEAD_LINE_BYTES])[0] for data in file.read(size).split(b"\n")[1:] if data]
    except OSError:
        return []
