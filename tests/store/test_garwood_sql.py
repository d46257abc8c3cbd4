"""Garwood's limits in SQL next to scipy's."""

import pytest
from scipy.stats import gamma

from pipeline.store import queries
from pipeline.store.clickhouse import Store
from pipeline.store.errors import StoreRefusedError
from pipeline.store.sqlfiles import QUERIES

SPREAD = [*range(301), 419, 500, 733, 1000, 1999, 3000, 5027, 7777, 9000, 9999, 10_000]


def limits(store: Store, counts: list[int], tail: float) -> list[tuple[int, float, float]]:
    """n, lo, hi by the functions that the named queries use."""
    text = (QUERIES / "garwood.sql").read_text(encoding="utf-8")
    functions = text[text.index("WITH") : text.index("    -- end")].rstrip().rstrip(",")
    asked = "SELECT n, garwood_lo(toFloat64(n), {tail:Float64}), garwood_hi(toFloat64(n), {tail:Float64})"
    sql = f"{functions} {asked} FROM (SELECT arrayJoin({{counts:Array(UInt64)}}) AS n)"
    return [(n, lo, hi) for n, lo, hi in store.rows(sql, {"counts": counts, "tail": tail})]


@pytest.mark.clickhouse
@pytest.mark.parametrize("tail", [0.025, 0.05, 0.005, 0.25, 1e-6])
def test_both_limits_are_those_of_scipy_to_a_billionth(shared_store: Store, tail: float) -> None:
    found = limits(shared_store, SPREAD, tail)
    assert [n for n, _, _ in found] == SPREAD
    for n, lo, hi in found:
        assert lo == pytest.approx(gamma.ppf(tail, n) if n else 0, abs=1e-9, rel=0)
        assert hi == pytest.approx(gamma.isf(tail, n + 1), abs=1e-9, rel=0)


@pytest.mark.clickhouse
def test_a_count_of_a_million_is_as_good(shared_store: Store) -> None:
    [(_, lo, hi)] = limits(shared_store, [1_000_000], 0.025)
    assert lo == pytest.approx(gamma.ppf(0.025, 1_000_000), rel=1e-14)
    assert hi == pytest.approx(gamma.isf(0.025, 1_000_001), rel=1e-14)


@pytest.mark.clickhouse
@pytest.mark.parametrize("name", ["garwood", "mtbf_by_cohort", "mtbf_by_class"])
@pytest.mark.parametrize("level", ["0", "1", "-1", "nan"])
def test_a_confidence_that_is_none_is_refused(shared_store: Store, name: str, level: str) -> None:
    given = {"level": level, **({"n": "10"} if name == "garwood" else {})}
    with pytest.raises(StoreRefusedError, match="level lies between 0 and 1"):
        queries.run_query(shared_store, queries.load_query(name), given)


@pytest.mark.clickhouse
def test_time_at_risk_below_zero_is_refused(shared_store: Store) -> None:
    with pytest.raises(StoreRefusedError, match="no exposure is below 0"):
        queries.run_query(shared_store, queries.load_query("garwood"), {"n": "10", "exposure": "-5"})


@pytest.mark.clickhouse
@pytest.mark.parametrize("day", ["yesterday", "2026-13-45"])
@pytest.mark.parametrize(
    "name", ["data_quality", "mtbf_by_class", "mtbf_by_cohort", "restatements", "xid_by_sku_and_driver"]
)
def test_what_is_no_day_is_not_taken_for_1970(shared_store: Store, name: str, day: str) -> None:
    given = {"from": day, **({"as_of": "2026-04-01 00:00:00"} if name == "restatements" else {})}
    with pytest.raises(StoreRefusedError):
        queries.run_query(shared_store, queries.load_query(name), given)
