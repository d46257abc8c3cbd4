"""The clocks of invented nodes. Every node has its own; what the folder claims of them is true."""

import time
from dataclasses import dataclass
from functools import lru_cache
from random import Random
from typing import Final

SECOND_NS: Final = 1_000_000_000
# What readers assume where nothing is claimed: a node's clock is right within this.
UNCLAIMED_S: Final = 5.0
# The part of an unclaimed clock's error that a drill uses; the rest is left for drift.
_UNCLAIMED_SHARE: Final = 0.55


@dataclass(frozen=True)
class Claim:
    """What a manifest says of a node: reference minus wall clock, and how wrong that may be, in seconds."""

    offset_s: float
    bound_s: float


@dataclass(frozen=True)
class NodeClock:
    """A wall clock that is off and drifts, and the kernel's clock since boot, which drifts by itself.

    `offset_ns` is true minus shown at `epoch_ns` (true time); rates are parts per million too fast. `steps` are true
    times and by how much the wall clock is set forward then.
    """

    epoch_ns: int
    offset_ns: int
    wall_ppm: float
    boot_ns: int
    kernel_ppm: float
    zone_s: int
    raw_ppm: float = 0.0
    steps: tuple[tuple[int, int], ...] = ()

    def wall_ns(self, true_ns: int) -> int:
        """What the wall clock shows."""
        set_ns = sum(by_ns for at_ns, by_ns in self.steps if at_ns <= true_ns)
        return true_ns - self.offset_ns + set_ns + round((true_ns - self.epoch_ns) * self.wall_ppm * 1e-6)

    def raw_ns(self, true_ns: int) -> int:
        """The raw clock, which nothing steers."""
        since = true_ns - self.boot_ns
        return since + round(since * self.raw_ppm * 1e-6)

    def kernel_ns(self, true_ns: int) -> int:
        """Nanoseconds since boot, as the kernel counts them."""
        since = true_ns - self.boot_ns
        return since + round(since * self.kernel_ppm * 1e-6)

    def kernel_as_wall_ns(self, true_ns: int, read_ns: int) -> int:
        """The wall time of a kernel stamp as tools work it out who read both clocks at `read_ns`."""
        return self.wall_ns(read_ns) - self.kernel_ns(read_ns) + self.kernel_ns(true_ns)

    def claim(self, r: Random, begin_ns: int, end_ns: int) -> Claim:
        """An honest claim for the span: every stamp of the node, kernel stamps too, is right within the bound."""
        middle = (begin_ns + end_ns) // 2
        offset_ns = middle - self.wall_ns(middle) + round(r.uniform(-0.01, 0.01) * SECOND_NS)
        shown = [c for t in (begin_ns, end_ns) for c in ((t, self.wall_ns(t)), (t, self.kernel_as_wall_ns(t, end_ns)))]
        worst_ns = max(abs(true - wall - offset_ns) for true, wall in shown)
        return Claim(offset_s=round(offset_ns / 1e9, 6), bound_s=round(worst_ns / 1e9 + r.uniform(0.002, 0.05), 6))


def new_clock(
    r: Random, begin_ns: int, *, wide: bool, zone_s: int, uptime_s: float, disciplined: bool | None = None
) -> NodeClock:
    """A clock that is off by less than readers assume, or (`wide`) by up to many seconds, where it will be claimed."""
    widest_s = 20.0 if wide else UNCLAIMED_S * _UNCLAIMED_SHARE
    kept = r.random() < 0.5 if disciplined is None else disciplined
    return NodeClock(
        epoch_ns=begin_ns, offset_ns=round((r.gauss(0, 0.003) if kept else r.uniform(-widest_s, widest_s)) * 1e9),
        wall_ppm=r.uniform(-1, 1) if kept else r.uniform(-100, 100), boot_ns=begin_ns - round(uptime_s * 1e9),
        kernel_ppm=r.uniform(-30, 30), zone_s=zone_s,
    )  # fmt: skip


@lru_cache(maxsize=4096)
def _fields(second: int) -> time.struct_time:
    return time.gmtime(second)


def local(clock: NodeClock, true_ns: int) -> tuple[time.struct_time, int]:
    """Local date and time on the node's wall, and the nanoseconds of the second."""
    second, rest = divmod(clock.wall_ns(true_ns), SECOND_NS)
    return _fields(second + clock.zone_s), rest


def zone_text(zone_s: int, *, colon: bool = True) -> str:
    """`+08:00`."""
    sign, minutes = ("-" if zone_s < 0 else "+"), abs(zone_s) // 60
    return f"{sign}{minutes // 60:02d}{':' if colon else ''}{minutes % 60:02d}"
