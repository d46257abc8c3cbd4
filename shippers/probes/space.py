"""File systems on disks of this machine, and shared memory, that are nearly full."""

import os
from dataclasses import dataclass
from typing import Final

from shippers.probes.counted import HostProbe
from shippers.probes.mountinfo import MOUNTINFO, Mount, mounts
from shippers.probes.probe import Absent

_GIB: Final = 1024**3


@dataclass(frozen=True, slots=True, kw_only=True)
class Space:
    """How full a file system is, in percent as df says it, and what is left."""

    percent: float
    inodes_percent: float
    size_bytes: int
    available_bytes: int


def space(status: os.statvfs_result) -> Space:
    """What a statvfs says."""
    used = status.f_blocks - status.f_bfree
    usable = used + status.f_bavail
    inodes = status.f_files - status.f_ffree
    return Space(
        percent=100 * used / usable if usable else 0.0,
        inodes_percent=100 * inodes / status.f_files if status.f_files else 0.0,
        size_bytes=status.f_blocks * status.f_frsize, available_bytes=status.f_bavail * status.f_frsize,
    )  # fmt: skip


def see(probe: HostProbe, mount: Mount, now: Space) -> None:
    """Tell of a file system that is nearly full or full, by blocks and by inodes."""
    what = "shm" if mount.is_shared_memory else "fs"
    for kind, percent in (("bytes", now.percent), ("inodes", now.inodes_percent)):
        said: dict[str, object] = {
            "kind": kind, "use_percent": f"{percent:.0f}", "size_gib": f"{now.size_bytes / _GIB:.1f}",
            "available_gib": f"{now.available_bytes / _GIB:.1f}", "path": mount.path, "filesystem": mount.source,
        }  # fmt: skip
        for measure in (f"{what}_full", f"{what}_nearly_full"):
            probe.watched(measure, f"{mount.path} {kind}", percent, said.copy)


def forget(probe: HostProbe, seen: set[str]) -> None:
    """Forget file systems that are mounted no more."""
    places = {f"{path} {kind}" for path in seen for kind in ("bytes", "inodes")}
    for measure in ("fs_full", "fs_nearly_full", "shm_full", "shm_nearly_full"):
        probe.drop_gone(measure, places)


class SpaceLeft(HostProbe):
    """statvfs of what is on local disks and of /dev/shm, of containers too where their mounts are seen."""

    name = "space"

    def measure(self) -> None:
        """Each file system once."""
        chosen: dict[str, Mount] = {}
        for mount in mounts(self.tree.needed(MOUNTINFO, f"no {MOUNTINFO}")):
            if (mount.is_local and not mount.is_read_only) or mount.is_shared_memory:
                chosen.setdefault(mount.device, mount)
        if not chosen:
            raise Absent("no file system on a disk of this machine and no /dev/shm is mounted here")
        for mount in chosen.values():
            try:
                status = os.statvfs(self.tree.path(mount.path))
            except OSError:
                continue
            see(self, mount, space(status))
        forget(self, {mount.path for mount in chosen.values()})
