"""What is recorded of a node's clocks beside its logs: readings and beacons, as its agent sent them.

One JSON object a line, in the order of time:
`{"boot_id", "clock": {"raw_ns", …}, "samples": [{"t0_ns", …}], "kernel": {"stamp_ns", …}}`.
"""

from typing import Final

import msgspec

from schemas.records import ClockReading, ClockSample, RawLine

# A line of the kernel log that the agent wrote itself carries the raw clock before and after.
MARKS: Final = ("clock.raw_before_ns", "clock.raw_after_ns")
SOURCE: Final = "clock"


class KernelMark(msgspec.Struct, frozen=True, kw_only=True):
    """A stamp of the kernel log (ns since boot) and the raw times around it."""

    stamp_ns: int
    raw_before_ns: int
    raw_after_ns: int

    def as_line(self, seq: int) -> RawLine:
        """The line that was written to have it stamped."""
        around = (self.raw_before_ns, self.raw_after_ns)
        return RawLine(
            seq=seq, source=SOURCE, generation="0", offset=seq, body="rootrank: clock mark",
            kernel_time_ns=self.stamp_ns, attributes=dict(zip(MARKS, map(str, around), strict=True)),
        )  # fmt: skip


class ClockNote(msgspec.Struct, frozen=True, kw_only=True):
    """All that is known of the clocks at one moment."""

    boot_id: str
    clock: ClockReading
    samples: list[ClockSample] = []
    kernel: KernelMark | None = None


class NoClockNoteError(ValueError):
    """A line that is no note of clocks."""


def note_of(line: bytes) -> ClockNote:
    """The note of a line. Raises NoClockNoteError."""
    try:
        return msgspec.json.decode(line, type=ClockNote)
    except (msgspec.DecodeError, msgspec.ValidationError) as error:
        raise NoClockNoteError(str(error)) from None
