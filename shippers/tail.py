"""One file path as a stream of lines, whatever becomes of the file: rotation, truncation, late creation, deletion.

The file is polled, never subscribed to, so that lines written by other hosts of a network file system are seen. A line
without its newline is kept back until it is complete; it is shipped torn only where nothing more can come: the end of a
recorded run, or the end of a file that was rotated away or deleted.
"""

import itertools
import os
import stat
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Final

import msgspec

from schemas.names import is_utf8, printable
from schemas.records import Gap, RawLine, SourceProgress
from schemas.vocabulary import SourceState
from shippers.attributes import stated
from shippers.clock import no_zone
from shippers.config import SourceSettings, StartAt
from shippers.gate import Gate, numbered
from shippers.generation import Chunk, Generation, ReplacedError
from shippers.kmsg import shape_file
from shippers.pieces import Limit, Moment, Piece
from shippers.plain import Shaped, shape_lines
from shippers.positions import Position, SourcePosition
from shippers.rotation import COMPRESSED, FinishedFiles, Listing, continues, open_again, open_copy, rotated_files, why

SECOND_NS: Final = 10**9
LOOK_EVERY_NS: Final = SECOND_NS
IDLE_AFTER_NS: Final = 5 * SECOND_NS
IDLE_EVERY_NS: Final = SECOND_NS // 4
ROTATED_IDLE_NS: Final = 60 * SECOND_NS  # writers keep a rotated file open until they are told
DELETED_IDLE_NS: Final = 5 * SECOND_NS
_REWRITTEN: Final = "the file was truncated while"
RECORD_IDLE_NS: Final = SECOND_NS
_MIN_RECORD_LINES: Final = 64
# A file that grows faster than it may be read is passed over in large steps, but for its last lines.
_TOO_FAR_BYTES: Final = 16 * 1024 * 1024
_STEP_BYTES: Final = 64 * 1024 * 1024
_LAST_BYTES: Final = 1024 * 1024
_BEGINNING_BYTES: Final = 64 * 1024  # of a file, that says who runs where and since when: nothing of it is passed over


class Tail:
    """A file path, the file now under it, and earlier ones that are not read to their end yet."""

    def __init__(
        self, name: str, path: Path, settings: SourceSettings, start_at: StartAt, saved: SourcePosition | None,
        is_read_elsewhere: Callable[[Path, int], bool] = lambda path, inode: False,
        zone: Callable[[], str | None] = no_zone, listing: Listing | None = None, hide: Callable[[str], str] = str,
    ) -> None:  # fmt: skip
        self._listing = listing or Listing()
        self.pace_ns = 0  # how often one of many files is looked at at most
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
        # The kernel's log is read whole, whatever it says and how much.
        is_whole = settings.kind == "kernel" or settings.type == "kmsg"
        self._gate = None if is_whole else Gate(settings, saved.memo if saved else "")
        self._stepped_mono_ns = -1
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

    def open_files(self) -> list[Generation]:
        """The files that are open."""
        return self._generations()

    def open_inodes(self) -> set[int]:
        """Files that are being read."""
        return {generation.inode for generation in self._generations()}

    def finished_inodes(self) -> set[int]:
        """Files that were read to their end."""
        return self._finished.inodes()

    def is_due(self, moment: Moment) -> bool:
        """Whether there may be something to read now."""
        return moment.mono_ns >= self._next_read_mono_ns or moment.ending or bool(self._gaps) or self._unsaved

    def has_finished(self, path: Path, inode: int) -> bool:
        """Whether the file is one that was read to its end."""
        return self._finished.has(path, inode)

    def look(self, moment: Moment) -> None:
        """See what is under the path now. Cheap where nothing is due."""
        if moment.mono_ns < self._look_mono_ns and not moment.ending:
            return
        self._look_mono_ns = moment.mono_ns + max(LOOK_EVERY_NS, self.pace_ns)
        if not self._knows_beside:
            self._knows_beside = True
            self._finished.add_all_beside(self.path, self._listing.beside(self.path, moment))
        try:
            if self._saved is not None:
                self._resume(self._saved, moment)
                self._saved = None
        except OSError as error:
            # What was read of it is known: it is not begun anew, but waited for.
            self._state, self._reason = "refused", f"{self._shown}: {why(error)}"
            self.close()
            self._gaps.clear()
            return
        self._see_current(moment)

    def read(self, limit: Limit, moment: Moment, numbers: Iterator[int]) -> Piece | None:
        """The next lines of the oldest file that has some; None at the end of all."""
        if not self.is_due(moment):
            return None
        for generation in self._generations():
            piece = self._read_one(generation, limit, moment, numbers)
            if piece is not None:
                self._at_end = False
                self._read_mono_ns = moment.mono_ns
                return piece
        piece = self._quiet(moment, numbers)
        if piece is not None:
            return piece
        self._drop_finished(moment)
        self._at_end = all(each.is_at_end for each in self._generations()) and self._state == "on"
        if self._at_end:
            self._through_ns = moment.observed_ns
        idle = moment.mono_ns - self._read_mono_ns > IDLE_AFTER_NS
        self._next_read_mono_ns = moment.mono_ns + (max(IDLE_EVERY_NS, self.pace_ns) if idle else 0)
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
            generations=self._positions(),
            finished=self._finished.saved(),
        )

    def left_at(self) -> SourcePosition | None:
        """Where another tail goes on in its place; None where nothing was seen yet."""
        return self._saved or (self.position() if self._known_before else None)

    def _positions(self) -> tuple[Position, ...]:
        """Of each file; the last one keeps what the gate has to know."""
        positions = [each.position() for each in self._generations()]
        memo = self._gate.memo() if self._gate is not None else ""
        if memo and positions:
            positions[-1] = msgspec.structs.replace(positions[-1], memo=memo)
        return tuple(positions)

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
        is_just_opened = generation.opened_in is moment
        try:
            if self._is_too_far(generation, moment):
                return self._step(generation, moment)
            chunk = generation.cut(limit, self._settings.max_line_bytes, ending=ending)
        except ReplacedError as replaced:
            return self._piece() if self._begin_again(generation, replaced.position, moment) else None
        except OSError as error:
            self._fail(generation, error)
            return None
        if generation.size != size_before:
            generation.grew_mono_ns = moment.mono_ns
        if was_empty and not generation.is_empty:
            self._adopt_rotated(generation.inode, moment, is_new=is_just_opened)
        generation.is_at_end = chunk is None
        if chunk is None:
            return None
        gate = self._gate
        if gate is not None:
            is_fresh = self._is_fresh(generation, moment) and not ending
            size = sum(map(len, chunk.raws)) + len(chunk.raws)
            if not gate.admits(len(chunk.raws), size, moment.mono_ns, is_fresh=is_fresh):
                return self._gated(gate, chunk, generation, moment, numbers, is_fresh=is_fresh)
        lines, used = self._shape(chunk, generation, moment, numbers, ending=ending)
        if not used and chunk.raws:
            return None
        if used:
            generation.advance(chunk, used)
        size = sum(map(len, chunk.raws[:used])) + used
        return Piece(source=self.name, position=self.position(), lines=lines, size=size, gaps=self._take_gaps())

    def _is_fresh(self, generation: Generation, moment: Moment) -> bool:
        """Whether what is read now was written while we looked: what was there before, or is recorded, is no storm."""
        return generation.offset >= generation.fresh_from and moment.observed_ns > 0

    def _gated(
        self, gate: Gate, chunk: Chunk, generation: Generation, moment: Moment, numbers: Iterator[int], *,
        is_fresh: bool,
    ) -> Piece:  # fmt: skip
        """Those of the lines that go on."""
        unnumbered, used = shape_lines(chunk, self.name, generation.name, moment.observed_now(), itertools.repeat(0))
        sizes = [len(raw) + (not chunk.too_long) for raw in chunk.raws]
        whole = [line.offset < _BEGINNING_BYTES for line in unnumbered]
        passed = gate.take(list(zip(unnumbered, sizes, strict=True)), moment.mono_ns, is_fresh=is_fresh, whole=whole)
        generation.advance(chunk, used)
        self._gaps.extend(passed.gaps)
        return self._piece(numbered(passed.lines, numbers), read=sum(sizes))

    def _quiet(self, moment: Moment, numbers: Iterator[int]) -> Piece | None:
        """The last lines that a gate holds back, where nothing comes after them."""
        if self._gate is None:
            return None
        lines = self._gate.quiet(moment.mono_ns, is_over=moment.ending or self._current is None)
        return self._piece(numbered(lines, numbers)) if lines else None

    def _is_too_far(self, generation: Generation, moment: Moment) -> bool:
        if self._gate is None or not self._gate.is_shedding(moment.mono_ns):
            return False
        return (
            generation.behind() > _TOO_FAR_BYTES
            and self._is_fresh(generation, moment)
            and not generation.skipping
            and not moment.ending
        )

    def _step(self, generation: Generation, moment: Moment) -> Piece | None:
        """Pass over what cannot be read in time, counted; once in a pass, so that others have their turn."""
        if self._stepped_mono_ns == moment.mono_ns or self._gate is None:
            return None
        self._stepped_mono_ns = moment.mono_ns
        first = generation.offset
        lines, size = generation.pass_over(min(_STEP_BYTES, generation.behind() - _LAST_BYTES))
        self._gate.shed(moment.mono_ns)
        if lines:
            reason = f"the file grew faster than it can be read: {self._gate.limits}; lines were counted, not read"
            self._gaps.append(
                Gap(
                    source=self.name, reason=reason, lost_lines=lines, lost_bytes=size, from_offset=first,
                    to_offset=first + size - 1,
                )
            )  # fmt: skip
        return self._piece()

    def _shape(
        self, chunk: Chunk, generation: Generation, moment: Moment, numbers: Iterator[int], *, ending: bool
    ) -> Shaped:
        observed_ns = moment.observed_now()
        if self._settings.type == "file":
            return shape_lines(chunk, self.name, generation.name, observed_ns, numbers)
        end = chunk.start + sum(map(len, chunk.raws)) + len(chunk.raws)
        is_still = moment.mono_ns - generation.grew_mono_ns > RECORD_IDLE_NS and end >= generation.size
        whole = ending or chunk.too_long or is_still
        lines, used = shape_file(chunk, self.name, generation.name, observed_ns, numbers, whole=whole)
        if not used and len(chunk.raws) >= _MIN_RECORD_LINES:
            return shape_file(chunk, self.name, generation.name, observed_ns, numbers, whole=True)
        return lines, used

    def _piece(self, lines: Sequence[RawLine] = (), read: int = 0) -> Piece:
        self._unsaved = False
        size = sum(len(line.body) + 1 for line in lines)
        return Piece(
            source=self.name, position=self.position(), lines=list(lines), size=size, gaps=self._take_gaps(),
            passed_over=max(0, read - size),
        )  # fmt: skip

    def _take_gaps(self) -> list[Gap]:
        gaps, self._gaps = self._gaps, []
        return gaps

    def _gap(self, reason: str, from_offset: int) -> None:
        self._gaps.append(Gap(source=self.name, reason=reason, from_offset=from_offset))

    # --- what becomes of the file ---

    def _see_current(self, moment: Moment) -> None:
        try:
            status = self.path.stat()
            self._renew_stale(moment)
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
            self._renew_stale(moment)
            self._leave_current(moment)
            self._state, self._reason = "off", f"{self._shown}: does not exist"
            self.is_gone = not self._old
            self._known_before = True  # a file that is made while we look is read from its beginning
        except OSError as error:
            self._state, self._reason = "refused", f"{self._shown}: {why(error)}"

    def _change_file(self, inode: int, moment: Moment) -> None:
        """Another file is under the path: leave the one before, catch up with those between, open this one."""
        returned = next((each for each in self._old if each.inode == inode), None)
        fresh = returned or Generation.open(self.path)
        if self._current is not None:
            fresh.fresh_from = 0
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
        generation.opened_in = moment
        self._last_mtime_ns = generation.position().mtime_ns
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

    def _adopt_rotated(self, current_inode: int, moment: Moment, *, is_new: bool = False) -> None:
        """Open files that came and were rotated away between two looks, oldest first.

        Also asked for when a file that was empty is not any more: it may have been written, copied and truncated.
        """
        is_new = is_new or (self._current is None and not self._old)
        found = self._listing.beside(self.path, moment) if is_new else rotated_files(self.path)
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
                self._gap(f"the rotated file {printable(path.name)} cannot be read: {why(error)}", 0)
            else:
                adopted.left_mono_ns = moment.mono_ns
                self._old.append(adopted)

    def _is_copy(self, path: Path) -> bool:
        """Whether a file holds what was read of one that is open: its truncation is noticed when that is read."""
        return any(continues(path, each.position()) for each in self._generations() if not each.is_empty)

    def _fail(self, generation: Generation, error: OSError) -> None:
        """A file cannot be read: it is opened again with the next look that its path allows."""
        generation.is_stale, generation.is_at_end = True, False
        self._state, self._reason = "refused", f"{self._shown}: {why(error)}"

    def _renew_stale(self, moment: Moment) -> None:
        """Open files again that could not be read: a handle of a network file system may be stale for ever.

        Raises OSError where the path does not allow it now.
        """
        for stale in [each for each in self._generations() if each.is_stale]:
            position = stale.position()
            self._reopen(position, moment, "was moved, compressed or deleted while it could not be read")
            # What took its place stands last.
            self._old = [each for each in self._old if each is not stale]
            self._current = None if self._current is stale else self._current
            stale.close()

    def _begin_again(self, generation: Generation, position: Position, moment: Moment) -> bool:
        """Read a truncated file from its beginning, after what is left of it in a copy. False where it cannot be."""
        try:
            fresh = generation.after_replacement()
        except OSError as error:
            self._fail(generation, error)
            return False
        fresh.fresh_from = 0
        if generation is self._current:
            self._current = fresh
        else:
            fresh.left_mono_ns = moment.mono_ns
            self._old[self._old.index(generation)] = fresh
        self._catch_up_with_copy(position, moment, "the file was truncated or rewritten")
        self._began(fresh, moment)
        return True

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
            self._reopen(position, moment, "was moved, compressed or deleted while the shipper was down")
        self._last_mtime_ns = written_ns
        if self._current is not None and self._current.is_empty:
            self._adopt_rotated(self._current.inode, moment)

    def _reopen(self, position: Position, moment: Moment, what: str) -> None:
        """Open the file of a saved position again, under its path or a rotated name.

        Raises OSError where it is under its path and cannot be opened now.
        """
        for path in [self.path, *(path for path, _ in rotated_files(self.path))]:
            try:
                if path.stat().st_ino != position.inode:
                    continue
                generation, is_same = open_again(path, position)
            except FileNotFoundError:
                continue
            except OSError:
                if path == self.path:
                    raise
                continue
            if path == self.path:
                self._current = generation
            else:
                generation.left_mono_ns = moment.mono_ns
                self._old.append(generation)
            if not is_same:
                self._catch_up_with_copy(position, moment, f"{_REWRITTEN} the shipper was down or could not read it")
            self._began(generation, moment)
            return
        copy = open_copy(self.path, position) if position.head.size else None
        if copy is None:
            self._gap(f"the file {what}", position.offset)
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
