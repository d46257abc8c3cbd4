"""The pages in a real Chromium: live, resumable, safe, readable at any width."""

import os
from collections.abc import AsyncIterator, Callable
from contextlib import AbstractAsyncContextManager
from pathlib import Path

import msgspec
import pytest
from playwright.async_api import Browser, Page, expect

from pipeline.notes import Note
from pipeline.report import render_html
from pipeline.web.feed import Feed
from schemas.records import Incident

pytestmark = pytest.mark.browser
replace = msgspec.structs.replace
Serve = Callable[..., AbstractAsyncContextManager[str]]
SHOTS = os.environ.get("ROOTRANK_SCREENSHOTS", "")
NOTE = Note(class_="scheduler/time_limit", why="its time was up", source="slurm.out", line_no=7, text="TIME LIMIT")
HOSTILE = "<script>document.title='owned'</script><img src=x onerror=\"document.title='owned'\">\n\nid: x"


async def shoot(page: Page, name: str) -> None:
    """Keep a picture where ROOTRANK_SCREENSHOTS names a folder."""
    if SHOTS:
        await page.screenshot(path=Path(SHOTS) / f"page-{name}.png", full_page=True)


async def live(page: Page, address: str) -> None:
    await page.goto(address)
    await expect(page.locator(".pulse")).to_have_class("pulse live")


@pytest.fixture
async def page(browser: Browser) -> AsyncIterator[Page]:
    """A page that fails the test when it logs an error or breaks its own policy."""
    context = await browser.new_context(viewport={"width": 1280, "height": 800})
    page = await context.new_page()
    complaints: list[str] = []
    page.on("console", lambda m: complaints.append(m.text) if m.type == "error" else None)
    page.on("pageerror", lambda e: complaints.append(str(e)))
    yield page
    await context.close()
    assert [c for c in complaints if "ERR_CONNECTION" not in c and "ERR_INCOMPLETE" not in c] == []


async def test_an_incident_appears_on_an_open_page_without_a_reload(
    serve: Serve, page: Page, fell_off: Incident
) -> None:
    feed = Feed()
    async with serve(feed) as url:
        await live(page, url)
        await expect(page.locator("#empty")).to_contain_text("No live incidents")

        feed.apply(fell_off)

        await expect(page.locator(".row h2")).to_have_text("GPU fell off the bus (Xid 79)")
        await expect(page.locator("#empty")).to_have_count(0)
        await expect(page).to_have_title("(1) rootrank")
        await shoot(page, "appeared")


async def test_a_revision_changes_its_row_and_a_withdrawn_incident_goes(
    serve: Serve, page: Page, fell_off: Incident, timed_out: Incident
) -> None:
    feed = Feed()
    feed.apply(fell_off)
    feed.apply(timed_out)
    async with serve(feed) as url:
        await live(page, url)

        feed.apply(replace(timed_out, revision=2, explanation="Now it is known."))
        await expect(page.locator(".row").first).to_contain_text("Now it is known.")
        await expect(page.locator(".row")).to_have_count(2)

        feed.apply(replace(timed_out, revision=3, state="superseded", superseded_by=fell_off.incident_id))
        await expect(page.locator(".row")).to_have_count(1)


async def test_after_a_restart_of_the_server_the_page_catches_up_and_meanwhile_says_that_it_is_old(
    serve: Serve, page: Page, fell_off: Incident
) -> None:
    feed = Feed()
    async with serve(feed) as url:
        await live(page, url)
    await expect(page.locator(".pulse")).to_contain_text("connection lost")

    feed.apply(fell_off)
    async with serve(feed, port=int(url.rpartition(":")[2])):
        await expect(page.locator(".pulse")).to_have_class("pulse live", timeout=15_000)
        await expect(page.locator(".row")).to_have_count(1)


async def test_without_javascript_the_page_is_a_snapshot(serve: Serve, browser: Browser, fell_off: Incident) -> None:
    feed = Feed()
    feed.apply(fell_off)
    async with serve(feed) as url:
        context = await browser.new_context(java_script_enabled=False)
        page = await context.new_page()
        await page.goto(url)
        await expect(page.locator(".row")).to_have_count(1)
        await expect(page.locator(".pulse")).to_contain_text("snapshot")
        await page.locator(".row h2 a").click()
        await expect(page.locator("h1")).to_have_text("GPU fell off the bus (Xid 79)")
        await context.close()


async def test_an_open_incident_page_says_when_a_newer_revision_exists(
    serve: Serve, page: Page, fell_off: Incident
) -> None:
    feed = Feed()
    feed.apply(fell_off)
    async with serve(feed) as url:
        await live(page, f"{url}/incidents/{fell_off.incident_id}")
        await expect(page.locator("#newer")).to_be_hidden()

        feed.apply(replace(fell_off, revision=4, explanation="Changed."))

        await expect(page.locator("#newer")).to_be_visible()
        await page.locator("#newer a").click()
        await expect(page.locator(".sentence")).to_have_text("Changed.")


async def test_log_text_is_text_in_a_browser_too(serve: Serve, page: Page, fell_off: Incident) -> None:
    feed = Feed()
    evidence = replace(fell_off.chain[0].evidence, text=HOSTILE)
    chain = [replace(fell_off.chain[0], evidence=evidence, where=HOSTILE)]
    hostile = replace(fell_off, explanation=HOSTILE, cluster=HOSTILE, chain=chain)
    async with serve(feed) as url:
        await live(page, url)
        feed.apply(hostile)
        await expect(page.locator(".row .sentence")).to_contain_text("<script>")
        assert await page.locator(".row script, .row img").count() == 0
        assert await page.title() == "(1) rootrank"
        await live(page, f"{url}/incidents/{fell_off.incident_id}")
        await expect(page.locator("pre").first).to_contain_text("<img src=x")
        assert await page.locator("article script, article img").count() == 0


@pytest.mark.parametrize("scheme", ["light", "dark"])
@pytest.mark.parametrize("width", [360, 768, 1280])
async def test_nothing_is_cut_off_at_any_width_in_either_scheme(
    serve: Serve, browser: Browser, scheme: str, width: int, fell_off: Incident, timed_out: Incident,
    out_of_memory: Incident,
) -> None:  # fmt: skip
    feed = Feed()
    for incident in (fell_off, timed_out, out_of_memory, replace(fell_off, incident_id="r", run="replay")):
        feed.apply(incident)
    async with serve(feed) as url:
        context = await browser.new_context(
            viewport={"width": width, "height": 800}, color_scheme="dark" if scheme == "dark" else "light"
        )
        page = await context.new_page()
        for name, path in {
            "feed": "/",
            "empty": "/?run=drill",
            "one": f"/incidents/{fell_off.incident_id}",
            "unknown": f"/incidents/{timed_out.incident_id}",
            "missing": "/incidents/none",
        }.items():
            await page.goto(url + path)
            overflow = await page.evaluate("document.documentElement.scrollWidth - innerWidth")
            assert overflow <= 0, f"{path} is {overflow} px too wide"
            await shoot(page, f"{name}-{scheme}-{width}")
        await context.close()


async def test_two_hundred_incidents_stay_quick_and_a_reader_keeps_their_place(
    serve: Serve, page: Page, fell_off: Incident, timed_out: Incident, out_of_memory: Incident
) -> None:
    feed = Feed()
    for number in range(200):
        kind = (fell_off, timed_out, out_of_memory)[number % 3]
        started = f"2026-03-{1 + number // 24:02d}T{number % 24:02d}:00:00Z"
        feed.apply(replace(kind, incident_id=f"i{number}", started_at=started))
    async with serve(feed) as url:
        await live(page, f"{url}/?limit=200")
        await expect(page.locator(".row")).to_have_count(200)
        await shoot(page, "two-hundred")
        kept = await page.locator(".row[data-key=i7]").element_handle()

        feed.apply(replace(fell_off, incident_id="new", started_at="2026-04-01T00:00:00Z"))

        await expect(page.locator(".row").first).to_have_attribute("data-key", "new")
        assert kept is not None
        assert await kept.evaluate("row => row.isConnected"), "an unchanged row was replaced"


async def test_a_page_in_a_file_opens_alone(
    browser: Browser, tmp_path: Path, fell_off: Incident, timed_out: Incident
) -> None:
    file = tmp_path / "report.html"
    file.write_text(render_html([fell_off, timed_out], fell_off.gaps, [NOTE]))
    context = await browser.new_context()
    page = await context.new_page()
    complaints: list[str] = []
    page.on("console", lambda m: complaints.append(m.text))
    page.on("requestfailed", lambda r: complaints.append(r.url))
    await page.goto(file.as_uri())
    border = await page.locator(".incident").first.evaluate("e => getComputedStyle(e).borderTopWidth")
    await shoot(page, "file")
    await context.close()

    assert border == "5px"
    assert complaints == []
