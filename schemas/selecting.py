"""Finds, in large blocks of bytes, the few lines that can mean something.

Two selectors give the same lines: one with hyperscan (an optional library), several hundred megabytes a second, and
one in plain Python for machines without it.

Marks of progress are so many that some do: those near the ends of a block, the last ones of it, and those before a line
that may be a fault.
"""

import re
from bisect import bisect_left, bisect_right
from collections.abc import Callable, Iterator, Sequence
from importlib.util import find_spec
from typing import Final, Protocol

import msgspec

from schemas.matching import HIDING, is_hiding, load_prefixes
from schemas.signals import SignalSet, Worth

BLOCK_BYTES: Final = 4 * 1024 * 1024
# Marks of progress are kept so far from the ends of a block, and so far before a line that may be a fault or the last
# mark, which says until when the job went on.
NEAR_END_BYTES: Final = 64 * 1024
NEAR_LINE_BYTES: Final = 2 * 1024

_FAR: Final = 1 << 62
# What hides words may itself be hidden: an object in an object, each with colours.
_MAX_LAYERS: Final = 6
_OCTAL: Final = re.compile(r"#(01[0-5]|033)")
_LOGFMT: Final = re.compile(r'msg="((?:[^"\\]|\\.)*)"')
_ESCAPES: Final = (("\\n", "\n"), ("\\t", "\t"), ('\\"', '"'), ("\\\\", "\\"))
_OF_EVENTS: Final = ("involvedObject", "regarding")  # events of Kubernetes are read as a whole

# Start and end of a line in its block, without its newline.
Span = tuple[int, int]
# The same, and whether the lines behind it hang on it.
Selected = tuple[int, int, bool]


class Selector(Protocol):
    """Finds the lines of a block that a signal may match."""

    def select(self, block: bytes) -> list[Selected]:
        """Those lines in order. A block begins at the start of a line and ends at the end of one."""
        ...


def selector(signals: SignalSet, *, plain: bool = False) -> Selector:
    """The fastest selector there is here; the plain one where it is asked for."""
    return _Plain(signals) if plain or not is_fast() else _Fast(signals)


def is_fast() -> bool:
    """Whether the fast library is installed."""
    return find_spec("hyperscan") is not None


class Search:
    """Looks for many regular expressions in one pass over a block. Needs hyperscan."""

    def __init__(self, expressions: Sequence[bytes]) -> None:
        import hyperscan

        self._database = hyperscan.Database(mode=hyperscan.HS_MODE_BLOCK)
        self._database.compile(
            expressions=list(expressions), ids=list(range(len(expressions))), elements=len(expressions),
            flags=[hyperscan.HS_FLAG_MULTILINE] * len(expressions),
        )  # fmt: skip

    def each(self, block: bytes, found: Callable[[int, int, int, int, object], None]) -> None:
        """Call `found` with the number of the expression, (nothing), where it ends, and nothing more, for each find."""
        self._database.scan(block, match_event_handler=found)

    def lines(self, block: bytes) -> list[Span]:
        """The lines in which one of the expressions ends, in order."""
        ends: list[int] = []
        self.each(block, lambda _number, _start, end, _flags, _context: ends.append(end))
        return list(_lines(block, sorted(ends)))


class Watch:
    """Says of single lines what they are worth a look for, also where an object, pairs or colours hide their words."""

    def __init__(self, signals: SignalSet) -> None:
        self._signals = signals

    def worth(self, line: str) -> Worth:
        """What a line, prefixes and all, is worth a look for. What cannot be opened is worth one."""
        data = line.encode("utf-8", "surrogatepass")
        if not is_hiding(data):
            return self._signals.worth(data)
        parts = _shown(line)
        if parts is None:
            return Worth.CONTEXT
        return max(map(self._signals.worth, parts), default=Worth.NOTHING)


def _shown(line: str) -> list[bytes] | None:
    """The texts that a line hides, none of which hides others; None where some cannot be had."""
    shown, hiding = list[str](), [line]
    for _ in range(_MAX_LAYERS):
        opened = list[str]()
        for text in hiding:
            inner = _inside(text)
            if inner is None:
                return None
            opened += inner
        hiding = []
        for text in opened:
            (hiding if is_hiding(text.encode("utf-8", "surrogatepass")) else shown).append(text)
        if not hiding:
            return [text.encode("utf-8", "surrogatepass") for text in shown]
    return None


def _inside(text: str) -> list[str] | None:
    """The lines inside one layer of what hides them."""
    if "\x1b" in text:
        return load_prefixes().ansi.sub("", text).replace("\x1b", " ").split("\n")
    if "#01" in text or "#03" in text:
        return _OCTAL.sub(lambda found: chr(int(found[1], 8)), text).replace("\x1b", " ").split("\n")
    at = text.find('{"') if text[:1] != "{" else 0
    if at < 0:
        return _LOGFMT.sub(lambda found: f"msg= {_unescaped(found[1])} ", text).split("\n")
    try:
        record = msgspec.json.decode(text[at:])
    except (ValueError, RecursionError):
        return None
    if isinstance(record, dict) and any(key in record for key in _OF_EVENTS):
        return None
    # What is under a key stands beside it: `rank=3` and `"rank": 3` are both marks.
    return [*text[:at].split("\n"), *(part for said in _said(record, 0) for part in said.split("\n"))]


def _unescaped(text: str) -> str:
    for escape, character in _ESCAPES:
        text = text.replace(escape, character)
    return text


def _said(value: object, depth: int) -> Iterator[str]:
    if isinstance(value, str):
        yield value
    elif isinstance(value, dict) and depth < _MAX_LAYERS:
        for key, inner in value.items():
            yield f'"{key}": ' if isinstance(inner, dict | list | str) else f'"{key}": {inner}'
            yield from _said(inner, depth + 1)
    elif isinstance(value, list) and depth < _MAX_LAYERS:
        for inner in value:
            yield from _said(inner, depth + 1)


class _Plain:
    """Looks at every line by itself."""

    def __init__(self, signals: SignalSet) -> None:
        self._worth = signals.worth

    def select(self, block: bytes) -> list[Selected]:
        found, start = list[tuple[int, int, Worth]](), 0
        for line in block.split(b"\n"):
            worth = self._worth(line)
            if worth != Worth.NOTHING:
                found.append((start, start + len(line), worth))
            start += len(line) + 1
        return _selected(found, [], _windows(found, _last_mark(found), len(block)))


class _Fast:
    """Looks for all literals in one pass over the block, then at the lines that hold one."""

    def __init__(self, signals: SignalSet) -> None:
        self._worth = signals.worth
        marks, others = _shortest(signals.mark_hints), _shortest(signals.line_hints)
        literals = [re.escape(hint.encode()) for hint in (*marks, *others)]
        self._first = len(marks)
        # Colours and the escapes of JSON hide literals: such lines are looked at one by one.
        hiding = [re.escape(literal) for literal in HIDING]
        # Words that begin a document are often short, and those of split lines shorter.
        opening = [rb"\b%s\b" % re.escape(hint.encode()) for hint in sorted(signals.opening_hints)]
        self._search = Search([*literals, *opening, *hiding, rb"^\{"])

    def select(self, block: bytes) -> list[Selected]:
        ends, mark_ends, first = list[int](), list[int](), self._first

        def hear(number: int, _start: int, end: int, _flags: int, _context: object) -> None:
            (ends if number >= first else mark_ends).append(end)

        self._search.each(block, hear)
        found, worth_of = list[tuple[int, int, Worth]](), self._worth
        for start, end in _lines(block, sorted(ends)):
            worth = worth_of(block[start:end])
            if worth != Worth.NOTHING:
                found.append((start, end, worth))
        mark_ends.sort()
        last = max(_last_mark(found), self._last_mark(block, mark_ends))
        windows = _windows(found, last, len(block))
        known = {start for start, _, _ in found}
        marks = [
            (start, end)
            for window in windows
            for start, end in _lines_from(block, mark_ends, window)
            if start not in known and worth_of(block[start:end]) == Worth.MARK
        ]
        return _selected(found, marks, windows)

    def _last_mark(self, block: bytes, ends: list[int]) -> int:
        """Where the last mark begins of the lines in which one of these (ascending) ends; -1 where there is none."""
        before = len(block) + 1
        for end in reversed(ends):
            if end < before:
                before = block.rfind(b"\n", 0, end) + 1
                through = block.find(b"\n", end)
                if self._worth(block[before : len(block) if through < 0 else through]) == Worth.MARK:
                    return before
        return -1


def _shortest(literals: frozenset[str]) -> list[str]:
    """The literals without those that contain another one: where they are, that one is."""
    kept: list[str] = []
    for literal in sorted(literals, key=lambda text: (len(text), text)):
        if not any(shorter in literal for shorter in kept):
            kept.append(literal)
    return kept


def _selected(found: list[tuple[int, int, Worth]], marks: list[Span], windows: list[Span]) -> list[Selected]:
    """What is found, without marks outside the windows, and those marks that are in them."""
    kept = [
        (start, end, worth == Worth.HEAD)
        for start, end, worth in found
        if worth != Worth.MARK or _is_within(windows, start)
    ]
    return sorted(kept + [(start, end, False) for start, end in marks]) if marks else kept


def _lines(block: bytes, ends: list[int], first: int = 0) -> Iterator[Span]:
    """The lines in which something ends, in order, each once. `ends` ascend; those before `first` do not count."""
    through = -1
    for number in range(first, len(ends)):
        end = ends[number]
        if end > through:
            start = block.rfind(b"\n", 0, end) + 1
            through = block.find(b"\n", end)
            through = len(block) if through < 0 else through
            yield start, through


def _lines_from(block: bytes, ends: list[int], window: Span) -> Iterator[Span]:
    """The lines that begin in a window and in which one of these (ascending) ends."""
    for start, end in _lines(block, ends, bisect_left(ends, window[0])):
        if start >= window[1]:
            return
        if start >= window[0]:
            yield start, end


def _is_within(windows: list[Span], place: int) -> bool:
    """Whether a place is in one of the windows (ascending)."""
    return place < windows[bisect_right(windows, (place, _FAR)) - 1][1]


def _last_mark(found: list[tuple[int, int, Worth]]) -> int:
    """Where the last mark begins; -1 where there is none."""
    return next((start for start, _, worth in reversed(found) if worth == Worth.MARK), -1)


def _windows(found: list[tuple[int, int, Worth]], last: int, size: int) -> list[Span]:
    """Where marks of progress are kept: windows of positions, ascending, that do not overlap. `last`: the last mark."""
    windows = [(0, NEAR_END_BYTES)]
    before = ((start - NEAR_LINE_BYTES, start) for start, _, worth in found if worth >= Worth.FAULT)
    for start, end in sorted([*before, (last - NEAR_LINE_BYTES, last + 1), (size - NEAR_END_BYTES, size + 1)]):
        if start <= windows[-1][1]:
            windows[-1] = (windows[-1][0], max(end, windows[-1][1]))
        else:
            windows.append((start, end))
    return windows
