"""The folder into which schedulers' scripts and training programs write: a source of its own, `jobs`.

`jobs/` is root's (prolog and epilog), `marks/` is open to everybody (task prolog, marks of programs). Each file is read
from its beginning, its lines are taken by `told` and shipped under the file's name and offset, so that each arrives
once however often the agent is killed. What was read to its end and is old is deleted by the agent that has the spool.
"""

import contextlib
import itertools
import os
import stat
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final

from schemas.names import printable
from schemas.records import Gap, RawLine, SourceProgress
from schemas.vocabulary import SourceState
from shippers.claim import is_mine
from shippers.config import Config
from shippers.jobs.making import MAKE_IT, OF_ALL, OF_ROOT, make_command
from shippers.jobs.told import OF_USERS, Said, read
from shippers.pieces import Limit, Moment, Piece
from shippers.positions import Position, SourcePosition

NAME: Final = "jobs"
KIND: Final = "telemetry"
_LOOK_NS: Final = 500_000_000
_KEPT_IDLE_NS: Final = {OF_ROOT: 86_400 * 10**9, OF_ALL: 900 * 10**9}
_MAX_FILES: Final = 1_000
_MAX_OF_USER: Final = 500  # nobody's files keep those of others from being read, and nobody's those of root
_MAX_ENTRIES: Final = 10_000
_MAX_OWNERS: Final = 10_000
# Of a file with more than that unread only the end is read: a program that writes so much writes no marks.
_MAX_BEHIND_BYTES: Final = 1024 * 1024
_TAIL_BYTES: Final = 64 * 1024
_CHUNK_BYTES: Final = 64 * 1024


@dataclass(slots=True)
class _File:
    """One file, how far it is read, and what is under its name now."""

    path: Path
    inode: int
    owner: int
    offset: int = 0
    cuts: int = 0
    size: int = 0
    changed_ns: int = 0
    skipping: bool = False
    read_mono_ns: int = 0
    gaps: list[Gap] = field(default_factory=list)

    @property
    def generation(self) -> str:
        """What lines call it."""
        name = printable(f"{self.path.parent.name}/{self.path.name}")
        return f"{name}@{self.inode:x}" + (f".{self.cuts}" if self.cuts else "")

    def position(self) -> Position:
        """What to save."""
        return Position(
            generation=self.generation, inode=self.inode, offset=self.offset, cuts=self.cuts, skipping=self.skipping
        )


class JobsFolder:
    """All files of the folder as one stream."""

    def __init__(self, config: Config, saved: SourcePosition | None = None) -> None:
        self.name = NAME
        self._folder = Path(config.jobs.dir)
        self._spool = Path(config.spool.dir)
        self._saved = {position.generation: position for position in saved.generations} if saved else {}
        self._files: dict[tuple[str, str, int], _File] = {}
        self._owners: dict[str, int] = {}
        self._look_mono_ns = 0
        self._unsaved = False
        self._state: SourceState = "off"
        self._reason: str | None = "not looked at yet"
        self._through_ns = 0
        self._pid_space = pid_space()

    @property
    def folders(self) -> tuple[str, str]:
        """Where it looks."""
        return str(self._folder / OF_ROOT), str(self._folder / OF_ALL)

    @property
    def attributes(self) -> dict[str, str]:
        """What holds for all its lines."""
        return {"kind": KIND}

    def look(self, moment: Moment) -> None:
        """See which files there are, and how large they are."""
        if moment.mono_ns < self._look_mono_ns and not moment.ending:
            return
        self._look_mono_ns = moment.mono_ns + _LOOK_NS
        try:
            crowded = self._scan()
        except OSError as error:
            self._state = "off" if isinstance(error, FileNotFoundError) else "refused"
            self._reason = f"{error.filename or self._folder}: {error.strerror}"
            if self._state == "off":
                self._reason += f"{MAKE_IT}`{make_command(str(self._folder))}`"
            return
        self._state, self._reason = "on", None
        if crowded:
            many = f"more than {_MAX_FILES} files, or {_MAX_OF_USER} of one user"
            self._reason = f"{self._folder}: {many}; the rest waits until some are deleted"

    def read(self, limit: Limit, moment: Moment, numbers: Iterator[int]) -> Piece | None:
        """The next lines of the first file that has some; None at the end of all."""
        for file in self._files.values():
            if file.size > file.offset:
                lines, size = self._read_file(file, limit, moment, numbers)
                if lines or size:
                    return self._piece(lines, size, self._take_gaps(file))
        self._delete_old(moment)
        if self._state == "on":
            self._through_ns = moment.observed_ns
        if self._unsaved:
            self._unsaved = False
            return self._piece([], 0, [])
        return None

    def progress(self) -> SourceProgress:
        """How far all is read."""
        behind = sum(max(0, file.size - file.offset) for file in self._files.values())
        return SourceProgress(
            source=self.name, state=self._state, kind=KIND, reason=self._reason, backlog_bytes=behind,
            read_through_unix_nano=self._through_ns, at_end=self._state == "on" and not behind,
            attributes=self.attributes,
        )  # fmt: skip

    def close(self) -> None:
        """Nothing stays open."""

    # --- what there is --------------------------------------------------------------------------------------------

    def _scan(self) -> bool:
        """Bring the list of files up to date. Whether there are too many. Raises OSError where a folder is away."""
        found: set[tuple[str, str, int]] = set()
        crowded = False
        many = Counter((key[0], file.owner) for key, file in self._files.items())
        for part in (OF_ROOT, OF_ALL):
            with os.scandir(self._folder / part) as entries:
                for entry in itertools.islice(entries, _MAX_ENTRIES):
                    try:
                        status = entry.stat(follow_symlinks=False)
                    except FileNotFoundError:
                        continue
                    key = (part, entry.name, status.st_ino)
                    if not self._is_fit(part, status):
                        continue
                    is_new = key not in self._files
                    if is_new and _is_full(many, part, status.st_uid):
                        crowded = True
                    else:
                        many[part, status.st_uid] += is_new
                        found.add(key)
                        self._see(key, entry.path, status)
        for key in self._files.keys() - found:
            del self._files[key]
            self._unsaved = True
        return crowded

    def _is_fit(self, part: str, status: os.stat_result) -> bool:
        """Whether it is a file of one name, and in root's folder of root: no link, no pipe, nobody else's."""
        if not stat.S_ISREG(status.st_mode) or status.st_nlink != 1:
            return False
        return part == OF_ALL or status.st_uid in (0, os.geteuid())

    def _see(self, key: tuple[str, str, int], path: str, status: os.stat_result) -> None:
        file = self._files.get(key)
        if file is None:
            file = self._files[key] = _File(path=Path(path), inode=status.st_ino, owner=status.st_uid)
            self._resume(file, key[0])
        if status.st_size < file.offset:
            file.offset, file.skipping, file.cuts = 0, False, file.cuts + 1
        file.size, file.changed_ns = status.st_size, status.st_mtime_ns

    def _resume(self, file: _File, part: str) -> None:
        name = file.generation
        for generation, position in self._saved.items():
            if generation == name or generation.startswith(f"{name}."):
                file.offset, file.cuts, file.skipping = position.offset, position.cuts, position.skipping
        if part == OF_ROOT and file.offset:
            self._learn_owners(file)

    def _learn_owners(self, file: _File) -> None:
        """Whose the jobs are that were told before the agent was started again."""
        with contextlib.suppress(OSError):
            for raw in _bytes_of(file.path, 0, min(file.offset, _CHUNK_BYTES)).split(b"\n"):
                said = read(raw.decode("utf-8", "replace"), 0)
                if said is not None:
                    self._learn_owner(said)

    def _learn_owner(self, said: Said) -> None:
        if said.uid is not None:
            self._owners.pop(said.job, None)
            self._owners[said.job] = said.uid
            while len(self._owners) > _MAX_OWNERS:
                del self._owners[next(iter(self._owners))]

    # --- lines ----------------------------------------------------------------------------------------------------

    def _read_file(
        self, file: _File, limit: Limit, moment: Moment, numbers: Iterator[int]
    ) -> tuple[list[RawLine], int]:
        """Whole lines from where it was left, and how many bytes they took."""
        self._pass_over(file)
        try:
            data = _bytes_of(file.path, file.offset, _CHUNK_BYTES, file.inode)
        except OSError as error:
            self._reason = f"{printable(str(file.path))}: {error.strerror}"
            file.size = file.offset  # looked at again when it has grown
            return [], 0
        end = data.rfind(b"\n") + 1
        if not end and len(data) < _CHUNK_BYTES and not (moment.ending and data):
            file.size = file.offset
            return [], 0
        end = end or len(data)
        raws = data[:end].split(b"\n")
        is_torn = bool(raws[-1])
        if not is_torn:
            raws.pop()
        lines: list[RawLine] = []
        taken = 0
        for number, raw in enumerate(raws, 1):
            if len(lines) >= limit.lines:
                break
            said = None if file.skipping else self._said(file, raw, moment)
            file.skipping = is_torn and number == len(raws) and not moment.ending
            if said is not None:
                lines.append(
                    RawLine(
                        seq=next(numbers), source=NAME, generation=file.generation, offset=file.offset + taken,
                        body=said.body, observed_time_unix_nano=moment.observed_ns,
                    )
                )  # fmt: skip
            taken += len(raw) + 1
        file.offset = min(file.offset + taken, file.offset + end)
        file.read_mono_ns = moment.mono_ns
        return lines, taken

    def _pass_over(self, file: _File) -> None:
        behind = file.size - file.offset
        if behind <= _MAX_BEHIND_BYTES:
            return
        target = file.size - _TAIL_BYTES
        gap = Gap(
            source=NAME, reason=f"{file.generation}: more was written than is read of marks", from_offset=file.offset,
            to_offset=target, lost_bytes=target - file.offset,
        )  # fmt: skip
        file.gaps.append(gap)
        file.offset, file.skipping = target, True

    def _said(self, file: _File, raw: bytes, moment: Moment) -> Said | None:
        """What a line says, where its writer may say it: of a job of which root named the user, only that one."""
        said = read(raw.decode("utf-8", "replace"), moment.wall_ns, self._pid_space)
        if said is None:
            return None
        if file.path.parent.name == OF_ROOT:
            self._learn_owner(said)
            return said
        may = said.thing in OF_USERS and file.owner in (0, self._owners.get(said.job, file.owner))
        return said if may else None

    def _take_gaps(self, file: _File) -> list[Gap]:
        gaps, file.gaps = file.gaps, []
        return gaps

    def _piece(self, lines: list[RawLine], size: int, gaps: list[Gap]) -> Piece:
        positions = tuple(file.position() for file in self._files.values() if file.offset)
        return Piece(
            source=NAME, position=SourcePosition(generations=positions), lines=lines, size=max(1, size), gaps=gaps
        )

    def _delete_old(self, moment: Moment) -> None:
        """What was read to its end and is old. All that was read is on disk when the next pass comes here."""
        old = [
            (key, file)
            for key, file in self._files.items()
            if file.size <= file.offset
            and moment.mono_ns > file.read_mono_ns
            and moment.wall_ns - file.changed_ns > _KEPT_IDLE_NS[key[0]]
        ]
        if not old or not is_mine(self._spool):
            return
        for key, file in old:
            with contextlib.suppress(OSError):
                file.path.unlink()
                del self._files[key]
                self._unsaved = True


def _is_full(many: Counter[tuple[str, int]], part: str, owner: int) -> bool:
    """Whether one more file of that owner in that folder is too many."""
    of_all = sum(count for (each, _), count in many.items() if each == part)
    return of_all >= _MAX_FILES or (part == OF_ALL and many[part, owner] >= _MAX_OF_USER)


def pid_space() -> str:
    """The agent's own space of process numbers, by the kernel's number; empty where /proc does not say."""
    try:
        return str(Path("/proc/self/ns/pid").readlink()).strip("pid:[]")
    except OSError:
        return ""


def _bytes_of(path: Path, offset: int, size: int, inode: int | None = None) -> bytes:
    """Bytes of a regular file that is still the same; never follows a link, never waits for a pipe. Raises OSError."""
    fd = os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC)
    try:
        status = os.fstat(fd)
        if not stat.S_ISREG(status.st_mode) or (inode is not None and status.st_ino != inode):
            return b""
        return os.pread(fd, size, offset)
    finally:
        os.close(fd)
