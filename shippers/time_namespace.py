"""How far the clocks of this process's time namespace are from the host's (man 7 time_namespaces).

A container may have its own offsets. They move CLOCK_MONOTONIC, CLOCK_MONOTONIC_RAW and CLOCK_BOOTTIME, not the wall
clock and not the kernel's log stamps, and they cannot change while a process lives in the namespace.
"""

import time
from pathlib import Path
from typing import Final

SECOND_NS: Final = 10**9
_SELF: Final = Path("/proc/self")
_MOVED: Final = {
    "monotonic": (time.CLOCK_MONOTONIC, time.CLOCK_MONOTONIC_RAW),
    "boottime": (time.CLOCK_BOOTTIME,),
}


def offsets_ns(process: Path = _SELF) -> dict[int, int] | None:
    """By clock id what the namespace adds, in ns, where that is not 0; None where the kernel does not say."""
    try:
        # The offsets are those of the namespace that children will be in; it is ours unless this process made one.
        if (process / "ns/time").readlink() != (process / "ns/time_for_children").readlink():
            return None
        text = (process / "timens_offsets").read_text(encoding="ascii")
    except (OSError, ValueError):
        return None
    return parse_offsets(text)


def parse_offsets(text: str) -> dict[int, int] | None:
    """What /proc/PID/timens_offsets says: lines `clock seconds nanoseconds`; None where it is not that."""
    found: dict[int, int] = {}
    for line in text.splitlines():
        try:
            name, seconds, nanoseconds = line.split()
            offset = int(seconds) * SECOND_NS + int(nanoseconds)
        except ValueError:
            return None
        if offset:
            found.update(dict.fromkeys(_MOVED.get(name, ()), offset))
    return found
