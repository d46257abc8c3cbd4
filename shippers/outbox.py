"""Lines of what the agent measured, until they are read: numbered, bounded, with what to know after a restart."""

import uuid
from collections import deque
from collections.abc import Iterator, Sequence
from typing import Final

from schemas.records import Gap, RawLine
from shippers.pieces import Limit, Piece, Told
from shippers.positions import Position, SourcePosition

KIND: Final = "telemetry"
WIDTH: Final = "time.width_ns"  # attribute of a line: it happened within so long after `time_unix_nano`
_KEPT_LINES: Final = 10_000  # of a source that tells more than is read


class Outbox:
    """The lines of one source. A generation is one life of the agent, an offset the number of a line in it.

    `memo` is what the source knows now; it is saved once all lines that it knows of are taken. Not for use by two
    threads at once.
    """

    def __init__(self, source: str, saved: SourcePosition | None = None) -> None:
        self.memo = saved.generations[0].memo if saved and saved.generations else ""
        self._source = source
        self._saved_memo = self.memo
        self._generation = uuid.uuid4().hex[:12]
        self._offset = 0
        self._waiting: deque[tuple[str, int | None, int]] = deque()
        self._dropped = 0

    @property
    def waits(self) -> bool:
        """Whether lines wait."""
        return bool(self._waiting)

    @property
    def is_quiet(self) -> bool:
        """Whether there is nothing to take."""
        return not self._waiting and not self._dropped and self.memo == self._saved_memo

    def put(self, body: str, since_ns: int | None, until_ns: int) -> None:
        """A line of something that happened within these bounds, by the wall clock; None: nobody knows since when."""
        self._waiting.append((body, since_ns, until_ns))
        if len(self._waiting) > _KEPT_LINES:
            self._waiting.popleft()
            self._dropped += 1

    def take(self, limit: Limit, numbers: Iterator[int], records: Sequence[Told] = ()) -> Piece | None:
        """What waits, with records that go beside it; None where there is nothing."""
        if self.is_quiet and not records:
            return None
        taken = [self._waiting.popleft() for _ in range(min(limit.lines, len(self._waiting)))]
        dropped, self._dropped = self._dropped, 0
        # While lines wait, what is known of them must not be saved: a kill would lose them.
        self._saved_memo = self._saved_memo if self._waiting else self.memo
        lines = [self._line(*one, next(numbers)) for one in taken]
        gaps = [Gap(source=self._source, reason="told more than was read", lost_lines=dropped)] if dropped else []
        position = Position(generation=self._generation, offset=self._offset, memo=self._saved_memo)
        return Piece(
            source=self._source, position=SourcePosition(generations=(position,)), lines=lines, gaps=gaps,
            records=list(records), size=sum(len(line.body) for line in lines),
        )  # fmt: skip

    def _line(self, body: str, since_ns: int | None, until_ns: int, seq: int) -> RawLine:
        self._offset += 1
        return RawLine(
            seq=seq, source=self._source, generation=self._generation, offset=self._offset, body=body,
            observed_time_unix_nano=until_ns, time_unix_nano=since_ns,
            attributes={} if since_ns is None else {WIDTH: str(until_ns - since_ns)},
        )  # fmt: skip
