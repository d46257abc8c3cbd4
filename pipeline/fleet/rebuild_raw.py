"""Stored lines as the records that shippers sent of them, with what was measured of their clocks."""

from collections.abc import Iterator, Mapping
from datetime import date
from itertools import groupby
from typing import Any, Final

import msgspec
from msgspec import Struct

from pipeline.core.times import DEFAULT_BOUND_NS, SECOND_NS
from pipeline.store.clickhouse import Store
from pipeline.store.sqlfiles import statement
from schemas.records import (
    Annotation,
    ClockClaim,
    ClockReading,
    Event,
    Progress,
    RawBatch,
    RawLine,
    SourceProgress,
)
from schemas.topics import key_of

FOLDER: Final = "rebuild"
MS_NS: Final = 1_000_000
# Lines of one shipper's batch, as long as all of them are stored; what it sent at once is read at once.
CLAIMED_BY: Final = "clock_segments"
# By how much a line of the kernel log may have been read late where no measurement places it.
READ_LATE_NS: Final = SECOND_NS
_TIME_FIELDS: Final = {
    "clock_id": "clock_id", "raw_ns": "raw_ns", "monotonic_raw_ns": "monotonic_raw_ns",
    "monotonic_raw_width_ns": "monotonic_raw_width_ns", "aligned_ns": "aligned_time_unix_nano",
    "lo_ns": "lo_unix_nano", "hi_ns": "hi_unix_nano", "u99_ns": "u99_ns", "clock_epoch": "clock_epoch",
    "reference_broker": "reference_broker", "quality": "quality",
}  # fmt: skip


class Reporter(Struct, frozen=True, kw_only=True):
    """A machine that sent lines in the days."""

    run_id: str
    cluster: str
    name: str
    lines: int

    @property
    def key(self) -> bytes:
        """Its key on the topic of raw lines."""
        return key_of("live", self.run_id, self.cluster, self.name)

    @property
    def parameters(self) -> dict[str, str]:
        """What names it in a query."""
        return {"run_id": self.run_id, "cluster": self.cluster, "reporter": self.name}


class Clocks(Struct, frozen=True, kw_only=True):
    """What is known of a reporter's clocks: by boot a claim that measured segments make, and a kernel stamp (ns since
    boot) with the wall time (ns) at which it was read.
    """

    claims: dict[str, ClockClaim]
    kernel_reads: dict[str, tuple[int, int]]

    def reading(self, boot_id: str, wall_ns: int) -> ClockReading:
        """The clocks of a boot when its wall clock showed this. `boottime_ns` is ahead by how late a line was read."""
        read = self.kernel_reads.get(boot_id)
        if read is None:
            return ClockReading(raw_ns=0, mono_ns=0, boottime_ns=0, wall_ns=wall_ns)
        boot_ns = read[0] + wall_ns - read[1]
        return ClockReading(raw_ns=0, mono_ns=boot_ns, boottime_ns=boot_ns + READ_LATE_NS, wall_ns=wall_ns)


class Sent(Struct, frozen=True, kw_only=True):
    """A batch as it is read again, and its own number. Read again they are numbered as they come: what the midnight
    between two days cut in two has its number twice.
    """

    batch: RawBatch
    batch_seq: int
    arrived_ns: int


def reporters(store: Store, window: Mapping[str, Any]) -> list[Reporter]:
    """Who sent lines; those that speak of others first."""
    return [
        Reporter(run_id=run_id, cluster=cluster, name=name, lines=lines)
        for run_id, cluster, name, lines in store.rows(statement("reporters", FOLDER), window)
    ]


def clocks_of(store: Store, who: Reporter, window: Mapping[str, Any]) -> Clocks:
    """What was measured of the clocks of a reporter in the days."""
    named = {**window, **who.parameters}
    ends = store.rows(statement("clock_ends", FOLDER), named)
    claims = {boot_id: _claim([row[1:] for row in rows]) for boot_id, rows in groupby(ends, key=lambda row: row[0])}
    reads = {
        boot_id: (int(kernel_ns), int(wall_ns))
        for boot_id, kernel_ns, wall_ns in store.rows(statement("kernel_reads", FOLDER), named)
    }
    return Clocks(claims=claims, kernel_reads=reads)


def _claim(ends: list[Any]) -> ClockClaim:
    """Ends of segments as a claim: between two of them the wall clock may have been moved there and back."""
    knots: list[tuple[int, int, int, int]] = []
    for number, (wall_ns, offset_ns, bound_ns, _) in enumerate(ends):
        follows = ends[number + 1] if number + 1 < len(ends) else None
        astray_ns = 0 if follows is None else max(abs(follows[1] - offset_ns), follows[3])
        knots.append((wall_ns, offset_ns, bound_ns, astray_ns))
    return ClockClaim(offset_ns=0, bound_ns=DEFAULT_BOUND_NS, by=CLAIMED_BY, knots=knots)


def batches(store: Store, who: Reporter, day: date, clocks: Clocks, first: int) -> Iterator[Sent]:
    """The batches of a reporter on a day, numbered from `first`."""
    lines = _lines(store, who, day)
    for number, (head, rows) in enumerate(groupby(lines, key=lambda row: row[:4]), first):
        shipper_id, batch_seq, boot_id, machine_id = head
        found = list(rows)
        arrived_ns = max(row[16] for row in found) * MS_NS
        wall_ns = max(row[12] for row in found) or arrived_ns
        batch = RawBatch(
            run="live", run_id=who.run_id, cluster=who.cluster, reporter=who.name, boot_id=boot_id,
            shipper_id=shipper_id, batch_seq=number, clock=clocks.reading(boot_id, wall_ns),
            machine_id=machine_id or None, clock_claim=clocks.claims.get(boot_id), records=[_line(r) for r in found],
            source_attributes={row[5]: dict(row[14]) for row in found},
        )  # fmt: skip
        yield Sent(batch=batch, batch_seq=batch_seq, arrived_ns=arrived_ns)


def _lines(store: Store, who: Reporter, day: date) -> Iterator[Any]:
    for block in store.blocks(statement("raw_lines", FOLDER), {**who.parameters, "day": day}):
        yield from block


def _line(row: Any) -> RawLine:
    _, _, _, _, seq, source, generation, offset, line_no, truncated, kernel_ns, time_ns, observed_ns, body, *rest = row
    return RawLine(
        seq=seq, source=source, generation=generation, offset=offset, body=body, line_no=line_no,
        time_unix_nano=None if time_ns == observed_ns else time_ns, kernel_time_ns=kernel_ns,
        observed_time_unix_nano=observed_ns, attributes=dict(rest[1]), truncated=truncated,
    )  # fmt: skip


def annotations(store: Store, who: Reporter, day: date) -> Iterator[Annotation]:
    """The marks that jobs sent by themselves, as records that give the same events again."""
    for node, source, at_ns, body, rank, job_id, attempt, said in store.rows(
        statement("annotations", FOLDER), {**who.parameters, "day": day}
    ):
        kind = body.partition("kind=")[2].partition(" ")[0]
        step = said.get("step", "")
        yield Annotation(
            run="live", run_id=who.run_id, cluster=who.cluster, reporter=who.name, node=node, kind=kind, job_id=job_id,
            attempt=attempt, start_unix_nano=at_ns, rank=rank, step=int(step) if step.isdecimal() else None,
            phase=said.get("phase"), source=source,
        )  # fmt: skip


def end_of(store: Store, who: Reporter, sent: Sent, seen: Mapping[str, Mapping[str, str]]) -> Progress:
    """That all lines were read, of every source that is known. `seen`: the attributes of those that had lines."""
    told = {source: (kind, state, reason) for source, kind, state, reason in store.rows(
        statement("sources", FOLDER), who.parameters
    )}  # fmt: skip
    sources = [
        SourceProgress(
            source=name, kind=told[name][0] if name in told else seen[name].get("kind", "application"),
            state=told[name][1] if name in told and name not in seen else "on",
            reason=(told[name][2] or None) if name in told and name not in seen else None,
            read_through_unix_nano=sent.batch.clock.wall_ns, at_end=True, attributes=dict(seen.get(name, {})),
        )
        for name in sorted(told.keys() | seen.keys())
    ]  # fmt: skip
    batch = sent.batch
    return Progress(
        run="live", run_id=who.run_id, cluster=who.cluster, reporter=who.name, boot_id=batch.boot_id,
        shipper_id=batch.shipper_id, last_batch_seq=batch.batch_seq, clock=batch.clock, machine_id=batch.machine_id,
        clock_claim=batch.clock_claim, sources=sources, ended=True,
    )  # fmt: skip


def measured_times(store: Store, who: Reporter, day: date) -> dict[str, dict[str, Any]]:
    """By event id where stored events of a day are in time, as far as that was measured."""
    rows = store.rows(statement("measured", FOLDER), {**who.parameters, "day": day})
    return {row[0]: dict(zip(_TIME_FIELDS.values(), row[1:], strict=True)) for row in rows}


def as_measured(event: Event, known: Mapping[str, dict[str, Any]]) -> Event:
    """The event where it was placed when its line came, if today's signals read the same stamp off the line.

    What segments that were known later say of it is the business of `events_aligned`.
    """
    found = known.get(event.event_id)
    if found is None or (event.raw_ns != found["raw_ns"] and event.kernel is None):
        return event
    return msgspec.structs.replace(event, **found)
