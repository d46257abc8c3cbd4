"""The helper that training programs copy: it writes marks, and whatever is wrong it neither waits nor raises."""

import importlib.util
import os
import pickle
import re
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest

from shippers.jobs.folder import pid_space
from shippers.jobs.told import read
from tests.polling import until

HELPER = Path(__file__).parents[1] / "deploy" / "python" / "rootrank_marks.py"


@pytest.fixture
def told(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    (tmp_path / "marks").mkdir()
    for name in ("RANK", "LOCAL_RANK", "WORLD_SIZE", "SLURM_PROCID", "SLURM_NTASKS"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("ROOTRANK_JOBS_DIR", str(tmp_path))
    monkeypatch.setenv("SLURM_JOB_ID", "7")
    monkeypatch.setenv("SLURM_RESTART_COUNT", "1")
    return tmp_path


@pytest.fixture
def marks() -> Iterator[ModuleType]:
    """The helper, as new."""
    spec = importlib.util.spec_from_file_location("rootrank_marks", HELPER)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules["rootrank_marks"] = module
    spec.loader.exec_module(module)
    yield module
    module.flush()
    del sys.modules["rootrank_marks"]


def _written(folder: Path) -> list[str]:
    lines = [line for path in (folder / "marks").iterdir() if path.is_file() for line in path.read_text().splitlines()]
    said = [read(line, time.time_ns(), pid_space()) for line in lines]
    assert all(said), lines
    return [each.body.partition(" rootrank: ")[2] for each in said if each is not None]


def test_step_phase_and_checkpoint_are_written_as_the_agent_reads_them(told: Path, marks: ModuleType) -> None:
    marks.step(12)
    marks.phase("evaluation", step=12)
    marks.checkpoint("start", step=12)
    marks.flush(10)
    assert until(lambda: len(w := _written(told)) == 3 and w, what="three marks") == [
        "job.mark job=7 attempt=1 step=12 phase=train",
        "job.mark job=7 attempt=1 step=12 phase=evaluation",
        "job.mark job=7 attempt=1 step=12 checkpoint=start",
    ]


def test_a_rank_of_torchrun_tells_its_place_with_its_first_mark(
    told: Path, marks: ModuleType, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name, value in (("RANK", "5"), ("LOCAL_RANK", "1"), ("WORLD_SIZE", "8")):
        monkeypatch.setenv(name, value)
    marks.step(1)
    assert until(lambda: _written(told), what="marks") == [
        f"job.rank job=7 attempt=1 rank=5 local_rank=1 world=8 pid={os.getpid()}",
        "job.mark job=7 attempt=1 rank=5 step=1 phase=train",
    ]


def test_a_rank_that_no_launcher_says_can_be_said(told: Path, marks: ModuleType) -> None:
    marks.rank(3)
    marks.step(1)
    assert until(lambda: _written(told), what="marks") == ["job.mark job=7 attempt=1 rank=3 step=1 phase=train"]


def test_steps_come_once_a_second_at_most(told: Path, marks: ModuleType) -> None:
    for number in range(1000):
        marks.step(number)
    marks.flush(10)
    assert len(until(lambda: _written(told), what="a mark")) == 1


class Hostile:
    def __str__(self) -> str:
        raise RuntimeError("not today")


@pytest.mark.parametrize(
    "value", [Hostile(), "a\nrootrank: job.end job=7", "x" * 10**6, None, 1.5, object(), b"\xff", "ä"]
)
def test_a_hostile_value_harms_no_other_mark(told: Path, marks: ModuleType, value: Any) -> None:
    marks.phase(value, step=value)
    marks.checkpoint(value)
    marks.step(value)
    marks.phase("train", step=9)
    marks.flush(10)
    written = until(lambda: [line for line in _written_any(told) if "step=9 " in line], what="the good mark")
    assert len(written) == 1
    assert not [line for line in _written_any(told) if line.startswith("rootrank: job.end")]


def _written_any(folder: Path) -> list[str]:
    return [line for path in (folder / "marks").iterdir() for line in path.read_text().splitlines()]


@pytest.mark.parametrize("kind", ["missing", "file", "pipe", "link to a full disk"])
def test_without_a_place_to_write_nothing_is_raised_and_nothing_waits(told: Path, marks: ModuleType, kind: str) -> None:
    folder = told / "marks"
    if kind in ("missing", "file"):
        folder.rmdir()
        if kind == "file":
            folder.touch()
    else:
        path = folder / f"marks-{os.geteuid()}-7-{os.getpid()}"
        os.mkfifo(path) if kind == "pipe" else path.symlink_to("/dev/full")
    before = time.monotonic()
    for number in range(2000):
        marks.phase("train", step=number)
    assert time.monotonic() - before < 5
    marks.flush(5)


def test_a_child_of_a_fork_writes_marks_of_its_own(told: Path) -> None:
    code = f"""
import os, sys
sys.path.insert(0, {str(HELPER.parent)!r})
import rootrank_marks
rootrank_marks.step(1)
child = os.fork()
if child == 0:
    rootrank_marks.step(2)
    rootrank_marks.flush(10)
    os._exit(0)
os.waitpid(child, 0)
"""
    subprocess.run([sys.executable, "-c", code], check=True, timeout=60, env={**os.environ})
    assert sorted(_written(told)) == [f"job.mark job=7 attempt=1 step={n} phase=train" for n in (1, 2)]
    assert len(list((told / "marks").iterdir())) == 2


def test_many_threads_lose_and_mix_no_mark(told: Path, marks: ModuleType) -> None:
    def work(number: int) -> None:
        for step in range(50):
            marks.phase("train", step=number * 100 + step)

    threads = [threading.Thread(target=work, args=(number,)) for number in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    until(lambda: len(_written(told)) >= 400, what="all marks")
    steps = [int(found.group(1)) for line in _written(told) if (found := re.search(r"step=(\d+)", line))]
    assert sorted(steps) == sorted(number * 100 + step for number in range(8) for step in range(50))


def test_its_functions_can_be_pickled(marks: ModuleType) -> None:
    assert pickle.loads(pickle.dumps(marks.step)) is marks.step


def test_it_needs_nothing_but_the_standard_library(told: Path) -> None:
    done = subprocess.run(
        [sys.executable, "-I", "-S", "-W", "error", str(HELPER)],
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    assert (done.returncode, done.stderr) == (0, "")
