"""The SQL files of the `sql` package."""

from functools import cache
from pathlib import Path

import sql

ROOT = Path(sql.__file__).parent
MIGRATIONS = ROOT / "migrations"
QUERIES = ROOT / "queries"


@cache
def statement(name: str, folder: str = "store") -> str:
    """The program's own statement `sql/FOLDER/NAME.sql`."""
    return (ROOT / folder / f"{name}.sql").read_text(encoding="utf-8").strip()


def split_statements(text: str) -> list[str]:
    """The statements of a file: each ends with `;` at the end of a line. Pieces that are only comments are dropped."""
    pieces: list[str] = []
    current: list[str] = []
    for line in text.splitlines():
        ends = line.rstrip().endswith(";") and not line.lstrip().startswith("--")
        current.append(line.rstrip()[:-1] if ends else line)
        if ends:
            pieces.append("\n".join(current))
            current = []
    pieces.append("\n".join(current))
    return [piece.strip() for piece in pieces if _says_something(piece)]


def _says_something(piece: str) -> bool:
    return any(line.strip() and not line.lstrip().startswith("--") for line in piece.splitlines())
