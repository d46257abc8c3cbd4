import itertools
import re

import pytest

from schemas.clock_notes import MARK, MARKS
from schemas.records import RawLine
from shippers.clock import HostClock
from shippers.config import SourceSettings, StartAt
from shippers.kmsg import KernelRing
from shippers.kmsg_marks import EVERY_NS, KmsgMarks
from tests.lines.reading import events_of
from tests.shippers.fakes import Passes
from tests.shippers.test_kmsg import FakeRing

SETTINGS = SourceSettings(name="kmsg", kind="kernel", type="kmsg", path="/dev/kmsg")


class Steps:
    """Clocks that advance by 10 ns at each look, and by more where a test says so."""

    def __init__(self) -> None:
        self.now_ns = 10**12

    def __call__(self, _clock_id: int) -> int:
        self.now_ns += 10
        return self.now_ns


class EchoingRing(FakeRing):
    """A ring buffer that stamps what is written into it, as the kernel does, by a clock that is 5 s behind."""

    def __init__(self, clock: Steps) -> None:
        super().__init__()
        self._clock = clock
        self._sequence = itertools.count(7)

    def write(self, line: bytes) -> None:
        priority, text = re.fullmatch(rb"<(\d)>(.*)\n", line).groups()  # type: ignore[union-attr]
        self._clock.now_ns += 2000
        micros = (self._clock.now_ns - 5 * 10**9) // 1000
        self.records.append(b"%d,%d,%d,-;%s\n" % (8 + int(priority), next(self._sequence), micros, text))


class Marked:
    """A ring with marks."""

    def __init__(self) -> None:
        self.steps = Steps()
        self.device = EchoingRing(self.steps)
        self.said: list[str] = []
        clock = HostClock("boot1", gettime=self.steps)
        self.marks = KmsgMarks(clock, self.said.append, self.device.write)
        self.ring = KernelRing(SETTINGS, StartAt(), clock, None, self.device, self.marks)
        self.passes = Passes()

    def read(self) -> list[RawLine]:
        return self.passes.read(self.ring).lines


def test_a_mark_comes_back_with_the_raw_clock_on_both_sides_of_its_stamp() -> None:
    marked = Marked()
    marked.marks.mark_if_due()
    line = marked.read()[0]
    before_ns, after_ns = (int(line.attributes[f"clock.raw_{side}_ns"]) for side in ("before", "after"))

    assert line.kernel_time_ns is not None
    assert before_ns < line.kernel_time_ns + 5 * 10**9 + 1000
    assert line.kernel_time_ns + 5 * 10**9 < after_ns
    assert line.attributes["kmsg.priority"] == "7"


def test_a_mark_is_written_once_a_minute() -> None:
    marked = Marked()
    for _ in range(3):
        marked.marks.mark_if_due()
    marked.steps.now_ns += EVERY_NS
    marked.marks.mark_if_due()

    assert len(marked.read()) == 2


def test_marks_of_others_and_of_an_earlier_run_say_nothing_of_our_clock() -> None:
    other, marked = Marked(), Marked()
    other.marks.mark_if_due()
    marked.device.records.extend(other.device.records)

    assert [key for line in marked.read() for key in line.attributes if key.startswith("clock.")] == []


def test_a_mark_that_is_read_twice_counts_once() -> None:
    marked = Marked()
    marked.marks.mark_if_due()
    mark = marked.device.records[0]
    assert mark is not None
    marked.device.records.append(mark.replace(b",7,", b",8,"))

    assert ["clock.raw_after_ns" in line.attributes for line in marked.read()] == [True, False]


def test_where_the_device_cannot_be_written_it_is_said_once() -> None:
    said: list[str] = []
    steps = Steps()

    def refuse(_line: bytes) -> None:
        raise PermissionError(1, "Operation not permitted")

    marks = KmsgMarks(HostClock("b", gettime=steps), said.append, refuse)
    for _ in range(3):
        marks.mark_if_due()
        steps.now_ns += EVERY_NS

    assert len(said) == 1
    assert "/dev/kmsg: Operation not permitted" in said[0]


def test_a_record_is_observed_after_it_was_read_and_not_when_the_pass_began() -> None:
    marked = Marked()
    marked.device.write(b"<6>one\n")
    marked.device.write(b"<6>two\n")
    one, two = marked.read()

    assert one.kernel_time_ns is not None
    assert one.kernel_time_ns + 5 * 10**9 < one.observed_time_unix_nano < two.observed_time_unix_nano


@pytest.mark.parametrize("prefix", ["", "[   12.345678] ", "Mar 11 10:00:00 n1 kernel: "])
def test_a_mark_is_no_event(prefix: str) -> None:
    assert events_of(f"{prefix}{MARK} 0a1b2c3d-17", "kernel") == []


def test_the_device_of_this_machine_gives_a_mark_back_or_is_refused_with_advice() -> None:
    said: list[str] = []
    clock = HostClock("boot1")
    marks = KmsgMarks(clock, said.append)
    ring = KernelRing(SETTINGS, StartAt(at_end=True), clock, None, marks=marks)
    passes = Passes()
    passes.read(ring)
    marks.mark_if_due()
    lines = passes.read(ring).lines
    is_read = ring.progress().state == "on"
    ring.close()

    if said:
        assert "run as root" in said[0]
    elif is_read:
        assert [line for line in lines if all(name in line.attributes for name in MARKS)]
