"""The folder in which a prolog says which job has which GPU."""

import os
from pathlib import Path

import pytest

from shippers.pieces import Moment
from shippers.probes.job_map import JobMap
from shippers.probes.probe import Absent

NOW = Moment(observed_ns=1, mono_ns=1, wall_ns=1)


def test_jobs_that_come_and_go_are_told_and_nothing_else(tmp_path: Path) -> None:
    probe = JobMap(str(tmp_path))
    probe.open("")
    (tmp_path / "0").write_text("4711\n4712\n")
    (tmp_path / "3.1").write_text("4711_7\n")
    (tmp_path / "README").write_text("4713\n")
    assert probe.look(NOW) == [
        "rootrank: gpu.job gpu=0 job=4711", "rootrank: gpu.job gpu=0 job=4712",
        "rootrank: gpu.job gpu=3 gi=1 job=4711_7",
    ]  # fmt: skip
    assert probe.look(NOW) == []
    (tmp_path / "0").write_text("4712\n")
    (tmp_path / "3.1").unlink()
    assert probe.look(NOW) == ["rootrank: gpu.job_over gpu=0 job=4711", "rootrank: gpu.job_over gpu=3 gi=1 job=4711_7"]


def test_after_a_restart_only_what_changed_is_told(tmp_path: Path) -> None:
    (tmp_path / "0").write_text("4711\n")
    first = JobMap(str(tmp_path))
    first.open("")
    first.look(NOW)
    again = JobMap(str(tmp_path))
    again.open(first.memo())
    assert again.look(NOW) == []


def test_what_is_no_job_is_passed_over(tmp_path: Path) -> None:
    (tmp_path / "0").write_bytes(b"\n47 11\n; rm -rf\n\xff\xfe\n-x\n")
    (tmp_path / "1").mkdir()
    os.mkfifo(tmp_path / "2")
    (tmp_path / "4").symlink_to("/nowhere")
    probe = JobMap(str(tmp_path))
    probe.open("{torn")
    assert probe.look(NOW) == []


def test_a_folder_that_is_not_set_or_not_there_is_named(tmp_path: Path) -> None:
    with pytest.raises(Absent, match="job_map is not set"):
        JobMap("").open("")
    probe = JobMap(str(tmp_path / "later"))
    probe.open("")
    with pytest.raises(Absent, match="no folder"):
        probe.look(NOW)
