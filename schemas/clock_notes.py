"""What is recorded of a node's clocks beside its logs: readings and beacons, as its agent sent them.

One JSON object a line, in the order of time:
`{"boot_id", "clock": {"raw_ns", …}, "samples": [{"t0_ns", …}], "kernel": {"stamp_ns", …}}`.
"""

import errno
import os
import stat
from collections.abc import Iterator
from pathlib import Path
from typing import BinaryIO, Final

import msgspec

from schemas.records import ClockReading, ClockSample, Gap, RawLine

# A line of the kernel log that the agent wrote itself carries the raw clock before and after.
MARK: Final = "rootrank: clock mark"
MARKS: Final = ("clock.raw_before_ns", "clock.raw_after_ns")
SOURCE: Final = "clock"
ATTRIBUTES: Final = {"kind": "kernel"}
# A line holds what an agent sends at once: 600 beacons are 60 KB. A day of notes by the second is 86,400.
LONGEST: Final = 1_048_576
MOST_NOTES: Final = 1_000_000
TOO_LARGE: Final = 2**63


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

    def numbers(self) -> Iterator[int]:
        """All times and numbers in it."""
        for part in (self.clock, self.kernel, *self.samples):
            yield from msgspec.structs.astuple(part) if part is not None else ()

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
        with _opened(path) as lines:
            while problem is None and (line := lines.readline(LONGEST)):
                note = decoder.decode(line)
                if len(notes) == MOST_NOTES or not all(abs(number) < TOO_LARGE for number in note.numbers()):
                    problem = f"{path.name}:{len(notes) + 1}: no note of clocks: too large a number, or too many notes"
                else:
                    notes.append(note)
    except (msgspec.DecodeError, RecursionError) as error:
        problem = f"{path.name}:{len(notes) + 1}: no note of clocks: {error}"
    except OSError as error:
        problem = f"{path.name}: {error.strerror}"
    except ValueError as error:  # a name with a null byte
        problem = f"{path.name}: {error}"
    if problem is None:
        return Record(notes=notes, gaps=[])
    reason = f"{problem}; without it times of {reporter} are as its wall clock showed them"
    return Record(notes=notes, gaps=[Gap(source=path.name, node=reporter, reason=reason)])


def _opened(path: Path) -> BinaryIO:
    """A regular file to read: a pipe would never end, and neither would a device. Raises OSError."""
    fd = os.open(path, os.O_RDONLY | os.O_CLOEXEC | os.O_NONBLOCK)
    if not stat.S_ISREG(os.fstat(fd).st_mode):
        os.close(fd)
        raise OSError(errno.EINVAL, "no regular file")
    return os.fdopen(fd, "rb")
