"""Signals as data: which lines mean something, and what. One TOML file per emitter in `schemas/signals`.

Order: files by their `order` (then name), signals in file order; of all signals that fit a line the first wins. So
specific files (one emitter) have low numbers and files of catch-all texts (`python`) have high ones, and within a
file the specific signal stands above the general one.
"""

import re
from collections.abc import Callable, Mapping
from functools import lru_cache
from typing import Any, Final, Literal, NamedTuple

import msgspec
from msgspec import Struct

from schemas.matching import HintIndex, SignalFileError, compile_pattern, digest, parse_toml, pattern_files
from schemas.records import Entity
from schemas.values import CONVERTERS
from schemas.vocabulary import LABELS, SCOPES, Role, Severity

NOT_SIGNAL_FILES: Final = frozenset({"wrappers", "stamps", "xid"})
# Only so much of a very long body is searched: its head and its tail. Keeps every pattern cheap on hostile input.
HEAD_CHARS: Final = 4096
TAIL_CHARS: Final = 2048

_INT_FIELDS: Final = frozenset({"gpu_index", "rank", "local_rank", "pid"})
NOBODY: Final = Entity()
SITE: Final = "site/"
_EVENT_NAME: Final = re.compile(r"[a-z0-9_]+(?:\.[a-z0-9_]+)+")


class Example(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """A body that must match, all attributes it must give, and what overrides it must bring."""

    line: str
    gives: dict[str, str] = {}
    role: Role | None = None
    label: str | None = None


class NearMiss(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """A body that looks similar and must not match."""

    line: str


class Override(Struct, frozen=True, kw_only=True):
    """What one value of an attribute changes. Other keys (a meaning, a vendor action) are for readers."""

    role: Role | None = None
    label: str | None = None
    severity: Severity | None = None
    scope: str | None = None


class Signal(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """One entry of a signal file; see CONTRIBUTING for how to add one.

    `versions`: releases of the emitter that print it. `status`: stable where the text was read in the emitter's source,
    its documentation or real logs; experimental where it was inferred; deprecated where no supported release prints it.
    `references` add to those of the file. `sampled`: a mark of progress, of which some do.
    """

    id: str
    event: str
    versions: str = ""
    status: Literal["stable", "experimental", "deprecated"] = "stable"
    references: list[str] = []
    hints: list[str] = []
    parts: list[str] = []
    pattern: str | list[str]
    role: Role
    scope: str
    severity: Severity
    label: str
    types: dict[str, str] = {}
    sets: dict[str, str] = {}
    renames: dict[str, str] = {}
    subject: dict[str, str] = {}
    placement: bool = False
    carries: str | None = None
    keeps: bool = False
    takes: str | None = None
    one_per_second: bool = False
    sampled: bool = False
    by: dict[str, dict[str, Override]] = {}
    by_table: dict[str, str] = {}
    matches: list[Example]
    misses: list[NearMiss]
    note: str = ""

    @property
    def patterns(self) -> list[str]:
        """The pattern or patterns, in the order in which they are tried."""
        return [self.pattern] if isinstance(self.pattern, str) else self.pattern


class SignalFile(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """All signals of one emitter."""

    emitter: str
    checked_against: str
    references: list[str]
    order: int
    signal: list[Signal]


class Match(Struct, frozen=True, kw_only=True):
    """What a body means.

    With `carries` its attributes are kept for a later line that `takes`; it is an event itself only if it `keeps`.
    """

    signal: str
    event: str
    role: Role
    label: str
    severity: Severity
    scope: str
    attributes: dict[str, str]
    subject: Entity
    placement: bool = False
    carries: str | None = None
    keeps: bool = False
    takes: str | None = None
    one_per_second: bool = False


class _Search(NamedTuple):
    """One pattern of a signal: where its groups are, what they are called, and how they are written."""

    search: Callable[[str], re.Match[str] | None]
    groups: tuple[tuple[int, str, Callable[[str], str]], ...]


class _Compiled(NamedTuple):
    signal: Signal
    searches: tuple[_Search, ...]
    literals: tuple[str, ...]
    overrides: tuple[tuple[str, Mapping[str, Override]], ...]


# Signals that a body may match, in the order in which they are tried.
Candidates = tuple[_Compiled, ...]


class SignalSet:
    """All signals, compiled. Immutable and safe to share between threads."""

    def __init__(self, contents: Mapping[str, bytes]) -> None:
        """Compile the contents of signal files by name; raises SignalFileError that names file, signal and field."""
        read = [_read(name, content) for name, content in contents.items() if name not in NOT_SIGNAL_FILES]
        tables = {name: contents[name] for name in NOT_SIGNAL_FILES if name in contents}
        read = _with_site(read)
        self._compiled = [_compile(name, signal, tables) for name, file in read for signal in file.signal]
        _refuse_duplicates(self._compiled)
        self._index = HintIndex(
            ((hint, number) for number, entry in enumerate(self._compiled) for hint in entry.signal.hints),
            ((part, number) for number, entry in enumerate(self._compiled) for part in entry.signal.parts),
        )
        others = [entry.signal for entry in self._compiled if not entry.signal.sampled and entry.signal.role != "noise"]
        self.line_hints = frozenset(hint for signal in others for hint in (*signal.hints, *signal.parts))
        marks = [entry.signal for entry in self._compiled if entry.signal.sampled]
        self.mark_hints = frozenset(hint for signal in marks for hint in signal.hints) - self.line_hints
        self._subjects = {entry.signal.id: entry.signal.subject for entry in self._compiled}
        self.files: Mapping[str, SignalFile] = dict(read)
        self.digest = digest(contents)

    @property
    def signals(self) -> list[Signal]:
        """All signals in the order in which they are tried."""
        return [entry.signal for entry in self._compiled]

    @property
    def hints(self) -> frozenset[str]:
        """The literals of which at least one is in every line that matches."""
        return self._index.hints

    def hit(self, text: str) -> bool:
        """Whether a line, prefixes and all, can match: False is sure, True is worth a parse."""
        return self._index.hit(text)

    def worth(self, line: bytes) -> Literal["nothing", "mark", "line"]:
        """What a line, prefixes and all, is worth: nothing, a look as a mark of progress, or a look."""
        if line[:1] == b"{" or b"\x1b" in line:
            return "line"
        worth: Literal["nothing", "mark", "line"] = "nothing"
        for number in self._index.candidates(line):
            signal = self._compiled[number].signal
            if not signal.sampled and signal.role != "noise":
                return "line"
            worth = "mark" if signal.sampled else worth
        return worth

    def match(self, body: str) -> Match | None:
        """What a body means, or None. Takes the text after prefixes and stamps (`pipeline.core.parse`)."""
        numbers = self._index.candidates(body.encode("utf-8", "surrogatepass"))
        return self.match_among(tuple([self._compiled[number] for number in numbers]), body) if numbers else None

    def candidates(self, body: str) -> list[Signal]:
        """The signals of which a hint is in a body, in the order in which they are tried."""
        return [self._compiled[n].signal for n in self._index.candidates(body.encode("utf-8", "surrogatepass"))]

    def candidates_of_shape(self, shape: str) -> Candidates:
        """All signals that can match any line that is `shape` once its digits are taken out."""
        return tuple(self._compiled[number] for number in self._index.candidates_of_shape(shape))

    def match_among(self, candidates: Candidates, body: str) -> Match | None:
        """What a body means, or None, where only these signals come into question."""
        if len(body) > HEAD_CHARS + TAIL_CHARS:
            body = f"{body[:HEAD_CHARS]}\n{body[-TAIL_CHARS:]}"
        for entry in candidates:
            for search, groups in entry.searches:
                found = search(body)
                if found is None:
                    continue
                for literal in entry.literals:
                    if literal in body:
                        return _describe(entry, groups, found)
        return None

    def completed(self, match: Match, carried: Mapping[str, str]) -> Match:
        """A match that `takes` a block, with what the lines that `carry` it said; its own attributes win."""
        if not carried:
            return match
        merged = {**carried, **match.attributes}
        subject = _subject(self._subjects[match.signal], merged)
        return msgspec.structs.replace(match, attributes=merged, subject=subject)


@lru_cache(maxsize=1)
def load() -> SignalSet:
    """The signals of this release, compiled once per process."""
    return SignalSet(pattern_files())


def _with_site(read: list[tuple[str, SignalFile]]) -> list[tuple[str, SignalFile]]:
    """The files in the order in which they are tried: a site's own first; what they name anew is not the release's."""
    own = {signal.id for name, file in read for signal in file.signal if name.startswith(SITE)}
    kept = [
        (name, file)
        if name.startswith(SITE)
        else (name, msgspec.structs.replace(file, signal=[signal for signal in file.signal if signal.id not in own]))
        for name, file in read
    ]
    return sorted(kept, key=lambda pair: (not pair[0].startswith(SITE), pair[1].order, pair[0]))


def _describe(
    entry: _Compiled, groups: tuple[tuple[int, str, Callable[[str], str]], ...], found: re.Match[str]
) -> Match:
    signal = entry.signal
    values = found.groups()
    attributes = dict(signal.sets)
    for at, name, convert in groups:
        value = values[at]
        if value is None:
            continue
        try:
            value = convert(value)
        except ValueError:
            continue
        if value:
            attributes[name] = value
    role, label, severity, scope = signal.role, signal.label, signal.severity, signal.scope
    for name, changes in entry.overrides:
        change = changes.get(attributes.get(name, ""))
        if change is not None:
            role = change.role or role
            label = change.label or label
            severity = change.severity or severity
            scope = change.scope or scope
    return Match(
        signal=signal.id,
        event=signal.event,
        role=role,
        label=label,
        severity=severity,
        scope=scope,
        attributes=attributes,
        subject=_subject(signal.subject, attributes) if signal.subject else NOBODY,
        placement=signal.placement,
        carries=signal.carries,
        keeps=signal.keeps,
        takes=signal.takes,
        one_per_second=signal.one_per_second,
    )


def _subject(wanted: Mapping[str, str], attributes: Mapping[str, str]) -> Entity:
    fields: dict[str, Any] = {}
    for name, attribute in wanted.items():
        value = attributes.get(attribute)
        if value is not None:
            fields[name] = int(value) if name in _INT_FIELDS else value
    return Entity(**fields)


def _read(name: str, content: bytes) -> tuple[str, SignalFile]:
    raw = parse_toml(name, content)
    try:
        return name, msgspec.convert(raw, SignalFile)
    except msgspec.ValidationError as error:
        raise SignalFileError(f"{name}.toml: {_signal_id(raw, str(error))}{error}") from error


def _signal_id(raw: dict[str, Any], message: str) -> str:
    number = re.search(r"\$\.signal\[(\d+)\]", message)
    try:
        return f"signal {raw['signal'][int(number.group(1))]['id']}: " if number else ""
    except (KeyError, IndexError, TypeError):
        return ""


def _compile(name: str, signal: Signal, tables: Mapping[str, bytes]) -> _Compiled:
    where = f"{name}.toml: signal {signal.id}"
    patterns = [compile_pattern(f"{where}: pattern", pattern) for pattern in signal.patterns]
    overrides: dict[str, dict[str, Override]] = {attribute: dict(values) for attribute, values in signal.by.items()}
    for attribute, table in signal.by_table.items():
        if table not in tables:
            raise SignalFileError(f"{where}: by_table.{attribute}: no file {table}.toml; have {sorted(tables)}")
        rows = msgspec.convert(parse_toml(table, tables[table]), dict[str, Override])
        overrides[attribute] = {**rows, **overrides.get(attribute, {})}
    _check_names(where, signal, {group for pattern in patterns for group in pattern.groupindex}, overrides)
    _check_words(where, signal, overrides)
    return _Compiled(
        signal,
        tuple(_Search(pattern.search, _groups(signal, pattern)) for pattern in patterns),
        (*signal.hints, *signal.parts),
        tuple(overrides.items()),
    )


def _groups(signal: Signal, pattern: re.Pattern[str]) -> tuple[tuple[int, str, Callable[[str], str]], ...]:
    places = pattern.groupindex
    return tuple(
        (places[group] - 1, signal.renames.get(group, group), CONVERTERS[kind])
        for group, kind in signal.types.items()
        if group in places
    )


def _check_names(where: str, signal: Signal, groups: set[str], overrides: Mapping[str, Mapping[str, Override]]) -> None:
    if set(signal.types) != groups:
        raise SignalFileError(f"{where}: types: names {sorted(signal.types)} but the pattern has {sorted(groups)}")
    unknown = {kind for kind in signal.types.values() if kind not in CONVERTERS}
    if unknown:
        raise SignalFileError(f"{where}: types: unknown {sorted(unknown)}; use one of {sorted(CONVERTERS)}")
    if not _EVENT_NAME.fullmatch(signal.event):
        raise SignalFileError(f"{where}: event: {signal.event!r} is not a dotted lower-case name")
    fields = {f.name for f in msgspec.structs.fields(Entity)}
    if not set(signal.subject) <= fields:
        raise SignalFileError(f"{where}: subject: {sorted(set(signal.subject) - fields)} is not an Entity field")
    # A line that takes a block may name what the block brings.
    if signal.takes is None:
        missing = (set(signal.subject.values()) | set(overrides)) - groups
        missing -= set(signal.sets) | set(signal.renames.values())
        if missing:
            raise SignalFileError(f"{where}: subject/by: no attribute {sorted(missing)} in the pattern or in sets")


def _check_words(where: str, signal: Signal, overrides: Mapping[str, Mapping[str, Override]]) -> None:
    changes = [change for values in overrides.values() for change in values.values()]
    labels = {signal.label, *(change.label for change in changes if change.label)}
    scopes = {signal.scope, *(change.scope for change in changes if change.scope)}
    if not labels <= LABELS:
        raise SignalFileError(f"{where}: label: {sorted(labels - LABELS)} is not in schemas/vocabulary.py LABELS")
    if not scopes <= SCOPES:
        raise SignalFileError(f"{where}: scope: {sorted(scopes - SCOPES)} is not in schemas/vocabulary.py SCOPES")
    if not (signal.hints or signal.parts):
        raise SignalFileError(f"{where}: hints: at least one literal is needed")
    if not signal.matches or len(signal.misses) < 2:
        raise SignalFileError(f"{where}: matches/misses: at least one match and two near misses are needed")


def _refuse_duplicates(entries: list[_Compiled]) -> None:
    seen: set[str] = set()
    for entry in entries:
        if entry.signal.id in seen:
            raise SignalFileError(f"signal {entry.signal.id}: id: used twice")
        seen.add(entry.signal.id)
