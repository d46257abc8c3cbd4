"""What `rootrank diagnose` answers, and with which exit code, to input that is not as it should be."""

import gzip
import json
import os
import random
import shlex
import subprocess
import sys
from pathlib import Path

import pytest
import typer
from typer.testing import CliRunner, Result

from pipeline.commands.diagnose import diagnose

KERN = "2026-03-04T05:06:07.100000+00:00 gx-02 kernel: {}\n"
XID = KERN.format("NVRM: Xid (PCI:0000:5e:00): 79, GPU has fallen off the bus.")


def run(*words: str | Path) -> Result:
    app = typer.Typer()
    app.command()(diagnose)
    return CliRunner().invoke(app, [str(word) for word in words])


@pytest.fixture
def logs(tmp_path: Path) -> Path:
    """A folder with one incident."""
    folder = tmp_path / "logs"
    folder.mkdir()
    (folder / "kern.log").write_text(XID)
    return folder


def test_a_file_that_cannot_be_read_is_exit_3() -> None:
    result = run("/proc/self/mem")  # a regular file whose first byte nobody can read, root included

    assert result.exit_code == 3
    assert "cannot read /proc/self/mem" in result.stderr


def test_a_device_named_directly_is_named_as_not_read() -> None:
    result = run("/dev/null")

    assert result.exit_code == 3
    assert "null: no regular file; not read" in result.stdout
    assert "no log to read in /dev/null" in result.stderr


def test_a_pipe_beside_a_log_is_named_and_the_log_is_read(logs: Path, tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "pipe")
    result = run(tmp_path / "pipe", logs / "kern.log")

    assert result.exit_code == 1
    assert "pipe: no regular file; not read" in result.stdout


def test_an_empty_folder_is_exit_3_and_json_is_still_printed(tmp_path: Path) -> None:
    result = run(tmp_path, "--json")

    assert result.exit_code == 3
    assert json.loads(result.stdout) == {"incidents": [], "notes": [], "gaps": [], "clocks": []}
    assert f"no log to read in {tmp_path}" in result.stderr


@pytest.mark.parametrize(
    ("name", "content"),
    [("state.json", b'{"a": 1}'), ("weights.bin", bytes(range(256)) * 40), ("opt.pkl", b"\x80\x04\x95" + bytes(50))],
)
def test_where_no_file_is_a_log_nothing_is_said_to_be_well(tmp_path: Path, name: str, content: bytes) -> None:
    (tmp_path / name).write_bytes(content)
    result = run(tmp_path / name)
    shape = json.loads(run(tmp_path, "--json").stdout)
    run(tmp_path, "--html", tmp_path / "page.html")

    assert result.exit_code == 3
    assert result.stdout.startswith("Nothing was read: whether there was an incident is not known.")
    assert f"  - {name}: " in result.stdout
    assert f"no log to read in {tmp_path / name}" in result.stderr
    assert [gap["source"] for gap in shape["gaps"]] == [name]
    assert "No incident found" not in (tmp_path / "page.html").read_text()


def test_a_file_that_is_no_log_beside_one_that_is_read_is_no_failure(logs: Path) -> None:
    (logs / "kern.log").write_text(KERN.format("usb 1-1: new device"))
    (logs / "weights.bin").write_bytes(bytes(range(256)) * 40)
    result = run(logs)

    assert result.exit_code == 0
    assert result.stdout.startswith("No incident found in 1 file (1 kernel log).")
    assert "weights.bin: binary file" in result.stdout


@pytest.mark.parametrize("page", [".", "no/such/page.html"])
def test_a_page_that_cannot_be_written_is_said_and_the_answer_is_still_printed(logs: Path, page: str) -> None:
    result = run(logs, "--html", logs / page)

    assert result.exit_code == 3
    assert "cannot write the page" in result.stderr
    assert "fell off the bus" in result.stdout


@pytest.mark.parametrize("lines", [40, 30_000], ids=["seen at the first look", "seen while reading"])
def test_lines_before_the_break_of_a_compressed_file_count(tmp_path: Path, lines: int) -> None:
    noise = random.Random(1)
    rest = "".join(KERN.format(f"usb 1-1: {noise.getrandbits(256):x}") for _ in range(lines))
    whole = gzip.compress((XID + rest).encode())
    (tmp_path / "kern.log.gz").write_bytes(whole[: len(whole) * 3 // 4])
    result = run(tmp_path, "--json")
    shape = json.loads(result.stdout)

    assert result.exit_code == 3
    assert [incident["class"] for incident in shape["incidents"]] == ["hardware/gpu_xid_79"]
    assert [gap["source"] for gap in shape["gaps"]] == ["kern.log.gz"]
    assert "kern.log.gz" in result.stderr


def test_a_name_that_is_not_utf8_is_printed_with_its_bytes(logs: Path) -> None:
    (logs / "kern.log").rename(os.fsdecode(os.fsencode(logs) + b"/k\xe9rn.log"))
    (logs / os.fsdecode(b"b\xe9d.log.gz")).write_bytes(b"\x1f\x8b")
    result = run(logs, "--json", "--html", logs.parent / "page.html")
    shape = json.loads(result.stdout)

    assert result.exit_code == 3
    assert shape["incidents"][0]["chain"][0]["evidence"]["source"] == r"k\xe9rn.log"
    assert [gap["source"] for gap in shape["gaps"]] == [r"b\xe9d.log.gz"]
    assert r"b\xe9d.log.gz" in result.stderr


def test_a_name_that_looks_like_the_printed_one_stays_another(tmp_path: Path) -> None:
    for name in (b"k\xe9.log.gz", b"k\\xe9.log.gz"):
        (tmp_path / os.fsdecode(name)).write_bytes(b"\x1f\x8b")
    shape = json.loads(run(tmp_path, "--json").stdout)

    assert {gap["source"] for gap in shape["gaps"]} == {r"k\xe9.log.gz", r"k\\xe9.log.gz"}


def test_a_folder_whose_own_name_is_not_utf8_is_read(logs: Path) -> None:
    folder = logs.rename(os.fsdecode(os.fsencode(logs.parent) + b"/l\xe9gs"))

    assert run(folder, "--json").exit_code == 1


@pytest.mark.parametrize(
    ("redirect", "code", "says"),
    [
        ("> /dev/full", 3, "rootrank: cannot write the output: No space left on device"),
        (">&-", 1, ""),
        ("<&-", 1, ""),
        ("2>&-", 1, ""),
    ],
)
def test_a_full_or_closed_stream_is_no_crash(logs: Path, redirect: str, code: int, says: str) -> None:
    done = subprocess.run(
        f"{shlex.quote(sys.executable)} -m pipeline diagnose {shlex.quote(str(logs))} {redirect}",
        shell=True, capture_output=True, text=True, check=False,
    )  # fmt: skip
    assert (done.returncode, done.stderr.strip()) == (code, says)
