"""The fleet report's page in a real Chromium: from a disk, without a network, on screens and on paper."""

from pathlib import Path

import pytest
from playwright.async_api import Browser

from pipeline.fleet.page import render_page
from tests.report.fleet_reports import whole
from tests.report.test_fleet_page import HOSTILE
from tests.report.test_in_a_browser import A4_WITHIN_MARGINS_PX, opened

pytestmark = pytest.mark.browser
LONG = "a-name-that-goes-on-and-on-"


@pytest.mark.parametrize("name", ["", HOSTILE, LONG], ids=["plain", "hostile", "long"])
async def test_the_page_opens_alone_and_fits_every_width(browser: Browser, tmp_path: Path, name: str) -> None:
    page = render_page(whole(name))
    for width, scheme in ((1280, "light"), (1280, "dark"), (400, "light")):
        window, noise = await opened(browser, page, tmp_path / "shown.html", width=width, scheme=scheme)
        too_wide = await window.evaluate("document.documentElement.scrollWidth - innerWidth")
        drawn = await window.locator("svg[role=img]").count()
        await window.context.close()

        assert noise == []
        assert too_wide <= 0
        assert drawn >= 8


async def test_names_and_figures_of_a_plot_do_not_cover_each_other(browser: Browser, tmp_path: Path) -> None:
    window, _ = await opened(browser, render_page(whole(LONG)), tmp_path / "shown.html", width=1280)
    boxes = await window.evaluate(
        "[...document.querySelectorAll('svg.plot')].flatMap(s => {const all = [...s.querySelectorAll('text.name, "
        "text.said, circle')].map(e => e.getBoundingClientRect()); const own = s.getBoundingClientRect(); return "
        "all.filter(a => a.left < own.left - 1 || a.right > own.right + 1 || all.some(b => b !== a && a.left < b.right"
        " - 1 && b.left < a.right - 1 && a.top < b.bottom - 3 && b.top < a.bottom - 3)).map(a => [a.left, a.top])})"
    )
    await window.context.close()
    assert boxes == []


async def test_on_paper_plots_and_tables_fit(browser: Browser, tmp_path: Path) -> None:
    window, noise = await opened(
        browser, render_page(whole()), tmp_path / "shown.html", width=A4_WITHIN_MARGINS_PX, scheme="dark"
    )
    await window.emulate_media(media="print", color_scheme="dark")
    too_wide = await window.evaluate(
        "Math.max(...[...document.querySelectorAll('svg, table, p')].map(e => e.getBoundingClientRect().right))"
        " - innerWidth"
    )
    paper = await window.evaluate("getComputedStyle(document.body).backgroundColor")
    await window.context.close()

    assert noise == []
    assert too_wide <= 0
    assert paper == "rgb(255, 255, 255)"
