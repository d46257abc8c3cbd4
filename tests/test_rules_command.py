"""`rootrank rules`: what reads a line and why, a site's own files, and what nobody reads."""

import json
import os
import subprocess
import sys
from collections.abc import Iterable
from pathlib import Path

import pytest

from pipeline.rulebook.checks import lint
from pipeline.rulebook.explain import explain
from pipeline.rulebook.reference import DOCUMENT, reference
from pipeline.rulebook.unmatched import shape_of, unmatched
from pipeline.rules import load_rules
from schemas import signals
from schemas.records import RawLine

SIGNALS = signals.load()
XID = "NVRM: Xid (PCI:0000:5e:00): 79, GPU has fallen off the bus."
SITE_SIGNAL = """
emitter = "our own watchdog"
checked_against = "1.0"
references = ["https://example.org"]
order = 1
[[signal]]
id = "site.watchdog"
event = "site.watchdog"
versions = "1.0"
hints = ["our watchdog bit"]
pattern = '''our watchdog bit rank (?P<rank>\\d{1,6})'''
types = { rank = "int" }
role = "cause"
scope = "rank"
severity = "error"
label = "software/crash"
[[signal.matches]]
line = "our watchdog bit rank 7"
gives = { rank = "7" }
[[signal.misses]]
line = "our watchdog bit nobody"
[[signal.misses]]
line = "their watchdog bit rank 7"
"""


def rules(*arguments: str, site: Path | None = None, text: str | None = None) -> subprocess.CompletedProcess[str]:
    """Run the command as a person would; a site's folder needs a process of its own, as rules are loaded once."""
    given = ["--rules", str(site)] if site is not None else []
    environment = {name: value for name, value in os.environ.items() if name != "ROOTRANK_RULES"}
    return subprocess.run(
        [sys.executable, "-m", "pipeline", "rules", *given, *arguments], input=text, text=True, capture_output=True,
        check=False, env=environment, timeout=120,
    )  # fmt: skip


@pytest.fixture
def site(tmp_path: Path) -> Path:
    """A folder with one signal of a site's own."""
    (tmp_path / "signals").mkdir()
    (tmp_path / "signals" / "ours.toml").write_text(SITE_SIGNAL)
    return tmp_path


def test_a_line_is_explained_with_its_prefixes_its_signal_and_what_was_captured() -> None:
    said = rules("explain", f"2026-03-04T05:06:07+00:00 node-k7 kernel: {XID}")
    assert said.returncode == 0
    for text in ("node node-k7", "event gpu.xid", "xid = 79", "pci_bus_id = 0000:5e:00.0", "cause, fatal"):
        assert text in said.stdout


def test_a_near_signal_says_how_far_its_pattern_fits() -> None:
    said = explain("NET/IB : Got completion from peer 10.9.0.7<50321> with satus=12", SIGNALS)
    assert said.match is None
    near = next(near for near in said.near if near.event == "nccl.ib.completion")
    assert near.fits.endswith("with ")
    assert "status" in near.wanted


def test_lines_come_from_standard_input_and_one_that_nobody_reads_is_exit_code_1() -> None:
    said = rules("explain", "--json", text=f"{XID}\nhello\n")
    assert said.returncode == 1
    read, unread = said.stdout.split("\n}\n")[:2]
    assert json.loads(read + "}")["match"]["event"] == "gpu.xid"
    assert json.loads(unread + "}")["match"] is None


def test_a_signal_is_shown_in_full_and_a_wrong_id_is_answered_with_close_ones() -> None:
    shown = rules("show", "nvrm.xid")
    assert shown.returncode == 0
    assert "hints" in shown.stdout
    assert XID[:20] in shown.stdout
    wrong = rules("show", "nvrm.xi")
    assert wrong.returncode == 2
    assert "nvrm.xid" in wrong.stderr


def test_an_xid_number_gives_its_meaning_and_action() -> None:
    shown = rules("show", "xid:79")
    assert "GPU_HAS_FALLEN_OFF_THE_BUS" in shown.stdout
    assert "RESTART_BM" in shown.stdout
    assert rules("show", "xid:99999").returncode == 2


def test_the_reference_of_all_signals_is_up_to_date() -> None:
    """`make docs` writes it anew."""
    assert DOCUMENT.read_text("utf-8") == reference()


def test_no_signal_or_rule_of_the_release_has_a_problem() -> None:
    assert list(lint(SIGNALS, load_rules())) == []


def test_a_cause_rule_is_listed_and_shown() -> None:
    listed = json.loads(rules("list", "--json").stdout)
    assert {rule["id"] for rule in listed["causes"]} >= {"gpu_fell_off_bus"}
    assert len(listed["signals"]) == len(SIGNALS.signals)
    assert "hardware/gpu_xid_79" in rules("show", "gpu_fell_off_bus").stdout


def test_a_sites_own_signal_is_read_tested_and_comes_first(site: Path) -> None:
    assert "site.watchdog" in rules("explain", "our watchdog bit rank 9", site=site).stdout
    assert rules("test", "site.watchdog", site=site).returncode == 0
    listed = json.loads(rules("list", "--json", site=site).stdout)["signals"]
    assert listed[0]["id"] == "site.watchdog"


def test_a_sites_signal_with_the_id_of_a_shipped_one_replaces_it(site: Path) -> None:
    text = SITE_SIGNAL.replace('id = "site.watchdog"', 'id = "nvrm.xid"')
    (site / "signals" / "ours.toml").write_text(text)
    listed = json.loads(rules("list", "--json", site=site).stdout)["signals"]
    assert [s["event"] for s in listed if s["id"] == "nvrm.xid"] == ["site.watchdog"]


@pytest.mark.parametrize(
    ("change", "named"),
    [
        (('scope = "rank"', 'scope = "planet"'), ["ours.toml", "site.watchdog", "scope"]),
        (('types = { rank = "int" }', ""), ["ours.toml", "site.watchdog", "types"]),
        (
            ('types = { rank = "int" }', 'types = { rank = "text" }\nsubject = { rank = "rank" }'),
            ["ours.toml", "site.watchdog", "types.rank"],
        ),
        (("order = 1", 'order = "first"'), ["ours.toml", "order"]),
        (('role = "cause"', 'rôle = "cause"'), ["ours.toml"]),
    ],
)
def test_a_site_file_with_a_mistake_is_refused_with_file_id_and_field(
    site: Path, change: tuple[str, str], named: list[str]
) -> None:
    (site / "signals" / "ours.toml").write_text(SITE_SIGNAL.replace(*change))
    said = rules("test", site=site)
    assert said.returncode == 2
    assert "Traceback" not in said.stderr
    for text in named:
        assert text in said.stderr


def test_hidden_files_of_editors_are_no_rules_and_a_folder_named_like_one_is_refused(site: Path) -> None:
    (site / "signals" / ".#ours.toml").write_text("not TOML at all [")
    assert rules("test", "site.watchdog", site=site).returncode == 0
    (site / "signals" / "more.toml").mkdir()
    said = rules("test", "site.watchdog", site=site)
    assert said.returncode == 2
    assert "more.toml" in said.stderr
    assert "Traceback" not in said.stderr


def test_an_example_that_does_not_match_fails_the_test_with_its_place(site: Path) -> None:
    (site / "signals" / "ours.toml").write_text(SITE_SIGNAL.replace('gives = { rank = "7" }', 'gives = { rank = "8" }'))
    said = rules("test", "site.watchdog", site=site)
    assert said.returncode == 1
    assert "ours.toml: site.watchdog: matches 1" in said.stdout


def test_a_folder_that_is_not_there_is_said(tmp_path: Path) -> None:
    said = rules("list", site=tmp_path / "gone")
    assert said.returncode == 2
    assert "gone" in said.stderr
    assert "Traceback" not in said.stderr


def numbered(texts: Iterable[str]) -> list[RawLine]:
    """The lines of one file, 100 bytes each."""
    return [
        RawLine(seq=n, source="a.log", generation="0", offset=100 * n, line_no=n, body=text)
        for n, text in enumerate(texts, 1)
    ]


def test_what_nobody_reads_is_grouped_by_shape() -> None:
    lines = [
        XID,
        *(f"NET/IB : Got completion from peer 10.9.0.{n}<50321> with satus={n}" for n in range(5)),
        *(f"frobnicator 0x{n:08x} failed to turn after {n} s" for n in range(7)),
        "all is well",
    ]
    found = unmatched(numbered(lines), SIGNALS)
    assert [(shape.count, shape.signals) for shape in found.near_misses] == [(5, ["nccl.ib.completion"])]
    assert [(shape.count, shape.shape) for shape in found.unknown_errors] == [
        (7, "frobnicator # failed to turn after # s")
    ]
    assert found.lines == len(lines)
    assert found.unknown_errors[0].line_no == 7


def test_lines_of_a_table_and_parts_of_a_line_are_read() -> None:
    table = ["Filesystem      Size  Used Avail Use% Mounted on", "/dev/nvme0n1p2  879G  879G     0 100% /failed"]
    assert not unmatched(numbered(table), SIGNALS).unknown_errors
    parts = (("P", XID[:30]), ("F", XID[30:]))
    found = unmatched(numbered(f"2026-08-10T15:36:05.123456789Z stderr {flag} {text}" for flag, text in parts), SIGNALS)
    assert (found.lines, found.near_misses, found.unknown_errors) == (2, [], [])


def test_a_shape_has_no_values() -> None:
    assert shape_of("job 17 at /a/b/c.log: crc deadbeef1234 of 0xFF") == "job # at /…: crc # of #"


def test_unmatched_reads_folders_and_says_where(tmp_path: Path) -> None:
    (tmp_path / "job.log").write_text(f"{XID}\nthe frobnicator crashed 3 times\n")
    said = rules("unmatched", str(tmp_path))
    assert said.returncode == 0
    assert "the frobnicator crashed # times" in said.stdout
    assert "job.log:2" in said.stdout
    assert rules("unmatched", str(tmp_path / "gone")).returncode == 3


@pytest.mark.parametrize(
    ("command", "wanted", "meant"),
    [
        ("show", "nvrm.xidd", "nvrm.xid"),
        ("show", "gpu_fel_off_bus", "gpu_fell_off_bus"),
        ("show", "hardware/gpu_xid79", "hardware/gpu_xid_79"),
        ("test", "gpu_fel_off_bus", "gpu_fell_off_bus"),
    ],
)
def test_an_id_that_does_not_exist_is_answered_with_those_spelled_like_it(
    command: str, wanted: str, meant: str
) -> None:
    done = rules(command, wanted)

    assert (done.returncode, done.stdout) == (2, "")
    assert f"{wanted}; did you mean {meant}" in done.stderr
    assert "`rootrank rules list` has all" in done.stderr


def test_an_id_like_no_other_is_answered_with_how_to_list_all() -> None:
    assert (
        rules("show", "xyzzyq").stderr == "rootrank: no signal, event or rule xyzzyq; `rootrank rules list` has all\n"
    )
