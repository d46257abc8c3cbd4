"""The folder that schedulers and programs write into, on a real file system."""

import os
import time
from pathlib import Path

import pytest

from shippers import builtin, claim
from shippers.config import Config, JobsSettings, SpoolSettings
from shippers.jobs.folder import JobsFolder
from shippers.pieces import Limit, Moment
from tests.shippers.fakes import Passes, append

START = "rootrank: job.start job=7 attempt=0 uid={uid}\n"
MARK = "rootrank: job.mark job=7 attempt=0 rank=0 step={step} phase=train\n"


@pytest.fixture
def config(tmp_path: Path) -> Config:
    for name in ("told/jobs", "told/marks", "spool"):
        (tmp_path / name).mkdir(parents=True)
    return Config(jobs=JobsSettings(dir=str(tmp_path / "told")), spool=SpoolSettings(dir=str(tmp_path / "spool")))


def _marks(config: Config) -> Path:
    return Path(config.jobs.dir) / "marks" / "m"


def _steps(bodies: list[str]) -> list[str]:
    return [word.removeprefix("step=") for body in bodies for word in body.split() if word.startswith("step=")]


def test_it_is_read_by_default_and_off_with_what_to_do_where_the_folder_is_away(tmp_path: Path) -> None:
    (entry,) = (each for each in builtin.BUILT_IN if each.name == "jobs")
    config = Config(jobs=JobsSettings(dir=str(tmp_path / "none")))
    assert builtin.is_on(entry, config)
    source = entry.make(config, None)
    Passes().read(source)
    progress = source.progress()
    assert progress.state == "off"
    assert f"install -d -m 1733 {tmp_path}/none/marks" in (progress.reason or "")


def test_one_that_is_there_and_cannot_be_read_is_not_told_to_be_made(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    source = JobsFolder(Config(jobs=JobsSettings(dir=str(tmp_path / "file"))))
    Passes().read(source)
    progress = source.progress()
    assert progress.state == "refused"
    assert (progress.reason or "").endswith(": Not a directory")


def test_whole_lines_are_shipped_once_and_a_torn_one_when_it_is_whole(config: Config) -> None:
    source, passes = JobsFolder(config), Passes()
    append(_marks(config), MARK.format(step=1) + MARK.format(step=2)[:20])
    assert _steps(passes.read(source).bodies()) == ["1"]
    assert passes.read(source).bodies() == []
    append(_marks(config), MARK.format(step=2)[20:])
    assert _steps(passes.read(source).bodies()) == ["2"]
    assert source.progress().at_end


def test_after_a_restart_reading_goes_on_where_it_was_saved(config: Config) -> None:
    passes = Passes()
    append(_marks(config), "".join(MARK.format(step=step) for step in range(5)))
    first = JobsFolder(config)
    read = passes.read(first, limit=Limit(lines=2, size=100_000))
    assert _steps(read.bodies()) == ["0", "1", "2", "3", "4"]
    append(_marks(config), MARK.format(step=5))
    again = passes.read(JobsFolder(config, read.position))
    assert _steps(again.bodies()) == ["5"]
    assert again.lines[0].generation == read.lines[0].generation
    assert again.lines[0].offset > read.lines[-1].offset


def test_a_limit_of_lines_is_kept_and_the_position_is_behind_the_last_one(config: Config) -> None:
    append(_marks(config), "".join(MARK.format(step=step) for step in range(5)))
    source, passes = JobsFolder(config), Passes()
    moment_lines = []
    source.look(_moment(passes))
    piece = source.read(Limit(lines=2, size=100_000), _moment(passes), passes.numbers)
    assert piece is not None
    moment_lines += [line.body for line in piece.lines]
    assert _steps(moment_lines) == ["0", "1"]
    rest = passes.read(JobsFolder(config, piece.position))
    assert _steps(rest.bodies()) == ["2", "3", "4"]


def test_a_user_speaks_of_no_other_users_job_and_ends_none(config: Config) -> None:
    jobs = Path(config.jobs.dir) / "jobs" / "slurm-7.jobs"
    append(jobs, START.format(uid=54321))
    append(_marks(config), MARK.format(step=1) + "rootrank: job.end job=7 attempt=0\n" + START.format(uid=1))
    if os.geteuid() == 0:
        os.chown(_marks(config), 12345, 12345)
    source, passes = JobsFolder(config), Passes()
    assert passes.read(source).bodies() == ["rootrank: job.start job=7 attempt=0"]
    append(jobs, START.format(uid=_marks(config).stat().st_uid).replace("job=7", "job=8"))
    append(_marks(config), MARK.format(step=2).replace("job=7", "job=8"))
    assert _steps(passes.read(source).bodies()) == ["2"]


def test_whose_a_job_is_stays_known_after_a_restart(config: Config) -> None:
    append(Path(config.jobs.dir) / "jobs" / "slurm-7.jobs", START.format(uid=54321))
    passes = Passes()
    read = passes.read(JobsFolder(config))
    append(_marks(config), MARK.format(step=1))
    if os.geteuid() == 0:
        os.chown(_marks(config), 12345, 12345)
    assert passes.read(JobsFolder(config, read.position)).bodies() == []


def test_links_pipes_and_folders_are_not_read_and_hold_up_nothing(config: Config, tmp_path: Path) -> None:
    marks = _marks(config).parent
    append(tmp_path / "secret", MARK.format(step=66))
    (marks / "link").symlink_to(tmp_path / "secret")
    (marks / "hard").hardlink_to(tmp_path / "secret")
    os.mkfifo(marks / "pipe")
    (marks / "folder").mkdir()
    append(_marks(config), MARK.format(step=1))
    assert _steps(Passes().read(JobsFolder(config)).bodies()) == ["1"]


def test_of_a_flood_only_the_end_is_read_and_a_gap_says_how_much_is_missing(config: Config) -> None:
    line = MARK.format(step=1).encode()
    append(_marks(config), line * (3 * 1024 * 1024 // len(line)) + MARK.format(step=2).encode())
    read = Passes().read(JobsFolder(config))
    (gap,) = read.gaps
    assert gap.lost_bytes == _marks(config).stat().st_size - 64 * 1024
    assert _steps(read.bodies())[-1] == "2"
    assert sum(len(body) + 1 for body in read.bodies()) <= 64 * 1024


def test_a_line_without_end_is_passed_over_and_what_follows_is_read(config: Config) -> None:
    append(_marks(config), "x" * 200_000 + "\n" + MARK.format(step=1))
    assert _steps(Passes().read(JobsFolder(config)).bodies()) == ["1"]


def test_a_file_that_was_truncated_is_read_from_its_beginning_under_another_name(config: Config) -> None:
    source, passes = JobsFolder(config), Passes()
    append(_marks(config), MARK.format(step=1) + MARK.format(step=2))
    before = passes.read(source).lines[0].generation
    _marks(config).write_text(MARK.format(step=3), encoding="utf-8")
    (after,) = passes.read(source).lines
    assert "step=3" in after.body
    assert after.generation != before


def test_old_files_are_deleted_by_the_agent_that_has_the_spool_and_only_after_they_were_read(config: Config) -> None:
    append(_marks(config), MARK.format(step=1))
    hour_ago = time.time() - 3600
    os.utime(_marks(config), (hour_ago, hour_ago))
    source, passes = JobsFolder(config), Passes()
    assert _steps(passes.read(source).bodies()) == ["1"]
    passes.read(source)
    assert _marks(config).exists()  # `print` and `check` have no spool
    lock = claim.lock(Path(config.spool.dir))
    try:
        fresh = JobsFolder(config)
        assert _steps(passes.read(fresh).bodies()) == ["1"]
        assert _marks(config).exists()  # what was read now may not be on disk yet
        read = passes.read(fresh)
    finally:
        os.close(lock)
    assert not _marks(config).exists()
    assert read.position is None or read.position.generations == ()


def _moment(passes: Passes) -> Moment:
    passes.mono_ns += 2 * 10**9
    return Moment(observed_ns=passes.mono_ns, mono_ns=passes.mono_ns, wall_ns=time.time_ns())


def test_a_folder_full_of_marks_keeps_no_job_of_the_scheduler_out(config: Config) -> None:
    source, passes = JobsFolder(config), Passes()
    for number in range(1_100):
        append(_marks(config).with_name(f"m{number}"), "no mark\n")
    passes.read(source)
    append(Path(config.jobs.dir) / "jobs" / "7", START.format(uid=1000))
    assert passes.read(source).bodies() == ["rootrank: job.start job=7 attempt=0"]
    assert "of one user" in (source.progress().reason or "")
