"""Secrets that do not end on the line where they begin: key blocks, and tokens in a line that was split or cut off.

What is open is kept with the positions of the spool, so that a restart in the middle of a key does not let out the
rest. What is saved holds no part of a line: kinds of secrets, and the shape of what stands before a line.
"""

import re
from collections.abc import Callable, Iterator
from itertools import takewhile
from typing import Final, NamedTuple

import msgspec
from msgspec import Struct

from schemas.records import RawLine
from shippers.positions import Position, SourcePosition
from shippers.redact_patterns import BegunRule, BlockRule, Rules, base64_value

NAME: Final = "redaction"  # among the positions
HIDDEN: Final = "[redacted:"
_KEPT: Final = 256
_PREFIX_BYTES: Final = 300
_TAIL: Final = 70_000
_TAIL_KEPT: Final = 300
_LONG_RUN: Final = 40
_CRI: Final = re.compile(r"\d{4}-\d\d-\d\dT\S{1,40} (stdout|stderr) ([PF])(?::\S{0,40})? ")
_DOCKER: Final = '{"log":"'
_DOCKER_END: Final = '","stream":"'
_RUN: Final = re.compile(r"[A-Za-z0-9_\-+/=.~%\\]{1,70000}")
_TOKEN: Final = re.compile(r"[A-Za-z0-9+/]{1,200}={0,3}(?![A-Za-z0-9+/])")
_YAML: Final = re.compile(r"(?P<pre>.{0,300}?)[ \t]{2,40}[\w.\-]{1,253}:[ \t]{1,8}(?P<secret>\S.{0,65536})$")
_MARK_AT_END: Final = re.compile(r"\[redacted:([a-z0-9-]{1,40})(?::[0-9a-f]{8})?\]$")

Mark = Callable[[str, str], str]


class OpenBlock(Struct, array_like=True):
    """A block that has begun. `shape` is of what stands before its lines, `left` how many may follow."""

    kind: str
    shape: str
    left: int
    whole: bool = False


class Carry(Struct, array_like=True):
    """What the next piece begins with: the rest of a secret of this kind, or what `tail` gives a meaning to.

    The tail is what was read, so it is never saved: after a restart the beginning of the next piece is taken out.
    """

    kind: str = ""
    tail: str = ""


class Memory(Struct):
    """What is open, by source, generation and stream."""

    blocks: dict[str, OpenBlock] = {}
    carries: dict[str, Carry] = {}

    @classmethod
    def of(cls, saved: SourcePosition | None) -> "Memory":
        """As it was saved; empty where that cannot be read."""
        try:
            return msgspec.json.decode(saved.generations[0].memo, type=cls) if saved and saved.generations else cls()
        except msgspec.DecodeError:
            return cls()

    def __bool__(self) -> bool:
        return bool(self.blocks or self.carries)

    def position(self) -> SourcePosition:
        """What to save."""
        for known in (self.blocks, self.carries):
            while len(known) > _KEPT:
                known.pop(next(iter(known)))
        saved = Memory(
            blocks=self.blocks, carries={key: Carry(each.kind or "cut") for key, each in self.carries.items()}
        )
        return SourcePosition(generations=(Position(generation="", memo=msgspec.json.encode(saved).decode()),))


class Payload(NamedTuple):
    """What a program wrote within a line of a container's log, and whether the next line goes on with it."""

    start: int
    end: int
    stream: str
    goes_on: bool


def payload_of(body: str) -> Payload:
    """The part of a line that its program wrote: all of it, but in logs of containers."""
    if body.startswith(_DOCKER) and (end := body.rfind(_DOCKER_END)) > 0:
        at = end + len(_DOCKER_END)
        return Payload(len(_DOCKER), end, body[at : at + 6], not body.endswith("\\n", 0, end))
    if (found := _CRI.match(body)) is not None:
        return Payload(found.end(), len(body), found[1], found[2] == "P")
    return Payload(0, len(body), "", False)


def key_of(line: RawLine, payload: Payload) -> str:
    """Whose lines follow each other."""
    return f"{line.source}\0{line.generation}\0{payload.stream}"


class OpenSecrets:
    """Follows what is open from line to line."""

    def __init__(self, rules: Rules, mark: Mark, whole: Callable[[str], str]) -> None:
        self._rules = rules
        self._mark = mark
        self._whole = whole
        self._ends = {each.kind: each.end for each in rules.blocks}

    # --- pieces of a line ---

    def carried(self, body: str, payload: Payload, carry: Carry) -> str:
        """The line without what belongs to a secret that began in the piece before it."""
        text = body[payload.start : payload.end]
        if carry.kind:
            run = _RUN.match(text)
            if run is not None:
                text = self._mark(carry.kind, run[0]) + text[run.end() :]
        else:
            joined = self._whole(carry.tail + text)
            same = takewhile(lambda pair: pair[0] == pair[1], zip(joined, carry.tail, strict=False))
            text = joined[sum(1 for _ in same) :]
        return body[: payload.start] + text + body[payload.end :]

    def begun(self, body: str, payload: Payload) -> tuple[str, Carry]:
        """A piece that goes on elsewhere, without a secret that has begun; and what the next piece begins with."""
        low = max(payload.start, payload.end - _TAIL)
        tail = body[low : payload.end]
        for rule in self._rules.begun:
            place = _begun_at(rule, tail)
            if place is not None:
                start, end = place
                mark = self._mark(rule.kind, tail[start:end]) if end > start else ""
                return body[:low] + tail[:start] + mark + tail[end:] + body[payload.end :], Carry(kind=rule.kind)
        ended = _MARK_AT_END.search(tail)
        if ended is not None:
            return body, Carry(kind=ended[1])
        return body, Carry(tail=tail[-_TAIL_KEPT:])

    # --- blocks of lines ---

    def begin(self, body: str) -> tuple[str, OpenBlock | None]:
        """The line up to where a block begins on it, and that block; unless it also ends on it."""
        for rule in self._rules.blocks:
            found = rule.begin.search(body)
            if found is None or rule.end.search(body, found.end()):
                continue
            rest = body[found.end() :]
            if rest.strip("\\nr\"',") and rule.inside == "base64":
                body = body[: found.end()] + self._mark(rule.kind, rest)
            return body, _opened(rule, found)
        return body, None

    def inside(self, body: str, block: OpenBlock) -> tuple[str, bool]:
        """A line within a block, without what is secret; and whether the block goes on after it."""
        block.left -= 1
        end = self._ends[block.kind].search(body)
        if block.kind == "kubernetes-secret":
            return self._yaml(body, block, ended=end is not None)
        head, tail = (body[: end.start()], body[end.start() :]) if end else (body, "")
        return self._base64(head, block) + tail, end is None and block.left > 0

    def _base64(self, text: str, block: OpenBlock) -> str:
        parts: list[str] = []
        at = 0
        for start, end in self._keys_in(text, block.shape):
            parts += text[at:start], self._mark(block.kind, text[start:end])
            at = end
        return "".join((*parts, text[at:]))

    def _keys_in(self, text: str, shape: str) -> Iterator[tuple[int, int]]:
        """Where text of the block stands: behind what stood before its beginning, or long wherever it is."""
        for found in _TOKEN.finditer(text):
            start = found.start()
            ends = text[found.end() : found.end() + 1] in ("", "\\", '"', "'")
            is_next = ends and start <= _PREFIX_BYTES and shape_of(text[:start]) == shape
            if is_next or (found.end() - start >= _LONG_RUN and text[start] != "/"):
                yield start, found.end()

    def _yaml(self, body: str, block: OpenBlock, *, ended: bool) -> tuple[str, bool]:
        found = None if ended else _YAML.match(body)
        if found is None or shape_of(found["pre"]) != block.shape:
            return body, not ended and found is not None and block.left > 0
        value = found["secret"]
        if block.whole or base64_value(value):
            body = body[: found.start("secret")] + self._mark(block.kind, value)
        return body, block.left > 0


def _begun_at(rule: BegunRule, tail: str) -> tuple[int, int] | None:
    """Where a secret stands that goes on behind the end. Only the last characters of its kind are looked at."""
    if rule.other is None:
        low = max(0, len(tail) - _TAIL_KEPT)
        found = rule.pattern.search(tail, low)
        return found.span("secret") if found else None
    other = rule.other.search(tail[::-1])
    run = len(tail) - (other.start() if other else len(tail))
    for found in rule.pattern.finditer(tail, max(0, run - _TAIL_KEPT)):
        if found.end() >= run:
            return found.end(), len(tail)
    return None


def shape_of(prefix: str) -> str:
    """What stands before a line, whatever its numbers are."""
    return re.sub(r"[0-9]{1,40}", "0", prefix).rstrip()


def _opened(rule: BlockRule, found: re.Match[str]) -> OpenBlock:
    prefix = found.string[: found.start()][-_PREFIX_BYTES:]
    return OpenBlock(rule.kind, shape_of(prefix), rule.lines, "stringData" in found[0])
