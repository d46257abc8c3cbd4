"""Named queries: each runs on a filled database and finds what its question asks for."""

from collections.abc import Iterator
from typing import Any

import pytest
from msgspec.structs import replace

from pipeline.embedded.clickhouse import ClickHouseServer
from pipeline.store import migrations, queries
from pipeline.store.clickhouse import Store
from pipeline.store.errors import QueryFileError
from tests.store import seed
from tests.store.conftest import new_database, put
from tests.store.fleet_answers import ANSWERS as FLEET

ANSWERS: dict[str, tuple[dict[str, str], dict[str, Any]]] = {
    "incidents": ({"class": "hardware"}, {"incident_id": "i1", "revision": 2, "culprit_nodes": ["n1"]}),
    "incident": ({"incident": "i1"}, {"revision": 1, "class": "unknown/silent_rank"}),
    "chain": ({"incident": "i1"}, {"step": 1, "role": "root", "evidence_text": "Xid 79"}),
    "first_events_of_job": ({"job": "job7"}, {"node": "n1", "rank": 3, "name": "gpu.xid", "attempt": 0}),
    "node_around": ({"node": "n1", "at": "2026-03-01T10:02:00Z", "minutes": "2"}, {"name": "gpu.xid", "line_no": 2}),
    "raw_lines_around": (
        {"node": "n1", "source": "kern.log", "line_no": "12", "lines": "2"},
        {"line_no": 10, "here": 0, "Body": "line 9 of n1"},
    ),
    "dead_letters_by_reason": ({}, {"messages": 2, "topic": "raw"}),
    "unverified": (
        {"reporter": "n1"},
        {"verified": "no: not signed", "lines": 2, "messages": 1, "released_by": "ana", "last_line": "line 1 of n1"},
    ),
    "gaps": ({"node": "n1"}, {"lost_lines": 120, "reason": "spool full, oldest dropped"}),
    "silent_nodes": ({}, {"problem": "silent", "reporter": "n1"}),
    "placement_of_job": ({"job": "job7"}, {"rank": 0, "node": "n1", "pci_bus_id": "0000:30:00.0"}),
    "xid_by_node": ({}, {"node": "n1", "xid": 79, "lines": 6, "events": 3}),
    "near_misses": ({"days": "3650"}, {"signal": "nvrm.xid", "hint": "Xid (PCI:", "lines": 5, "nodes": 1}),
    "unknown_errors": ({"days": "3650"}, {"shape": "widget # failed after # s", "lines": 4, "nodes": 1}),
    "evidence_latency": ({}, {"incidents": 1, "p50_s": 2.377}),
    "clocks": ({}, {"node": "n2", "quality": "none", "reason": "no beacon was acknowledged for 90 s"}),
    "clock_steps": (
        {"hours": "100000"},
        {"node": "n1", "what": "wall clock", "step_ms": -5000, "at": "2026-03-01 10:00:16.000000000", "at_once": 1},
    ),
    "attempts_of_job": (
        {"job": "job7"},
        {
            "attempt": 0,
            "lines": 11,
            "error_lines": 6,
            "node_names": ["n1"],
            "first_at": "2026-03-01 10:00:01.000000000",
        },
    ),
    "marks_of_job": ({"job": "job7"}, {"attempt": 0, "kind": "error", "node": "n1", "rank": 3, "name": "gpu.xid"}),
    "incidents_of_job": ({"job": "job7"}, {"incident_id": "i1", "revision": 2, "job_attempts": [0]}),
    "incident_neighbours": (
        {"incident": "i1"},
        {"kind": "leaf_switch", "element_name": "leaf1", "of_incident": ["n1"], "others": ["n2"]},
    ),
    "storage": ({"table": "raw_lines"}, {"table": "raw_lines_rows", "rows": 45, "oldest_day": "2026-03-01"}),
    "nodes_of_job": ({"job": "job7"}, {"node": "n1", "attempts": [0], "kinds_read": ["kernel"], "refused": []}),
}
WITH_REPLAYED = [
    "incidents", "first_events_of_job", "node_around", "raw_lines_around", "xid_by_node", "attempts_of_job",
    "marks_of_job", "incidents_of_job", "clocks", "clock_steps",
]  # fmt: skip


@pytest.fixture(scope="module")
def filled(shared_store: Store) -> Store:
    put(
        shared_store, seed.batch(lines=40, gaps=[seed.GAP]), seed.progress(),
        seed.event_batch([*(seed.event(i) for i in range(1, 4)), seed.near_miss()]), seed.unread_errors(),
        seed.incident(1, class_="unknown/silent_rank"), seed.incident(2), seed.placement(), seed.dead_letter(),
        seed.dead_letter(offset=8), seed.segment(wall_step_ns=-5 * seed.NS), seed.unmeasured(),
        seed.topology("n1"), seed.topology("n2"),
        seed.unsigned(), seed.release(offset=13),
    )  # fmt: skip
    return shared_store


def test_every_file_has_an_expectation_here() -> None:
    assert {query.name for query in queries.list_queries()} == ANSWERS.keys() | FLEET.keys()


@pytest.mark.clickhouse
@pytest.mark.parametrize("name", ANSWERS)
def test_a_named_query_answers_its_question(filled: Store, name: str) -> None:
    given, expected = ANSWERS[name]
    answer = queries.run_query(filled, queries.load_query(name), given).objects()
    assert answer
    assert {key: answer[0][key] for key in expected} == expected


@pytest.mark.clickhouse
def test_named_queries_run_on_an_empty_database(store: Store) -> None:
    for name, (given, _) in ANSWERS.items():
        answer = queries.run_query(store, queries.load_query(name), given)
        # What asks about the tables themselves finds them.
        assert answer.rows == [] or name == "storage", name
        assert answer.columns, name


@pytest.mark.clickhouse
def test_replayed_rows_show_only_when_asked_for(store: Store) -> None:
    put(
        store,
        seed.incident(run="replay"),
        seed.batch(run="replay", lines=40),
        seed.event_batch([seed.event(1)], run="replay"),
        seed.segment(run="replay", wall_step_ns=1),
    )
    for name in WITH_REPLAYED:
        query, given = queries.load_query(name), ANSWERS[name][0]
        assert queries.run_query(store, query, given).rows == [], name
        assert queries.run_query(store, query, {**given, "run": "replay"}).rows, name


@pytest.mark.clickhouse
def test_lines_around_a_line_are_the_lines_around_it(filled: Store) -> None:
    given = {"node": "n1", "source": "kern.log", "line_no": "2", "lines": "3"}
    answer = queries.run_query(filled, queries.load_query("raw_lines_around"), given).objects()
    assert [(row["line_no"], row["here"]) for row in answer] == [(1, 0), (2, 1), (3, 0), (4, 0), (5, 0)]


@pytest.mark.clickhouse
def test_a_time_that_is_not_known_is_none_and_stands_last(store: Store) -> None:
    span = replace(seed.placement(spans=1).spans[0], start_unix_nano=0)
    timeless = replace(seed.event(1), aligned_time_unix_nano=None, lo_unix_nano=0, hi_unix_nano=2**62, quality="none")
    put(
        store, seed.batch(observed_ns=0), seed.event_batch([timeless, seed.event(2)]),
        replace(seed.placement(), spans=[span]),
    )  # fmt: skip

    def column(name: str, column: str) -> list[Any]:
        given = ANSWERS[name][0]
        if "line_no" in given:
            given = {**given, "line_no": "2"}
        answer = queries.run_query(store, queries.load_query(name), given)
        return [row[column] for row in answer.objects()]

    assert column("first_events_of_job", "at") == ["2026-03-01 10:00:02.000000000", None]
    assert column("placement_of_job", "started_at") == [None]
    assert column("raw_lines_around", "Timestamp") == [None] * 3
    assert column("xid_by_node", "first") == ["2026-03-01 10:00:02.000000000"]


@pytest.mark.clickhouse
def test_runs_that_hold_what_the_asked_one_lacks_are_named(store: Store) -> None:
    put(store, seed.incident(run="replay"))
    assert queries.other_runs(store, queries.load_query("incidents"), {}) == ["replay"]
    assert queries.other_runs(store, queries.load_query("incidents"), {"run": ""}) == []
    assert queries.other_runs(store, queries.load_query("evidence_latency"), {}) == []


REPLAYED: dict[str, tuple[dict[str, str], str, list[Any]]] = {
    "xid_by_node": ({}, "lines", [2]),
    "placement_of_job": ({"job": "job7"}, "rank", [0, 1]),
    "ranks_of_job": ({"job": "job7"}, "count", [2]),
    "first_events_of_job": ({"job": "job7"}, "count", [2]),
    "chain": ({"incident": "i1"}, "step", [1, 2]),
}


@pytest.fixture(scope="module")
def twice_replayed(clickhouse_server: ClickHouseServer) -> Iterator[Store]:
    """The same logs replayed as `zz`, an hour later as `aa`, and live."""
    with new_database(clickhouse_server.url) as found:
        migrations.apply(found, migrations.load_migrations())
        told = (seed.progress(), seed.event_batch([seed.event(1)]), seed.incident(), seed.placement())
        for hour, run_id in enumerate(["zz", "aa"]):
            again = [replace(record, run="replay", run_id=run_id) for record in told]
            put(found, *again, timestamp_ms=seed.T0 // 1_000_000 + hour * 3_600_000)
        put(found, *told)
        yield found


@pytest.mark.clickhouse
@pytest.mark.parametrize("name", REPLAYED)
def test_of_two_replays_the_newer_one_is_told_and_the_other_where_it_is_named(twice_replayed: Store, name: str) -> None:
    given, column, expected = REPLAYED[name]
    query = queries.load_query(name)

    def told(**asked: str) -> list[dict[str, Any]]:
        return queries.run_query(twice_replayed, query, {**given, **asked}).objects()

    for asked in ({"run": "replay"}, {"run": "replay", "run_id": "zz"}, {}):
        assert [row[column] for row in told(**asked)] == expected, asked
    assert {row["run_id"] for row in told(run="replay")} == {"aa"}
    assert {row["run_id"] for row in told(run="replay", run_id="zz")} == {"zz"}
    assert {row["run"] for row in told()} == {"live"}
    assert told(run="replay", run_id="yy") == []


@pytest.mark.clickhouse
def test_a_parameter_is_a_value_and_never_sql(filled: Store) -> None:
    given = {"class": "' OR 1 = 1 --"}
    assert queries.run_query(filled, queries.load_query("incidents"), given).rows == []


def test_a_head_is_read() -> None:
    parameters = "-- param a:UInt8 = 3 | three\n-- param b:String | must\n"
    text = f"-- question: What\n-- question: now?\n{parameters}-- example: x\nSELECT 1;\n"
    query = queries.parse_query("q", text)
    assert query.question == "What now?"
    assert [(p.name, p.type, p.default, p.meaning) for p in query.parameters] == [
        ("a", "UInt8", "3", "three"), ("b", "String", None, "must"),
    ]  # fmt: skip
    assert queries.bind(query, {"b": "x"}) == {"a": "3", "b": "x"}


@pytest.mark.parametrize(
    "text", ["SELECT 1", "-- question: x\nSELECT 1", "-- question: x\n-- example: y\n-- param a:T\nSELECT 1"]
)
def test_a_head_that_cannot_be_read_is_an_error(text: str) -> None:
    with pytest.raises(QueryFileError, match="query q"):
        queries.parse_query("q", text)


@pytest.mark.parametrize(
    ("given", "says"), [({}, "needs --param incident="), ({"incident": "i", "colour": "red"}, "no parameter 'colour'")]
)
def test_a_missing_or_unknown_parameter_is_named(given: dict[str, str], says: str) -> None:
    with pytest.raises(QueryFileError, match=says):
        queries.bind(queries.load_query("chain"), given)


@pytest.mark.parametrize("name", ["nonsense", "", "../migrations/0001_raw_lines", "incidents.sql"])
def test_an_unknown_query_names_those_there_are(name: str) -> None:
    with pytest.raises(QueryFileError, match=r"There are: .*chain"):
        queries.load_query(name)
