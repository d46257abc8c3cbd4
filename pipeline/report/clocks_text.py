"""Clocks of nodes as a table for a terminal: worst first, why it is bad below its node."""

from collections.abc import Iterator, Sequence
from textwrap import wrap
from typing import Final

from rich.cells import cell_len
from rich.style import Style

from pipeline.report import clock_words
from pipeline.report.words import short
from pipeline.web.answers import ClockListing, NodeClock

_STYLES: Final = {"good": "green", "holdover": "yellow", "stepped": "yellow", "none": "bold red", "silent": "bold red"}
# Broker, epoch and age fit beside the rest from here on.
_WIDE: Final = 104
_JUMP: Final = 17
# Head, width, whether numbers stand right in it.
_COLUMNS: Final = (
    ("clock", 8, False), ("wall off by", 13, True), ("bound", 9, True), ("drift", 10, True), ("last jump", _JUMP, True),
)  # fmt: skip
_MORE: Final = (("broker", 6, True), ("epoch", 5, True), ("told", 10, True))

Cell = tuple[str, str]


def render_clocks(listing: ClockListing, *, width: int = 80, color: bool = False) -> str:
    """The table, and the fleet in a line. Names and reasons come from records: control characters are spelled out."""
    return "".join(f"{line.rstrip()}\n" for line in _lines(listing, width, color))


def _lines(listing: ClockListing, width: int, color: bool) -> Iterator[str]:
    columns = (*_COLUMNS, *(_MORE if width >= _WIDE else ()))
    names = width - sum(size + 1 for _, size, _ in columns)
    several = len({clock.cluster for clock in listing.clocks}) > 1
    if listing.clocks:
        heads = [(head, "dim") for head, _, _ in columns]
        yield _row(("node", "dim"), heads, names, columns, color)
        yield "─" * width
    for clock in listing.clocks:
        name = f"{short(clock.cluster)}/" * several + clock_words.name_of(clock)
        if cell_len(name) > names:
            yield from (_painted(line, "bold", color) for line in wrap(name, width))
            name = ""
        yield _row((name, "bold"), _cells(clock)[: len(columns)], names, columns, color)
        for remark in (clock_words.why(clock, listing), clock_words.off(clock), _jumped(clock)[1]):
            yield from (_painted(f"  {line}", "dim", color) for line in wrap(remark, width - 2))
    if listing.clocks:
        yield ""
    for line in clock_words.fleet_lines(listing):
        yield from wrap(line, width)


def _jumped(clock: NodeClock) -> tuple[str, str]:
    """The last jump as it fits its column, and what of it does not."""
    jumped = clock_words.jump(clock)
    if clock.last_wall_step_age_s is None:
        return jumped, ""
    ago = f"{clock_words.ago(clock.last_wall_step_age_s)} ago"
    whole = f"{jumped}, {ago}"
    return (whole, "") if len(whole) <= _JUMP else (jumped, f"the wall clock jumped {ago}")


def _cells(clock: NodeClock) -> list[Cell]:
    jumped, _ = _jumped(clock)
    return [
        (clock.state, _STYLES[clock.state]),
        (clock_words.offset_now(clock), "bold red" if clock.is_wall_off else ""),
        (clock_words.bound_now(clock), ""),
        (clock_words.drift(clock.drift_ppb), ""),
        (jumped, "bold" if jumped else ""),
        ("" if clock.reference_broker is None else str(clock.reference_broker), ""),
        (str(clock.epoch), ""),
        (f"{clock_words.ago(clock.age_s)} ago", ""),
    ]


def _row(
    name: Cell, cells: Sequence[Cell], names: int, columns: Sequence[tuple[str, int, bool]], color: bool
) -> str:  # fmt: skip
    out = [_painted(name[0], name[1], color) + " " * (names - cell_len(name[0]))]
    for (text, style), (_, size, right) in zip(cells, columns, strict=True):
        said = text or "-"
        blank = " " * (size - cell_len(said))
        painted = _painted(said, style, color)
        out.append(blank + painted if right else painted + blank)
    return " ".join(out)


def _painted(text: str, style: str, color: bool) -> str:
    return Style.parse(style).render(text) if color and style else text
