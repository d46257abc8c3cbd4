"""What Slurm prints into a job's output and its own logs. Source: SchedMD/slurm 20.02 to 24.05."""

import signal
from collections.abc import Sequence

from pipeline.drill.fleet import Node
from pipeline.drill.names import hostlist
from pipeline.drill.prefixes import iso
from pipeline.drill.story import Story

_DEATHS = {
    9: "Killed",
    15: "Terminated",
    6: "Aborted (core dumped)",
    11: "Segmentation fault (core dumped)",
    7: "Bus error (core dumped)",
}


def _step(story: Story) -> str:
    return f"{story.fleet.job.job_id}.0"


def environment(story: Story, t: float) -> None:
    """Scripts often print what Slurm gave them."""
    fleet = story.fleet
    names = [node.name for node in fleet.nodes]
    count = len(fleet.nodes[0].gpus) if fleet.job.launcher == "srun" else 1
    story.batch(
        t,
        [
            f"SLURM_JOB_ID={fleet.job.job_id}",
            f"SLURM_JOB_NAME={fleet.job.name}",
            f"SLURM_JOB_NODELIST={hostlist(names)}",
            f"SLURM_NNODES={len(names)}",
            f"SLURM_NTASKS={len(names) * count}",
            f"SLURM_TASKS_PER_NODE={count}(x{len(names)})",
            f"MASTER_ADDR={fleet.nodes[0].short}",
            "MASTER_PORT=29500",
        ],
        "place",
    )


def task_failed(story: Story, t: float, node: Node, tasks: Sequence[int], code: int, tag: str | None = None) -> float:
    """Srun names the tasks that failed."""
    said = f"Exited with exit code {code}" if code > 0 else _DEATHS.get(-code, signal.Signals(-code).name)
    which = f"task {tasks[0]}" if len(tasks) == 1 else f"tasks {_ranges(tasks)}"
    return story.batch(t, f"srun: error: {node.short}: {which}: {said}", tag)


def _ranges(numbers: Sequence[int]) -> str:
    parts: list[list[int]] = []
    for number in sorted(numbers):
        if parts and number == parts[-1][-1] + 1:
            parts[-1][1:] = [number]
        else:
            parts.append([number])
    return ",".join("-".join(map(str, part)) for part in parts)


def step_ended(story: Story, t: float, because: str = "", tag: str | None = None) -> float:
    """The step is taken down: srun's words, then slurmstepd's on the first nodes."""
    fleet = story.fleet
    t = story.batch(t, "srun: Job step aborted: Waiting up to 32 seconds for job step to finish.")
    node = fleet.nodes[0]
    reason = f" DUE TO {because}" if because else ""
    at = iso(node.clock, story.ns(t), sep="T")
    return story.batch(
        t + 0.02, f"slurmstepd: error: *** STEP {_step(story)} ON {node.short} CANCELLED AT {at}{reason} ***", tag
    )


def job_ended(story: Story, t: float, because: str, tag: str | None = None) -> float:
    """The batch job is taken down."""
    node = story.fleet.nodes[0]
    reason = f" DUE TO {because}" if because else ""
    at = iso(node.clock, story.ns(t), sep="T")
    return story.batch(
        t, f"slurmstepd: error: *** JOB {story.fleet.job.job_id} ON {node.short} CANCELLED AT {at}{reason} ***", tag
    )


def terminating(story: Story, t: float) -> float:
    """Srun stops the other tasks."""
    return story.batch(t, f"srun: Terminating StepId={_step(story)}")


def oom(story: Story, t: float, count: int, tag: str | None = None) -> float:
    """Printed when the step ends, however long ago the kill was."""
    version = story.fleet.versions.slurm
    if version >= "23.02":
        text = f"Detected {count} oom_kill event{'s' if count > 1 else ''} in StepId={_step(story)}. Some of the step tasks have been OOM Killed."
    else:
        text = (
            f"Detected {count} oom-kill event(s) in StepId={_step(story)}. Some of your processes may have been killed by the "
            "cgroup out-of-memory handler."
        )
    return story.batch(t, f"slurmstepd: error: {text}", tag)


def node_failure(story: Story, t: float, node: Node, tag: str | None = None) -> float:
    """Slurmctld gave a node up: what the job's output and slurmctld's log say."""
    t = step_ended(story, t, "NODE FAILURE, SEE SLURMCTLD LOG FOR DETAILS")
    return story.batch(t, f"srun: error: Node failure on {node.short}", tag)


def controller(story: Story, t: float, text: str, tag: str | None = None) -> None:
    """A line of slurmctld's log, on a machine of its own."""
    story.service(None, "slurmctld.log", t, f"[{iso(story.fleet.office, story.ns(t), digits=3, sep='T')}] {text}", tag)
