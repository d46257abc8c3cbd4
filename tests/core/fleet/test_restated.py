"""Old, new and why of each figure that changed."""

from msgspec.structs import replace

from pipeline.core.fleet.records import Fleet
from pipeline.core.fleet.report import Options, fleet_report
from pipeline.core.fleet.restated import Changes, Restatement, restatements
from tests.core.fleet.small_fleets import failed, fleet, unit

NODES = [unit("n1", 240), unit("n2", 240)]


def found(before: Fleet, after: Fleet, changes: Changes) -> dict[str, Restatement]:
    options = Options(by=("class",))
    old, new = fleet_report(before, options), fleet_report(after, options)
    return {one.figure: one for one in restatements(old, new, before, after, changes)}


def test_equal_facts_restate_nothing() -> None:
    of = fleet(NODES, [failed(5, "n1", incident="i1")])
    assert found(of, of, Changes(builds=[("c1", "1 day built again: late data")])) == {}


def test_a_corrected_class_moves_between_rows_with_the_words_of_who_said_it() -> None:
    before = fleet(NODES, [failed(5, "n1", incident="i1"), failed(6, "n2", incident="i2")])
    after = fleet(NODES, [failed(5, "n1", incident="i1", class_="hardware/nvlink_fault"), before.failures[1]])
    rows = found(before, after, Changes(corrections={("c1", "i1"): "cable (ann)"}))
    lost, won = (rows[f"infrastructure, class hardware/{name}: failures"] for name in ("gpu_xid_79", "nvlink_fault"))
    assert (lost.old, lost.new, won.old, won.new) == (2, 1, None, 1)
    said = "incident i1 changed (class hardware/gpu_xid_79 to hardware/nvlink_fault): cable (ann)"
    assert lost.why == won.why == [said]
    assert "infrastructure: failures" not in rows


def test_what_came_late_and_what_is_no_failure_are_told_apart() -> None:
    before = fleet(NODES, [failed(5, "n1", incident="i1")])
    after = fleet(NODES, [failed(7, "n1", incident="i2"), failed(8, "n2", incident="i3")])
    total = found(before, after, Changes())["infrastructure: failures"]
    assert (total.old, total.new) == (1, 2)
    assert total.why == ["incident i1 is not counted any more", "incident i2 is new", "incident i3 is new"]


def test_exposure_that_was_told_later_restates_rates_and_names_the_build() -> None:
    before = fleet([unit("n1", 240)], [failed(5, "n1", incident="i1")])
    after = replace(before, exposures=NODES)
    rows = found(before, after, Changes(builds=[("c1", "2 days built again: import")]))
    assert rows["infrastructure: node-hours at risk"].new == 480
    assert rows["infrastructure: per 1,000 node-days"].why == ["c1: 2 days built again: import"]
    assert "infrastructure: failures" not in rows


def test_a_category_that_is_new_has_no_old_figure() -> None:
    before = fleet(NODES)
    after = fleet(NODES, [failed(5, class_="unknown/silent_rank", incident="i1")])
    rows = found(before, after, Changes())
    assert (rows["unknown: failures"].old, rows["unknown: failures"].new) == (None, 1)
    assert (rows["share of unknown cause"].old, rows["share of unknown cause"].new) == (None, 1)
