"""A fleet report in a terminal: every section, any width, nothing that steers it."""

import pytest
from msgspec.structs import replace

from pipeline.core.fleet.answers import Estimate, FleetReport
from pipeline.core.fleet.records import Cohort
from pipeline.core.fleet.report import Options, fleet_report
from pipeline.core.fleet.restated import Restatement
from pipeline.fleet import numbers
from pipeline.fleet.restated_text import render_restatements
from pipeline.fleet.text import render_report
from tests.core.fleet.small_fleets import failed, fleet, gpu, unit
from tests.report.fleet_reports import whole

HOSTILE = "\x1b[2J\x9b\r\n\u202e[red]"


@pytest.mark.parametrize("width", [60, 80, 120, 140])
def test_no_line_is_wider_than_the_terminal(width: int) -> None:
    for name in ("", "a-very-long-name-of-a-cluster-and-all-that-is-in-it-"):
        assert max(map(len, render_report(whole(name), width=width).splitlines())) <= width


def test_every_section_is_there_and_categories_stand_apart() -> None:
    text = render_report(whole(), width=120)
    for title in (
        "INFRASTRUCTURE  ", "PLANNED  ", "USER CODE  ", "CAUSE NOT KNOWN  ", "TREND WITHIN THE WINDOW",
        "TIME TO THE FIRST FAILURE OF A NODE", "REPAIRS", "FAILED AGAIN AFTER A REPAIR", "JOBS BY SIZE", "LEMONS",
        "COST AND COUNT: INFRASTRUCTURE", "INTERRUPTIONS OVER TIME", "WHAT FOLLOWS WHAT",
        "EPISODES BY THE WINDOW THAT JOINS LINES", "DATA QUALITY",
    ):  # fmt: skip
        assert f"\n{title}" in text


def test_all_five_figures_stand_with_a_rate_and_its_denominators_are_named() -> None:
    lines = render_report(whole(), width=140).splitlines()
    at = next(place for place, line in enumerate(lines) if line.startswith("INFRASTRUCTURE"))
    said = " ".join(lines[at : at + 6])
    for part in (
        "per 1,000 node-days", "system (wall clock)", "node (node-hours)", "dispersion D", "top 1", "unobserved",
        "in service", "[", "n ",
    ):  # fmt: skip
        assert part in said


def test_time_of_gpus_is_not_held_against_time_of_nodes() -> None:
    found = whole()
    nodes = {**found.node_hours, "observed": 0.0, "in_service": 100.0}
    text = render_report(replace(found, node_hours=nodes, gpu_hours={**nodes, "observed": 90.0}), width=120)
    assert "100.0 % of the time in service nobody observed" in " ".join(text.split())


def mixed() -> FleetReport:
    """GPUs and their hosts that are told different SKUs: rates of both, each over its own time."""
    parts = [
        part
        for n in range(3)
        for part in (
            unit(f"n{n}", 240, cohort=Cohort(sku="HGX")),
            *(gpu(f"g{n}{slot}", f"n{n}", 240, cohort=Cohort(sku="H100")) for slot in range(8)),
        )
    ]
    failures = [
        failed(5, "n1", gpu="g11", cohort=Cohort(sku="H100")), failed(9, "n2", cohort=Cohort(sku="HGX")),
        failed(7, "n2", cohort=Cohort(sku="HGX")),
    ]  # fmt: skip
    return fleet_report(fleet(parts, failures), Options(by=("sku",)))


def test_rates_over_time_of_nodes_and_of_gpus_are_told_apart() -> None:
    lines = render_report(mixed(), width=140).splitlines()
    at = next(place for place, line in enumerate(lines) if line.startswith("SKU"))
    heads, rows = lines[at], {line.split()[0]: line.split() for line in lines[at + 1 : at + 3]}
    assert "per 1,000 unit-days" in heads
    assert (rows["HGX"][1:4], rows["H100"][1:4]) == (["node", "3", "30"], ["GPU", "1", "240"])
    assert "per 1,000 GPU-days" not in heads


def test_episodes_name_the_time_that_they_are_counted_over() -> None:
    text = " ".join(render_report(whole(), width=140).split())
    assert "per 1,000 node-days" in text.partition("EPISODES BY THE WINDOW")[2]
    assert "unobserved), in service." in text.partition("EPISODES BY THE WINDOW")[2]


def test_an_interval_that_was_widened_is_marked_and_explained() -> None:
    text = render_report(whole(), width=120)
    assert "]*" in text
    assert "* they cluster on few units" in text


def test_a_lemon_stands_with_what_chance_and_what_its_cohort_make_of_it() -> None:
    found = whole()
    row = replace(found.lemons.rows[0], p_value=2e-9, cohort_p_value=0.0123, cohort_cv=0.5)
    text = render_report(replace(found, lemons=replace(found.lemons, rows=[row])), width=140)
    for part in ("p by chance", "2.0e-09", "p if healthy", "0.012", "healthy differ by", "50.0 %"):
        assert part in text


def test_what_no_unit_tells_is_said_instead_of_a_rate() -> None:
    assert "No rates by firmware" in render_report(whole())


def test_a_fleet_in_which_nothing_failed_lacks_no_facts_and_knows_of_no_interruption() -> None:
    text = render_report(fleet_report(fleet([unit("n1", 240)]), Options(by=("component", "class")), []))
    assert "INFRASTRUCTURE  0 failures" in text
    assert "No rates by" not in text
    assert "the cause is not known" not in text
    assert "No unit was at risk" not in text


def test_a_fleet_without_units_is_told_what_is_missing() -> None:
    assert "No unit was at risk" in render_report(fleet_report(fleet([]), Options(), []))


def test_names_steer_no_terminal() -> None:
    text = render_report(whole(HOSTILE))
    assert all(c == "\n" or c.isprintable() for c in text)
    assert "\\x1b[2J" in text


def test_colour_comes_only_when_asked_for() -> None:
    assert "\x1b[" in render_report(whole(), color=True)
    assert "\x1b" not in render_report(whole())


def test_restatements_with_one_reason_stand_together() -> None:
    found = [
        Restatement(figure="infrastructure: failures", old=2, new=3, why=["incident i1 is new"]),
        Restatement(figure="infrastructure: per 1,000 node-days", old=1.5, new=2.25, why=["incident i1 is new"]),
        Restatement(figure=HOSTILE, old=None, new=0.5, why=[HOSTILE]),
    ]
    text = render_restatements(found, width=80)
    assert text.count("why: incident i1 is new") == 1
    assert "2.25" in text
    assert text.splitlines()[1].split()[-2:] == ["2", "3"]
    assert all(c == "\n" or c.isprintable() for c in text)
    assert max(map(len, text.splitlines())) <= 80


@pytest.mark.parametrize(
    ("value", "said"),
    [
        (None, "-"), (0, "0"), (0.012345, "0.0123"), (8.719, "8.72"), (22.04, "22.0"), (2752.4, "2,752"),
        (1234567, "1,234,567"), (0.9996, "1.000"),
    ],
)  # fmt: skip
def test_a_number_has_three_digits_that_mean_something(value: float | None, said: str) -> None:
    assert numbers.number(value) == said


@pytest.mark.parametrize(
    ("found", "said"),
    [
        (Estimate(3.093, 2.811, 3.412), "3.09 [2.81, 3.41]"), (Estimate(None, 26.02, None), "> 26.0"),
        (Estimate(None, None, None), "-"), (Estimate(5.0, 1.0, None), "5.00 [1.00, …]"), (None, "-"),
    ],
)  # fmt: skip
def test_an_estimate_carries_its_interval_and_never_infinity(found: Estimate | None, said: str) -> None:
    assert numbers.estimate(found) == said


@pytest.mark.parametrize(
    ("seconds", "said"),
    [(None, "-"), (5, "5 s"), (60, "1 min"), (5400, "1.50 h"), (86_400 * 53.5, "53.5 d"), (0, "0 s")],
)
def test_a_time_is_told_in_the_unit_that_reads_best(seconds: float | None, said: str) -> None:
    assert numbers.seconds(seconds) == said


@pytest.mark.parametrize(
    ("share", "said"),
    [(None, "-"), (0, "0.0 %"), (0.0001, "< 0.1 %"), (0.9999, "> 99.9 %"), (1, "100.0 %"), (0.353, "35.3 %")],
)
def test_a_share_that_is_there_is_never_nothing(share: float | None, said: str) -> None:
    assert numbers.percent(share) == said
