"""Which of two events came first, as far as the clocks can say."""

from typing import Final, Protocol

from pipeline.core.clocks.odds import is_probable, odds_before
from schemas.records import ClockStamp, Event
from schemas.vocabulary import EdgeOrder, Order

# Times by two brokers compare only as far as their clocks agree: as far as clocks do of which nothing is claimed.
BROKERS_APART_NS: Final = 5_000_000_000
# Of two groups of nodes that were aligned by what each logs, neither timeline is true time: each is that far off it,
# and a little more where clocks of a group hardly allow it.
TIMELINES_APART_NS: Final = 3 * BROKERS_APART_NS
# A process ends after the kernel has killed it.
_KILL: Final = "host.oom.kill"
_ENDS: Final = frozenset(
    {"elastic.failed", "elastic.rank_failed", "launcher.exit", "launcher.rank_failed", "slurm.task_exit"}
)


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
    @property
    def reference_broker(self) -> int | None: ...


def order(a: Stamped, b: Stamped) -> Order:
    """`before`: a came first for certain; `after`: b did; `concurrent`: the clocks cannot say.

    Readings of one clock compare exactly; lines that one node writes to one source keep their order where their stamps
    do not contradict it; everything else is decided by bounds that do not overlap, or by what one line says of another.
    """
    readings = _on_one_clock(a, b)
    if readings is not None:
        a_ns, a_end_ns, b_ns, b_end_ns = readings
        if a_end_ns < b_ns:
            return "before"
        if b_end_ns < a_ns:
            return "after"
    else:
        apart_ns = _apart_ns(a, b)
        if a.hi_unix_nano + apart_ns < b.lo_unix_nano:
            return "before"
        if b.hi_unix_nano + apart_ns < a.lo_unix_nano:
            return "after"
    if (a.writer, a.source, a.generation) == (b.writer, b.source, b.generation) and a.offset != b.offset:
        return "before" if a.offset < b.offset else "after"
    if _ended(a, b):
        return "before"
    return "after" if _ended(b, a) else "concurrent"


def sureness(a: Event, b: Event) -> tuple[EdgeOrder, float | None]:
    """How sure it is that a came first, and the odds of it where it is only probable."""
    said = order(a, b)
    if said == "before":
        return "certain", None
    a_ns, b_ns = a.aligned_time_unix_nano, b.aligned_time_unix_nano
    if said == "after" or a_ns is None or b_ns is None or a.u99_ns is None or b.u99_ns is None:
        return "concurrent", None
    if a.reference_broker != b.reference_broker or not is_probable(b_ns - a_ns, a.u99_ns, b.u99_ns):
        return "concurrent", None
    return "probable", round(odds_before(b_ns - a_ns, a.u99_ns, b.u99_ns), 4)


def _apart_ns(a: Stamped, b: Stamped) -> int:
    """How far the timelines of both may be apart. What is claimed of a clock, is claimed for that of all brokers."""
    if a.reference_broker is None or b.reference_broker is None or a.reference_broker == b.reference_broker:
        return 0
    return TIMELINES_APART_NS if min(a.reference_broker, b.reference_broker) < 0 else BROKERS_APART_NS


def _ended(kill: Stamped, end: Stamped) -> bool:
    """Whether one line tells of the end of the very process that the other says was killed."""
    if not (isinstance(kill, Event) and isinstance(end, Event) and kill.name == _KILL and end.name in _ENDS):
        return False
    return kill.subject.pid is not None and (kill.subject.pid, kill.node) == (end.subject.pid, end.node)


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
    apart_ns = _apart_ns(a, b)
    return b.lo_unix_nano - a.hi_unix_nano - apart_ns, b.hi_unix_nano - a.lo_unix_nano + apart_ns
