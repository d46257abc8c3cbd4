"""What the stories share: who a process is, and what is left to say when the proofs are gone."""

from collections.abc import Sequence

from pipeline.drill.collapse import Exit, Fall, How, some_how
from pipeline.drill.emit import torch
from pipeline.drill.emit.nvrm import Process
from pipeline.drill.emit.training import Course
from pipeline.drill.fleet import Node, Rank
from pipeline.drill.story import Story
from pipeline.drill.truth import Claim, Who

# What may be said of a rank that is known to have failed and of which no log says why.
UNCLEAR = [
    "unknown/collective_timeout",
    "unknown/silent_rank",
    "infra/process_killed",
    "hardware/gpu_failure",
    "software/python_exception",
    "network/tcp_refused_unexplained",
    "infra/node_failure",
    "network/ib_retry_exceeded",
    "network/roce_retry_exceeded",
    "external/supervisor_sigterm",
    "software/watchdog_stuck",
]


def process(rank: Rank) -> Process:
    """As the kernel sees it."""
    return rank.host_pid, rank.comm


def work_of(story: Story, course: Course) -> torch.Work:
    """The collective that stalls."""
    return torch.some_work(story.r, len(story.fleet.ranks), max(course.step, 1) * story.r.choice((3, 7, 19)) + 5)


def unclear(culprits: Sequence[Who]) -> list[Claim]:
    """What is left without the proof: whoever is named must be the right one."""
    return [
        Claim(class_="unknown/silent_rank", also=UNCLEAR, culprits=list(culprits), needs=["exit"], silent_ok=True),
        Claim(class_="unknown/silent_rank", also=UNCLEAR, culprits=list(culprits), needs=["peers"], silent_ok=True),
        Claim(class_="unknown/collective_timeout", also=UNCLEAR, culprits=list(culprits), quiet=True, silent_ok=True),
    ]


def fall(
    story: Story,
    course: Course,
    at: float,
    *,
    exits: Sequence[Exit] = (),
    hung: Sequence[Rank] = (),
    lost: Sequence[Node] = (),
    how: How | None = None,
) -> float:
    """The job ends: the ranks wait from a moment after `at`."""
    chosen = how or (some_how(story) if exits else "watchdog")
    return Fall(
        story, at + story.r.uniform(0, 1) * course.step_s, work_of(story, course), exits, hung, lost, chosen
    ).run()


def cuda_death(story: Story, rank: Rank, t: float, text: str, tag: str = "cuda") -> Exit:
    """A rank meets a CUDA error and ends: by an exception, or aborted by its watchdog."""
    if story.r.random() < 0.5:
        done = torch.cuda_error(story, rank, t, text, tag)
        code = 1
        if story.r.random() < 0.6:
            done = torch.cuda_abort(story, rank, done + story.r.uniform(0.01, 0.5), text, tag)
            code = -6
        return Exit(rank, done + story.r.uniform(0.3, 2), code)
    done = torch.cuda_abort(story, rank, t, text, tag)
    return Exit(rank, done + story.r.uniform(0.1, 1), -6)
