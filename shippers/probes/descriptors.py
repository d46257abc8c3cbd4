"""Open files: of the whole machine, and of the process that is nearest to its limit."""

import os
import re
from functools import partial
from typing import Final

from shippers.probes.counted import HostProbe
from shippers.probes.tree import whole

_LIMIT: Final = re.compile(r"^Max open files\s+(\d{1,19})\s", re.MULTILINE)
_FEW: Final = 256  # a process with fewer open files is near no limit worth naming


class Descriptors(HostProbe):
    """`/proc/sys/fs/file-nr`, and `fd` and `limits` of every process that may be read."""

    name = "descriptors"
    may_hang = True

    def measure(self) -> None:
        """How near to their limits."""
        numbers = self.tree.needed("/proc/sys/fs/file-nr", "no /proc/sys/fs/file-nr").split()
        used, most = whole(numbers[0]) or 0, whole(numbers[-1]) or 0
        if most > 0:  # without a limit it is as good as endless
            percent = 100 * used / most
            self.watched("files_machine", "", percent, lambda: {"of": "machine", "open": used, "limit": most,
                                                                "use_percent": f"{percent:.0f}"})  # fmt: skip
        seen: set[str] = set()
        for pid in self.tree.names("/proc"):
            if pid.isdecimal() and (count := self._count(pid)) >= _FEW:
                seen.add(pid)
                self._see(pid, count)
        for pid in self.places("files_process"):
            if pid not in seen:
                self.watched("files_process", pid, 0.0, partial(_over, pid))
        alive = {pid for pid in self.places("files_process") if self.tree.is_there(f"/proc/{pid}")}
        self.drop_gone("files_process", alive)

    def _see(self, pid: str, count: int) -> None:
        found = _LIMIT.search(self.tree.text(f"/proc/{pid}/limits") or "")
        limit = int(found[1]) if found else 0
        if limit:
            self.watched("files_process", pid, 100 * count / limit, partial(self._said, pid, count, limit))

    def _said(self, pid: str, count: int, limit: int) -> dict[str, object]:
        return {
            "of": "process", "pid": pid, "process": (self.tree.text(f"/proc/{pid}/comm") or "").strip(), "open": count,
            "limit": limit, "use_percent": f"{100 * count / limit:.0f}",
        }  # fmt: skip

    def _count(self, pid: str) -> int:
        """Open files of a process; 0 where they may not be seen. Linux 6.2 and later tell it as the folder's size."""
        path = self.tree.path(f"/proc/{pid}/fd")
        try:
            return os.stat(path).st_size or len(os.listdir(path))  # noqa: PTH116, PTH208 (thousands a minute)
        except OSError:
            return 0


def _over(pid: str) -> dict[str, object]:
    return {"of": "process", "pid": pid}
