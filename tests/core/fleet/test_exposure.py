"""Time at risk: of each unit, in each cohort, by kind, exact to the ns."""

from collections import defaultdict
from datetime import date
from itertools import pairwise
from random import Random

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from msgspec import structs

from pipeline.core.fleet.days import DAY_NS, bounds
from pipeline.core.fleet.exposure import failures_at_risk
from pipeline.core.fleet.history import history
from pipeline.core.fleet.records import Cohort, Exposure, Failure, FleetSpan, SpanKind
from tests.core.fleet.inventories import BEGIN, LENGTH_S, SECOND, any_spans, exposed, span

END = BEGIN + LENGTH_S * SECOND
Sums = tuple[int, int, int, int]


def sums(rows: list[Exposure]) -> Sums:
    return (
        sum(e.installed_ns for e in rows), sum(e.in_service_ns for e in rows),
        sum(e.busy_ns for e in rows), sum(e.observed_ns for e in rows),
    )  # fmt: skip


def in_seconds(*spans: FleetSpan, unit: str = "") -> tuple[float, ...]:
    """Installed, in service, busy and observed seconds of one unit or of all."""
    rows = [e for e in exposed(spans, BEGIN, END)[0] if not unit or e.unit == unit]
    return tuple(ns / SECOND for ns in sums(rows))


def defects(*spans: FleetSpan) -> list[str]:
    return [d.kind for d in exposed(spans, BEGIN, END)[1]]


def test_a_unit_that_is_drained_repaired_and_maintained_at_once_is_away_once() -> None:
    spans = (
        span("n1", "installed", 0, 1000), span("n1", "drain", 100, 300), span("n1", "repair", 200, 400),
        span("n1", "maintenance", 150, 250), span("n1", "boot", 390, 410),
    )  # fmt: skip
    assert in_seconds(*spans) == (1000, 690, 0, 0)


def test_a_unit_busy_in_two_jobs_is_busy_once_and_observed_only_in_service() -> None:
    spans = (
        span("n1", "installed", 0, 1000), span("n1", "busy", 0, 600, job_id="1"),
        span("n1", "busy", 500, 800, job_id="2"), span("n1", "observed", 0, 900), span("n1", "drain", 700, 1000),
    )  # fmt: skip
    assert in_seconds(*spans) == (1000, 700, 800, 700)
    assert defects(*spans) == []


def test_the_window_cuts_what_began_before_and_goes_on_after() -> None:
    assert in_seconds(span("n1", "installed", -500, None), span("n1", "drain", -9, 1)) == (LENGTH_S, LENGTH_S - 1, 0, 0)


def test_a_drained_node_drains_the_gpus_that_sit_in_it_then() -> None:
    spans = (
        span("n1", "installed", 0, 1000), span("n2", "installed", 0, 1000), span("n1", "drain", 300, 600),
        span("g1", "installed", 0, 400, node="n1"), span("g1", "installed", 400, 1000, node="n2"),
    )  # fmt: skip
    assert in_seconds(*spans, unit="g1") == (1000, 900, 0, 0)
    assert in_seconds(*spans, unit="n1") == (1000, 700, 0, 0)


def test_facts_of_the_node_are_those_of_its_gpus_where_they_say_nothing_themselves() -> None:
    facts = {"sku": "HGX", "rack": "r1", "driver": "570", "firmware": "bios", "batch": "b"}
    spans = (
        span("n1", "installed", 0, 100, facts=facts),
        span("g1", "installed", 0, 100, node="n1", facts={"sku": "H100"}),
        span("g2", "installed", 0, 100, node="n1"),
    )  # fmt: skip
    found = {e.unit: e.cohort for e in exposed(spans, BEGIN, END)[0]}
    assert found["g1"] == Cohort(sku="H100", rack="r1", driver="570")
    assert found["g2"] == Cohort(sku="HGX", rack="r1", driver="570")


def test_a_driver_upgrade_or_a_move_told_of_the_node_alone_reaches_gpus_that_were_installed_with_other_facts() -> None:
    spans = (
        span("n1", "installed", 0, 1000, facts={"driver": "570", "rack": "r1"}),
        span("g1", "installed", 0, 1000, node="n1", facts={"driver": "570", "rack": "r1", "position": "3"}),
        span("n1", "facts", 300, None, facts={"driver": "580", "rack": "r2", "position": "U7"}),
    )

    found = {e.cohort: e.installed_ns // SECOND for e in exposed(spans, BEGIN, END)[0] if e.unit == "g1"}

    assert found == {
        Cohort(rack="r1", driver="570", position="3"): 300,
        Cohort(rack="r2", driver="580", position="3"): 700,
    }


def test_exposure_is_cut_where_the_driver_the_rack_or_the_place_changes() -> None:
    spans = (
        span("n1", "installed", 0, 1000, facts={"driver": "570"}),
        span("n1", "facts", 300, None, facts={"driver": "580"}),
        span("n1", "facts", 500, 700, facts={"rack": "r2"}),
        span("g1", "installed", 0, 900, node="n1"),
        span("g1", "installed", 900, 1000, node="n2"),
    )  # fmt: skip
    found = {
        (e.unit, e.node, e.cohort.driver, e.cohort.rack): e.installed_ns // SECOND
        for e in exposed(spans, BEGIN, END)[0]
    }
    assert found == {
        ("n1", "n1", "570", ""): 300, ("n1", "n1", "580", ""): 500, ("n1", "n1", "580", "r2"): 200,
        ("g1", "n1", "570", ""): 300, ("g1", "n1", "580", ""): 400, ("g1", "n1", "580", "r2"): 200,
        ("g1", "n2", "", ""): 100,
    }  # fmt: skip


def test_a_gpu_in_two_nodes_at_once_counts_where_it_was_put_last_and_is_named() -> None:
    spans = (span("g1", "installed", 0, None, node="n1", row=1), span("g1", "installed", 600, 800, node="n2", row=2))
    rows, found = exposed(spans, BEGIN, BEGIN + 1000 * SECOND)
    assert {e.node: e.installed_ns // SECOND for e in rows} == {"n1": 800, "n2": 200}
    assert [(d.kind, d.unit, d.row) for d in found] == [("gpu_in_two_nodes", "g1", 2)]


def test_of_two_nodes_that_a_gpu_came_to_at_once_the_name_decides_whoever_is_told_first() -> None:
    one, two = (span("g1", "installed", 0, 900, node=node, source=f"{4 - row}") for row, node in ((1, "n1"), (2, "n2")))
    for told in ((one, two), (two, one)):
        assert [(e.node, e.installed_ns // SECOND) for e in exposed(told, BEGIN, END)[0]] == [("n2", 900)]


def test_two_sources_that_agree_are_no_defect_and_one_that_says_it_twice_is() -> None:
    one, again = span("n1", "installed", 0, 1000), span("n1", "installed", 500, 2000, row=7)
    assert in_seconds(one, again) == (2000, 2000, 0, 0)
    assert defects(one, again) == ["overlapping_installed"]
    assert defects(one, structs.replace(again, source="agent")) == []


def test_what_an_agent_saw_counts_where_no_inventory_knows_the_unit() -> None:
    seen = span("g1", "installed", 100, None, node="n1", action="seen", source="agent")
    moved = span("g1", "installed", 400, None, node="n2", action="seen", source="agent")
    rows, found = exposed([seen, moved], BEGIN, BEGIN + 1000 * SECOND)
    assert ({e.node: e.installed_ns // SECOND for e in rows}, found) == ({"n1": 300, "n2": 600}, [])
    stated = span("g1", "installed", 0, 500, node="n1")
    assert in_seconds(seen, moved, stated) == (500, 500, 0, 0)
    assert defects(seen, moved, stated) == ["seen_elsewhere"]


@pytest.mark.parametrize(
    ("kind", "from_s", "to_s", "named"),
    [
        ("drain", 200, 100, "inverted_span"),
        ("drain", -BEGIN / SECOND + 5, 100, "clock_before_2000"),
        ("drain", 100, 3e9, "clock_after_2100"),
        ("drain", 5, 100, "span_before_install"),
        ("busy", 900, 1100, "span_outside_installed"),
    ],
)
def test_a_span_that_cannot_be_true_is_named_and_not_counted(
    kind: SpanKind, from_s: float, to_s: float, named: str
) -> None:
    held = span("n1", "installed", 50, 1000)
    wrong = span("n1", kind, from_s, to_s, row=12)
    _, found = exposed([held, wrong], BEGIN, END)
    assert [(d.kind, d.unit, d.source, d.row) for d in found] == [(named, "n1", "inventory.csv", 12)]
    assert in_seconds(held, wrong)[0] == 950


def test_a_repair_may_go_on_while_the_unit_is_out_of_the_machine() -> None:
    spans = (
        span("g1", "installed", 0, 300, node="n1"), span("g1", "installed", 500, 900, node="n1"),
        span("g1", "repair", 200, 600),
    )  # fmt: skip
    assert in_seconds(*spans) == (700, 500, 0, 0)
    assert defects(*spans) == []


def test_jobs_on_machines_that_no_inventory_knows_are_one_row_each() -> None:
    jobs = [span("n9", "busy", at, at + 5, job_id=str(at), row=at) for at in range(20, 80, 10)]
    rows, found = exposed([*jobs, span("g1", "installed", 0, 9, node="n1"), span("n1", "drain", 1, 2)], BEGIN, END)
    assert [(d.kind, d.unit, d.row) for d in found] == [("unknown_unit", "n9", 20)]
    assert "5 more" in found[0].detail
    assert [(e.unit, e.in_service_ns // SECOND) for e in rows] == [("g1", 8)]


def test_an_attempt_told_twice_by_one_source_is_busy_once_and_named() -> None:
    held = span("n1", "installed", 0, 1000)
    one = span("n1", "busy", 100, 300, job_id="7", attempt=1, row=1)
    assert defects(held, one, structs.replace(one, row=2)) == ["duplicate_attempt"]
    assert defects(held, one, structs.replace(one, source="other")) == []
    assert defects(held, one, structs.replace(one, attempt=2)) == []
    assert in_seconds(held, one, structs.replace(one, row=2))[2] == 200


def test_a_job_with_some_gpus_of_a_node_is_spread_over_them_and_adds_up() -> None:
    gpus = [span(g, "installed", 0, 1000, node="n1") for g in ("g1", "g2", "g3")]
    job = span("n1", "busy", 1e-9, 100, job_id="7", facts={"gpus": "2"})
    other = span("n1", "busy", 50, 100, job_id="8", facts={"gpus": "2"})
    rows, _ = exposed([*gpus, job, other], BEGIN, END)
    assert sums(rows)[2] == 2 * (50 * SECOND - 1) + 3 * 50 * SECOND
    assert max(e.busy_ns for e in rows) - min(e.busy_ns for e in rows) <= 1
    whole = exposed([*gpus, job, other, span("n1", "installed", 0, 1000)], BEGIN, END)[0]
    assert [e.busy_ns for e in whole if e.unit == "n1"] == [100 * SECOND - 1]
    placed = span("g2", "busy", 0, 100, job_id="7")
    assert {e.unit: e.busy_ns // SECOND for e in exposed([*gpus, job, placed], BEGIN, END)[0]} == {
        "g1": 0, "g2": 100, "g3": 0,
    }  # fmt: skip


def test_a_job_of_whole_nodes_keeps_all_their_gpus_busy() -> None:
    gpus = [span(g, "installed", 0, 1000, node="n1") for g in ("g1", "g2")]
    assert in_seconds(*gpus, span("n1", "busy", 0, 100, job_id="7")) == (2000, 2000, 200, 0)


@settings(max_examples=60, deadline=None)
@given(any_spans())
def test_the_sum_over_cohorts_is_the_total_to_the_ns(spans: list[FleetSpan]) -> None:
    """Against a count of every instant between two edges, which knows nothing of intervals."""
    rows, _ = exposed(spans, BEGIN, END)
    bare = [structs.replace(s, facts={k: v for k, v in s.facts.items() if k == "gpus"}) for s in spans]
    whole, _ = exposed([s for s in bare if s.kind != "facts"], BEGIN, END)
    assert sums(rows) == sums(whole)
    places: dict[tuple[str, str], tuple[int, ...]] = defaultdict(lambda: (0, 0, 0))
    for e in rows:
        told = (e.installed_ns, e.in_service_ns, e.observed_ns)
        places[e.unit, e.node] = tuple(a + b for a, b in zip(places[e.unit, e.node], told, strict=True))
        assert 0 <= e.busy_ns <= e.installed_ns
    assert dict(places) == counted_by_instants(spans)


def counted_by_instants(spans: list[FleetSpan]) -> dict[tuple[str, str], tuple[int, ...]]:
    """Installed, in service and observed by unit and node, from what holds between each edge and the next."""
    edges = sorted({BEGIN, END, *(t for s in spans for t in (s.from_ns, s.to_ns) if t and BEGIN < t < END)})
    good = [s for s in spans if s.to_ns is None or s.to_ns >= s.from_ns]
    stated = {s.unit for s in good if s.kind == "installed" and s.action != "seen"}
    held: dict[tuple[str, str], tuple[int, ...]] = {}
    for a, b in pairwise(edges):
        now = [s for s in good if s.from_ns <= a and (s.to_ns is None or s.to_ns >= b)]
        here = [s for s in now if s.kind == "installed" and (s.action != "seen" or s.unit not in stated)]
        for unit in {s.unit for s in here}:
            last = max((s for s in here if s.unit == unit), key=lambda s: (s.from_ns, -(s.to_ns or 2**62), s.node))
            node = last.node or unit
            kinds = {s.kind for s in now if s.unit in (unit, node)}
            away = bool(kinds & {"drain", "repair", "maintenance", "upgrade", "boot", "reset"})
            told = (b - a, 0 if away else b - a, b - a if "observed" in kinds and not away else 0)
            before = held.get((unit, node), (0, 0, 0))
            held[unit, node] = tuple(x + y for x, y in zip(before, told, strict=True))
    return held


@settings(max_examples=60, deadline=None)
@given(any_spans(), st.integers(0, 2**32))
def test_the_order_in_which_spans_are_told_does_not_matter(spans: list[FleetSpan], seed: int) -> None:
    mixed = list(spans)
    Random(seed).shuffle(mixed)
    assert exposed(mixed, BEGIN, END) == exposed(spans, BEGIN, END)


@settings(max_examples=60, deadline=None)
@given(any_spans(), st.lists(st.integers(1, LENGTH_S * SECOND - 1), max_size=4))
def test_parts_of_a_window_add_up_to_the_whole_to_the_ns(spans: list[FleetSpan], cuts: list[int]) -> None:
    edges = sorted({0, LENGTH_S * SECOND, *cuts})
    parts = [e for a, b in pairwise(edges) for e in exposed(spans, BEGIN + a, BEGIN + b)[0]]
    assert added(parts) == added(exposed(spans, BEGIN, END)[0])


@settings(max_examples=30, deadline=None)
@given(any_spans())
def test_days_add_up_to_the_whole(spans: list[FleetSpan]) -> None:
    days = [exposed(spans, *bounds(date(2026, 3, day))) for day in (1, 2, 3)]
    whole, defects = exposed(spans, BEGIN, END)
    assert added([e for found, _ in days for e in found]) == added(whole)
    assert {d.kind for _, named in days for d in named} == {d.kind for d in defects}


def added(rows: list[Exposure]) -> dict[tuple[str, str, Cohort], Sums]:
    by: dict[tuple[str, str, Cohort], list[Exposure]] = defaultdict(list)
    for e in rows:
        by[e.unit, e.node, e.cohort].append(e)
    return {key: sums(rows) for key, rows in by.items()}


def test_a_day_is_24_hours_of_utc() -> None:
    assert bounds(date(2026, 3, 1)) == (BEGIN, BEGIN + DAY_NS)
    assert bounds(date(2026, 3, 29))[1] - bounds(date(2026, 3, 29))[0] == DAY_NS


def failure(unit: str, at_s: float, node: str = "") -> Failure:
    return Failure(
        cluster="a", incident_id=f"i{at_s}", at_ns=BEGIN + round(at_s * SECOND), class_="C10",
        category="infrastructure", component="gpu", unit=unit, node=node,
        unit_kind="gpu" if unit.startswith("g") else "node",
    )  # fmt: skip


def test_a_failure_has_the_cohort_that_its_unit_had_at_that_instant() -> None:
    spans = (
        span("n1", "installed", 0, None, facts={"driver": "570"}),
        span("n1", "facts", 500, None, facts={"driver": "580"}),
        span("g1", "installed", 0, None, node="n1", facts={"sku": "H100"}),
    )  # fmt: skip
    counted, found = failures_at_risk(
        [failure("g1", 600), failure("g1", 499.999999999), failure("n1", 500)], history(spans, BEGIN, END)
    )
    assert [(f.node, f.cohort.sku, f.cohort.driver) for f in counted] == [
        ("n1", "H100", "570"), ("n1", "", "580"), ("n1", "H100", "580"),
    ]  # fmt: skip
    assert found == []


@pytest.mark.parametrize(
    ("kind", "named"),
    [
        ("drain", "failure_in_repair"), ("repair", "failure_in_repair"), ("reset", "failure_in_repair"),
        ("boot", "failure_in_boot"), ("upgrade", "failure_in_upgrade"), ("maintenance", "failure_in_maintenance"),
    ],
)  # fmt: skip
def test_a_failure_while_its_node_is_away_is_named_and_not_counted(kind: SpanKind, named: str) -> None:
    spans = (
        span("n1", "installed", 0, None), span("g1", "installed", 0, None, node="n1"),
        span("n1", kind, 100, 200, row=4),
    )  # fmt: skip
    counted, found = failures_at_risk([failure("g1", at) for at in (99.9, 100, 199.9, 200)], history(spans, BEGIN, END))
    assert [f.at_ns for f in counted] == [failure("g1", 99.9).at_ns, failure("g1", 200).at_ns]
    assert [d.kind for d in found] == [named, named]
    assert "inventory.csv:4" in found[0].detail


def test_a_failure_outside_any_exposure_is_named_and_not_counted() -> None:
    spans = (span("n1", "installed", 0, 100), span("n2", "installed", 300, None))
    counted, found = failures_at_risk(
        [failure("n1", 100), failure("n2", 50), failure("n3", 50), failure("", 9)], history(spans, BEGIN, END)
    )
    assert [f.unit for f in counted] == [""]
    assert sorted((d.kind, d.unit) for d in found) == [
        ("failure_not_installed", "n1"), ("failure_not_installed", "n2"), ("failure_of_unknown_unit", "n3"),
    ]  # fmt: skip


def test_a_failure_of_a_gpu_that_nobody_told_of_counts_on_its_node_and_is_named() -> None:
    counted, found = failures_at_risk(
        [failure("g7", 50, node="n1")], history([span("n1", "installed", 0, None)], BEGIN, END)
    )
    assert [(f.unit_kind, f.unit) for f in counted] == [("node", "n1")]
    assert [(d.kind, d.unit) for d in found] == [("failure_of_unknown_gpu", "g7")]
