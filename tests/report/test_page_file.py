import os
import subprocess
import sys
from pathlib import Path

import pytest

from pipeline.page_file import DEFAULT_PAGE, not_replaceable, with_page_name, write_page
from pipeline.report import render_html

LINE = "2026-03-04T05:06:07.100000+00:00 gx-02 kernel: NVRM: Xid (PCI:0000:5e:00): 79, GPU has fallen off the bus.\n"


def diagnose(folder: Path, *words: str) -> subprocess.CompletedProcess[str]:
    """The command as a user calls it, from within the folder."""
    root = str(Path(__file__).parents[2])
    return subprocess.run(
        [sys.executable, "-m", "pipeline", "diagnose", *words], cwd=folder, capture_output=True, text=True, check=False,
        env={**os.environ, "PYTHONPATH": root},
    )  # fmt: skip


@pytest.fixture
def here(tmp_path: Path) -> Path:
    """A folder with a folder of logs."""
    (tmp_path / "logs").mkdir()
    (tmp_path / "logs" / "kern.log").write_text(LINE)
    return tmp_path


@pytest.mark.parametrize(
    ("given", "taken"),
    [
        ("diagnose logs --html", f"diagnose logs --html={DEFAULT_PAGE}"),
        ("diagnose --html logs", f"diagnose --html={DEFAULT_PAGE} logs"),
        ("diagnose --html kern.log", f"diagnose --html={DEFAULT_PAGE} kern.log"),
        ("diagnose logs --html --json", f"diagnose logs --html={DEFAULT_PAGE} --json"),
        ("diagnose logs --html out.HTM --json", "diagnose logs --html out.HTM --json"),
        ("diagnose logs --html=/dev/stdout", "diagnose logs --html=/dev/stdout"),
        ("diagnose -- --html", "diagnose -- --html"),
        ("diagnose logs", "diagnose logs"),
    ],
)
def test_what_follows_html_is_its_name_only_if_it_is_the_name_of_a_page(given: str, taken: str) -> None:
    assert with_page_name(given.split()) == taken.split()


def test_a_page_without_a_name_is_written_here_and_said(here: Path) -> None:
    done = diagnose(here, "--html", "logs")

    assert done.returncode == 1
    assert f"rootrank: wrote {DEFAULT_PAGE}" in done.stderr
    assert "fell off the bus" in done.stdout
    assert (here / DEFAULT_PAGE).read_text().startswith("<!doctype html>")


def test_a_page_is_replaced_by_the_next_one_and_nothing_is_left_beside_it(here: Path) -> None:
    for _ in range(2):
        assert diagnose(here, "logs", "--html").returncode == 1
    assert sorted(path.name for path in here.iterdir()) == ["logs", DEFAULT_PAGE]


def test_what_is_no_page_of_rootrank_is_kept_unless_forced(here: Path) -> None:
    mine = here / "mine.html"
    mine.write_text("<!doctype html><p>notes of a week")
    refused = diagnose(here, "logs", "--html", "mine.html")
    kept = mine.read_text()
    forced = diagnose(here, "logs", "--html", "mine.html", "--force")

    assert (refused.returncode, refused.stdout) == (2, "")
    assert "mine.html is there and is no page of rootrank; --html=OTHER.html" in refused.stderr
    assert kept.endswith("notes of a week")
    assert forced.returncode == 1
    assert "fell off the bus" in mine.read_text()


def test_a_page_among_the_logs_is_no_log(here: Path) -> None:
    first = diagnose(here / "logs", ".", "--html", "--json")
    second = diagnose(here / "logs", ".", "--json")

    assert f'"source": "{DEFAULT_PAGE}"' not in first.stdout
    assert '"reason": "web page; not read"' in second.stdout
    assert second.stdout.count('"expected": 1') == first.stdout.count('"expected": 1') > 0


def test_a_link_is_replaced_and_not_what_it_leads_to(tmp_path: Path) -> None:
    other = tmp_path / "other"
    other.write_text("")
    (tmp_path / "page.html").symlink_to(other)

    write_page(tmp_path / "page.html", "new")

    assert other.read_text() == ""
    assert (tmp_path / "page.html").read_text() == "new"


def test_a_pipe_is_written_into(tmp_path: Path) -> None:
    reading, writing = os.pipe()
    write_page(Path(f"/dev/fd/{writing}"), "page")
    os.close(writing)

    assert os.read(reading, 100) == b"page"
    os.close(reading)


@pytest.mark.parametrize(("holds", "may"), [("", True), (render_html([], [], []), True), ("<p>rootrank</p>", False)])
def test_an_empty_file_and_a_page_may_be_replaced(tmp_path: Path, holds: str, may: bool) -> None:
    (tmp_path / "page.html").write_text(holds)

    assert (not_replaceable(tmp_path / "page.html") == "") is may


def test_a_page_that_cannot_be_finished_leaves_the_old_one(tmp_path: Path) -> None:
    page = tmp_path / "page.html"
    page.write_text("old")

    with pytest.raises(UnicodeEncodeError):
        write_page(page, "\udcff")

    assert page.read_text() == "old"
    assert list(tmp_path.iterdir()) == [page]
