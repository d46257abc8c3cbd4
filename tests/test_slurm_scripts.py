"""Slurm's scripts as sh runs them: one line, exit 0, whatever the environment and the disk are like."""

import os
import shutil
import stat
import subprocess
import time
from pathlib import Path

import pytest

from shippers.jobs.told import read

SCRIPTS = Path(__file__).parents[1] / "deploy" / "slurm"
SHELLS = [name for name in ("dash", "bash", "busybox") if shutil.which(name)]
JOB = {"SLURM_JOB_ID": "7", "SLURM_JOB_USER": "alice", "SLURM_JOB_UID": "1001", "SLURM_JOB_PARTITION": "h100"}
TASK = {
    **JOB, "SLURM_STEP_ID": "0", "SLURM_PROCID": "3", "SLURM_LOCALID": "1", "SLURM_STEP_NUM_TASKS": "4",
    "SLURM_STEP_NUM_NODES": "2", "SLURM_TASK_PID": "90210", "SLURM_RESTART_COUNT": "1",
}  # fmt: skip
HOSTILE = "a'b\"c`touch pwned`$(touch pwned)\n2026-03-04T05:00:00Z rootrank: job.end job=7;é\\"


class Node:
    """The scripts with a settings file of their own."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.told = folder / "told"
        for name in ("jobs", "marks"):
            (self.told / name).mkdir(parents=True)
        self.settings = folder / "slurm.env"
        self.settings.write_text(f"ROOTRANK_JOBS_DIR={self.told}\n")

    def run(self, script: str, environment: dict[str, str], shell: str = "dash") -> subprocess.CompletedProcess[str]:
        text = (SCRIPTS / script).read_text(encoding="utf-8").replace("/etc/rootrank/slurm.env", str(self.settings))
        copy = self.folder / script
        copy.write_text(text, encoding="utf-8")
        command = [shell, "sh"] if shell == "busybox" else [shell]
        return subprocess.run(
            [*command, str(copy)], env=environment, capture_output=True, text=True, cwd=self.folder, timeout=20,
            check=False,
        )  # fmt: skip

    def bodies(self) -> list[str]:
        lines = [line for path in self.told.glob("*/*") for line in path.read_text().splitlines()]
        said = [read(line, time.time_ns()) for line in lines]
        assert all(said), lines
        assert all(line[:2] == "20" for line in lines)
        return [each.body.partition(" ")[2] for each in said if each]


@pytest.fixture
def node(tmp_path: Path) -> Node:
    return Node(tmp_path)


@pytest.mark.parametrize("shell", SHELLS)
def test_prolog_task_prolog_and_epilog_write_one_line_each(node: Node, shell: str) -> None:
    for script, environment in (("prolog.sh", JOB), ("task-prolog.sh", TASK), ("epilog.sh", JOB)):
        done = node.run(script, environment, shell)
        assert (done.returncode, done.stdout, done.stderr) == (0, "", "")
    assert sorted(node.bodies()) == [
        "rootrank: job.end job=7 scheduler=slurm",
        "rootrank: job.rank job=7 attempt=1 rank=3 local_rank=1 world=4 pid=90210 scheduler=slurm user=alice",
        "rootrank: job.start job=7 scheduler=slurm user=alice partition=h100",
    ]


def test_arrays_and_heterogeneous_jobs_are_told(node: Node) -> None:
    more = {"SLURM_ARRAY_JOB_ID": "6", "SLURM_ARRAY_TASK_ID": "3", "SLURM_HET_JOB_ID": "5", "SLURM_JOB_GPUS": "0,1"}
    node.run("prolog.sh", {**JOB, **more, "SLURM_RESTART_COUNT": "2"})
    node.run("epilog.sh", {**JOB, **more, "SLURM_JOB_EXIT_CODE2": "1:0"})
    assert node.bodies() == [
        "rootrank: job.start job=5 attempt=2 scheduler=slurm user=alice partition=h100 gpus=0,1 array=6_3 component=7",
        "rootrank: job.end job=5 scheduler=slurm exit=1:0",
    ]


@pytest.mark.parametrize("shell", SHELLS)
@pytest.mark.parametrize(("script", "known"), [("prolog.sh", JOB), ("task-prolog.sh", TASK), ("epilog.sh", JOB)])
def test_hostile_values_run_nothing_and_make_no_line_of_their_own(
    node: Node, shell: str, script: str, known: dict[str, str]
) -> None:
    hostile = {name: HOSTILE * (1 + 100 * (name == "SLURM_JOB_USER")) for name in TASK if name != "SLURM_STEP_ID"}
    environment = {**hostile, "SLURM_JOB_ID": "7", "SLURM_STEP_ID": known.get("SLURM_STEP_ID", HOSTILE)}
    done = node.run(script, {**environment, "SLURM_JOB_EXIT_CODE2": HOSTILE, "SLURM_HET_JOB_ID": HOSTILE}, shell)
    assert (done.returncode, done.stdout, done.stderr) == (0, "", "")
    assert len(node.bodies()) == 1
    assert not list(node.folder.rglob("pwned"))


@pytest.mark.parametrize("number", ["", "x", "7;reboot", "../7", HOSTILE])
def test_what_is_no_number_of_a_job_is_not_told(node: Node, number: str) -> None:
    for script in ("prolog.sh", "task-prolog.sh", "epilog.sh"):
        assert node.run(script, {**TASK, "SLURM_JOB_ID": number}).returncode == 0
    assert list(node.told.glob("*/*")) == []


@pytest.mark.parametrize("shell", SHELLS)
@pytest.mark.parametrize("fault", ["missing", "read only", "full", "settings broken", "settings a folder"])
def test_no_fault_of_the_disk_fails_a_script(node: Node, shell: str, fault: str) -> None:
    if fault == "missing":
        shutil.rmtree(node.told)
    elif fault == "read only":
        node.settings.write_text("ROOTRANK_JOBS_DIR=/proc\n")
    elif fault == "full":
        (node.told / "jobs" / "slurm-7.jobs").symlink_to("/dev/full")
        node.settings.write_text(f"ROOTRANK_JOBS_DIR={node.told}\nmktemp() {{ echo /dev/full; }}\n")
    elif fault == "settings broken":
        node.settings.write_text("if then ((( ' \n")
    else:
        node.settings.unlink()
        node.settings.mkdir()
    for script, environment in (("prolog.sh", JOB), ("task-prolog.sh", TASK), ("epilog.sh", JOB)):
        done = node.run(script, environment, shell)
        assert (done.returncode, done.stdout, done.stderr) == (0, "", "")


def test_batch_scripts_and_allocations_are_no_tasks(node: Node) -> None:
    for step in ("", "4294967291", "4294967292", "4294967290"):
        node.run("task-prolog.sh", {**TASK, "SLURM_STEP_ID": step})
    assert list(node.told.glob("*/*")) == []


def test_files_of_nccl_are_exported_only_where_the_site_asks_and_the_user_has_not_chosen(node: Node) -> None:
    assert node.run("task-prolog.sh", TASK).stdout == ""
    node.settings.write_text(f"ROOTRANK_JOBS_DIR={node.told}\nROOTRANK_NCCL_DEBUG_DIR=/var/log/nccl\n")
    assert node.run("task-prolog.sh", TASK).stdout == (
        "export NCCL_DEBUG_FILE=/var/log/nccl/%h.7.%p.log\nexport NCCL_DEBUG=WARN\n"
    )
    assert node.run("task-prolog.sh", {**TASK, "NCCL_DEBUG_FILE": "/mine"}).stdout == ""
    assert "NCCL_DEBUG=W" not in node.run("task-prolog.sh", {**TASK, "NCCL_DEBUG": "INFO"}).stdout


def test_the_user_chooses_nothing_that_the_site_sets(node: Node) -> None:
    own = {"ROOTRANK_NCCL_DEBUG_DIR": "/tmp/x", "ROOTRANK_PREFLIGHT": "1", "ROOTRANK_SHIPPER": "/bin/echo"}
    assert node.run("task-prolog.sh", {**TASK, **own}).stdout == ""


def test_preflight_is_printed_into_the_jobs_output_once_a_node_and_cannot_fail_it(node: Node) -> None:
    shipper = node.folder / "shipper"
    shipper.write_text('#!/bin/sh\necho "export X=1"; exit 3\n')
    shipper.chmod(0o755)
    node.settings.write_text(f"ROOTRANK_JOBS_DIR={node.told}\nROOTRANK_PREFLIGHT=1\nROOTRANK_SHIPPER={shipper}\n")
    path = {"PATH": os.environ["PATH"]}
    done = node.run("task-prolog.sh", {**TASK, **path, "SLURM_LOCALID": "0"})
    assert (done.returncode, done.stdout) == (0, "print rootrank preflight: export X=1\n")
    assert node.run("task-prolog.sh", {**TASK, **path}).stdout == ""


def test_a_file_of_a_task_cannot_be_foreseen_and_is_readable_for_the_agent(node: Node) -> None:
    node.run("task-prolog.sh", TASK)
    node.run("task-prolog.sh", TASK)
    files = list((node.told / "marks").iterdir())
    assert len(files) == 2
    assert {stat.S_IMODE(path.stat().st_mode) for path in files} == {0o644}
