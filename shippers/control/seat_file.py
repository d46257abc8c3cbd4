"""The seat as a file that all agents see: on the Slurm controller's host, or on a file system that they share."""

import fcntl
import os
import uuid
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Final

import msgspec

from shippers.control.seat import Held, SeatError, SeatTakenError

_MAX_BYTES: Final = 1024 * 1024


class FileStore:
    """A small JSON file, replaced whole under a lock. The lock is held for one read and one write, never for long."""

    def __init__(self, path: Path) -> None:
        self._path = path

    def read(self) -> Held:
        """What the file says; a free seat where there is none."""
        try:
            with self._path.open("rb") as file:
                return msgspec.json.decode(file.read(_MAX_BYTES), type=Held)
        except FileNotFoundError:
            return Held()
        except OSError as error:
            raise SeatError(
                f"{self._path}: {error.strerror}; [control] seat_file must be readable and writable"
            ) from None
        except msgspec.DecodeError as error:
            raise SeatError(f"{self._path} is no seat ({error}); remove it if no other agent runs") from None

    def write(self, held: Held) -> None:
        """Replace the file, unless another agent did since it was read."""
        with self._locked():
            if self.read().version != held.version:
                raise SeatTakenError
            scratch = self._path.with_name(f".{self._path.name}.{os.getpid()}")
            fresh = msgspec.structs.replace(held, version=uuid.uuid4().hex)
            try:
                with scratch.open("wb") as file:
                    file.write(msgspec.json.encode(fresh))
                    file.flush()
                    os.fsync(file.fileno())
                scratch.replace(self._path)
            except OSError as error:
                raise SeatError(f"{self._path}: {error.strerror}; the seat cannot be renewed") from None

    @contextmanager
    def _locked(self) -> Iterator[None]:
        """The lock of the file beside it. lockf: NFS passes it on to its server, which flock it may not."""
        try:
            fd = os.open(self._path.with_name(self._path.name + ".lock"), os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o640)
        except OSError as error:
            raise SeatError(f"{self._path}.lock: {error.strerror}; the folder of seat_file must be writable") from None
        try:
            fcntl.lockf(fd, fcntl.LOCK_EX)
            yield
        finally:
            os.close(fd)
