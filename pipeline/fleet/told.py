"""Reads what is told of a fleet: spans of its units and incidents that stand."""

from collections import defaultdict
from collections.abc import Iterable, Mapping
from typing import Any

from pipeline.core.fleet.components import category_of, component_of
from pipeline.core.fleet.defects import FIRST_NS, when
from pipeline.core.fleet.records import Defect, Failure, FleetSpan, UnitKind
from pipeline.store.clickhouse import Store
from pipeline.store.sqlfiles import statement
from schemas.vocabulary import STANDING

_BUS_ID = "pci_bus_id"


def spans_of(store: Store, where: Mapping[str, Any]) -> list[FleetSpan]:
    """Every span that touches the window. `where`: run, run_id, cluster, from_ns, to_ns. Raises StoreError."""
    return [
        FleetSpan(
            cluster=cluster, unit_kind=unit_kind, unit=unit, kind=kind, from_ns=from_ns,
            to_ns=None if to_ns == -1 else to_ns, node=node, facts=dict(facts), job_id=job_id, attempt=attempt,
            action=action, outcome=outcome, ticket=ticket, source=source, row=row,
        )
        for (
            cluster, unit_kind, unit, kind, from_ns, to_ns, node, facts, job_id, attempt, action, outcome, ticket,
            source, row,
        ) in store.rows(statement("spans", "fleet"), where)
    ]  # fmt: skip


def undated_failures(store: Store, where: Mapping[str, Any], now_ns: int) -> list[Defect]:
    """Incidents that no day counts, whichever is built: their time is not known, or cannot be true. Raises StoreError.

    They are named with every day, as they belong to none.
    """
    given = {**where, "standing": [*STANDING], "first_ns": FIRST_NS, "now_ns": now_ns}
    return [
        Defect(
            kind=_why_undated(at_ns), cluster=where["cluster"], unit=node, source="incidents",
            detail=f"incident {incident}: {'no time is known' if at_ns is None else when(at_ns)}; not counted",
            at_ns=at_ns,
        )
        for incident, node, at_ns in store.rows(statement("undated_failures", "fleet"), given)
    ]  # fmt: skip


def _why_undated(at_ns: int | None) -> str:
    if at_ns is None:
        return "failure_without_time"
    return "failure_before_2000" if at_ns < FIRST_NS else "failure_in_future"


class Names:
    """By which name spans know a node or a GPU: agents say machine ids and bus ids, inventories what they like."""

    def __init__(self, spans: Iterable[FleetSpan]) -> None:
        self._nodes: set[str] = set()
        self._slots: dict[tuple[str, str], list[FleetSpan]] = defaultdict(list)
        for span in spans:
            self._nodes.add(span.unit if span.unit_kind == "node" else span.node)
            if span.unit_kind == "gpu" and span.facts.get(_BUS_ID):
                self._slots[span.node, span.facts[_BUS_ID].lower()].append(span)

    def node(self, name: str, machine_id: str) -> str:
        """The machine id where spans use it, else the name."""
        return machine_id if machine_id and machine_id in self._nodes and name not in self._nodes else name

    def gpu_at(self, node: str, bus_id: str, at_ns: int) -> str:
        """The GPU that sat there at that time; `node/bus id` where nobody says."""
        held = [s for s in self._slots.get((node, bus_id), ()) if s.from_ns <= at_ns and at_ns < _end(s)]
        return max(held, key=lambda s: s.from_ns).unit if held else f"{node}/{bus_id}"


def failures_of(store: Store, where: Mapping[str, Any], named: Names) -> list[Failure]:
    """Incidents of the window as people have corrected them, on the unit that is blamed. Raises StoreError."""
    given = {**where, "standing": [*STANDING]}
    return [_failure(row, named) for row in store.rows(statement("failures", "fleet"), given)]


def _end(span: FleetSpan) -> int:
    return 2**63 - 1 if span.to_ns is None else span.to_ns


def _failure(row: Iterable[Any], named: Names) -> Failure:
    (
        cluster, incident_id, at_ns, class_, node, machine_id, gpu, bus_id, corrected_kind, corrected_unit,
        corrected_node, job_ids, job_gpus, lost_gpu_hours, corrected_by,
    ) = row  # fmt: skip
    node = named.node(node, machine_id)
    unit_kind: UnitKind = "gpu" if gpu else "node"
    unit = gpu or node
    if not gpu and bus_id and _is_of_a_gpu(component_of(class_)):
        unit_kind, unit = "gpu", named.gpu_at(node, bus_id, at_ns)
    if corrected_unit:
        unit_kind, unit, node = corrected_kind, corrected_unit, corrected_node or node
    return Failure(
        cluster=cluster, incident_id=incident_id, at_ns=at_ns, class_=class_, category=category_of(class_),
        component=component_of(class_), unit_kind=unit_kind, unit=unit, node=node, job_ids=tuple(job_ids),
        job_gpus=job_gpus, lost_gpu_hours=lost_gpu_hours, corrected_by=corrected_by,
    )  # fmt: skip


def _is_of_a_gpu(component: str) -> bool:
    """A culprit's bus id may be that of a network card or a disk."""
    return component in ("GPU", "GPU memory", "NVLink", "PCIe")
