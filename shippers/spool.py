"""The disk spool: batches and source positions in one fsynced record, sent in order, bounded, safe against kill -9.

One thread appends and syncs; another takes and acknowledges. A record can be taken only after it is on disk.
"""

import os
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from schemas import codec
from schemas.records import Gap
from schemas.topics import RAW
from shippers import claim, dropping, positions, segment
from shippers.acked import AckedFile
from shippers.dropping import Drop
from shippers.losses import damage, losses_by_source
from shippers.positions import Positions
from shippers.segment import Damage, Entry
from shippers.signing import Signer
from shippers.spool_format import check_format

_FOR_SIZE, _FOR_AGE = 1, 2
TEN_YEARS_NS: Final = 3652 * 86400 * 10**9


def _boottime_ns() -> int:
    return time.clock_gettime_ns(time.CLOCK_BOOTTIME)


class SpoolFullError(Exception):
    """The disk took no more. What was not synced was taken back; append it again later."""


@dataclass(slots=True)
class _Segment:
    number: int
    path: Path
    size: int = 0
    last_seq: int = 0
    unacked_bytes: int = 0
    written_ns: int = 0  # on the boot clock: when its last batch was
    given_up: int = 0  # for its size (1) or its age (2): it holds only what stays then


class Spool:
    """Batches on disk between the sources and Kafka."""

    def __init__(
        self, folder: Path, max_bytes: int, segment_bytes: int = 8 * 1024 * 1024, *, max_age_s: float = float("inf"),
        is_kept: Callable[[str], bool] = lambda source: False, now_ns: Callable[[], int] = _boottime_ns,
        signer: Signer | None = None,
    ) -> None:  # fmt: skip
        """Open or make the spool. Raises SpoolRefusedError, OSError.

        `is_kept`: whether a source drops its newest lines, so that those that are in the spool stay. `signer` signs
        what stays of a batch.
        """
        claim.make_folder(folder)
        self._folder = folder
        self._lock_fd = claim.lock(folder)
        self._max_bytes = max_bytes
        self._max_age_ns = max_age_s * 1e9
        self._is_kept = is_kept
        self._now_ns = now_ns
        self._signer = signer
        self._segment_bytes = max(1, min(segment_bytes, max_bytes // 8))
        self._changed = threading.Condition()
        self._is_woken = False
        self.shipper_id = claim.shipper_id(folder)
        self._acked = AckedFile(folder / "acked")
        self._segments: list[_Segment] = []
        self._doomed: list[_Segment] = []
        self._drop: Drop | None = None
        self._found_gaps: list[Gap] = []
        self.positions: Positions = {}
        self.last_seq = self._acked.seq
        self.next_line_seq = 0
        self._fd: int | None = None
        try:
            self._recover()
        except BaseException:
            self._acked.close()
            os.close(self._lock_fd)
            raise
        self.durable_seq = self.last_seq
        self._durable_size = self._segments[-1].size if self._segments else 0
        self._durable_positions = dict(self.positions)
        self._cursor = (0, 0)
        self._taken_seq = self._acked.seq
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
            if self._drop is not None:
                changed = {**changed, dropping.NAME: self._drop.position()}
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
            current.written_ns = self._now_ns()
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
        """Choose the oldest files to give up so that the bounds hold, and say what is lost with them.

        It is done by the `sync` that makes these gap markers durable, and forgotten when that fails.
        """
        gaps: list[Gap] = []
        with self._changed:
            total = sum(each.size for each in self._segments)
            for victim in self._segments[:-1]:
                is_old = self._is_old(victim)
                if is_old or total + incoming_bytes > self._max_bytes:
                    found = self._give_up(victim, is_old=is_old)
                    total -= victim.size - found.kept_bytes
                    gaps.extend(found.gaps)
        return gaps

    def has_old(self) -> bool:
        """Whether some of it is older than it may be."""
        with self._changed:
            return any(self._is_old(each) and each.given_up < _FOR_AGE for each in self._segments[:-1])

    def is_half_full(self, incoming_bytes: int) -> bool:
        """Whether sources that drop their newest lines have to: half is kept free for the others."""
        with self._changed:
            return 2 * (sum(each.size for each in self._segments) + incoming_bytes) > self._max_bytes

    def take(self, timeout_s: float) -> Entry | None:
        """The next durable batch after the one taken last; None if there is none within `timeout_s`."""
        with self._changed:
            entry = self._next()
            if entry is None and timeout_s > 0 and not self._is_woken:
                self._changed.wait(timeout_s)
                entry = self._next()
            return entry

    def wake(self) -> None:
        """Nobody waits in `take` from here on: there is something else to do."""
        with self._changed:
            self._is_woken = True
            self._changed.notify_all()

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
            for each in self._doomed:
                each.given_up = 0
            self._doomed.clear()
            self._drop = None
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
            if current in self._doomed:
                return None  # what stays of it is known after the next sync
            if offset >= end:
                if is_last:
                    return None
                self._cursor = (current.number + 1, 0)
                continue
            fd = self._reader_fd(current)
            found = segment.read_entry(fd, offset)
            if found is None:
                self._pass_damage(current, fd, offset, end)
                continue
            entry, following = found
            self._cursor = (current.number, following)
            if entry.payload and entry.batch_seq > max(self._acked.seq, self._taken_seq):
                self._taken_seq = entry.batch_seq
                return entry
        return None

    def _pass_damage(self, current: _Segment, fd: int, offset: int, end: int) -> None:
        begin = segment.next_whole(fd, offset)
        lines = next(
            (found.lines for at, found, _ in segment.scan(fd) if at == offset and isinstance(found, Damage)), None
        )
        self._found_gaps.append(damage(current.path, offset, lines))
        self._cursor = (current.number, end if begin is None else min(begin, end))

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

    def _is_old(self, each: _Segment) -> bool:
        return self._now_ns() - each.written_ns > self._max_age_ns

    def _give_up(self, victim: _Segment, *, is_old: bool) -> dropping.Plan:
        """Choose a file, unless what could go of it has gone."""
        level = _FOR_AGE if is_old else _FOR_SIZE
        if victim in self._doomed or victim.given_up >= level:
            return dropping.Plan(kept_bytes=victim.size)
        why = f"older than {self._max_age_ns / 3.6e12:g} h" if is_old else f"full ({self._max_bytes} bytes)"
        head = self._head_seq()
        found = dropping.plan(
            victim.path, self._acked.seq, head, (lambda source: False) if is_old else self._is_kept,
            f"the spool was {why}; the oldest lines were dropped",
        )  # fmt: skip
        victim.given_up = level
        self._doomed.append(victim)
        drop = Drop(files=frozenset({victim.number}), heads=frozenset({head}), kept=frozenset(found.kept))
        self._drop = drop.with_more(self._drop)
        return found

    def _head_seq(self) -> int:
        """The first batch that is not acknowledged: it may have been sent, by this process or one before it."""
        if self._taken_seq > self._acked.seq:
            return self._taken_seq
        for each in self._segments:
            if each.last_seq > self._acked.seq:
                fd = os.open(each.path, os.O_RDONLY | os.O_CLOEXEC)
                try:
                    for _, entry, _ in segment.entries(fd):
                        if entry.payload and entry.batch_seq > self._acked.seq:
                            return entry.batch_seq
                finally:
                    os.close(fd)
        return self._acked.seq + 1

    def _drop_doomed(self) -> None:
        with self._changed:
            doomed, drop = self._doomed, self._drop
            self._doomed, self._drop = [], None
            for each in doomed:
                if drop is not None and each in self._segments:
                    self._rewrite(each, drop)

    def _rewrite(self, each: _Segment, drop: Drop) -> None:
        """Leave what stays of a file. Where the disk is too full even for that, it all goes, and is said to."""
        if self._reader is not None and self._reader[0] == each.number:
            os.close(self._reader[1])
            self._reader = None
        try:
            left = dropping.rewrite(each.path, self._acked.seq, drop, self._signer)
        except OSError as error:
            each.path.with_suffix(".new").unlink(missing_ok=True)
            reason = f"there was no room to keep them ({error.strerror}); they were dropped"
            bare = Drop(files=drop.files)
            self._found_gaps.extend(self._rest(each, drop, reason))
            left = dropping.rewrite(each.path, self._acked.seq, bare)
        if not left:
            self._segments.remove(each)
            return
        if self._cursor[0] == each.number:
            self._cursor = (each.number, 0)
        each.size = each.unacked_bytes = sum(map(_size_of, left))

    def _rest(self, each: _Segment, drop: Drop, reason: str) -> list[Gap]:
        """What stays of a file, as lost."""
        staying = dropping.staying(each.path, self._acked.seq, drop)
        return losses_by_source((codec.decode(RAW.name, entry.payload) for entry in staying), reason)

    def _remove(self, each: _Segment) -> None:
        each.path.unlink(missing_ok=True)
        self._segments.remove(each)

    # --- opening ---

    def _recover(self) -> None:
        """Read what an earlier process left. Torn tails are cut off; the newest whole record has the positions."""
        for path in self._folder.glob("*.new"):
            if path.stem.isdecimal():
                path.unlink()
        for path in sorted(self._folder.glob("*.spool")):
            check_format(path)
            self._segments.append(_Segment(int(path.stem), path, written_ns=self._written_ns(path)))
        while self._segments and not self._recover_positions(self._segments[-1]):
            self._remove(self._segments[-1])
        for each in self._segments[:-1]:
            self._recover_headers(each)
        self.last_seq = max(self.last_seq, self._acked.seq)
        drop = Drop.saved(self.positions)
        for each in self._segments[:-1]:
            if drop is not None and each.number in drop.files:
                self._finish(each, drop)

    def _finish(self, each: _Segment, drop: Drop) -> None:
        """Give up what an earlier process had said that it does."""
        self._reader, self._cursor = None, (0, 0)
        self._rewrite(each, drop)

    def _written_ns(self, path: Path) -> int:
        """When a file of an earlier process was written last. A clock that was not set says nothing of its age."""
        age_ns = time.time_ns() - path.stat().st_mtime_ns
        return self._now_ns() - (age_ns if 0 <= age_ns < TEN_YEARS_NS else 0)

    def _recover_positions(self, each: _Segment) -> bool:
        fd = os.open(each.path, os.O_RDONLY | os.O_CLOEXEC)
        try:
            for offset, found, end in segment.scan(fd):
                if isinstance(found, Damage):
                    self._found_gaps.append(damage(each.path, offset, found.lines))
                    continue
                positions.apply(self.positions, positions.decode(found.positions))
                self.last_seq = max(self.last_seq, found.batch_seq)
                self.next_line_seq = max(self.next_line_seq, found.next_line_seq)
                each.size, each.last_seq = end, found.batch_seq
                if found.payload and found.batch_seq > self._acked.seq:
                    each.unacked_bytes += _size_of(found)
        finally:
            os.close(fd)
        os.truncate(each.path, each.size)
        return each.size > 0

    def _recover_headers(self, each: _Segment) -> None:
        fd = os.open(each.path, os.O_RDONLY | os.O_CLOEXEC)
        try:
            each.size = os.fstat(fd).st_size
            end = 0
            for offset, header in segment.headers(fd):
                end, each.last_seq = offset + header.size, header.batch_seq
                if header.payload_bytes and header.batch_seq > self._acked.seq:
                    each.unacked_bytes += header.size
            if end < each.size:
                last = max((entry.batch_seq for _, entry, _ in segment.entries(fd)), default=each.last_seq)
                each.last_seq = max(each.last_seq, last)
        finally:
            os.close(fd)


def _size_of(entry: Entry) -> int:
    return segment.HEADER_BYTES + len(entry.positions) + len(entry.payload)
