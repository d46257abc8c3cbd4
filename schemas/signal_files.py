"""Signal files: what stands in them, and whether it is well said."""

import re
from collections.abc import Mapping
from typing import Any, Final, Literal

import msgspec
from msgspec import Struct

from schemas.decoders import DECODERS
from schemas.matching import SignalFileError, parse_toml, words
from schemas.records import Entity
from schemas.values import CONVERTERS
from schemas.vocabulary import LABELS, ROLES, SCOPES, SEVERITIES, Role, Severity

NOT_SIGNAL_FILES: Final = frozenset({"wrappers", "stamps", "documents", "xid", "sxid", "nvlink4", "nvlink5"})
SITE: Final = "site/"
INT_FIELDS: Final = frozenset({"gpu_index", "rank", "local_rank", "pid"})
_NUMBERS: Final = ("int", "pid")
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
    `details` are searched behind what `pattern` found, and each one that fits adds its groups; `decode` names what
    works further attributes out of them (`schemas/decoders.py`).
    `told_by`: the kind of source that alone is believed (`telemetry`: what the node agent measured; `control`:
    what the agent of the control plane was told); a line of any other source that reads alike says nothing.
    `names_job`: the line says by `job` and `attempt` of which job attempt it is, whatever its source belongs to.
    A line that `takes` a block says of it whether only one writer prints such records into a file (`alone`), and
    whether further lines take the same block (`repeats`).
    """

    id: str
    event: str
    versions: str = ""
    status: Literal["stable", "experimental", "deprecated"] = "stable"
    references: list[str] = []
    hints: list[str] = []
    parts: list[str] = []
    told_by: Literal["", "telemetry", "control"] = ""
    names_job: bool = False
    pattern: str | list[str]
    details: list[str] = []
    decode: str = ""
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
    alone: bool = False
    repeats: bool = False
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

    @property
    def kinds(self) -> dict[str, str]:
        """The type of each attribute that is a group, which is its unit where it has one."""
        return {self.renames.get(group, group): kind for group, kind in self.types.items()}

    @property
    def decoded(self) -> tuple[str, ...]:
        """The attributes that `decode` may add."""
        return DECODERS[self.decode].names if self.decode else ()


class SignalFile(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """All signals of one emitter."""

    emitter: str
    checked_against: str
    references: list[str]
    order: int
    signal: list[Signal]


def read_files(contents: Mapping[str, bytes]) -> list[tuple[str, SignalFile]]:
    """The signal files of these contents in the order in which they are tried, by name; raises SignalFileError."""
    found = [_read(name, content) for name, content in contents.items() if name not in NOT_SIGNAL_FILES]
    found = _with_site(found)
    _refuse_duplicates([signal for _, file in found for signal in file.signal])
    return found


def _with_site(read: list[tuple[str, SignalFile]]) -> list[tuple[str, SignalFile]]:
    """The files in the order in which they are tried: a site's own first; what they name anew is not the release's."""
    own = {signal.id for name, file in read for signal in file.signal if name.startswith(SITE)}
    kept = [
        (
            name,
            file
            if name.startswith(SITE)
            else msgspec.structs.replace(file, signal=[s for s in file.signal if s.id not in own]),
        )
        for name, file in read
    ]
    return sorted(kept, key=lambda pair: (not pair[0].startswith(SITE), pair[1].order, pair[0]))


def _read(name: str, content: bytes) -> tuple[str, SignalFile]:
    raw = parse_toml(name, content)
    try:
        return name, msgspec.convert(raw, SignalFile)
    except msgspec.ValidationError as error:
        allowed = next(
            (f"; use one of {sorted(words)}" for end, words in _WORDS.items() if f"{end}`" in str(error)), ""
        )
        raise SignalFileError(f"{name}.toml: {_signal_id(raw, str(error))}{error}{allowed}") from error


# What a field may say, by the end of its path in an error.
_WORDS: Final = {
    ".role": ROLES,
    ".severity": SEVERITIES,
    ".status": frozenset({"stable", "experimental", "deprecated"}),
}


def _signal_id(raw: dict[str, Any], message: str) -> str:
    number = re.search(r"\$\.signal\[(\d+)\]", message)
    try:
        return f"signal {raw['signal'][int(number.group(1))]['id']}: " if number else ""
    except (KeyError, IndexError, TypeError):
        return ""


def check_names(where: str, signal: Signal, groups: set[str], overrides: Mapping[str, Mapping[str, Override]]) -> None:
    """Whether what an entry calls groups, attributes and fields are some; raises SignalFileError."""
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
    for group, kind in signal.types.items():
        numbers = [name for name in INT_FIELDS if signal.subject.get(name) == signal.renames.get(group, group)]
        if numbers and kind not in _NUMBERS:
            raise SignalFileError(f"{where}: subject: {numbers[0]} is a number, so types.{group} is one of {_NUMBERS}")
    if signal.names_job and ("job" not in groups or not signal.told_by):
        raise SignalFileError(f"{where}: names_job: the pattern needs a group `job`, and told_by says who is believed")
    # A line that takes a block may name what the block brings.
    if signal.takes is None:
        missing = (set(signal.subject.values()) | set(overrides)) - groups
        missing -= set(signal.sets) | set(signal.renames.values()) | set(signal.decoded)
        if missing:
            raise SignalFileError(f"{where}: subject/by: no attribute {sorted(missing)} in the pattern or in sets")


def check_words(where: str, signal: Signal, overrides: Mapping[str, Mapping[str, Override]]) -> None:
    """Whether an entry keeps to the vocabulary and has what it needs; raises SignalFileError."""
    changes = [change for values in overrides.values() for change in values.values()]
    labels = {signal.label, *(change.label for change in changes if change.label)}
    scopes = {signal.scope, *(change.scope for change in changes if change.scope)}
    if not labels <= LABELS:
        raise SignalFileError(f"{where}: label: {sorted(labels - LABELS)}; use one of {sorted(LABELS)}")
    if not scopes <= SCOPES:
        raise SignalFileError(f"{where}: scope: {sorted(scopes - SCOPES)}; use one of {sorted(SCOPES)}")
    if not all(map(words, signal.hints)) or not all(signal.parts):
        raise SignalFileError(f"{where}: hints/parts: each hint needs a letter or a digit, and no part is empty")
    if not (signal.hints or signal.parts):
        raise SignalFileError(f"{where}: hints: at least one literal is needed")
    if not signal.matches or len(signal.misses) < 2:
        raise SignalFileError(f"{where}: matches/misses: at least one match and two near misses are needed")


def _refuse_duplicates(signals: list[Signal]) -> None:
    seen: set[str] = set()
    for signal in signals:
        if signal.id in seen:
            raise SignalFileError(f"signal {signal.id}: id: used twice")
        seen.add(signal.id)
