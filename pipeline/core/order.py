"""Which of two events came first, as far as the clocks can say."""

from typing import Protocol

from schemas.records import ClockStamp, Event
from schemas.vocabulary import Order


class Stamped(Protocol):
    """What has a place in time and in a file."""

    @property
    def writer(self) -> str: ...
    @property
    def source(self) -> str: ...
    @property
    def generation(self) -> str: ...
    @property
    def offset(self) -> int: ...
    @property
    def clock_id(self) -> str: ...
    @property
    def raw_ns(self) -> int | None: ...
    @property
    def resolution_ns(self) -> int: ...
    @property
    def lo_unix_nano(self) -> int: ...
    @property
    def hi_unix_nano(self) -> int: ...
    @property
    def kernel(self) -> ClockStamp | None: ...


def order(a: Stamped, b: Stamped) -> Order:
    """`before`: a came first for certain; `after`: b did; `concurrent`: the clocks cannot say.

    Readings of one clock compare exactly; lines that one node writes to one source keep their order where their stamps
    do not contradict it; everything else is decided by bounds that do not overlap.
    """
    readings = _on_one_clock(a, b)
    if readings is not None:
        a_ns, a_end_ns, b_ns, b_end_ns = readings
        if a_end_ns < b_ns:
            return "before"
        if b_end_ns < a_ns:
            return "after"
    elif a.hi_unix_nano < b.lo_unix_nano:
        return "before"
    elif b.hi_unix_nano < a.lo_unix_nano:
        return "after"
    if (a.writer, a.source, a.generation) == (b.writer, b.source, b.generation) and a.offset != b.offset:
        return "before" if a.offset < b.offset else "after"
    return "concurrent"


def _on_one_clock(a: Stamped, b: Stamped) -> tuple[int, int, int, int] | None:
    """Begin and end of both on a clock that stamped both: the kernel's own is sharper than a wall clock."""
    if a.kernel is not None and b.kernel is not None and a.kernel.clock_id == b.kernel.clock_id:
        first, second = a.kernel, b.kernel
        return first.raw_ns, first.raw_ns + first.resolution_ns, second.raw_ns, second.raw_ns + second.resolution_ns
    if a.clock_id and a.clock_id == b.clock_id and a.raw_ns is not None and b.raw_ns is not None:
        return a.raw_ns, a.raw_ns + a.resolution_ns, b.raw_ns, b.raw_ns + b.resolution_ns
    return None


Place = tuple[int, int, str, str, int, str]


def canonical(event: Event) -> Place:
    """A total order that depends on nothing but the evidence; for printing and for ties, never for causes."""
    return (event.lo_unix_nano, event.hi_unix_nano, event.node, event.source, event.offset, event.body)


def lag_ns(a: Event, b: Event) -> tuple[int, int] | None:
    """Smallest and largest time from a to b in ns, or None where one of them has no time."""
    readings = _on_one_clock(a, b)
    if readings is not None:
        a_ns, a_end_ns, b_ns, b_end_ns = readings
        return b_ns - a_end_ns, b_end_ns - a_ns
    if a.aligned_time_unix_nano is None or b.aligned_time_unix_nano is None:
        return None
    return b.lo_unix_nano - a.hi_unix_nano, b.hi_unix_nano - a.lo_unix_nano
