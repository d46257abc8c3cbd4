"""One revision of an incident as rows of three tables."""

from collections.abc import Iterator
from typing import Any

from pipeline.store import tables
from pipeline.store.tables import Table
from pipeline.store.values import optional_unsigned, rfc3339_ns, signed, unsigned
from schemas import records as r
from schemas.codec import encode


def incident_rows(incident: r.Incident, version: int) -> Iterator[tuple[Table, tuple[Any, ...]]]:
    """The revision itself, the steps of its chain and its culprits."""
    head = (
        incident.run, incident.run_id, incident.cluster, incident.incident_id, unsigned(incident.revision, 32),
    )  # fmt: skip
    yield tables.INCIDENTS, (*head, *_verdict(incident), *_findings(incident), version)
    for step in incident.chain:
        yield tables.CHAIN_STEPS, (*head, *_step(step, incident.edges), version)
    for place, culprit in enumerate(incident.culprits, start=1):
        yield tables.CULPRITS, (
            *head, place, incident.class_, optional_unsigned(incident.xid, 32), *identifiers(culprit),
            culprit.confidence, version,
        )  # fmt: skip


def identifiers(thing: r.Entity | r.Culprit) -> tuple[Any, ...]:
    """What names a thing, in the order of `tables.SUBJECT`."""
    return (
        thing.node, thing.machine_id, thing.gpu_uuid, thing.serial, thing.pci_bus_id,
        signed(thing.gpu_index, 32), thing.nic, thing.link, thing.switch, thing.nvlink_domain,
        signed(thing.rank, 32), signed(thing.local_rank, 32), signed(thing.pid), thing.process_group,
    )  # fmt: skip


def _verdict(i: r.Incident) -> tuple[Any, ...]:
    sizes = [job.world_size for job in i.jobs if job.world_size is not None]
    return (
        unsigned(i.schema_version, 16), i.engine.version, i.engine.rules_digest, i.synthetic, i.verdict, i.state,
        i.superseded_by, i.severity, i.class_, i.class_.partition("/")[0], optional_unsigned(i.xid, 32),
        optional_unsigned(i.sxid, 32), i.labels, [job.job_id for job in i.jobs],
        [unsigned(job.attempt, 32) for job in i.jobs], [job.owner or "" for job in i.jobs],
        optional_unsigned(max(sizes, default=None), 32),
        rfc3339_ns(i.started_at), optional_unsigned(i.started_error_ns),
        rfc3339_ns(i.detected_at), optional_unsigned(i.detected_error_ns),
        rfc3339_ns(i.ended_at), optional_unsigned(i.ended_error_ns),
        rfc3339_ns(i.stall_started_at), optional_unsigned(i.stall_started_error_ns),
    )  # fmt: skip


def _findings(i: r.Incident) -> tuple[Any, ...]:
    reach, action, recovery = i.blast_radius, i.action, i.recovery
    return (
        [c.node for c in i.culprits if c.node is not None], _ranks([c.rank for c in i.culprits if c.rank is not None]),
        [gpu for gpu in map(_gpu, i.culprits) if gpu], i.why_unknown, i.confidence, i.phase, i.interruption,
        optional_unsigned(reach.ranks, 32), optional_unsigned(reach.nodes, 32), signed(reach.first_failing_rank, 32),
        _ranks(reach.silent_ranks), unsigned(reach.reporting_ranks, 32), unsigned(i.suppressed.count), i.explanation,
        action.kind, action.target, action.why, action.reference, recovery.last_checkpoint,
        rfc3339_ns(recovery.checkpoint_at), recovery.lost_gpu_hours, recovery.resume_from, i.not_network_because,
        _covers_all(i), len(i.gaps), encode(i).decode(),
    )  # fmt: skip


def _step(step: r.ChainStep, edges: list[r.Edge]) -> tuple[Any, ...]:
    before = [edge for edge in edges if edge.to == step.step]
    return (
        unsigned(step.step, 32), step.event, step.role, step.label, step.where, rfc3339_ns(step.when),
        optional_unsigned(step.error_ns), signed(step.lag_ns), unsigned(step.count), _ranks(step.ranks),
        step.evidence.source, optional_unsigned(step.evidence.line_no), optional_unsigned(step.evidence.offset),
        step.evidence.text, [unsigned(edge.from_, 32) for edge in before], [edge.why for edge in before],
        [edge.order for edge in before],
    )  # fmt: skip


def _ranks(ranks: list[int]) -> list[int | None]:
    return [signed(rank, 32) for rank in ranks]


def _gpu(culprit: r.Culprit) -> str:
    if culprit.pci_bus_id or culprit.gpu_uuid:
        return culprit.pci_bus_id or culprit.gpu_uuid or ""
    return "" if culprit.gpu_index is None else str(culprit.gpu_index)


def _covers_all(incident: r.Incident) -> bool:
    kinds = incident.coverage.values()
    return bool(kinds) and all(kind.seen >= kind.expected and not kind.silent for kind in kinds)
