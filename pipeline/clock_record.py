"""What was recorded of a node's clocks beside its logs: readings and beacons, as its agent sent them.

One JSON object a line: `{"boot_id", "clock": {"raw_ns", …}, "samples": [{"t0_ns", …}], "kernel": {…}}`, in the order
of time. `kernel` is a stamp of the kernel log that was made between two readings of the raw clock.
"""

from collections.abc import Iterator
from pathlib import Path

import msgspec

from pipeline.core.source_clock import MARKS
from pipeline.logfiles import UnreadableFileError
from schemas.records import ClockReading, ClockSample, RawLine

SOURCE = "clock"


class KernelMark(msgspec.Struct, frozen=True, kw_only=True):
    """A stamp of the kernel log (ns since boot) and the raw times around it."""

    stamp_ns: int
    raw_before_ns: int
    raw_after_ns: int

    def as_line(self, seq: int) -> RawLine:
        """The line that an agent wrote into the kernel log to have it stamped."""
        around = (self.raw_before_ns, self.raw_after_ns)
        return RawLine(
            seq=seq, source=SOURCE, generation="0", offset=seq, body="rootrank: clock mark",
            kernel_time_ns=self.stamp_ns,
            attributes=dict(zip(MARKS, map(str, around), strict=True)),
        )  # fmt: skip


class ClockNote(msgspec.Struct, frozen=True, kw_only=True):
    """All that is known of the clocks at one moment."""

    boot_id: str
    clock: ClockReading
    samples: list[ClockSample] = []
    kernel: KernelMark | None = None


def notes_of(path: Path) -> Iterator[ClockNote]:
    """The notes of a file. Raises UnreadableFileError that names the line."""
    decoder = msgspec.json.Decoder(ClockNote)
    try:
        with path.open("rb") as lines:
            for number, line in enumerate(lines, 1):
                try:
                    yield decoder.decode(line)
                except (msgspec.DecodeError, msgspec.ValidationError) as error:
                    raise UnreadableFileError(f"{path.name}:{number}: no note of clocks: {error}") from None
    except OSError as error:
        raise UnreadableFileError(f"{path.name}: {error.strerror}") from None
