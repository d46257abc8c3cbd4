"""From the time a line claims to bounds on the reference timeline.

Every event carries [lo, hi] from the start. Here the bounds come from a claim (the manifest's, the site's, or the
default of +-5 s); measured segments replace the claim without touching the callers.
"""

from bisect import bisect_right
from functools import lru_cache
from typing import Final

from msgspec import Struct

from pipeline.core.dating import NOTHING_SAID, Dating
from pipeline.core.hosts import short
from pipeline.core.stamps import EARLIEST_NS, LATEST_NS, Stamp, date_of, resolve
from schemas.records import (
    TIME_MAX_NS,
    TIME_MIN_NS,
    ClockClaim,
    ClockReading,
    ClockStamp,
    Progress,
    RawBatch,
    RawLine,
)
from schemas.vocabulary import Inferred, Quality, Run

SECOND_NS: Final = 1_000_000_000
DAY_NS: Final = 86_400 * SECOND_NS
# Without any claim, clocks of different nodes are taken to agree within this (NTP in trouble, not NTP at work).
DEFAULT_BOUND_NS: Final = 5 * SECOND_NS
TELEMETRY: Final = "telemetry"  # the kind of source that the agent measures itself, at an interval of its own
# printk's clock and CLOCK_MONOTONIC may run apart; crystals stay within 100 ppm of each other.
KERNEL_CLOCK_PPM: Final = 100
# `dmesg --ctime` computes times from the boot clock: on long uptimes they are off by seconds.
COMPUTED_NS: Final = 5 * SECOND_NS
COMPUTED: Final = frozenset({"dmesg_ctime", "dmesg_iso", "dmesg_reltime"})
# The clock of a BMC is often set by nobody: a quartz that is off by 30 ppm for a year.
BMC_BOUND_NS: Final = 900 * SECOND_NS
BMC: Final = frozenset({"ipmi_sel"})
KERNEL_STAMP_NS: Final = 1_000
# Attribute of a line that the agent tells of what it measures: how much later than the transport's time it may be.
WIDTH: Final = "time.width_ns"
# A batch may have waited in a spool for days; it cannot come from the future.
FUTURE_NS: Final = 60 * SECOND_NS
PAST_NS: Final = 60 * DAY_NS


class When(Struct, frozen=True, kw_only=True, gc=False):
    """When a line was written: somewhere in [raw_ns, raw_ns + resolution_ns] on clock `clock_id`, and what that
    means on the reference timeline. Readings of one clock compare exactly; readings of two only through bounds.

    `kernel`: the kernel's own stamp, where there is one beside. `inferred`: what of the time nobody states. What
    follows is known where the node's clocks are measured: when by its raw clock, within what 99 of 100 times, by which
    broker and epoch, and on which stretch of the wall clock between steps.
    """

    clock_id: str = ""
    raw_ns: int | None = None
    resolution_ns: int = 0
    aligned_ns: int | None = None
    lo_ns: int = TIME_MIN_NS
    hi_ns: int = TIME_MAX_NS
    quality: Quality = "none"
    kernel: ClockStamp | None = None
    inferred: tuple[Inferred, ...] = ()
    monotonic_raw_ns: int | None = None
    monotonic_raw_width_ns: int = 0
    u99_ns: int | None = None
    epoch: int = 0
    broker_id: int | None = None
    stretch: str = ""


UNKNOWN: Final = When()


NO_CLAIM: Final = ClockClaim(offset_ns=0, bound_ns=DEFAULT_BOUND_NS, by="default")
BMC_CLAIM: Final = ClockClaim(offset_ns=0, bound_ns=BMC_BOUND_NS, by="default")


# Crystals nobody steers stay within 100 ppm of true time (the frequency tolerance Linux's NTP code takes for granted
# is 500 ppm, but of steered clocks), so two clocks run apart by 200 ppm at most.
PAIR_PPM: Final = 200


def claim_of(batch: RawBatch, node: str) -> ClockClaim:
    """What is claimed of the clock of `node`: the batch speaks for its reporter's clock and for no other."""
    claim = batch.clock_claim
    if claim is None:
        return NO_CLAIM
    if is_one(node, batch.reporter):
        return claim
    return NO_CLAIM if not claim.others_bound_ns else _unclaimed(claim.others_bound_ns)


@lru_cache(maxsize=64)
def _unclaimed(bound_ns: int) -> ClockClaim:
    return ClockClaim(offset_ns=0, bound_ns=bound_ns, by=NO_CLAIM.by)


def at_wall(claim: ClockClaim, wall_ns: int) -> tuple[int, int]:
    """Offset and bound (ns) of a claim at a moment of the node's wall clock."""
    knots = claim.knots
    if not knots:
        return claim.offset_ns, claim.bound_ns
    number = bisect_right(knots, wall_ns, key=lambda knot: knot[0])
    if 0 < number < len(knots):
        (from_ns, offset_ns, bound_ns, astray_ns), (to_ns, next_offset_ns, next_bound_ns, _) = knots[
            number - 1 : number + 1
        ]
        gone_ns, whole_ns = wall_ns - from_ns, max(1, to_ns - from_ns)
        offset_ns += (next_offset_ns - offset_ns) * gone_ns // whole_ns
        bound_ns += -(-(next_bound_ns - bound_ns) * gone_ns // whole_ns) + 1
        # Near a knot it cannot be further off the straight line than clocks can run apart, there and back.
        bound_ns += min(astray_ns, 2 * min(gone_ns, whole_ns - gone_ns) * PAIR_PPM // 1_000_000)
    else:
        near_ns, offset_ns, bound_ns, _ = knots[max(0, number - 1)]
        bound_ns += abs(wall_ns - near_ns) * PAIR_PPM // 1_000_000
    return (offset_ns, bound_ns) if bound_ns < claim.bound_ns else (claim.offset_ns, claim.bound_ns)


@lru_cache(maxsize=4_096)
def is_one(node: str, reporter: str) -> bool:
    """Whether a node is the machine that reports."""
    return short(node.split("/")[0]) == short(reporter.split("/")[0])


def read_wall_ns(progress: Progress) -> tuple[int, int]:
    """Up to when every source of a reporter has been read: by its wall clock, and for certain by what is claimed of it.

    Both are 0 where nothing is said.
    """
    on = [each for each in progress.sources if each.state == "on"]
    # What is measured every few minutes would hold the others back. What it tells late is late evidence.
    read = [each for each in on if each.kind != TELEMETRY] or on
    read_ns = min((each.read_through_unix_nano for each in read), default=0)
    claim = progress.clock_claim or NO_CLAIM
    offset_ns, bound_ns = at_wall(claim, read_ns)
    return read_ns, read_ns + offset_ns - bound_ns if read_ns else 0


def clock_fault(run: Run, batch_wall_ns: int, arrival_ns: int) -> str | None:
    """Why a node's wall clock cannot be right, or None. Both in ns. A replayed clock is never at fault."""
    if run not in ("live", "drill"):
        return None
    if batch_wall_ns > arrival_ns + FUTURE_NS:
        return f"runs {(batch_wall_ns - arrival_ns) / SECOND_NS:.0f} s ahead"
    if batch_wall_ns < arrival_ns - PAST_NS:
        return f"runs {(arrival_ns - batch_wall_ns) / SECOND_NS:.0f} s behind"
    return None


def wall_time(wall_ns: int, resolution_ns: int, node: str, batch: RawBatch) -> When:
    """Bounds of a reading of the wall clock of `node`, in ns."""
    return _bounds(wall_ns, resolution_ns, f"{node}/wall", claim_of(batch, node))


def _bounds(
    wall_ns: int, resolution_ns: int, clock_id: str, claim: ClockClaim, *, off_ns: int = 0,
    slack_ns: tuple[int, int] = (0, 0), kernel: ClockStamp | None = None, inferred: tuple[Inferred, ...] = (),
) -> When:  # fmt: skip
    """Bounds of a reading of a clock of which something is claimed.

    `off_ns`: the reading was computed and may be so far off; `slack_ns`: the whole clock may be, to either side.
    """
    if not EARLIEST_NS <= wall_ns - off_ns < LATEST_NS:
        return UNKNOWN
    offset_ns, bound_ns = at_wall(claim, wall_ns)
    reference = wall_ns + offset_ns
    return When(
        clock_id=clock_id,
        raw_ns=wall_ns - off_ns,
        resolution_ns=resolution_ns + 2 * off_ns,
        aligned_ns=reference,
        lo_ns=max(reference - off_ns - bound_ns - slack_ns[0], TIME_MIN_NS),
        hi_ns=min(reference + resolution_ns + off_ns + bound_ns + slack_ns[1], TIME_MAX_NS),
        quality="holdover" if claim.by == NO_CLAIM.by else "good",
        broker_id=-claim.timeline if claim.timeline else None,
        kernel=kernel,
        inferred=inferred,
    )


def kernel_time(
    stamp_ns: int, resolution_ns: int, node: str, batch: RawBatch, source: str = "", dating: Dating = NOTHING_SAID
) -> When:
    """Bounds of a stamp on the kernel's boot clock (ns since boot): through the batch's clock reading, else through
    what was inferred of the source; without either it stays on the clock of its boot.
    """
    reading, boot = batch.clock, dating.boot
    own = ClockStamp(
        clock_id=f"{node}/{batch.boot_id or source}/kernel", raw_ns=stamp_ns, resolution_ns=resolution_ns
    )  # fmt: skip
    when = UNKNOWN
    if reading.wall_ns != 0:
        when = _placed(own, reading.mono_ns, reading.wall_ns, slept_ns(reading), node, batch)
    elif boot is not None:
        named = _boot_stamp(stamp_ns, boot.wall_ns - boot.boot_ns, node)
        when = _placed(named, boot.boot_ns, boot.wall_ns, boot.bound_ns, node, batch, inferred=("boot",))
    if when is UNKNOWN:
        return When(clock_id=own.clock_id, raw_ns=stamp_ns, resolution_ns=resolution_ns)
    return when


def slept_ns(reading: ClockReading) -> int:
    """How long a node has slept since its boot: the kernel's clock counts that where its counter goes on meanwhile."""
    return max(0, reading.boottime_ns - reading.mono_ns)


def _placed(
    own: ClockStamp, boot_ns: int, wall_ns: int, bound_ns: int, node: str, batch: RawBatch,
    inferred: tuple[Inferred, ...] = (),
) -> When:  # fmt: skip
    """A stamp of the boot clock on the wall clock, by a moment on both."""
    age_ns = boot_ns - own.raw_ns
    off_ns = abs(age_ns) * KERNEL_CLOCK_PPM // 1_000_000 + bound_ns
    claim = claim_of(batch, node)
    return _bounds(
        wall_ns - age_ns, own.resolution_ns, f"{node}/wall", claim, off_ns=off_ns, kernel=own, inferred=inferred
    )


def _boot_stamp(stamp_ns: int, began_ns: int, node: str) -> ClockStamp:
    """The kernel's stamp of a boot that nobody names: the minute (UTC) in which it began does."""
    days, minute = divmod(began_ns // (60 * SECOND_NS), 1440)
    year, month, day = date_of(days)
    boot = f"{year}-{month:02}-{day:02}T{minute // 60:02}:{minute % 60:02}Z"
    return ClockStamp(clock_id=f"{node}/{boot}/kernel", raw_ns=stamp_ns, resolution_ns=KERNEL_STAMP_NS)


def stamped(
    stamp: Stamp, dating: Dating, hint_ns: int | None, node: str, batch: RawBatch, *, source: str = "",
    read_ns: int | None = None, boot_ns: int | None = None,
) -> When:  # fmt: skip
    """Bounds of a parsed wall-clock stamp. What it leaves out is told by `dating`, near `hint_ns`, before `read_ns`.

    `boot_ns`: the kernel's stamp of the same line.
    """
    resolved = resolve(
        stamp, year=dating.year, zone_offset_s=dating.zone_s, hint_unix_ns=hint_ns, read_unix_ns=read_ns
    )  # fmt: skip
    if resolved is None:
        return UNKNOWN
    wall_ns, resolution_ns = resolved
    slack_ns, is_computed = dating.slack_ns(stamp), stamp.kind in COMPUTED
    clock, claim = "wall", claim_of(batch, node)
    if stamp.kind in BMC:
        clock, claim = "bmc", BMC_CLAIM
    elif not stamp.has_date and dating.spread_ns:
        # Right but for the day, so comparable with itself alone.
        clock = f"{source}/wall"
    elif slack_ns != (0, 0):
        # Not comparable with the clocks of the node that have a known zone.
        clock = "local"
    kernel = None
    if boot_ns is not None:
        kernel = _boot_stamp(boot_ns, wall_ns - boot_ns, node)
    elif is_computed:
        kernel = ClockStamp(clock_id=f"{node}/{source}/dmesg", raw_ns=wall_ns, resolution_ns=resolution_ns)
    return _bounds(
        wall_ns, resolution_ns, f"{node}/{clock}", claim, off_ns=COMPUTED_NS if is_computed else 0, slack_ns=slack_ns,
        kernel=kernel, inferred=dating.marks(stamp),
    )  # fmt: skip


def transported(
    line: RawLine, node: str, batch: RawBatch, source: str = "", dating: Dating = NOTHING_SAID
) -> When | None:
    """Bounds where the transport itself carries the time (kmsg, journal, probes); None where it does not."""
    if line.kernel_time_ns is not None:
        return kernel_time(line.kernel_time_ns, KERNEL_STAMP_NS, node, batch, source, dating)
    if line.time_unix_nano is not None:
        width = line.attributes.get(WIDTH, "")
        width_ns = min(int(width), DAY_NS) if width.isdecimal() and len(width) < 19 else 1_000
        return wall_time(line.time_unix_nano, width_ns, node, batch)
    return None


def observed(line: RawLine, node: str, batch: RawBatch) -> When:
    """Bounds of when a line was read."""
    return wall_time(line.observed_time_unix_nano, 0, node, batch) if line.observed_time_unix_nano else UNKNOWN


def unstamped(since: When, seen: When) -> When:
    """Bounds of a line without a time of its own: written after the last stamp of its source, before it was read.

    `seen` is UNKNOWN where nobody says when it was read.
    """
    since_raw_ns = since.raw_ns or 0
    if seen is UNKNOWN:
        if since.raw_ns is None:
            return UNKNOWN
        return When(
            clock_id=since.clock_id, raw_ns=since_raw_ns, resolution_ns=TIME_MAX_NS - since_raw_ns,
            aligned_ns=since.aligned_ns, lo_ns=since.lo_ns, inferred=since.inferred,
        )  # fmt: skip
    if seen.raw_ns is None:
        return seen
    start_ns = min(since_raw_ns, seen.raw_ns) if since.clock_id == seen.clock_id and since_raw_ns else 0
    return When(
        clock_id=seen.clock_id, raw_ns=start_ns, resolution_ns=seen.raw_ns - start_ns,
        aligned_ns=seen.aligned_ns, lo_ns=min(since.lo_ns, seen.lo_ns) if start_ns else seen.lo_ns - DAY_NS,
        hi_ns=seen.hi_ns,
    )  # fmt: skip


def arrived(arrival_ns: int) -> When:
    """Bounds of a line of a node whose clock cannot be right: it was written before it arrived, and not long before."""
    return When(aligned_ns=arrival_ns, lo_ns=arrival_ns - DAY_NS, hi_ns=arrival_ns)
