"""`journalctl --follow` as a child that is never waited for: entries as they come, and why it ended."""

import contextlib
import os
import select
import signal
import subprocess
from collections.abc import Sequence
from typing import Final

CHUNK_BYTES: Final = 256 * 1024
# An entry is written as JSON with bytes as numbers: five times the bytes that it has, and more.
LONGEST_BYTES: Final = 8 * 1024 * 1024
_SAID_BYTES: Final = 4096


class Journalctl:
    """One child. Ended with its parent's pipe, and killed by `close`."""

    def __init__(self, command: Sequence[str]) -> None:
        """Start it. Raises OSError."""
        self._child = subprocess.Popen(
            command, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.PIPE, bufsize=0,
            env={**os.environ, "LC_ALL": "C", "SYSTEMD_COLORS": "0", "SYSTEMD_PAGER": ""},
        )  # fmt: skip
        assert self._child.stdout is not None
        assert self._child.stderr is not None
        self._out, self._err = self._child.stdout, self._child.stderr
        for stream in (self._out, self._err):
            os.set_blocking(stream.fileno(), False)
        self._rest = bytearray()
        self._is_skipping = False
        self._said = b""
        self.too_long = 0
        self.has_closed = False  # its output, whether it runs or not

    @property
    def pid(self) -> int:
        """Its process id."""
        return self._child.pid

    def fileno(self) -> int:
        """What it writes to."""
        return self._out.fileno()

    def lines(self, most_bytes: int, wait_s: float = 0) -> list[bytes] | None:
        """The lines that are there, of about so many bytes; None at the end of what it has written for now."""
        found = self._take(most_bytes)
        while not found:
            if wait_s:
                select.select([self._out], [], [], wait_s)
            try:
                data = os.read(self._out.fileno(), CHUNK_BYTES)
            except BlockingIOError:
                return None
            if not data:
                self.has_closed = True
                return None
            self._rest += data
            found = self._take(most_bytes)
        return found

    def has_unread(self) -> bool:
        """Whether more than what was taken is there: what a child wrote can be read after its end."""
        with contextlib.suppress(BlockingIOError):
            data = os.read(self._out.fileno(), CHUNK_BYTES)
            self._rest += data
            return bool(data)
        return False

    def said(self) -> str:
        """The last that it said on standard error."""
        with contextlib.suppress(BlockingIOError):
            while data := os.read(self._err.fileno(), _SAID_BYTES):
                self._said = (self._said + data)[-_SAID_BYTES:]
        lines = [line.strip() for line in self._said.decode("utf-8", "replace").splitlines() if line.strip()]
        return lines[-1] if lines else ""

    def ended(self) -> int | None:
        """Its exit status; None while it runs."""
        return self._child.poll()

    def close(self) -> None:
        """End it. It holds nothing that it would have to save."""
        if self._child.poll() is None:
            with contextlib.suppress(ProcessLookupError):
                self._child.send_signal(signal.SIGKILL)
        with contextlib.suppress(subprocess.TimeoutExpired):
            self._child.wait(1)  # a child that waits for a disk cannot be killed now; it is when the disk answers
        self._out.close()
        self._err.close()

    def _take(self, most_bytes: int) -> list[bytes]:
        if self._is_skipping:
            end = self._rest.find(b"\n")
            del self._rest[: end + 1 if end >= 0 else len(self._rest)]
            self._is_skipping = end < 0
        end = self._rest.rfind(b"\n", 0, most_bytes)
        if end < 0:
            end = self._rest.find(b"\n")
        if end < 0:
            if len(self._rest) > LONGEST_BYTES:
                self._rest.clear()
                self._is_skipping = True
                self.too_long += 1
            return []
        found = bytes(self._rest[:end]).split(b"\n")
        del self._rest[: end + 1]
        return found
