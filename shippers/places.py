"""Where files lie: on a disk of this machine, or where looking at one may never end.

Nothing of what may hang is touched to find that out: at each step of a path the text of mountinfo is asked first.
"""

import contextlib
import fnmatch
import glob
import itertools
import os
import select
from collections.abc import Callable, Iterable, Iterator, Sequence
from pathlib import Path
from typing import Final

from shippers.pieces import Moment
from shippers.probes.mountinfo import MOUNTINFO, Mount, mounts

_LINKS: Final = 40  # as many as the kernel follows
_AGAIN_NS: Final = 10 * 10**9  # links may be made to lead elsewhere


class Places:
    """What is mounted, kept up to date."""

    def __init__(self, mountinfo: str = MOUNTINFO) -> None:
        self.version = 0
        self._mounts: dict[str, Mount] = {}
        self._devices: set[str] = set()
        self._fd: int | None = None
        with contextlib.suppress(OSError):
            self._fd = os.open(mountinfo, os.O_RDONLY | os.O_CLOEXEC)
            self._changes = select.poll()
            self._changes.register(self._fd, select.POLLPRI)
            self._read(self._fd)

    def refresh(self) -> int:
        """Read again what is mounted where that has changed; the number of the state. Cheap where it has not."""
        if self._fd is not None and self._changes.poll(0):
            self._read(self._fd)
        return self.version

    def may_hang(self, pattern: str, devices: Iterable[int] = ()) -> bool:
        """Whether looking for the files of a path or glob may never end.

        `devices` are those of its files that are open: links below a glob may lead anywhere.
        """
        if any(f"{os.major(each)}:{os.minor(each)}" in self._devices for each in devices):
            return True
        parts = Path(pattern).parts
        fixed = list(itertools.takewhile(lambda part: not glob.has_magic(part), parts))
        real = self._real(fixed)
        if real is None:
            return True
        rest = parts[len(fixed) :]
        return bool(rest) and any(_is_met(rest, each) for each in self._below(real))

    def close(self) -> None:
        """Close the file."""
        if self._fd is not None:
            os.close(self._fd)
            self._fd = None

    def _read(self, fd: int) -> None:
        os.lseek(fd, 0, os.SEEK_SET)
        with open(fd, encoding="utf-8", errors="surrogateescape", closefd=False) as file:
            self._mounts = {each.path: each for each in mounts(file.read())}
        self._devices = {each.device for each in self._mounts.values() if each.may_hang}
        self.version += 1

    def _real(self, parts: list[str]) -> str | None:
        """The path without links; None where a step of it may hang. What is not there leads nowhere else."""
        left, real, links = parts[::-1], "/", 0
        if self._hangs_at(real):
            return None
        while left:
            part = left.pop()
            step = real if part in ("/", ".") else os.path.dirname(real) if part == ".." else os.path.join(real, part)  # noqa: PTH118, PTH120 (text, not a look)
            if self._hangs_at(step):
                return None
            with contextlib.suppress(OSError):
                target = os.readlink(step)  # noqa: PTH115 (fails where it is no link)
                links += 1
                if links <= _LINKS:
                    left.extend(Path(target).parts[::-1])
                    step = "/" if target.startswith("/") else real
            real = step
        return real

    def _hangs_at(self, path: str) -> bool:
        mount = self._mounts.get(path)
        return mount is not None and mount.may_hang

    def _below(self, path: str) -> Iterator[tuple[str, ...]]:
        """The mounts below a folder that may hang, by their parts below it."""
        for each in self._mounts.values():
            if each.may_hang and Path(each.path).is_relative_to(path):
                yield Path(each.path).relative_to(path).parts


class Whether:
    """Whether looking for certain files may never end: asked in each pass, looked into when something has changed."""

    def __init__(self, places: Places, patterns: Sequence[str], devices: Callable[[], Iterable[int]]) -> None:
        """`devices` are known from the second pass on: of links below a glob."""
        self._places = places
        self._patterns = [str(Path.cwd() / each) for each in patterns]
        self._devices = devices
        self._version = -1
        self._again_ns = 0
        self._may_hang = False

    def __call__(self, moment: Moment) -> bool:
        """As far as is known now."""
        version = self._places.refresh()
        if version != self._version or moment.mono_ns >= self._again_ns:
            self._again_ns = moment.mono_ns + _AGAIN_NS if self._version >= 0 else 0
            self._version = version
            devices = self._devices()
            self._may_hang = any(self._places.may_hang(each, devices) for each in self._patterns)
        return self._may_hang


def _is_met(pattern: tuple[str, ...], parts: tuple[str, ...]) -> bool:
    """Whether a glob comes by a folder."""
    for wanted, part in itertools.zip_longest(pattern, parts):
        if wanted == "**" or part is None:
            return True
        if wanted is None or not fnmatch.fnmatchcase(part, wanted):
            return False
    return True
