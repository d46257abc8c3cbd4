"""Published tables come out of their counts, and what does not follow from them is known not to."""

import pytest

from pipeline.core.fleet.goodput import expected_ettr
from pipeline.core.fleet.job_size import predicted_mttf_hours
from pipeline.core.fleet.poisson import Rate, mtbf, rate, ratio
from tests.core.fleet.printed import like, number, published

LLAMA = published("llama3")
RSC = published("rsc")
DELTA = published("delta")
ROBUST = published("byterobust")
OTHERS = published("others")
LLAMA_HOURS = LLAMA["days"] * 24
LLAMA_NODE_DAYS = LLAMA["days"] * LLAMA["nodes"]
RSC_RATES = {cluster: float(printed) / 1000 for cluster, printed in RSC["per_1000_node_days"].items()}
CARDS = {"a100": DELTA["a100"], "h100": DELTA["h100"]}


def bounded(found: Rate, printed: list[str]) -> list[str]:
    return [like(part, like_this) for part, like_this in zip((found.value, found.lo, found.hi), printed, strict=True)]


@pytest.mark.parametrize("component", LLAMA["component"], ids=lambda component: component["name"])
def test_every_row_of_llama_3_follows_from_its_count(component: dict[str, object]) -> None:
    n, printed = int(str(component["n"])), component["mtbf_hours"]
    assert isinstance(printed, list)
    assert bounded(mtbf(n, LLAMA_HOURS), printed) == printed
    per = str(component["per_1000_node_days"])
    assert like(rate(n, LLAMA_NODE_DAYS / 1000).value, per) == per
    assert like(100 * n / LLAMA["unexpected"], "0.0") == component["of_all"]


def test_the_totals_of_llama_3_follow_from_its_counts() -> None:
    counts = {component["name"]: component["n"] for component in LLAMA["component"]}
    assert sum(counts.values()) == LLAMA["unexpected"] == LLAMA["interruptions"] - LLAMA["planned"]
    of_gpus = sum(component["n"] for component in LLAMA["component"] if component["category"] == "GPU")
    assert of_gpus == LLAMA["gpu"]["n"]
    for n, printed in ((LLAMA["unexpected"], LLAMA["all"]), (of_gpus, LLAMA["gpu"])):
        assert bounded(mtbf(n, LLAMA_HOURS), printed["mtbf_hours"]) == printed["mtbf_hours"]
    per_node = LLAMA["all"]["per_1000_node_days"]
    assert bounded(rate(LLAMA["unexpected"], LLAMA_NODE_DAYS / 1000), per_node) == per_node
    assert like(rate(of_gpus, LLAMA_NODE_DAYS / 1000).value, "0.000") == LLAMA["gpu"]["per_1000_node_days"]
    assert LLAMA_NODE_DAYS == 110_592
    assert LLAMA_HOURS * LLAMA["gpus"] == 21_233_664
    each = mtbf(LLAMA["unexpected"], LLAMA_HOURS * LLAMA["gpus"]).value
    assert like(each, "0,0") == LLAMA["gpu_hours_per_interruption"]


def test_two_percentages_of_llama_3_do_not_follow_from_its_counts() -> None:
    wrong = {c["name"]: c["printed_percent"] for c in LLAMA["component"] if c["printed_percent"] != c["of_all"]}
    assert wrong == {"Faulty GPU": "30.1"}  # 148 of 419 are 35.3 %
    assert like(100 * LLAMA["gpu"]["n"] / LLAMA["unexpected"], "0.0") == LLAMA["gpu_of_all"] == "64.0"
    assert LLAMA["gpu_printed_percent"] == "58.7"
    assert like(sum(float(c["printed_percent"]) for c in LLAMA["component"]), "0.0") == LLAMA["printed_percents_sum"]


@pytest.mark.parametrize("size", RSC["size"], ids=lambda size: str(size["gpus"]))
def test_jobs_of_rsc_would_fail_as_one_over_their_nodes(size: dict[str, dict[str, str]]) -> None:
    nodes = int(str(size["gpus"])) / 8
    for cluster, printed in size["predicted_hours"].items():
        assert like(predicted_mttf_hours(nodes, RSC_RATES[cluster]), printed) == printed
    if "projected_hours" in size:
        projected = str(size["projected_hours"])
        assert like(predicted_mttf_hours(nodes, RSC_RATES["rsc1"]), projected) == projected


def test_jobs_of_1024_gpus_of_rsc_fail_far_sooner_than_their_nodes_say() -> None:
    """7.9 h were measured, 28.85 h would follow: a prediction that must not be fitted away."""
    (size,) = (size for size in RSC["size"] if size["gpus"] == 1024)
    predicted = predicted_mttf_hours(128, RSC_RATES["rsc1"])
    assert like(predicted / float(size["measured_hours"]), "0.0") == size["diverges_by"]
    (small,) = (size for size in RSC["size"] if size["gpus"] == 8)
    assert predicted_mttf_hours(1, RSC_RATES["rsc1"]) / float(small["measured_hours"]) > 3


def test_job_states_of_rsc_leave_some_percent_untold() -> None:
    assert sum(RSC["job_states_percent"]) == pytest.approx(96.8)


@pytest.mark.parametrize("anchor", RSC["ettr"], ids=lambda anchor: f"{anchor['nodes']} nodes, {anchor['interval']} min")
def test_ettr_of_rsc_follows_from_its_rates(anchor: dict[str, str]) -> None:
    found = _ettr(anchor)
    assert like(found, anchor["exact"]) == anchor["exact"]
    assert like(found, anchor["printed"]) == anchor["printed"]


def test_one_ettr_of_rsc_does_not_follow() -> None:
    anchor = RSC["ettr_that_does_not_follow"]
    assert like(_ettr(anchor), anchor["exact"]) == anchor["exact"]
    assert like(_ettr(anchor), anchor["printed"]) != anchor["printed"]


def _ettr(anchor: dict[str, str]) -> float:
    return expected_ettr(
        nodes=float(anchor["nodes"]),
        per_node_day=RSC_RATES[anchor["cluster"]],
        interval_s=60 * float(anchor["interval"]),
        restart_s=60 * float(anchor["restart"]),
        queue_s=60 * float(anchor["queue"]),
    )


@pytest.mark.parametrize("error", DELTA["error"], ids=lambda error: error["name"])
def test_every_row_of_delta_follows_from_its_count(error: dict[str, dict[str, str]]) -> None:
    for card, fleet in CARDS.items():
        row = error[card]
        found = mtbf(int(row["n"]), fleet["gpus"] * fleet["days"] * 24)
        for value, column in ((found.value, "hours"), (found.lo, "lo"), (found.hi, "hi")):
            assert column not in row or like(value, row[column]) == row[column]
        assert (found.value is None) == (found.hi is None) == (int(row["n"]) == 0)  # a bound, never infinity


def test_memory_of_h100_is_worse_on_delta_by_a_factor_with_an_interval() -> None:
    fleet_hours = {card: fleet["gpus"] * fleet["days"] * 24 for card, fleet in CARDS.items()}
    assert {card: like(hours / 1e6, "0.0") for card, hours in fleet_hours.items()} == {
        card: fleet["gpu_hours_printed"] for card, fleet in CARDS.items()
    }
    printed = DELTA["ecc_ratio"]
    found = ratio(printed["h100"], fleet_hours["h100"], printed["a100"], fleet_hours["a100"])
    assert [like(part, "0.00") for part in (found.value, found.lo, found.hi)] == ["3.19", "1.81", "5.54"]
    assert like(found.value, printed["printed"]) == printed["printed"]
    assert found.p_value < 0.001


def test_delta_prints_another_time_between_ecc_errors_of_a100_than_follows() -> None:
    hours = mtbf(34, DELTA["a100"]["gpus"] * DELTA["a100"]["days"] * 24).value
    assert like(hours, "0,0") == "283,031" != DELTA["a100_ecc_hours_printed"]
    per_gb = DELTA["million_hours_per_gb"]  # of the printed one
    assert like(number(DELTA["a100_ecc_hours_printed"]) * per_gb["a100_gb"] / 1e6, "0.00") == per_gb["a100"]
    assert like(88_768 * per_gb["h100_gb"] / 1e6, "0.00") == per_gb["h100"]


def test_time_between_errors_of_the_whole_of_delta() -> None:
    gsp = DELTA["gsp_system_hours"]
    assert like(mtbf(3857, 895 * 24).value, gsp["a100"]) == gsp["a100"]
    assert like(mtbf(3857, 895 * 24).value, gsp["a100_printed"]) == gsp["a100_printed"]
    assert like(mtbf(3, 146 * 24).value, gsp["h100"]) == gsp["h100"]
    sums = {card: sum(error[card]["n"] for error in DELTA["error"]) for card in CARDS}
    printed = DELTA["all_system_hours_printed"]
    assert like(mtbf(sums["h100"], 146 * 24).value, printed["h100"]) == printed["h100"]
    # The A100 rows are two events short of what rounds to 1.4.
    assert like(mtbf(sums["a100"], 895 * 24).value, "0.0") == "1.5"
    assert like(mtbf(sums["a100"] + 2, 895 * 24).value, "0.0") == printed["a100"]


def test_the_first_version_of_delta_divides_its_hours_by_its_counts() -> None:
    first = DELTA["first_version"]
    assert like(first["days"] * 24, "0,0") == first["hours"]
    for row in first["system_hours"]:
        assert like(mtbf(row["n"], first["days"] * 24).value, row["hours"]) == row["hours"]


def test_byterobust_counts_55365_incidents() -> None:
    sums = {kind: sum(ROBUST[kind].values()) for kind in ("explicit", "implicit", "manual")}
    assert sums == ROBUST["sums"]
    assert sum(sums.values()) == ROBUST["total"] == 55_365
    largest = 100 * max(ROBUST["explicit"].values()) / ROBUST["total"]
    assert like(largest, "0.00") == ROBUST["largest_percent"]["exact"] == "36.07"
    assert like(largest, "0.0") == ROBUST["largest_percent"]["printed"]


def test_fleets_stand_next_to_each_other_per_1000_node_days() -> None:
    printed = OTHERS["per_1000_node_days"]
    assert printed["Llama 3"] == like(rate(LLAMA["unexpected"], LLAMA_NODE_DAYS / 1000).value, "0.00")
    assert [printed[f"RSC-{n}"] for n in (1, 2)] == [RSC["per_1000_node_days"][f"rsc{n}"] for n in (1, 2)]
    assert sorted(printed, key=lambda fleet: float(printed[fleet])) == ["FT-HSDP", "RSC-2", "Llama 3", "RSC-1"]


@pytest.mark.parametrize("quarter", OTHERS["titan_quarter"], ids=lambda quarter: quarter["quarter"])
def test_hours_between_errors_of_titan(quarter: dict[str, str]) -> None:
    hours = mtbf(int(quarter["events"]), 24 * int(quarter["days"])).value
    assert like(hours, quarter["hours"]) == quarter["hours"]
    assert hours == pytest.approx(float(quarter["printed"]), rel=0.02)


@pytest.mark.parametrize("cohort", OTHERS["titan_cohort"], ids=lambda cohort: cohort["name"])
def test_rates_of_the_cards_of_titan(cohort: dict[str, list[str]]) -> None:
    dead, years = int(str(cohort["dead"])), number(str(cohort["gpu_years"]))
    assert bounded(rate(dead, years), cohort["rate"]) == cohort["rate"]
    between = mtbf(dead, years)
    assert like(between.value, str(cohort["years"])) == str(cohort["years"])
    if "years_bounds" in cohort:
        assert [like(between.lo, "0"), like(between.hi, "0")] == cohort["years_bounds"]


def test_shares_of_lost_time_are_no_shares_of_counts() -> None:
    """Acme ranks by GPU time; what is left out of its six causes is a fifth, which must be said with them."""
    assert 100 - sum(OTHERS["acme_percent_of_gpu_time"].values()) == pytest.approx(20.87)
