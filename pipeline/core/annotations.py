"""Annotation records of a training job become marks of progress, like the lines `rootrank: step=120 phase=train`."""

from collections.abc import Iterator

from pipeline.core import keys, times
from pipeline.core.clocks.node import NodeClock
from pipeline.core.marks import RECORDS
from pipeline.core.measured import measured
from pipeline.core.times import When
from schemas.records import Annotation, ClockReading, Entity, Event, Printer, RawBatch


def events_of(
    record: Annotation, last: RawBatch | None, arrival: When | None, clock: NodeClock | None
) -> Iterator[Event]:
    """The mark at its start; where it has an end, another one that ends the phase.

    `last`: a batch of the same reporter, for what is claimed of its clock; `arrival`: when the record arrived, where
    that clock cannot be right; `clock`: what is measured of it.
    """
    said = {"step": None if record.step is None else str(record.step), "phase": record.phase}
    yield _event(record, record.start_unix_nano, {k: v for k, v in said.items() if v}, last, arrival, clock)
    if record.end_unix_nano is not None:
        yield _event(record, record.end_unix_nano, {"phase": "train"}, last, arrival, clock)


def _event(
    record: Annotation, at_ns: int, said: dict[str, str], last: RawBatch | None, arrival: When | None,
    clock: NodeClock | None,
) -> Event:  # fmt: skip
    batch = _batch(record, last)
    when = arrival
    if when is None:
        shown = times.wall_time(at_ns, 0, record.node, batch)
        when = shown if clock is None else measured(shown, clock, record.node, record.reporter, batch.boot_id)
    body = " ".join([f"annotation: kind={record.kind}", *(f"{name}={value}" for name, value in said.items())])
    who = "" if record.rank is None else str(record.rank)
    return Event(
        event_id=keys.digest(record.cluster, record.reporter, RECORDS, record.job_id, record.attempt, who, at_ns, body),
        name="train.mark", node=record.node, source=RECORDS, generation=record.source, offset=at_ns, body=body,
        clock_id=when.clock_id, raw_ns=when.raw_ns, resolution_ns=when.resolution_ns,
        aligned_time_unix_nano=when.aligned_ns, lo_unix_nano=when.lo_ns, hi_unix_nano=when.hi_ns, quality=when.quality,
        monotonic_raw_ns=when.monotonic_raw_ns, monotonic_raw_width_ns=when.monotonic_raw_width_ns,
        u99_ns=when.u99_ns, clock_epoch=when.epoch, reference_broker=when.broker_id,
        severity="debug", label="context/progress", role="context", scope="rank",
        subject=Entity(node=record.node, rank=record.rank), printer=Printer(node=record.node, rank=record.rank),
        attributes=said,
    )  # fmt: skip


def _batch(record: Annotation, last: RawBatch | None) -> RawBatch:
    nothing = ClockReading(raw_ns=0, mono_ns=0, boottime_ns=0, wall_ns=0)
    return last or RawBatch(
        run=record.run, run_id=record.run_id, cluster=record.cluster, reporter=record.reporter, boot_id="",
        shipper_id="", batch_seq=0, clock=nothing,
    )  # fmt: skip
