"""What the agent tells systemd: that it is ready, that passes happen, how much waits, that it stops.

No library: a datagram to the socket in NOTIFY_SOCKET. Without one nothing is told, and nothing here ever blocks.
"""

import contextlib
import os
import socket
import time
from collections.abc import Callable, Mapping
from typing import Final

_STATUS_S: Final = 10.0
_BEATS: Final = 4  # in the time after which the watchdog kills


class Notifier:
    """Tells systemd, at most as often as it wants to hear. `address` may be abstract: it then begins with @."""

    def __init__(self, address: str = "", watchdog_s: float | None = None) -> None:
        self._address = "\0" + address[1:] if address.startswith("@") else address
        self._every_s = min(_STATUS_S, watchdog_s / _BEATS) if watchdog_s else _STATUS_S
        self._beaten_s: float | None = None

    def beat(self, status: Callable[[], str]) -> None:
        """A pass has happened; the first one makes the service ready."""
        now_s = time.monotonic()
        if not self._address or (self._beaten_s is not None and now_s - self._beaten_s < self._every_s):
            return
        ready = ("READY=1",) if self._beaten_s is None else ()
        self._beaten_s = now_s
        self._send(*ready, "WATCHDOG=1", f"STATUS={' '.join(status().split())}")

    def stopping(self) -> None:
        """The end has begun."""
        self._send("STOPPING=1")

    def _send(self, *lines: str) -> None:
        if not self._address:
            return
        with contextlib.suppress(OSError), socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as sock:
            sock.setblocking(False)
            sock.sendto("\n".join(lines).encode(), self._address)


def notifier(environment: Mapping[str, str] = os.environ) -> Notifier:
    """As systemd set it up for this process."""
    usec = environment.get("WATCHDOG_USEC", "")
    is_ours = environment.get("WATCHDOG_PID", str(os.getpid())) == str(os.getpid())
    return Notifier(environment.get("NOTIFY_SOCKET", ""), int(usec) / 1e6 if usec.isdecimal() and is_ours else None)
