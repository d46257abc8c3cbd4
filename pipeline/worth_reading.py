"""Which lines of a file are read: all of a small one; of a large one those that can mean something.

The first block of a file and its end are read whole: they say who runs where, since when and until when. So are the
lines behind one that begins a table or that was split, and files that are tables.
"""

import re
from collections.abc import Callable, Iterator
from typing import IO, Final, NamedTuple

from pipeline.core.parse import parse_line
from pipeline.logfiles import BROKEN, Block, blocks
from schemas.documents import FIRST_BYTES, FOLLOW_BYTES, opens
from schemas.selecting import BLOCK_BYTES, Selected, Selector, Span

END_BYTES: Final = 64 * 1024
# A line without a stamp was written after the last one with a stamp: so far back it is looked for.
LOOK_BACK_LINES: Final = 64
_HEAD_BYTES: Final = 160
# No address, and no loss with six digits.
_STAMP: Final = re.compile(rb"\d\d:\d\d[:\]]|\[ {0,11}\d{1,9}\.\d{6}|\b\d{10}")
# So much of a line holds all of its prefixes.
_PREFIX_BYTES: Final = 1_024


class ReadLine(NamedTuple):
    """A line of a file: its number from 1, its offset in bytes, its bytes without newline."""

    number: int
    offset: int
    data: bytes


def worth_reading(
    stream: IO[bytes], selector: Selector, after_block: Callable[[int], None] | None = None
) -> Iterator[ReadLine]:
    """The lines of a file that are worth reading, in order. `after_block` hears how many bytes were looked at.

    Of a file that breaks off first those before the break, then the error is raised.
    """
    number, read_bytes, held, broken = 1, 0, None, None
    followers, dated = _Followers(), None
    try:
        for block in blocks(stream):
            if held is not None:
                is_first = _is_first(read_bytes)
                if is_first:
                    followers.whole(held, selector)
                lines = list(_lines(held, number, selector, followers, 0 if is_first else len(held.data)))
                yield from _after(dated, lines)
                dated = _unread_date(held, number, lines) or (None if lines else dated)
                number, read_bytes = number + _count(held), read_bytes + len(held.data)
            held = block
            if after_block is not None:
                after_block(block.length)
    except BROKEN as error:
        broken = error
    if held is not None:
        last = held.data.rfind(b"\n", 0, max(0, len(held.data) - END_BYTES)) + 1
        yield from _after(dated, list(_lines(held, number, selector, followers, 0 if _is_first(read_bytes) else last)))
    if broken is not None:
        raise broken


def _is_first(read_bytes: int) -> bool:
    """Whether a block behind so many bytes is of the beginning of its file. Blocks end before a line that is cut."""
    return read_bytes < BLOCK_BYTES // 2


def _count(block: Block) -> int:
    # A line that is cut counts as one although its newline is not kept.
    return block.data.count(b"\n") or 1


class _Followers:
    """Lines that are read because of a line before them."""

    def __init__(self) -> None:
        self._left = 0
        self._is_table = False

    def whole(self, block: Block, selector: Selector) -> None:
        """Hear of a block that is read whole."""
        if block.offset == 0:
            first = block.data[:FIRST_BYTES].split(b"\n")
            self._is_table = any(opens(line) for line in first)
        tail = block.data.rfind(b"\n", 0, max(0, len(block.data) - FOLLOW_BYTES)) + 1
        data = block.data[tail:]
        for _ in self.among(data, selector.select(data)):
            pass

    def among(self, data: bytes, selected: list[Selected]) -> list[Span]:
        """The selected lines of the next block, and those behind one on which they hang."""
        if self._is_table:
            return list(_every(data, 0, len(data)))
        found, at, until = list[Span](), 0, self._left
        for start, end, is_head in [*selected, (len(data), len(data), False)]:
            if at < start and at < until:
                found += _every(data, at, min(start, until))
                at = found[-1][1] + 1
            if at <= start < len(data):
                found.append((start, end))
                at = end + 1
            if is_head:
                until = max(until, end + FOLLOW_BYTES)
        self._left = max(0, until - len(data))
        return found


def _every(data: bytes, start: int, before: int) -> Iterator[Span]:
    """All lines that begin before a place, from the line at `start` on."""
    while start < before:
        end = data.find(b"\n", start)
        end = len(data) if end < 0 else end
        yield start, end
        start = end + 1


def _lines(block: Block, number: int, selector: Selector, followers: _Followers, whole_from: int) -> Iterator[ReadLine]:
    """Of what stands before `whole_from` the selected lines, then all."""
    data, at = block.data, 0
    if whole_from:
        read = data[:whole_from]
        for start, end in _with_stamps(data, followers.among(read, selector.select(read))):
            number += data.count(b"\n", at, start)
            at = start
            yield ReadLine(number, block.offset + start, data[start:end])
        number += data.count(b"\n", at, whole_from)
        at = whole_from
    while at < len(data):
        end = data.find(b"\n", at)
        end = len(data) if end < 0 else end
        yield ReadLine(number, block.offset + at, data[at:end])
        number, at = number + 1, end + 1


def _after(dated: ReadLine | None, lines: list[ReadLine]) -> list[ReadLine]:
    """The lines of a block, behind the dated one of the block before where the first of them seems to have no stamp."""
    return [dated, *lines] if dated is not None and lines and not _seems_dated(lines[0].data) else lines


def _unread_date(block: Block, number: int, lines: list[ReadLine]) -> ReadLine | None:
    """The last line with a stamp behind those of a block that are read."""
    read_through = lines[-1].offset + len(lines[-1].data) + 1 - block.offset if lines else 0
    span = _dated_before(block.data, len(block.data), read_through)
    if span is None:
        return None
    start, end = span
    return ReadLine(number + block.data.count(b"\n", 0, start), block.offset + start, block.data[start:end])


def _with_stamps(data: bytes, spans: list[Span]) -> Iterator[Span]:
    """The lines, and before each that seems to have no stamp the last line that seems to have one."""
    read_through = 0
    for start, end in spans:
        if not _seems_dated(data, start, end):
            dated = _dated_before(data, start, read_through)
            if dated is not None:
                yield dated
        yield start, end
        read_through = end + 1


def _seems_dated(data: bytes, start: int = 0, end: int | None = None) -> bool:
    until = start + _HEAD_BYTES
    return _STAMP.search(data, start, until if end is None else min(end, until)) is not None


def _is_dated(line: bytes) -> bool:
    parsed = parse_line(line[:_PREFIX_BYTES].decode("utf-8", "replace"))
    return parsed.stamp is not None or parsed.boot_ns is not None


def _dated_before(data: bytes, before: int, floor: int) -> Span | None:
    end = before - 1
    for _ in range(LOOK_BACK_LINES):
        if end <= floor:
            return None
        start = data.rfind(b"\n", 0, end) + 1
        if start < floor:
            return None
        if _seems_dated(data, start, end) and _is_dated(data[start:end]):
            return start, end
        end = start - 1
    return None
