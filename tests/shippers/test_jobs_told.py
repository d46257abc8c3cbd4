"""Which lines of the watched folder are shipped, and as what."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from schemas import signals
from shippers.jobs.environment import seat_of, tasks_are_ranks
from shippers.jobs.told import read

NOW_NS = 1_772_600_767 * 10**9
STAMP = "2026-03-04T05:00:00.5Z"
TASK = "rootrank: job.task job=7 scheduler=slurm attempt=0 step=0 task=3 local_task=1 tasks=4 nodes=2 pid=90 user=al"


def _body(line: str) -> str | None:
    said = read(line, NOW_NS, "1")
    return said.body if said else None


def test_a_line_is_written_anew_with_known_words_in_a_fixed_order() -> None:
    line = f"{STAMP} rootrank: job.start user=alice job=7 uid=1001 secret=hunter2 attempt=1 nodelist=gpu[1-2]"
    said = read(line, NOW_NS)
    assert said is not None
    assert (said.body, said.job, said.uid) == (f"{STAMP} rootrank: job.start job=7 attempt=1 user=alice", "7", 1001)


@pytest.mark.parametrize(
    "line",
    [
        "", "hello", "rootrank: job.start", "rootrank: job.start job=", "rootrank: job.start job=$(reboot)",
        "rootrank: span kind=drain node=gpu17", "rootrank: job.start job=7\x1b[2J", "2026-03-04T05:00:00Z",
        "rootrank: job.start job=" + "7" * 5_000,
    ],
)  # fmt: skip
def test_what_is_none_of_these_lines_stays_on_the_node(line: str) -> None:
    assert read(line, NOW_NS) is None


@pytest.mark.parametrize("value", ["a'b", 'a"b', "a;b", "ä", "a\tb", "a" * 400])
def test_a_value_of_another_shape_is_left_out(value: str) -> None:
    assert _body(f"rootrank: job.start job=7 user={value}") == "rootrank: job.start job=7"


@pytest.mark.parametrize("stamp", ["2099-01-01T00:00:00Z", "1970-01-01T00:00:00Z", "2026-02-31T00:00:00Z", "0"])
def test_a_stamp_that_cannot_be_true_is_left_out(stamp: str) -> None:
    assert _body(f"{stamp} rootrank: job.end job=7") == "rootrank: job.end job=7"


def test_a_task_is_a_rank_where_there_are_more_tasks_than_nodes() -> None:
    assert _body(TASK) == (
        "rootrank: job.rank job=7 attempt=0 rank=3 local_rank=1 world=4 pid=90 scheduler=slurm user=al"
    )


def test_the_only_task_of_a_node_with_several_gpus_may_be_a_launcher_and_is_no_rank() -> None:
    line = TASK.replace("tasks=4", "tasks=2") + " gpus=0-3"
    assert _body(line) == "rootrank: job.rank job=7 attempt=0 pid=90 visible=0,1,2,3 scheduler=slurm user=al"
    assert not tasks_are_ranks(2, 2, "0-3")
    assert tasks_are_ranks(2, 2, "5")


def test_the_components_of_a_heterogeneous_job_are_one_job() -> None:
    said = read(TASK + " het=6", NOW_NS)
    assert said is not None
    assert said.job == "6"


def test_the_number_of_a_process_in_a_container_is_no_number_of_the_node() -> None:
    line = "rootrank: job.rank job=7 rank=0 world=2 pid=1 pid_space={space}"
    assert _body(line.format(space="1")) == "rootrank: job.rank job=7 rank=0 world=2 pid=1"
    assert _body(line.format(space="2")) == "rootrank: job.rank job=7 rank=0 world=2"


@pytest.mark.parametrize(
    ("environment", "job", "attempt"),
    [
        ({"SLURM_JOB_ID": "7", "SLURM_RESTART_COUNT": "2", "TORCHELASTIC_RUN_ID": "x"}, "7", 2),
        ({"SLURM_JOB_ID": "8", "SLURM_HET_JOB_ID": "7"}, "7", 0),
        ({"ROOTRANK_JOB_ID": "0f-1", "ROOTRANK_ATTEMPT": "3", "TORCHELASTIC_RUN_ID": "x"}, "0f-1", 3),
        ({"TORCHELASTIC_RUN_ID": "run-9"}, "run-9", 0),
        ({"PMIX_NAMESPACE": "prterun-gpu1-77@1"}, "prterun-gpu1-77@1", 0),
    ],
)
def test_the_job_of_a_process_is_the_schedulers_first(environment: dict[str, str], job: str, attempt: int) -> None:
    seat = seat_of(environment)
    assert seat is not None
    assert (seat.job, seat.attempt) == (job, attempt)


@pytest.mark.parametrize("environment", [{}, {"TORCHELASTIC_RUN_ID": "none"}, {"MASTER_ADDR": "a", "MASTER_PORT": "1"}])
def test_a_process_that_names_no_job_has_none(environment: dict[str, str]) -> None:
    assert seat_of(environment) is None


def test_the_rank_of_torchrun_counts_before_the_task_of_slurm() -> None:
    slurm = {"SLURM_JOB_ID": "7", "SLURM_PROCID": "1", "SLURM_STEP_ID": "0", "SLURM_NTASKS": "4", "SLURM_NNODES": "2"}
    with_torch = {**slurm, "RANK": "9", "LOCAL_RANK": "1", "WORLD_SIZE": "16"}
    task, rank = seat_of(slurm), seat_of(with_torch)
    assert task is not None
    assert rank is not None
    assert (task.rank, task.world) == (1, 4)
    assert (rank.rank, rank.local_rank, rank.world) == (9, 1, 16)


@given(st.text(max_size=300))
def test_any_text_gives_a_line_that_the_signals_read_or_none(text: str) -> None:
    said = read(f"rootrank: job.rank job=7 {text}", NOW_NS)
    assert said is not None
    match = signals.load().match(said.body)
    assert match is not None
    assert match.signal == "agent.job_rank"
