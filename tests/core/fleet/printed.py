"""Figures as they are printed: equal if they round to the same digits."""

import tomllib
from pathlib import Path
from typing import Any


def published(name: str) -> dict[str, Any]:
    """A table that somebody published, with its source in the head of the file."""
    return tomllib.loads((Path(__file__).parent / "published" / f"{name}.toml").read_text(encoding="utf-8"))


def number(printed: str) -> float:
    return float(printed.replace(",", ""))


def like(value: float | None, printed: str) -> str:
    """`value` with as many digits as `printed` has."""
    assert value is not None
    if "e" in printed:
        return f"{value:.{len(printed.partition('e')[0]) - 2}e}"
    return f"{value:{',' if ',' in printed else ''}.{len(printed.partition('.')[2])}f}"
