"""Files that log rotation has put beside a path: under which names, and which of them have been read."""

import contextlib
import errno
import os
import stat
from bisect import bisect_right
from pathlib import Path
from typing import Final

from shippers.generation import Generation, ReplacedError, head_of
from shippers.pieces import Moment
from shippers.positions import HEAD_BYTES, Finished, Position

FINISHED_KEPT: Final = 64
COMPRESSED: Final = (".gz", ".xz", ".zst", ".bz2")
_WITHOUT_MARKS: Final = str.maketrans("", "", ".-_:TZ")

Found = tuple[Path, os.stat_result]


def is_rotated_name(name: str, base: str) -> bool:
    """Whether `name` is `base` with what log rotation appends: a number, a date, `old`, and maybe a compression."""
    if not name.startswith(base) or name == base:
        return False
    ending = name.removeprefix(base)
    for compressed in COMPRESSED:
        ending = ending.removesuffix(compressed)
    mark = ending.translate(_WITHOUT_MARKS)
    return ending[:1] in {".", "-", "_"} and (mark.isdecimal() or mark in {"old", "bak"})


class Listing:
    """The names in folders as they were a moment ago: for many files of one folder, which all ask at once."""

    def __init__(self) -> None:
        self._names: dict[Path, tuple[Moment, list[str]]] = {}

    def beside(self, path: Path, moment: Moment) -> list[Found]:
        """As `rotated_files`, of a listing that is at most as old as this pass."""
        listed, names = self._names.get(path.parent, (None, []))
        if listed is not moment:
            try:
                with os.scandir(path.parent) as entries:
                    names = sorted(entry.name for entry in entries)
            except OSError:
                names = []
            self._names[path.parent] = (moment, names)
        found = list[Found]()
        for number in range(bisect_right(names, path.name), len(names)):
            if not names[number].startswith(path.name):
                break
            if is_rotated_name(names[number], path.name):
                _add_file(found, path.with_name(names[number]))
        return sorted(found, key=_age)


def _age(item: Found) -> int:
    return item[1].st_mtime_ns


def _add_file(found: list[Found], path: Path) -> None:
    with contextlib.suppress(OSError):
        status = path.lstat()
        if stat.S_ISREG(status.st_mode):
            found.append((path, status))


def rotated_files(path: Path) -> list[Found]:
    """Files beside `path` with its name and a rotation's ending, oldest first."""
    found = list[Found]()
    try:
        with os.scandir(path.parent) as entries:
            for entry in entries:
                if entry.name.startswith(path.name) and is_rotated_name(entry.name, path.name):
                    _add_file(found, path.with_name(entry.name))
    except OSError:
        return []
    return sorted(found, key=_age)


def open_copy(path: Path, position: Position) -> Generation | None:
    """A rotated file that holds what was read up to `position`: a copy made before the file was truncated."""
    for candidate, _ in reversed(rotated_files(path)):
        with contextlib.suppress(OSError, ReplacedError):
            return Generation.open(candidate, position)
    return None


def continues(path: Path, position: Position) -> bool:
    """Whether a file holds what was read up to `position`."""
    try:
        Generation.open(path, position).close()
    except (OSError, ReplacedError):
        return False
    return True


class FinishedFiles:
    """Files of a stream that need not be read (again). Inodes are used again, so first bytes are compared too."""

    def __init__(self, saved: tuple[Finished, ...] = ()) -> None:
        self._files = list(saved)

    def has(self, path: Path, inode: int) -> bool:
        """Whether the file is one of them, and still the same."""
        try:
            return any(each.inode == inode and head_of(path, each.head.size) == each.head for each in self._files)
        except OSError:
            return False

    def inodes(self) -> set[int]:
        """Their inodes."""
        return {each.inode for each in self._files}

    def add(self, generation: Generation) -> None:
        """A file that was read to its end."""
        self._files.append(Finished(generation.inode, generation.position().head))

    def add_all_beside(self, path: Path, found: list[Found] | None = None) -> None:
        """What lies rotated beside the path: older than our first sight, or a copy of what was read."""
        for each, status in rotated_files(path) if found is None else found:
            if not self.has(each, status.st_ino):
                with contextlib.suppress(OSError):
                    self._files.append(Finished(status.st_ino, head_of(each, HEAD_BYTES)))

    def forget_absent(self, found: list[Found]) -> None:
        """Keep only files that are still there."""
        inodes = {status.st_ino for _, status in found}
        self._files = [each for each in self._files if each.inode in inodes]

    def saved(self) -> tuple[Finished, ...]:
        """What to save."""
        return tuple(self._files[-FINISHED_KEPT:])


def open_again(path: Path, position: Position) -> tuple[Generation, bool]:
    """The file where it was left, or from its beginning where it holds other content; and which of the two."""
    try:
        return Generation.open(path, position), True
    except ReplacedError:
        return Generation.open(path, cuts=position.cuts + 1), False


def why(error: OSError) -> str:
    """What is wrong with a file, and what to do."""
    if error.errno == errno.EACCES:
        return "not permitted; let the shipper's user read it"
    if error.errno == errno.EMFILE:
        return "too many open files; raise LimitNOFILE"
    return error.strerror or str(error)
