"""Reads the pattern files of `schemas/signals` and finds, fast, whether a line can matter at all.

A hint is a literal that begins and ends at word edges. Each hint has one key: its longest uncommon word. A line is
cut into words once; a line without any key is done (about one microsecond), whatever the number of signals.
"""

import hashlib
import os
import re
import tomllib
from collections import defaultdict
from collections.abc import Callable, Iterable, Mapping
from functools import lru_cache
from importlib.resources import files
from pathlib import Path
from re import _constants, _parser  # type: ignore[attr-defined]  # how `re` itself reads a pattern
from typing import Any, Final, Literal, NamedTuple, TypeVar

import msgspec
from msgspec import Struct

from schemas.names import printable

_T = TypeVar("_T")

# Words of so many harmless lines that they would make poor keys.
COMMON_WORDS: Final = frozenset(
    b"NCCL INFO WARN NVRM error Error ERROR failed from with the this that rank ranks Rank comm node step worker "
    b"process to at on by of in is for and not was pid name kernel torch python task job time iteration loss data "
    b"loading save has been have are GPU gpu NET IB Using using Channel via cudaDev busId nranks "
    b"Connected connection Connection port Port module event PG GUID default_pg cpp "
    b"RuntimeError ProcessGroupNCCL samples state DEBUG debug".split()
)
# Colours and the escapes of JSON, logfmt and rsyslog glue letters to the words of what they wrap.
HIDING: Final = (b"\x1b", b'{"', b'msg="', b"#01", b"#03")
_DIGITS: Final = b"0123456789"
_WORD_BYTES: Final = bytes(b if chr(b).isalnum() or b == 0x5F or b > 0x7F else 0x20 for b in range(256))


# The environment variable that names the folder of a site's own signal and cause files.
SITE_RULES: Final = "ROOTRANK_RULES"
MAX_FILE_BYTES: Final = 16 * 1024 * 1024


class SignalFileError(ValueError):
    """A pattern file is wrong; the text names the file, the entry and the field, and what is expected."""


@lru_cache(maxsize=1)
def pattern_files() -> Mapping[str, bytes]:
    """The content of every `signals/*.toml` by file name without suffix, sorted by name; a site's own as `site/NAME`.

    Raises SignalFileError where the site's folder is not there.
    """
    folder = files("schemas").joinpath("signals")
    found = {f.name.removesuffix(".toml"): f.read_bytes() for f in folder.iterdir() if f.name.endswith(".toml")}
    return dict(sorted({**found, **{f"site/{name}": content for name, content in site_files("signals")}}.items()))


def site_files(kind: str) -> list[tuple[str, bytes]]:
    """Name and content of a site's own files: `signals/*.toml` or `causes/*.toml` of the folder in SITE_RULES."""
    named = os.environ.get(SITE_RULES)
    if not named:
        return []
    folder = Path(named, kind)
    try:
        if not Path(named).is_dir():
            raise SignalFileError(
                f"{named}: no such folder; {SITE_RULES} names the folder of your signals/ and causes/"
            )
        # Editors leave hidden files beside what is being written.
        paths = [path for path in sorted(folder.iterdir()) if path.suffix == ".toml" and path.name[:1] != "."]
        return [(printable(path.stem), _content(path)) for path in paths]
    except FileNotFoundError:
        return []
    except OSError as error:
        raise SignalFileError(f"{folder}: {error.strerror}") from error


def _content(path: Path) -> bytes:
    try:
        if not path.is_file() or path.stat().st_size > MAX_FILE_BYTES:
            raise SignalFileError(f"{path}: no regular file of at most {MAX_FILE_BYTES >> 20} MiB")
        return path.read_bytes()
    except OSError as error:
        raise SignalFileError(f"{path}: {error.strerror}") from error


def digest(contents: Mapping[str, bytes]) -> str:
    """SHA-256 over names and contents: two equal digests are equal rules."""
    total = hashlib.sha256()
    for name, content in sorted(contents.items()):
        total.update(b"%s\0%d\0" % (name.encode(), len(content)))
        total.update(content)
    return total.hexdigest()


def parse_toml(name: str, content: bytes) -> dict[str, Any]:
    """Decode one pattern file; raises SignalFileError with the line of the mistake."""
    try:
        return tomllib.loads(content.decode("utf-8"))
    except (UnicodeDecodeError, tomllib.TOMLDecodeError, RecursionError) as error:
        raise SignalFileError(f"{name}.toml: not valid TOML: {error}") from error


def read_table(name: str, shape: type[_T]) -> _T:
    """The pattern file of this name in its shape; raises SignalFileError where it is missing or wrong."""
    contents = pattern_files()
    if name not in contents:
        raise SignalFileError(f"{name}.toml: is missing from schemas/signals; reinstall the package")
    try:
        return msgspec.convert(parse_toml(name, contents[name]), shape)
    except msgspec.ValidationError as error:
        raise SignalFileError(f"{name}.toml: {error}") from error


def compile_pattern(where: str, pattern: str) -> re.Pattern[str]:
    """Compile one pattern (ASCII classes); raises SignalFileError that says where it stands."""
    try:
        return re.compile(pattern, re.ASCII)
    except (re.error, OverflowError, RecursionError) as error:
        raise SignalFileError(f"{where}: not a regular expression: {error}") from error


# More digits may be no 64-bit number.
_SURE_DIGITS: Final = 18


def digit_groups(pattern: re.Pattern[str]) -> frozenset[str]:
    r"""Names of the groups that are `\d{n,m}` and nothing else, and surely a 64-bit number."""
    found = re.findall(r"\(\?P<(\w+)>\\d\{(?:\d+,)?(\d+)\}\)", pattern.pattern)
    return frozenset(name for name, most in found if int(most) <= _SURE_DIGITS)


def needs_of(pattern: re.Pattern[str]) -> list[frozenset[str]]:
    """Literals that a text must have for the pattern to match: of each set at least one."""
    return [] if pattern.flags & re.IGNORECASE else _needs(_parser.parse(pattern.pattern, pattern.flags))


def _needs(items: Iterable[Any]) -> list[frozenset[str]]:
    needs, run = list[frozenset[str]](), ""
    for operator, argument in [*items, (None, None)]:
        if operator is _constants.LITERAL:
            run += chr(argument)
            continue
        if run:
            needs.append(frozenset((run,)))
            run = ""
        if operator is _constants.SUBPATTERN and not argument[1] & re.IGNORECASE:
            needs += _needs(argument[3])
        elif operator is _constants.MAX_REPEAT and argument[0] > 0:
            needs += _needs(argument[2])
        elif operator is _constants.BRANCH:
            branches = [_needs(branch) for branch in argument[1]]
            if all(branches):
                # Of each branch the one need that says most will do.
                needs.append(frozenset().union(*(max(branch, key=_least) for branch in branches)))
    return needs


def _least(literals: frozenset[str]) -> int:
    return min(map(len, literals))


def words(text: str) -> list[bytes]:
    """The words (letters, digits, underscores, anything outside ASCII) of a text, in order."""
    return text.encode("utf-8", "surrogatepass").translate(_WORD_BYTES).split()


def is_of_word(character: str) -> bool:
    """Whether a character is one of a word."""
    return character == "_" or character > "\x7f" or character.isalnum()


def key_of(hint: str) -> bytes:
    """The word by which a hint is looked up: its longest word that is not common; raises ValueError without a word."""
    found = words(hint)
    if not found:
        raise ValueError(f"hint {hint!r} has no word: use at least one run of letters or digits")
    return max(found, key=lambda word: (word not in COMMON_WORDS, len(word)))


def without_digits(text: str) -> str:
    """A text with its ASCII digits taken out."""
    return text.encode("utf-8", "surrogatepass").translate(None, _DIGITS).decode("utf-8", "surrogatepass")


class HintIndex:
    """Answers which numbered entries have a hint in a text."""

    def __init__(
        self, hints: Iterable[tuple[str, int]], parts: Iterable[tuple[str, int]] = (),
        heads: Iterable[tuple[str, int]] = (),
    ) -> None:  # fmt: skip
        """Take pairs of literal and entry number: hints start and end at word edges, parts may stand inside words.

        Heads are hints of lines after which further lines matter. Each part costs a search of every line, so there are
        to be few. Raises ValueError for a hint without a word.
        """
        heads = list(heads)
        hints = list(hints)
        entries, inside = _numbers_by_text([*hints, *heads]), _numbers_by_text(parts)
        self._head_keys = frozenset(key_of(hint) for hint, _ in heads)
        by_key: dict[bytes, list[tuple[bytes, tuple[int, ...]]]] = defaultdict(list)
        for hint, numbers in entries.items():
            by_key[key_of(hint)].append((hint.encode(), numbers))
        self._by_key = dict(by_key)
        self._keys = frozenset(by_key)
        self._parts = [(part.encode(), numbers) for part, numbers in inside.items()]
        self.hints = frozenset(hint for hint, _ in hints) | frozenset(inside)
        # By key without its digits; what has none may be in every shape.
        self._shapes: dict[bytes, list[tuple[str, tuple[int, ...]]]] = defaultdict(list)
        for text, at in entries.items():
            self._shapes[key_of(text).translate(None, _DIGITS)].append((without_digits(text), at))
        self._shapes[b""] += [(without_digits(text), at) for text, at in inside.items()]

    def look(self, text: str) -> int:
        """0 where no hint is in the text (that is sure for text with its prefixes on), 2 where one of a head may be."""
        data = text.encode("utf-8", "surrogatepass")
        found = data.translate(_WORD_BYTES).split()
        if not self._keys.isdisjoint(found):
            return 1 if self._head_keys.isdisjoint(found) and not is_hiding(data) else 2
        for part, _ in self._parts:
            if part in data:
                return 1
        return 2 if is_hiding(data) else 0

    def candidates(self, data: bytes) -> list[int]:
        """Numbers of the entries with a hint in a text (as UTF-8), ascending."""
        numbers: set[int] = set()
        for part, entries in self._parts:
            if part in data:
                numbers.update(entries)
        found = data.translate(_WORD_BYTES).split()
        if not self._keys.isdisjoint(found):
            for key in self._keys.intersection(found):
                for hint, entries in self._by_key[key]:
                    if hint in data:
                        numbers.update(entries)
        return sorted(numbers) if numbers else []

    def candidates_of_shape(self, shape: str) -> list[int]:
        """Numbers of all entries with a hint in any text that is `shape` once its digits are taken out, and more."""
        numbers = set[int]()
        for key in (b"", *self._shapes.keys() & set(words(shape))):
            for literal, entries in self._shapes[key]:
                if literal in shape:
                    numbers.update(entries)
        return sorted(numbers)


def is_hiding(data: bytes) -> bool:
    """Whether words of a line may be glued to what wraps them."""
    # Any of HIDING; most lines have no quote.
    if b'"' in data and (b'{"' in data or b'msg="' in data):
        return True
    return b"\x1b" in data or b"#01" in data or b"#03" in data or data[:1] == b"{"


def _numbers_by_text(pairs: Iterable[tuple[str, int]]) -> dict[str, tuple[int, ...]]:
    entries: dict[str, list[int]] = defaultdict(list)
    for text, number in pairs:
        entries[text].append(number)
    return {text: tuple(numbers) for text, numbers in entries.items()}


class PrefixEntry(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """One entry of `stamps.toml` or `wrappers.toml`: something that programs put in front of lines."""

    name: str
    starts: str
    pattern: str
    matches: list[str]
    misses: list[str]
    first: bool = False
    last: bool = False
    after: Literal["stamp"] | None = None
    stamp: bool = False
    fraction: Literal["keep", "drop"] = "keep"
    inside: list[str] = []


class JsonKeys(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """The keys of a line that is one JSON object, by what they hold; the first key with a value of the kind counts."""

    text: list[str]
    time: list[str]
    node: list[str]
    process: list[str]
    pid: list[str]
    pod: list[str]
    rank: list[str]
    local_rank: list[str]
    exception: list[str]
    partial: list[str]
    realtime_us: list[str]
    boot_us: list[str]


class _PrefixFile(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    prefix: list[PrefixEntry]
    ansi: str = ""
    cri: str = ""
    repeated: str = ""
    json: JsonKeys | None = None


class Prefix(NamedTuple):
    """A compiled entry: its rules and its match at a position."""

    entry: PrefixEntry
    pattern: re.Pattern[str]
    match: Callable[[str, int], re.Match[str] | None]
    starts: Callable[[str], re.Match[str] | None]


class Prefixes(NamedTuple):
    """All prefixes in the order in which they are tried, and what else stands around the text of a line."""

    prefixes: tuple[Prefix, ...]
    ansi: re.Pattern[str]
    cri: re.Pattern[str]
    repeated: re.Pattern[str]
    json: JsonKeys


@lru_cache(maxsize=1)
def load_prefixes() -> Prefixes:
    """Stamps, then wrappers; raises SignalFileError for a wrong file."""
    stamps, wrappers = (read_table(name, _PrefixFile) for name in ("stamps", "wrappers"))
    if wrappers.json is None or not (wrappers.ansi and wrappers.cri and wrappers.repeated):
        raise SignalFileError("wrappers.toml: ansi, cri, repeated and [json] are needed")
    return Prefixes(
        tuple(_compile_prefix(entry) for file in (stamps, wrappers) for entry in file.prefix),
        compile_pattern("wrappers.toml: ansi", wrappers.ansi),
        compile_pattern("wrappers.toml: cri", wrappers.cri),
        compile_pattern("wrappers.toml: repeated", wrappers.repeated),
        wrappers.json,
    )


@lru_cache(maxsize=16)
def prefix_named(name: str) -> Prefix:
    """The prefix of this name; raises StopIteration where no file has it."""
    return next(prefix for prefix in load_prefixes().prefixes if prefix.entry.name == name)


def _compile_prefix(entry: PrefixEntry) -> Prefix:
    pattern = compile_pattern(f"prefix {entry.name}: pattern", entry.pattern)
    starts = compile_pattern(f"prefix {entry.name}: starts", entry.starts)
    return Prefix(entry, pattern, pattern.match, starts.match)
