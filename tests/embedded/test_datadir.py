"""One process at a time on a data folder."""

import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from pipeline.embedded.datadir import DataDir
from pipeline.embedded.errors import EmbeddedError, FolderHeldError

HOLD = """
import sys, pathlib
from pipeline.embedded.datadir import DataDir
DataDir(pathlib.Path(sys.argv[1])).acquire()
print("held", flush=True)
sys.stdin.read()
"""


@pytest.fixture
def holder(tmp_path: Path) -> Iterator[subprocess.Popen[str]]:
    """Another process that holds tmp_path / "data"."""
    command = [sys.executable, "-c", HOLD, str(tmp_path / "data")]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        assert process.stdout.readline() == "held\n"
        yield process
        process.kill()


def test_a_second_holder_is_refused_and_told_who_holds_the_folder(
    tmp_path: Path, holder: subprocess.Popen[str]
) -> None:
    with pytest.raises(FolderHeldError) as refused:
        DataDir(tmp_path / "data").acquire()

    assert str(holder.pid) in str(refused.value)
    assert sys.executable in str(refused.value)
    assert "--data" in str(refused.value)


def test_the_lock_of_a_killed_process_is_taken_over(tmp_path: Path, holder: subprocess.Popen[str]) -> None:
    os.kill(holder.pid, signal.SIGKILL)
    holder.wait()

    with DataDir(tmp_path / "data") as folder:
        assert str(os.getpid()) in folder.lock_file.read_text()


def test_a_released_folder_can_be_taken_again(tmp_path: Path) -> None:
    first, second = DataDir(tmp_path), DataDir(tmp_path)
    first.acquire()
    with pytest.raises(FolderHeldError, match=str(os.getpid())):
        second.acquire()

    first.release()

    assert second.acquire() is second
    second.release()


def test_a_folder_that_is_made_is_the_users_own(tmp_path: Path) -> None:
    with DataDir(tmp_path / "data") as folder:
        assert folder.path.stat().st_mode & 0o777 == 0o700
        assert folder.lock_file.stat().st_mode & 0o077 == 0


def test_acquiring_twice_is_one_hold(tmp_path: Path) -> None:
    with DataDir(tmp_path).acquire() as folder:
        assert folder.acquire() is folder


def test_a_folder_that_cannot_be_made_is_an_error_that_says_what_to_do(tmp_path: Path) -> None:
    (tmp_path / "file").touch()

    with pytest.raises(EmbeddedError, match="--data"):
        DataDir(tmp_path / "file" / "data").acquire()
