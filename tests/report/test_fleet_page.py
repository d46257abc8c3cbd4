"""A fleet report as a page: it stands alone, escapes every name, and draws what the tables say."""

import re
from xml.etree import ElementTree

import pytest
from msgspec.structs import replace

from pipeline.core.fleet.answers import Estimate
from pipeline.fleet import plots
from pipeline.fleet.page import render_page
from pipeline.fleet.scales import Scale, linear, logarithmic
from tests.report.fleet_reports import whole

HOSTILE = "<script>alert(1)</script>'\"><img src=x onerror=alert(1)>\x1b[2J\u202e"


def test_the_page_needs_nothing_else_and_runs_nothing() -> None:
    page = render_page(whole(HOSTILE))
    assert "default-src 'none'" in page
    assert "<script" not in page
    assert "<img" not in page
    assert "<link" not in page
    assert "&lt;script&gt;alert(1)" in page
    assert "\x1b" not in page
    assert "\u202e" not in page


def test_every_drawing_is_well_formed_and_says_what_it_shows() -> None:
    drawings = re.findall(r"<svg.*?</svg>", render_page(whole(HOSTILE)), re.DOTALL)
    pictures = [ElementTree.fromstring(text) for text in drawings]
    images = [one for one in pictures if one.get("role") == "img"]
    assert len(images) >= 8
    assert all(one.get("aria-label") and one.findtext("title") == one.get("aria-label") for one in images)
    assert all(one.get("aria-hidden") == "true" for one in pictures if one not in images)


def test_a_plot_of_rates_is_of_one_kind_of_unit() -> None:
    total, *_ = whole().rates
    of_gpus = replace(total, value="H100", unit_kind="gpu")
    drawn = str(plots.forest([replace(total, value="HGX"), of_gpus], total))
    assert "HGX" in drawn
    assert "H100" not in drawn
    assert 'class="reference"' not in str(plots.forest([of_gpus], total))
    assert "per 1,000 GPU-days" in str(plots.forest([of_gpus], total))


def test_every_section_of_the_text_is_on_the_page_with_its_plot() -> None:
    page = render_page(whole())
    for title in ("Infrastructure: ", "Planned: ", "Repairs", "Lemons", "What follows what", "Data quality"):
        assert f"<h2>{title}" in page
    for style in ('class="band"', 'class="weibull"', 'class="exponential"', 'class="law"', 'class="unknown"'):
        assert style in page
    for name in ("MTBF of the system (wall clock)", "MTBF of a node (node-hours)", "of the time unobserved"):
        assert name in page


def test_a_rate_is_drawn_between_its_bounds_and_one_without_failures_is_hollow() -> None:
    report = whole()
    total, *rest = report.rates
    rows = [row for row in rest if row.by == "driver" and row.category == "infrastructure"]
    quiet = replace(rows[0], value="quiet", n=0, rate=Estimate(0.0, 0.0, 2.0))
    drawn = plots.forest([*rows, quiet], total)
    assert drawn is not None
    groups = ElementTree.fromstring(drawn).findall("g")
    assert [group.get("class") for group in groups][-1] == "nothing"
    for group in groups:
        point = float(group.find("circle").get("cx", ""))  # type: ignore[union-attr]
        line = group.find("line")
        assert line is not None
        assert float(line.get("x1", "")) <= point <= float(line.get("x2", ""))


def test_nothing_to_compare_draws_nothing() -> None:
    report = whole()
    empty = replace(report.rates[0], rate=Estimate(None, None, None))
    assert plots.forest([empty], empty) is None
    assert plots.shares_plot([]) is None
    assert plots.law_plot([]) is None
    assert plots.survival_plot(replace(report.survival[0], points=[])) is None


def test_the_share_of_unknown_cause_stands_over_every_bar() -> None:
    report = whole()
    drawn = plots.shares_plot(report.shares)
    assert drawn is not None
    periods = {row.period for row in report.shares}
    assert len(re.findall(r">\d+%<", drawn)) == len(periods)
    assert sum(row.n for row in report.shares) == 80


@pytest.mark.parametrize(
    ("scale", "ticks"),
    [
        (linear(10, 0, 100), [0, 2, 4, 6, 8, 10]),
        (linear(0, 0, 100), [0, 0.2, 0.4, 0.6, 0.8, 1]),
        (Scale(lo=0.7, hi=1.0, begin=0, end=10), [0.7, 0.75, 0.8, 0.85, 0.9, 0.95, 1.0]),
        (logarithmic(8, 512, 0, 100), [1, 10, 100, 1000]),
    ],
)
def test_an_axis_names_round_values(scale: Scale, ticks: list[float]) -> None:
    assert scale.ticks() == pytest.approx(ticks)


def test_places_keep_the_order_of_values_and_never_leave_the_drawing() -> None:
    for scale in (linear(10, 5, 95), logarithmic(1, 1000, 5, 95)):
        places = [scale.at(value) for value in (-1, 0, 0.5, 1, 5, 10, 999, 10**9)]
        assert places == sorted(places)
        assert all(5 <= place <= 95 for place in places)
