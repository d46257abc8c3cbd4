"""Files of settings and keys: small ones. What is named by mistake may be a device that never ends."""

import errno
from pathlib import Path
from typing import Final

MOST_BYTES: Final = 1024 * 1024


def read_small(path: Path) -> bytes:
    """All of a file of at most 1 MiB. Raises OSError, also where it is larger."""
    with path.open("rb", buffering=0) as file:
        parts, left = list[bytes](), MOST_BYTES + 1
        while left > 0 and (part := file.read(left)):
            parts.append(part)
            left -= len(part)
    if left <= 0:
        raise OSError(errno.EFBIG, f"larger than {MOST_BYTES // 1024} KiB, which no such file is", str(path))
    return b"".join(parts)
