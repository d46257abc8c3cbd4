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
from shippers.waiting import Pause
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
