"""Files of settings and keys: small ones. What is named by mistake may be a device that never ends, or a pipe."""

import errno
import os
import select
import time
from pathlib import Path
from typing import Final

MOST_BYTES: Final = 1024 * 1024
PATIENCE_S: Final = 5.0


def read_small(path: Path, patience_s: float = PATIENCE_S) -> bytes:
    """All of a file of at most 1 MiB. Raises OSError, also where it is larger, or where it does not end in time."""
    with open(path, "rb", buffering=0, opener=_at_once) as file:
        ready, end_s = select.poll(), time.monotonic() + patience_s
        ready.register(file, select.POLLIN)
        parts, left = list[bytes](), MOST_BYTES + 1
        while left > 0:
            if not ready.poll(1000 * max(0.0, end_s - time.monotonic())):
                raise OSError(errno.ETIMEDOUT, f"no end within {patience_s:g} s, as of a pipe or device", str(path))
            part = file.read(left)
            if part is None:
                continue  # somebody else took it
            if not part:
                break
            parts.append(part)
            left -= len(part)
    if left <= 0:
        raise OSError(errno.EFBIG, f"larger than {MOST_BYTES // 1024} KiB, which no such file is", str(path))
    return b"".join(parts)


def _at_once(path: str, flags: int) -> int:
    """Opened without waiting for whoever writes into a pipe."""
    return os.open(path, flags | os.O_NONBLOCK | os.O_CLOEXEC)
