"""Tables, outlines and lists inside logs, as data: by what their first line is known and how their lines are read."""

import re
from functools import lru_cache
from typing import Final, Literal, NamedTuple

from msgspec import Struct

from schemas.matching import HintIndex, compile_pattern, read_table

FILE: Final = "documents"
# Lines so far behind the head of a document (in bytes), or behind a part of a split line, may belong to it. A file that
# begins with a document is one as a whole.
FOLLOW_BYTES: Final = 256 * 1024
FIRST_BYTES: Final = 4 * 1024
# A container runtime marks the parts of a split line so.
SPLIT_HINTS: Final = ("P",)
_SPLIT: Final = re.compile(rb" (?:stdout|stderr) P ")
MAX_HEAD_BYTES: Final = 8_192

Kind = Literal["table", "csv", "outline", "pairs", "twin", "stacks", "box"]


class Sample(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """A document and the lines that it becomes."""

    text: str
    gives: list[str]


class FormEntry(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """One form of document.

    `hints`: literals of which the first line has at least one. `head`: the whole first line; its named groups lead
    every flattened line. `title`: what the lines are called, where the name does not say it.

    table, csv: `split` says how rows are cut: "tokens" at white space, "gap" at two spaces or more, "starts" where the
    words of the head begin, "rule" at the dashes of the line below the head, else at a separator. The last column
    takes the rest of a row where `rest`. `names` renames columns, `lower` writes them small, `order` puts columns
    first, `numbers` must be numbers, a row must look like `row`, values in `omit` are left out.
    pairs: `row` has groups key and value; `first`: the head is a row too; after a key of `ends` the lines are complete.
    outline: `path`: what the groups of the head are called, `top`: what else may stand without an indent; `values`:
    what is taken off values, which are written with one capital where `lower`.
    pairs, twin: `nonzero`: zeros are left out.
    `skip`: lines between that mean nothing. `patience`: how many foreign lines may stand between two rows.
    """

    name: str
    kind: Kind
    hints: list[str]
    head: str
    title: str = ""
    versions: str
    split: str = ""
    rest: bool = False
    lower: bool = False
    names: dict[str, str] = {}
    order: list[str] = []
    numbers: list[str] = []
    omit: list[str] = []
    row: str = ""
    first: bool = False
    ends: list[str] = []
    nonzero: bool = False
    path: str = ""
    top: str = ""
    values: str = ""
    skip: str = ""
    patience: int = 0
    samples: list[Sample]
    misses: list[str]


class Form(NamedTuple):
    """A compiled entry. `raw` finds the head in a line with its prefixes on."""

    entry: FormEntry
    raw: re.Pattern[bytes]
    head: re.Pattern[str]
    row: re.Pattern[str]
    top: re.Pattern[str]
    values: re.Pattern[str]
    skip: re.Pattern[str]


class Forms(NamedTuple):
    """All forms by name, and the literals that begin them."""

    by_name: dict[str, Form]
    in_order: tuple[Form, ...]
    heads: HintIndex


class _File(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    checked_against: str
    references: list[str]
    document: list[FormEntry]


@lru_cache(maxsize=1)
def load_forms() -> Forms:
    """The forms of this release; raises SignalFileError for a wrong file."""
    entries = read_table(FILE, _File).document
    forms = tuple(_compile(entry) for entry in entries)
    hints = ((hint, number) for number, form in enumerate(forms) for hint in form.entry.hints)
    return Forms({form.entry.name: form for form in forms}, forms, HintIndex(hints))


@lru_cache(maxsize=1)
def opening_hints() -> tuple[str, ...]:
    """The literals of which every line has one on which the lines behind it hang: heads of documents, split lines."""
    hints = dict.fromkeys(hint for form in load_forms().in_order for hint in form.entry.hints)
    return (*hints, *SPLIT_HINTS)


def opens(line: bytes) -> bool:
    """Whether the lines behind a line, prefixes and all, may mean something because of it."""
    if _SPLIT.search(line) is not None:
        return True
    if len(line) > MAX_HEAD_BYTES:
        return False
    forms = load_forms()
    return any(forms.in_order[number].raw.search(line) is not None for number in forms.heads.candidates(line))


def _compile(entry: FormEntry) -> Form:
    where = f"{FILE}.toml: document {entry.name}"
    parts = ("head", "row", "top", "values", "skip")
    # Behind prefixes, which end with one of these.
    raw = re.compile(rf"(?:^|[\s:\])>|])(?:{entry.head})\s*$".encode(), re.ASCII)
    return Form(entry, raw, *(compile_pattern(f"{where}: {part}", getattr(entry, part) or r"(?!)") for part in parts))
