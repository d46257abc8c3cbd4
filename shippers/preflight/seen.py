"""What `preflight` looks at: environment, limits, file systems. All of it read once, nothing written."""

import contextlib
import os
import resource
import tempfile
from collections.abc import Mapping
from importlib import metadata
from pathlib import Path
from typing import Final

from msgspec import Struct

_PASSING: Final = frozenset(("tmpfs", "ramfs", "devtmpfs", "overlay", "rootfs"))


class Folder(Struct, frozen=True, kw_only=True):
    """A folder that files are to be written into."""

    path: str
    exists: bool = False
    is_writable: bool = False
    file_system: str = ""

    @property
    def passes(self) -> bool:
        """Whether what is written there goes with the job or with the machine."""
        return self.file_system in _PASSING


class Seen(Struct, frozen=True, kw_only=True):
    """All that was looked at. Sizes in bytes; a limit of None is none."""

    environment: dict[str, str]
    torch: tuple[int, int] | None
    timeout_s: int
    left_s: int | None
    dump: Folder
    nccl_files: Folder | None
    better: Folder
    shm_bytes: int | None
    memlock_bytes: int | None
    nofile: int | None
    nofile_most: int | None


def look(environment: Mapping[str, str], *, now_s: int, torch: str, timeout_s: int) -> Seen:
    """Look at everything."""
    version = _version(torch or _installed("torch"))
    nccl = environment.get("NCCL_DEBUG_FILE", "")
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    locked, _ = resource.getrlimit(resource.RLIMIT_MEMLOCK)
    return Seen(
        environment=dict(environment), torch=version, timeout_s=timeout_s, left_s=_left_s(environment, now_s),
        dump=folder_of(dump_path(environment, version)), nccl_files=folder_of(nccl) if nccl else None,
        better=_better(environment), shm_bytes=_size_of("/dev/shm"),  # noqa: S108 (looked at only)
        memlock_bytes=_bounded(locked), nofile=_bounded(soft), nofile_most=_bounded(hard),
    )  # fmt: skip


def dump_path(environment: Mapping[str, str], torch: tuple[int, int] | None) -> str:
    """The beginning of the names of the flight recorder's files, as torch works it out."""
    named = environment.get("TORCH_FR_DUMP_TEMP_FILE") or environment.get("TORCH_NCCL_DEBUG_INFO_TEMP_FILE")
    if named:
        return named
    if torch is not None and torch >= (2, 9):
        cache = environment.get("XDG_CACHE_HOME") or f"{environment.get('HOME', tempfile.gettempdir())}/.cache"
        return f"{cache}/torch/comm_lib_trace_rank_"
    return "/tmp/nccl_trace_rank_"  # noqa: S108 (torch's default)


def folder_of(path: str) -> Folder:
    """The folder of a file that is to be written."""
    folder = Path(path).parent
    try:
        exists = folder.is_dir()
        writable = exists and os.access(folder, os.W_OK | os.X_OK)
    except OSError:
        exists = writable = False
    return Folder(path=str(folder), exists=exists, is_writable=writable, file_system=file_system_of(folder))


def file_system_of(path: Path, mounts: Path = Path("/proc/self/mountinfo")) -> str:
    """The kind of file system that a path is on; empty where /proc does not say."""
    try:
        real = str(path.resolve())
        lines = mounts.read_text(encoding="utf-8", errors="replace").splitlines()
    except OSError:
        return ""
    best, kind = "", ""
    for line in lines:
        head, _, tail = line.partition(" - ")
        fields = head.split(" ")
        point = fields[4].replace("\\040", " ") if len(fields) > 4 else ""
        is_under = point and (real == point or real.startswith(point.rstrip("/") + "/"))
        if is_under and len(point) >= len(best):
            best, kind = point, tail.split(" ")[0]
    return kind


def _better(environment: Mapping[str, str]) -> Folder:
    """Where files would survive the job: the first folder that can be written and passes with nothing."""
    names = ("SLURM_SUBMIT_DIR", "PWD", "HOME")
    found = [folder_of(f"{environment[name]}/file") for name in names if environment.get(name, "").startswith("/")]
    return next((each for each in found if each.is_writable and not each.passes), Folder(path=""))


def _left_s(environment: Mapping[str, str], now_s: int) -> int | None:
    """Seconds until the scheduler ends the job, where it says so."""
    end = environment.get("SLURM_JOB_END_TIME", "")
    return int(end) - now_s if end.isascii() and end.isdecimal() and len(end) < 12 else None


def _version(text: str) -> tuple[int, int] | None:
    major, _, rest = text.partition(".")
    minor = rest.partition(".")[0]
    if major.isdecimal() and minor.isdecimal() and len(text) < 40:
        return int(major), int(minor)
    return None


def _installed(package: str) -> str:
    with contextlib.suppress(metadata.PackageNotFoundError):
        return metadata.version(package)
    return ""


def _size_of(path: str) -> int | None:
    try:
        status = os.statvfs(path)
    except OSError:
        return None
    return status.f_blocks * status.f_frsize


def _bounded(limit: int) -> int | None:
    return None if limit == resource.RLIM_INFINITY else limit
