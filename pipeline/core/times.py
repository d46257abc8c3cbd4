"""From the time a line claims to bounds on the reference timeline.

Every event carries [lo, hi] from the start. Here the bounds come from a claim (the manifest's, the site's, or the
default of +-5 s); measured segments replace the claim without touching the callers.
"""

from typing import Final

import msgspec
from msgspec import Struct

from pipeline.core.stamps import Stamp, resolve
from schemas.records import TIME_MAX_NS, TIME_MIN_NS, ClockClaim, Progress, RawBatch, RawLine
from schemas.vocabulary import Quality, Run

SECOND_NS: Final = 1_000_000_000
DAY_NS: Final = 86_400 * SECOND_NS
# Without any claim, clocks of different nodes are taken to agree within this (NTP in trouble, not NTP at work).
DEFAULT_BOUND_NS: Final = 5 * SECOND_NS
# printk's clock and CLOCK_MONOTONIC may run apart; crystals stay within 100 ppm of each other.
KERNEL_CLOCK_PPM: Final = 100
# A stamp outside these years is a clock that was never set, not a time.
EARLIEST_NS: Final = 1_104_537_600 * SECOND_NS  # 2005-01-01
LATEST_NS: Final = 3_786_912_000 * SECOND_NS  # 2090-01-01
# A batch may have waited in a spool for days; it cannot come from the future.
FUTURE_NS: Final = 60 * SECOND_NS
PAST_NS: Final = 60 * DAY_NS


class When(Struct, frozen=True, kw_only=True):
    """When a line was written: somewhere in [raw_ns, raw_ns + resolution_ns] on clock `clock_id`, and what that
    means on the reference timeline. Readings of one clock compare exactly; readings of two only through bounds.
    """

    clock_id: str = ""
    raw_ns: int | None = None
    resolution_ns: int = 0
    aligned_ns: int | None = None
    lo_ns: int = TIME_MIN_NS
    hi_ns: int = TIME_MAX_NS
    quality: Quality = "none"


UNKNOWN: Final = When()


def zone_offset_s(zone: str) -> int | None:
    """Seconds east of UTC of `+02:00`, `-0530`, `Z` or `UTC`; None where it is not written so."""
    if zone in ("Z", "UTC"):
        return 0
    sign, digits = zone[:1], zone[1:].replace(":", "")
    if sign not in "+-" or len(digits) != 4 or not digits.isdecimal():
        return None
    return (1 if sign == "+" else -1) * (int(digits[:2]) * 3600 + int(digits[2:]) * 60)


NO_CLAIM: Final = ClockClaim(offset_ns=0, bound_ns=DEFAULT_BOUND_NS, by="default")


def claim_of(batch: RawBatch, node: str) -> ClockClaim:
    """What is claimed of the clock of `node`: the batch speaks for its reporter's clock and for no other."""
    own = _short(node.split("/")[0]) == _short(batch.reporter.split("/")[0])
    return (batch.clock_claim or NO_CLAIM) if own else NO_CLAIM


def _short(name: str) -> str:
    """A host name without its domain; an address as it is."""
    return name if name.replace(".", "").isdigit() else name.split(".")[0]


def read_through(progress: Progress) -> int:
    """Reference time up to which every source of a reporter has been read for certain; 0 where nothing is said."""
    read_ns = min((s.read_through_unix_nano for s in progress.sources if s.state == "on"), default=0)
    claim = progress.clock_claim or NO_CLAIM
    return read_ns + claim.offset_ns - claim.bound_ns if read_ns else 0


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
    if not EARLIEST_NS <= wall_ns < LATEST_NS:
        return UNKNOWN
    claim = claim_of(batch, node)
    reference = wall_ns + claim.offset_ns
    return When(
        clock_id=f"{node}/wall",
        raw_ns=wall_ns,
        resolution_ns=resolution_ns,
        aligned_ns=reference,
        lo_ns=reference - claim.bound_ns,
        hi_ns=reference + resolution_ns + claim.bound_ns,
        quality="holdover" if claim is NO_CLAIM else "good",
    )


def kernel_time(stamp_ns: int, resolution_ns: int, node: str, batch: RawBatch) -> When:
    """Bounds of a stamp on the kernel's boot clock (ns since boot), through the batch's clock reading."""
    reading = batch.clock
    if reading.wall_ns != 0:
        age_ns = reading.mono_ns - stamp_ns
        drift_ns = abs(age_ns) * KERNEL_CLOCK_PPM // 1_000_000
        when = wall_time(reading.wall_ns - age_ns - drift_ns, resolution_ns + 2 * drift_ns, node, batch)
        if when.aligned_ns is not None:
            return msgspec.structs.replace(when, aligned_ns=when.aligned_ns + drift_ns)
    return When(clock_id=f"{node}/{batch.boot_id}/kernel", raw_ns=stamp_ns, resolution_ns=resolution_ns)


def stamped(stamp: Stamp, year: int | None, zone_s: int, hint_ns: int | None, node: str, batch: RawBatch) -> When:
    """Bounds of a parsed wall-clock stamp; `year` and `zone_s` stand in for what it leaves out."""
    resolved = resolve(stamp, year=year, zone_offset_s=zone_s, hint_unix_ns=hint_ns)
    if resolved is None:
        return UNKNOWN
    return wall_time(*resolved, node, batch)


def transported(line: RawLine, node: str, batch: RawBatch) -> When | None:
    """Bounds where the transport itself carries the time (kmsg, journal); None where it does not."""
    if line.kernel_time_ns is not None:
        return kernel_time(line.kernel_time_ns, 1_000, node, batch)
    if line.time_unix_nano is not None:
        return wall_time(line.time_unix_nano, 1_000, node, batch)
    return None


def unstamped(line: RawLine, since: When, node: str, batch: RawBatch) -> When:
    """Bounds of a line without a time of its own: written after the last stamp of its source, before it was read."""
    since_raw_ns = since.raw_ns or 0
    if line.observed_time_unix_nano == 0:
        if since.raw_ns is None:
            return UNKNOWN
        return When(
            clock_id=since.clock_id, raw_ns=since_raw_ns, resolution_ns=TIME_MAX_NS - since_raw_ns,
            aligned_ns=since.aligned_ns, lo_ns=since.lo_ns,
        )  # fmt: skip
    seen = wall_time(line.observed_time_unix_nano, 0, node, batch)
    if seen is UNKNOWN or seen.raw_ns is None:
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
