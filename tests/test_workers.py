"""Several processes give what one gives, in order, and end cleanly when one of them is killed."""

import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import msgspec
import pytest

from pipeline.diagnose import diagnose_plan
from pipeline.drill import generate
from pipeline.drill.generate import Options
from pipeline.folder import plan
from pipeline.workers import AHEAD, WorkerLostError, Workers
from tests.corpus_cases import CORPUS
from tests.polling import until


def _said(folder: Path, workers: Workers) -> bytes:
    with workers:
        diagnosis = diagnose_plan(plan([folder], workers=workers), workers)
    return msgspec.json.encode(diagnosis.shape(), order="sorted")


def _slowly(number: int) -> int:
    time.sleep(0.05 if number % 2 else 0)
    return number


def _killed(number: int) -> int:
    if number == 3:
        os.kill(os.getpid(), signal.SIGKILL)
    return number


@pytest.mark.parametrize("method", ["fork", "spawn"])
def test_results_come_in_order(method: str) -> None:
    with Workers(2, method=method) as workers:
        assert list(workers.map(_slowly, range(20))) == list(range(20))


def test_only_a_few_tasks_are_taken_ahead() -> None:
    taken = 0

    def tasks() -> Iterator[int]:
        nonlocal taken
        for number in range(100):
            taken += 1
            yield number

    with Workers(2) as workers:
        for done, _ in enumerate(workers.map(_slowly, tasks()), 1):
            assert taken - done <= AHEAD * 2
            if done == 10:
                break


def test_a_killed_process_is_an_error_that_says_what_to_do() -> None:
    with pytest.raises(WorkerLostError, match="--processes 1"), Workers(2) as workers:
        list(workers.map(_killed, range(10)))


@pytest.mark.parametrize("case", sorted(folder.parent.name for folder in CORPUS.glob("*/logs"))[::12])
def test_two_processes_say_of_a_case_what_one_says(case: str) -> None:
    folder = CORPUS / case / "logs"
    assert _said(folder, Workers(2, worth_bytes=0)) == _said(folder, Workers(1))


@pytest.mark.parametrize(("chain", "seed", "method"), [("C10", 2, "fork"), ("C15", 2, "spawn"), ("C24", 12, "fork")])
def test_two_processes_say_of_a_drill_what_one_says(tmp_path: Path, chain: str, seed: int, method: str) -> None:
    generate.write(generate.incident(Options(seed=seed, chain=chain, ranks=64)), tmp_path)
    folder = tmp_path / generate.LOGS
    assert _said(folder, Workers(2, worth_bytes=0, method=method)) == _said(folder, Workers(1))


def _large(folder: Path) -> Path:
    """As much as several processes are worth."""
    for node in range(20):
        text = "".join(
            f"gx-{node:02}:{n}:{n} [0] NCCL WARN NET/IB : Got completion from peer 10.0.0.{n % 250}<4711> with "
            f"status=12 opcode=0 len=0 vendor err 129 (Send) {n}\n"
            for n in range(8_000)
        )
        (folder / f"gx-{node:02}.log").write_text(text)
    return folder


def _children(pid: int) -> list[int]:
    return [int(word) for word in Path(f"/proc/{pid}/task/{pid}/children").read_text().split()]


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGKILL])
def test_who_is_interrupted_or_killed_leaves_no_process(tmp_path: Path, number: int) -> None:
    command = [sys.executable, "-m", "pipeline", "diagnose", str(_large(tmp_path)), "--processes", "2"]
    with subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE) as asked:
        until(lambda: len(_children(asked.pid)) == 2, timeout_s=60, what="two processes read")
        children = _children(asked.pid)
        asked.send_signal(number)
        asked.wait(20)
        until(lambda: not any(Path(f"/proc/{pid}").exists() for pid in children), timeout_s=20, what="they are gone")


def test_a_killed_reader_is_said_and_exit_3(tmp_path: Path) -> None:
    command = [sys.executable, "-m", "pipeline", "diagnose", str(_large(tmp_path)), "--processes", "2"]
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) as asked:
        until(lambda: len(_children(asked.pid)) == 2, timeout_s=60, what="two processes read")
        os.kill(_children(asked.pid)[0], signal.SIGKILL)
        out, err = asked.communicate(timeout=60)
    assert (asked.returncode, out) == (3, "")
    assert "--processes 1" in err
    assert "Traceback" not in err
