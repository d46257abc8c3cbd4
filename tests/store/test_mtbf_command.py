"""`rootrank mtbf` and `rootrank correct` on the real engine."""

from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import msgspec
import pytest
from msgspec.structs import replace
from typer.testing import CliRunner

from pipeline.__main__ import build as command_line
from pipeline.core.fleet.records import Cohort, Defect, JobAttempt
from pipeline.store.clickhouse import Store
from pipeline.store.fleet_rows import attempt_row
from pipeline.store.tables import JOB_ATTEMPTS
from schemas.records import Event
from tests.store import seed
from tests.store.conftest import put, url_of
from tests.store.fleet_days import HOUR_NS, build, failure, imported, installed, ms, node, ns

pytestmark = pytest.mark.clickhouse
H100, A100 = Cohort(sku="H100", driver="580.1"), Cohort(sku="A100", driver="570.2")


def run(store: Store, *arguments: str, code: int = 0) -> str:
    """What the command prints."""
    result = CliRunner().invoke(
        command_line(arguments[0]), [*arguments, "--clickhouse-url", url_of(store.settings)], env={"COLUMNS": "120"}
    )
    assert result.exit_code == code, result.output
    return result.output


def report(store: Store, *arguments: str) -> dict[str, Any]:
    found: dict[str, Any] = msgspec.json.decode(run(store, "mtbf", "--json", *arguments))
    return found


def row(report: dict[str, Any], by: str, value: str = "", category: str = "infrastructure") -> dict[str, Any]:
    found: dict[str, Any]
    (found,) = [r for r in report["rates"] if (r["by"], r["value"], r["category"]) == (by, value, category)]
    return found


@pytest.fixture
def fleet(store: Store) -> Store:
    """Two days of two nodes: three failures, one of them planned."""
    installed(store, ["n1", "n2"], "2026-01-01")
    build(
        store, "2026-03-01", "2026-03-02T01:00",
        exposures=[node("n1", cohort=H100), node("n2", hours=12, cohort=A100)],
        failures=[failure("i1", ns("2026-03-01", 5), cohort=H100, lost=8)],
    )  # fmt: skip
    build(
        store, "2026-03-02", "2026-03-03T01:00",
        exposures=[node("n1", cohort=H100), node("n2", cohort=A100, observed=0)],
        failures=[
            failure("i2", ns("2026-03-02", 6), cohort=H100, class_="network/ib_link_flap"),
            failure("i3", ns("2026-03-02", 7), cohort=H100, class_="scheduler/preempted"),
        ],
        defects=[Defect(kind="overlapping_spans", cluster="c1", unit="n2", detail="<b>\x1b[2J", source="a.csv", row=3)],
    )  # fmt: skip
    return store


def test_rates_count_what_failed_over_the_time_at_risk(fleet: Store) -> None:
    found = report(fleet)
    total = row(found, "all")
    assert (total["n"], total["exposure_hours"], total["exposure_kind"]) == (2, 84.0, "in_service")
    assert total["rate"]["value"] == pytest.approx(2 / 84 * 24_000)
    assert total["system_mtbf_hours"]["value"] == pytest.approx(48 / 2)
    assert row(found, "all", category="planned")["n"] == 1
    assert (row(found, "sku", "H100")["n"], row(found, "sku", "A100")["n"]) == (2, 0)
    assert row(found, "sku", "A100")["node_mtbf_hours"]["value"] is None
    assert row(found, "sku", "A100")["unobserved_share"] == pytest.approx(24 / 36)
    assert (found["from_"], found["to"], found["nodes"]) == ("2026-03-01", "2026-03-02", 2)


def test_data_that_cannot_be_true_is_named_with_its_place(fleet: Store) -> None:
    (found,) = report(fleet)["defects"]
    assert (found["kind"], found["n"]) == ("overlapping_spans", 1)
    assert (found["examples"][0]["source"], found["examples"][0]["row"]) == ("a.csv", 3)


def test_what_is_wrong_for_several_days_is_one_defect_and_two_failures_of_a_unit_are_two(store: Store) -> None:
    for day, more in (("2026-03-01", ""), ("2026-03-02", "; and 2 more like it")):
        build(
            store, day, "2026-03-03T01:00", exposures=[node("n1")],
            defects=[
                Defect(
                    kind="gpu_in_two_nodes", cluster="c1", unit="g1", detail=f"in n1 and n2{more}", source="a.csv",
                    row=3, at_ns=ns("2026-01-01"),
                ),
                Defect(
                    kind="failure_in_repair", cluster="c1", unit="n2", detail=f"incident of {day}", source="incidents",
                    at_ns=ns(day, 5),
                ),
            ],
        )  # fmt: skip
    assert {found["kind"]: found["n"] for found in report(store)["defects"]} == {
        "gpu_in_two_nodes": 1, "failure_in_repair": 2,
    }  # fmt: skip


def test_a_job_that_two_imports_tell_is_in_the_figures_of_jobs_once(fleet: Store) -> None:
    begin = ns("2026-03-01", 2)
    for source, end in (("march.txt", None), ("april.txt", begin + 4 * HOUR_NS)):
        told = JobAttempt(
            cluster="c1", job_id="7", attempt=0, nodes=("n1",), gpus=8, from_ns=begin, to_ns=end, end="node_failure",
            source=source, row=2,
        )  # fmt: skip
        fleet.insert(JOB_ATTEMPTS, [attempt_row(("live", "", "c1"), told, ms("2026-03-03"), ms("2026-03-03"), 1)])
        imported(fleet, source, ms("2026-03-03"))
    (row,) = report(fleet)["jobs"]["rows"]
    assert (row["jobs"], row["busy_hours"], row["failures"]) == (1, 4, 1)


def test_the_text_names_exposure_interval_dispersion_and_shares_and_steers_no_terminal(fleet: Store) -> None:
    text = run(fleet, "mtbf")
    assert "INFRASTRUCTURE  2 failures" in text
    assert "PLANNED  1 failure" in text
    assert "in service" in text
    assert "dispersion D 1.50; top 1 100.0 % (n1)" in text
    assert "\\x1b[2J" in text
    assert all(c == "\n" or c.isprintable() for c in text)


def test_days_from_the_window_on_count_only(fleet: Store) -> None:
    assert row(report(fleet, "--from", "2026-03-02"), "all")["n"] == 1
    assert row(report(fleet, "--last", "1d"), "all")["n"] == 1
    assert row(report(fleet, "--to", "2026-03-01"), "all")["n"] == 1


def test_runs_of_one_kind_are_not_added_up(fleet: Store) -> None:
    build(
        fleet, "2026-03-02", "2026-03-03T01:00", run_id="second", exposures=[node("n1", cohort=H100)],
        failures=[failure("i7", ns("2026-03-02", 3), cohort=H100)],
    )  # fmt: skip
    assert "give --run-id: , second" in run(fleet, "mtbf", "--from", "2026-03-01", code=2)
    found = row(report(fleet, "--run-id", "second"), "all")
    assert (found["n"], found["exposure_hours"]) == (1, 24)


def test_a_day_between_that_is_not_built_is_said(fleet: Store) -> None:
    build(fleet, "2026-03-04", "2026-03-05T01:00", exposures=[node("n1", cohort=H100)])
    kinds = {found["kind"]: found["examples"][0]["unit"] for found in report(fleet)["defects"]}
    assert kinds["day_not_built"] == "2026-03-03"


def test_a_day_that_is_not_built_is_no_time_without_failures(fleet: Store) -> None:
    before = row(report(fleet), "all")["system_mtbf_hours"]["value"]
    build(fleet, "2026-03-20", "2026-03-21T01:00", exposures=[node("n1", cohort=H100)])
    found = report(fleet, "--by", "cluster")
    assert before == 48 / 2
    for by, value in (("all", ""), ("cluster", "c1")):
        assert row(found, by, value)["system_mtbf_hours"]["value"] == 72 / 2


def test_rates_by_another_exposure_have_another_denominator(fleet: Store) -> None:
    assert row(report(fleet, "--exposure", "installed"), "all")["exposure_hours"] == 96
    assert row(report(fleet, "--exposure", "busy"), "all")["exposure_hours"] == 42


def test_a_report_issued_then_is_made_again(fleet: Store) -> None:
    before = run(fleet, "mtbf", "--json", "--as-of", "2026-03-03T02:00:00Z")
    build(
        fleet, "2026-03-02", "2026-03-09T01:00", why="late data",
        exposures=[node("n1", cohort=H100), node("n2", cohort=A100)],
        failures=[failure("i9", ns("2026-03-02", 9), node="n2", cohort=A100)],
    )  # fmt: skip
    assert run(fleet, "mtbf", "--json", "--as-of", "2026-03-03T02:00:00Z") == before
    assert row(report(fleet), "sku", "A100")["n"] == 1
    assert row(report(fleet, "--as-of", "2026-03-02"), "all")["n"] == 1
    too_early = run(fleet, "mtbf", "--from", "2026-03-01", "--to", "2026-03-02", "--as-of", "2026-02-01", code=2)
    assert "was built yet at 2026-02-01 23:59:59 UTC" in too_early
    assert "rollup" not in too_early


def test_a_restatement_says_old_new_and_why(fleet: Store) -> None:
    put(fleet, seed.incident(1))
    build(
        fleet, "2026-03-01", "2026-03-02T02:00", exposures=[node("n1", cohort=H100), node("n2", hours=12, cohort=A100)],
        failures=[failure("i1", ns("2026-03-01", 5), cohort=H100, lost=8)],
    )  # fmt: skip
    run(fleet, "correct", "i1", "--class", "network/ib_link_flap", "--why", "cable 12 was loose", "--by", "ann")
    build(
        fleet, "2026-03-01", "2026-03-09T01:00", why="correction",
        exposures=[node("n1", cohort=H100), node("n2", hours=12, cohort=A100)],
        failures=[failure("i1", ns("2026-03-01", 5), cohort=H100, class_="network/ib_link_flap", lost=8)],
    )  # fmt: skip
    found = msgspec.json.decode(run(fleet, "mtbf", "--restated-since", "2026-03-04", "--json", code=1))
    by_figure = {one["figure"]: one for one in found}
    moved = by_figure["infrastructure, class network/ib_link_flap: failures"]
    assert (moved["old"], moved["new"]) == (1, 2)
    assert any(
        "class hardware/gpu_xid_79 to network/ib_link_flap): cable 12 was loose (ann)" in w for w in moved["why"]
    )
    assert "c1: 1 day built again: correction" in moved["why"]
    assert "infrastructure: failures" not in by_figure
    text = run(fleet, "mtbf", "--restated-since", "2026-03-04", code=1)
    assert "cable 12 was loose (ann)" in text


def test_nothing_restated_is_said(fleet: Store) -> None:
    assert "No figure differs" in run(fleet, "mtbf", "--restated-since", "2026-03-04")


def test_without_units_the_import_is_named_and_without_days_the_rollup(store: Store) -> None:
    assert "rootrank import" in run(store, "mtbf", code=2)
    installed(store, ["n1"], "2026-01-01")
    assert "rootrank rollup" in run(store, "mtbf", code=2)
    assert "rootrank rollup" in run(store, "mtbf", "--from", "2026-01-01", "--to", "2026-01-02", code=2)


@pytest.mark.parametrize(
    ("arguments", "says"),
    [
        (("--last", "3"), "write it as 90d"),
        (("--from", "yesterday"), "write a day as"),
        (("--as-of", "2026-13-01"), "write it as 2026-03-31"),
        (("--as-of", "0001-01-01"), "from 2000-01-01 to 2099-12-31"),
        (("--as-of", "9999-12-31T23:00:00-10:00"), "from 2000-01-01 to 2099-12-31"),
        (("--restated-since", "0001-01-01T00:00:00+10:00"), "from 2000-01-01 to 2099-12-31"),
        (("--to", "0001-01-01"), "from 2000-01-01 to 2099-12-31"),
        (("--by", "colour"), "there are cluster, sku"),
        (("--exposure", "asleep"), "there are installed"),
        (("--run", "tomorrow"), "there are live"),
        (("--from", "2026-03-09", "--to", "2026-03-01"), "is before --from"),
    ],
)
def test_what_cannot_be_understood_is_a_sentence(fleet: Store, arguments: tuple[str, ...], says: str) -> None:
    assert says in run(fleet, "mtbf", *arguments, code=2)


def test_two_replays_are_two_fleets_and_an_old_day_of_one_is_kept(store: Store) -> None:
    now = f"{datetime.now(UTC):%Y-%m-%dT%H:%M}"
    for run_id, hours in (("try1", 24), ("try2", 12)):
        build(store, "2025-03-01", now, exposures=[node("n1", hours)], run="replay", run_id=run_id)
    store.command("OPTIMIZE TABLE exposure_days_rows FINAL")

    assert "give --run-id: try1, try2" in run(store, "mtbf", "--run", "replay", code=2)
    for run_id, hours in (("try1", 24), ("try2", 12)):
        total = row(report(store, "--run", "replay", "--run-id", run_id), "all")
        assert total["exposure_hours"] == hours


def test_the_page_is_written_and_escaped(fleet: Store, tmp_path: Path) -> None:
    run(fleet, "mtbf", "--html", str(tmp_path / "p.html"))
    page = (tmp_path / "p.html").read_text(encoding="utf-8")
    assert "&lt;b&gt;" in page
    assert "<b>\x1b" not in page


@pytest.mark.parametrize(
    ("arguments", "says"),
    [
        (("nobody", "--class", "network/no_route", "--why", "x"), "there is no incident nobody"),
        (("i1", "--class", "hardware/ib_link_flap", "--why", "x"), "is it network/ib_link_flap?"),
        (("i1", "--class", "ib_link_flaps", "--why", "x"), "is it network/ib_link_flap?"),
        (("i1", "--class", "network/xyz", "--why", "x"), "Of network there are network/"),
        (("i1", "--class", "xyz", "--why", "x"), "Domains are "),
        (("i1", "--why", "x"), "nothing to correct"),
        (("i1", "--not-a-failure", "--why", " "), "must say why"),
        (("i1", "--unit", "n1", "--unit-kind", "rack", "--why", "x"), "gpu or node"),
    ],
)
def test_a_correction_that_cannot_be_meant_is_refused(store: Store, arguments: tuple[str, ...], says: str) -> None:
    put(store, seed.incident(1))
    assert says in run(store, "correct", *arguments, code=2)
    assert not store.rows("SELECT * FROM corrections")


def test_the_latest_correction_stands_and_the_incident_stays(store: Store) -> None:
    put(store, seed.incident(1))
    run(store, "correct", "i1", "--class", "network/no_route", "--why", "first", "--by", "ann")
    said = run(
        store, "correct", "i1", "--unit", "GPU-1", "--node", "n1", "--not-a-failure", "--why", "then", "--by", "bo"
    )
    assert "rootrank rollup --day 2026-03-01 --why correction" in said
    rows = store.rows("SELECT class, unit_kind, unit, node, is_failure, why, corrected_by FROM corrections")
    assert [tuple(row) for row in rows] == [("", "gpu", "GPU-1", "n1", False, "then", "bo")]
    assert store.rows("SELECT class FROM incidents")[0][0] == "hardware/gpu_xid_79"


def test_of_one_incident_in_two_replays_the_one_that_is_named_is_corrected(store: Store) -> None:
    for run_id in ("try1", "try2"):
        put(store, replace(seed.incident(run="replay"), run_id=run_id))
    words = ("correct", "i1", "--run", "replay", "--not-a-failure", "--why", "a drill")

    assert "give --run-id (try1, try2)" in run(store, *words, code=2)
    said = run(store, *words, "--run-id", "try1")

    assert "`rootrank rollup --day 2026-03-01 --why correction --cluster c1 --run replay`" in said
    assert [row[0] for row in store.rows("SELECT run_id FROM corrections")] == ["try1"]


def test_what_follows_what_is_counted_on_the_first_lines_of_bursts(fleet: Store) -> None:
    def xid(number: int, code: str) -> Event:
        return replace(seed.event(number), lo_unix_nano=at(number), hi_unix_nano=at(number), attributes={"xid": code})

    def at(number: int) -> int:
        return seed.T0 + number * seed.NS

    put(fleet, seed.event_batch([xid(1, "48"), xid(2, "48"), xid(3, "63"), xid(900, "48")]))
    followed, other = report(fleet)["propagation"]
    assert (followed["cause"], followed["effect"]) == ("Xid 48", "Xid 63")
    assert (followed["sources"], followed["followed"], followed["same_unit"]) == (2, 1, 1)
    assert (other["cause"], other["followed"], other["preceded"]) == ("Xid 63", 0, 1)
    text = run(fleet, "mtbf")
    assert "WHAT FOLLOWS WHAT" in text
    assert "Xid 63  Xid 48" not in text
    assert report(fleet, "--as-of", "2026-03-04")["propagation"] == []


def test_from_an_inventory_a_job_and_an_incident_to_a_report(store: Store, tmp_path: Path) -> None:
    inventory = tmp_path / "inventory.csv"
    inventory.write_text(
        "unit_kind,unit,node,kind,from,to,sku,action\n"
        "node,n1,,installed,2026-01-01T00:00:00Z,,HGX,\n"
        "node,n2,,installed,2026-02-01T00:00:00Z,,HGX,\n"
        "gpu,GPU-1,n1,installed,2026-01-01T00:00:00Z,,H100,\n"
        "node,n1,,repair,2026-03-01T11:00:00Z,2026-03-01T15:00:00Z,,reset\n"
    )
    imported = ["import", "csv", str(inventory), "--cluster", "c1", "--run-id", seed.RUN_ID]
    run(store, *imported)
    put(store, seed.incident(1))
    run(store, "rollup", "--day", "2026-03-01", "--why", "first")
    found = report(store)
    assert (found["nodes"], found["gpus"], found["from_"]) == (2, 1, "2026-03-01")
    total = row(found, "all")
    assert (total["n"], total["exposure_hours"], total["top_unit"]) == (1, 44, "n1")
    assert row(found, "class", "hardware/gpu_xid_79")["n"] == 1
    (node,) = [curve for curve in found["survival"] if curve["unit_kind"] == "node"]
    assert (node["clock"], node["units"], node["failed"]) == ("age", 2, 1)
    (mended,) = [one for one in found["repair_times"] if one["step"] == "repair"]
    assert (mended["n"], mended["still_open"]) == (1, 0)
    run(store, "correct", "i1", "--not-a-failure", "--why", "a test", "--by", "ann")
    run(store, "rollup", "--day", "2026-03-01", "--why", "correction")
    assert row(report(store), "all")["n"] == 0


def test_days_of_long_ago_are_kept_from_when_they_are_built(store: Store, tmp_path: Path) -> None:
    inventory = tmp_path / "inventory.csv"
    inventory.write_text("unit_kind,unit,kind,from\nnode,n1,installed,2012-01-01T00:00:00Z\n")
    for kept in ("live", "replay"):
        run(store, "import", "csv", str(inventory), "--cluster", "c1", "--run", kept, "--run-id", "r1")
        run(store, "rollup", "--day", "2012-03-01", "--run", kept)
        store.command("OPTIMIZE TABLE exposure_days_rows FINAL")
        assert row(report(store, "--run", kept), "all")["exposure_hours"] == 24


def test_two_replays_of_the_same_lines_are_not_twice_the_fleet(store: Store, tmp_path: Path) -> None:
    inventory = tmp_path / "inventory.csv"
    inventory.write_text("unit_kind,unit,kind,from\nnode,n1,installed,2026-01-01T00:00:00Z\n")
    for run_id in ("a", "b"):
        run(store, "import", "csv", str(inventory), "--cluster", "c1", "--run", "replay", "--run-id", run_id)
        put(store, replace(seed.incident(1, run="replay"), run_id=run_id))
    run(store, "rollup", "--day", "2026-03-01", "--run", "replay")
    assert "give --run-id: a, b" in run(store, "mtbf", "--run", "replay", code=2)
    total = row(report(store, "--run", "replay", "--run-id", "b"), "all")
    assert (total["n"], total["exposure_hours"]) == (1, 24)
    asked = ["--param", "run=replay", "--param", "unit_kind=node", "--param", "from=2026-03-01", "--json"]
    for name in ("mtbf_by_cohort", "mtbf_by_class"):
        assert "give run_id" in run(store, "query", name, *asked, code=2)
        (found,) = msgspec.json.decode(run(store, "query", name, *asked, "--param", "run_id=b"))
        assert (found["n"], found["unit_hours"]) == (1, 24)
