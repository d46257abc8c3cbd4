"""Child processes die with their parent, and what a crash leaves is recognised."""

import os
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from pipeline.embedded.errors import FolderHeldError, PartFailedError
from pipeline.embedded.part import Part
from pipeline.embedded.processes import (
    PidRecord,
    ProcessIdentity,
    identify,
    is_running,
    read_pid_file,
    write_pid_file,
)

Wait = Callable[[Callable[[], bool], str], None]
SLEEP = [sys.executable, "-c", "import signal; signal.pause()"]
START_A_CHILD = """
import sys, pathlib
from pipeline.embedded.children import start_child
process = start_child([sys.executable, "-c", "import signal; signal.pause()"], pathlib.Path(sys.argv[1]))
print(process.pid, flush=True)
sys.stdin.read()
"""


def part_in(folder: Path) -> Part:
    return Part(name="the part", pid_file=folder / "part.pid", log_file=folder / "part.log", stop_grace_s=5)


@pytest.fixture
def sleeper() -> Iterator[ProcessIdentity]:
    """A process of nobody's."""
    with subprocess.Popen(SLEEP) as process:
        identity = identify(process.pid)
        assert identity is not None
        yield identity
        process.kill()


@pytest.fixture
def myself() -> ProcessIdentity:
    identity = identify(os.getpid())
    assert identity is not None
    return identity


def a_dead_process(myself: ProcessIdentity) -> ProcessIdentity:
    """Our own id with another start time: what a reused id looks like."""
    return ProcessIdentity(pid=myself.pid, started_ticks=myself.started_ticks - 1)


def test_a_child_dies_when_its_parent_is_killed(tmp_path: Path, eventually: Wait) -> None:
    command = [sys.executable, "-c", START_A_CHILD, str(tmp_path / "log")]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as parent:
        assert parent.stdout is not None
        child = identify(int(parent.stdout.readline()))
        assert child is not None

        parent.kill()

    eventually(lambda: not is_running(child), "the child outlived its parent")


def test_a_process_that_an_earlier_owner_left_is_ended_first(
    tmp_path: Path, sleeper: ProcessIdentity, myself: ProcessIdentity
) -> None:
    part = part_in(tmp_path)
    write_pid_file(part.pid_file, PidRecord(part=sleeper, owner=a_dead_process(myself)))

    part.start(SLEEP)

    assert not is_running(sleeper)
    assert part.pid is not None
    part.stop()


def test_a_pid_file_that_names_a_process_which_is_not_ours_harms_nobody(
    tmp_path: Path, sleeper: ProcessIdentity, myself: ProcessIdentity
) -> None:
    part = part_in(tmp_path)
    reused = ProcessIdentity(pid=sleeper.pid, started_ticks=sleeper.started_ticks - 1)
    write_pid_file(part.pid_file, PidRecord(part=reused, owner=a_dead_process(myself)))

    part.end_stale()

    assert is_running(sleeper)


def test_a_part_of_a_living_owner_is_refused(tmp_path: Path, sleeper: ProcessIdentity, myself: ProcessIdentity) -> None:
    part = part_in(tmp_path)
    write_pid_file(part.pid_file, PidRecord(part=sleeper, owner=myself))

    with pytest.raises(FolderHeldError, match=str(myself.pid)):
        part.start(SLEEP)

    assert is_running(sleeper)


@pytest.mark.parametrize("content", [b"", b"{", b"[]", b'{"part": 1}', b'{"part": {}, "owner": {}}'])
def test_a_damaged_pid_file_counts_as_none(tmp_path: Path, content: bytes) -> None:
    part = part_in(tmp_path)
    part.pid_file.write_bytes(content)

    assert read_pid_file(part.pid_file) is None
    part.end_stale()


def test_a_part_that_dies_is_reported_with_the_end_of_its_log(tmp_path: Path, eventually: Wait) -> None:
    part = part_in(tmp_path)
    part.start([sys.executable, "-c", "import sys; sys.exit('disk is full')"])
    eventually(lambda: part.pid is None, "the part did not end")

    with pytest.raises(PartFailedError, match=r"status 1(.|\n)*disk is full"):
        part.require_running()

    assert not part.pid_file.exists()


def test_a_part_that_ignores_the_polite_signal_is_killed(tmp_path: Path, eventually: Wait) -> None:
    part = Part(name="p", pid_file=tmp_path / "pid", log_file=tmp_path / "log", stop_grace_s=0.1)
    stubborn = "import signal; signal.signal(signal.SIGTERM, signal.SIG_IGN); print('up', flush=True); signal.pause()"
    part.start([sys.executable, "-c", stubborn])
    eventually(lambda: "up" in part.log_tail(), "the part did not start")
    identity = identify(part.pid or 0)
    assert identity is not None

    part.stop()

    assert not is_running(identity)


def test_ctrl_c_of_the_terminal_does_not_reach_a_part(tmp_path: Path) -> None:
    part = part_in(tmp_path)
    part.start(SLEEP)
    assert part.pid is not None

    assert os.getpgid(part.pid) != os.getpgid(0)
    os.kill(part.pid, signal.SIGKILL)
    part.stop()
