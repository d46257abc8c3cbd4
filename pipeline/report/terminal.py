"""How the terminal at hand wants its text."""

import os
import shutil
from dataclasses import dataclass
from typing import TextIO


@dataclass(frozen=True, kw_only=True)
class Look:
    """Columns, and whether colour is welcome."""

    width: int = 80
    color: bool = False


def look_of(stream: TextIO) -> Look:
    """The look of a stream: colour only on a terminal, and not where NO_COLOR is set or TERM is dumb."""
    terminal = stream.isatty()
    color = terminal and not os.environ.get("NO_COLOR") and os.environ.get("TERM") != "dumb"
    columns = shutil.get_terminal_size((80, 24)).columns
    return Look(width=max(40, min(columns, 140)), color=bool(color))
