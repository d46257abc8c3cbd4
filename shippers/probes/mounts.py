"""Mounts: network file systems that do not answer, that come and go, and any that became read-only.

A network file system is asked by a thread that may hang with it: nobody waits for it, and it is asked again only when
that thread has come back, so there is never more than one for each, and for all no more than a limit.
"""

import os
import threading
from collections.abc import Callable
from typing import Final

from shippers.probes import space
from shippers.probes.counted import HostProbe
from shippers.probes.mountinfo import MOUNTINFO, Mount, mounts
from shippers.probes.thresholds import thresholds

_ANSWERS, _STALLED = "answers", "stalled"
_NFS: Final = ("nfs", "nfs4")

Statvfs = Callable[[str], os.statvfs_result]


class _Asked:
    """A file system that is asked how full it is. `answer` is the last one, `errno` of the last that failed."""

    def __init__(self, mount: Mount, path: str, now_s: float, statvfs: Statvfs) -> None:
        self.mount = mount
        self.since_s = now_s
        self.answer: os.statvfs_result | None = None
        self.error = ""
        self._path = path
        self._statvfs = statvfs
        self._thread = threading.Thread(target=self._ask, name=f"statvfs {mount.path}", daemon=True)
        self._thread.start()

    def waits(self, within_s: float) -> bool:
        """Whether it has not answered within this time from now."""
        self._thread.join(within_s)
        return self._thread.is_alive()

    def _ask(self) -> None:
        try:
            self.answer = self._statvfs(self._path)
        except OSError as error:
            self.error = error.strerror or str(error)


class Mounts(HostProbe):
    """`/proc/self/mountinfo`, and statvfs of the network file systems in it."""

    name = "mounts"

    def __init__(self, root: str = "/", statvfs: Statvfs = os.statvfs) -> None:
        super().__init__(root)
        self._statvfs = statvfs
        self._asked: dict[str, _Asked] = {}
        self._left: list[_Asked] = []  # unmounted while they did not answer: their threads wait for the server
        self._told_s: dict[str, float] = {}
        self._sources: dict[str, Mount] | None = None
        self._written: dict[str, str] = {}

    def measure(self) -> None:
        """What is mounted now, and who answers."""
        now = list(mounts(self.tree.needed(MOUNTINFO, f"no {MOUNTINFO}")))
        self._see_changes({mount.source: mount for mount in now if mount.is_network})
        self._see_read_only({mount.device: mount for mount in now if mount.is_network or mount.is_local})
        self._ask({mount.device: mount for mount in now if mount.is_network})

    # --- come and gone ---

    def _see_changes(self, now: dict[str, Mount]) -> None:
        """Network file systems of which there is a mount and was none, or the other way round."""
        before, self._sources = self._sources, now
        if before is None:
            return
        again_s = thresholds().limits["mount_again_s"]
        self._told_s = {what: at_s for what, at_s in self._told_s.items() if self.now_s - at_s < again_s}
        for source in sorted(now.keys() - before.keys()):
            self._tell_rarely(source, "mounted", now[source])
        for source in sorted(before.keys() - now.keys()):
            self._tell_rarely(source, "unmounted", before[source])

    def _tell_rarely(self, source: str, to: str, mount: Mount) -> None:
        """What an automounter does all day is told once an hour: as it went away, or came."""
        if f"{source} {to}" in self._told_s:
            return
        self._told_s[f"{source} {to}"] = self.now_s
        self.tell("fs.mount", to=to, fstype=mount.fstype, server=mount.server, path=mount.path, filesystem=source)

    def _see_read_only(self, now: dict[str, Mount]) -> None:
        before, self._written = self._written, {}
        for device, mount in now.items():
            # The number of a device that went is given to the next one.
            place, state = f"{device} {mount.source}", "ro" if mount.is_read_only else "rw"
            if before.get(place, state) != state:
                self.tell("fs.mode", to="read_only" if state == "ro" else "writable", fstype=mount.fstype,
                          device=mount.source.removeprefix("/dev/"), path=mount.path)  # fmt: skip
            self._written[place] = state

    # --- who answers ---

    def _ask(self, now: dict[str, Mount]) -> None:
        limits = thresholds().limits
        for device in [device for device in self._asked if device not in now]:
            gone = self._asked.pop(device)
            self._left.append(gone)
            if self.states.pop(device, "") == _STALLED:
                self._tell_state(gone.mount, "fs.answers", why="unmounted")
        self._left = [left for left in self._left if left.waits(0)]
        for device in list(now)[: max(0, int(limits["mounts_asked"]) - len(self._left))]:
            asked = self._asked.get(device)
            if asked is not None and asked.waits(0):
                self._see_stalled(device, asked, limits["mount_answer_s"])
                continue
            if asked is not None:
                self._see_answer(device, asked)
            self._asked[device] = _Asked(now[device], self.tree.path(now[device].path), self.now_s, self._statvfs)
        space.forget(self, {mount.path for mount in now.values()})

    def _see_stalled(self, device: str, asked: _Asked, limit_s: float) -> None:
        waited_s = self.now_s - asked.since_s
        if waited_s < limit_s or self.states.get(device) == _STALLED:
            return
        self.states[device] = _STALLED
        self._tell_state(asked.mount, "fs.stalled", seconds=f"{waited_s:.0f}", mode="still_trying")

    def _see_answer(self, device: str, asked: _Asked) -> None:
        if asked.error:
            if self.states.get(device) != asked.error:
                self.states[device] = asked.error
                self._tell_state(asked.mount, "fs.failed", error=asked.error)
            return
        if self.states.pop(device, _ANSWERS) != _ANSWERS:
            self._tell_state(asked.mount, "fs.answers")
        if asked.answer is not None:
            space.see(self, asked.mount, space.space(asked.answer))

    def _tell_state(self, mount: Mount, thing: str, **values: object) -> None:
        kind = f"nfs.{thing.removeprefix('fs.')}" if mount.fstype in _NFS else thing
        self.tell(kind, server=mount.server, fstype=mount.fstype, path=mount.path, filesystem=mount.source, **values)
