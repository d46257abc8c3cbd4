"""What the environment of a process says of its job and of its place in it. No name but these is ever read."""

from collections.abc import Mapping
from typing import Final, NamedTuple

# By these a process tells its job, in this order: the scheduler's id, what the site or the pod states, torchrun's id of
# the run, PMIx's name of the launch. A master's address names no job: the next one uses it again.
_JOBS: Final = ("SLURM_HET_JOB_ID", "SLURM_JOB_ID", "ROOTRANK_JOB_ID", "TORCHELASTIC_RUN_ID", "PMIX_NAMESPACE")
_SCHEDULERS: Final = {
    "SLURM_HET_JOB_ID": "slurm", "SLURM_JOB_ID": "slurm", "ROOTRANK_JOB_ID": "", "TORCHELASTIC_RUN_ID": "torchrun",
    "PMIX_NAMESPACE": "pmix",
}  # fmt: skip
# Rank, local rank and number of ranks, as each launcher calls them. torchrun under Slurm has both: the first is right.
_RANKS: Final = (
    ("RANK", "LOCAL_RANK", "WORLD_SIZE"),
    ("OMPI_COMM_WORLD_RANK", "OMPI_COMM_WORLD_LOCAL_RANK", "OMPI_COMM_WORLD_SIZE"),
    ("MV2_COMM_WORLD_RANK", "MV2_COMM_WORLD_LOCAL_RANK", "MV2_COMM_WORLD_SIZE"),
    ("PMI_RANK", "MPI_LOCALRANKID", "PMI_SIZE"),
    ("JAX_PROCESS_ID", "JAX_LOCAL_PROCESS_ID", "JAX_NUM_PROCESSES"),
)
_SLURM_TASK: Final = (
    "SLURM_PROCID", "SLURM_LOCALID", "SLURM_STEP_NUM_TASKS", "SLURM_NTASKS", "SLURM_STEP_NUM_NODES", "SLURM_NNODES",
    "SLURM_STEP_GPUS", "SLURM_JOB_GPUS",
)  # fmt: skip
NAMES: Final = frozenset(
    (
        *_JOBS, *(name for names in _RANKS for name in names), *_SLURM_TASK, "SLURM_RESTART_COUNT", "SLURM_STEP_ID",
        "SLURM_ARRAY_JOB_ID", "SLURM_ARRAY_TASK_ID", "SLURMD_NODENAME", "SLURM_JOB_USER", "MASTER_ADDR", "MASTER_PORT",
        "CUDA_VISIBLE_DEVICES", "ROOTRANK_ATTEMPT", "ROOTRANK_POD", "ROOTRANK_POD_UID", "ROOTRANK_NODE",
    )
)  # fmt: skip
_LARGEST: Final = 10**9
# Steps of Slurm that are no tasks of a run: batch script, allocation, interactive shell.
_NO_STEP: Final = 4_294_967_200


class Seat(NamedTuple):
    """A job attempt, and a process's place in it as far as it is known.

    No Struct: `rootrank-shipper annotate` loads this file, and nothing else.
    """

    job: str
    attempt: int = 0
    scheduler: str = ""
    rank: int | None = None
    local_rank: int | None = None
    world: int | None = None
    visible: str = ""
    pod: str = ""


def seat_of(environment: Mapping[str, str]) -> Seat | None:
    """What a process says of itself; None where it names no job."""
    name = next((name for name in _JOBS if _is_job(name, environment.get(name, ""))), None)
    if name is None:
        return None
    attempt = "SLURM_RESTART_COUNT" if name.startswith("SLURM") else "ROOTRANK_ATTEMPT"
    rank, local_rank, world = place_of(environment)
    return Seat(
        job=environment[name], attempt=number(environment.get(attempt)) or 0, scheduler=_SCHEDULERS[name], rank=rank,
        local_rank=local_rank, world=world, visible=environment.get("CUDA_VISIBLE_DEVICES", ""),
        pod=environment.get("ROOTRANK_POD", ""),
    )  # fmt: skip


def tasks_are_ranks(tasks: int | None, nodes: int | None, gpus: str) -> bool:
    """Whether a task of a Slurm step is a rank: there are more of them than nodes, or it has no GPUs to share out.

    One task on a node with several GPUs may be torchrun, whose workers are the ranks, or one rank with many GPUs.
    """
    if tasks is None or nodes is None:
        return False
    return tasks > nodes or (tasks == nodes and len(listed(gpus)) <= 1)


def listed(gpus: str) -> list[str]:
    """`0,2-3` as single ones; what is no number stays as it is."""
    found: list[str] = []
    for part in filter(None, gpus.split(",")):
        first, dash, last = part.partition("-")
        low, high = number(first), number(last)
        if dash and low is not None and high is not None and low <= high < low + 64:
            found.extend(str(each) for each in range(low, high + 1))
        else:
            found.append(part)
    return found


def number(text: str | None) -> int | None:
    """A count in decimal digits; None for anything else."""
    if not text or len(text) > 10 or not (text.isascii() and text.isdecimal()):
        return None
    found = int(text)
    return found if found < _LARGEST else None


def is_step_of_tasks(step: str) -> bool:
    """Whether a Slurm step is one that srun started."""
    return step.isascii() and step.isdecimal() and len(step) <= 10 and int(step) < _NO_STEP


def _is_job(name: str, value: str) -> bool:
    # torchrun's default run id is the word none.
    return bool(value) and not (name == "TORCHELASTIC_RUN_ID" and value == "none")


def place_of(environment: Mapping[str, str]) -> tuple[int | None, int | None, int | None]:
    """Rank, local rank and number of ranks that a process says it has."""
    for names in _RANKS:
        rank, local_rank, world = (number(environment.get(name)) for name in names)
        if rank is not None and (world is not None or local_rank is not None):
            return rank, local_rank, world
    task, tasks = number(environment.get("SLURM_PROCID")), _first(environment, "SLURM_STEP_NUM_TASKS", "SLURM_NTASKS")
    nodes = _first(environment, "SLURM_STEP_NUM_NODES", "SLURM_NNODES")
    gpus = environment.get("SLURM_STEP_GPUS") or environment.get("SLURM_JOB_GPUS", "")
    if task is None or not is_step_of_tasks(environment.get("SLURM_STEP_ID", "")):
        return None, None, None
    if not tasks_are_ranks(tasks, nodes, gpus):
        return None, None, None
    return task, number(environment.get("SLURM_LOCALID")), tasks


def _first(environment: Mapping[str, str], *names: str) -> int | None:
    return next((found for name in names if (found := number(environment.get(name))) is not None), None)
