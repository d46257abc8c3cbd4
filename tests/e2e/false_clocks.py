"""Falsified clocks of one node: what its agent reads is wrong by known amounts, and the truth can be told from it.

With r the real CLOCK_MONOTONIC_RAW of the machine, all in ns:
    raw       = r + raw_offset_ns + (r - origin_ns) * drift_ppb / 1e9
    mono      = real + (raw - r)                       its rate is wrong as that of raw is
    boottime  = real + (raw - r) + suspends so far     a suspend: boottime jumps, raw and mono do not
    wall      = real + wall_offset_ns + (r - origin_ns) * drift_ppb / 1e9 + steps so far
Only the reading of clocks is falsified, in one function that stands for `time.clock_gettime_ns`.
"""

import time
from collections.abc import Callable, Sequence
from pathlib import Path

import msgspec
from msgspec import Struct

Gettime = Callable[[int], int]


class Jump(Struct, frozen=True, kw_only=True):
    """A clock jumps by `by_ns` at `at_ns` of the machine's real raw clock."""

    at_ns: int
    by_ns: int


class FalseClocks(Struct, frozen=True, kw_only=True):
    """How far a node's clocks are off, on a machine of which `origin_ns` was the real raw clock."""

    origin_ns: int
    raw_offset_ns: int = 0
    drift_ppb: int = 0
    wall_offset_ns: int = 0
    wall_steps: tuple[Jump, ...] = ()
    suspends: tuple[Jump, ...] = ()

    def gettime(self, real: Gettime = time.clock_gettime_ns) -> Gettime:
        """What stands for `time.clock_gettime_ns` on this node."""

        def read(clock_id: int) -> int:
            real_raw_ns = real(time.CLOCK_MONOTONIC_RAW)
            if clock_id == time.CLOCK_MONOTONIC_RAW:
                return self.raw_ns(real_raw_ns)
            value_ns = real(clock_id)
            if clock_id == time.CLOCK_REALTIME:
                return value_ns + self.wall_error_ns(real_raw_ns)
            value_ns += self.raw_ns(real_raw_ns) - real_raw_ns
            is_boottime = clock_id == time.CLOCK_BOOTTIME
            return value_ns + (_jumped_ns(self.suspends, real_raw_ns) if is_boottime else 0)

        return read

    def raw_ns(self, real_raw_ns: int) -> int:
        """The node's raw clock at this real raw time."""
        return real_raw_ns + self.raw_offset_ns + self._drifted_ns(real_raw_ns)

    def wall_error_ns(self, real_raw_ns: int) -> int:
        """How far the node's wall clock is ahead of the machine's at this real raw time."""
        return self.wall_offset_ns + self._drifted_ns(real_raw_ns) + _jumped_ns(self.wall_steps, real_raw_ns)

    def real_raw_ns(self, raw_ns: int) -> int:
        """The real raw time at which the node's raw clock showed this, to a nanosecond."""
        run_ns = raw_ns - self.raw_offset_ns - self.origin_ns
        return self.origin_ns + run_ns - run_ns * self.drift_ppb // (10**9 + self.drift_ppb)

    def _drifted_ns(self, real_raw_ns: int) -> int:
        return (real_raw_ns - self.origin_ns) * self.drift_ppb // 10**9


def load(path: Path) -> FalseClocks:
    """The clocks in a file."""
    return msgspec.json.decode(path.read_bytes(), type=FalseClocks)


def _jumped_ns(jumps: Sequence[Jump], now_ns: int) -> int:
    return sum(jump.by_ns for jump in jumps if jump.at_ns <= now_ns)
