"""What is recorded of a node's clocks beside its logs: readings and beacons, as its agent sent them.

One JSON object a line, in the order of time:
`{"boot_id", "clock": {"raw_ns", …}, "samples": [{"t0_ns", …}], "kernel": {"stamp_ns", …}}`.
"""

from pathlib import Path
from typing import Final

import msgspec

from schemas.records import ClockReading, ClockSample, Gap, RawLine

# A line of the kernel log that the agent wrote itself carries the raw clock before and after.
MARK: Final = "rootrank: clock mark"
MARKS: Final = ("clock.raw_before_ns", "clock.raw_after_ns")
SOURCE: Final = "clock"
ATTRIBUTES: Final = {"kind": "kernel"}


def around(before_ns: int, after_ns: int) -> dict[str, str]:
    """The attributes of a line of the kernel log that was made between two raw times."""
    return dict(zip(MARKS, (str(before_ns), str(after_ns)), strict=True))


class KernelMark(msgspec.Struct, frozen=True, kw_only=True):
    """A stamp of the kernel log (ns since boot) and the raw times around it."""

    stamp_ns: int
    raw_before_ns: int
    raw_after_ns: int

    def as_line(self, seq: int) -> RawLine:
        """The line that was written to have it stamped."""
        return RawLine(
            seq=seq, source=SOURCE, generation="0", offset=seq, body=MARK, kernel_time_ns=self.stamp_ns,
            attributes=around(self.raw_before_ns, self.raw_after_ns),
        )  # fmt: skip


class ClockNote(msgspec.Struct, frozen=True, kw_only=True):
    """All that is known of the clocks at one moment."""

    boot_id: str
    clock: ClockReading
    samples: list[ClockSample] = []
    kernel: KernelMark | None = None

    def lines(self, seq: int) -> list[RawLine]:
        """The lines of a batch that tells it."""
        return [] if self.kernel is None else [self.kernel.as_line(seq)]


class Record(msgspec.Struct, frozen=True, kw_only=True):
    """The notes of a file, and what of it cannot be used."""

    notes: list[ClockNote]
    gaps: list[Gap]


def read_record(path: Path, reporter: str) -> Record:
    """The record of a node's clocks, up to the first line that is no note."""
    notes: list[ClockNote] = []
    decoder, problem = msgspec.json.Decoder(ClockNote), None
    try:
        with path.open("rb") as lines:
            notes.extend(map(decoder.decode, lines))
    except (msgspec.DecodeError, msgspec.ValidationError) as error:
        problem = f"{path.name}:{len(notes) + 1}: no note of clocks: {error}"
    except OSError as error:
        problem = f"{path.name}: {error.strerror}"
    if problem is None:
        return Record(notes=notes, gaps=[])
    reason = f"{problem}; without it times of {reporter} are as its wall clock showed them"
    return Record(notes=notes, gaps=[Gap(source=path.name, node=reporter, reason=reason)])
