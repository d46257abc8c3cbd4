"""A flood of bad messages stops the line: something is wrong with all of them, and passing on would hide it."""

from dataclasses import dataclass

from pipeline.agents.fold import BadMessage


class FloodError(RuntimeError):
    """Too many messages of one partition in a row cannot be used."""


@dataclass(slots=True)
class Row:
    """Bad messages without a good one between them."""

    first: int
    last: BadMessage
    count: int = 0


class Flood:
    """Counts the bad messages in a row of each partition."""

    def __init__(self, stage: str, limit: int) -> None:
        self._stage = stage
        self._limit = limit
        self._rows: dict[int, Row] = {}

    def bad(self, bad: BadMessage) -> None:
        """Count a message that cannot be used. Several reasons for one message count once."""
        row = self._rows.setdefault(bad.partition, Row(bad.offset, bad))
        row.count += row.count == 0 or row.last.offset != bad.offset
        row.last = bad

    def check(self, partition: int, offset: int) -> None:
        """A message is dealt with: unless it was bad, the row ends. Raises FloodError where the row is too long."""
        row = self._rows.get(partition)
        if row is None:
            return
        if row.last.offset != offset:
            del self._rows[partition]
        elif row.count > self._limit:
            raise FloodError(
                f"stage {self._stage}: {row.count} messages in a row of topic {row.last.topic} partition {partition} "
                f"cannot be used, offsets {row.first} to {offset}; the last: {row.last.reason}. Stop their "
                f"sender (the dead letters hold all of them), then start again"
            )

    def clear(self) -> None:
        """Start counting anew: messages will be read again."""
        self._rows.clear()
