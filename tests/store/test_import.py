"""`rootrank import`, and what agents stream: rows that count once, and what cannot be used."""

from datetime import date
from pathlib import Path

import orjson
import pytest
from msgspec.structs import replace
from typer.testing import CliRunner, Result

from pipeline.__main__ import build as application
from pipeline.store.clickhouse import Store
from pipeline.store.fleet_rows import observed_row
from schemas import records as r
from tests.store import fleet_seed, seed
from tests.store.conftest import put, url_of, value
from tests.store.fleet_seed import DAY1, HOUR
from tests.store.seed import CLOCK, NS, RUN_ID, T0

HEAD = "unit_kind,unit,node,kind,from,to,sku"
SACCT = "JobID|User|Submit|Start|End|State|NodeList|AllocTRES"


def run(*words: str, store: Store | None = None, text: str | None = None) -> Result:
    url = url_of(store.settings) if store else "http://127.0.0.1:1/x"
    return CliRunner().invoke(application("import"), ["import", *words], env={"CLICKHOUSE_URL": url}, input=text)


def rows(store: Store, sql: str) -> list[tuple[object, ...]]:
    return [tuple(row) for row in store.rows(sql)]


@pytest.fixture
def inventory(tmp_path: Path) -> Path:
    path = tmp_path / "inventory.csv"
    path.write_text(
        f"{HEAD}\n"
        "node,n1,,installed,2026-03-01T00:00:00Z,,HGX\n"
        "gpu,g1,n1,installed,2026-03-01T12:00:00Z,,H100\n"
        "node,n1,,drain,2026-03-01T06:00:00Z,2026-03-01T05:00:00Z,\n"
        "node,n1,,drain,2026-03-01T18:00:00Z,2026-03-02T00:00:00Z,\n"
    )
    return path


@pytest.mark.clickhouse
def test_a_file_imported_twice_counts_once_and_its_newest_text_stands(store: Store, inventory: Path) -> None:
    words = ("csv", str(inventory), "--cluster", "c1", "--run-id", "r1")
    assert run(*words, store=store).exit_code == 0
    assert run(*words, store=store).exit_code == 0
    assert value(store, "SELECT count() FROM fleet_spans_rows WHERE kind != 'imported'") == 6
    assert value(store, "SELECT count() FROM fleet_spans") == 3
    assert rows(store, "SELECT kind, source, row FROM data_quality") == [("inverted_span", str(inventory), 4)]
    inventory.write_text(f"{HEAD}\nnode,n1,,installed,2026-03-01T00:00:00Z,,HGX\n")
    assert run(*words, store=store).exit_code == 0
    assert rows(store, "SELECT unit, kind FROM fleet_spans") == [("n1", "installed")]
    assert value(store, "SELECT count() FROM data_quality") == 0


@pytest.mark.clickhouse
def test_a_file_that_tells_of_no_jobs_any_more_leaves_none_of_them(store: Store, tmp_path: Path) -> None:
    path = tmp_path / "cluster.json"
    node = {"kind": "Node", "metadata": {"name": "n1", "creationTimestamp": "2026-03-01T00:00:00Z"}}
    gpus = {"containers": [{"resources": {"limits": {"nvidia.com/gpu": "8"}}}], "nodeName": "n1"}
    begun = {"startTime": "2026-03-01T10:00:00Z", "phase": "Running"}
    pod = {"kind": "Pod", "metadata": {"name": "p"}, "spec": gpus, "status": begun}
    for items, attempts in (([node, pod], 1), ([node], 0)):
        path.write_bytes(orjson.dumps({"items": items}))
        assert run("kubernetes", str(path), "--cluster", "c1", store=store).exit_code == 0
        assert value(store, "SELECT count() FROM job_attempts") == attempts


@pytest.mark.clickhouse
def test_an_import_becomes_time_at_risk_of_a_day(store: Store, inventory: Path, tmp_path: Path) -> None:
    jobs = tmp_path / "sacct.txt"
    stamps = "2026-03-01T09:00:00|2026-03-01T10:00:00|2026-03-01T20:00:00"
    jobs.write_text(f"{SACCT}\n7|ada|{stamps}|COMPLETED|n[1-2]|gres/gpu=2\n7.batch|ada|{stamps}|COMPLETED|n1|\n")
    run("csv", str(inventory), "--cluster", "c1", "--run-id", "r1", store=store)
    run("slurm", str(jobs), "--cluster", "c1", "--run-id", "r1", "--zone", "+01:00", store=store)
    fleet_seed.build(store, "c1", date(2026, 3, 1))
    hours = "SELECT unit, sku, installed_ns / 36e11 AS i, in_service_ns / 36e11, busy_ns / 36e11 FROM exposure_days"
    assert rows(store, f"{hours} ORDER BY unit") == [
        ("g1", "H100", 12, 6, 7), ("n1", "HGX", 24, 18, 10), ("n2", "", 10, 10, 10),
    ]  # fmt: skip
    assert rows(store, "SELECT job_id, nodes, gpus, queued_ns, owner, end_state FROM job_attempts") == [
        ("7", ["n1", "n2"], 2, 3600 * NS, "ada", "completed")
    ]


@pytest.mark.clickhouse
def test_an_import_says_what_it_read_and_what_to_do_next(store: Store, inventory: Path) -> None:
    result = run("csv", str(inventory), "--cluster", "c1", store=store)
    assert "tells 3 spans of 2 units and 0 job attempts" in result.stdout
    assert "doubts: 1 inverted_span\n  line 4: n1: drain from 2026-03-01T06:00:00Z" in result.stdout
    assert "rootrank rollup --cluster c1 --from 2026-03-01 --to 20" in result.stdout
    replayed = run("csv", str(inventory), "--cluster", "c1", "--run", "replay", "--run-id", "r1", store=store)
    assert "rootrank rollup --run replay --run-id r1 --cluster c1 --from 2026-03-01 --to 20" in replayed.stdout
    as_json = orjson.loads(run("csv", str(inventory), "--cluster", "c1", "--json", store=store).stdout)
    assert (as_json["defects"], as_json["generation_ms"] > 0) == ({"inverted_span": 1}, True)


def test_a_dry_run_asks_no_engine(inventory: Path) -> None:
    result = run("csv", str(inventory), "--cluster", "c1", "--dry-run")
    assert (result.exit_code, "nothing was written" in result.stdout) == (0, True)


def test_the_zone_that_stamps_are_taken_for_is_said() -> None:
    text = f"{SACCT}\n7|ada|2026-03-01T08:00:00|2026-03-01T10:00:00|2026-03-01T20:00:00|FAILED|n1|\n"
    words = ("slurm", "-", "--source", "sacct", "--cluster", "c1", "--dry-run")
    for zone, first in (("", "2026-03-01T10:00:00Z"), ("Europe/Berlin", "2026-03-01T09:00:00Z")):
        shown = run(*words, *(["--zone", zone] if zone else []), text=text).stdout
        assert f"taken as {zone or 'UTC'}" in shown
        assert first in shown


@pytest.mark.parametrize(
    ("words", "text", "code", "says"),
    [
        (("csv", "/nonexistent/x.csv"), "", 3, "cannot read"),
        (("csv", "-"), HEAD, 2, "give --source"),
        (("csv", "-", "--source", "x"), "a,b\n", 2, "The columns are: unit_kind"),
        (("slurm", "-", "--source", "x"), "a,b\n", 2, "sacct -a"),
        (("kubernetes", "-", "--source", "x"), "a,b\n", 2, "kubectl get"),
        (("slurm", "-", "--source", "x", "--zone", "Mars"), SACCT, 2, "Europe/Berlin or +01:00"),
        (("csv", "-", "--source", "x", "--run", "dress"), HEAD, 2, "live, replay, drill"),
        (("csv", "-", "--source", "x", "--run", "replay"), HEAD, 2, "which replay? Give --run-id"),
        (("csv", "-", "--source", "x"), HEAD, 1, "nothing to import"),
        (("csv", "-", "--source", "x", "--cluster", " "), HEAD, 2, "--cluster must name one"),
        (("csv", "-", "--source", "x"), f"{HEAD}\nnode,n1,,installed,2026-03-01T00:00:00Z,,\n", 3, "does not answer"),
    ],
)
def test_what_cannot_be_imported_is_said_with_what_to_do(
    words: tuple[str, ...], text: str, code: int, says: str
) -> None:
    result = run("--cluster", "c1", *words, text=text)
    assert (result.exit_code, says in result.stderr) == (code, True), result.output


def test_text_of_a_file_does_not_steer_the_terminal() -> None:
    text = f"{HEAD}\nnode,n\x1b[2J1,,\x1b]0;x\x07,2026-03-01T00:00:00Z,,\n"
    result = run("csv", "-", "--source", "x\x1b[1m", "--cluster", "c1", "--dry-run", text=text)
    assert "\x1b" not in result.output
    assert "\\x1b[2J1" in result.output


def test_json_of_an_import_does_not_steer_the_terminal(inventory: Path) -> None:
    result = run("csv", str(inventory), "--source", "x\x9b2J\u202e", "--cluster", "c1", "--dry-run", "--json")
    assert orjson.loads(result.stdout)["source"] == "x\x9b2J\u202e"
    assert all(c == "\n" or c.isprintable() for c in result.output)


def test_names_in_another_encoding_are_not_taken_for_each_other(tmp_path: Path) -> None:
    path = tmp_path / "latin.csv"
    lines = "".join(f"node,{name},,installed,2026-03-01T00:00:00Z,,\n" for name in ("h\xe9", "h\xe8"))
    path.write_text(f"{HEAD}\n{lines}", encoding="latin-1")
    result = run("csv", str(path), "--cluster", "c1", "--dry-run", "--json")
    assert orjson.loads(result.stdout)["units"] == 2


@pytest.mark.clickhouse
def test_a_span_that_is_told_again_with_its_end_is_one_row(store: Store) -> None:
    put(store, seed.drain(), seed.drain(), seed.drain(end_ns=T0 + 7200 * NS), seed.drain(kind="maintenance"))
    found = rows(store, "SELECT unit, kind, ended_at IS NULL FROM fleet_spans ORDER BY kind")
    assert found == [("n1", "drain", 0), ("n1", "maintenance", 1)]


@pytest.mark.clickhouse
def test_facts_of_a_node_hold_from_when_they_were_first_told(store: Store) -> None:
    later = seed.node_facts(at_ns=T0 + 60 * NS)
    put(store, seed.node_facts(), later, seed.node_facts("b2", at_ns=T0 + 120 * NS, driver="580"))
    found = rows(
        store,
        f"SELECT unit_kind, unit, node, toUnixTimestamp64Nano(started_at) - {T0}, facts['driver'], facts['name'], "
        "action FROM fleet_spans ORDER BY started_at, unit_kind",
    )
    assert found == [
        ("gpu", "GPU-1", "m1", 0, "", "", "seen"), ("node", "m1", "", 0, "570", "n1", "seen"),
        ("gpu", "GPU-1", "m1", 120 * NS, "", "", "seen"), ("node", "m1", "", 120 * NS, "580", "n1", "seen"),
    ]  # fmt: skip


@pytest.mark.clickhouse
def test_a_rack_and_an_attempt_that_are_told_are_spans(store: Store) -> None:
    rack = r.Topology(
        run="live", run_id=RUN_ID, cluster="c1", reporter="ops", node="n1", source="dcim", start_unix_nano=T0, rack="r7"
    )
    attempt = r.Attempt(
        run="live", run_id=RUN_ID, cluster="c1", reporter="n1", node="n1", job_id="7", attempt=2, start_unix_nano=T0,
    )  # fmt: skip
    put(store, rack, attempt, replace(attempt, end_unix_nano=T0 + NS, outcome="completed"), replace(attempt, attempt=3))
    found = rows(store, "SELECT kind, facts['rack'], job_id, attempt, outcome FROM fleet_spans ORDER BY attempt")
    assert found == [("facts", "r7", "", 0, ""), ("busy", "", "7", 2, "completed"), ("busy", "", "7", 3, "")]


@pytest.mark.clickhouse
def test_a_state_that_nobody_knows_is_named_when_the_day_is_built(store: Store) -> None:
    put(store, seed.drain(kind="asleep"))
    fleet_seed.build(store, "c1", date(2026, 3, 1))
    assert rows(store, "SELECT kind, unit, source FROM data_quality") == [("unknown_kind", "n1", "ops")]


def progress(reporter: str) -> r.Progress:
    return r.Progress(
        run="live", run_id=RUN_ID, cluster="c1", reporter=reporter, boot_id="b1", shipper_id="s1", last_batch_seq=1,
        clock=CLOCK,
    )  # fmt: skip


@pytest.mark.clickhouse
def test_the_minutes_in_which_an_agent_was_heard_of_are_observed(store: Store) -> None:
    day_ms = DAY1 // 1_000_000
    for minute in (0, 1, 2, 2, 59, 60, 61, 130):
        put(store, progress("n1"), timestamp_ms=day_ms + minute * 60_000 + 1)
    found = rows(store, f"SELECT (toUnixTimestamp(started_at) - {day_ms // 1000}) / 60, "
                        f"(toUnixTimestamp(ended_at) - {day_ms // 1000}) / 60 FROM observed ORDER BY 1")  # fmt: skip
    assert found == [(0, 3), (59, 60), (60, 62), (130, 131)]
    fleet_seed.put_spans(store, [fleet_seed.span("c1", "installed", "node", "n1", DAY1)])
    fleet_seed.build(store, "c1", date(2026, 3, 1))
    assert value(store, "SELECT observed_ns / 6e10 FROM exposure_days") == 7
    assert value(store, "SELECT installed_ns FROM exposure_days") == 24 * HOUR


def test_a_minute_is_a_bit_of_its_hour() -> None:
    _, row = observed_row(progress("n1"), 3_600_000 * 10 + 60_000 * 59 + 59_999)
    assert row[-2:] == (36_000, 1 << 59)
