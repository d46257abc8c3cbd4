"""What begins a capture: a fatal line that the agent reads anyway, or a file of marks that stands still."""

import re
import time
import tomllib
from collections.abc import Iterable, Sequence
from importlib.resources import files
from pathlib import Path
from typing import Final

from msgspec import Struct

_XID: Final = "Xid ("
_OWN_XID: Final = "rootrank: gpu.xid "
_DIGITS: Final = "0123456789"
_RANK: Final = re.compile(r"rank[._-]?(\d{1,7})")


class Trigger(Struct, frozen=True, kw_only=True):
    """Why there is a capture. `key` names the cause: it begins one capture in a while. `rank`: the silent one."""

    kind: str
    key: str
    why: str
    rank: int | None = None


class Fatal:
    """Knows fatal lines."""

    def __init__(self) -> None:
        data = tomllib.loads(files("shippers.capture").joinpath("triggers.toml").read_text(encoding="utf-8"))
        self._xids: frozenset[int] = frozenset(data["xids"])
        self._texts: Sequence[str] = data["texts"]

    def trigger(self, body: str) -> Trigger | None:
        """The capture that a line begins, if any."""
        if _XID in body or body.startswith(_OWN_XID):
            xid = _xid(body)
            if xid in self._xids:
                return Trigger(kind="gpu", key=f"xid{xid}", why=f"Xid {xid}")
        text = next((each for each in self._texts if each in body), None)
        return Trigger(kind="gpu", key=text, why=text) if text is not None else None


def _xid(body: str) -> int | None:
    """The number in `NVRM: Xid (PCI:0000:5e:00): 79, …`, or in `rootrank: gpu.xid … xid=79` of the source nvml."""
    _, found, rest = body.partition(" xid=" if body.startswith(_OWN_XID) else _XID)
    _, closed, number = ("", found, rest) if body.startswith(_OWN_XID) else rest.partition("): ")
    digits = number[: len(number) - len(number.lstrip(_DIGITS))]
    return int(digits) if found and closed and 0 < len(digits) <= 4 else None


class Marks:
    """Files that ranks write marks of progress into: which one stands still while it should not.

    A file counts once it has moved while it was watched, so logs of jobs that are over begin nothing. Files that stop
    within `silent_s` of each other are one standstill.
    """

    def __init__(self, pattern: str, silent_s: float) -> None:
        self._pattern = Path(pattern) if pattern else None
        self._silent_s = silent_s
        self._moved: dict[Path, float] = {}
        self._sizes: dict[Path, int] = {}
        self._told: set[Path] = set()
        self._last_s = float("-inf")  # when the file that was told last had stopped

    def look(self, now_s: float | None = None) -> Trigger | None:
        """The file that stood still first, once; None while all move."""
        now_s = time.monotonic() if now_s is None else now_s
        paths = self._paths()
        self._forget(self._sizes.keys() - set(paths))
        for path in paths:
            try:
                size = path.stat().st_size
            except OSError:
                continue
            if self._sizes.setdefault(path, size) != size:
                self._sizes[path], self._moved[path] = size, now_s
                self._told.discard(path)
        idle = [(moved_s, path) for path, moved_s in self._moved.items() if now_s - moved_s >= self._silent_s]
        first = min((each for each in idle if each[1] not in self._told), default=None)
        self._told.update(path for _, path in idle)
        if first is None or first[0] - self._last_s < self._silent_s:
            return None
        self._last_s = first[0]
        rank = _RANK.search(first[1].name)
        return Trigger(
            kind="silent", key=str(first[1]), why=f"{first[1].name} has not grown for {now_s - first[0]:.0f} s",
            rank=int(rank[1]) if rank else None,
        )  # fmt: skip

    def _forget(self, gone: Iterable[Path]) -> None:
        """Files that are there no more tell nothing."""
        for path in gone:
            self._sizes.pop(path, None)
            self._moved.pop(path, None)
            self._told.discard(path)

    def _paths(self) -> Sequence[Path]:
        if self._pattern is None:
            return ()
        root = Path(self._pattern.anchor)
        return sorted(root.glob(str(self._pattern.relative_to(root))))[:1024]
