"""What each kind of document makes of its lines."""

from collections.abc import Callable, Iterable
from typing import Final, NamedTuple

from msgspec import Struct, field

from pipeline.core.document_rows import columns_of, row_of
from pipeline.core.parse import ParsedLine
from schemas.documents import Form
from schemas.records import RawLine

AGAIN: Final = -1
MAX_DEPTH: Final = 12
PAIRS: Final = 40
FRAMES: Final = 4
MAX_TEXTS: Final = 20
_KEY: Final = 80
_TITLE: Final = 160


class Open(Struct, kw_only=True):
    """A document that is being read. `line` is its last line and `parsed` what the prefixes of it said.

    `begun`: the offset of its head; AGAIN where the line that was just read is another one like it.
    """

    form: str
    line: RawLine
    parsed: ParsedLine
    lead: dict[str, str] = field(default_factory=dict)
    head: str = ""
    columns: list[str] = field(default_factory=list)
    edges: list[int] = field(default_factory=list)
    path: list[tuple[int, str]] = field(default_factory=list)
    pairs: dict[str, str] = field(default_factory=dict)
    texts: list[str] = field(default_factory=list)
    foreign: int = 0
    begun: int = AGAIN


class Said(NamedTuple):
    """The texts that a line completes: those of the lines before it, and those of itself."""

    before: list[str]
    now: list[str]


NOTHING: Final = Said([], [])

Step = Callable[[Form, Open, str], Said | None]
Begin = Callable[[Form, Open, str], None]
End = Callable[[Form, Open], list[str]]


def _title(form: Form) -> str:
    return form.entry.title or form.entry.name


def _listed(form: Form, lead: dict[str, str], pairs: Iterable[tuple[str, str]]) -> list[str]:
    """Pairs as texts of at most PAIRS of them, each with what leads them."""
    kept = [(key, value) for key, value in pairs if value and value not in form.entry.omit]
    parts = [[*lead.items(), *kept[start : start + PAIRS]] for start in range(0, len(kept), PAIRS)]
    return [f"{_title(form)}: " + ", ".join(f"{key}={value}" for key, value in part) for part in parts]


# --- tables -----------------------------------------------------------------------------------------------------------


def _begin_table(form: Form, document: Open, body: str) -> None:
    document.head = body
    document.columns, document.edges = columns_of(form.entry, body)


def _table(form: Form, document: Open, body: str) -> Said | None:
    text = body.strip()
    if not text:
        # A blank line ends a table, unless its rows come one by one.
        return NOTHING if form.entry.patience else None
    if text == document.head.strip():
        document.begun = AGAIN
        return NOTHING
    if form.skip.match(text):
        if form.entry.split == "rule":
            document.columns, document.edges = columns_of(form.entry, document.head, body)
        return NOTHING
    if form.entry.row and not form.row.match(text):
        return None
    row = row_of(form.entry, document.columns, document.edges, body)
    return None if row is None else Said([], _listed(form, {}, row))


# --- outlines ---------------------------------------------------------------------------------------------------------


def _begin_outline(form: Form, document: Open, body: str) -> None:
    _outline(form, document, body)


def _outline(form: Form, document: Open, body: str) -> Said | None:
    text = body.expandtabs(8)
    stripped = text.strip()
    if not stripped or form.skip.match(stripped):
        return NOTHING
    indent = len(text) - len(text.lstrip())
    head = form.head.fullmatch(stripped)
    if indent == 0 and not head and not form.top.match(stripped):
        return None
    while document.path and document.path[-1][0] >= indent:
        document.path.pop()
    if head:
        document.begun = AGAIN
        if not stripped.startswith("="):
            document.path.append((indent, form.entry.path.format(**head.groupdict()) or stripped))
        return NOTHING
    key, value = _item(form, stripped)
    parents = [title for _, title in document.path]
    if indent and len(document.path) < MAX_DEPTH:
        document.path.append((indent, f"{key} {value}".strip()[:_TITLE]))
    if not value:
        return NOTHING
    return Said([], [": ".join([_title(form), *parents, key, value])])


def _item(form: Form, text: str) -> tuple[str, str]:
    """Key and value of a line; a title has no value."""
    key, _, value = text.partition(":")
    key, value = key.strip(), form.values.sub("", value.strip(), count=1).strip()
    if len(key) > _KEY:
        return text[:_KEY], ""
    return form.entry.names.get(key, key), value.capitalize() if form.entry.lower and value.isupper() else value


# --- lists of counters ------------------------------------------------------------------------------------------------


def _pairs(form: Form, document: Open, body: str) -> Said | None:
    text = body.strip()
    found = form.row.match(text)
    if found is None:
        return NOTHING if form.skip.match(text) or form.head.fullmatch(text) else None
    groups = found.groupdict()
    key, value = groups.pop("key"), groups.pop("value")
    lead = {name: said for name, said in groups.items() if said}
    before: list[str] = []
    if (lead and lead != document.lead) or key in document.pairs:
        # The same list again, or that of the next device.
        before = _end_pairs(form, document)
    document.lead = lead or document.lead
    if not form.entry.nonzero or value.strip("0"):
        document.pairs[key] = value
    is_full = key in form.entry.ends or len(document.pairs) >= PAIRS
    return Said(before, _end_pairs(form, document) if is_full else [])


def _end_pairs(form: Form, document: Open) -> list[str]:
    pairs, document.pairs = document.pairs, {}
    return _listed(form, document.lead, pairs.items())


# --- a line of names, then a line of values ---------------------------------------------------------------------------


def _begin_twin(_form: Form, document: Open, body: str) -> None:
    document.head, _, names = body.strip().partition(": ")
    document.columns = names.split()


def _twin(form: Form, document: Open, body: str) -> Said | None:
    label, _, values = body.strip().partition(": ")
    numbers = values.split()
    if label != document.head or len(numbers) != len(document.columns) or not numbers[0].isdigit():
        return None
    pairs = zip(document.columns, numbers, strict=True)
    text = ", ".join(f"{key}={value}" for key, value in pairs if value != "0" or not form.entry.nonzero)
    return Said([], [f"{_title(form)}: {text}"] if text else [])


# --- stacks of threads ------------------------------------------------------------------------------------------------


def _stacks(form: Form, document: Open, body: str) -> Said | None:
    text = body.strip()
    head = form.head.fullmatch(text)
    if head is not None:
        before = _end_stacks(form, document)
        document.begun = AGAIN
        document.lead = {name: value for name, value in head.groupdict().items() if value}
        return Said(before, [])
    if not text or form.skip.match(text):
        return NOTHING
    if not body[:1].isspace() or form.row.fullmatch(text) is None:
        return None
    if len(document.texts) < FRAMES:
        document.texts.append(text)
    return NOTHING


def _end_stacks(form: Form, document: Open) -> list[str]:
    frames, document.texts = document.texts, []
    if not frames:
        return []
    thread = document.lead.get("thread", "")
    said = [f'{_title(form)}: thread="{thread}" ({document.lead["state"]})', f"at={frames[0]}"]
    said += [f"from={frame}" for frame in frames[1:]]
    # The main thread has the number of its process.
    if thread == "MainThread" and "pid" in document.lead:
        said.append(f"pid={document.lead['pid']}")
    return [", ".join(said)]


# --- boxes ------------------------------------------------------------------------------------------------------------


def _box(form: Form, document: Open, body: str) -> Said | None:
    text = body.strip()
    if not text.startswith(("|", "+")):
        return None
    if not text.strip("+-=|"):
        return Said(_end_box(form, document), [])
    if text[1:3] == "--":
        before = _end_box(form, document)
        document.path = [(-1, text.strip("|+-").partition("--")[0].strip())]
        return Said(before, [])
    key, bar, value = text.strip("|").partition("|")
    if not bar:
        return NOTHING
    title, value = key.strip(" ->"), value.strip(" |")
    if not title:
        if len(document.texts) < MAX_TEXTS:
            document.texts.append(value)
        return NOTHING
    before = _end_box(form, document)
    depth = len(key) - len(key.lstrip(" ->"))
    while document.path and document.path[-1][0] >= depth:
        document.path.pop()
    if len(document.path) < MAX_DEPTH:
        document.path.append((depth, title[:_TITLE]))
    document.texts = [value] if value else []
    return Said(before, [])


def _end_box(form: Form, document: Open) -> list[str]:
    texts, document.texts = document.texts, []
    if not texts or not document.path:
        return []
    return [": ".join([_title(form), *(title for _, title in document.path), " ".join(texts)])]


BEGINS: Final[dict[str, Begin]] = {
    "table": _begin_table, "csv": _begin_table, "outline": _begin_outline, "twin": _begin_twin,
}  # fmt: skip
STEPS: Final[dict[str, Step]] = {
    "table": _table, "csv": _table, "outline": _outline, "pairs": _pairs, "twin": _twin, "stacks": _stacks, "box": _box,
}  # fmt: skip
ENDS: Final[dict[str, End]] = {"pairs": _end_pairs, "stacks": _end_stacks, "box": _end_box}
