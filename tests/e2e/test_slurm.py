"""Real Slurm runs the prolog, the task prolog and the epilog; what they tell reaches ClickHouse."""

import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest

from pipeline.fleet.told import spans_of
from pipeline.store.clickhouse import Store
from pipeline.store.settings import settings_from_url
from tests.e2e.fleet import Fleet
from tests.e2e.slurm_node import SlurmNode
from tests.polling import until

pytestmark = [pytest.mark.kafka, pytest.mark.clickhouse, pytest.mark.slurm, pytest.mark.slow]

ROOT = Path(__file__).parents[2]
TRAIN = f"""
import sys
sys.path.insert(0, {str(ROOT / "deploy" / "python")!r})
import rootrank_marks
rootrank_marks.step(7)
rootrank_marks.checkpoint("end", step=7)
"""


@pytest.fixture
def slurm() -> Iterator[SlurmNode]:
    """A controller and a node."""
    node = SlurmNode(Path(tempfile.mkdtemp(prefix="rr-slurm-")))
    try:
        node.start()
        yield node
    finally:
        node.stop()


def _agent(fleet: Fleet, slurm: SlurmNode, folder: Path) -> subprocess.Popen[bytes]:
    settings = folder / "node.toml"
    settings.write_text(
        f"""
        cluster = "slurm"
        reporter = "{slurm.host}"
        source = []
        [sources]
        jobs = true
        [kafka]
        bootstrap = "{fleet.bootstrap}"
        [spool]
        dir = "{folder}/spool"
        [jobs]
        dir = "{slurm.told}"
        """,
        encoding="utf-8",
    )
    with (folder / "agent.log").open("wb") as log:
        return subprocess.Popen(
            [sys.executable, "-m", "shippers", "run", "--config", str(settings)], stdout=log, stderr=log, cwd=ROOT
        )


def test_a_real_job_appears_with_its_ranks_processes_marks_and_end(
    fleet: Fleet, slurm: SlurmNode, tmp_path: Path
) -> None:
    agent = _agent(fleet, slurm, tmp_path)
    try:
        train = tmp_path / "train.py"
        train.write_text(TRAIN, encoding="utf-8")
        run = (
            f"srun -n 2 sh -c 'echo task $SLURM_PROCID is $$; ROOTRANK_JOBS_DIR={slurm.told} {sys.executable} {train}'"
        )
        job = slurm.submit(run, "-n", "2")
        slurm.wait_done(job)
        pids = {int(line.split()[1]): int(line.split()[3]) for line in slurm.output(job).splitlines()}
        assert set(pids) == {0, 1}, slurm.output(job)

        placed = f"""
            SELECT rank, local_rank, world_size, pid, owner, scheduler, ended_at > started_at
            FROM placement WHERE cluster = 'slurm' AND job_id = '{job}' AND ended_at IS NOT NULL
            ORDER BY rank NULLS FIRST
        """
        owner = slurm.job(job)["UserId"].partition("(")[0]
        expected: list[tuple[object, ...]] = [(None, None, None, None, owner, "slurm", 1)]
        expected += [(rank, rank, 2, pids[rank], owner, "slurm", 1) for rank in (0, 1)]
        assert until(lambda: rows if len(rows := fleet.sql(placed)) == 3 else None, what="placement") == expected

        said = f"""
            SELECT DISTINCT e.name, e.subject_rank FROM events AS e INNER JOIN event_jobs AS j USING (event_id)
            WHERE j.job_id = '{job}' AND e.name IN ('job.started', 'job.ended', 'train.mark', 'checkpoint.saved')
            ORDER BY e.name, e.subject_rank
        """
        names = [("checkpoint.saved", 0), ("checkpoint.saved", 1), ("job.ended", None), ("job.started", None)]
        names += [("train.mark", 0), ("train.mark", 1)]
        assert until(lambda: rows if len(rows := fleet.sql(said)) == 6 else None, what="events") == names

        # Busy for the fleet's statistics: the two ranks, and not once more for the job as a whole.
        store = Store(settings_from_url(fleet.clickhouse_url))
        asked = {"run": "live", "run_id": "live", "cluster": "slurm", "from_ns": 0, "to_ns": 2**62}
        busy = [(span.unit, span.job_id, span.facts) for span in spans_of(store, asked) if span.kind == "busy"]
        store.close()
        assert busy == [(slurm.host, job, {"gpus": "2"})]
    finally:
        agent.terminate()
        agent.wait(20)


def test_no_folder_for_the_scripts_fails_no_job_and_drains_no_node(slurm: SlurmNode) -> None:
    slurm.set_told(Path("/proc/no-such-folder"))
    done = slurm.wait_done(slurm.submit("srun -n 1 echo trained", "-n", "1"))
    assert (done["JobState"], done["ExitCode"]) == ("COMPLETED", "0:0")
    assert slurm.state() == "idle"
    assert list(slurm.told.glob("*/*")) == []
