"""Lines that a container runtime split because they were long are put together again.

CRI files mark every part but the last with `P`; Docker's json-file cuts at 16 KiB, and only the last part ends with a
newline; the journal and fluent-bit mark parts with a key. The parts of two streams may stand between each other.
"""

from collections.abc import Mapping
from typing import Any, Final

import msgspec
from msgspec import Struct

from pipeline.core.envelopes import at, decoded
from schemas.documents import FOLLOW_BYTES
from schemas.matching import load_prefixes
from schemas.records import RawLine

MAX_OPEN: Final = 32
# Signals look at the head and the tail of a long text; more of it is not kept.
HEAD_CHARACTERS: Final = 8_192
TAIL_CHARACTERS: Final = 4_096
DOCKER_BYTES: Final = 16 * 1024
_DOCKER_KEYS: Final = frozenset(("log", "stream", "time", "attrs"))
_OF_PARTS: Final = ("log", "MESSAGE", "message")


class Partial(Struct, kw_only=True):
    """The parts of a line so far. `line` is the first one, `head` and `tail` are of the text of all of them."""

    line: RawLine
    head: str = ""
    tail: str = ""
    cut: bool = False
    offset: int = 0

    def add(self, text: str, offset: int) -> None:
        """Take the next part."""
        room = max(0, HEAD_CHARACTERS - len(self.head))
        self.head, rest = self.head + text[:room], text[room:]
        self.cut = self.cut or len(self.tail) + len(rest) > TAIL_CHARACTERS
        self.tail, self.offset = (self.tail + rest)[-TAIL_CHARACTERS:], offset

    @property
    def text(self) -> str:
        """The text of all parts; of a very long one its head and its tail."""
        return f"{self.head} … {self.tail}" if self.cut else self.head + self.tail


class Joined(Struct, frozen=True, gc=False):
    """A line to read: as it was, or put together from its parts."""

    line: RawLine
    joined: bool


class _Part(Struct, frozen=True):
    """One line as a part: whose it is, its text, and whether more follows."""

    key: str
    text: str
    more: bool


class Partials:
    """The lines of one source that are not complete. All state is in `memory`."""

    def __init__(self, memory: dict[str, Partial]) -> None:
        self._memory = memory

    @property
    def is_open(self) -> bool:
        """Whether any line may be the rest of another."""
        return bool(self._memory)

    def take(self, line: RawLine) -> Joined | None:
        """The line that may be read now; None where it is a part to which more belongs."""
        is_open = bool(self._memory)
        # Most lines are no part of anything.
        if not is_open and " P " not in line.body and line.body[:1] != "{":
            return Joined(line, False)
        part = _part(line.body, is_open=is_open)
        if part is None:
            return Joined(line, False)
        open_ = self._memory.get(part.key)
        if open_ is not None and abs(line.offset - open_.offset) > FOLLOW_BYTES:
            del self._memory[part.key]
            open_ = None
        if open_ is None:
            if not part.more:
                return Joined(line, False)
            while len(self._memory) >= MAX_OPEN:
                del self._memory[next(iter(self._memory))]
            open_ = self._memory[part.key] = Partial(line=_first(line))
        open_.add(part.text, line.offset)
        if part.more:
            return None
        del self._memory[part.key]
        return Joined(_whole(open_), True)

    def flush(self) -> list[Joined]:
        """The lines of which no more comes, as far as they go."""
        lines = [Joined(_whole(partial), True) for partial in self._memory.values()]
        self._memory.clear()
        return lines


def _part(body: str, *, is_open: bool) -> _Part | None:
    found = load_prefixes().cri.match(body)
    if found is not None:
        return _Part(f"cri {found['stream']}", body[found.end() :], found["flag"] == "P")
    if body.startswith("{") and (is_open or len(body) >= DOCKER_BYTES or _is_marked(body)):
        return _part_of(decoded(body))
    return None


def _is_marked(body: str) -> bool:
    return any(f'"{key}"' in body for key in load_prefixes().json.partial)


def _part_of(record: Mapping[str, Any] | None) -> _Part | None:
    if record is None:
        return None
    key = next((key for key in _OF_PARTS if isinstance(record.get(key), str)), None)
    if key is None:
        return None
    text: str = record[key]
    marks = [record[mark] for mark in load_prefixes().json.partial if mark in record]
    whose = " ".join(str(at(record, name)) for name in ("stream", "CONTAINER_ID", "kubernetes.pod_name"))
    if marks:
        return _Part(f"marked {whose}", text, marks[0] in ("P", "true", True))
    if record.keys() <= _DOCKER_KEYS:
        # Only a full buffer is a part: the last line of a container may lack its newline too.
        more = not text.endswith("\n") and len(text.encode("utf-8", "surrogatepass")) >= DOCKER_BYTES - 3
        return _Part(f"docker {whose}", text, more)
    return None


def _first(line: RawLine) -> RawLine:
    """A first part without its text, so that what stands around it can be put around the whole text."""
    found = load_prefixes().cri.match(line.body)
    if found is not None:
        return msgspec.structs.replace(line, body=f"{found['head']}F ")
    record = decoded(line.body) or {}
    kept = {key: value for key, value in record.items() if key not in (*_OF_PARTS, *load_prefixes().json.partial)}
    return msgspec.structs.replace(line, body=msgspec.json.encode(kept).decode())


def _whole(partial: Partial) -> RawLine:
    line = partial.line
    body = line.body + partial.text
    if line.body.startswith("{"):
        body = msgspec.json.encode({**(decoded(line.body) or {}), "log": partial.text}).decode()
    return msgspec.structs.replace(line, body=body, truncated=line.truncated or partial.cut)
