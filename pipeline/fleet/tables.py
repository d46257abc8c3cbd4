"""Tables for a terminal of any width: what matters least is left out first, then the longest texts are cut."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Final

from rich.cells import cell_len, set_cell_size
from rich.style import Style

from pipeline.report.words import short

_LEAST_TEXT: Final = 8
_BETWEEN: Final = 2


@dataclass(frozen=True, kw_only=True)
class Column:
    """A head and the cells below it. `rank`: 0 is always shown, the highest is left out first."""

    head: str
    cells: Sequence[str]
    rank: int = 0
    is_text: bool = False


def table_lines(columns: Sequence[Column], width: int, *, color: bool = False) -> Iterator[str]:
    """The head and a line per row, none wider than `width`. Cells may hold anything; they are made visible."""
    shown, cells = list(columns), {id(c): [short(cell) for cell in c.cells] for c in columns}
    sizes = {id(c): max(map(cell_len, (c.head, *cells[id(c)]))) for c in columns}
    while _needed(shown, sizes) > width and any(column.rank for column in shown):
        shown.remove(max(shown, key=lambda column: column.rank))
    texts = [column for place, column in enumerate(shown) if column.is_text or place == 0]
    while _needed(shown, sizes) > width and max(sizes[id(column)] for column in texts) > _LEAST_TEXT:
        sizes[id(max(texts, key=lambda column: sizes[id(column)]))] -= 1
    yield painted(_line(shown, [c.head for c in shown], sizes), "dim", color)
    for number in range(len(shown[0].cells)):
        yield _line(shown, [cells[id(c)][number] for c in shown], sizes)


def _needed(shown: Sequence[Column], sizes: dict[int, int]) -> int:
    return sum(sizes[id(column)] for column in shown) + _BETWEEN * (len(shown) - 1)


def _line(shown: Sequence[Column], texts: Sequence[str], sizes: dict[int, int]) -> str:
    out = []
    for place, (column, text) in enumerate(zip(shown, texts, strict=True)):
        size = sizes[id(column)]
        said = text if cell_len(text) <= size else set_cell_size(text, size - 1) + "…"
        blank = " " * (size - cell_len(said))
        out.append(said + blank if column.is_text or place == 0 else blank + said)
    return (" " * _BETWEEN).join(out).rstrip()


def painted(text: str, style: str, color: bool) -> str:
    """The text in a style, where colour is welcome."""
    return Style.parse(style).render(text) if color and style and text else text
