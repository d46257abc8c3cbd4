"""Small files below a root: `/` on a machine, a recorded tree in a test."""

import os
from typing import Final

from shippers.probes.probe import Absent, Refused

_SMALL: Final = 64 * 1024
_LARGE: Final = 4 * 1024 * 1024


class Tree:
    """Reads files whose paths begin with `/`, below `root`."""

    def __init__(self, root: str = "/") -> None:
        self._root = root.rstrip("/")

    def path(self, path: str) -> str:
        """Where a file is."""
        return self._root + path

    def text(self, path: str) -> str | None:
        """What stands in a file; None where it cannot be read now (gone, refused, no such counter on this device)."""
        try:
            return self._read(path)
        except OSError:
            return None

    def needed(self, path: str, absent: str) -> str:
        """What stands in a file without which there is nothing to look at. Raises Absent, Refused."""
        try:
            return self._read(path)
        except (FileNotFoundError, NotADirectoryError):
            raise Absent(absent) from None
        except OSError as error:
            raise Refused(f"{path} cannot be read: {error.strerror}") from None

    def number(self, path: str) -> int | None:
        """The number in a file."""
        text = self.text(path)
        return whole(text) if text is not None else None

    def names(self, path: str) -> list[str]:
        """The names in a folder, in order; none where there is no such folder."""
        try:
            return sorted(os.listdir(self._root + path))  # noqa: PTH208 (thousands a minute)
        except OSError:
            return []

    def folders(self, path: str) -> list[str]:
        """The folders in a folder, in order; links are none."""
        try:
            with os.scandir(self._root + path) as entries:
                return sorted(entry.name for entry in entries if entry.is_dir(follow_symlinks=False))
        except OSError:
            return []

    def is_there(self, path: str) -> bool:
        """Whether there is such a file or folder."""
        return os.path.exists(self._root + path)  # noqa: PTH110 (thousands a minute)

    def _read(self, path: str) -> str:
        fd = os.open(self._root + path, os.O_RDONLY | os.O_CLOEXEC | os.O_NONBLOCK)
        try:
            data = os.read(fd, _SMALL)
            while len(data) < _LARGE and (more := os.read(fd, _SMALL)):
                data += more
        finally:
            os.close(fd)
        return data.decode("utf-8", "replace")


def whole(text: str) -> int | None:
    """A whole number, or None."""
    text = text.strip()
    return int(text) if len(text) < 20 and text.removeprefix("-").isdecimal() else None


def pairs(text: str, separator: str | None = None) -> dict[str, int]:
    """Lines of a name and a number."""
    found: dict[str, int] = {}
    for line in text.splitlines():
        name, _, number = line.partition(separator) if separator else line.partition(" ")
        value = whole(number)
        if value is not None:
            found[name.strip()] = value
    return found
