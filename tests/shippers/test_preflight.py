"""Would a run leave evidence? Each check, and exports that sh takes and that put it right."""

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from shippers.preflight.checks import Finding, findings
from shippers.preflight.seen import Folder, Seen, file_system_of, look

GOOD = {
    "TORCH_FR_BUFFER_SIZE": "2000", "TORCH_NCCL_DUMP_ON_TIMEOUT": "1", "NCCL_DEBUG": "INFO",
    "NCCL_DEBUG_FILE": "/data/nccl-%h-%p.log", "RANK": "0", "WORLD_SIZE": "8",
}  # fmt: skip
DATA = Folder(path="/data", exists=True, is_writable=True, file_system="nfs4")


def _seen(environment: dict[str, str], **changes: object) -> Seen:
    values: dict[str, object] = {
        "environment": environment, "torch": (2, 9), "timeout_s": 600, "left_s": 7200, "dump": DATA, "better": DATA,
        "nccl_files": DATA if "NCCL_DEBUG_FILE" in environment else None, "shm_bytes": 2**34, "memlock_bytes": None,
        "nofile": 1_048_576, "nofile_most": 1_048_576,
    }  # fmt: skip
    return Seen(**{**values, **changes})  # type: ignore[arg-type]


def _one(name: str, environment: dict[str, str], **changes: object) -> Finding:
    return next(each for each in findings(_seen(environment, **changes)) if each.name == name)


def test_a_run_with_all_that_is_needed_has_nothing_to_export() -> None:
    found = findings(_seen(GOOD))
    assert {each.state for each in found} == {"ok"}
    assert [each.exports for each in found if each.exports] == []


@pytest.mark.parametrize(
    ("name", "environment", "changes", "state", "exports"),
    [
        ("flight recorder", {}, {}, "bad", [("TORCH_FR_BUFFER_SIZE", "2000")]),
        ("flight recorder", {}, {"torch": (2, 5)}, "bad", [("TORCH_NCCL_TRACE_BUFFER_SIZE", "2000")]),
        ("flight recorder", {"TORCH_NCCL_TRACE_BUFFER_SIZE": "0"}, {}, "bad", [("TORCH_FR_BUFFER_SIZE", "2000")]),
        ("flight recorder", {"TORCH_NCCL_TRACE_BUFFER_SIZE": "99"}, {}, "ok", []),
        ("dump on time-out", {"TORCH_NCCL_DUMP_ON_TIMEOUT": "0"}, {}, "bad", [("TORCH_NCCL_DUMP_ON_TIMEOUT", "1")]),
        (
            "dump folder", {"SLURM_JOB_ID": "7"}, {"dump": Folder(path="/tmp", exists=True, is_writable=True)},
            "unsure", [("TORCH_FR_DUMP_TEMP_FILE", "/data/nccl-trace-7-rank_")],
        ),
        (
            "dump folder", {}, {"dump": Folder(path="/x"), "torch": (2, 5)},
            "bad", [("TORCH_NCCL_DEBUG_INFO_TEMP_FILE", "/data/nccl-trace-rank_")],
        ),
        ("time-out", {}, {"left_s": 1000}, "bad", []),
        ("time-out", {"TORCH_NCCL_HEARTBEAT_TIMEOUT_SEC": "60"}, {"left_s": 1000}, "ok", []),
        ("time-out", {}, {"left_s": None}, "unsure", []),
        ("NCCL_DEBUG", {}, {}, "bad", [("NCCL_DEBUG", "INFO")]),
        ("NCCL_DEBUG", {"NCCL_DEBUG": "VERSION"}, {}, "bad", [("NCCL_DEBUG", "WARN")]),
        ("NCCL_DEBUG_FILE", {}, {}, "unsure", [("NCCL_DEBUG_FILE", "/data/nccl-%h-%p.log")]),
        ("NCCL_DEBUG_FILE", {"NCCL_DEBUG_FILE": "/data/x"}, {}, "bad", [("NCCL_DEBUG_FILE", "/data/nccl-%h-%p.log")]),
        (
            "error handling", {"TORCH_NCCL_ASYNC_ERROR_HANDLING": "0"}, {}, "bad",
            [("TORCH_NCCL_ASYNC_ERROR_HANDLING", "3")],
        ),
        ("error handling", {"TORCH_NCCL_BLOCKING_WAIT": "1"}, {}, "unsure", []),
        ("ranks and nodes", {}, {}, "unsure", [("NCCL_DEBUG", "INFO"), ("NCCL_DEBUG_SUBSYS", "INIT,ENV")]),
        ("ulimit -l", {}, {"memlock_bytes": 65536}, "bad", []),
        ("ulimit -n", {}, {"nofile": 1024}, "unsure", []),
        ("/dev/shm", {}, {"shm_bytes": 64 * 2**20}, "bad", []),
        ("/dev/shm", {}, {"shm_bytes": None}, "bad", []),
    ],
)  # fmt: skip
def test_what_is_wrong_is_told_with_what_puts_it_right(
    name: str, environment: dict[str, str], changes: dict[str, object], state: str, exports: list[tuple[str, str]]
) -> None:
    found = _one(name, environment, **changes)
    assert (found.state, list(found.exports)) == (state, exports)


def test_the_file_system_of_a_path_is_that_of_the_mount_below_it(tmp_path: Path) -> None:
    mounts = tmp_path / "mountinfo"
    points = {"/": "ext4", tmp_path: "tmpfs", f"{tmp_path}x": "nfs4"}
    mounts.write_text("".join(f"1 0 0:1 / {point} rw - {kind} none rw\n" for point, kind in points.items()))
    assert file_system_of(tmp_path / "inner", mounts) == "tmpfs"
    assert file_system_of(Path("/usr"), mounts) == "ext4"
    assert file_system_of(Path("/usr"), tmp_path / "none") == ""


def test_the_end_of_a_job_is_what_slurm_says() -> None:
    assert look({"SLURM_JOB_END_TIME": "2000"}, now_s=500, torch="2.5.1", timeout_s=600).left_s == 1500
    assert look({"SLURM_JOB_END_TIME": "soon"}, now_s=500, torch="2.5.1", timeout_s=600).left_s is None


def _preflight(*arguments: str, environment: dict[str, str]) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-m", "shippers", "preflight", *arguments], capture_output=True, text=True, check=False,
        env={"PATH": os.environ["PATH"], "PYTHONPATH": str(Path.cwd()), **environment}, timeout=60,
    )  # fmt: skip


def test_the_exports_are_read_by_sh_and_leave_nothing_of_the_environment_bad(tmp_path: Path) -> None:
    folder = tmp_path / "a 'quoted' $(folder)"
    folder.mkdir()
    here = {"HOME": str(folder), "PWD": str(folder), "SLURM_JOB_ID": "7"}
    done = _preflight("--env", "--torch", "2.9", environment=here)
    assert done.returncode == 0
    assert all(line.startswith("export ") for line in done.stdout.splitlines())
    (said,) = done.stderr.splitlines()
    assert "NCCL_DEBUG_FILE" in said
    assert said.endswith(f": files into {folder}")
    read_back = subprocess.run(
        ["sh", "-c", f"{done.stdout}\nenv"], capture_output=True, text=True, check=True, env=here
    ).stdout
    after = dict(line.partition("=")[::2] for line in read_back.splitlines())
    again = _preflight("--json", "--torch", "2.9", environment={**here, **after})
    left = {each["name"]: each for each in json.loads(again.stdout)["findings"]}
    for name in ("flight recorder", "dump on time-out", "NCCL_DEBUG", "NCCL_DEBUG_FILE", "error handling"):
        assert left[name]["state"] == "ok", left[name]
        assert left[name]["source"].startswith("https://")


def test_it_fails_no_job_unless_it_is_asked_to() -> None:
    assert _preflight(environment={}).returncode == 0
    assert _preflight("--strict", environment={}).returncode == 1
