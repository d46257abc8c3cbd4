"""Segments of a node's clock as records for the topic `clock.segments`."""

from collections.abc import Iterable
from typing import Final

from pipeline.core.clocks.node import Closed
from pipeline.core.outputs import Output
from schemas import topics
from schemas.records import ClockSegment, Progress, RawBatch

# How often it is said that a node's clock is not measured (its raw clock, ns).
UNMEASURED_AGAIN_NS: Final = 60_000_000_000
NOT_MEASURED: Final = "no clock beacon of this boot was acknowledged"
NOT_YET: Final = f"{NOT_MEASURED} yet"
TOO_LONG_AGO: Final = "no clock beacon was acknowledged for so long that the clock is not known to a second"


def segments_of(record: RawBatch | Progress, closed: Iterable[Closed]) -> list[Output]:
    """The segments that have ended with a record."""
    return [
        _output(
            ClockSegment(
                run=record.run, run_id=record.run_id, cluster=record.cluster, node=record.reporter,
                boot_id=each.boot_id, broker_id=each.broker_id, epoch=each.segment.epoch,
                t_from_raw_ns=each.segment.t_from_ns,
                t_to_raw_ns=each.segment.t_to_ns, a_ns=each.segment.a_ns, b_ppb=each.segment.b_ppb,
                lo_ns=each.segment.lo_ns, hi_ns=each.segment.hi_ns, u99_ns=each.segment.u99_ns,
                quality=each.segment.quality, wall_offset_ns=each.wall_offset_ns, wall_step_ns=each.wall_step_ns,
            )
        )
        for each in closed
    ]  # fmt: skip


def unmeasured(record: Progress, fault: str, *, before: bool, is_first: bool) -> Output:
    """That nothing is measured of a node's clock (any more, where it was before), and what else is wrong with it.

    `is_first`: it is said of this boot for the first time, so the node may just have started.
    """
    reason = TOO_LONG_AGO if before else NOT_YET if is_first else NOT_MEASURED
    raw_ns = record.clock.raw_ns
    return _output(
        ClockSegment(
            run=record.run, run_id=record.run_id, cluster=record.cluster, node=record.reporter, boot_id=record.boot_id,
            broker_id=-1, epoch=0, t_from_raw_ns=raw_ns, t_to_raw_ns=raw_ns, a_ns=0, b_ppb=0, lo_ns=0, hi_ns=0,
            u99_ns=0, quality="none", reason=f"{reason}; the clock {fault}" if fault else reason,
        )
    )  # fmt: skip


def _output(segment: ClockSegment) -> Output:
    prefix = topics.run_prefix(segment.run, segment.run_id)
    key = f"{prefix}{segment.cluster}/{segment.node}/{segment.boot_id}/{segment.broker_id}"
    return Output(topic=topics.CLOCK_SEGMENTS.name, key=key.encode(), record=segment)
