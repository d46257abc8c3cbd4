"""Spans from a CSV."""

from datetime import UTC, datetime
from pathlib import Path
from zoneinfo import ZoneInfo

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pipeline.core.fleet.imports.inventory_csv import COLUMNS, parse_inventory
from pipeline.core.fleet.imports.told import ImportFormatError, Told
from pipeline.core.fleet.records import FleetSpan
from tests.core.fleet.inventories import exposed

HEAD = "unit_kind,unit,node,kind,from,to,sku,rack,action,outcome,ticket"


def told(*lines: str, head: str = HEAD, zone: ZoneInfo | None = None) -> Told:
    return parse_inventory("\n".join([head, *lines]), cluster="c1", source="inventory.csv", zone=zone)


def ns(text: str) -> int:
    return round(datetime.fromisoformat(text).timestamp()) * 10**9


def test_a_line_is_a_span_with_its_facts_and_its_line() -> None:
    found = told(
        "gpu,GPU-1,n1,installed,2026-03-01T09:30:00+01:00,,H100,r7,,,",
        "",
        "# a remark",
        'node,n1,,repair,2026-03-02T00:00:00Z,2026-03-02T05:00:00Z,,,swap,"fixed, so far",T-9',
    )
    assert found.spans == [
        FleetSpan(
            cluster="c1", unit_kind="gpu", unit="GPU-1", node="n1", kind="installed", row=2, source="inventory.csv",
            from_ns=ns("2026-03-01T08:30:00Z"), facts={"sku": "H100", "rack": "r7"},
        ),
        FleetSpan(
            cluster="c1", unit_kind="node", unit="n1", kind="repair", row=5, source="inventory.csv", action="swap",
            from_ns=ns("2026-03-02T00:00:00Z"), to_ns=ns("2026-03-02T05:00:00Z"), outcome="fixed, so far", ticket="T-9",
        ),
    ]  # fmt: skip
    assert found.defects == []


def test_the_example_is_read_whole_and_contradicts_nothing() -> None:
    example = Path(__file__).parents[4] / "deploy" / "inventory.example.csv"
    found = parse_inventory(example.read_text(encoding="utf-8"), cluster="demo", source="example")
    begin, end = ns("2026-03-11T00:00:00Z"), ns("2026-03-13T00:00:00Z")

    rows, defects = exposed(found.spans, begin, end)

    assert (found.defects, defects) == ([], [])
    assert {row.cohort.driver for row in rows} == {"570.124.06"}
    assert {row.cohort.rack for row in rows if row.unit_kind == "gpu"} == {"r01", "r02"}
    assert sum(row.unit_kind == "gpu" for row in rows) == 9


@pytest.mark.parametrize("written", ["0000:5e:00.0", "00000000:5E:00.0", "0000:5E:00", "5e:00.0"])
def test_a_gpu_is_found_by_its_bus_address_however_it_is_written(written: str) -> None:
    [found] = told(
        f"gpu,GPU-1,n1,installed,2026-03-01T00:00:00Z,{written}", head="unit_kind,unit,node,kind,from,pci_bus_id"
    ).spans

    assert found.facts == {"pci_bus_id": "0000:5e:00.0"}


def test_an_address_that_is_none_is_named() -> None:
    found = told("gpu,g1,n1,installed,2026-03-01T00:00:00Z,slot 3", head="unit_kind,unit,node,kind,from,pci_bus_id")

    assert [(d.kind, "'slot 3'" in d.detail) for d in found.defects] == [("bad_value", True)]


@pytest.mark.parametrize(
    ("line", "kind", "says"),
    [
        ("disk,d1,,installed,2026-03-01T00:00:00Z,,,,,,", "bad_value", "gpu, node"),
        ("node,n1,,asleep,2026-03-01T00:00:00Z,,,,,,", "bad_value", "maintenance"),
        ("node,n1,,repair,2026-03-01T00:00:00Z,,,,hammer,,", "bad_value", "none_found"),
        ("node,,,drain,2026-03-01T00:00:00Z,,,,,,", "bad_value", "no unit"),
        ("node,n1,,drain,,,,,,,", "bad_time", "no from"),
        ("node,n1,,drain,2026-03-01T00:00:00,,,,,,", "bad_time", "--zone"),
        ("node,n1,,drain,2026-03-01T00:00:00Z,soon,,,,,", "bad_time", "'soon'"),
        ("node,n1,,drain,2026-13-01T00:00:00Z,,,,,,", "bad_time", "2026-13-01"),
        ("node,n1,,drain,0126-03-01T00:00:00Z,,,,,,", "bad_time", "0126"),
        ("node,n1,,drain,0001-01-01T00:00:00+14:00,,,,,,", "bad_time", "0001"),
        ("node,n1,,drain,9999-12-31T23:59:59-14:00,,,,,,", "bad_time", "9999"),
        (f"node,n1,,drain,{'9' * 5000},,,,,,", "bad_time", "999"),
        ("node,n1,,drain,2026-03-02T00:00:00Z,2026-03-01T00:00:00Z,,,,,", "inverted_span", "ends before"),
        ("gpu,g1,,installed,2026-03-01T00:00:00Z,,,,,,", "no_node", "column node"),
        ("node,n1,,drain", "unreadable_line", "4 values for 11"),
        ('node,"n1,,drain,2026-03-01T00:00:00Z,,,,,,', "unreadable_line", "unexpected end"),
    ],
)
def test_a_line_that_cannot_be_used_is_named_and_costs_no_other(line: str, kind: str, says: str) -> None:
    good = "node,n2,,drain,2026-03-01T00:00:00Z,,,,,,"
    found = told(good, line, good)
    assert len(found.spans) == 2
    assert [(d.kind, d.source, d.row) for d in found.defects] == [(kind, "inventory.csv", 3)]
    assert says in found.defects[0].detail


@pytest.mark.parametrize(
    ("head", "says"),
    [
        (
            "unit_kind,unit,kind,from,colour",
            "'colour' is not known. The columns are: unit_kind, unit, node, kind, from",
        ),
        ("unit,kind,from", "unit_kind among them"),
        ("unit_kind,unit,unit,kind,from", "twice"),
        ("", "unit_kind, unit, kind, from among them"),
    ],
)
def test_a_head_with_a_column_too_many_or_too_few_is_refused_and_lists_the_columns(head: str, says: str) -> None:
    with pytest.raises(ImportFormatError, match=says):
        told(head=head)


def test_local_times_are_read_where_the_zone_is_given_and_the_hour_that_comes_twice_is_named() -> None:
    berlin = ZoneInfo("Europe/Berlin")
    found = told(
        "node,n1,,drain,2026-03-01T00:00:00,2026-08-01T00:00:00,,,,,",
        "node,n1,,drain,2026-10-25T02:30:00,2026-10-25T08:00:00,,,,,",
        "node,n1,,drain,2026-10-25T02:30:00+01:00,2026-10-25T08:00:00,,,,,",
        zone=berlin,
    )  # fmt: skip
    assert [(s.from_ns, s.to_ns) for s in found.spans] == [
        (ns("2026-02-28T23:00:00Z"), ns("2026-07-31T22:00:00Z")),
        (ns("2026-10-25T01:30:00Z"), ns("2026-10-25T07:00:00Z")),
    ]  # fmt: skip
    assert [(d.kind, d.row) for d in found.defects] == [("ambiguous_time", 3)]


@pytest.mark.parametrize("zone", ["Asia/Tokyo", "America/Los_Angeles"])
def test_the_first_and_the_last_day_of_the_calendar_break_no_zone(zone: str) -> None:
    lines = ("node,n1,,drain,0001-01-01T00:00:00,,,,,,", "node,n1,,drain,9999-12-31T23:59:59,,,,,,")
    assert [d.kind for d in told(*lines, zone=ZoneInfo(zone)).defects] == ["bad_time", "bad_time"]


@given(st.text(alphabet='node,gpu1"\x00#\r\n 2026-03T:Zé', max_size=200))
def test_no_text_breaks_the_reading_and_every_line_is_a_span_or_a_defect(text: str) -> None:
    found = parse_inventory(f"{','.join(COLUMNS)}\n{text}", cluster="c1", source="x", zone=UTC)
    lines = [line for line in text.split("\n") if line.strip() and not line.startswith("#")]
    assert len(found.spans) + len(found.defects) == len(lines)
