"""What one line of a file says, taken apart: the lines of a text inside it, and what two writers wrote at once."""

from functools import lru_cache
from typing import Any, Final, NamedTuple

import msgspec

from pipeline.core.parse import ParsedLine, parse_line
from schemas.matching import Prefix, load_prefixes

MAX_PIECES: Final = 64
MAX_TEARS: Final = 4
# A prefix begins so far at most before the literal by which it is found.
_LOOK_BACK: Final = 300
# What a second writer in the same line has in common with the first: who took both down, and when.
_OF_THE_LINE: Final = ("node", "pod", "task", "stamp", "other", "boot_ns")
_OF_THE_TEXT: Final = (*_OF_THE_LINE, "rank", "local_rank", "pid", "cuda_dev", "pg_rank", "pg", "process", "count")


class Piece(NamedTuple):
    """A part of a line. `torn`: another writer's text broke it off, or it broke off another's."""

    parsed: ParsedLine
    torn: bool


def is_whole(body: str) -> bool:
    """Whether a body is one line of one writer: then it is its only piece."""
    if "\n" in body:
        return False
    for literal in _literals():  # noqa: SIM110 - asked of every line; a generator takes three times as long
        if literal in body:
            return False
    return True


def pieces(parsed: ParsedLine) -> list[Piece]:
    """The lines in a line, in order. Prefixes count for all lines of a text that they stand before."""
    lines = parsed.body.split("\n")
    found = _torn(msgspec.structs.replace(parsed, body=lines[0]))
    for line in lines[1:MAX_PIECES]:
        if line.strip():
            found += _torn(_within(parsed, parse_line(line), _OF_THE_TEXT))
    return found


@lru_cache(maxsize=1)
def _insides() -> tuple[tuple[str, Prefix], ...]:
    return tuple((literal, prefix) for prefix in load_prefixes().prefixes for literal in prefix.entry.inside)


@lru_cache(maxsize=1)
def _literals() -> tuple[str, ...]:
    return tuple(literal for literal, _ in _insides())


def _within(outer: ParsedLine, inner: ParsedLine, names: tuple[str, ...]) -> ParsedLine:
    """The inner line, with what only the outer prefixes say."""
    said: dict[str, Any] = {name: getattr(outer, name) for name in names if getattr(inner, name) is None}
    return msgspec.structs.replace(inner, wrappers=outer.wrappers + inner.wrappers, **said)


def _torn(parsed: ParsedLine) -> list[Piece]:
    found: list[Piece] = []
    for _ in range(MAX_TEARS):
        tear = _tear(parsed.body)
        if tear is None:
            break
        at, is_open = tear
        before, inner = parsed.body[:at], parse_line(parsed.body[at:])
        if is_open:
            # A host name has no sign of where it begins; the end of what stands there may be one that is known.
            is_same = bool(parsed.node) and (inner.node or "").endswith(parsed.node or "")
            inner = msgspec.structs.replace(inner, node=parsed.node if is_same else "")
        if before.strip():
            found.append(Piece(msgspec.structs.replace(parsed, body=before), torn=True))
        parsed = _within(parsed, inner, _OF_THE_LINE)
        if parsed.node == "":
            parsed = msgspec.structs.replace(parsed, node=None)
    return [*found, Piece(parsed, torn=bool(found))]


def _tear(body: str) -> tuple[int, bool] | None:
    """Where the first prefix in the middle of a body begins, and whether it may begin later: with a host name."""
    places = [place for literal, prefix in _insides() if (place := _place(body, literal, prefix)) is not None]
    return min(places, default=None)


def _place(body: str, literal: str, prefix: Prefix) -> tuple[int, bool] | None:
    at, is_open = body.find(literal, 1), prefix.entry.last
    for _ in range(MAX_TEARS):
        if at < 0:
            return None
        floor = max(0, at - _LOOK_BACK)
        start = at
        if is_open:
            start = max(body.rfind(space, floor, body.rfind(" [", floor, at + 1)) for space in " \t]") + 1
        elif not literal.startswith("["):
            start = body.rfind("[", floor, at)
        found = prefix.match(body, start) if start > 0 or (is_open and start >= 0) else None
        if found is not None and found.end() > at and (is_open or found[0].rstrip().endswith(":")):
            return start, is_open
        at = body.find(literal, at + 1)
    return None
