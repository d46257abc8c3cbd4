"""The page of clocks in a real Chromium."""

import os
import time
from collections.abc import Callable
from contextlib import AbstractAsyncContextManager
from pathlib import Path

import pytest
from playwright.async_api import Browser, expect

from pipeline.web.feed import Feed
from schemas.records import ClockSegment
from tests.web.clocks import MS, fleet, segment, unmeasured

pytestmark = pytest.mark.browser
Serve = Callable[..., AbstractAsyncContextManager[str]]
SHOTS = os.environ.get("ROOTRANK_SCREENSHOTS", "")
HOSTILE = "<script>document.title='owned'</script><img src=x onerror=\"document.title='owned'\">" + "x" * 300


def feed_of(*told: ClockSegment) -> Feed:
    feed = Feed()
    for one in told:
        feed.clocks.apply(one, time.time_ns() // MS)
    return feed


@pytest.mark.parametrize("scheme", ["light", "dark"])
@pytest.mark.parametrize("width", [360, 768, 1280])
async def test_nothing_is_cut_off_at_any_width_in_either_scheme(
    serve: Serve, browser: Browser, scheme: str, width: int
) -> None:
    feeds = {
        "one": feed_of(segment()), "forty": feed_of(*fleet(40), segment("gpu-900", cluster="beta")), "none": Feed(),
        "hostile": feed_of(segment(HOSTILE, wall_offset_ns=2**62, b_ppb=2**60, hi_ns=2**60), unmeasured("u", HOSTILE)),
    }  # fmt: skip
    for name, feed in feeds.items():
        async with serve(feed) as url:
            context = await browser.new_context(
                viewport={"width": width, "height": 800}, color_scheme="dark" if scheme == "dark" else "light"
            )
            page = await context.new_page()
            await page.goto(f"{url}/clocks")
            overflow = await page.evaluate("document.documentElement.scrollWidth - innerWidth")
            title = await page.title()
            if SHOTS:
                await page.screenshot(path=Path(SHOTS) / f"clocks-{name}-{scheme}-{width}.png", full_page=True)
            await context.close()
        assert overflow <= 0, f"{name} is {overflow} px too wide"
        assert title == "clocks"


async def test_the_page_is_reached_from_the_feed_and_shows_what_changed_without_a_hand_on_it(
    serve: Serve, browser: Browser
) -> None:
    feed = feed_of(segment())
    async with serve(feed) as url:
        context = await browser.new_context()
        page = await context.new_page()
        await page.goto(url)
        await page.locator("a", has_text="clocks").click()
        await expect(page.locator("h1")).to_have_text("Clocks of 1 node")
        feed.clocks.apply(unmeasured("gpu-002"), time.time_ns() // MS)
        await expect(page.locator("h1")).to_have_text("Clocks of 2 nodes", timeout=40_000)
        await expect(page.locator("tbody tr").first).to_contain_text("no beacon was acknowledged for 90 s")
        await context.close()


async def test_choosing_only_bad_ones_needs_no_script(serve: Serve, browser: Browser) -> None:
    async with serve(feed_of(*fleet(40))) as url:
        context = await browser.new_context(java_script_enabled=False)
        page = await context.new_page()
        await page.goto(f"{url}/clocks")
        await page.locator("select[name=bad]").select_option("1")
        await page.locator("button", has_text="Show").click()
        await expect(page.locator("tbody tr")).to_have_count(3)
        await context.close()
