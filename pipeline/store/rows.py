"""Records as table rows. Pure: the same record, delivered the same way, gives the same rows."""

from collections.abc import Iterator
from hashlib import blake2b
from typing import Any, Final

import msgspec
from msgspec import Struct

from pipeline.core.keys import NODE_PREFIX
from pipeline.core.trust import Judged
from pipeline.store import tables
from pipeline.store.fleet_rows import observed_row, streamed_rows
from pipeline.store.incident_rows import identifiers, incident_rows
from pipeline.store.tables import Table
from pipeline.store.values import (
    day,
    optional_time_ns,
    optional_unsigned,
    signed,
    time_ms,
    time_ns,
    unsigned,
)
from schemas import records as r
from schemas.codec import tag_of
from schemas.vocabulary import SEVERITY_NUMBER

Row = tuple[Any, ...]
TableRow = tuple[Table, Row]

OFFSET_BITS: Final = 20
# Syslog priorities, as the kernel's records carry them, in the OpenTelemetry log model: text and number.
SYSLOG_SEVERITY: Final = {
    "0": ("fatal", 21), "1": ("critical", 19), "2": ("critical", 18), "3": ("error", 17), "4": ("warning", 13),
    "5": ("info", 10), "6": ("info", 9), "7": ("debug", 5),
}  # fmt: skip


class Delivery(Struct, frozen=True, kw_only=True):
    """How a record reached the sink: Kafka's offset and time stamp (ms). Equal for every delivery of one message."""

    timestamp_ms: int
    offset: int
    partition: int = 0

    @property
    def version(self) -> int:
        """Grows with every message of a partition; the row of the highest version stands."""
        return unsigned((self.timestamp_ms << OFFSET_BITS) | (self.offset & (2**OFFSET_BITS - 1)))


def rows_of(record: object, delivery: Delivery) -> Iterator[TableRow]:
    """All rows of a record, in no particular order of tables. A record that no table keeps has none."""
    match record:
        case r.RawBatch():
            yield from _raw_lines(record, delivery)
            yield from _gaps(record, delivery)
            yield _shipper(record, delivery)
        case r.Progress():
            yield from _progress(record, delivery)
            yield _shipper(record, delivery)
            yield observed_row(record, delivery.timestamp_ms)
        case r.Span() | r.Topology() | r.Attempt() | r.NodeFacts():
            yield from streamed_rows(record, delivery.timestamp_ms, delivery.version)
        case r.EventBatch():
            yield from _events(record, delivery)
            yield from _event_jobs(record, delivery)
            yield from _gaps(record, delivery)
        case r.JobAlias():
            yield from _aliases(record, delivery)
        case r.Incident():
            yield from incident_rows(record, delivery.version)
        case r.Placement():
            yield _placement(record, delivery)
        case r.ClockSegment():
            yield from _clock(record, delivery)
        case r.DeadLetter():
            yield _dead_letter(record, delivery)
        case Judged():
            yield from _judged(record, delivery)
        case _:
            return


def _judged(judged: Judged, delivery: Delivery) -> Iterator[TableRow]:
    """What is proven, as always; what is not, in a table of its own, and beside it where it counts all the same."""
    record = judged.record
    if judged.doubt:
        yield from _unverified(judged, delivery)
    if isinstance(record, r.Release) and not judged.doubt:
        yield from _released(record, delivery)
    elif isinstance(record, Struct) and (not judged.doubt or judged.counts):
        yield from rows_of(record, delivery)


def _unverified(judged: Judged, delivery: Delivery) -> Iterator[TableRow]:
    """Each line of a batch; of another record one row, and of progress one that the next replaces."""
    record = judged.record
    assert isinstance(record, r.RawBatch | r.Progress | r.Release)
    batch = record.batch if isinstance(record, r.Release) else record
    is_progress = isinstance(record, r.Progress)
    head = (
        record.run, record.run_id, record.cluster, record.reporter, 0 if is_progress else delivery.partition,
        0 if is_progress else unsigned(delivery.offset),
    )  # fmt: skip
    about = (f"no: {judged.doubt}", judged.counts, tag_of(type(record)), (record.key_id or "")[:64], batch.shipper_id)
    seq = batch.batch_seq if isinstance(batch, r.RawBatch) else batch.last_batch_seq
    tail = (time_ms(delivery.timestamp_ms), delivery.version)
    lines = batch.records if isinstance(batch, r.RawBatch) else []
    said = batch.source_attributes if isinstance(batch, r.RawBatch) else {}
    for number, line in enumerate(lines, 1):
        node = said.get(line.source, {}).get("node", batch.reporter)
        yield tables.UNVERIFIED, (
            *head, number, *about, unsigned(seq), line.source, unsigned(line.offset), optional_unsigned(line.line_no),
            node, line.body, time_ns(line.observed_time_unix_nano), *tail,
        )  # fmt: skip
    if not lines:
        yield tables.UNVERIFIED, (*head, 0, *about, unsigned(seq), "", 0, None, "", "", 0, *tail)


def _released(release: r.Release, delivery: Delivery) -> Iterator[TableRow]:
    """The lines take their place among the others, and who let them in is kept beside."""
    head = (release.run, release.run_id, release.cluster, release.reporter)
    yield tables.RELEASES, (
        *head, unsigned(release.partition, 32), unsigned(release.offset), release.who, release.why,
        len(release.batch.records), release.key_id or "", time_ns(release.released_unix_nano), delivery.version,
    )  # fmt: skip
    said = {
        source: {**release.batch.source_attributes.get(source, {}), "released.by": release.who}
        for source in {line.source for line in release.batch.records}
    }
    batch = msgspec.structs.replace(
        release.batch, run=release.run, run_id=release.run_id, cluster=release.cluster, reporter=release.reporter,
        source_attributes=said,
    )  # fmt: skip
    yield from _raw_lines(batch, delivery)


def _raw_lines(batch: r.RawBatch, delivery: Delivery) -> Iterator[TableRow]:
    head = (batch.run, batch.run_id, batch.cluster, batch.reporter)
    batch_seq, version = unsigned(batch.batch_seq), delivery.version
    machine_id = batch.machine_id or ""
    for line in batch.records:
        said = batch.source_attributes.get(line.source, {})
        observed_ns = time_ns(line.observed_time_unix_nano)
        yield tables.RAW_LINES, (
            *head, line.source, line.generation, unsigned(line.offset), day(observed_ns),
            optional_unsigned(line.line_no), unsigned(line.seq), batch_seq, batch.shipper_id, batch.boot_id, machine_id,
            said.get("node", batch.reporter), line.truncated, signed(line.kernel_time_ns),
            observed_ns if line.time_unix_nano is None else time_ns(line.time_unix_nano), observed_ns,
            *SYSLOG_SEVERITY.get(line.attributes.get("kmsg.priority", ""), ("", 0)), said.get("kind", ""),
            line.body, said, line.attributes, version,
        )  # fmt: skip


def _gaps(batch: r.RawBatch | r.EventBatch, delivery: Delivery) -> Iterator[TableRow]:
    for gap in batch.gaps:
        yield tables.GAPS, (
            batch.run, batch.run_id, batch.cluster, batch.reporter, batch.shipper_id, unsigned(batch.batch_seq),
            gap.source, gap.reason, gap.node or batch.reporter, optional_unsigned(gap.from_offset),
            optional_unsigned(gap.to_offset), optional_unsigned(gap.lost_lines), optional_unsigned(gap.lost_bytes),
            time_ms(delivery.timestamp_ms), delivery.version,
        )  # fmt: skip


def _shipper(record: r.RawBatch | r.Progress, delivery: Delivery) -> TableRow:
    at_ms = time_ms(delivery.timestamp_ms)
    return tables.SHIPPERS, (
        record.run, record.run_id, record.cluster, record.reporter, record.shipper_id, at_ms, at_ms,
    )  # fmt: skip


def _progress(progress: r.Progress, delivery: Delivery) -> Iterator[TableRow]:
    head = (progress.run, progress.run_id, progress.cluster, progress.reporter)
    who = (progress.shipper_id, progress.boot_id, progress.machine_id or "")
    tail = (
        progress.ended, unsigned(progress.last_batch_seq), unsigned(progress.spool_backlog_bytes),
        time_ns(progress.clock.wall_ns), time_ms(delivery.timestamp_ms), delivery.version,
    )  # fmt: skip
    yield tables.PROGRESS, (*head, "", *who, "", "on", "", 0, 0, progress.ended, *tail)
    for source in progress.sources:
        yield tables.PROGRESS, (
            *head, source.source, *who, source.kind, source.state, source.reason or "",
            time_ns(source.read_through_unix_nano), unsigned(source.backlog_bytes), source.at_end, *tail,
        )  # fmt: skip


def _events(batch: r.EventBatch, delivery: Delivery) -> Iterator[TableRow]:
    head = (batch.run, batch.run_id, batch.cluster, batch.reporter)
    machine_id, batch_seq, version = batch.machine_id or "", unsigned(batch.batch_seq), delivery.version
    for e in batch.events:
        observed_ns = time_ns(e.observed_time_unix_nano)
        yield tables.EVENTS, (
            *head, e.event_id, day(observed_ns), e.name, e.node, batch.boot_id, machine_id, batch.shipper_id, batch_seq,
            e.source, e.generation, unsigned(e.offset), optional_unsigned(e.line_no), unsigned(e.seq), e.body,
            e.clock_id, signed(e.raw_ns), signed(e.monotonic_raw_ns), unsigned(e.monotonic_raw_width_ns),
            observed_ns, optional_time_ns(e.aligned_time_unix_nano), time_ns(e.lo_unix_nano), time_ns(e.hi_unix_nano),
            optional_unsigned(e.u99_ns), unsigned(e.clock_epoch, 32), signed(e.reference_broker, 32), e.quality,
            e.severity, SEVERITY_NUMBER[e.severity], e.label, e.role, e.scope, *identifiers(e.subject), e.attributes,
            unsigned(e.count), e.alerts, version,
        )  # fmt: skip


def _event_jobs(batch: r.EventBatch, delivery: Delivery) -> Iterator[TableRow]:
    if batch.job_id is None and batch.job_key.startswith(NODE_PREFIX):
        return
    for event in batch.events:
        yield tables.EVENT_JOBS, (
            batch.run, batch.run_id, batch.cluster, batch.job_key, event.event_id,
            day(time_ns(event.observed_time_unix_nano)), batch.job_id or "", unsigned(batch.attempt, 32),
            batch.reporter, delivery.version,
        )  # fmt: skip


def _aliases(record: r.JobAlias, delivery: Delivery) -> Iterator[TableRow]:
    for alias in record.aliases:
        if alias != record.job_key:
            yield tables.JOB_ALIASES, (
                record.run, record.run_id, record.cluster, alias, record.job_key, record.why, delivery.version,
            )  # fmt: skip


def _placement(record: r.Placement, delivery: Delivery) -> TableRow:
    spans = [
        (
            s.job_id, unsigned(s.attempt, 32), time_ns(s.start_unix_nano), optional_time_ns(s.end_unix_nano),
            signed(s.rank, 32), signed(s.local_rank, 32), optional_unsigned(s.world_size, 32), signed(s.pid),
            s.gpu_uuid, s.pci_bus_id, signed(s.gpu_index, 32), s.owner, s.scheduler, s.source,
        )
        for s in record.spans
    ]  # fmt: skip
    return tables.PLACEMENT, (record.run, record.run_id, record.cluster, record.node, spans, delivery.version)


def _clock(s: r.ClockSegment, delivery: Delivery) -> Iterator[TableRow]:
    head, broker_id = (s.run, s.run_id, s.cluster, s.node), signed(s.broker_id, 32)
    slope, bounds = signed(s.b_ppb), (signed(s.lo_ns), signed(s.hi_ns), unsigned(s.u99_ns))
    tail = (s.reason, time_ms(delivery.timestamp_ms), delivery.version)
    epoch, offset_ns = unsigned(s.epoch, 32), signed(s.wall_offset_ns)
    yield tables.CLOCK_SEGMENTS, (
        *head, s.boot_id, broker_id, signed(s.t_from_raw_ns), signed(s.t_to_raw_ns), epoch, signed(s.a_ns), slope,
        *bounds, s.quality, offset_ns, signed(s.wall_step_ns), *tail,
    )  # fmt: skip
    yield tables.CLOCKS, (*head, broker_id, s.boot_id, epoch, slope, *bounds, s.quality, offset_ns, *tail)


def _dead_letter(letter: r.DeadLetter, delivery: Delivery) -> TableRow:
    digest = blake2b(letter.data.encode(), digest_size=8).digest()
    return tables.DEAD_LETTERS, (
        letter.topic, unsigned(letter.partition, 32), unsigned(letter.offset), letter.reason,
        int.from_bytes(digest, "big"), letter.key, letter.data, time_ns(letter.observed_time_unix_nano),
        time_ms(delivery.timestamp_ms), delivery.version,
    )  # fmt: skip
