"""Request bodies into a temporary file, response bodies out: chunked transfer and gzip, zstd, lz4."""

import gzip
import tempfile
import zlib
from collections.abc import Callable, Iterator, Mapping
from email.message import Message
from pathlib import Path
from typing import IO, Protocol

import lz4.frame  # type: ignore[import-untyped]
import zstandard

from pipeline.embedded.clickhouse.problems import INCORRECT_DATA, NOT_IMPLEMENTED, refusal

READ_BYTES = 1 << 18
KEPT_IN_MEMORY_BYTES = 8 << 20


class Reader(Protocol):
    """The part of a socket file that is needed here."""

    def read(self, size: int, /) -> bytes: ...
    def readline(self, size: int, /) -> bytes: ...


class _Decompressor(Protocol):
    @property
    def eof(self) -> bool: ...
    @property
    def unused_data(self) -> bytes | None: ...
    def decompress(self, data: bytes, /) -> bytes: ...


def receive(reader: Reader, headers: Message, folder: Path) -> IO[bytes]:
    """Read a whole request body, decompressed, into a file that is in memory while small.

    Raises:
        StatementError: the body ends early, its encoding is unknown, or it is corrupt.

    """
    body: IO[bytes] = tempfile.SpooledTemporaryFile(max_size=KEPT_IN_MEMORY_BYTES, dir=str(folder))  # noqa: SIM115 - handed on
    encoding = headers.get("Content-Encoding", "identity").lower()
    try:
        for piece in _decoded(_pieces(reader, headers), encoding):
            body.write(piece)
    except BaseException:
        body.close()
        raise
    body.seek(0)
    return body


def _pieces(reader: Reader, headers: Message) -> Iterator[bytes]:
    if "chunked" in headers.get("Transfer-Encoding", "").lower():
        yield from _chunks(reader)
        return
    yield from _exactly(reader, int(headers.get("Content-Length") or 0))


def _exactly(reader: Reader, size: int) -> Iterator[bytes]:
    while size > 0:
        piece = reader.read(min(READ_BYTES, size))
        if not piece:
            raise refusal(INCORRECT_DATA, "INCORRECT_DATA", "The request body ended early.")
        size -= len(piece)
        yield piece


def _chunks(reader: Reader) -> Iterator[bytes]:
    while True:
        head = reader.readline(1024)
        try:
            size = int(head.partition(b";")[0], 16)
        except ValueError:
            raise refusal(INCORRECT_DATA, "INCORRECT_DATA", "The request body ended early.") from None
        yield from _exactly(reader, size)
        while (line := reader.readline(8192).strip()) and size == 0:  # trailers, to the empty line
            pass
        if size == 0:
            return
        if line:
            raise refusal(INCORRECT_DATA, "INCORRECT_DATA", "A chunk of the request body is malformed.")


def _decoded(pieces: Iterator[bytes], encoding: str) -> Iterator[bytes]:
    if encoding in {"identity", ""}:
        yield from pieces
        return
    start = _DECOMPRESSORS.get(encoding)
    if start is None:
        raise refusal(NOT_IMPLEMENTED, "NOT_IMPLEMENTED", f"Content-Encoding {encoding!r} is not supported here.")
    decompressor = start()
    try:
        for piece in pieces:
            rest = piece
            while rest:
                if decompressor.eof:  # clients may send one frame (gzip: member) after the other
                    decompressor = start()
                yield decompressor.decompress(rest)
                rest = (decompressor.unused_data or b"") if decompressor.eof else b""
    except (zlib.error, RuntimeError, zstandard.ZstdError) as error:
        raise refusal(INCORRECT_DATA, "INCORRECT_DATA", f"The {encoding} body is corrupt: {error}.") from None
    if not decompressor.eof:
        raise refusal(INCORRECT_DATA, "INCORRECT_DATA", f"The {encoding} body ended early.")


_DECOMPRESSORS: dict[str, Callable[[], _Decompressor]] = {
    "gzip": lambda: zlib.decompressobj(wbits=31),
    "deflate": lambda: zlib.decompressobj(),
    "zstd": lambda: zstandard.ZstdDecompressor().decompressobj(),
    "lz4": lz4.frame.LZ4FrameDecompressor,
}


def response_encoding(headers: Message, settings: Mapping[str, str]) -> str:
    """Return how to compress the response: the cheapest encoding the client takes, or "identity"."""
    if settings.get("enable_http_compression", "0") not in {"1", "true"}:
        return "identity"
    accepted = {part.partition(";")[0].strip() for part in headers.get("Accept-Encoding", "").lower().split(",")}
    return next((encoding for encoding in ("lz4", "zstd", "gzip") if encoding in accepted), "identity")


def compressed(pieces: Iterator[bytes], encoding: str) -> Iterator[bytes]:
    """Yield the pieces compressed; empty pieces are left out (they would end a chunked body)."""
    if encoding == "gzip":
        yield from _gzip(pieces)
    elif encoding == "zstd":
        compressor = zstandard.ZstdCompressor(level=1).compressobj()
        yield from (out for piece in pieces if (out := compressor.compress(piece)))
        yield compressor.flush()
    elif encoding == "lz4":
        frame = lz4.frame.LZ4FrameCompressor()
        yield frame.begin()
        yield from (out for piece in pieces if (out := frame.compress(piece)))
        yield frame.flush()
    else:
        yield from (piece for piece in pieces if piece)


def _gzip(pieces: Iterator[bytes]) -> Iterator[bytes]:
    compressor = zlib.compressobj(level=1, wbits=31)
    yield from (out for piece in pieces if (out := compressor.compress(piece)))
    yield compressor.flush()


def compressed_whole(content: bytes, encoding: str) -> bytes:
    """Return a complete content compressed."""
    if encoding == "gzip":
        return gzip.compress(content, compresslevel=1)
    return b"".join(compressed(iter([content]), encoding))
