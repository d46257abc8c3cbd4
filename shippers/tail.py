"""One file path as a stream of lines, whatever becomes of the file: rotation, truncation, late creation, deletion.

The file is polled, never subscribed to, so that lines written by other hosts of a network file system are seen. A line
without its newline is kept back until it is complete; it is shipped torn only where nothing more can come: the end of a
recorded run, or the end of a file that was rotated away or deleted.
"""

import errno
import os
import stat
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Final

from schemas.names import is_utf8, printable
from schemas.records import Gap, SourceProgress
from schemas.vocabulary import SourceState
from shippers.attributes import stated
from shippers.clock import no_zone
from shippers.config import SourceSettings, StartAt
from shippers.generation import Chunk, Generation, ReplacedError
from shippers.kmsg import shape_file
from shippers.pieces import Limit, Moment, Piece
from shippers.plain import Shaped, shape_lines
from shippers.positions import Position, SourcePosition
from shippers.rotation import COMPRESSED, FinishedFiles, continues, open_copy, rotated_files

SECOND_NS: Final = 10**9
LOOK_EVERY_NS: Final = SECOND_NS
IDLE_AFTER_NS: Final = 5 * SECOND_NS
IDLE_EVERY_NS: Final = SECOND_NS // 4
ROTATED_IDLE_NS: Final = 60 * SECOND_NS  # writers keep a rotated file open until they are told
DELETED_IDLE_NS: Final = 5 * SECOND_NS
RECORD_IDLE_NS: Final = SECOND_NS
_MIN_RECORD_LINES: Final = 64


class Tail:
    """A file path, the file now under it, and earlier ones that are not read to their end yet."""

    def __init__(
        self, name: str, path: Path, settings: SourceSettings, start_at: StartAt, saved: SourcePosition | None,
        is_read_elsewhere: Callable[[Path, int], bool] = lambda path, inode: False,
        zone: Callable[[], str | None] = no_zone, hide: Callable[[str], str] = str,
    ) -> None:  # fmt: skip
        self.name = name
        self.path = path
        self.is_gone = False
        self._settings = settings
        self._zone = zone
        self._shown = printable(str(path))
        self._is_utf8 = is_utf8(str(path))
        hidden = hide(self._shown)
        self._hidden_path = hidden if hidden != self._shown else None
        self._start_at = start_at
        self._saved = saved
        self._known_before = saved is not None
        self._knows_beside = saved is not None and bool(saved.generations or saved.finished)
        self._is_read_elsewhere = is_read_elsewhere
        self._current: Generation | None = None
        self._old: list[Generation] = []
        self._finished = FinishedFiles(saved.finished if saved else ())
        self._last_mtime_ns = max((each.mtime_ns for each in saved.generations), default=0) if saved else 0
        self._gaps: list[Gap] = []
        self._state: SourceState = "off"
        self._reason: str | None = "not looked at yet"
        self._through_ns = 0
        self._at_end = False
        self._unsaved = False
        self._look_mono_ns = self._next_read_mono_ns = self._read_mono_ns = 0

    @property
    def attributes(self) -> dict[str, str]:
        """What holds for all lines that are read now."""
        return stated(self._settings.kind, self._settings.attributes, self._zone())

    def open_inodes(self) -> set[int]:
        """Files that are being read."""
        return {generation.inode for generation in self._generations()}

    def has_finished(self, path: Path, inode: int) -> bool:
        """Whether the file is one that was read to its end."""
        return self._finished.has(path, inode)

    def look(self, moment: Moment) -> None:
        """See what is under the path now. Cheap where nothing is due."""
        if moment.mono_ns < self._look_mono_ns and not moment.ending:
            return
        self._look_mono_ns = moment.mono_ns + LOOK_EVERY_NS
        if not self._knows_beside:
            self._knows_beside = True
            self._finished.add_all_beside(self.path)
        if self._saved is not None:
            saved, self._saved = self._saved, None
            self._resume(saved, moment)
        self._see_current(moment)

    def read(self, limit: Limit, moment: Moment, numbers: Iterator[int]) -> Piece | None:
        """The next lines of the oldest file that has some; None at the end of all."""
        is_due = moment.mono_ns >= self._next_read_mono_ns or moment.ending
        if not is_due and not self._gaps and not self._unsaved:
            return None
        for generation in self._generations():
            piece = self._read_one(generation, limit, moment, numbers)
            if piece is not None:
                self._at_end = False
                self._read_mono_ns = moment.mono_ns
                return piece
        self._drop_finished(moment)
        self._at_end = all(each.is_at_end for each in self._generations()) and self._state == "on"
        if self._at_end:
            self._through_ns = moment.observed_ns
        idle = moment.mono_ns - self._read_mono_ns > IDLE_AFTER_NS
        self._next_read_mono_ns = moment.mono_ns + (IDLE_EVERY_NS if idle else 0)
        return self._piece() if self._gaps or self._unsaved else None

    def progress(self) -> SourceProgress:
        """How far the stream is read. Bytes of a line that is not complete count as backlog."""
        return SourceProgress(
            source=self.name,
            state=self._state,
            kind=self._settings.kind,
            reason=self._reason,
            read_through_unix_nano=self._through_ns,
            backlog_bytes=sum(max(0, each.size - each.offset) for each in self._generations()),
            at_end=self._at_end,
            attributes=self.attributes,
        )

    def position(self) -> SourcePosition | None:
        """What to save; None once the path and all its files are gone."""
        if self.is_gone:
            return None
        is_text = self._is_utf8 or self._hidden_path is not None
        return SourcePosition(
            path=(self._hidden_path or str(self.path)) if is_text else "",
            path_bytes=b"" if is_text else os.fsencode(self.path),
            generations=tuple(each.position() for each in self._generations()),
            finished=self._finished.saved(),
        )

    def close(self) -> None:
        """Close all files."""
        for generation in self._generations():
            generation.close()
        self._old, self._current = [], None

    def _generations(self) -> list[Generation]:
        return self._old if self._current is None else [*self._old, self._current]

    # --- reading ---

    def _read_one(self, generation: Generation, limit: Limit, moment: Moment, numbers: Iterator[int]) -> Piece | None:
        ending = moment.ending or self._is_over(generation, moment)
        if self._settings.type == "kmsg":
            limit = Limit(lines=max(limit.lines, _MIN_RECORD_LINES), size=max(limit.size, 64 * 1024))
        size_before, was_empty = generation.size, generation.is_empty
        try:
            chunk = generation.cut(limit, self._settings.max_line_bytes, ending=ending)
        except ReplacedError as replaced:
            self._begin_again(generation, replaced.position, moment)
            return self._piece()
        except OSError as error:
            self._state, self._reason = "refused", f"{self._shown}: {_why(error)}"
            return None
        if generation.size != size_before:
            generation.grew_mono_ns = moment.mono_ns
        if was_empty and not generation.is_empty:
            self._adopt_rotated(generation.inode, moment)
        generation.is_at_end = chunk is None
        if chunk is None:
            return None
        lines, used = self._shape(chunk, generation, moment, numbers, ending=ending)
        if not used and chunk.raws:
            return None
        if used:
            generation.advance(chunk, used)
        size = sum(map(len, chunk.raws[:used])) + used
        return Piece(source=self.name, position=self.position(), lines=lines, size=size, gaps=self._take_gaps())

    def _shape(
        self, chunk: Chunk, generation: Generation, moment: Moment, numbers: Iterator[int], *, ending: bool
    ) -> Shaped:
        if self._settings.type == "file":
            return shape_lines(chunk, self.name, generation.name, moment.observed_ns, numbers)
        end = chunk.start + sum(map(len, chunk.raws)) + len(chunk.raws)
        is_still = moment.mono_ns - generation.grew_mono_ns > RECORD_IDLE_NS and end >= generation.size
        whole = ending or chunk.too_long or is_still
        lines, used = shape_file(chunk, self.name, generation.name, moment.observed_ns, numbers, whole=whole)
        if not used and len(chunk.raws) >= _MIN_RECORD_LINES:
            return shape_file(chunk, self.name, generation.name, moment.observed_ns, numbers, whole=True)
        return lines, used

    def _piece(self) -> Piece:
        self._unsaved = False
        return Piece(source=self.name, position=self.position(), gaps=self._take_gaps())

    def _take_gaps(self) -> list[Gap]:
        gaps, self._gaps = self._gaps, []
        return gaps

    def _gap(self, reason: str, from_offset: int) -> None:
        self._gaps.append(Gap(source=self.name, reason=reason, from_offset=from_offset))

    # --- what becomes of the file ---

    def _see_current(self, moment: Moment) -> None:
        try:
            status = self.path.stat()
            if self._current is None or status.st_ino != self._current.inode:
                if not stat.S_ISREG(status.st_mode):
                    self._leave_current(moment)
                    self._state, self._reason = "refused", f"{self._shown}: not a regular file"
                    return
                self._change_file(status.st_ino, moment)
            elif status.st_mtime_ns != self._last_mtime_ns and self._current.is_empty:
                self._adopt_rotated(status.st_ino, moment)
            self._state, self._reason, self.is_gone = "on", None, False
        except FileNotFoundError:
            self._leave_current(moment)
            self._state, self._reason = "off", f"{self._shown}: does not exist"
            self.is_gone = not self._old
            self._known_before = True  # a file that is made while we look is read from its beginning
        except OSError as error:
            self._state, self._reason = "refused", f"{self._shown}: {_why(error)}"

    def _change_file(self, inode: int, moment: Moment) -> None:
        """Another file is under the path: leave the one before, catch up with those between, open this one."""
        returned = next((each for each in self._old if each.inode == inode), None)
        fresh = returned or Generation.open(self.path)
        self._leave_current(moment)
        if returned is not None:
            self._old.remove(returned)
            returned.left_mono_ns = None
        elif self._known_before:
            self._adopt_rotated(fresh.inode, moment)
        else:
            self._place_at_start(fresh, moment)
        self._current = self._began(fresh, moment)
        self._known_before = True

    def _began(self, generation: Generation, moment: Moment) -> Generation:
        generation.grew_mono_ns = self._read_mono_ns = moment.mono_ns
        self._last_mtime_ns = os.fstat(generation.fd).st_mtime_ns
        self._next_read_mono_ns = 0
        self._unsaved = True
        return generation

    def _leave_current(self, moment: Moment) -> None:
        if self._current is not None:
            self._current.left_mono_ns = moment.mono_ns
            self._old.append(self._current)
            self._current = None

    def _place_at_start(self, generation: Generation, moment: Moment) -> None:
        """At first sight: all, nothing, or nothing where the file was last written before the bound."""
        age_ns = self._start_at.age_ns
        written_ns = os.fstat(generation.fd).st_mtime_ns
        if self._start_at.at_end or (age_ns is not None and written_ns < moment.wall_ns - age_ns):
            generation.start_at_end(self._settings.max_line_bytes)

    def _adopt_rotated(self, current_inode: int, moment: Moment) -> None:
        """Open files that came and were rotated away between two looks, oldest first.

        Also asked for when a file that was empty is not any more: it may have been written, copied and truncated.
        """
        found = rotated_files(self.path)
        self._finished.forget_absent(found)
        for path, status in found:
            if status.st_ino in {current_inode, *self.open_inodes()} or status.st_mtime_ns < self._last_mtime_ns:
                continue
            if path.name.endswith(COMPRESSED) or self._finished.has(path, status.st_ino):
                continue
            if self._is_read_elsewhere(path, status.st_ino) or self._is_copy(path):
                continue
            try:
                adopted = self._began(Generation.open(path), moment)
            except OSError as error:
                self._gap(f"the rotated file {printable(path.name)} cannot be read: {_why(error)}", 0)
            else:
                adopted.left_mono_ns = moment.mono_ns
                self._old.append(adopted)

    def _is_copy(self, path: Path) -> bool:
        """Whether a file holds what was read of one that is open: its truncation is noticed when that is read."""
        return any(continues(path, each.position()) for each in self._generations() if not each.is_empty)

    def _begin_again(self, generation: Generation, position: Position, moment: Moment) -> None:
        """Read a truncated file from its beginning, after what is left of it in a copy."""
        fresh = generation.after_replacement()
        if generation is self._current:
            self._current = fresh
        else:
            fresh.left_mono_ns = moment.mono_ns
            self._old[self._old.index(generation)] = fresh
        self._catch_up_with_copy(position, moment, "the file was truncated or rewritten")
        self._began(fresh, moment)

    def _catch_up_with_copy(self, position: Position, moment: Moment, what: str) -> None:
        copy = open_copy(self.path, position)
        if copy is not None:
            reason = f"{what} after it was copied; what was written in between, if anything was, is lost"
            self._gap(reason, copy.size)
            copy.left_mono_ns = moment.mono_ns
            self._old.append(self._began(copy, moment))
            self._adopt_rotated(self._current.inode if self._current else 0, moment)
            return
        self._finished.add_all_beside(self.path)
        self._gap(f"{what}; what was written after this offset and not read is lost", position.offset)

    def _resume(self, saved: SourcePosition, moment: Moment) -> None:
        written_ns = self._last_mtime_ns
        for position in saved.generations:
            self._reopen(position, moment)
        self._last_mtime_ns = written_ns
        if self._current is not None and self._current.is_empty:
            self._adopt_rotated(self._current.inode, moment)

    def _reopen(self, position: Position, moment: Moment) -> None:
        """Open the file of a saved position again, under its path or a rotated name."""
        for path in [self.path, *(path for path, _ in rotated_files(self.path))]:
            try:
                if path.stat().st_ino != position.inode:
                    continue
                generation, is_same = _open_again(path, position)
            except OSError:
                continue
            if path == self.path:
                self._current = generation
            else:
                generation.left_mono_ns = moment.mono_ns
                self._old.append(generation)
            if not is_same:
                self._catch_up_with_copy(position, moment, "the file was truncated while the shipper was down")
            self._began(generation, moment)
            return
        copy = open_copy(self.path, position) if position.head.size else None
        if copy is None:
            self._gap("the file was moved, compressed or deleted while the shipper was down", position.offset)
            return
        self._gap(
            "the file is gone and a copy is read; what was written after the copy, if anything was, is lost", copy.size
        )
        copy.left_mono_ns = moment.mono_ns
        self._old.append(self._began(copy, moment))

    def _is_over(self, generation: Generation, moment: Moment) -> bool:
        """Whether a file that is no longer under the path has been still for so long that no writer has it."""
        if generation.left_mono_ns is None:
            return False
        patience = ROTATED_IDLE_NS if generation.is_linked() else DELETED_IDLE_NS
        return moment.mono_ns - max(generation.grew_mono_ns, generation.left_mono_ns) > patience

    def _drop_finished(self, moment: Moment) -> None:
        for generation in [each for each in self._old if each.is_at_end and self._is_over(each, moment)]:
            self._old.remove(generation)
            if generation.is_linked():
                self._finished.add(generation)
            generation.close()
            self._unsaved = True
        self.is_gone = self._state == "off" and not self._generations()


def _open_again(path: Path, position: Position) -> tuple[Generation, bool]:
    """The file where it was left, or from its beginning where it holds other content; and which of the two."""
    try:
        return Generation.open(path, position), True
    except ReplacedError:
        return Generation.open(path, cuts=position.cuts + 1), False


def _why(error: OSError) -> str:
    if error.errno == errno.EACCES:
        return "not permitted; let the shipper's user read it"
    if error.errno == errno.EMFILE:
        return "too many open files; raise LimitNOFILE"
    return error.strerror or str(error)
