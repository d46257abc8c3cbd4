"""The pause between two passes."""

import os
import signal
import threading
import time
from collections.abc import Iterator

import pytest

from shippers.clock import HostClock
from shippers.config import SourceSettings, parse_start_at
from shippers.kmsg import KernelRing
from shippers.pieces import Moment, Waking
from shippers.waiting import Pace, Pause, pause_s
from tests.shippers.test_kmsg import FakeRing

LONG_S = 60.0


@pytest.fixture
def pause() -> Iterator[Pause]:
    pause = Pause()
    yield pause
    pause.close()


@pytest.fixture
def pipe() -> Iterator[tuple[int, int]]:
    ends = os.pipe()
    yield ends
    for each in ends:
        os.close(each)


def test_it_ends_with_its_time(pause: Pause, pipe: tuple[int, int]) -> None:
    began_s = time.monotonic()
    assert not pause.wait(0.05, pipe[:1])
    assert time.monotonic() - began_s >= 0.05


def test_what_is_there_to_read_ends_it(pause: Pause, pipe: tuple[int, int]) -> None:
    threading.Timer(0.05, os.write, (pipe[1], b"a line")).start()
    assert pause.wait(LONG_S, pipe[:1])


def test_a_program_that_has_ended_ends_it(pause: Pause) -> None:
    ended, end = os.pipe()
    os.close(end)
    assert pause.wait(LONG_S, (ended,))
    os.close(ended)


def test_nobody_waits_after_the_end_which_a_signal_may_bring(pause: Pause) -> None:
    before = signal.signal(signal.SIGUSR1, lambda *_: pause.end())
    try:
        threading.Timer(0.05, os.kill, (os.getpid(), signal.SIGUSR1)).start()
        assert pause.wait(LONG_S)
        assert pause.wait(LONG_S)
    finally:
        signal.signal(signal.SIGUSR1, before)


def test_ends_that_nobody_sees_are_no_trouble(pause: Pause) -> None:
    for _ in range(100_000):
        pause.end()
    pause.close()
    pause.end()
    pause.close()


def test_the_kernels_ring_is_waited_for_while_it_is_read() -> None:
    settings = SourceSettings(name="kmsg", kind="kernel", type="kmsg", path="/dev/kmsg")
    ring = KernelRing(settings, parse_start_at("beginning"), HostClock("boot1"), None, FakeRing())
    assert isinstance(ring, Waking)
    assert ring.descriptor is None
    ring.look(Moment(observed_ns=1, mono_ns=1, wall_ns=1))
    assert ring.descriptor == FakeRing().fileno()
    ring.close()
    assert ring.descriptor is None


@pytest.mark.parametrize(
    ("linger_s", "quiet_s", "flowing_s", "pause"),
    [
        (0.05, 0.1, 1.0, 0.05), (0.05, 3.0, 0.0, 0.5), (0.02, 3.0, 0.0, 0.2), (1.0, 3.0, 0.0, 1.0),
        (0.05, 0.0, 3.0, 0.4), (0.02, 0.0, 3.0, 0.16), (0.1, 0.0, 3.0, 0.4), (1.0, 0.0, 3.0, 1.0),
    ],
)  # fmt: skip
def test_passes_are_rarer_where_nothing_comes_and_where_lines_come_each_time(
    linger_s: float, quiet_s: float, flowing_s: float, pause: float
) -> None:
    assert pause_s(linger_s, quiet_s=quiet_s, flowing_s=flowing_s) == pytest.approx(pause)


class Passes:
    """Passes of an agent with a pause of 50 ms, one after another."""

    def __init__(self) -> None:
        self.now_s = 0.0
        self.pace = Pace(0.05, self.now_s)

    def next(self, *, has_lines: bool = False, is_woken: bool = False) -> float:
        """A pass and the pause after it, which a descriptor ends at once where `is_woken`."""
        pause = self.pace.after_pass(self.now_s, has_lines=has_lines)
        self.pace.was_woken = is_woken
        self.now_s += 0.05 if is_woken else pause
        return pause

    def until_quiet(self) -> None:
        while self.next() < 0.5:
            """Nothing comes."""


def test_the_journal_ends_a_pause_after_a_silence_only() -> None:
    passes = Passes()
    assert not passes.pace.hears_journal
    passes.until_quiet()
    assert passes.pace.hears_journal
    passes.next(has_lines=True)
    assert not passes.pace.hears_journal


def test_an_entry_of_no_interest_ends_one_pause_and_no_other_before_a_line_comes() -> None:
    passes = Passes()
    passes.until_quiet()
    passes.next(is_woken=True)
    assert passes.next() == pytest.approx(0.5)
    assert not passes.pace.hears_journal
    for _ in range(10):
        passes.next()
        assert not passes.pace.hears_journal
    passes.next(has_lines=True)
    passes.until_quiet()
    assert passes.pace.hears_journal


def test_entries_that_go_on_end_one_pause_after_another() -> None:
    passes = Passes()
    for _ in range(3):
        passes.until_quiet()
        passes.next(is_woken=True)
        assert passes.next(has_lines=True) == pytest.approx(0.05)


def test_what_is_only_saved_is_no_line() -> None:
    passes = Passes()
    passes.until_quiet()
    assert [passes.next() for _ in range(20)] == pytest.approx([0.5] * 20)
