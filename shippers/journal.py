"""The journal as a source: what services write, and the kernel's log where /dev/kmsg cannot be read.

`journalctl --follow` gives the entries; its cursor is kept with every batch. After a start the entry of the cursor
comes first and is passed over: where another one comes, those between are gone, and a gap marker says so.
"""

import dataclasses
import os
from collections import deque
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Final, Literal

from schemas.lines import MAX_LINE_BYTES
from schemas.records import Gap, RawLine, SourceProgress
from schemas.vocabulary import SourceState
from shippers import journal_entry
from shippers.clock import read_boot_id
from shippers.config import Config, parse_start_at
from shippers.gate import Gate, numbered
from shippers.journal_entry import Entry
from shippers.journal_files import JournalFiles, Start
from shippers.journalctl import Journalctl
from shippers.pieces import Limit, Moment, Piece
from shippers.positions import Position, SourcePosition

SERVICES: Final = "journal"
KERNEL: Final = "journal_kernel"
KMSG: Final = Path("/dev/kmsg")
INSTEAD: Final = "is read instead"  # the reason of a source that is not needed ends so
_SECOND_NS: Final = 10**9
_BACKOFF_S: Final = (1, 2, 5, 10, 30, 60)
_STEADY_NS: Final = 60 * _SECOND_NS  # what lived so long has not failed at once
_SETTLED_NS: Final = _SECOND_NS  # what cannot run has ended within that time
_ANSWER_NS: Final = 60 * _SECOND_NS
_FIRST_ANSWER_NS: Final = 10 * _SECOND_NS
# A child that hangs looks like one that has nothing to say. One that was silent so long is replaced; the new one gives
# the entry of the cursor again, so that nothing is lost.
_RENEW_NS: Final = 300 * _SECOND_NS
_SAVE_NS: Final = 5 * _SECOND_NS
_READ_BYTES: Final = 256 * 1024
_ENDING_WAIT_S: Final = 0.5  # where all is to be read that is there now, journalctl is waited for
_LAG_NS: Final = _SECOND_NS  # from a message to journalctl: so much before now all is read for sure
_MACHINE_ID: Final = Path("/etc/machine-id")


class JournalSource:
    """All services of the journal, or its kernel entries."""

    def __init__(
        self, config: Config, saved: SourcePosition | None, of: Literal["services", "kernel"] = "services", *,
        start: Start = Journalctl, kmsg: Path = KMSG, boot_id: str = "",
    ) -> None:  # fmt: skip
        self._settings = settings = config.journal
        self._is_kernel = of == "kernel"
        self.name = KERNEL if self._is_kernel else SERVICES
        self._kind = "kernel" if self._is_kernel else "service"
        self._reads_kmsg = any(each.type == "kmsg" and each.path.startswith("/dev/") for each in config.source)
        self._kmsg = kmsg
        self._start_at = parse_start_at(settings.start_at or config.start_at)
        self._boot_id = boot_id or config.clock.boot_id or read_boot_id()
        self._machine_id = "" if settings.directory else _machine_id()
        self._begin = start
        self._files = JournalFiles(settings, start)
        known = saved.generations[0] if saved and saved.generations else None
        self._cursor, _, gate = (known.memo if known else "").partition("\n")
        self._generation, self._offset = (known.generation, known.offset) if known else ("", 0)
        self._gate = Gate(settings, gate)
        self._selects = settings.select == "significant" and not self._is_kernel
        self._child: Journalctl | None = None
        self._waiting: deque[bytes] = deque()
        self._echo = ""  # the cursor whose entry is to come first
        self._first_ns = 0  # wall time of the first look: older entries are no news
        self._started_mono_ns = self._heard_mono_ns = self._retry_mono_ns = self._saved_mono_ns = 0
        self._closed_mono_ns = 0  # when journalctl was found to have closed its output
        self._has_heard = False
        self._failures = 0
        self._gaps: list[Gap] = []
        self._state: SourceState = "off"
        self._reason: str | None = "not looked at yet"
        self._through_ns = 0
        self._at_end = False
        self._unsaved = False

    @property
    def attributes(self) -> dict[str, str]:
        """What holds for all its lines."""
        return {"kind": self._kind, **({"select": self._settings.select} if self._selects else {})}

    @property
    def child_pid(self) -> int | None:
        """The process id of journalctl, where it runs."""
        return self._child.pid if self._child is not None else None

    def look(self, moment: Moment) -> None:
        """Start journalctl where it does not run, and replace it where it says nothing for long."""
        self._first_ns = self._first_ns or moment.wall_ns
        if self._child is None:
            if moment.mono_ns >= self._retry_mono_ns:
                self._start(moment)
            return
        silent_ns = moment.mono_ns - self._heard_mono_ns
        if self._echo and silent_ns > _ANSWER_NS and not self._files.are_none:
            self._fail(moment, f"journalctl has not answered for {silent_ns // _SECOND_NS} s")
        elif silent_ns > _RENEW_NS:
            self._stop()
            self._start(moment)
        elif self._state != "on" and moment.mono_ns - self._started_mono_ns >= _SETTLED_NS:
            self._see_whether_it_runs(moment)

    @property
    def descriptor(self) -> int | None:
        """What journalctl writes to, while it does."""
        return None if self._child is None or self._child.has_closed else self._child.fileno()

    def read(self, limit: Limit, moment: Moment, numbers: Iterator[int]) -> Piece | None:
        """The next entries."""
        read = 0
        while (entries := self._entries(limit, moment)) is not None:
            read += sum(map(len, entries))
            piece = self._piece(self._passed(entries, moment), moment, numbers)
            if piece is None and read >= _READ_BYTES:
                piece = self._at()  # all of it was of no interest, and there is more: others have their turn
            if piece is not None:
                return dataclasses.replace(piece, passed_over=max(0, read - piece.size))
        if self._state == "on" and self._has_answered(moment):
            self._at_end, self._through_ns = True, max(self._through_ns, moment.observed_ns - _LAG_NS)
        return self._piece(self._gate.quiet(moment.mono_ns, is_over=moment.ending), moment, numbers)

    def progress(self) -> SourceProgress:
        """How far the journal is read."""
        return SourceProgress(
            source=self.name, state=self._state, kind=self._kind, reason=self._reason,
            read_through_unix_nano=self._through_ns, at_end=self._at_end and self._state == "on",
            attributes=self.attributes,
        )  # fmt: skip

    def close(self) -> None:
        """End journalctl."""
        self._stop()
        self._files.close()

    # --- the child ------------------------------------------------------------------------------------------------

    def _command(self) -> list[str]:
        settings = self._settings
        command = [
            settings.journalctl, "--follow", "--output=json", "--all", "--merge", "--no-pager",
            f"--output-fields={','.join(journal_entry.FIELDS)}",
        ]  # fmt: skip
        command += [f"--directory={settings.directory}"] if settings.directory else []
        command += [f"--namespace={settings.namespace}"] if settings.namespace else []
        if self._cursor:
            command += ["--no-tail", f"--cursor={self._cursor}"]
        elif self._start_at.at_end or self._start_at.age_ns is not None:
            since_us = max(0, self._first_ns - (self._start_at.age_ns or 0)) // 1000
            command += ["--no-tail", f"--since=@{since_us // 1_000_000}.{since_us % 1_000_000:06}"]
        else:
            command += ["--no-tail"]
        return [*command, f"_TRANSPORT={journal_entry.KERNEL}"] if self._is_kernel else command

    def _start(self, moment: Moment) -> None:
        if self._is_kernel and self._reads_kmsg and _can_be_read(self._kmsg):
            self._state, self._reason = "off", f"{self._kmsg} {INSTEAD}"
            self._retry_mono_ns = moment.mono_ns + 30 * _SECOND_NS
            return
        path = self._settings.journalctl
        try:
            self._child = self._begin(self._command())
        except FileNotFoundError:
            self._fail(moment, f"{path} is not installed; install systemd's, or set [journal] journalctl", state="off")
        except OSError as error:
            self._fail(moment, f"{path} cannot be started: {error.strerror or error}")
        else:
            self._started_mono_ns = self._heard_mono_ns = moment.mono_ns
            self._closed_mono_ns = 0
            self._echo = self._cursor
            if self._state != "on":
                reason = self._files.reason if self._files.are_none else "journalctl was just started"
                self._state, self._reason = "off", reason

    def _has_answered(self, moment: Moment) -> bool:
        """Whether its silence means that there is nothing more.

        With a cursor it gives the entry there first; without one it may look through large files for long.
        """
        if self._child is None or self._child.has_closed:
            return False
        if self._cursor:
            return not self._echo
        return self._has_heard or moment.mono_ns - self._started_mono_ns >= _FIRST_ANSWER_NS

    def _see_whether_it_runs(self, moment: Moment) -> None:
        """State is on once the child has lived for a second and there is a journal."""
        child = self._child
        if child is None or child.ended() is not None:
            return  # `read` takes what it wrote, then says why it ended
        found = self._has_heard or self._files.found(moment.mono_ns)
        if found is not None:
            self._state, self._reason = ("on", None) if found else ("off", self._files.reason)

    def _stop(self) -> None:
        if self._child is not None:
            self._child.close()
            self._child = None
        self._waiting.clear()
        self._at_end = False

    def _fail(self, moment: Moment, reason: str, *, state: SourceState = "refused") -> None:
        """It does not run: say why, and try again after a while that grows."""
        lived_ns = moment.mono_ns - self._started_mono_ns if self._child is not None else 0
        self._failures = 0 if lived_ns > _STEADY_NS else self._failures + 1
        self._stop()
        pause_s = _BACKOFF_S[min(max(0, self._failures - 1), len(_BACKOFF_S) - 1)]
        self._retry_mono_ns = moment.mono_ns + pause_s * _SECOND_NS
        self._state, self._reason = state, reason

    def _entries(self, limit: Limit, moment: Moment) -> list[bytes] | None:
        """Entries as journalctl wrote them; None where there are none now, or where it has ended."""
        child = self._child
        if child is None:
            return None
        if not self._waiting:
            found = child.lines(_READ_BYTES, wait_s=_ENDING_WAIT_S if moment.ending else 0)
            if child.too_long:
                reason = "an entry of more than 8 MiB was passed over"
                self._gaps.append(Gap(source=self.name, reason=reason, lost_lines=child.too_long))
                child.too_long = 0
            if found is None:
                status = child.ended()
                if status is not None and not child.has_unread():
                    self._fail(moment, f"journalctl ended ({_status(status)}): {_advice(child.said())}")
                elif status is None and child.has_closed:
                    self._close_deaf(moment)
                return None
            self._waiting.extend(found)
            self._heard_mono_ns, self._has_heard = moment.mono_ns, True
            self._state, self._reason = "on", None
        self._at_end = False
        return [self._waiting.popleft() for _ in range(min(limit.lines, len(self._waiting)))]

    def _close_deaf(self, moment: Moment) -> None:
        """What has closed its output is about to end, or never says anything again."""
        self._at_end = False
        if self._closed_mono_ns == 0:
            self._closed_mono_ns = moment.mono_ns
        elif moment.mono_ns - self._closed_mono_ns > _SETTLED_NS:
            self._fail(moment, "journalctl runs and has closed its output; is [journal] journalctl the real one?")

    # --- entries --------------------------------------------------------------------------------------------------

    def _passed(self, entries: Sequence[bytes], moment: Moment) -> list[RawLine]:
        """The lines of the entries that go on."""
        lines, whole = list[tuple[RawLine, int]](), list[bool]()
        observed_ns = moment.observed_now()
        is_fresh = False
        broken = 0
        for data in entries:
            entry = journal_entry.parse(data)
            if entry is None:
                broken += data[:1] == b"{"
                continue
            if not self._is_news(entry):
                continue
            self._cursor, self._unsaved = entry.cursor, True
            self._generation, self._offset = entry.generation, entry.sequence
            if not self._is_wanted(entry):
                continue
            is_fresh = entry.realtime_us * 1000 >= self._first_ns
            line = journal_entry.line_of(entry, self.name, observed_ns, MAX_LINE_BYTES, self._boot_id)
            lines.append((line, len(entry.message)))
            is_named = not entry.container and journal_entry.is_named(entry.unit, self._settings.units)
            whole.append(not self._selects or is_named)
        if broken:
            self._gaps.append(Gap(source=self.name, reason="journalctl wrote no entry", lost_lines=broken))
        if self._is_kernel:
            return [line for line, _ in lines]
        passed = self._gate.take(lines, moment.mono_ns, is_fresh=is_fresh, whole=whole)
        self._gaps.extend(passed.gaps)
        return passed.lines

    def _is_news(self, entry: Entry) -> bool:
        """Whether an entry was not read before. The first one after a start tells whether some are gone."""
        echo, self._echo = self._echo, ""
        if echo:
            if journal_entry.is_same(echo, entry.cursor):
                return False
            self._say_gone(echo, entry)
        return True

    def _say_gone(self, cursor: str, entry: Entry) -> None:
        count = journal_entry.between(cursor, entry.cursor)
        if count == 0:
            return  # only the entry that was read is gone
        many = "some entries" if count is None else f"at most {count} entries (of the kernel, of all users and units)"
        reason = f"the journal was rotated or vacuumed before it was read: {many} are gone"
        self._gaps.append(
            Gap(
                source=self.name, reason=reason, from_offset=self._offset,
                to_offset=None if count is None else entry.sequence,
            )
        )  # fmt: skip

    def _is_wanted(self, entry: Entry) -> bool:
        if entry.dropped:
            reason = f"journald dropped messages: {entry.message[:200].decode('utf-8', 'replace')}"
            self._gaps.append(
                Gap(source=self.name, reason=reason, lost_lines=entry.dropped, from_offset=entry.sequence)
            )
        if self._machine_id and entry.machine_id and entry.machine_id != self._machine_id:
            return False  # of a container, or collected from another machine
        if (entry.transport == journal_entry.KERNEL) != self._is_kernel:
            return False
        return not (self._settings.units_out and journal_entry.is_named(entry.unit, self._settings.units_out))

    def _piece(self, lines: list[RawLine], moment: Moment, numbers: Iterator[int]) -> Piece | None:
        is_due = self._unsaved and moment.mono_ns - self._saved_mono_ns >= _SAVE_NS
        if not lines and not self._gaps and not is_due:
            return None
        gaps, self._gaps = self._gaps, []
        self._saved_mono_ns = moment.mono_ns
        return dataclasses.replace(
            self._at(), lines=numbered(lines, numbers), gaps=gaps, size=sum(len(line.body) for line in lines)
        )

    def _at(self) -> Piece:
        """How far it is read, to be saved."""
        self._unsaved = False
        return Piece(source=self.name, position=self._position())

    def _position(self) -> SourcePosition:
        position = Position(
            generation=self._generation, offset=self._offset, line_no=None, memo=f"{self._cursor}\n{self._gate.memo()}"
        )
        return SourcePosition(generations=(position,))


def of_services(config: Config, saved: SourcePosition | None) -> JournalSource:
    """What services write."""
    return JournalSource(config, saved)


def of_kernel(config: Config, saved: SourcePosition | None) -> JournalSource:
    """The kernel's log, where /dev/kmsg is not read."""
    return JournalSource(config, saved, "kernel")


def _can_be_read(device: Path) -> bool:
    try:
        os.close(os.open(device, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC))
    except OSError:
        return False
    return True


def _machine_id() -> str:
    try:
        return _MACHINE_ID.read_text(encoding="ascii", errors="replace").strip()
    except OSError:
        return ""


def _status(status: int) -> str:
    return f"killed by signal {-status}" if status < 0 else f"status {status}"


def _advice(said: str) -> str:
    if "insufficient permissions" in said or "Permission denied" in said:
        return f"{said} Put the shipper's user into the group systemd-journal"
    return said or "it said nothing"
