"""What the run was doing, what it had saved, what was lost."""

import pytest

from pipeline.core.episodes import of_events
from pipeline.core.placement import Facts
from pipeline.core.run_state import owner_of, phase_of, saved_of
from pipeline.rules import load_rules
from schemas.records import Event
from tests.strategies import SECOND, T0, event, lost_gpu, waited

ROOT = lost_gpu("beta")
COALESCING = load_rules().coalescing


def _mark(name: str, at_s: int, **attributes: str) -> Event:
    made = event(name, source="job", offset=10_000 + at_s, at_ns=T0 + at_s * SECOND, role="context",
                 attributes=attributes)  # fmt: skip
    return type(made)(**{**{f: getattr(made, f) for f in made.__struct_fields__}, "label": "context/progress"})


def _wait(op: str, numel: int) -> Event:
    made = waited(0, "alpha")
    return type(made)(**{**{f: getattr(made, f) for f in made.__struct_fields__},
                         "attributes": {**made.attributes, "op": op, "numel_in": str(numel)}})  # fmt: skip


def _phase(*marks: Event, class_: str = "hardware/gpu_xid_79", waits: tuple[Event, ...] = ()) -> str:
    return phase_of(class_, of_events([*marks, ROOT], COALESCING), ROOT, waits)


STEP = _mark("train.step", -60)


@pytest.mark.parametrize(
    ("marks", "phase"),
    [
        ([STEP, _mark("checkpoint.started", -5)], "checkpoint_save"),
        ([_mark("checkpoint.started", -50), _mark("checkpoint.saved", -20)], "unknown"),
        ([_mark("checkpoint.started", -50), _mark("train.step", -10)], "unknown"),
        ([STEP, _mark("checkpoint.started", 5)], "unknown"),
        ([STEP, _mark("train.phase", -9, phase="evaluation", state="running")], "evaluation"),
        ([STEP, _mark("train.phase", -9, phase="validation", state="finished")], "unknown"),
        ([STEP, _mark("train.end", -9)], "shutdown"),
        ([_mark("data.preprocess", -9, what="Map")], "data_loading"),
        ([_mark("nccl.init", -9)], "init"),
        ([_mark("nccl.init", -90), STEP], "unknown"),
        ([], "unknown"),
    ],
)
def test_the_phase_is_the_activity_that_had_begun_and_not_ended(marks: list[Event], phase: str) -> None:
    assert _phase(*marks) == phase


@pytest.mark.parametrize(
    ("op", "numel", "phase"),
    [("ALLREDUCE", 25_557_032, "gradient_sync"), ("ALLREDUCE", 1, "unknown"), ("BROADCAST", 25_557_032, "unknown")],
)
def test_a_large_reduction_carries_gradients(op: str, numel: int, phase: str) -> None:
    assert _phase(STEP, waits=(_wait(op, numel),)) == phase


def test_a_class_that_says_it_needs_no_mark() -> None:
    assert _phase(STEP, class_="storage/checkpoint_write") == "checkpoint_save"


def test_the_loss_counts_from_the_last_checkpoint_to_the_end() -> None:
    episodes = of_events([_mark("checkpoint.saved", -7_200), _mark("checkpoint.saved", -3_600), ROOT], COALESCING)
    saved = saved_of(episodes, ROOT, T0 + 1_800 * SECOND, 16, "hard")
    assert saved.last is not None
    assert saved.last.aligned_time_unix_nano == T0 - 3_600 * SECOND
    assert (saved.lost_gpu_hours, saved.resume_from) == (16 * 1.5, "checkpoint")


@pytest.mark.parametrize(("gpus", "ended_ns"), [(None, T0), (16, None)])
def test_without_the_number_of_ranks_or_an_end_no_loss_is_said(gpus: int | None, ended_ns: int | None) -> None:
    episodes = of_events([_mark("checkpoint.saved", -3_600), ROOT], COALESCING)
    assert saved_of(episodes, ROOT, ended_ns, gpus, "hard").lost_gpu_hours is None


def test_without_a_checkpoint_the_loss_counts_from_where_the_job_began_and_is_not_said_where_nobody_saw_that() -> None:
    noise = _mark("python.exception", -60)
    known = of_events([noise, _mark("nccl.init", -3_600), ROOT], COALESCING)
    assert saved_of(known, ROOT, T0, 16, "hard").lost_gpu_hours == 16
    assert saved_of(of_events([noise, ROOT], COALESCING), ROOT, T0, 16, "hard").lost_gpu_hours is None


def test_a_run_that_goes_on_loses_nothing() -> None:
    saved = saved_of(of_events([_mark("checkpoint.saved", -3_600), ROOT], COALESCING), ROOT, T0, 16, "slow")
    assert (saved.lost_gpu_hours, saved.resume_from) == (None, "in_place")


def test_the_owner_is_the_one_name_that_slurm_gives() -> None:
    def facts(**said: str) -> Facts:
        made = Facts()
        for offset, (name, value) in enumerate(said.items()):
            made.learn(event("env.variable", source=f"r{offset}", offset=offset, role="context",
                             attributes={"name": name.partition("__")[0], "value": value}))  # fmt: skip
        return made

    assert owner_of(facts(SLURM_JOB_USER="mara", HOSTNAME="root").variables.values()) == "mara"
    assert owner_of(facts(SLURM_JOB_USER="mara", SLURM_JOB_USER__2="otto").variables.values()) is None
    assert owner_of(facts(HOSTNAME="mara").variables.values()) is None
