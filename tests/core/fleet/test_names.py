"""One machine under two names."""

from msgspec.structs import replace

from pipeline.core.fleet.names import attempts_by_machine, by_machine, failures_by_machine
from pipeline.core.fleet.records import Failure, FleetSpan, JobAttempt
from tests.core.fleet.inventories import BEGIN, SECOND, exposed, span


def short(spans: list[FleetSpan]) -> list[tuple[str, str, float, float | None]]:
    return [
        (s.unit, s.node, (s.from_ns - BEGIN) / SECOND, None if s.to_ns is None else (s.to_ns - BEGIN) / SECOND)
        for s in spans
    ]  # fmt: skip


def test_a_machine_that_an_agent_and_an_inventory_name_differently_has_its_hours_once() -> None:
    agent = span("m-1", "installed", 100, None, facts={"name": "n1"}, action="seen", source="n1")
    spans, defects = by_machine([agent, span("n1", "installed", 0, 900), span("n1", "drain", 200, 300)])
    rows, _ = exposed(spans, BEGIN, BEGIN + 1000 * SECOND)
    assert [(e.unit, e.installed_ns // SECOND, e.in_service_ns // SECOND) for e in rows] == [("m-1", 900, 800)]
    assert defects == []


def test_the_name_may_come_with_the_machine_id_too() -> None:
    told = span("n1", "installed", 0, None, facts={"machine_id": "m-1"})
    gpu = span("g1", "installed", 0, 10, node="n1")
    assert short(by_machine([told, gpu])[0]) == [("m-1", "", 0, None), ("g1", "m-1", 0, 10)]


def test_a_span_is_cut_where_the_name_goes_to_another_machine() -> None:
    one = span("m-1", "facts", 0, None, facts={"name": "n1"})
    two = span("m-2", "facts", 500, None, facts={"name": "n1"})
    spans, defects = by_machine([two, span("n1", "busy", -100, 900), span("n1", "drain", 600, 700), one])
    assert short(spans)[1:4] == [("m-1", "", -100, 500), ("m-2", "", 500, 900), ("m-2", "", 600, 700)]
    assert defects == []


def test_a_name_of_two_machines_at_once_is_named() -> None:
    one = span("m-1", "facts", 0, 600, facts={"name": "n1"})
    two = span("m-2", "facts", 500, None, facts={"name": "n1"}, row=4)
    assert [(d.kind, d.row) for d in by_machine([one, two])[1]] == [("name_of_two_machines", 4)]


def test_an_inverted_or_empty_span_stays_one_span() -> None:
    one, two = (span(f"m-{n}", "facts", n * 100, None, facts={"name": "n1"}) for n in (1, 2))
    spans, _ = by_machine([one, two, span("n1", "busy", 300, 200), span("n1", "busy", 150, 150)])
    assert short(spans)[2:] == [("m-2", "", 300, 200), ("m-1", "", 150, 150)]


def test_a_failure_is_of_the_machine_that_bore_the_name_then() -> None:
    spans = [span(f"m-{n}", "facts", n * 100, None, facts={"name": "n1"}) for n in (1, 2)]
    failed = Failure(
        cluster="a", incident_id="i1", at_ns=BEGIN, class_="C10", category="infrastructure", component="GPU", unit="n1",
        node="n1",
    )  # fmt: skip
    gpu = replace(failed, unit_kind="gpu", unit="g1", at_ns=BEGIN + 250 * SECOND)
    strange = replace(failed, unit="n9", node="n9")
    found = failures_by_machine([failed, replace(failed, at_ns=BEGIN + 199 * SECOND), gpu, strange], spans)
    assert [(f.unit, f.node) for f in found] == [("m-1", "m-1"), ("m-1", "m-1"), ("g1", "m-2"), ("n9", "n9")]


def test_an_attempt_ran_on_the_machines_that_bore_the_names_of_its_nodes_then() -> None:
    spans = [span(f"m-{n}", "facts", n * 100, None, facts={"name": "n1"}) for n in (1, 2)]
    early = JobAttempt(
        cluster="a", job_id="7", attempt=0, nodes=("n1", "n9"), gpus=None, from_ns=BEGIN + 150 * SECOND, to_ns=None
    )
    found = attempts_by_machine([early, replace(early, from_ns=BEGIN + 250 * SECOND)], spans)
    assert [one.nodes for one in found] == [("m-1", "n9"), ("m-2", "n9")]
