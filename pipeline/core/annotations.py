"""Annotation records of a training job become marks of progress, like the lines `rootrank: step=120 phase=train`."""

from collections.abc import Iterator

from pipeline.core import keys, times
from pipeline.core.marks import RECORDS
from schemas.records import Annotation, ClockReading, Entity, Event, Printer, RawBatch


def events_of(record: Annotation, last: RawBatch | None, arrival_ns: int | None) -> Iterator[Event]:
    """The mark at its start; where it has an end, another one that ends the phase.

    `last`: a batch of the same reporter, for what is claimed of its clock; `arrival_ns`: broker time of the record,
    where that clock cannot be right.
    """
    said = {"step": None if record.step is None else str(record.step), "phase": record.phase}
    yield _event(record, record.start_unix_nano, {k: v for k, v in said.items() if v}, last, arrival_ns)
    if record.end_unix_nano is not None:
        yield _event(record, record.end_unix_nano, {"phase": "train"}, last, arrival_ns)


def _event(
    record: Annotation, at_ns: int, said: dict[str, str], last: RawBatch | None, arrival_ns: int | None
) -> Event:
    when = (
        times.arrived(arrival_ns)
        if arrival_ns is not None
        else times.wall_time(at_ns, 0, record.node, _batch(record, last))
    )
    body = " ".join([f"annotation: kind={record.kind}", *(f"{name}={value}" for name, value in said.items())])
    who = "" if record.rank is None else str(record.rank)
    return Event(
        event_id=keys.digest(record.cluster, record.reporter, RECORDS, record.job_id, record.attempt, who, at_ns, body),
        name="train.mark", node=record.node, source=RECORDS, generation=record.source, offset=at_ns, body=body,
        clock_id=when.clock_id, raw_ns=when.raw_ns, resolution_ns=when.resolution_ns,
        aligned_time_unix_nano=when.aligned_ns, lo_unix_nano=when.lo_ns, hi_unix_nano=when.hi_ns, quality=when.quality,
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
