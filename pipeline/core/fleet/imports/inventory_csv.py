"""A CSV of spans: inventory, cohort facts, drains, repairs. One span a line; docs/mtbf.md says what to write."""

import csv
import re
from datetime import tzinfo
from typing import Final, get_args

from pipeline.core.fleet.defects import of_span, possible
from pipeline.core.fleet.imports.told import ImportFormatError, Told, instants
from pipeline.core.fleet.records import COHORT_FIELDS, Defect, FleetSpan, SpanKind, UnitKind
from schemas.values import pci

NEEDED: Final = ("unit_kind", "unit", "kind", "from")
# Where a GPU sits, as the kernel's log says it, and the switch of a node: no cohorts, but lines and queries ask.
PCI_BUS_ID: Final = "pci_bus_id"
PLACES: Final = (PCI_BUS_ID, "leaf_switch")
COLUMNS: Final = (
    "unit_kind", "unit", "node", "kind", "from", "to", *COHORT_FIELDS, *PLACES, "action", "outcome", "ticket",
)  # fmt: skip
# As the kernel's log and nvidia-smi write it: 0000:5e:00, 0000:5e:00.0, 00000000:5E:00.0.
_PCI: Final = re.compile(r"(?:[0-9a-fA-F]{4,8}:)?[0-9a-fA-F]{2}:[0-9a-fA-F]{2}(?:\.[0-7])?")
ACTIONS: Final = frozenset({"", "reset", "reboot", "reseat", "swap", "none_found", "seen"})


def parse_inventory(text: str, *, cluster: str, source: str, zone: tzinfo | None = None) -> Told:
    """The spans of a CSV. Times without a zone are of `zone`; where there is none they are a defect.

    Raises ImportFormatError for a head that lacks a column that is needed or has one that is not known.
    """
    where = (cluster, source, zone)
    head, *lines = text.split("\n")
    names = _head(head)
    spans: list[FleetSpan] = []
    defects: list[Defect] = []
    for number, line in enumerate(lines, 2):
        if not line.strip() or line.startswith("#"):
            continue
        try:
            made = _span(names, _cells(line), number, where)
        except csv.Error as error:
            made = _defect(where, number, "unreadable_line", "", str(error))
        if isinstance(made, FleetSpan):
            spans.append(made)
        else:
            defects.append(made)
    good, wrong = possible(spans)
    return Told(spans=good, defects=[*defects, *wrong])


def _cells(line: str) -> list[str]:
    """The values of one line; a quote that is not closed costs no line but its own."""
    return next(csv.reader([line.rstrip("\r")], strict=True), [])


def _head(line: str) -> list[str]:
    try:
        names = [name.strip().lower() for name in _cells(line)]
    except csv.Error as error:
        raise ImportFormatError(f"this is no CSV: {error}") from None
    known = f"The columns are: {', '.join(COLUMNS)}"
    if missing := [name for name in NEEDED if name not in names]:
        raise ImportFormatError(f"the first line must name the columns, {', '.join(missing)} among them. {known}")
    if strange := [name for name in names if name not in COLUMNS]:
        raise ImportFormatError(f"column {strange[0]!r} is not known. {known}")
    if len(set(names)) < len(names):
        raise ImportFormatError(f"a column is there twice. {known}")
    return names


def _span(names: list[str], cells: list[str], line: int, where: tuple[str, str, tzinfo | None]) -> FleetSpan | Defect:
    if len(cells) != len(names):
        text = f"{len(cells)} values for {len(names)} columns"
        return _defect(where, line, "unreadable_line", "", text)
    row = dict(zip(names, (cell.strip() for cell in cells), strict=True))
    unit = row["unit"]
    if wrong := _wrong(row):
        return _defect(where, line, *wrong)
    begin, end = instants(row["from"], where[2]), instants(row.get("to", ""), where[2])
    for name, told in (("from", begin), ("to", end)):
        if not told and row.get(name):
            return _defect(where, line, "bad_time", unit, f"{name} {row[name]!r}: {_TIME}")
    if len(begin) > 1 or len(end) > 1:
        text = "a local time that came twice, when clocks were put back: write its offset (…+01:00)"
        return _defect(where, line, "ambiguous_time", unit, text)
    unit_kind: UnitKind = "gpu" if row["unit_kind"] == "gpu" else "node"
    kind: SpanKind = next(kind for kind in get_args(SpanKind) if kind == row["kind"])
    span = FleetSpan(
        cluster=where[0], unit_kind=unit_kind, unit=unit, kind=kind, from_ns=begin[0],
        to_ns=end[0] if end else None, node=row.get("node", ""),
        facts=_facts(row), action=row.get("action", ""),
        outcome=row.get("outcome", ""), ticket=row.get("ticket", ""), source=where[1], row=line,
    )  # fmt: skip
    if kind == "installed" and unit_kind == "gpu" and not span.node:
        return of_span("no_node", span, "a GPU is installed in a node: fill in the column node")
    return span


def _facts(row: dict[str, str]) -> dict[str, str]:
    facts = {name: row[name] for name in (*COHORT_FIELDS, *PLACES) if row.get(name)}
    return {**facts, PCI_BUS_ID: pci(facts[PCI_BUS_ID])} if PCI_BUS_ID in facts else facts


_TIME: Final = "write it as 2026-03-01T09:30:00+01:00 (with an offset or Z, or give --zone), in 2000 to 2099"


def _wrong(row: dict[str, str]) -> tuple[str, str, str] | None:
    if row["unit_kind"] not in get_args(UnitKind):
        return "bad_value", row["unit"], f"unit_kind {row['unit_kind']!r} is not one of {', '.join(get_args(UnitKind))}"
    if row["kind"] not in get_args(SpanKind):
        return "bad_value", row["unit"], f"kind {row['kind']!r} is not one of {', '.join(get_args(SpanKind))}"
    if row.get("action", "") not in ACTIONS:
        return "bad_value", row["unit"], f"action {row['action']!r} is not one of {', '.join(sorted(ACTIONS - {''}))}"
    if not row["unit"]:
        return "bad_value", "", "no unit: a GPU's UUID or serial number, a node's machine id or name"
    if row.get(PCI_BUS_ID) and not _PCI.fullmatch(row[PCI_BUS_ID]):
        return "bad_value", row["unit"], f"pci_bus_id {row[PCI_BUS_ID]!r}: write it as 0000:5e:00.0"
    if not row["from"]:
        return "bad_time", row["unit"], f"no from: {_TIME}"
    return None


def _defect(where: tuple[str, str, tzinfo | None], line: int, kind: str, unit: str, detail: str) -> Defect:
    return Defect(kind=kind, cluster=where[0], unit=unit, detail=f"{detail}; not read", source=where[1], row=line)
