"""The disk spool: batches and source positions in one fsynced record, sent in order, bounded, safe against kill -9.

One thread appends and syncs; another takes and acknowledges. A record can be taken only after it is on disk.
"""

import os
import threading
from dataclasses import dataclass
from pathlib import Path

from schemas import codec
from schemas.records import Gap
from schemas.topics import RAW
from shippers import claim, positions, segment
from shippers.acked import AckedFile
from shippers.losses import damage, losses_by_source
from shippers.positions import Positions
from shippers.segment import Entry


class SpoolFullError(Exception):
    """The disk took no more. What was not synced was taken back; append it again later."""


@dataclass(slots=True)
class _Segment:
    number: int
    path: Path
    size: int = 0
    last_seq: int = 0
    unacked_bytes: int = 0


class Spool:
    """Batches on disk between the sources and Kafka."""

    def __init__(self, folder: Path, max_bytes: int, segment_bytes: int = 8 * 1024 * 1024) -> None:
        """Open or make the spool. Raises SpoolLockedError, OSError."""
        folder.mkdir(parents=True, exist_ok=True)
        self._folder = folder
        self._lock_fd = claim.lock(folder)
        self._max_bytes = max_bytes
        self._segment_bytes = max(1, min(segment_bytes, max_bytes // 8))
        self._changed = threading.Condition()
        self.shipper_id = claim.shipper_id(folder)
        self._acked = AckedFile(folder / "acked")
        self._segments: list[_Segment] = []
        self._doomed: list[_Segment] = []
        self._found_gaps: list[Gap] = []
        self.positions: Positions = {}
        self.last_seq = self._acked.seq
        self.next_line_seq = 0
        self._fd: int | None = None
        self._recover()
        self.durable_seq = self.last_seq
        self._durable_size = self._segments[-1].size if self._segments else 0
        self._durable_positions = dict(self.positions)
        self._cursor = (0, 0)
        self._reader: tuple[int, int] | None = None  # (segment number, file descriptor)

    @property
    def acked_seq(self) -> int:
        """The last batch that Kafka has acknowledged."""
        return self._acked.seq

    @property
    def backlog_bytes(self) -> int:
        """Bytes that are not acknowledged yet."""
        with self._changed:
            return sum(each.unacked_bytes for each in self._segments)

    def take_found_gaps(self) -> list[Gap]:
        """Damage found when the spool was opened or read, once."""
        with self._changed:
            gaps, self._found_gaps = self._found_gaps, []
        return gaps

    def append(self, payload: bytes, changed: Positions, lines: int, next_line_seq: int) -> None:
        """Write the batch numbered `last_seq + 1` (no payload: only positions). Raises SpoolFullError.

        It counts only after `sync`.
        """
        seq = self.last_seq + 1 if payload else self.last_seq
        try:
            current, is_fresh = self._writable()
            positions.apply(self.positions, changed)
            entry = Entry(
                batch_seq=seq, next_line_seq=next_line_seq, lines=lines, payload=payload,
                positions=positions.encode(self.positions if is_fresh else changed),
            )  # fmt: skip
            data = segment.frame(entry)
            assert self._fd is not None
            if os.write(self._fd, data) != len(data):
                raise OSError("short write")
        except OSError as error:
            self._take_back()
            raise SpoolFullError(str(error)) from None
        with self._changed:
            current.size += len(data)
            current.last_seq = seq
            self.last_seq, self.next_line_seq = seq, next_line_seq
            if payload:
                current.unacked_bytes += len(data)

    def sync(self) -> None:
        """Make all that was appended durable, and hand it to the taker. Raises SpoolFullError."""
        if self._fd is None or (self._segments[-1].size == self._durable_size and not self._doomed):
            return
        try:
            os.fsync(self._fd)
        except OSError as error:
            self._take_back()
            raise SpoolFullError(str(error)) from None
        with self._changed:
            self._set_durable()
            self._changed.notify_all()
        self._drop_doomed()

    def make_room(self, incoming_bytes: int) -> list[Gap]:
        """Choose the oldest segments to drop so that the bound holds, and say what is lost with them.

        They are dropped by the next `sync`, so that the gap markers are on disk first.
        """
        gaps: list[Gap] = []
        with self._changed:
            total = sum(each.size for each in self._segments if each not in self._doomed)
            candidates = [each for each in self._segments[:-1] if each not in self._doomed]
        for victim in candidates:
            if total + incoming_bytes <= self._max_bytes:
                break
            total -= victim.size
            gaps.extend(self._losses(victim))
            self._doomed.append(victim)
        return gaps

    def take(self, timeout_s: float) -> Entry | None:
        """The next durable batch after the one taken last; None if there is none within `timeout_s`."""
        with self._changed:
            entry = self._next()
            if entry is None and timeout_s > 0:
                self._changed.wait(timeout_s)
                entry = self._next()
            return entry

    def acknowledge(self, entry: Entry) -> None:
        """Kafka has this batch and all before it."""
        with self._changed:
            self._acked.write(entry.batch_seq)
            holder = next((each for each in self._segments if each.last_seq >= entry.batch_seq), None)
            if holder is not None:
                holder.unacked_bytes = max(0, holder.unacked_bytes - _size_of(entry))
            keep_from = next(
                (i for i, each in enumerate(self._segments[:-1]) if each.last_seq > entry.batch_seq),
                len(self._segments) - 1,
            )
            # The last segment that is on disk holds the positions: it stays even when all of it is acknowledged.
            is_durable = self._durable_size > 0 or keep_from < len(self._segments) - 1
            for each in self._segments[: keep_from if is_durable else max(0, keep_from - 1)]:
                self._remove(each)

    def close(self) -> None:
        """Close all files and give the lock back."""
        if self._fd is not None:
            os.close(self._fd)
            self._fd = None
        if self._reader is not None:
            os.close(self._reader[1])
            self._reader = None
        self._acked.close()
        os.close(self._lock_fd)

    # --- writing ---

    def _writable(self) -> tuple[_Segment, bool]:
        """The segment to append to, and whether it is empty."""
        if self._fd is not None and self._segments[-1].size < self._segment_bytes:
            return self._segments[-1], self._segments[-1].size == 0
        if self._fd is not None:
            os.fsync(self._fd)
            os.close(self._fd)
            self._fd = None
            with self._changed:
                self._set_durable()
        number = self._segments[-1].number + 1 if self._segments else 1
        path = self._folder / f"{number:012d}.spool"
        self._fd = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_APPEND | os.O_CLOEXEC, 0o640)
        claim.fsync_folder(self._folder)
        with self._changed:
            self._segments.append(_Segment(number, path))
            self._durable_size = 0
        return self._segments[-1], True

    def _take_back(self) -> None:
        """Cut off what is not durable, after a write that failed."""
        self.positions = dict(self._durable_positions)
        with self._changed:
            self.last_seq = self.durable_seq
            if self._fd is None:
                return
            current = self._segments[-1]
            os.ftruncate(self._fd, self._durable_size)
            current.unacked_bytes = max(0, current.unacked_bytes - (current.size - self._durable_size))
            current.size, current.last_seq = self._durable_size, self.durable_seq

    def _set_durable(self) -> None:
        self.durable_seq = self.last_seq
        self._durable_size = self._segments[-1].size
        self._durable_positions = dict(self.positions)

    # --- reading ---

    def _next(self) -> Entry | None:
        while (place := self._place()) is not None:
            current, offset = place
            is_last = current is self._segments[-1]
            end = self._durable_size if is_last else current.size
            found = segment.read_entry(self._reader_fd(current), offset) if offset < end else None
            if found is None:
                if is_last:
                    return None
                if offset < end:
                    self._found_gaps.append(damage(current.path, offset))
                self._cursor = (current.number + 1, 0)
                continue
            entry, following = found
            self._cursor = (current.number, following)
            if entry.payload and entry.batch_seq > self._acked.seq:
                return entry
        return None

    def _place(self) -> tuple[_Segment, int] | None:
        number, offset = self._cursor
        for each in self._segments:
            if each.number == number:
                return each, offset
            if each.number > number:
                return each, 0
        return None

    def _reader_fd(self, current: _Segment) -> int:
        if self._reader is None or self._reader[0] != current.number:
            if self._reader is not None:
                os.close(self._reader[1])
            self._reader = (current.number, os.open(current.path, os.O_RDONLY | os.O_CLOEXEC))
        return self._reader[1]

    # --- dropping ---

    def _drop_doomed(self) -> None:
        with self._changed:
            for each in self._doomed:
                if each in self._segments:
                    self._remove(each)
            self._doomed.clear()

    def _remove(self, each: _Segment) -> None:
        each.path.unlink(missing_ok=True)
        self._segments.remove(each)

    def _losses(self, victim: _Segment) -> list[Gap]:
        """What is lost with a segment: lines by source, and the gap markers that it carried."""
        fd = os.open(victim.path, os.O_RDONLY | os.O_CLOEXEC)
        try:
            batches = [
                codec.decode(RAW.name, entry.payload)
                for _, entry, _ in segment.entries(fd)
                if entry.payload and entry.batch_seq > self._acked.seq
            ]
        finally:
            os.close(fd)
        reason = f"the spool was full ({self._max_bytes} bytes); the oldest lines were dropped"
        return losses_by_source(batches, reason)

    # --- opening ---

    def _recover(self) -> None:
        """Read what an earlier process left. Torn tails are cut off; the newest whole record has the positions."""
        paths = sorted(self._folder.glob("*.spool"))
        for path in paths:
            self._segments.append(_Segment(int(path.stem), path))
        while self._segments and not self._recover_positions(self._segments[-1]):
            self._remove(self._segments[-1])
        for each in self._segments[:-1]:
            self._recover_headers(each)
        self.last_seq = max(self.last_seq, self._acked.seq)

    def _recover_positions(self, each: _Segment) -> bool:
        fd = os.open(each.path, os.O_RDONLY | os.O_CLOEXEC)
        try:
            for _, entry, end in segment.entries(fd):
                positions.apply(self.positions, positions.decode(entry.positions))
                self.last_seq = max(self.last_seq, entry.batch_seq)
                self.next_line_seq = max(self.next_line_seq, entry.next_line_seq)
                each.size, each.last_seq = end, entry.batch_seq
                if entry.payload and entry.batch_seq > self._acked.seq:
                    each.unacked_bytes += _size_of(entry)
        finally:
            os.close(fd)
        os.truncate(each.path, each.size)
        return each.size > 0

    def _recover_headers(self, each: _Segment) -> None:
        fd = os.open(each.path, os.O_RDONLY | os.O_CLOEXEC)
        try:
            for offset, header in segment.headers(fd):
                each.size, each.last_seq = offset + header.size, header.batch_seq
                if header.payload_bytes and header.batch_seq > self._acked.seq:
                    each.unacked_bytes += header.size
            if each.size < os.fstat(fd).st_size:
                self._found_gaps.append(damage(each.path, each.size))
        finally:
            os.close(fd)


def _size_of(entry: Entry) -> int:
    return segment.HEADER_BYTES + len(entry.positions) + len(entry.payload)
