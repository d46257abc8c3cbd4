"""The kernel log's clock against the node's raw clock, from moments known on both.

printk stamps lines with sched_clock, which nothing steers and which is neither CLOCK_MONOTONIC nor
CLOCK_MONOTONIC_RAW (Gleixner, lkml 2017-11-14: they "can drift apart frequency wise pretty bad"). What is certain: a
line was written before it was read, and after the moment up to which the log had been read to its end. A line that the
agent writes itself, with the raw clock read before and after, is the same, only sharper.
"""

from typing import Final

from msgspec import Struct, field

# Both clocks count the same crystal or two that are within 100 ppm of each other.
APART_PPM: Final = 100
BUCKET_NS: Final = 30_000_000_000
KEPT: Final = 64


class Moment(Struct, kw_only=True):
    """Bounds of raw minus kernel clock, in ns, at raw times of one bucket."""

    lo_at_ns: int
    lo_ns: int
    hi_at_ns: int
    hi_ns: int


class Relation(Struct, kw_only=True):
    """Moments of one boot, the tightest of each bucket."""

    moments: list[Moment] = field(default_factory=list)

    def note(self, stamp_ns: int, after_ns: int, before_ns: int) -> None:
        """A kernel stamp (ns since boot) was made after one raw time and before another."""
        if after_ns > before_ns:
            return
        new = Moment(
            lo_at_ns=after_ns, lo_ns=after_ns - stamp_ns, hi_at_ns=before_ns, hi_ns=before_ns - stamp_ns
        )  # fmt: skip
        last = self.moments[-1] if self.moments else None
        if last is None or before_ns // BUCKET_NS != last.hi_at_ns // BUCKET_NS:
            self.moments.append(new)
            del self.moments[:-KEPT]
            return
        if new.lo_ns > last.lo_ns:
            last.lo_at_ns, last.lo_ns = new.lo_at_ns, new.lo_ns
        if new.hi_ns < last.hi_ns:
            last.hi_at_ns, last.hi_ns = new.hi_at_ns, new.hi_ns

    def raw_of(self, stamp_ns: int) -> tuple[int, int] | None:
        """Between which raw times a stamp was made; None where nothing relates the clocks or it contradicts itself."""
        if not self.moments:
            return None
        last = self.moments[-1]
        near_ns = stamp_ns + (last.lo_ns + last.hi_ns) // 2
        lo_ns = max(m.lo_ns - _drift_ns(near_ns - m.lo_at_ns) for m in self.moments)
        hi_ns = min(m.hi_ns + _drift_ns(near_ns - m.hi_at_ns) for m in self.moments)
        return (stamp_ns + lo_ns, stamp_ns + hi_ns) if lo_ns <= hi_ns else None


def _drift_ns(apart_ns: int) -> int:
    return abs(apart_ns) * APART_PPM // 1_000_000 + 1
