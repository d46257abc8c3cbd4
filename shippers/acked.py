"""Which batch Kafka has acknowledged last, in a small file."""

import contextlib
import os
import struct
import zlib
from pathlib import Path
from typing import Final

_SHAPE: Final = struct.Struct("<QI")


class AckedFile:
    """A number that survives kill -9. After a power cut it may be old: then batches are sent again, same numbers."""

    def __init__(self, path: Path) -> None:
        self._fd = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o640)
        self.seq = self._read()

    def write(self, seq: int) -> None:
        """Remember `seq`."""
        self.seq = max(self.seq, seq)
        number = struct.pack("<Q", self.seq)
        with contextlib.suppress(OSError):  # a full disk: the number that is there is older, as after a power cut
            os.pwrite(self._fd, number + struct.pack("<I", zlib.crc32(number)), 0)

    def close(self) -> None:
        """Put it on disk and close it."""
        os.fsync(self._fd)
        os.close(self._fd)

    def _read(self) -> int:
        return _number(os.pread(self._fd, _SHAPE.size, 0))


def read_acked(path: Path) -> int:
    """The number in the file of a running agent; 0 where there is none that can be read."""
    try:
        return _number(path.read_bytes())
    except OSError:
        return 0


def _number(data: bytes) -> int:
    if len(data) < _SHAPE.size or zlib.crc32(data[:8]) != _SHAPE.unpack(data[: _SHAPE.size])[1]:
        return 0
    return int(_SHAPE.unpack(data[: _SHAPE.size])[0])
