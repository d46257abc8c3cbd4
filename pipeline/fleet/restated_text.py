"""Restatements for a terminal."""

from collections.abc import Iterator, Sequence
from itertools import groupby
from textwrap import wrap
from typing import Final

from pipeline.core.fleet.restated import COUNT, Restatement
from pipeline.fleet.numbers import number, whole
from pipeline.fleet.tables import Column, table_lines
from pipeline.report.words import first_lines, shortened

NOTHING: Final = "No figure differs from a report issued then.\n"


def render_restatements(found: Sequence[Restatement], *, width: int = 80, color: bool = False) -> str:
    """Old and new of each figure, and why below those that have the same reason."""
    return "".join(f"{line.rstrip()}\n" for line in _lines(found, width, color)) if found else NOTHING


def _lines(found: Sequence[Restatement], width: int, color: bool) -> Iterator[str]:
    for place, (why, of_one) in enumerate(groupby(found, key=lambda one: one.why)):
        rows = list(of_one)
        if place:
            yield ""
        yield from table_lines(
            [
                Column(head="figure", cells=[row.figure for row in rows], is_text=True),
                Column(head="old", cells=[_figure(row, row.old) for row in rows]),
                Column(head="new", cells=[_figure(row, row.new) for row in rows]),
            ],
            width,
            color=color,
        )
        for reason in first_lines(why) or ["reason not known"]:
            yield from wrap(f"why: {shortened(reason, 400)}", width, initial_indent="  ", subsequent_indent="    ")


def _figure(row: Restatement, value: float | None) -> str:
    return whole(value) if row.figure.endswith(COUNT) else number(value)
