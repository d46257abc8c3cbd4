"""Reads files that are one JSON document of records: an array, a list of Kubernetes, objects behind one another."""

import json
from collections.abc import Iterator
from functools import lru_cache
from pathlib import Path
from typing import Any, Final, NamedTuple

import msgspec

from pipeline.core.envelopes import decoded, opened
from pipeline.logfiles import UnreadableFileError, open_log
from schemas.names import printable

# A document has to be in memory as a whole.
MAX_BYTES: Final = 64 * 1024 * 1024
MAX_OBJECTS: Final = 1_000_000
_BETWEEN: Final = " \t\r\n,[]\ufeff"
_DECODER: Final = json.JSONDecoder()


class ObjectLine(NamedTuple):
    """One object as one line: its number from 1, the line and offset (in bytes) where it stands, its text."""

    line_no: int
    offset: int
    text: str


def is_document(text: str) -> bool:
    """Whether a text is one JSON document (or several that span lines), not lines that are objects."""
    first, newline, more = text.lstrip("\ufeff \t\r\n").partition("\n")
    is_line = bool(newline) and bool(more.strip()) and decoded(first) is not None
    return first.startswith(("{", "[")) and not is_line


def holds_records(path: Path) -> bool:
    """Whether the objects of a document say something, as lines of a log do."""
    return any(opened(line.text, {}) is not None for line in object_lines(path))


def object_lines(path: Path) -> tuple[ObjectLine, ...]:
    """The objects of a document, each as one line; those before the place where it breaks off.

    Raises:
        UnreadableFileError: the file cannot be opened or decompressed.

    """
    return _of(path)[0]


def too_much(path: Path) -> str | None:
    """What to say of a document that has more than `object_lines` gives."""
    if not _of(path)[1]:
        return None
    limit = f"the first {MAX_BYTES >> 20} MiB and {MAX_OBJECTS:,} objects"
    return f"{printable(str(path))}: of one JSON document only {limit} are read; write one object a line"


def _of(path: Path) -> tuple[tuple[ObjectLine, ...], bool]:
    try:
        stat = path.stat()
    except OSError as error:
        raise UnreadableFileError(f"{printable(str(path))}: {error.strerror}") from error
    return _object_lines(path, stat.st_size, stat.st_mtime_ns)


@lru_cache(maxsize=1)
def _object_lines(path: Path, _size: int, _changed_ns: int) -> tuple[tuple[ObjectLine, ...], bool]:
    with open_log(path) as stream:
        data = stream.read(MAX_BYTES)
        is_cut = bool(stream.read(1))
    # Bytes that are no UTF-8 count as one each.
    text = data.decode("utf-8", "surrogateescape")
    lines, at, offset, line_no = list[ObjectLine](), 0, 0, 1
    for start, record in _records(text):
        if len(lines) == MAX_OBJECTS:
            return tuple(lines), True
        between = text[at:start]
        at, offset = start, offset + len(between.encode("utf-8", "surrogateescape"))
        line_no += between.count("\n")
        lines.append(ObjectLine(line_no, offset, _encoded(record)))
    return tuple(lines), is_cut


def _encoded(record: dict[str, Any]) -> str:
    try:
        return msgspec.json.encode(record).decode()
    except UnicodeEncodeError:
        # A byte that is no UTF-8, or half of an escaped character.
        return json.dumps(record, ensure_ascii=False).encode("utf-8", "replace").decode()


def _records(text: str) -> Iterator[tuple[int, dict[str, Any]]]:
    """Each object with where it begins."""
    at = 0
    while (at := _next(text, at)) < len(text):
        items = _items(text, at)
        if items is not None:
            at = items
            continue
        try:
            record, end = _DECODER.raw_decode(text, at)
        except (ValueError, RecursionError):
            # What closes a list of Kubernetes stands behind its items.
            return
        if isinstance(record, dict):
            yield at, record
        at = end


def _next(text: str, at: int) -> int:
    while at < len(text) and text[at] in _BETWEEN:
        at += 1
    return at


def _items(text: str, at: int) -> int | None:
    """Where the items of a list of Kubernetes begin, if the object is one."""
    head = text[at : at + 4_096]
    place = head.find('"items"')
    bracket = head.find("[", place)
    before = head[:place]
    if not head.startswith("{") or place < 0 or bracket < 0 or before.count("{") > 1 + before.count("}"):
        return None
    return at + bracket + 1
