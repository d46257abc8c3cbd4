"""One file as long as it is the same file: lines cut from an offset, and proof that it is still the same file."""

import contextlib
import errno
import os
import stat
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from shippers.pieces import Limit, Moment
from shippers.positions import HEAD_BYTES, TAIL_BYTES, Mark, Position, mark_of

CHUNK_BYTES: Final = 256 * 1024
_COUNT_BYTES: Final = 1024 * 1024
_NEWLINE: Final = b"\n"


class ReplacedError(Exception):
    """The file was truncated or written anew under the same name; `position` was reached before."""

    def __init__(self, position: Position) -> None:
        super().__init__(position.generation)
        self.position = position


@dataclass(frozen=True, slots=True, kw_only=True)
class Chunk:
    """Lines (without their newline) that follow each other from byte `start`.

    `too_long`: the only line is the beginning of one that is over-long. `torn`: the last one has no newline.
    """

    raws: list[bytes]
    start: int
    line_no: int | None
    too_long: bool = False
    torn: bool = False


class Generation:
    """An open file and how far it is read. `cut` looks, `advance` moves on."""

    def __init__(self, fd: int, saved: Position | None = None, *, cuts: int = 0) -> None:
        status = os.fstat(fd)
        self.fd = fd
        self.inode = status.st_ino
        self.device = status.st_dev
        self.name = saved.generation if saved else ""
        self.offset = saved.offset if saved else 0
        self.line_no = saved.line_no if saved else 0
        self.cuts = saved.cuts if saved else cuts
        self.skipping = saved.skipping if saved else False
        self.size = status.st_size
        self.grew_mono_ns = 0
        self.opened_in: Moment | None = None
        self.is_stale = False  # reading failed: the handle is of no use any more
        self._mtime_ns = status.st_mtime_ns
        self.left_mono_ns: int | None = None
        self.fresh_from = self.size  # what is behind it was written while we looked
        self.is_at_end = False
        self._head = saved.head if saved else Mark()
        self._tail = os.pread(fd, min(TAIL_BYTES, self.offset), self.offset - min(TAIL_BYTES, self.offset))
        self._looked_at: tuple[int, int] | None = None

    @classmethod
    def open(cls, path: Path, saved: Position | None = None, *, cuts: int = 0) -> "Generation":
        """Open `path` where `saved` ends. Raises OSError; ReplacedError if it does not hold what was read before."""
        fd = _open_regular(path)
        try:
            if saved is not None and not _continues(fd, saved):
                raise ReplacedError(saved)
            return cls(fd, saved, cuts=cuts)
        except BaseException:
            os.close(fd)
            raise

    @property
    def is_empty(self) -> bool:
        """Whether no byte of it has been seen."""
        return self._head.size == 0

    def start_at_end(self, max_line_bytes: int) -> None:
        """Pass over what is there, up to the beginning of a line that is still being written."""
        self.size = os.fstat(self.fd).st_size
        low = max(0, self.size - max_line_bytes)
        newline = os.pread(self.fd, self.size - low, low).rfind(_NEWLINE)
        if newline < 0 and low == 0:
            return
        self.skipping = newline < 0
        self._move_to(low + newline + 1 if newline >= 0 else self.size)
        self.line_no = None

    def cut(self, limit: Limit, max_line_bytes: int, *, ending: bool) -> Chunk | None:
        """The next complete lines, or None at the end. Raises ReplacedError."""
        status = os.fstat(self.fd)
        self.size = status.st_size
        if (self.size, status.st_mtime_ns) == self._looked_at and not ending:
            return None
        if self.offset == self.size:
            self._pread(0)  # as long as before, but maybe written anew
        if self.size < max(self.offset, self._head.size) or (self.offset < self._head.size and not self._has_head()):
            raise ReplacedError(self.position())
        want = max(1, min(limit.size, CHUNK_BYTES))
        while self.offset != self.size:
            data = self._pread(want)
            if self.skipping and data:
                self._skip(data)
                if self.skipping:
                    return Chunk(raws=[], start=self.offset, line_no=self.line_no)
                continue
            if not data:
                break
            if data[0] == 0:
                if self._pass_hole(data):
                    continue
                return None
            chunk = self._split(data, limit, max_line_bytes, ending=ending)
            if chunk is not None:
                return chunk
            if len(data) < want:
                break
            want = max_line_bytes + 1
            limit = Limit(lines=1, size=want)
        self._looked_at = (self.size, status.st_mtime_ns)
        return None

    def pass_over(self, most: int) -> tuple[int, int]:
        """Go on by at most so many bytes, to the end of a line, unread: how many lines and bytes these were.

        Raises ReplacedError.
        """
        lines, size, at = 0, 0, self.offset
        while size < most:
            data = (
                self._pread(min(_COUNT_BYTES, most - size))
                if at == self.offset
                else os.pread(self.fd, _COUNT_BYTES, at)
            )
            end = data.rfind(_NEWLINE) + 1
            if not end:
                break
            lines, size, at = lines + data.count(_NEWLINE), size + end, at + end
        if lines:
            self._looked_at = None
            self._move_to(at)
            self._see_head()
            if self.line_no is not None:
                self.line_no += lines
        return lines, size

    def advance(self, chunk: Chunk, count: int) -> None:
        """Count the first `count` lines of `chunk` as read."""
        raws = chunk.raws if count == len(chunk.raws) else chunk.raws[:count]
        whole = count == len(chunk.raws)
        size = sum(map(len, raws)) + len(raws)
        if whole and (chunk.torn or chunk.too_long):
            size -= 1
        self.skipping = whole and chunk.too_long
        self._looked_at = None
        self._move_to(chunk.start + size)
        self._see_head()
        if self.line_no is not None:
            self.line_no += count

    def position(self) -> Position:
        """What to save to resume here."""
        return Position(
            generation=self.name, inode=self.inode, offset=self.offset, line_no=self.line_no, head=self._head,
            tail=mark_of(self._tail), cuts=self.cuts, skipping=self.skipping, mtime_ns=self._written_ns(),
        )  # fmt: skip

    def after_replacement(self) -> "Generation":
        """The same open file, read from its beginning as a new generation."""
        return Generation(self.fd, cuts=self.cuts + 1)

    def is_linked(self) -> bool:
        """Whether the file still has a name."""
        try:
            return os.fstat(self.fd).st_nlink > 0
        except OSError:
            return False

    def behind(self) -> int:
        """How many bytes are behind the offset. Raises OSError."""
        return os.fstat(self.fd).st_size - self.offset

    def close(self) -> None:
        """Close the file."""
        with contextlib.suppress(OSError):  # a network file system may say of a stale handle only now what was wrong
            os.close(self.fd)

    def _written_ns(self) -> int:
        """When the file was last written, as far as that can be had."""
        with contextlib.suppress(OSError):
            self._mtime_ns = os.fstat(self.fd).st_mtime_ns
        return self._mtime_ns

    def _split(self, data: bytes, limit: Limit, max_line_bytes: int, *, ending: bool) -> Chunk | None:
        self._see_head()
        raws = data.split(_NEWLINE, limit.lines)
        rest = raws.pop()
        if raws:
            if len(raws[0]) > max_line_bytes:
                return Chunk(raws=[raws[0][:max_line_bytes]], start=self.offset, line_no=self.line_no, too_long=True)
            raws = raws[: _first_too_long(raws, max_line_bytes)]
            return Chunk(raws=raws, start=self.offset, line_no=self.line_no)
        if len(rest) > max_line_bytes:
            return Chunk(raws=[rest[:max_line_bytes]], start=self.offset, line_no=self.line_no, too_long=True)
        if ending and rest and self.offset + len(rest) >= self.size:
            return Chunk(raws=[rest], start=self.offset, line_no=self.line_no, torn=True)
        return None

    def _pread(self, want: int) -> bytes:
        """Bytes at the offset, after a look at those before it."""
        before = len(self._tail)
        data = os.pread(self.fd, before + want, self.offset - before)
        if data[:before] != self._tail:
            raise ReplacedError(self.position())
        return data[before:]

    def _skip(self, data: bytes) -> None:
        newline = data.find(_NEWLINE)
        self.skipping = newline < 0
        self._move_to(self.offset + (newline + 1 if newline >= 0 else len(data)))

    def _pass_hole(self, data: bytes) -> bool:
        """Move past the NUL bytes that a truncated file has where its writer did not notice.

        False where nothing but NUL follows: a file written ahead is filled later, its bytes are not passed over.
        """
        rest = data.lstrip(b"\0")
        target = self.offset + len(data) - len(rest)
        if not rest:
            try:
                target = max(target, os.lseek(self.fd, target, os.SEEK_DATA))
            except OSError:  # no data after it
                return False
            if target >= self.size:
                return False
        self._move_to(target)
        return True

    def _move_to(self, offset: int) -> None:
        self.offset = offset
        size = min(TAIL_BYTES, offset)
        self._tail = os.pread(self.fd, size, offset - size)

    def _has_head(self) -> bool:
        return mark_of(os.pread(self.fd, self._head.size, 0)) == self._head

    def _see_head(self) -> None:
        """Name the generation at the first sight of bytes, and learn more of its head as it grows."""
        if self._head.size >= HEAD_BYTES or (self.name and self._head.size >= self.offset):
            return
        head = mark_of(os.pread(self.fd, HEAD_BYTES, 0))
        if head.size and not self.name:
            self.name = f"{self.inode:x}-{head.crc:08x}" + (f".{self.cuts}" if self.cuts else "")
        self._head = head


def _first_too_long(raws: list[bytes], max_line_bytes: int) -> int:
    if max(map(len, raws)) <= max_line_bytes:
        return len(raws)
    return next(index for index, raw in enumerate(raws) if len(raw) > max_line_bytes)


def head_of(path: Path, size: int) -> Mark:
    """The mark of the first `size` bytes of a file. Raises OSError."""
    fd = _open_regular(path)
    try:
        return mark_of(os.pread(fd, size, 0))
    finally:
        os.close(fd)


def _open_regular(path: Path) -> int:
    link = path.lstat()
    is_link = stat.S_ISLNK(link.st_mode)
    fd = os.open(path, os.O_RDONLY | os.O_CLOEXEC | os.O_NONBLOCK | (0 if is_link else os.O_NOFOLLOW))
    status = os.fstat(fd)
    problem = None if stat.S_ISREG(status.st_mode) else "not a regular file"
    if is_link and not is_followed(link.st_uid, status.st_uid, os.geteuid()):
        problem = f"a link of user {link.st_uid} to a file of user {status.st_uid}; such are followed only if root's"
    if problem is not None:
        os.close(fd)
        raise OSError(errno.EINVAL, problem)
    return fd


def is_followed(link_owner: int, file_owner: int, own: int) -> bool:
    """Whether a link is: who may put one into a folder of logs may not read by it what the agent may."""
    return link_owner in (0, own, file_owner)


def _continues(fd: int, saved: Position) -> bool:
    """Whether the bytes that were read stand in the file where they stood."""
    if os.fstat(fd).st_size < saved.offset or mark_of(os.pread(fd, saved.head.size, 0)) != saved.head:
        return False
    return mark_of(os.pread(fd, saved.tail.size, saved.offset - saved.tail.size)) == saved.tail
