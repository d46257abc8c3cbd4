"""`rootrank-shipper annotate`: what it writes, and that the agent reads it as today's marks."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

from schemas import signals
from shippers.config import Config, JobsSettings
from shippers.jobs.folder import JobsFolder
from tests.shippers.fakes import Passes

SLURM = {"SLURM_JOB_ID": "7", "SLURM_RESTART_COUNT": "1", "RANK": "3", "WORLD_SIZE": "4"}


@pytest.fixture
def told(tmp_path: Path) -> Path:
    for name in ("jobs", "marks"):
        (tmp_path / "told" / name).mkdir(parents=True)
    return tmp_path / "told"


def _annotate(
    told: Path, *arguments: str, environment: dict[str, str] | None = None
) -> subprocess.CompletedProcess[str]:
    kept = {name: value for name, value in os.environ.items() if not name.startswith(("SLURM", "RANK", "ROOTRANK"))}
    given = SLURM if environment is None else environment
    return subprocess.run(
        [sys.executable, "-m", "shippers.entry", "annotate", "--dir", str(told), *arguments],
        capture_output=True, text=True, env={**kept, **given}, timeout=30, check=False,
    )  # fmt: skip


def _shipped(told: Path) -> list[str]:
    bodies = Passes().read(JobsFolder(Config(jobs=JobsSettings(dir=str(told))))).bodies()
    return [body.partition(" ")[2] for body in bodies]


@pytest.mark.parametrize(
    ("arguments", "event", "attributes"),
    [
        (["--step", "12", "--phase", "train"], "train.mark", {"step": "12", "phase": "train"}),
        (["--phase", "load"], "train.mark", {"phase": "checkpoint_load"}),
        (["--checkpoint", "start", "--step", "12"], "checkpoint.started", {"step": "12"}),
        (["--checkpoint", "end", "--step", "12"], "checkpoint.saved", {"step": "12"}),
    ],
)
def test_a_mark_is_shipped_and_read_as_the_same_from_a_program_is(
    told: Path, arguments: list[str], event: str, attributes: dict[str, str]
) -> None:
    done = _annotate(told, *arguments)
    assert (done.returncode, done.stdout, done.stderr) == (0, "", "")
    (body,) = _shipped(told)
    match = signals.load().match(body)
    assert match is not None
    assert (match.event, match.subject.rank) == (event, 3)
    assert match.attributes == {"job": "7", "attempt": "1", "rank": "3", **attributes}


def test_what_the_options_say_counts_before_the_environment(told: Path) -> None:
    _annotate(told, "--step", "1", "--job", "other", "--attempt", "9", "--rank", "0")
    assert _shipped(told) == ["rootrank: job.mark job=other attempt=9 rank=0 step=1"]


def test_marks_of_one_job_are_in_one_file(told: Path) -> None:
    for step in ("1", "2"):
        _annotate(told, "--step", step)
    assert len(list((told / "marks").iterdir())) == 1
    assert len(_shipped(told)) == 2


@pytest.mark.parametrize(
    ("arguments", "environment", "code", "says"),
    [
        ([], SLURM, 2, "--step, --phase or --checkpoint"),
        (["--step", "1"], {}, 2, "--job ID"),
        (["--phase", "a b"], SLURM, 2, "one word"),
        (["--step", "-1"], SLURM, 2, "number from 0"),
    ],
)
def test_what_cannot_be_a_mark_is_said(
    told: Path, arguments: list[str], environment: dict[str, str], code: int, says: str
) -> None:
    done = _annotate(told, *arguments, environment=environment)
    assert done.returncode == code
    assert says in done.stderr
    assert "Traceback" not in done.stderr


def test_a_folder_that_is_not_there_is_named(told: Path) -> None:
    done = _annotate(told / "none", "--step", "1")
    assert done.returncode == 3
    assert f"{told}/none/marks: No such file or directory; make it with `install -d {told}/none " in done.stderr
    assert f"install -d -m 1733 {told}/none/marks`, or say by --dir" in done.stderr


def test_a_pipe_or_a_link_in_its_place_is_no_file_to_write_into(told: Path, tmp_path: Path) -> None:
    path = told / "marks" / f"annotate-{os.geteuid()}-7"
    os.mkfifo(path)
    assert _annotate(told, "--step", "1").returncode == 3
    path.unlink()
    (tmp_path / "target").touch()
    path.symlink_to(tmp_path / "target")
    assert _annotate(told, "--step", "1").returncode == 3
    assert (tmp_path / "target").read_text() == ""


def test_nothing_of_the_agent_is_loaded_for_it(told: Path) -> None:
    code = (
        "import sys; sys.argv = ['x', 'annotate', '--step', '1', '--job', '7', '--dir', sys.argv[1]];"
        "from shippers.entry import main; main();"
        "print([m for m in ('msgspec', 'orjson', 'kafka', 'shippers.config', 'asyncio') if m in sys.modules])"
    )
    done = subprocess.run(
        [sys.executable, "-S", "-c", code, str(told)],
        capture_output=True,
        text=True,
        check=True,
        env={"PYTHONPATH": str(Path.cwd())},
    )
    assert done.stdout == "[]\n"
