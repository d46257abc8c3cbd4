"""Says on a terminal how far a long reading is. Silent where nobody watches."""

import sys
import time
from typing import Final, TextIO

EVERY_S: Final = 0.2
_CLEAR: Final = "\r\x1b[K"


class ReadingProgress:
    """Counts files and bytes, and rewrites one line of a terminal as they come in."""

    def __init__(self, files: int, stream: TextIO = sys.stderr) -> None:
        self._files, self._stream = files, stream
        self._watched = stream.isatty()
        self._seen: set[str] = set()
        self._bytes = 0
        self._started = self._said = time.monotonic()

    def read(self, source: str, size_bytes: int) -> None:
        """So many (decompressed) bytes of a source were just looked at."""
        self._seen.add(source)
        self._bytes += size_bytes
        if self._watched and time.monotonic() - self._said > EVERY_S:
            self._say(self._words())

    def concluding(self) -> None:
        """All is read; what it means is being worked out."""
        if self._watched and self._bytes:
            self._say(f"{self._words()}; working out what it means")

    def done(self) -> None:
        """Take the line off the terminal."""
        if self._watched:
            self._stream.write(_CLEAR)
            self._stream.flush()

    def _words(self) -> str:
        seconds = max(time.monotonic() - self._started, 1e-3)
        megabytes = self._bytes / 1e6
        size = f"{megabytes / 1000:.1f} GB" if megabytes >= 1000 else f"{megabytes:.0f} MB"
        return f"reading file {len(self._seen)} of {self._files}, {size}, {megabytes / seconds:.0f} MB/s"

    def _say(self, words: str) -> None:
        self._said = time.monotonic()
        self._stream.write(f"{_CLEAR}{words}")
        self._stream.flush()
