"""Answers as text for a terminal. Cells may hold log text, so nothing in them may steer the terminal."""

import re
from io import StringIO
from typing import Any, Final

import orjson
from rich.console import Console
from rich.table import Table as RichTable
from rich.text import Text

from pipeline.store.queries import Answer

_STAMP: Final = re.compile(r"\d{4}-\d\d-\d\d \d\d:\d\d:\d\d\.\d{9}", re.ASCII)
LAYOUT: Final = frozenset(" \n")


def printable(text: str) -> str:
    r"""The text with every character that is not printable written out (`\x1b`, `\n`, `\u202e`)."""
    return "".join(c if c.isprintable() else c.encode("unicode_escape").decode() for c in text)


def answer_json(answer: Answer) -> str:
    """A list with one object per row. Control characters stay escaped, those beyond ASCII too."""
    return printable_json(orjson.dumps(answer.objects(), option=orjson.OPT_INDENT_2))


def printable_json(encoded: bytes) -> str:
    """JSON as text that says the same, with every character that is not printable escaped."""
    return "".join(c if c.isprintable() or c in LAYOUT else _json_escape(c) for c in encoded.decode())


def answer_text(answer: Answer, width: int | None = None) -> str:
    """A table where it fits the width (default: the terminal's), else one block of `column value` lines per row."""
    console = Console(file=StringIO(), width=width, no_color=True)
    cells = [[_cell(value) for value in row] for row in answer.rows]
    if not cells:
        return f"no rows ({', '.join(map(printable, answer.columns))})"
    names = [printable(name) for name in answer.columns]
    widest = [max(len(text) for text in column) for column in zip(names, *cells, strict=True)]
    if sum(widest) + 2 * len(widest) > console.width:
        return _blocks(names, cells)
    table = RichTable(box=None, pad_edge=False, show_edge=False)
    for name in names:
        table.add_column(Text(name), no_wrap=True)
    for row in cells:
        table.add_row(*(Text(cell) for cell in row))
    console.print(table)
    return "\n".join(line.rstrip() for line in console.file.getvalue().splitlines())  # type: ignore[attr-defined]


def _blocks(names: list[str], cells: list[list[str]]) -> str:
    left = max(map(len, names))
    blocks = ["\n".join(f"{n:<{left}}  {c}".rstrip() for n, c in zip(names, row, strict=True)) for row in cells]
    return "\n\n".join(blocks)


def _cell(value: Any) -> str:
    match value:
        case None:
            return "-"
        case bool():
            return "yes" if value else "no"
        case str():
            return printable(_to_microseconds(value))
        case list():
            return ", ".join(_cell(item) for item in value)
        case dict():
            return ", ".join(f"{printable(key)}={_cell(item)}" for key, item in value.items())
        case _:
            return str(value)


def _to_microseconds(text: str) -> str:
    """A stamp with nine digits as far as clocks tell: people read it, `--json` keeps all of it."""
    return text[:-3] if _STAMP.fullmatch(text) else text


def _json_escape(character: str) -> str:
    units = character.encode("utf-16-be")
    return "".join(f"\\u{units[i : i + 2].hex()}" for i in range(0, len(units), 2))
