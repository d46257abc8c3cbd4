"""Ranks by the environments of processes: of a recorded /proc, and of real processes."""

import os
import signal
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path

import pytest

from shippers import builtin
from shippers.config import Config
from shippers.jobs.environment import NAMES
from shippers.pieces import Moment
from shippers.probes.processes import Processes, environment_of
from tests.polling import until

NOW = Moment(observed_ns=1, mono_ns=1, wall_ns=1)
ENVIRONMENT = {
    "SLURM_JOB_ID": "7",
    "RANK": "3",
    "LOCAL_RANK": "1",
    "WORLD_SIZE": "4",
    "AWS_SECRET_ACCESS_KEY": "hunter2",
}


class Proc:
    """A tree as the kernel shows it."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        (folder / "stat").write_text("cpu 1 2 3\nbtime 1772600400\n")

    def add(self, pid: int, command: str, environment: Mapping[str, str], *, parent: int = 1, ticks: int = 500) -> None:
        here = self.folder / str(pid)
        here.mkdir(exist_ok=True)
        fields = ["S", str(parent), *["0"] * 17, str(ticks), "0"]
        (here / "stat").write_text(f"{pid} ({command}) {' '.join(fields)}\n")
        (here / "environ").write_bytes(b"".join(f"{k}={v}\0".encode() for k, v in environment.items()))
        (here / "cgroup").write_text("0::/user.slice\n")

    def remove(self, pid: int) -> None:
        for path in (self.folder / str(pid)).iterdir():
            path.unlink()
        (self.folder / str(pid)).rmdir()


@pytest.fixture
def proc(tmp_path: Path) -> Proc:
    return Proc(tmp_path)


def _look(probe: Processes) -> list[str]:
    """What two looks tell: between fork and exec a process shows its parent's environment, so one does not do."""
    return [*probe.look(NOW), *probe.look(NOW)]


def _opened(proc: Proc, memo: str = "") -> Processes:
    probe = Processes(proc=proc.folder)
    probe.open(memo)
    return probe


def test_a_rank_is_told_with_the_time_at_which_its_process_started_and_again_when_it_is_gone(proc: Proc) -> None:
    probe = _opened(proc)
    proc.add(90, "python", ENVIRONMENT, ticks=100 * os.sysconf("SC_CLK_TCK"))
    assert probe.look(NOW) == []
    assert _look(probe) == [
        "2026-03-04T05:01:40Z rootrank: job.rank job=7 attempt=0 rank=3 local_rank=1 world=4 pid=90 scheduler=slurm"
    ]
    proc.remove(90)
    assert _look(probe) == ["rootrank: job.rank_end job=7 attempt=0 rank=3 pid=90"]
    assert probe.memo() == ""


def test_of_a_shell_its_program_and_the_workers_of_that_only_the_program_is_the_rank(proc: Proc) -> None:
    probe = _opened(proc)
    proc.add(80, "bash", ENVIRONMENT)
    proc.add(90, "python3", ENVIRONMENT, parent=80)
    proc.add(95, "python3", ENVIRONMENT, parent=90)
    assert [line.split("pid=")[1].split()[0] for line in _look(probe)] == ["90"]
    assert _look(probe) == []


def test_another_process_under_the_same_number_is_another_one(proc: Proc) -> None:
    probe = _opened(proc)
    proc.add(90, "python", ENVIRONMENT, ticks=500)
    _look(probe)
    proc.add(90, "python", {**ENVIRONMENT, "RANK": "0"}, ticks=900)
    told = _look(probe)
    assert told[0] == "rootrank: job.rank_end job=7 attempt=0 rank=3 pid=90"
    assert "rank=0 " in told[1]


def test_after_a_restart_only_what_changed_is_told(proc: Proc) -> None:
    first = _opened(proc)
    proc.add(90, "python", ENVIRONMENT)
    proc.add(91, "python", {**ENVIRONMENT, "RANK": "2"})
    assert len(_look(first)) == 2
    proc.remove(91)
    assert _look(_opened(proc, first.memo())) == ["rootrank: job.rank_end job=7 attempt=0 rank=2 pid=91"]


def test_no_name_but_the_known_ones_is_looked_at(proc: Proc) -> None:
    proc.add(90, "python", ENVIRONMENT)
    assert environment_of(proc.folder, 90).keys() <= NAMES
    assert "AWS_TOKEN" not in NAMES
    assert not any("hunter2" in line for line in _look(_opened(proc)))


@pytest.mark.parametrize(
    "path",
    [
        "0::/kubepods.slice/kubepods-burstable.slice/kubepods-burstable-pod0f0f0f0f_1111_2222_3333_444444444444.slice/x",
        "11:memory:/kubepods/burstable/pod0f0f0f0f-1111-2222-3333-444444444444/abc",
    ],
)
def test_the_pod_of_a_process_is_in_the_path_of_its_cgroup(proc: Proc, path: str) -> None:
    proc.add(90, "python", ENVIRONMENT)
    (proc.folder / "90" / "cgroup").write_text(path + "\n")
    assert _look(_opened(proc))[0].endswith("pod=0f0f0f0f-1111-2222-3333-444444444444")


SLURM_V2 = "0::/system.slice/slurmstepd.scope/job_{}/step_0/user/task_1"
SLURM_V1 = "9:freezer:/slurm/uid_1000/job_{0}/step_0\n4:memory:/slurm_gpu07/uid_1000/job_{0}/step_0/task_1"


@pytest.mark.parametrize("groups", [SLURM_V1, SLURM_V2])
@pytest.mark.parametrize("name", ["SLURM_JOB_ID", "ROOTRANK_JOB_ID"])
def test_no_rank_of_a_job_that_slurm_did_not_put_it_in(proc: Proc, groups: str, name: str) -> None:
    said = {name: "7", "RANK": "3", "WORLD_SIZE": "4"}
    for pid, job in ((90, "70"), (91, "8")):
        proc.add(pid, "python", said, ticks=pid)
        (proc.folder / str(pid) / "cgroup").write_text(groups.format(job) + "\n")
    assert _look(_opened(proc)) == []
    proc.add(94, "python", said, ticks=94)
    (proc.folder / "94" / "cgroup").write_text(groups.format("7") + "\n")
    (line,) = _look(_opened(proc))
    assert " pid=94" in line


def test_a_program_that_a_starter_in_the_job_put_elsewhere_is_the_rank(proc: Proc) -> None:
    proc.add(90, "bash", ENVIRONMENT, ticks=100)
    (proc.folder / "90" / "cgroup").write_text(SLURM_V2.format("7") + "\n")
    proc.add(91, "python", ENVIRONMENT, ticks=200)  # in a container, past Slurm's cgroups
    (line,) = _look(_opened(proc))
    assert " pid=91" in line


def test_of_two_that_name_one_seat_the_one_that_slurm_keeps_is_the_rank(proc: Proc) -> None:
    proc.add(90, "python", ENVIRONMENT, ticks=100)
    proc.add(91, "python", ENVIRONMENT, ticks=200)
    (proc.folder / "91" / "cgroup").write_text(SLURM_V2.format("7") + "\n")
    (line,) = _look(_opened(proc))
    assert " pid=91" in line


@pytest.mark.parametrize(("first", "named", "kept_in"), [("6", "7", "7"), ("7", "7", "8"), ("7", "7", "134")])
def test_a_part_of_a_heterogeneous_job_is_kept_under_its_own_number(
    proc: Proc, first: str, named: str, kept_in: str
) -> None:
    """A task that `srun` starts names the first part's number in both, the script of a part its own in one."""
    proc.add(90, "python", {**ENVIRONMENT, "SLURM_JOB_ID": named, "SLURM_HET_JOB_ID": first})
    (proc.folder / "90" / "cgroup").write_text(SLURM_V2.format(kept_in) + "\n")
    (line,) = _look(_opened(proc))
    assert f" job={first} " in line


@pytest.mark.parametrize(("first", "kept_in"), [("9", "8"), ("7", "135")])
def test_no_job_is_a_part_of_one_that_came_after_it_or_long_before(proc: Proc, first: str, kept_in: str) -> None:
    proc.add(90, "python", {**ENVIRONMENT, "SLURM_JOB_ID": kept_in, "SLURM_HET_JOB_ID": first})
    (proc.folder / "90" / "cgroup").write_text(SLURM_V2.format(kept_in) + "\n")
    assert _look(_opened(proc)) == []


def test_who_only_says_to_be_a_part_of_a_job_takes_no_seat_in_it(proc: Proc) -> None:
    for pid, job, ticks in ((90, "8", 100), (91, "7", 200)):
        proc.add(pid, "python", {**ENVIRONMENT, "SLURM_JOB_ID": job, "SLURM_HET_JOB_ID": "7"}, ticks=ticks)
        (proc.folder / str(pid) / "cgroup").write_text(SLURM_V2.format(job) + "\n")
    (line,) = _look(_opened(proc))
    assert " pid=91" in line


def test_a_rank_that_slurm_keeps_gets_the_seat_of_one_that_only_named_it_before(proc: Proc) -> None:
    probe = _opened(proc)
    proc.add(90, "python", ENVIRONMENT, ticks=100)
    assert len(_look(probe)) == 1
    proc.add(91, "python", ENVIRONMENT, ticks=200)
    (proc.folder / "91" / "cgroup").write_text(SLURM_V2.format("7") + "\n")
    ended, told = _look(probe)
    assert ended == "rootrank: job.rank_end job=7 attempt=0 rank=3 pid=90"
    assert " pid=91" in told
    assert [*_look(probe), *_look(_opened(proc, probe.memo()))] == []


def test_what_a_release_told_that_noted_no_proof_is_not_told_again(proc: Proc) -> None:
    for pid in (90, 91):
        proc.add(pid, "python", ENVIRONMENT, parent=pid - 1)
        (proc.folder / str(pid) / "cgroup").write_text(SLURM_V2.format("7") + "\n")
    assert _look(_opened(proc, '{"90":[500,"7",0,3]}')) == []


@pytest.mark.parametrize(
    "groups",
    [
        "0::/user.slice/user-1000.slice/user@1000.service/slurmstepd.scope/job_7/step_0",
        "1:name=systemd:/user.slice/user-1000.slice/user@1000.service/slurm/uid_0/job_7\n4:memory:/user.slice",
    ],
)
def test_a_group_that_a_user_made_proves_nothing(proc: Proc, groups: str) -> None:
    proc.add(90, "python", ENVIRONMENT, ticks=100)
    (proc.folder / "90" / "cgroup").write_text(groups + "\n")
    proc.add(91, "python", ENVIRONMENT, ticks=200)
    (proc.folder / "91" / "cgroup").write_text(SLURM_V2.format("7") + "\n")
    (line,) = _look(_opened(proc))
    assert " pid=91" in line


@pytest.mark.parametrize("scope", ["slurmstepd.scope", "gpu07_slurmstepd.scope"])
def test_a_number_that_a_launcher_calls_its_run_is_no_job_of_slurm(proc: Proc, scope: str) -> None:
    """As in a container that keeps no environment, with `--rdzv-id=$RANDOM`."""
    proc.add(90, "python", {"TORCHELASTIC_RUN_ID": "24711", "RANK": "3", "WORLD_SIZE": "4"})
    (proc.folder / "90" / "cgroup").write_text(f"0::/system.slice/{scope}/job_8/step_extern/user/task_special\n")
    (line,) = _look(_opened(proc))
    assert " job=8 " in line
    assert line.endswith("scheduler=slurm")


def test_a_process_that_is_gone_or_may_not_be_read_is_passed_over(proc: Proc) -> None:
    (proc.folder / "90").mkdir()
    proc.add(91, "python", {"RANK": "0", "WORLD_SIZE": "1"})
    assert _look(_opened(proc)) == []


def test_a_real_process_is_found_and_its_end_is_told() -> None:
    environment = {"ROOTRANK_JOB_ID": "real-1", "ROOTRANK_ATTEMPT": "2", "RANK": "0", "WORLD_SIZE": "1"}
    process = subprocess.Popen(
        [sys.executable, "-c", "import signal; signal.pause()"], env=environment, stdin=subprocess.DEVNULL
    )
    try:
        probe = Processes()
        probe.open("")

        def own(lines: list[str]) -> list[str]:
            return [line for line in lines if "job=real-1" in line]

        (line,) = until(lambda: own(_look(probe)), what="the rank")
        assert f"rootrank: job.rank job=real-1 attempt=2 rank=0 world=1 pid={process.pid}" in line
        process.send_signal(signal.SIGKILL)
        process.wait()
        assert own(_look(probe)) == [f"rootrank: job.rank_end job=real-1 attempt=2 rank=0 pid={process.pid}"]
    finally:
        process.kill()
        process.wait()


def test_it_is_off_below_the_full_profile() -> None:
    (entry,) = (each for each in builtin.BUILT_IN if each.name == "processes")
    assert not builtin.is_on(entry, Config())
    assert builtin.is_on(entry, Config(profile="full"))


def test_what_another_release_remembered_in_another_way_is_told_again(proc: Proc) -> None:
    proc.add(900, "python", ENVIRONMENT)
    (line,) = _look(_opened(proc, memo='{"900":"rank 3"}'))
    assert "job=7 attempt=0 rank=3" in line
