"""`rootrank verdict PATH`: what a launcher is told of a folder of logs, and that it is always told something."""

import json
import os
import shutil
import subprocess
import sys
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest
import typer
from typer.testing import CliRunner, Result

from pipeline.asking import Deadline, read_folder
from pipeline.commands.verdict import verdict

CORPUS = Path(__file__).parent / "corpus"
ROOT = Path(__file__).parents[1]
LONG = ("--wait-s", "300")


def run(*words: str | Path) -> Result:
    app = typer.Typer()
    app.command()(verdict)
    return CliRunner().invoke(app, [str(word) for word in words])


def answer(*words: str | Path) -> dict[str, Any]:
    result = run(*words, *LONG)
    assert result.exit_code == 0, result.output
    found: dict[str, Any] = json.loads(result.stdout)
    return found


def attempts(tmp_path: Path, name: str, *numbers: int) -> Path:
    """One job whose attempts are copies of a folder of the corpus."""
    folder = tmp_path / "job"
    for number in numbers:
        shutil.copytree(CORPUS / name / "logs", folder / f"attempt_{number}")
    (folder / "rootrank.toml").write_text('cluster = "red"\njob_id = "4711"\nyear = 2026\n')
    return folder


@pytest.mark.parametrize(
    ("name", "said", "nodes"),
    [
        ("c01_aer_then_xid79_skewed_clocks", "restart_excluding", ["hx32"]),
        ("c10_ib_port_error_then_status_12", "restart_excluding", ["ib-b19"]),
        ("two_faults_two_nodes", "restart_excluding", ["d-1", "d-2"]),
        ("python_exception_one_rank", "restart", []),
        ("c15_cgroup_oom_rank_killed_slurm_label", "restart", []),
        ("process_killed_gloo_two_agents", "restart", []),
        ("unknown_collective_timeout_all_report", "restart", []),
        ("unknown_silent_rank_one_missing", "undecided", []),
        ("quiet_normal_end_teardown_noise", "undecided", []),
    ],
)
def test_an_incident_of_the_corpus(name: str, said: str, nodes: list[str]) -> None:
    found = answer(CORPUS / name / "logs")

    assert (found["answer"], [one["node"] for one in found["nodes"]]) == (said, nodes)
    assert found["reason"]


def test_every_field_of_the_answer_is_there_and_a_node_is_left_out_from_now_on() -> None:
    before = datetime.now(UTC).replace(microsecond=0)
    found = answer(CORPUS / "c01_aer_then_xid79_skewed_clocks" / "logs")

    assert found.keys() == {
        "answer", "job", "attempt", "cluster", "nodes", "reason", "class", "confidence", "incident_id", "verdict",
        "as_of", "refused",
    }  # fmt: skip
    assert (found["job"], found["attempt"], found["cluster"]) == ("pretrain-31", 0, "corpus")
    until, as_of = (datetime.fromisoformat(text) for text in (found["nodes"][0]["expires_at"], found["as_of"]))
    assert until == as_of + timedelta(hours=24)
    assert before <= as_of <= datetime.now(UTC)


def test_the_same_exception_in_two_attempts_is_no_restart(tmp_path: Path) -> None:
    found = answer(attempts(tmp_path, "python_exception_one_rank", 0, 1))

    assert (found["answer"], found["attempt"]) == ("do_not_restart", 1)


def test_the_first_of_two_attempts_may_be_asked_about(tmp_path: Path) -> None:
    found = answer(attempts(tmp_path, "python_exception_one_rank", 0, 1), "--attempt", "0")

    assert (found["answer"], found["attempt"]) == ("restart", 0)


def life(minute: int, pid: int, raised: str) -> str:
    """What one life of a rank prints: it joins, and raises."""
    return (
        f"n1:{pid}:{pid} [0] NCCL INFO comm 0x55 rank 0 nranks 1 cudaDev 0 nvmlDev 0 busId 1b000 commId 0x77aa - "
        f"Init COMPLETE\n[2026-03-04 05:{minute:02d}:07] step 5\n[rank0]: Traceback (most recent call last):\n"
        f'[rank0]:   File "/srv/train/loop.py", line 118, in run_epoch\n[rank0]:     x = batch[name]\n'
        f"[rank0]: {raised}\n[2026-03-04 05:{minute:02d}:09] leaving\n"
    )


@pytest.mark.parametrize(
    ("second", "said"), [("KeyError: 'sample_77'", "do_not_restart"), ("ValueError: too few", "restart")]
)
def test_a_crash_that_comes_again_after_torchrun_started_the_worker_anew_is_no_restart(
    tmp_path: Path, second: str, said: str
) -> None:
    failed = "E0304 05:{}:12.400000 790 torch/distributed/elastic/multiprocessing/api.py:874] failed (exitcode: 1) "
    failed += "local_rank: 0 (pid: {}) of binary: /usr/bin/python3\n"
    folder = tmp_path / "n1"
    folder.mkdir()
    (folder / "rank0.log").write_text(life(6, 800, "KeyError: 'sample_12'") + life(36, 900, second))
    (folder / "torchrun.log").write_text(failed.format("06", 800) + failed.format("36", 900))

    found = answer(tmp_path)

    assert (found["answer"], found["class"]) == (said, "software/python_exception")


def test_a_time_limit_is_a_restart_as_the_scheduler_says(tmp_path: Path) -> None:
    (tmp_path / "slurm-880142.out").write_text(
        "slurmstepd: error: *** JOB 880142 ON k041 CANCELLED AT 2026-03-04T05:06:07 DUE TO TIME LIMIT ***\n"
    )

    found = answer(tmp_path)

    assert (found["answer"], found["class"], found["job"]) == ("restart", "scheduler/time_limit", "880142")


def test_the_kernel_log_of_a_node_alone_is_answered_for(tmp_path: Path) -> None:
    line = "2026-03-04T05:06:07.100000+00:00 gx-02 kernel: NVRM: Xid (PCI:0000:5e:00): 79, GPU has fallen off the bus."
    (tmp_path / "kern.log").write_text(f"{line}\n")

    found = answer(tmp_path)

    assert (found["answer"], [one["node"] for one in found["nodes"]]) == ("restart_excluding", ["gx-02"])


def test_a_given_list_of_nodes_decides_which_may_be_left_out() -> None:
    folder = CORPUS / "two_faults_two_nodes" / "logs"

    assert run(folder, "--nodes", "d-[2-9]", "--format", "slurm-exclude", *LONG).stdout == "d-2\n"
    assert run(folder, "--nodes", "x[1-9]", "--format", "slurm-exclude", *LONG).stdout == "\n"


def test_the_output_for_slurm_is_one_line_and_the_answer_a_comment_beside_it() -> None:
    result = run(CORPUS / "two_faults_two_nodes" / "logs", "--format", "slurm-exclude", *LONG)

    assert (result.exit_code, result.stdout) == (0, "d-[1-2]\n")
    assert result.stderr.startswith("# restart_excluding: ")


def test_the_output_for_kubernetes_is_an_affinity() -> None:
    result = run(CORPUS / "two_faults_two_nodes" / "logs", "--format", "k8s-affinity", *LONG)

    assert json.loads(result.stdout)["nodeAffinity"]


@pytest.mark.parametrize("path", ["/no/such/folder", "./nothing-here"])
def test_a_path_that_does_not_exist_is_undecided(path: str) -> None:
    result = run(path)

    assert result.exit_code == 0
    assert json.loads(result.stdout)["answer"] == "undecided"
    assert Path(path).name in json.loads(result.stdout)["reason"]


def test_a_file_that_cannot_be_read_is_undecided_and_named() -> None:
    found = answer("/proc/self/mem")

    assert found["answer"] == "undecided"
    assert "cannot read /proc/self/mem" in found["reason"]


def test_an_empty_folder_is_undecided(tmp_path: Path) -> None:
    assert "no log to read" in answer(tmp_path)["reason"]


def test_a_manifest_that_cannot_be_used_is_undecided(tmp_path: Path) -> None:
    (tmp_path / "rootrank.toml").write_text("colour = 1\n")
    (tmp_path / "a.log").write_text("x\n")

    assert "colour" in answer(tmp_path)["reason"]


XIDS = "2026-03-04T05:06:07.100000+00:00 gx-02 kernel: NVRM: Xid (PCI:0000:5e:00): {}, pid=1, name=python, error {}\n"


def long_log(folder: Path, lines: int) -> None:
    """A GPU is lost; so many lines follow, each of which must be looked at."""
    with (folder / "kern.log").open("w") as file:
        file.write(XIDS.format(79, 0))
        file.writelines(XIDS.format(31, number) for number in range(lines))


class Looks(Deadline, frozen=True, kw_only=True):
    """A deadline that comes after so many looks at it."""

    looks: list[int]

    @property
    def left_s(self) -> float:
        self.looks[0] -= 1
        return float(self.looks[0] > 0)


def test_of_logs_that_take_too_long_what_was_read_is_told_and_is_provisional(tmp_path: Path) -> None:
    long_log(tmp_path, 5_000)

    whole = read_folder(tmp_path, Looks(at_s=0, looks=[10_000]))
    part = read_folder(tmp_path, Looks(at_s=0, looks=[4]))

    assert [(i.class_, i.verdict) for i in whole.incidents] == [("hardware/gpu_xid_79", "settled")]
    assert [(i.class_, i.verdict) for i in part.incidents] == [("hardware/gpu_xid_79", "provisional")]
    assert whole.remarks == []
    assert "no time to read all logs" in part.remarks[0]


def test_logs_that_cannot_be_understood_in_time_are_undecided(tmp_path: Path) -> None:
    long_log(tmp_path, 200_000)
    result = run(tmp_path, "--wait-s", "1")

    found = json.loads(result.stdout)
    assert result.exit_code == 0
    assert found["verdict"] in (None, "provisional")
    assert "give --wait-s" in found["reason"]


def test_a_failure_of_rootrank_itself_is_undecided_with_its_traceback_beside(tmp_path: Path) -> None:
    (tmp_path / "signals").mkdir()
    (tmp_path / "signals" / "mine.toml").write_text("[[signal]]\nid = 3\n")
    environment = {**os.environ, "PYTHONPATH": str(ROOT), "ROOTRANK_RULES": str(tmp_path)}
    words = [sys.executable, "-m", "pipeline", "verdict", str(CORPUS / "quiet_only_noise" / "logs")]

    result = subprocess.run(words, capture_output=True, text=True, env=environment, cwd=ROOT, timeout=120, check=False)

    assert result.returncode == 0
    assert json.loads(result.stdout)["answer"] == "undecided"
    assert "mine.toml" in result.stderr
