"""The data folder of one `rootrank up`, held by a lock that ends with the process that took it."""

import fcntl
import os
from pathlib import Path
from types import TracebackType
from typing import Self

import orjson

from pipeline.embedded.errors import EmbeddedError, FolderHeldError
from pipeline.embedded.processes import command_line

LOCK_NAME = "rootrank.lock"


def private_folder(path: Path) -> Path:
    """Make a folder of ours, or take it from everybody else where it exists; logs and tables are nobody else's."""
    path.mkdir(mode=0o700, parents=True, exist_ok=True)
    path.chmod(0o700)
    return path


class DataDir:
    """A folder that one process at a time may use. The kernel frees the lock when the holder dies, however it dies."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self._lock_fd: int | None = None

    @property
    def lock_file(self) -> Path:
        """The lock file; it says who holds the folder and stays behind when it is free."""
        return self.path / LOCK_NAME

    def acquire(self) -> Self:
        """Take the folder, making it where needed; a lock left by a dead process is taken over.

        Raises:
            FolderHeldError: a living process holds it; the text names that process.
            EmbeddedError: the folder cannot be made or written.

        """
        if self._lock_fd is not None:
            return self
        try:
            self.path.mkdir(mode=0o700, parents=True, exist_ok=True)
            lock_fd = os.open(self.lock_file, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
        except OSError as error:
            raise EmbeddedError(
                f"the data folder {self.path} cannot be used ({error.strerror}); choose one you may write with --data"
            ) from error
        try:
            fcntl.flock(lock_fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            holder = os.pread(lock_fd, 4096, 0)
            os.close(lock_fd)
            raise FolderHeldError(self._describe_holder(holder)) from None
        os.ftruncate(lock_fd, 0)
        os.pwrite(lock_fd, orjson.dumps({"pid": os.getpid(), "command": command_line(os.getpid())}), 0)
        self._lock_fd = lock_fd
        return self

    def release(self) -> None:
        """Let the folder go; not holding it is fine."""
        if self._lock_fd is not None:
            os.close(self._lock_fd)
            self._lock_fd = None

    def _describe_holder(self, content: bytes) -> str:
        try:
            holder = orjson.loads(content)
            who = f"process {holder['pid']} ({holder['command']})"
        except (ValueError, KeyError, TypeError):
            who = "another process"  # it took the lock this instant and has not written its name yet
        return f"the data folder {self.path} is in use by {who}; stop that one, or choose another folder with --data"

    def __enter__(self) -> Self:
        return self.acquire()

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.release()
