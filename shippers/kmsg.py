"""Kernel records: the ring buffer behind /dev/kmsg, and files in the same format.

A record is `priority,sequence,microseconds,flags[,more];text`, then lines ` KEY=value`.
"""

import os
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final, Protocol

from schemas.lines import body_of
from schemas.records import Gap, RawLine, SourceProgress
from schemas.vocabulary import SourceState
from shippers.clock import Clock
from shippers.config import SourceSettings, StartAt
from shippers.generation import Chunk
from shippers.kmsg_marks import KmsgMarks
from shippers.pieces import Limit, Moment, Piece
from shippers.plain import Shaped
from shippers.positions import Position, SourcePosition
from shippers.refusals import kmsg_refusal

_INT64_MAX: Final = 2**63 - 1
_RECORD_BYTES: Final = 16 * 1024  # the kernel's own limit is 8 KiB; a smaller buffer is refused with EINVAL


@dataclass(frozen=True, slots=True, kw_only=True)
class KernelRecord:
    """One record of the kernel log. `time_ns` is on the kernel's boot clock."""

    sequence: int
    time_ns: int
    text: str
    attributes: dict[str, str] = field(default_factory=dict)


def parse_record(head: str, continuations: list[str]) -> KernelRecord | None:
    """The record in its first line and the lines ` KEY=value` after it; None where the line is not a record."""
    prefix, separator, text = head.partition(";")
    fields = prefix.split(",")
    if not separator or len(fields) < 4 or not all(value.isdecimal() and len(value) < 20 for value in fields[:3]):
        return None
    priority, sequence, micros = (int(value) for value in fields[:3])
    if sequence > _INT64_MAX or micros * 1000 > _INT64_MAX:
        return None
    attributes = {"kmsg.priority": str(priority & 7), "kmsg.facility": str(priority >> 3)}
    for extra in fields[4:]:
        key, equals, value = extra.partition("=")
        if equals:
            attributes[f"kmsg.{key}"] = value
    for line in continuations:
        key, equals, value = line.strip().partition("=")
        if equals:
            attributes[key] = value
    return KernelRecord(sequence=sequence, time_ns=micros * 1000, text=text, attributes=attributes)


def shape_file(
    chunk: Chunk, source: str, generation: str, observed_ns: int, numbers: Iterator[int], *, whole: bool
) -> Shaped:
    """Records of a file in kmsg format, and how many of its lines they used.

    The last record is left for later, as more of its lines may follow, unless `whole`. A line that is no record is
    kept as it is, its byte offset for a sequence number, with the attribute `kmsg.malformed`.
    """
    lines: list[RawLine] = []
    offset, used = chunk.start, 0
    raws = chunk.raws
    while used < len(raws):
        count = 1
        while used + count < len(raws) and _is_continuation(raws[used + count]):
            count += 1
        if used + count == len(raws) and not whole:
            break
        texts = [body_of(raw)[0] for raw in raws[used : used + count]]
        record = parse_record(texts[0], texts[1:])
        if record is None:
            count = 1
            record = KernelRecord(sequence=offset, time_ns=-1, text=texts[0], attributes={"kmsg.malformed": "true"})
        line_no = None if chunk.line_no is None else chunk.line_no + used + 1
        lines.append(_line(record, next(numbers), source, generation, observed_ns, line_no, chunk.too_long))
        offset += sum(map(len, raws[used : used + count])) + count
        used += count
    return lines, used


def _is_continuation(raw: bytes) -> bool:
    key, equals, _ = raw[1:128].partition(b"=")
    return raw[:1] == b" " and bool(equals) and key.replace(b"_", b"").isalnum() and key.isupper()


class Device(Protocol):
    """The kernel's ring buffer: one record a read."""

    def read(self) -> bytes:
        """The next record. Raises BlockingIOError at the end, BrokenPipeError once after an overrun."""

    def seek_end(self) -> None:
        """Pass over all that is there."""

    def fileno(self) -> int:
        """What may be waited for."""

    def close(self) -> None:
        """Close it."""


class KmsgDevice:
    """/dev/kmsg, never waited for."""

    def __init__(self, path: Path) -> None:
        self._fd = os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC)

    def read(self) -> bytes:
        """The next record."""
        return os.read(self._fd, _RECORD_BYTES)

    def seek_end(self) -> None:
        """Pass over all that is there."""
        os.lseek(self._fd, 0, os.SEEK_END)

    def fileno(self) -> int:
        """What may be waited for."""
        return self._fd

    def close(self) -> None:
        """Close the device."""
        os.close(self._fd)


class KernelRing:
    """The kernel log of this boot as a source. Sequence numbers are offsets, the boot id is the generation."""

    def __init__(
        self, settings: SourceSettings, start_at: StartAt, clock: Clock, saved: SourcePosition | None,
        device: Device | None = None, marks: KmsgMarks | None = None,
    ) -> None:  # fmt: skip
        self.name = settings.name or settings.path
        self.attributes = {"kind": settings.kind, **settings.attributes}
        self._kind = settings.kind
        self._path = Path(settings.path)
        self._start_at = start_at
        self._clock = clock
        self._boot_id = boot_id = clock.boot_id
        self._device = device
        self._marks = marks
        known = saved.generations[0] if saved and saved.generations else None
        same_boot = known is not None and known.generation == boot_id
        self._next = known.offset if known and same_boot else 0
        self._expected = self._next if same_boot else None
        self._first_sight = known is None
        self._state: SourceState = "off"
        self._reason: str | None = "not read yet"
        self._through_ns = 0
        self._at_end = False
        self._retry_mono_ns = 0
        self._unsaved = False

    @property
    def descriptor(self) -> int | None:
        """The device, while it is read."""
        return None if self._device is None or self._state != "on" else self._device.fileno()

    def look(self, moment: Moment) -> None:
        """Open the device where it is not open. A refusal is a state with a reason, tried again every 30 s."""
        if self._state == "on" or moment.mono_ns < self._retry_mono_ns:
            return
        try:
            self._device = self._device or KmsgDevice(self._path)
            if self._first_sight and self._start_at.at_end:
                self._device.seek_end()
        except OSError as error:
            self._refuse(moment, kmsg_refusal(self._path, error))
        else:
            self._state, self._reason = "on", None

    def read(self, limit: Limit, moment: Moment, numbers: Iterator[int]) -> Piece | None:
        """The next records, with gap markers for what the ring has overwritten."""
        if self._device is None or self._state != "on":
            return None
        lines: list[RawLine] = []
        gaps: list[Gap] = []
        size = 0
        self._at_end = False
        while len(lines) < limit.lines and size < limit.size:
            observed_ns = self._clock.observed_ns()  # all that was written before is read, where there is no more
            try:
                data = self._device.read()
            except BlockingIOError:
                self._at_end, self._through_ns = True, observed_ns
                break
            except BrokenPipeError:
                continue  # the next record's number says how many were overwritten
            except OSError as error:
                self._refuse(moment, kmsg_refusal(self._path, error))
                break
            # Right after the read: a record's own stamp is at most this, and the nearer the better.
            line = self._take(data, self._clock.observed_ns(), moment, numbers, gaps)
            if line is not None:
                lines.append(line)
                size += len(data)
        if not lines and not gaps and not self._unsaved:
            return None
        self._unsaved = False
        return Piece(source=self.name, position=self._position(), lines=lines, size=size, gaps=gaps)

    def progress(self) -> SourceProgress:
        """How far the ring is read."""
        return SourceProgress(
            source=self.name, state=self._state, kind=self._kind, reason=self._reason,
            read_through_unix_nano=self._through_ns, at_end=self._at_end, attributes=self.attributes,
        )  # fmt: skip

    def close(self) -> None:
        """Close the device."""
        if self._device is not None:
            self._device.close()
            self._device = None

    def _take(
        self, data: bytes, observed_ns: int, moment: Moment, numbers: Iterator[int], gaps: list[Gap]
    ) -> RawLine | None:
        head, *rest = data.decode("utf-8", "replace").rstrip("\n").split("\n")
        record = parse_record(head, rest)
        if record is None:
            record = KernelRecord(sequence=self._next, time_ns=-1, text=head, attributes={"kmsg.malformed": "true"})
        if record.sequence < self._next:
            return None
        if self._expected is not None and record.sequence > self._expected:
            gaps.append(
                Gap(
                    source=self.name,
                    reason="the kernel log overwrote records before they were read",
                    lost_lines=record.sequence - self._expected,
                    from_offset=self._expected,
                    to_offset=record.sequence - 1,
                )
            )
        self._next = self._expected = record.sequence + 1
        if self._first_sight and self._is_old(record, moment):
            self._unsaved = True
            return None
        if self._marks is not None:
            record.attributes.update(self._marks.attributes_of(record.text))
        return _line(record, next(numbers), self.name, self._boot_id, observed_ns, None, too_long=False)

    def _is_old(self, record: KernelRecord, moment: Moment) -> bool:
        if self._start_at.age_ns is not None and record.time_ns < moment.mono_ns - self._start_at.age_ns:
            return True
        self._first_sight = False
        return False

    def _refuse(self, moment: Moment, reason: str) -> None:
        self._state, self._reason = "refused", reason
        self._at_end = False
        self._retry_mono_ns = moment.mono_ns + 30 * 10**9
        self.close()

    def _position(self) -> SourcePosition:
        position = Position(generation=self._boot_id, offset=self._next, line_no=None)
        return SourcePosition(path=str(self._path), generations=(position,))


def _line(
    record: KernelRecord, seq: int, source: str, generation: str, observed_ns: int, line_no: int | None, too_long: bool
) -> RawLine:
    return RawLine(
        seq=seq, source=source, generation=generation, offset=record.sequence, body=record.text, line_no=line_no,
        kernel_time_ns=record.time_ns if record.time_ns >= 0 else None, observed_time_unix_nano=observed_ns,
        attributes=record.attributes, truncated=too_long,
    )  # fmt: skip
