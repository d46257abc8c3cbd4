"""A part of a fleet report: a table with sentences around it, for a terminal as for a page."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

from pipeline.fleet.tables import Column

MOST_ROWS: Final = 12


@dataclass(frozen=True, kw_only=True)
class Section:
    """A title, sentences above and below, and a table between; `left_out`: rows that are not shown."""

    title: str
    above: Sequence[str] = ()
    columns: Sequence[Column] = ()
    left_out: int = 0
    below: Sequence[str] = ()
