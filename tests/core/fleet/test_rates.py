"""Rates: what counts, over which time, with which interval."""

import pytest
from msgspec.structs import replace

from pipeline.core.fleet.answers import By, RateRow
from pipeline.core.fleet.at_risk import at_risk
from pipeline.core.fleet.poisson import clustered_rate, garwood
from pipeline.core.fleet.rates import OF_FAILURES, How, rates_by
from pipeline.core.fleet.records import Category, Cohort, ExposureKind, Fleet, JobAttempt
from tests.core.fleet.small_fleets import HOUR_NS, T0, failed, fleet, gpu, unit

H100, A100 = Cohort(sku="H100"), Cohort(sku="A100")


def rates(
    of: Fleet, by: By = "all", category: Category = "infrastructure", exposure: ExposureKind = "in_service"
) -> dict[str, RateRow]:
    units = at_risk(of, "all" if by in OF_FAILURES else by, exposure)
    return {row.value: row for row in rates_by(of, category, by, units, How(exposure=exposure))}


def test_one_count_has_three_denominators() -> None:
    nodes = [unit(f"n{n}", 240) for n in range(4)]
    gpus = [gpu(f"g{n}", f"n{n // 8}", 240) for n in range(32)]
    row = rates(fleet([*nodes, *gpus], [failed(9, "n0"), failed(10, "n1", gpu="g9"), failed(11)]))[""]
    assert (row.n, row.unit_kind, row.units, row.exposure_hours, row.gpu_hours) == (3, "node", 4, 960, 7680)
    assert row.system_mtbf_hours.value == 80
    assert row.node_mtbf_hours is not None
    assert row.node_mtbf_hours.value == 320
    assert row.gpu_mtbf_hours is not None
    assert row.gpu_mtbf_hours.value == 2560
    assert row.rate.value == pytest.approx(3 / 40 * 1000)
    assert row.nobody == 1


def test_an_interval_is_garwoods_over_the_exposure() -> None:
    row = rates(fleet([unit(f"n{n}", 240) for n in range(10)], [failed(n, f"n{n}") for n in range(1, 8)]))[""]
    exact = garwood(7)
    assert exact.hi is not None
    assert (row.interval, row.rate.lo, row.rate.hi) == ("Garwood", exact.lo * 10, exact.hi * 10)
    assert row.system_mtbf_hours.lo == pytest.approx(240 / exact.hi)
    assert row.system_mtbf_hours.hi == pytest.approx(240 / exact.lo)


def test_nothing_failed_is_a_bound_and_never_infinity() -> None:
    row = rates(fleet([unit("n1", 240)]))[""]
    assert (row.n, row.rate.value, row.rate.lo) == (0, 0, 0)
    assert row.system_mtbf_hours.value is None
    assert row.system_mtbf_hours.lo == pytest.approx(240 / 3.688879454)
    assert row.system_mtbf_hours.hi is None
    assert (row.dispersion, row.top_1_share) == (None, None)


def test_failures_that_cluster_on_a_node_widen_the_interval_and_say_so() -> None:
    nodes = [unit(f"n{n}", 240) for n in range(30)]
    row = rates(fleet(nodes, [*(failed(h, "n3") for h in range(1, 13)), failed(20, "n4")]))[""]
    counts = [12 if n == 3 else 1 if n == 4 else 0 for n in range(30)]
    bounds = clustered_rate(counts, [240.0] * 30, seed=0)
    assert row.interval == "bootstrap over units"
    assert row.dispersion is not None
    assert row.dispersion > 10
    assert row.rate.lo == pytest.approx(bounds.lo * 24_000)
    assert bounds.hi is not None
    assert row.rate.hi == pytest.approx(bounds.hi * 24_000)
    assert (row.top_1_share, row.top_10_share, row.top_unit) == (12 / 13, 1.0, "n3")


def test_a_failure_of_a_unit_that_was_not_at_risk_is_not_counted_but_said() -> None:
    nodes = [unit("n1", 240), unit("n2", 0, installed=240)]
    row = rates(fleet(nodes, [failed(5, "n1"), failed(6, "n2"), failed(7, "n9")]))[""]
    assert (row.n, row.uncounted) == (1, 2)
    assert rates(fleet(nodes, [failed(6, "n2")]), exposure="installed")[""].n == 1


def test_a_gpu_in_a_node_that_has_no_time_of_its_own_is_not_counted_over_that_of_other_nodes() -> None:
    parts = [unit("n1", 240), unit("g9", 240, kind="gpu", node="n9", cluster="c2")]
    of = fleet(parts, [failed(5, "n1"), failed(6, "n9", gpu="g9", cluster="c2")])
    row = rates(of)[""]
    assert (row.unit_kind, row.n, row.exposure_hours, row.uncounted) == ("node", 1, 240, 1)
    found = rates(of, "cluster")["c2"]
    assert (found.unit_kind, found.n, found.uncounted) == ("gpu", 1, 0)


def test_over_time_in_jobs_only_what_failed_in_a_job_counts() -> None:
    of = replace(
        fleet([unit("n1", 240, busy=20)], [failed(5, "n1"), failed(30, "n1"), failed(40), failed(50, "n1")]),
        attempts=[
            JobAttempt(
                cluster="c1", job_id="7", attempt=0, nodes=("n1",), gpus=8, from_ns=T0, to_ns=T0 + 5 * HOUR_NS - 1
            )
        ],
    )
    of = replace(of, failures=[*of.failures[:-1], replace(of.failures[-1], job_ids=("9",))])
    row = rates(of, exposure="busy")[""]
    assert (row.n, row.uncounted, row.exposure_hours) == (2, 2, 20)
    assert rates(of)[""].n == 4


def test_a_node_that_nobody_observed_is_not_free_of_failures() -> None:
    nodes = [unit("n1", 100), unit("n2", 100, observed=0)]
    assert rates(fleet(nodes))[""].unobserved_share == 0.5


def test_categories_are_never_in_one_figure() -> None:
    failures = [
        failed(1, "n1"),
        failed(2, "n1", class_="software/cuda_oom"),
        failed(3, "n1", class_="scheduler/preempted"),
        failed(4, "n1", class_="unknown/silent_rank"),
    ]
    of = fleet([unit("n1", 240)], failures)
    for category in ("infrastructure", "user_code", "planned", "unknown"):
        assert [row.n for row in rates(of, "all", category).values()] == [1]
        assert sum(row.n for row in rates(of, "class", category).values()) == 1


def test_a_cohort_has_the_time_and_the_failures_of_its_own() -> None:
    nodes = [unit("n1", 240, cohort=H100), unit("n2", 120, cohort=A100), unit("n2", 120, cohort=H100)]
    found = rates(fleet(nodes, [failed(5, "n1", cohort=H100)]), "sku")
    assert (found["H100"].n, found["H100"].exposure_hours, found["H100"].units) == (1, 360, 2)
    assert (found["A100"].n, found["A100"].exposure_hours) == (0, 120)


def test_what_the_gpus_of_a_node_agree_on_holds_of_the_node() -> None:
    parts = [unit("n1", 240), gpu("g1", "n1", 240, cohort=H100), unit("n2", 240), gpu("g2", "n2", 200, cohort=A100)]
    found = rates(fleet(parts, [failed(5, "n1", gpu="g1", cohort=H100), failed(6, "n2")]), "sku")
    assert (found["H100"].unit_kind, found["H100"].n, found["H100"].exposure_hours) == ("node", 1, 240)
    assert (found["A100"].n, found["A100"].exposure_hours, found["A100"].gpu_hours) == (1, 240, 200)


def test_a_gpu_and_its_host_that_are_told_different_skus_have_rows_of_their_own() -> None:
    hgx = Cohort(sku="HGX")
    parts = [unit("n1", 240, cohort=hgx), gpu("g1", "n1", 240, cohort=H100), gpu("g2", "n1", 200, cohort=H100)]
    found = rates(fleet(parts, [failed(5, "n1", gpu="g1", cohort=H100), failed(6, "n1", cohort=hgx)]), "sku")
    assert (found["H100"].unit_kind, found["H100"].n, found["H100"].exposure_hours) == ("gpu", 1, 440)
    assert (found["HGX"].unit_kind, found["HGX"].n, found["HGX"].exposure_hours) == ("node", 2, 240)
    assert rates(fleet(parts, [failed(5, "n1", gpu="g1", cohort=H100)]))[""].n == 1


def test_a_fleet_of_gpus_alone_is_counted_on_gpus() -> None:
    parts = [gpu(f"g{n}", "", 240) for n in range(4)]
    row = rates(fleet(parts, [failed(5, gpu="g1")]))[""]
    assert (row.unit_kind, row.units, row.n, row.node_mtbf_hours) == ("gpu", 4, 1, None)


def test_no_rate_is_given_by_what_nobody_knows() -> None:
    assert rates(fleet([unit("n1", 240)], [failed(5, "n1")]), "driver") == {}
    known = [unit("n1", 240, cohort=H100)]
    assert rates(fleet(known, [failed(5), failed(6)]), "sku") == {}
    assert rates(fleet(known), "sku")["H100"].n == 0


def test_components_and_classes_are_counted_over_all_units() -> None:
    failures = [failed(1, "n1"), failed(2, "n2", class_="hardware/gpu_error"), failed(3, "n2", class_="infra/reboot")]
    of = fleet([unit("n1", 240, cohort=H100), unit("n2", 240, cohort=A100)], failures)
    components = rates(of, "component")
    assert {name: row.n for name, row in components.items()} == {"GPU": 2, "host": 1}
    assert {row.exposure_hours for row in components.values()} == {480}
    assert list(rates(of, "class")) == ["hardware/gpu_error", "hardware/gpu_xid_79", "infra/reboot"]


def test_nodes_of_one_name_in_two_clusters_are_two() -> None:
    nodes = [unit("n1", 240), unit("n1", 120, cluster="c2")]
    of = fleet(nodes, [failed(5, "n1", cluster="c2")])
    assert rates(of)[""].units == 2
    found = rates(of, "cluster")
    assert (found["c1"].n, found["c2"].n, found["c2"].exposure_hours) == (0, 1, 120)


@pytest.mark.parametrize("by", ["sku", "rack", "cluster"])
def test_rates_of_parts_add_up_to_that_of_the_whole(by: By) -> None:
    nodes = [
        unit(f"n{n}", 100 + n, cluster=f"c{n % 2}", cohort=Cohort(sku=f"s{n % 3}", rack=f"r{n % 4}")) for n in range(12)
    ]
    failures = [
        failed(n, f"n{n}", cluster=f"c{n % 2}", cohort=Cohort(sku=f"s{n % 3}", rack=f"r{n % 4}")) for n in range(1, 9)
    ]
    of = fleet(nodes, failures)
    parts, whole = rates(of, by).values(), rates(of)[""]
    assert sum(row.n for row in parts) == whole.n == 8
    assert sum(row.exposure_hours for row in parts) == pytest.approx(whole.exposure_hours)
