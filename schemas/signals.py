"""Signals as data: which lines mean something, and what. One TOML file per emitter in `schemas/signals`.

Order: files by their `order` (then name), signals in file order; of all signals that fit a line the first wins. So
specific files (one emitter) have low numbers and files of catch-all texts (`python`) have high ones, and within a
file the specific signal stands above the general one.
"""

import re
from collections.abc import Callable, Mapping
from contextlib import suppress
from enum import IntEnum
from functools import lru_cache
from typing import Any, Final, NamedTuple

import msgspec
from msgspec import Struct

from schemas.decoders import DECODERS
from schemas.documents import opening_hints, opens
from schemas.matching import (
    HintIndex,
    SignalFileError,
    compile_pattern,
    digest,
    digit_groups,
    is_hiding,
    is_of_word,
    key_of,
    needs_of,
    parse_toml,
    pattern_files,
    without_digits,
    words,
)
from schemas.records import Entity
from schemas.signal_files import (
    INT_FIELDS,
    NOT_SIGNAL_FILES,
    SITE,
    Override,
    Signal,
    SignalFile,
    check_names,
    check_words,
    read_files,
)
from schemas.values import CONVERTERS
from schemas.vocabulary import Role, Severity

# Only so much of a very long body is searched: its head and its tail. Keeps every pattern cheap on hostile input.
HEAD_CHARS: Final = 4096
TAIL_CHARS: Final = 2048

NOBODY: Final = Entity()


class Match(Struct, frozen=True, gc=False):
    """What a body means: the signal that reads it, and what its attributes make of role, label, severity and scope.

    With `carries` its attributes are kept for a later line that `takes`; it is an event itself only if it `keeps`.
    """

    by: Signal
    role: Role
    label: str
    severity: Severity
    scope: str
    attributes: dict[str, str]
    subject: Entity

    @property
    def signal(self) -> str:
        """Id of the signal."""
        return self.by.id

    @property
    def event(self) -> str:
        """Name of the event."""
        return self.by.event

    @property
    def placement(self) -> bool:
        """Whether it says who runs where."""
        return self.by.placement

    @property
    def carries(self) -> str | None:
        """The block to which its attributes belong."""
        return self.by.carries

    @property
    def keeps(self) -> bool:
        """Whether it is an event although it carries."""
        return self.by.keeps

    @property
    def takes(self) -> str | None:
        """The block that it ends."""
        return self.by.takes

    @property
    def one_per_second(self) -> bool:
        """Whether one of its lines per second says as much as many."""
        return self.by.one_per_second


# What lines with a hint and no match are counted under.
NEAR_MISS: Final = Signal(
    id="unmatched.near_miss", event="unmatched.near_miss", pattern="", role="noise", scope="node", severity="trace",
    label="", matches=[], misses=[],
)  # fmt: skip


# A group of a pattern: its place, the name of its attribute, how it is written, and whether it is digits, which are
# written as they are unless they begin with a zero.
_Group = tuple[int, str, Callable[[str], str], bool]


class _Search(NamedTuple):
    """One pattern of a signal: where its groups are, what they are called, and how they are written."""

    search: Callable[[str], re.Match[str] | None]
    groups: tuple[_Group, ...]


class _Detail(NamedTuple):
    """As `_Search`, from a place in the body on. `needs`: of each set one literal is in every body that it fits."""

    needs: list[frozenset[str]]
    search: Callable[[str, int], re.Match[str] | None]
    groups: tuple[_Group, ...]


class _Literal(NamedTuple):
    """A hint (or part): which of its ends must be the end of a word, and the word by which it is looked up."""

    text: str
    starts_word: bool
    ends_word: bool
    key: bytes


class _Compiled(NamedTuple):
    signal: Signal
    searches: tuple[_Search, ...]
    details: tuple[_Detail, ...]
    literals: tuple[_Literal, ...]
    overrides: tuple[tuple[str, Mapping[str, Override]], ...]
    subject: tuple[tuple[str, str, bool], ...]


# Signals that a body may match, in the order in which they are tried.
Candidates = tuple[_Compiled, ...]


class Worth(IntEnum):
    """What a line may be: nothing, a mark of progress (of which some do), context, a fault, the head of a document."""

    NOTHING = 0
    MARK = 1
    CONTEXT = 2
    FAULT = 3
    HEAD = 4


def _worth_of(signal: Signal) -> Worth:
    if signal.role == "noise":
        return Worth.NOTHING
    if signal.sampled:
        return Worth.MARK
    roles = {signal.role, *(change.role for values in signal.by.values() for change in values.values() if change.role)}
    return Worth.CONTEXT if roles <= {"context", "noise"} and not signal.by_table else Worth.FAULT


def _needs_in_bytes(where: str, signal: Signal) -> list[list[list[bytes]]]:
    """For each pattern of a signal sets of literals; of each set one is in every line that the pattern fits."""
    patterns = (compile_pattern(where, pattern) for pattern in signal.patterns)
    return [[[literal.encode() for literal in one_of] for one_of in needs_of(pattern)] for pattern in patterns]


def _of_head(line: bytes) -> Worth:
    return Worth.HEAD if opens(line) else Worth.NOTHING


class SignalSet:
    """All signals, compiled. Immutable and safe to share between threads."""

    def __init__(self, contents: Mapping[str, bytes], *, shipped: bool = False) -> None:
        """Take signal files by name; raises SignalFileError that names file, signal and field.

        Of `shipped` files (which the tests have compiled) a signal is compiled when it is first needed.
        """
        read = read_files(contents)
        self._tables = {name: contents[name] for name in NOT_SIGNAL_FILES if name in contents}
        self._places = [name for name, file in read for _ in file.signal]
        self.signals = [signal for _, file in read for signal in file.signal]
        self._entries: list[_Compiled | None] = [None] * len(self.signals)
        for number, name in enumerate(self._places):
            if not shipped or name.startswith(SITE):
                self._entry(number)
        self._index = HintIndex(
            ((hint, number) for number, signal in enumerate(self.signals) for hint in signal.hints),
            ((part, number) for number, signal in enumerate(self.signals) for part in signal.parts),
            ((hint, len(self.signals)) for hint in opening_hints()),
        )
        self.opening_hints = frozenset(opening_hints())
        self._worths = [_worth_of(signal) for signal in self.signals]
        self._needs: dict[int, list[list[list[bytes]]]] = {}
        others = [signal for signal in self.signals if _worth_of(signal) > Worth.MARK]
        self.line_hints = frozenset(hint for signal in others for hint in (*signal.hints, *signal.parts))
        marks = [signal for signal in self.signals if _worth_of(signal) == Worth.MARK]
        self.mark_hints = frozenset(h for signal in marks for h in (*signal.hints, *signal.parts)) - self.line_hints
        taking = [signal for signal in self.signals if signal.takes]
        self.alone = frozenset(signal.takes for signal in taking if signal.alone)
        self.repeated = frozenset(signal.takes for signal in taking if signal.repeats)
        self.files: Mapping[str, SignalFile] = dict(read)
        self.digest = digest(contents)

    def _entry(self, number: int) -> _Compiled:
        entry = self._entries[number]
        if entry is None:
            entry = self._entries[number] = _compile(self._places[number], self.signals[number], self._tables)
        return entry

    @property
    def hints(self) -> frozenset[str]:
        """The literals of which at least one is in every line that matches."""
        return self._index.hints

    def look(self, text: str) -> int:
        """0 where a line, prefixes and all, surely cannot match; 2 where others may hang on it (`opens`), else 1."""
        return self._index.look(text)

    def worth(self, line: bytes) -> Worth:
        """What a line, prefixes and all, is worth a look for."""
        if is_hiding(line):
            return Worth.CONTEXT
        worth = Worth.NOTHING
        for number in self._index.candidates(line):
            one = self._worths[number] if number < len(self.signals) else _of_head(line)
            # A hint alone is no fault yet; it stays worth a look, as patterns rot.
            if one == Worth.FAULT and worth < Worth.FAULT and not self._may_match(number, line):
                one = Worth.CONTEXT
            worth = max(worth, one)
        return worth

    def _may_match(self, number: int, line: bytes) -> bool:
        """Whether a line has all that one of the signal's patterns cannot do without."""
        needs = self._needs.get(number)
        if needs is None:
            needs = self._needs[number] = _needs_in_bytes(self._places[number], self.signals[number])
        return any(all(any(literal in line for literal in one_of) for one_of in pattern) for pattern in needs)

    def match(self, body: str) -> Match | None:
        """What a body means, or None. Takes the text after prefixes and stamps (`pipeline.core.parse`)."""
        numbers = self._numbers(body)
        return self.match_among(tuple([self._entry(number) for number in numbers]), body) if numbers else None

    def candidates(self, body: str) -> list[Signal]:
        """The signals of which a hint is in a body, in the order in which they are tried."""
        return [self.signals[number] for number in self._numbers(body)]

    def near(self, body: str) -> list[Signal]:
        """Of a body that no signal matches: the signals that may miss it, as their hint is in it. Patterns rot."""
        return [signal for signal in self.candidates(body) if signal.role != "noise" and not signal.sampled]

    def near_miss(self, body: str) -> Match | None:
        """Of a body that no signal matches: the first one that is near, if any."""
        near = next(iter(self.near(body)), None)
        if near is None:
            return None
        hint = next(literal for literal in (*near.hints, *near.parts) if literal in body)
        return Match(NEAR_MISS, "noise", "", "trace", near.scope, {"signal": near.id, "hint": hint}, NOBODY)

    def candidates_of_shape(self, shape: str) -> Candidates:
        """All signals that can match any line that is `shape` once its digits are taken out."""
        count = len(self.signals)
        numbers = self._index.candidates_of_shape(shape)
        return tuple(_of_shape(self._entry(number), shape) for number in numbers if number < count)

    def _numbers(self, body: str) -> list[int]:
        numbers = self._index.candidates(body.encode("utf-8", "surrogatepass"))
        if numbers and numbers[-1] == len(self.signals):
            numbers.pop()
        return numbers

    def match_among(self, candidates: Candidates, body: str) -> Match | None:
        """What a body means, or None, where only these signals come into question."""
        if len(body) > HEAD_CHARS + TAIL_CHARS:
            body = f"{body[:HEAD_CHARS]}\n{body[-TAIL_CHARS:]}"
        for entry in candidates:
            for literal in entry.literals:
                at = body.find(literal.text)
                # In the shape of a line a word is one whatever digits stand beside it.
                if at >= 0 and (_is_whole(body, at, literal) or literal.key in words(body)):
                    break
            else:
                continue
            for search, groups in entry.searches:
                found = search(body)
                if found is not None:
                    return _describe(entry, groups, found)
        return None

    def completed(self, match: Match, carried: Mapping[str, str]) -> Match:
        """A match that `takes` a block, with what the lines that `carry` it said; its own attributes win."""
        if not carried:
            return match
        merged = {**carried, **match.attributes}
        subject = _entity(_wanted(match.by.subject), merged)
        return msgspec.structs.replace(match, attributes=merged, subject=subject)


@lru_cache(maxsize=1)
def load() -> SignalSet:
    """The signals of this release, compiled once per process."""
    return SignalSet(pattern_files(), shipped=True)


def _add_details(attributes: dict[str, str], details: tuple[_Detail, ...], found: re.Match[str]) -> None:
    for _, search, names in details:
        more = search(found.string, found.end())
        if more is None:
            continue
        for at, name, convert, _ in names:
            value = more[at + 1]
            with suppress(ValueError):
                if value is not None and (value := convert(value)):
                    attributes[name] = value


def _of_shape(entry: _Compiled, shape: str) -> _Compiled:
    """The entry without the details that no line of the shape can have."""
    if not entry.details:
        return entry
    possible = (d for d in entry.details if all(any(without_digits(x) in shape for x in need) for need in d.needs))
    return entry._replace(details=tuple(possible))


def _describe(entry: _Compiled, groups: tuple[_Group, ...], found: re.Match[str]) -> Match:
    signal, values = entry.signal, found.groups()
    attributes = signal.sets.copy()
    for at, name, convert, is_number in groups:
        value = values[at]
        if not value:
            continue
        if not is_number or value[0] == "0":
            try:
                value = convert(value)
            except ValueError:
                continue
            if not value:
                continue
        attributes[name] = value
    if entry.details:
        _add_details(attributes, entry.details, found)
    if signal.decode:
        attributes.update(DECODERS[signal.decode].decode(attributes))
    subject = _entity(entry.subject, attributes) if entry.subject else NOBODY
    role, label, severity, scope = signal.role, signal.label, signal.severity, signal.scope
    for name, changes in entry.overrides:
        value = attributes.get(name)
        change = changes.get(value) if value is not None else None
        if change is not None:
            role = change.role or role
            label = change.label or label
            severity = change.severity or severity
            scope = change.scope or scope
    return Match(signal, role, label, severity, scope, attributes, subject)


def _entity(wanted: tuple[tuple[str, str, bool], ...], attributes: Mapping[str, str]) -> Entity:
    fields: dict[str, Any] = {}
    for name, attribute, is_number in wanted:
        value = attributes.get(attribute)
        if value is not None:
            fields[name] = int(value) if is_number else value
    return Entity(**fields)


def _wanted(subject: Mapping[str, str]) -> tuple[tuple[str, str, bool], ...]:
    return tuple((name, attribute, name in INT_FIELDS) for name, attribute in subject.items())


def _compile(name: str, signal: Signal, tables: Mapping[str, bytes]) -> _Compiled:
    where = f"{name}.toml: signal {signal.id}"
    patterns = [compile_pattern(f"{where}: pattern", pattern) for pattern in signal.patterns]
    details = [compile_pattern(f"{where}: details", pattern) for pattern in signal.details]
    if signal.decode and signal.decode not in DECODERS:
        raise SignalFileError(f"{where}: decode: unknown {signal.decode}; use one of {sorted(DECODERS)}")
    # Tables first: what the signal itself says of an attribute has the last word.
    overrides: dict[str, dict[str, Override]] = {}
    for attribute, table in signal.by_table.items():
        if table not in tables:
            raise SignalFileError(f"{where}: by_table.{attribute}: no file {table}.toml; have {sorted(tables)}")
        rows = msgspec.convert(parse_toml(table, tables[table]), dict[str, Override])
        overrides[attribute] = rows
    for attribute, values in signal.by.items():
        overrides[attribute] = {**overrides.get(attribute, {}), **values}
    check_names(where, signal, {group for pattern in patterns + details for group in pattern.groupindex}, overrides)
    check_words(where, signal, overrides)
    return _Compiled(
        signal,
        tuple(_Search(pattern.search, _groups(signal, pattern)) for pattern in patterns),
        tuple(_Detail(needs_of(pattern), pattern.search, _groups(signal, pattern)) for pattern in details),
        (*map(_hint, signal.hints), *(_Literal(part, False, False, b"") for part in signal.parts)),
        tuple(overrides.items()),
        _wanted(signal.subject),
    )


def _hint(text: str) -> _Literal:
    return _Literal(text, is_of_word(text[0]), is_of_word(text[-1]), key_of(text))


def _is_whole(body: str, at: int, literal: _Literal) -> bool:
    text, starts_word, ends_word, _ = literal
    if starts_word and at and is_of_word(body[at - 1]):
        return False
    end = at + len(text)
    return not (ends_word and end < len(body) and is_of_word(body[end]))


def _groups(signal: Signal, pattern: re.Pattern[str]) -> tuple[_Group, ...]:
    places, digits = pattern.groupindex, digit_groups(pattern)
    return tuple(
        (places[group] - 1, signal.renames.get(group, group), CONVERTERS[kind], kind == "int" and group in digits)
        for group, kind in signal.types.items()
        if group in places
    )
