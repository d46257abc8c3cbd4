"""Times by what is measured of a node's clocks, in place of what is claimed of them."""

from typing import Final

import msgspec

from pipeline.core.clocks.node import BootClock, NodeClock, Placed
from pipeline.core.times import DEFAULT_BOUND_NS, KERNEL_CLOCK_PPM, UNKNOWN, When, is_one, read_wall_ns, slept_ns
from schemas.records import TIME_MAX_NS, TIME_MIN_NS, ClockReading, ClockStamp, Progress

# The first boot heard of, before the first step: the clock that all stamps of a node were on before it was measured.
FIRST_STRETCH: Final = "0.0"
NO_READING: Final = ClockReading(raw_ns=0, mono_ns=0, boottime_ns=0, wall_ns=0)


def measured(
    when: When, clock: NodeClock, node: str, reporter: str, boot_id: str, since: When = UNKNOWN,
    reading: ClockReading = NO_READING,
) -> When:  # fmt: skip
    """The same moment with measured bounds, where it was read off a clock of the reporter and that is measured.

    `since` is the line before it in its file; `reading` one of the boot, from which kernel stamps were placed.
    """
    if when.raw_ns is None or when.clock_id != f"{node}/wall" or not is_one(node, reporter):
        return when
    if when.kernel is not None:
        placed, when = _kernel(when, when.kernel, clock, node, boot_id, reading)
        if placed is not None:
            return _as_placed(when, placed, node, when.stretch, boot_id)
    assert when.raw_ns is not None
    shown_ns = when.raw_ns
    until = (boot_id, reading.raw_ns) if reading.raw_ns else None
    placed = clock.wall(shown_ns, when.resolution_ns, since=_line_before(since), until=until)
    if placed is not None:
        return _as_placed(when, placed, node, placed.stretch, boot_id)
    guess = clock.guess(shown_ns)
    if guess is None or not TIME_MIN_NS <= shown_ns + guess[0] <= TIME_MAX_NS:
        return when
    at_ns, off_ns, stretch = shown_ns + guess[0], guess[1] + DEFAULT_BOUND_NS, guess[2]
    return msgspec.structs.replace(
        when, clock_id=_clock_id(node, stretch), stretch=stretch, aligned_ns=at_ns,
        lo_ns=max(at_ns - off_ns, TIME_MIN_NS), hi_ns=min(at_ns + when.resolution_ns + off_ns, TIME_MAX_NS),
        quality="holdover",
    )  # fmt: skip


def _line_before(since: When) -> tuple[int, int] | None:
    """Boot number and raw time of a line, where they are certain."""
    if since.monotonic_raw_ns is None or not since.stretch:
        return None
    return int(since.stretch.partition(".")[0]), since.monotonic_raw_ns


def _kernel(
    when: When, stamp: ClockStamp, clock: NodeClock, node: str, boot_id: str, reading: ClockReading
) -> tuple[Placed | None, When]:
    """A moment of the kernel log: by what relates its clock to the raw clock, else by a reading of both."""
    boot = clock.boot(boot_id)
    if boot is None or not reading.wall_ns:
        return None, when
    placed = None
    if stamp.clock_id == f"{node}/{boot_id}/kernel" or (not boot_id and _is_of_source(stamp, node)):
        placed = clock.kernel(boot_id, stamp.raw_ns)
        if placed is None:
            # What the kernel's clock has gained or lost on CLOCK_MONOTONIC since the boot, and since the line; and it
            # may have counted on while the node slept.
            age_ns, asleep_ns = reading.mono_ns - stamp.raw_ns, slept_ns(reading)
            off_ns = (abs(age_ns) + abs(reading.mono_ns)) * KERNEL_CLOCK_PPM // 1_000_000
            placed = boot.place_one(reading.raw_ns - age_ns - off_ns - asleep_ns, reading.raw_ns - age_ns + off_ns)
            when = msgspec.structs.replace(
                when, raw_ns=(when.raw_ns or 0) - off_ns, resolution_ns=when.resolution_ns + 2 * off_ns
            )
    elif stamp.clock_id.endswith("/dmesg"):
        # The tool that worked out the time went by the wall clock as it was when it ran, after all that it prints.
        raw_ns = (when.raw_ns or 0) - reading.wall_ns + reading.raw_ns
        placed = boot.place_one(raw_ns, raw_ns + when.resolution_ns)
    return placed, when if placed is None else _on_wall(when, placed, boot)


def _is_of_source(stamp: ClockStamp, node: str) -> bool:
    """Whether a kernel's stamp is named by its source, as where no boot id is known; not by when its boot began."""
    return stamp.clock_id.startswith(f"{node}/") and stamp.clock_id.endswith("/kernel") and stamp.clock_id[-8] != "Z"


def _on_wall(when: When, placed: Placed, boot: BootClock) -> When:
    """What the wall clock showed at a moment of the kernel log, so that it compares with lines stamped by that."""
    shown = boot.wall.shown_at(placed.raw_lo_ns)
    if shown is None or not placed.stretch:
        return msgspec.structs.replace(when, stretch="")
    return msgspec.structs.replace(
        when, raw_ns=shown.ns - shown.off_ns, resolution_ns=placed.raw_hi_ns - placed.raw_lo_ns + 2 * shown.off_ns,
        stretch=f"{boot.number}.{shown.steps}",
    )  # fmt: skip


def _as_placed(when: When, placed: Placed, node: str, stretch: str, boot_id: str) -> When:
    """`when` at a measured moment. Stamps between two steps of the wall clock compare exactly, as before.

    The raw time of another boot than `boot_id`, which reads the line, is not told: it would be taken for one of this.
    """
    is_of_boot = placed.boot_id == boot_id
    return msgspec.structs.replace(
        when, clock_id=_clock_id(node, stretch), aligned_ns=placed.at_ns, lo_ns=max(placed.lo_ns, TIME_MIN_NS),
        hi_ns=min(placed.hi_ns, TIME_MAX_NS),
        quality=placed.quality, monotonic_raw_ns=placed.raw_lo_ns if is_of_boot else None,
        monotonic_raw_width_ns=placed.raw_hi_ns - placed.raw_lo_ns if is_of_boot else 0, u99_ns=placed.u99_ns,
        epoch=placed.epoch, broker_id=placed.broker_id, stretch=stretch,
    )  # fmt: skip


def _clock_id(node: str, stretch: str) -> str:
    """The name of a wall clock between two of its steps: stamps compare where it is the same; none where it is many."""
    return f"{node}/wall" if stretch == FIRST_STRETCH else f"{node}/wall/{stretch}" if stretch else ""


def read_through(progress: Progress, clock: NodeClock | None) -> int:
    """Reference time up to which every source of a reporter has been read for certain; 0 where nothing is said."""
    read_ns, claimed_ns = read_wall_ns(progress)
    if clock is None or not read_ns:
        return claimed_ns
    placed = clock.wall(read_ns)
    if placed is not None:
        return placed.lo_ns
    guess = clock.guess(read_ns)
    return claimed_ns if guess is None else max(read_ns + guess[0] - guess[1] - DEFAULT_BOUND_NS, 0)
