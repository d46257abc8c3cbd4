"""Batches into the spool: numbered, fsynced together, kept and written again when the disk was full."""

import time
from collections import deque
from collections.abc import Callable
from dataclasses import replace
from typing import Final

from schemas import codec
from schemas.records import Gap, RawLine
from shippers.reader import Batch, Reader
from shippers.spool import Spool, SpoolFullError

_LOOK_EVERY_S: Final = 5.0
_HALF_FULL: Final = "the spool was half full; new lines of this source were dropped, those before them are kept"


class SpoolWriter:
    """Writes batches in order. While the disk is full it keeps them, and nothing more should be read."""

    def __init__(self, spool: Spool, reader: Reader, tell: Callable[[str], None]) -> None:
        self._spool = spool
        self._reader = reader
        self._tell = tell
        self._waiting: deque[Batch] = deque()
        self._appended: list[tuple[int, Batch]] = []
        self._looked_s = float("-inf")
        self.full_reason: str | None = None

    def put(self, batch: Batch) -> None:
        """A batch to be written by the next `flush`."""
        self._waiting.append(batch)

    def flush(self) -> bool:
        """Write and sync all that waits. False where the disk takes no more; said once."""
        if not self._waiting:
            self._look_for_old()
            if not self._waiting and self.full_reason is None:
                return True
        try:
            while self._waiting:
                self._append(self._waiting[0])
                self._appended.append((self._spool.last_seq, self._waiting.popleft()))
            self._spool.sync()
        except SpoolFullError as error:
            self._take_back()
            if self.full_reason is None:
                self._tell(f"the spool cannot be written: {error}; reading pauses until there is room, nothing is lost")
            self.full_reason = f"spool: {error}; reading is paused"
            return False
        self._appended.clear()
        if self.full_reason is not None:
            self._tell("the spool can be written again; reading goes on")
            self.full_reason = None
        return True

    def _look_for_old(self) -> None:
        """What is older than it may be goes with the next batch, if need be an empty one; looked for now and then."""
        now_s = time.monotonic()
        if now_s - self._looked_s >= _LOOK_EVERY_S:
            self._looked_s = now_s
            if self._spool.has_old():
                self._waiting.append(Batch(next_line_seq=self._reader.next_line_seq))

    def _append(self, batch: Batch) -> None:
        """Without lines that do not fit by the policy of their source, and with gap markers for all that goes."""
        records = [codec.encode(record) for record in batch.records]
        incoming = 2 * batch.size + sum(map(len, records))
        told = self._shortened(batch) if batch.lines and self._spool.is_half_full(incoming) else batch
        room = self._spool.make_room(incoming)
        if room:
            told = replace(told, gaps=told.gaps + room)
        for record in records:
            self._spool.append(record, {}, 0, batch.next_line_seq)
        if told.is_worth_sending():
            payload = self._reader.encode(told, self._spool.shipper_id, self._spool.last_seq + 1)
            self._spool.append(payload, batch.positions, len(batch.lines), batch.next_line_seq)
        else:
            self._spool.append(b"", batch.positions, 0, batch.next_line_seq)

    def _shortened(self, batch: Batch) -> Batch:
        """Without lines of sources that drop their newest ones."""
        kept, lost = list[RawLine](), dict[str, list[RawLine]]()
        for line in batch.lines:
            if self._reader.drops_newest(line.source):
                lost.setdefault(line.source, []).append(line)
            else:
                kept.append(line)
        gaps = [
            Gap(
                source=source,
                reason=_HALF_FULL,
                lost_lines=len(lines),
                lost_bytes=sum(len(each.body) for each in lines),
                from_offset=lines[0].offset,
                to_offset=lines[-1].offset,
            )
            for source, lines in lost.items()
        ]
        return replace(batch, lines=kept, gaps=batch.gaps + gaps)

    def _take_back(self) -> None:
        """Let what is not on disk wait again, in order."""
        last_durable = max(
            (
                index
                for index, (seq, batch) in enumerate(self._appended)
                if seq <= self._spool.durable_seq and batch.is_worth_sending()
            ),
            default=-1,
        )
        self._waiting.extendleft(batch for _, batch in reversed(self._appended[last_durable + 1 :]))
        self._appended.clear()
