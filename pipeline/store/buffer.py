"""Rows on their way: collected per table, handed over in one piece with the offsets they came from."""

from collections.abc import Iterable
from typing import Any, Final

from msgspec import Struct

from pipeline.store.rows import TableRow
from pipeline.store.tables import BY_NAME, Table

# Somebody looks at the screen for these: they wait only for what comes with them.
HURRY_S: Final = 0.05

Place = tuple[str, int]


class Block(Struct, frozen=True, kw_only=True):
    """What is written together: rows by table name, and the last offset of each (topic, partition) in it."""

    rows: dict[str, list[tuple[Any, ...]]]
    offsets: dict[Place, int]


class Buffer:
    """Fills until it is large or old enough. Time is an argument, in seconds of any monotonic clock."""

    def __init__(self, *, max_rows: int, max_bytes: int, max_age_s: float) -> None:
        self._max_rows = max_rows
        self._max_bytes = max_bytes
        self._max_age_s = max_age_s
        self._clear()

    def _clear(self) -> None:
        self._rows: dict[str, list[tuple[Any, ...]]] = {}
        self._offsets: dict[Place, int] = {}
        self._count = 0
        self._bytes = 0
        self._due_s: float | None = None

    def add(self, place: Place, offset: int, rows: Iterable[TableRow], *, size: int, now_s: float) -> None:
        """Take the rows of one message (none is fine: its offset still counts). `size` is in bytes."""
        due_s = now_s + self._max_age_s
        for table, row in rows:
            self._rows.setdefault(table.name, []).append(row)
            self._count += 1
            if table.waited_for:
                due_s = now_s + min(HURRY_S, self._max_age_s)
        self._due_s = due_s if self._due_s is None else min(self._due_s, due_s)
        self._bytes += size
        self._offsets[place] = max(offset, self._offsets.get(place, -1))

    def due(self, now_s: float) -> bool:
        """Whether the block should be written now."""
        if self._due_s is None:
            return False
        return self._count >= self._max_rows or self._bytes >= self._max_bytes or now_s >= self._due_s

    def take(self) -> Block:
        """The block so far; the buffer is empty afterwards."""
        rows = {name: _only_latest(BY_NAME[name], rows) for name, rows in self._rows.items()}
        block = Block(rows=rows, offsets=self._offsets)
        self._clear()
        return block


def _only_latest(table: Table, rows: list[tuple[Any, ...]]) -> list[tuple[Any, ...]]:
    if not table.latest_by:
        return rows
    return list({row[: table.latest_by]: row for row in rows}.values())
