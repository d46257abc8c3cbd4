"""What the agent costs, measured by the command itself."""

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from shippers import claim
from shippers.__main__ import FINE, USAGE, main
from shippers.commands.cost import ProcessCost, Report, SourceCost, _switched_off, _Used, as_text
from shippers.config import Config
from tests.shippers.fakes import eventually


@pytest.fixture
def config(tmp_path: Path) -> Path:
    path = tmp_path / "node.toml"
    (tmp_path / "a.log").write_text("one\n")
    path.write_text(
        f"""
profile = "none"
[sources]
pressure = true
edac = true
[spool]
dir = "{tmp_path / "spool"}"
[kafka]
bootstrap = "127.0.0.1:1"
[[source]]
name = "train"
path = "{tmp_path}/*.log"
"""
    )
    return path


def test_the_agent_and_every_source_is_measured_and_nothing_is_left_behind(
    config: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["cost", "--config", str(config), "--seconds", "1", "--json"]) == FINE
    told = json.loads(capsys.readouterr().out)
    assert told["agent"]["pid"] == os.getpid()
    assert told["agent"]["core_percent"] > 0
    assert 10 < told["agent"]["resident_mib"] < 4096
    assert told["running"] is None
    sources = {each["source"]: each for each in told["sources"]}
    assert sources["pressure"]["looks"] >= 1
    assert sources["pressure"]["every_s"] == 10
    assert sources["files"]["core_percent"] >= 0
    assert sources["tcp"]["reason"] == 'profile = "none" does not hold it'
    assert not (tmp_path / "spool").exists()


def test_the_agent_that_ships_from_the_spool_is_measured_beside(
    config: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "spool").mkdir()
    held = claim.lock(tmp_path / "spool")
    try:
        assert main(["cost", "--config", str(config), "--seconds", "1", "--json"]) == FINE
    finally:
        os.close(held)
    assert json.loads(capsys.readouterr().out)["running"]["pid"] == os.getpid()


def test_processes_that_an_agent_has_started_count() -> None:
    alone = _Used.now()
    with subprocess.Popen([sys.executable, "-c", "input()"], stdin=subprocess.PIPE) as child:
        eventually(lambda: _Used.now().resident_bytes - alone.resident_bytes > 4 * 2**20, "it counts")
        other = _Used.of(os.getpid())
        child.communicate(b"\n")
    assert other is not None
    assert other.resident_bytes > alone.resident_bytes


def test_the_table_says_what_is_off_and_why_and_what_the_whole_costs() -> None:
    process = ProcessCost(pid=7, core_percent=0.5, resident_mib=40.25)
    table = as_text(
        Report(
            seconds=60, agent=process, running=process, limit_core_percent=1, limit_resident_mib=64,
            sources=[
                SourceCost(source="edac", profile="minimal", state="off", reason="no memory controller" + " word" * 40),
                SourceCost(source="pressure", profile="minimal", state="on", every_s=10, looks=6, cpu_ms_per_look=0.2,
                           wall_ms_per_look=0.3, core_percent=0.002, lines=0),
                SourceCost(source="self_test", profile="minimal", state="on", every_s=0.5, looks=120),
            ],
        )
    )  # fmt: skip
    assert table.splitlines()[0] == "agent     0.50 % of one core, 40.2 MiB resident; over 60 s, sending nothing"
    assert "process 7, which ships from here" in table
    assert "edac              minimal  off: no memory controller" in table
    assert max(map(len, table.splitlines())) <= 120
    assert "\n" + " " * 27 + "word" in table
    assert "0.498 %" in table
    assert "    120   0.5 s" in table


def test_a_source_that_no_profile_holds_is_called_so() -> None:
    (capture,) = (each for each in _switched_off(Config()) if each.source == "capture")
    assert (capture.profile, capture.reason) == ("", "no profile holds it")


def test_a_switch_of_no_source_is_said(config: Path, capsys: pytest.CaptureFixture[str]) -> None:
    config.write_text("[sources]\npresure = true\n")
    assert main(["cost", "--config", str(config), "--seconds", "1"]) == USAGE
    assert "did you mean pressure?" in capsys.readouterr().err
