"""The page in a real Chromium: opened from a disk without a network, on screens, on paper, with a keyboard."""

import re
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path

import msgspec
import pytest
from playwright.async_api import Browser, Page, expect
from typer import Exit

from pipeline.commands.diagnose import diagnose
from pipeline.report import render_html
from tests.report.drawn import fleet
from tests.report.test_page import HOSTILE, NOTE, page_of

pytestmark = pytest.mark.browser
replace = msgspec.structs.replace
CORPUS = Path(__file__).parents[1] / "corpus"
A4_WITHIN_MARGINS_PX = 703  # 210 mm less 2 x 12 mm, at 96 px an inch

XID = "2026-03-04T05:06:07.100000+00:00 gx-02 kernel: NVRM: Xid (PCI:0000:5e:00): 79, {}, GPU has fallen off the bus.\n"


def _diagnosed(*paths: Path, to: Path) -> str:
    """What the command writes."""
    with suppress(Exit):
        diagnose(list(paths), html=to)
    return to.read_text(encoding="utf-8")


def _hostile_logs(folder: Path) -> Path:
    logs = folder / "logs"
    logs.mkdir()
    lines = "".join(XID.format(text.replace("\n", " ")) for text in HOSTILE)
    (logs / "kern <img src=x onerror=alert(1)>.log").write_text(lines, encoding="utf-8")
    return logs


PAGES: dict[str, Callable[[Path], str]] = {
    "a long chain": lambda at: _diagnosed(CORPUS / "c01_aer_then_xid79_skewed_clocks" / "logs", to=at / "p.html"),
    "no time at all": lambda at: _diagnosed(
        CORPUS / "c08_gsp_timeout_raw_dmesg_no_wall_clock" / "logs", to=at / "p.html"
    ),
    "a silent rank": lambda at: _diagnosed(CORPUS / "unknown_silent_rank_one_missing" / "logs", to=at / "p.html"),
    "quiet": lambda at: _diagnosed(CORPUS / "quiet_normal_end_teardown_noise" / "logs", to=at / "p.html"),
    "hostile logs": lambda at: _diagnosed(_hostile_logs(at), to=at / "p.html"),
    "hostile text": lambda _: page_of("".join(text[:300] for text in HOSTILE)),
    "a fleet": lambda _: render_html([fleet(), replace(fleet(), incident_id="other")], [], [NOTE]),
}


def _write(file: Path, page: str) -> None:
    file.write_text(page, encoding="utf-8")


async def opened(
    browser: Browser, page: str, file: Path, *, width: int, scheme: str = "light"
) -> tuple[Page, list[str]]:
    """The page in a window, and what it complained of or asked for beside itself."""
    _write(file, page)
    context = await browser.new_context(
        viewport={"width": width, "height": 900}, color_scheme="dark" if scheme == "dark" else "light", offline=True
    )
    window = await context.new_page()
    noise: list[str] = []
    window.on("console", lambda message: noise.append(message.text))
    window.on("pageerror", lambda error: noise.append(str(error)))
    window.on("dialog", lambda dialog: noise.append(dialog.message))
    window.on("request", lambda request: noise.append(request.url) if request.url != file.as_uri() else None)
    await window.goto(file.as_uri())
    return window, noise


@pytest.mark.parametrize("kind", PAGES)
async def test_a_page_opens_alone_and_fits_every_width(browser: Browser, tmp_path: Path, kind: str) -> None:
    page = PAGES[kind](tmp_path)
    for width, scheme in ((1280, "light"), (1280, "dark"), (400, "light")):
        window, noise = await opened(browser, page, tmp_path / "shown.html", width=width, scheme=scheme)
        too_wide = await window.evaluate("document.documentElement.scrollWidth - innerWidth")
        title = await window.title()
        await window.context.close()

        assert noise == []
        assert too_wide <= 0
        assert title.startswith("No incident") == (kind == "quiet")


@pytest.mark.parametrize("kind", PAGES)
async def test_on_paper_everything_fits_and_is_dark_on_white(browser: Browser, tmp_path: Path, kind: str) -> None:
    page = PAGES[kind](tmp_path)
    window, noise = await opened(browser, page, tmp_path / "shown.html", width=A4_WITHIN_MARGINS_PX, scheme="dark")
    await window.emulate_media(media="print", color_scheme="dark")
    too_wide = await window.evaluate(
        "Math.max(...[...document.querySelectorAll('svg.timeline, pre, .step, figure')]"
        ".map(e => e.getBoundingClientRect().right), 0) - innerWidth"
    )
    paper, ink = await window.evaluate("(s => [s.backgroundColor, s.color])(getComputedStyle(document.body))")
    pdf = await window.pdf(prefer_css_page_size=True)
    await window.context.close()

    assert noise == []
    assert too_wide <= 0
    assert paper == "rgb(255, 255, 255)"
    assert max(map(int, ink.removeprefix("rgb(").removesuffix(")").split(","))) < 64
    assert pdf.startswith(b"%PDF-")


async def test_a_step_is_reached_with_the_keyboard_alone(browser: Browser, tmp_path: Path) -> None:
    page = PAGES["a long chain"](tmp_path)
    window, _ = await opened(browser, page, tmp_path / "shown.html", width=400)

    await window.keyboard.press("Tab")
    await expect(window.locator(":focus")).to_have_text("Skip to what was found")
    for _ in range(await window.locator(".mark.context").count() + 1):
        await window.keyboard.press("Tab")
        if await window.locator(".mark.root:focus").count():
            break
    await expect(window.locator(":focus")).to_have_attribute("aria-label", re.compile("root cause, rank 6 "))
    await window.keyboard.press("Enter")
    await expect(window.locator("li:target .role")).to_have_text("root cause")
    await window.context.close()


async def test_marks_do_not_cover_each_other(browser: Browser, tmp_path: Path) -> None:
    page = PAGES["a fleet"](tmp_path)
    window, _ = await opened(browser, page, tmp_path / "shown.html", width=1280)
    boxes = await window.evaluate(
        "[...document.querySelector('svg.timeline').querySelectorAll('.mark .shape')]"
        ".map(e => e.getBoundingClientRect()).map(r => [r.left, r.right, r.top, r.bottom])"
    )
    await window.context.close()

    assert len(boxes) == 28
    for n, one in enumerate(boxes):
        for other in boxes[:n]:
            apart = one[1] <= other[0] or other[1] <= one[0] or one[3] <= other[2] or other[3] <= one[2]
            assert apart, (one, other)


async def test_what_stands_on_a_lane_stays_within_the_drawing(browser: Browser, tmp_path: Path) -> None:
    for kind in ("a long chain", "hostile text", "a fleet"):
        window, _ = await opened(browser, PAGES[kind](tmp_path), tmp_path / "shown.html", width=1280)
        beyond = await window.evaluate(
            "[...document.querySelectorAll('svg.timeline:not(.symbol):not(.sample)')].flatMap(svg => {"
            " const edge = svg.getBoundingClientRect().right;"
            " return [...svg.querySelectorAll(':scope > a, :scope > text')]"
            ".filter(e => e.getBoundingClientRect().right > edge + 1).map(e => e.textContent) })"
        )
        await window.context.close()
        assert beyond == []
