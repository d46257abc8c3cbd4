"""The falsified clocks of a node are wrong by what they say."""

import time

import pytest

from shippers.clock import HostClock
from tests.e2e.false_clocks import FalseClocks, Jump
from tests.e2e.skewed_fleet import falsify

S = 10**9


class Machine:
    """All real clocks of a machine, of which a test sets the time since boot. They do not advance."""

    def __init__(self) -> None:
        self.raw_ns = 0

    def __call__(self, clock_id: int) -> int:
        return self.raw_ns + {time.CLOCK_REALTIME: 1_800_000_000 * S}.get(clock_id, 0)


CLOCKS = FalseClocks(
    origin_ns=1000 * S, raw_offset_ns=7 * S, drift_ppb=40_000, wall_offset_ns=-2 * S,
    wall_steps=(Jump(at_ns=1010 * S, by_ns=3 * S), Jump(at_ns=1020 * S, by_ns=-1 * S)),
    suspends=(Jump(at_ns=1015 * S, by_ns=60 * S),),
)  # fmt: skip


@pytest.mark.parametrize(
    ("at_s", "raw_ns", "boottime_more_ns", "wall_error_ns"),
    [
        (1000, 1007 * S, 0, -2 * S),
        (1005, 1012 * S + 200_000, 0, -2 * S + 200_000),
        (1010, 1017 * S + 400_000, 0, S + 400_000),
        (1020, 1027 * S + 800_000, 60 * S, 800_000),
    ],
)
def test_offset_drift_steps_and_suspends_are_what_is_read(
    at_s: int, raw_ns: int, boottime_more_ns: int, wall_error_ns: int
) -> None:
    machine = Machine()
    machine.raw_ns = at_s * S
    reading = HostClock("b", gettime=CLOCKS.gettime(machine)).read()

    assert (reading.raw_ns, reading.mono_ns) == (raw_ns, raw_ns)
    assert reading.boottime_ns - reading.raw_ns == boottime_more_ns
    assert reading.wall_ns == (1_800_000_000 + at_s) * S + wall_error_ns


@pytest.mark.parametrize("drift_ppb", [-40_000, -1, 0, 3, 40_000])
def test_the_real_time_is_found_again(drift_ppb: int) -> None:
    clocks = FalseClocks(origin_ns=1000 * S, raw_offset_ns=123_456_789_012_345, drift_ppb=drift_ppb)
    for real_ns in range(900 * S, 100_000 * S, 777 * S + 13):
        assert abs(clocks.real_raw_ns(clocks.raw_ns(real_ns)) - real_ns) <= 1


def test_one_seed_gives_one_falsification() -> None:
    assert falsify(16, 1, 5) == falsify(16, 1, 5)
    assert falsify(16, 1, 5) != falsify(16, 2, 5)
    assert [node for node, clocks in falsify(16, 1, 5).items() if clocks.wall_steps] == ["n01", "n05", "n09", "n13"]
