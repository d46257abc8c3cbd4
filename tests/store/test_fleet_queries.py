"""Named queries on a fleet of two clusters: every row, by value."""

import re
from datetime import date
from functools import partial
from typing import Any

import pytest
from msgspec.structs import replace

from pipeline.core.fleet.records import Cohort, EpisodeCount
from pipeline.store import queries
from pipeline.store.clickhouse import Store
from pipeline.store.errors import StoreRefusedError
from pipeline.store.sqlfiles import QUERIES
from tests.store import fleet_days, fleet_seed
from tests.store.fleet_answers import ANSWERS, DAYS
from tests.store.fleet_seed import BUILT_MS, DAY1, HOUR, correct
from tests.store.seed import RUN_ID

LATER_MS = BUILT_MS + 2 * 86_400_000


@pytest.fixture(scope="module")
def fleet(shared_store: Store) -> Store:
    fleet_seed.fill(shared_store)
    correct(shared_store, "i3", at_ms=LATER_MS - 1, is_failure=False)
    fleet_seed.build(shared_store, "c1", date(2026, 3, 2), built_at_ms=LATER_MS, why="correction")
    return shared_store


def ask(store: Store, name: str, given: dict[str, str]) -> list[dict[str, Any]]:
    return queries.run_query(store, queries.load_query(name), given).objects()


@pytest.mark.clickhouse
@pytest.mark.parametrize("name", ANSWERS)
def test_a_query_says_of_a_fleet_what_is_true_of_it(fleet: Store, name: str) -> None:
    given, columns, expected = ANSWERS[name]
    query = queries.load_query(name)
    if "as_of" in {parameter.name for parameter in query.parameters}:
        given = {"as_of": "2026-03-03 12:00:00", **given}
    found = ask(fleet, name, given)
    assert [tuple(_rounded(row[column]) for column in columns.split()) for row in found] == expected


def _rounded(value: Any) -> Any:
    return round(value, 5) if isinstance(value, float) else value


@pytest.mark.clickhouse
@pytest.mark.parametrize("name", [name for name in ANSWERS if name not in ("dead_letters_by_reason", "garwood")])
def test_a_replay_is_not_in_an_answer_about_the_live_fleet(fleet: Store, name: str) -> None:
    query = queries.load_query(name)
    if "run" in {parameter.name for parameter in query.parameters}:
        assert ask(fleet, name, {**ANSWERS[name][0], "run": "replay"}) == []


@pytest.mark.clickhouse
def test_a_repair_of_a_node_knows_the_failure_of_the_gpu_in_it(store: Store) -> None:
    fleet_days.build(
        store, "2026-03-01", "2026-03-02T01:00", run_id=RUN_ID,
        failures=[fleet_days.failure("i1", DAY1 + HOUR, node="n1", gpu="g1")],
    )  # fmt: skip
    begin = DAY1 + 3 * HOUR
    fleet_seed.put_spans(store, [fleet_seed.span("c1", "repair", "node", "n1", begin, begin + HOUR, action="swap")])

    [row] = ask(store, "repairs", {})

    assert (row["unit"], row["to_repair_hours"]) == ("n1", 2)


@pytest.mark.clickhouse
def test_a_correction_changes_what_stands_now_and_not_what_stood_then(fleet: Store) -> None:
    def failures(**given: str) -> dict[str, int]:
        return {row["cohort"]: row["n"] for row in ask(fleet, "mtbf_by_cohort", {**DAYS, **given})}

    assert failures() == {"h100": 1, "a100": 1}
    assert failures(as_of="2026-03-03 12:00:00") == {"h100": 2, "a100": 1}
    assert failures(as_of="2026-03-03 05:00:00") == {}


@pytest.mark.clickhouse
def test_a_cohort_without_a_failure_has_a_lower_bound_and_no_mean(fleet: Store) -> None:
    found = ask(fleet, "mtbf_by_cohort", {**DAYS, "by": "driver", "cluster": "c1"})
    one = next(row for row in found if row["cohort"] == "550")
    assert (one["n"], one["unit_hours"], one["mtbf_hours"], one["mtbf_hi_hours"]) == (0, 12, None, None)
    assert one["mtbf_lo_hours"] == pytest.approx(12 / 3.688879454)


@pytest.mark.clickhouse
def test_nobody_is_not_the_worst_unit_of_a_cluster(store: Store) -> None:
    failures = [fleet_days.failure(f"i{hour}", fleet_days.ns("2026-03-01", hour), node="") for hour in range(3)]
    failures += [fleet_days.failure("i9", fleet_days.ns("2026-03-01", 9), node=name) for name in ("n1", "n9")]
    nodes = [fleet_days.node(name) for name in ("n1", "n2")]
    fleet_days.build(store, "2026-03-01", "2026-03-02T01:00", exposures=nodes, failures=failures)
    (found,) = ask(store, "mtbf_by_cohort", {**DAYS, "by": "cluster", "unit_kind": "node"})
    assert (found["n"], found["uncounted"], found["worst_unit_share"], found["dispersion"]) == (4, 1, 1, 1)
    (by_class,) = ask(store, "mtbf_by_class", {**DAYS, "unit_kind": "node"})
    assert (by_class["n"], by_class["units_with_it"], by_class["worst_unit_share"]) == (5, 1, 1)
    assert by_class["dispersion"] == 1


@pytest.mark.clickhouse
@pytest.mark.parametrize("wrong", [{"by": "colour"}, {"exposure": "asleep"}])
def test_a_word_that_the_query_does_not_know_is_refused(fleet: Store, wrong: dict[str, str]) -> None:
    with pytest.raises(StoreRefusedError, match="words that the head of this query names"):
        ask(fleet, "mtbf_by_cohort", {**DAYS, **wrong})


def test_every_query_with_an_interval_has_the_same_functions() -> None:
    blocks = {}
    for path in QUERIES.glob("*.sql"):
        found = re.search(r"    \(n\) -> if\(n < 16.*?(?=    -- end\n)", path.read_text(encoding="utf-8"), re.DOTALL)
        if found:
            blocks[path.stem] = found[0]
    assert blocks.keys() == {"garwood", "mtbf_by_class", "mtbf_by_cohort"}
    assert set(blocks.values()) == {blocks["garwood"]}


@pytest.mark.clickhouse
def test_hours_past_what_64_bits_of_ns_hold_add_up(store: Store) -> None:
    """Three units of 228 years each stand for a fleet of 100,000 over days."""
    cohort = Cohort(sku="h100", driver="535")
    unit = fleet_days.node("n1", 2_000_000, cohort=cohort)
    gpus = [replace(unit, unit_kind="gpu", unit=name) for name in ("g1", "g2", "g3")]
    told = EpisodeCount(
        cluster="c1", unit_kind="gpu", unit="g1", cohort=cohort, name="gpu.xid", xid=79, lines=1, episodes=1
    )
    failed = fleet_days.failure("i1", fleet_days.ns("2026-03-01", 1), gpu="g1", cohort=cohort)
    build = partial(fleet_days.build, store, "2026-03-01", failures=[failed], episodes=[told])
    build(built_at="2026-03-02T06:00", exposures=gpus)
    build(built_at="2026-03-03T06:00", exposures=gpus[:1])
    days = {**DAYS, "as_of": "2026-03-02 12:00:00"}
    (of_cohort,) = ask(store, "mtbf_by_cohort", days)
    assert (of_cohort["unit_hours"], of_cohort["mtbf_hours"]) == (6_000_000, 6_000_000)
    assert of_cohort["unobserved_share"] == pytest.approx(1 - 24 / 2_000_000)
    assert [row["unit_hours"] for row in ask(store, "mtbf_by_class", {**days, "unit_kind": "gpu"})] == [6_000_000]
    (restated,) = ask(store, "restatements", {"as_of": "2026-03-02 12:00:00"})
    assert (restated["old"], restated["new"]) == (6_000_000, 2_000_000)
    build(built_at="2026-03-04T06:00", exposures=gpus)
    (of_xid,) = ask(store, "xid_by_sku_and_driver", DAYS)
    assert of_xid["gpu_years"] == pytest.approx(6_000_000 / 8766)
