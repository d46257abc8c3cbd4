import os
from collections import deque
from pathlib import Path

import pytest

from shippers.clock import HostClock
from shippers.config import SourceSettings, StartAt
from shippers.kmsg import KernelRing, parse_record
from shippers.positions import SourcePosition
from shippers.tail import Tail
from tests.shippers.fakes import SECOND_NS, Passes, append

SETTINGS = SourceSettings(name="kmsg", kind="kernel", type="kmsg", path="/dev/kmsg")


BEGINNING = StartAt()


class FakeRing:
    """A ring buffer whose content is given; `None` is an overrun."""

    def __init__(self, *records: bytes | None) -> None:
        self.records = deque(records)

    def read(self) -> bytes:
        if not self.records:
            raise BlockingIOError
        record = self.records.popleft()
        if record is None:
            raise BrokenPipeError
        return record

    def seek_end(self) -> None:
        self.records.clear()

    def fileno(self) -> int:
        return 77

    def close(self) -> None:
        """Nothing is open."""


def record(sequence: int, text: str = "hello", micros: int = 999_000_000) -> bytes:
    return f"6,{sequence},{micros},-;{text}\n".encode()


def ring_of(
    device: FakeRing, start_at: StartAt = BEGINNING, boot: str = "boot1", saved: SourcePosition | None = None
) -> KernelRing:
    return KernelRing(SETTINGS, start_at, HostClock(boot), saved, device)


def test_a_record_is_its_text_with_the_kernels_time_and_all_it_says_beside() -> None:
    found = parse_record(
        "6,1234,56701234567,-,caller=T1;NVRM: text; more", [" SUBSYSTEM=pci", " DEVICE=+pci:0000:3b:00.0"]
    )

    assert found is not None
    assert (found.sequence, found.time_ns, found.text) == (1234, 56701234567000, "NVRM: text; more")
    assert found.attributes == {
        "kmsg.priority": "6",
        "kmsg.facility": "0",
        "kmsg.caller": "T1",
        "SUBSYSTEM": "pci",
        "DEVICE": "+pci:0000:3b:00.0",
    }


@pytest.mark.parametrize(
    "line",
    ["", "hello", "6,1,2;x", "a,1,2,-;x", "6,1,2,-", "6,-1,2,-;x", "6,²,2,-;x", f"6,{2**63},2,-;x", f"6,1,{2**60},-;x",
     f"6,{'9' * 5000},2,-;x", f"{'9' * 5000},1,2,-;x"],
)  # fmt: skip
def test_other_lines_are_no_records(line: str) -> None:
    assert parse_record(line, []) is None


def test_ring_records_have_their_sequence_as_offset_and_the_boot_as_generation() -> None:
    lines = Passes().read(ring_of(FakeRing(record(5), record(6, "two")))).lines

    assert [(line.offset, line.generation, line.body) for line in lines] == [(5, "boot1", "hello"), (6, "boot1", "two")]
    assert lines[0].kernel_time_ns == 999 * SECOND_NS
    assert lines[0].line_no is None


def test_an_overrun_leaves_a_gap_with_the_count() -> None:
    read = Passes().read(ring_of(FakeRing(record(5), None, record(9))))

    assert [line.offset for line in read.lines] == [5, 9]
    assert [(gap.lost_lines, gap.from_offset, gap.to_offset) for gap in read.gaps] == [(3, 6, 8)]


def test_the_ring_is_resumed_in_the_same_boot_and_what_was_overwritten_meanwhile_is_a_gap() -> None:
    saved = Passes().read(ring_of(FakeRing(record(1), record(2)))).position
    same = Passes().read(ring_of(FakeRing(record(1), record(2), record(3)), saved=saved))
    overwritten = Passes().read(ring_of(FakeRing(record(7)), saved=saved))

    assert [line.offset for line in same.lines] == [3]
    assert [gap.lost_lines for gap in overwritten.gaps] == [4]


def test_after_a_reboot_the_ring_is_read_from_its_beginning() -> None:
    saved = Passes().read(ring_of(FakeRing(record(100)))).position
    read = Passes().read(ring_of(FakeRing(record(0), record(1)), StartAt(at_end=True), "boot2", saved))

    assert [line.offset for line in read.lines] == [0, 1]
    assert read.gaps == []


def test_an_age_bound_passes_over_old_records_at_first_sight_only() -> None:
    ring = ring_of(FakeRing(record(1, micros=1_000_000), record(2, micros=990_000_000)), StartAt(age_ns=60 * SECOND_NS))

    assert [line.offset for line in Passes().read(ring).lines] == [2]


def test_start_at_end_passes_over_the_ring() -> None:
    device = FakeRing(record(1))
    ring, passes = ring_of(device, StartAt(at_end=True)), Passes()
    assert passes.read(ring).lines == []
    device.records.append(record(2))

    assert [line.offset for line in passes.read(ring).lines] == [2]


def test_a_device_that_is_not_there_is_refused_with_a_reason(tmp_path: Path) -> None:
    settings = SourceSettings(name="kmsg", kind="kernel", type="kmsg", path=str(tmp_path / "kmsg"))
    ring = KernelRing(settings, StartAt(), HostClock("boot1"), None)
    Passes().read(ring)
    progress = ring.progress()

    assert (progress.state, progress.kind) == ("refused", "kernel")
    assert "is not there: this container was not given the device" in (progress.reason or "")


def test_the_device_of_this_machine_is_read_or_refused_with_advice() -> None:
    ring = KernelRing(SETTINGS, StartAt(), HostClock("boot1"), None)
    read = Passes().read(ring)
    progress = ring.progress()
    ring.close()

    if os.access("/dev/kmsg", os.R_OK) and progress.state == "on":
        assert all(line.kernel_time_ns is not None for line in read.lines)
        assert progress.at_end
    else:
        assert progress.state == "refused"
        assert "/dev/kmsg" in (progress.reason or "")


def kmsg_file(path: Path, saved: SourcePosition | None = None) -> Tail:
    return Tail("kernel", path, SourceSettings(kind="kernel", type="kmsg", path=str(path)), StartAt(), saved)


def test_a_file_in_kmsg_format_gives_records_with_their_continuation_lines(tmp_path: Path) -> None:
    path = tmp_path / "kmsg.txt"
    append(path, record(7) + b" SUBSYSTEM=net\n DEVICE=n2\n" + record(8, "two"))
    lines = Passes().read(kmsg_file(path), ending=True).lines

    assert [(line.offset, line.body, line.line_no) for line in lines] == [(7, "hello", 1), (8, "two", 4)]
    assert lines[0].attributes["DEVICE"] == "n2"
    assert lines[0].kernel_time_ns == 999 * SECOND_NS


def test_the_last_record_of_a_file_waits_for_its_other_lines_but_not_for_ever(tmp_path: Path) -> None:
    path = tmp_path / "kmsg.txt"
    append(path, record(7))
    tail, passes = kmsg_file(path), Passes()
    first = passes.read(tail)
    append(path, b" DEVICE=n2\n")
    second = passes.read_now(tail)
    third = passes.read(tail)

    assert (first.lines, second.lines) == ([], [])
    assert [line.attributes.get("DEVICE") for line in third.lines] == ["n2"]


def test_a_line_that_is_no_record_is_kept_with_a_mark_and_its_neighbours_too(tmp_path: Path) -> None:
    path = tmp_path / "kmsg.txt"
    append(path, record(7) + b"garbage \xff\n  not a pair\n6,9223372036854775808,1,-;far\n" + record(8))
    lines = Passes().read(kmsg_file(path), ending=True).lines

    assert [line.body for line in lines] == [
        "hello",
        "garbage �",
        "  not a pair",
        "6,9223372036854775808,1,-;far",
        "hello",
    ]
    assert [line.attributes.get("kmsg.malformed") for line in lines] == [None, "true", "true", "true", None]
    assert lines[1].kernel_time_ns is None


def test_a_kmsg_file_is_resumed_between_records(tmp_path: Path) -> None:
    path = tmp_path / "kmsg.txt"
    append(path, record(7) + record(8))
    saved = Passes().read(kmsg_file(path)).position
    append(path, record(9))
    lines = Passes().read(kmsg_file(path, saved), ending=True).lines

    assert [line.offset for line in lines] == [8, 9]
