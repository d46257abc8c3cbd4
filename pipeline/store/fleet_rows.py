"""What is told of units as rows: spans and attempts of an import, and records that agents stream.

A streamed row is told apart by what it speaks of, so a record that comes again, or tells an end, replaces its row.
"""

from collections.abc import Iterator
from hashlib import blake2b
from typing import Any, Final, cast

from msgspec.structs import replace

from pipeline.core.fleet.installed import SEEN
from pipeline.core.fleet.names import NAME
from pipeline.core.fleet.records import FleetSpan, JobAttempt, SpanKind
from pipeline.store import tables
from pipeline.store.values import INT64_MAX, optional_time_ns, optional_unsigned, time_ms, time_ns, unsigned
from schemas import records as r

Row = tuple[Any, ...]
Head = tuple[str, str, str]
TableRow = tuple[tables.Table, Row]

# How agents call a state, where it is not the name of the kind.
_KINDS: Final = {"driver_upgrade": "upgrade", "driver upgrade": "upgrade", "reboot": "boot", "cordon": "drain"}
# Keys of NodeFacts.versions that tell a driver, the first that is there.
_DRIVERS: Final = ("driver", "nvidia_driver", "nvidia-driver")
_HOUR_MS: Final = 3_600_000
_MINUTE_MS: Final = 60_000


def span_row(head: Head, span: FleetSpan, generation_ms: int, known_ms: int, version: int) -> Row:
    """A row of fleet_spans_rows. `head`: run, run id, cluster."""
    return (
        *head, span.source, unsigned(generation_ms), unsigned(span.row), span.unit_kind, span.unit, span.kind,
        time_ns(span.from_ns), optional_time_ns(span.to_ns), span.node, span.facts, span.job_id,
        unsigned(span.attempt, 32), span.action, span.outcome, span.ticket, time_ms(known_ms), version,
    )  # fmt: skip


def imported_row(head: Head, source: str, generation_ms: int) -> Row:
    """The row of fleet_spans_rows that says that all of an import is written."""
    at_ms = time_ms(generation_ms)
    return (
        *head, source, unsigned(generation_ms), 0, "", "", "imported", at_ms, None, "", {}, "", 0, "", "", "", at_ms,
        generation_ms,
    )  # fmt: skip


def attempt_row(head: Head, attempt: JobAttempt, generation_ms: int, known_ms: int, version: int) -> Row:
    """A row of job_attempts_rows."""
    return (
        *head, attempt.source, unsigned(generation_ms), unsigned(attempt.row), attempt.job_id,
        unsigned(attempt.attempt, 32), list(attempt.nodes), optional_unsigned(attempt.gpus, 32),
        time_ns(attempt.from_ns), optional_time_ns(attempt.to_ns), attempt.end, optional_unsigned(attempt.queued_ns),
        attempt.owner, time_ms(known_ms), version,
    )  # fmt: skip


def streamed_rows(
    record: r.Span | r.Topology | r.Attempt | r.NodeFacts, known_ms: int, version: int
) -> Iterator[TableRow]:
    """The spans that a record tells. The later message of a row stands; of a node's facts the first, as they hold from
    when they were first told.
    """
    head = (record.run, record.run_id, record.cluster)
    if isinstance(record, r.NodeFacts):
        for span in _of_facts(record):
            yield tables.FLEET_SPANS, span_row(head, span, 0, known_ms, unsigned(INT64_MAX - version))
    else:
        yield tables.FLEET_SPANS, span_row(head, _of_state(record), 0, known_ms, version)


def observed_row(progress: r.Progress, timestamp_ms: int) -> TableRow:
    """The minute, of the broker's clock, in which an agent was heard of."""
    at_ms = time_ms(timestamp_ms)
    minute = at_ms % _HOUR_MS // _MINUTE_MS
    return tables.OBSERVED_MINUTES, (
        progress.run, progress.run_id, progress.cluster, progress.reporter,
        min(at_ms // _HOUR_MS * 3600, 2**32 - 1), 1 << minute,
    )  # fmt: skip


def _of_state(record: r.Span | r.Topology | r.Attempt) -> FleetSpan:
    """A span of a node, as its record names it. A kind that is not known stays as it is, for the build of the day to
    name it.
    """
    begin, end = record.start_unix_nano, record.end_unix_nano
    match record:
        case r.Span():
            span = _span(record.reporter, record.node, _KINDS.get(record.kind, record.kind), begin, end)
            span = replace(span, outcome=record.outcome or "")
        case r.Topology():
            told = {name: getattr(record, name) for name in ("rack", "nvlink_domain", "leaf_switch", "power_feed")}
            span = _span(record.reporter, record.node, "facts", begin, end)
            span = replace(span, facts={name: value for name, value in told.items() if value})
        case r.Attempt():
            span = _span(record.reporter, record.node, "busy", begin, end)
            span = replace(span, job_id=record.job_id, attempt=record.attempt, outcome=record.outcome or "")
    return replace(span, row=_number(span.kind, span.unit, record.source, begin, span.job_id, span.attempt))


def _of_facts(record: r.NodeFacts) -> Iterator[FleetSpan]:
    """The node and its GPUs, as seen from this boot on. Nothing where no clock dates it (a replay)."""
    seen_ns = record.observed_time_unix_nano
    if seen_ns <= 0:
        return
    machine = record.machine_id or record.reporter
    facts = {NAME: record.reporter} if machine != record.reporter else {}
    driver = next((record.versions[key] for key in _DRIVERS if record.versions.get(key)), "")
    if driver:
        facts["driver"] = driver
    node = replace(_span(record.reporter, machine, "installed", seen_ns, None), action=SEEN, facts=facts)
    yield replace(node, row=_number("node", machine, record.boot_id, driver))
    for gpu in record.gpus:
        # A GPU without a name of its own is no unit: its address is that of the slot.
        if unit := gpu.uuid or gpu.serial:
            told = {"sku": gpu.model or "", "pci_bus_id": gpu.pci_bus_id, "serial": gpu.serial or ""}
            yield replace(
                node, unit_kind="gpu", unit=unit, node=machine, facts={name: v for name, v in told.items() if v},
                row=_number("gpu", unit, machine, record.boot_id, gpu.pci_bus_id),
            )  # fmt: skip


def _span(reporter: str, node: str, kind: str, from_ns: int, to_ns: int | None) -> FleetSpan:
    return FleetSpan(
        cluster="", unit_kind="node", unit=node, kind=cast(SpanKind, kind), from_ns=from_ns, to_ns=to_ns,
        source=reporter,
    )  # fmt: skip


def _number(*said: str | int) -> int:
    """A number for what is said, the same whenever it is said."""
    return int.from_bytes(blake2b("\0".join(map(str, said)).encode(), digest_size=8).digest(), "big")
