"""How the head and the rows of a table are cut into columns."""

from collections.abc import Iterator
from typing import Final

from schemas.documents import FormEntry

Row = list[tuple[str, str]]

MAX_COLUMNS: Final = 200
_FAR: Final = 1 << 20
_JOINED: Final = "\x00"
# Columns that say when a row was read.
_STAMPS: Final = frozenset(("timestamp", "time"))
# The words of `ps -o lstart`: one column of five words.
_LONG_START: Final = "started"
_LONG_START_WORDS: Final = 5


def columns_of(entry: FormEntry, head: str, rule: str = "") -> tuple[list[str], list[int]]:
    """The names of the columns, and where each begins and ends, where that decides."""
    spans: list[tuple[int, int]] = []
    if entry.split == "tokens":
        for long in entry.names:
            head = head.replace(long, long.replace(" ", _JOINED)) if " " in long else head
        words = (word.replace(_JOINED, " ") for word in head.replace("#", " ").split())
        # A name may stand for two columns.
        names = [part for word in words for part in entry.names.get(word, word).split()]
    elif entry.split in ("gap", "starts"):
        cells = list(_cells(head, 2 if entry.split == "gap" else 1))
        names = [head[start:end] for start, end in cells]
        ends = [*(start for start, _ in cells[1:]), _FAR]
        spans = [(start, end) for (start, _), end in zip(cells, ends, strict=True)]
    elif entry.split == "rule":
        spans = list(_cells(rule, 1))
        names = [head[start:end].strip() for start, end in spans]
    else:
        # nvidia-smi puts the unit behind the name: `memory.used [MiB]`.
        names = [name.strip().partition(" [")[0] for name in _separated(entry, head)]
    return [_name(entry, name) for name in names[:MAX_COLUMNS]], [at for span in spans for at in span]


def row_of(entry: FormEntry, columns: list[str], edges: list[int], body: str) -> Row | None:
    """The values of a row with their columns, in the order of the form; None where it does not fit."""
    values = _values(entry, columns, edges, body)
    if values is not None and len(values) == len(columns) - 1 and columns[0] in _STAMPS:
        # It was taken off as the stamp of the line.
        columns = columns[1:]
    if values is None or len(values) != len(columns):
        return None
    row = dict(zip(columns, values, strict=True))
    if any(not row.get(name, "0").isdigit() for name in entry.numbers):
        return None
    return [(name, row[name]) for name in dict.fromkeys([*entry.order, *columns]) if name in row]


def _name(entry: FormEntry, name: str) -> str:
    name = entry.names.get(name, name)
    return (name.lower() if entry.lower else name).replace(" ", "")


def _cells(text: str, gap: int) -> Iterator[tuple[int, int]]:
    """Start and end of the runs of text between at least so many spaces."""
    at, size = 0, len(text.rstrip())
    while at < size:
        if text[at].isspace():
            at += 1
            continue
        end = text.find(" " * gap, at)
        end = size if end < 0 else min(end, size)
        yield at, end
        at = end


def _separated(entry: FormEntry, text: str) -> list[str]:
    text = text.strip()
    # `sacct -p` ends each row with a separator.
    return text.removesuffix("|").split(entry.split) if entry.split == "|" else text.split(entry.split)


def _values(entry: FormEntry, columns: list[str], edges: list[int], body: str) -> list[str] | None:
    if entry.split == "tokens":
        return _tokens(entry, columns, body)
    if entry.split not in ("gap", "starts", "rule"):
        return [value.strip() for value in _separated(entry, body)]
    spans = list(zip(edges[::2], edges[1::2], strict=True))
    # A word across the edge of a column belongs to another table, or to none.
    if all(start == 0 or start >= len(body) or body[start - 1].isspace() for start, _ in spans):
        values = [body[start:end].strip() for start, end in spans]
        if entry.split == "rule" or (values and values[0] and values[-1]):
            return values
    if entry.split != "gap":
        return None
    cells = list(_cells(body, 2))
    if entry.rest and len(cells) > len(columns):
        cells = [*cells[: len(columns) - 1], (cells[len(columns) - 1][0], len(body))]
    return [body[start:end].strip() for start, end in cells]


def _tokens(entry: FormEntry, columns: list[str], body: str) -> list[str] | None:
    more = _LONG_START_WORDS - 1 if _LONG_START in columns else 0
    count = len(columns) + more
    values = body.split(None, count - 1) if entry.rest else body.split()
    if len(values) != count:
        return None
    if more:
        at = columns.index(_LONG_START)
        values[at : at + _LONG_START_WORDS] = [" ".join(values[at : at + _LONG_START_WORDS])]
    return [value.strip() for value in values]
