"""What `rootrank placement` prints, and with which exit code."""

import json
from pathlib import Path

import pytest
import typer
from typer.testing import CliRunner, Result

from pipeline.commands.placement import placement

INIT = (
    "{host}:{pid}:9 [{dev}] NCCL INFO comm 0x7f rank {rank} nranks 2 cudaDev {dev} nvmlDev {dev} busId {bus}000 "
    "commId 0x77aa - Init COMPLETE\n"
)
UUID = "GPU-0a1b2c3d-4e5f-6071-8293-a4b5c6d7e8f9"


def run(*words: str | Path) -> Result:
    app = typer.Typer()
    app.command()(placement)
    return CliRunner().invoke(app, [str(word) for word in words])


@pytest.fixture
def logs(tmp_path: Path) -> Path:
    """Two ranks on one node, and the driver's line about one of their GPUs."""
    (tmp_path / "gx1").mkdir()
    ranks = INIT.format(host="gx1", pid=70, dev=0, rank=0, bus="1b") + INIT.format(
        host="gx1", pid=71, dev=1, rank=1, bus="3b"
    )
    (tmp_path / "gx1" / "job.log").write_text(ranks)
    (tmp_path / "gx1" / "kern.log").write_text(
        f"2026-08-10T15:00:00+00:00 gx1 kernel: NVRM: GPU at PCI:0000:3b:00: {UUID}\n"
    )
    return tmp_path


def test_the_map_names_every_identifier_with_its_line(logs: Path) -> None:
    result = run(logs)
    assert result.exit_code == 0, result.output
    entry = result.stdout.partition("rank 1: ")[2].splitlines()
    for text in ("node gx1", "local rank 1", "pid 71", f"GPU UUID {UUID} (joined)"):
        assert text in entry[0]
    assert "gx1/job.log:2: gx1:71:9 [1] NCCL INFO comm 0x7f rank 1" in entry[1]
    kernel = f"gx1/kern.log:1: 2026-08-10T15:00:00+00:00 gx1 kernel: NVRM: GPU at PCI:0000:3b:00: {UUID}"
    assert entry[2].strip() == f"{kernel}  <- GPU UUID"


def test_the_json_has_value_line_and_text_of_each_field(logs: Path) -> None:
    result = run(logs, "--json")
    (job,) = json.loads(result.stdout)["jobs"]
    assert job["world_size"]["value"] == 2
    second = job["ranks"][1]
    assert second["rank"] == 1
    assert second["gpu_uuid"] == {
        "value": UUID, "how": "joined", "where": "gx1/kern.log:1",
        "line": f"2026-08-10T15:00:00+00:00 gx1 kernel: NVRM: GPU at PCI:0000:3b:00: {UUID}",
    }  # fmt: skip
    (group,) = job["groups"]
    assert [member["rank"] for member in group["members"]] == [0, 1]
    assert job["contradictions"] == []


def test_a_contradiction_is_printed_with_both_lines_and_is_exit_1(logs: Path) -> None:
    (logs / "gx2").mkdir()
    (logs / "gx2" / "job.log").write_text(INIT.format(host="gx2", pid=71, dev=1, rank=1, bus="3b"))
    result = run(logs)
    assert result.exit_code == 1
    assert "(gx1/job.log:2)" in result.stdout
    assert "(gx2/job.log:1)" in result.stdout
    assert "neither is used" in result.stdout


def test_a_folder_that_says_nothing_of_ranks_says_so(tmp_path: Path) -> None:
    (tmp_path / "a.log").write_text("hello\n")
    result = run(tmp_path)
    assert result.exit_code == 0
    assert result.stdout.startswith("No line says which rank ran where.")


def test_log_text_cannot_steer_the_terminal(logs: Path) -> None:
    with (logs / "gx1" / "job.log").open("a") as file:
        file.write(INIT.format(host="gx1", pid=72, dev=0, rank=0, bus="1b").rstrip() + " \u202e \u0007\n")
    result = run(logs)
    assert "\u202e" not in result.stdout
    assert "\u0007" not in result.stdout


def test_what_is_not_there_is_exit_3_and_a_wrong_manifest_exit_2(tmp_path: Path) -> None:
    assert run(tmp_path / "nowhere").exit_code == 3
    (tmp_path / "rootrank.toml").write_text("nodes = 3\n")
    (tmp_path / "a.log").write_text("hello\n")
    assert run(tmp_path).exit_code == 2
