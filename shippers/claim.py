"""Who a spool folder belongs to: the process that has it now, and the shipper that it makes of every process."""

import contextlib
import fcntl
import os
import secrets
import uuid
from pathlib import Path
from typing import Final

PID_FILE: Final = "shipper.pid"
_ID_FILE: Final = "shipper_id"
_KEY_FILE: Final = "redaction.key"
_LOCKS: Final = Path("/proc/locks")


class SpoolRefusedError(Exception):
    """The spool cannot be used as it is. The text says why and what to do."""


class SpoolLockedError(SpoolRefusedError):
    """Another process has the spool. The text says which; so does `pid`, where it is known."""

    def __init__(self, text: str, pid: int | None = None) -> None:
        super().__init__(text)
        self.pid = pid


class SpoolFormatError(SpoolRefusedError):
    """A later version has written the spool."""


def make_folder(folder: Path) -> None:
    """Make the spool folder where there is none. Raises SpoolRefusedError where that cannot be."""
    try:
        folder.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        why = "a file is in its place" if isinstance(error, FileExistsError) else error.strerror
        raise SpoolRefusedError(
            f"[spool] dir {folder} cannot be made: {why}; give it to the agent's user or name another"
        ) from None


def lock(folder: Path) -> int:
    """Take the folder for this process; the lock ends with it. Raises SpoolLockedError, OSError."""
    fd = os.open(folder / PID_FILE, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o644)
    try:
        fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        pid = os.read(fd, 32).decode("ascii", "replace").strip() or "unknown"
        os.close(fd)
        raise SpoolLockedError(
            f"{folder}: process {pid} ships from this spool; stop it or set another [spool] dir",
            int(pid) if pid.isdecimal() else None,
        ) from None
    with contextlib.suppress(OSError):  # a full disk: who has the folder is told by the lock
        os.ftruncate(fd, 0)
        os.pwrite(fd, f"{os.getpid()}\n".encode(), 0)
    return fd


def holder(folder: Path) -> int | None:
    """The process that has the folder now, by the kernel's list of locks: looking takes the lock from nobody."""
    path = folder / PID_FILE
    try:
        inode, pid = path.stat().st_ino, path.read_text(encoding="ascii").strip()
        locks = [line.split() for line in _LOCKS.read_text(encoding="ascii").splitlines()]
    except (OSError, UnicodeDecodeError):
        return None
    has = any("FLOCK" in each and pid in each and any(part.endswith(f":{inode}") for part in each) for each in locks)
    return int(pid) if has else None


def shipper_id(folder: Path) -> str:
    """The folder's random name, made at first use and kept."""
    path = folder / _ID_FILE
    known = path.read_text(encoding="ascii").strip() if path.exists() else ""
    if known:
        return known
    fresh = str(uuid.uuid4())
    scratch = path.with_suffix(".new")
    with scratch.open("w", encoding="ascii") as file:
        file.write(fresh + "\n")
        file.flush()
        os.fsync(file.fileno())
    scratch.replace(path)
    fsync_folder(folder)
    return fresh


def redaction_key(folder: Path) -> bytes:
    """The folder's own key for fingerprints of secrets, made at first use and kept; only its owner may read it."""
    if known := known_key(folder):
        return known
    fresh = secrets.token_bytes(32)
    scratch = (folder / _KEY_FILE).with_suffix(".new")
    scratch.unlink(missing_ok=True)
    fd = os.open(scratch, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600)
    try:
        os.write(fd, fresh)
        os.fsync(fd)
    finally:
        os.close(fd)
    scratch.replace(folder / _KEY_FILE)
    fsync_folder(folder)
    return fresh


def known_key(folder: Path) -> bytes:
    """That key; empty where there is none or it may not be read."""
    try:
        key = (folder / _KEY_FILE).read_bytes()
    except OSError:
        return b""
    return key if len(key) == 32 else b""


def fsync_folder(folder: Path) -> None:
    """Make names in the folder durable."""
    fd = os.open(folder, os.O_RDONLY | os.O_DIRECTORY)
    try:
        os.fsync(fd)
    finally:
        os.close(fd)


def is_mine(folder: Path) -> bool:
    """Whether this process has the folder: what was read and is on disk there may be deleted where it came from."""
    try:
        return (folder / PID_FILE).read_text(encoding="ascii").strip() == str(os.getpid())
    except (OSError, UnicodeDecodeError):
        return False
