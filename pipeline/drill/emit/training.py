"""What training scripts print: versions, steps, checkpoints, evaluation."""

from dataclasses import dataclass
from random import Random
from typing import Final, Literal

from pipeline.drill.fleet import Rank
from pipeline.drill.prefixes import iso
from pipeline.drill.story import Story

Style = Literal["megatron", "article", "logging", "plain"]
STYLES: Final[tuple[Style, ...]] = ("megatron", "article", "logging", "plain")


@dataclass
class Course:
    """How a job's steps go: `step` is the last one done at `at` (true seconds). `everyone`: all ranks print them."""

    style: Style
    step_s: float
    every: int
    step: int
    at: float
    loss: float
    everyone: bool
    # (true seconds, step) of finished saves; the last is where training would resume.
    saves: list[tuple[float, int]]


def new_course(r: Random, at: float, step: int = 0, *, few_ranks: bool = False) -> Course:
    """Steps of seconds, reported every few; where ranks are few, sometimes by all of them."""
    step_s = r.choice((0.8, 1.9, 4.2, 7.5, 14.0, 22.0)) * r.uniform(0.8, 1.2)
    style, everyone = r.choice(STYLES), few_ranks and r.random() < 0.4
    every = max(1, round(r.choice((20, 40, 60)) / step_s))
    return Course(style, step_s, every, step, at, r.uniform(2, 9), everyone and style != "megatron", [])


def until(story: Story, course: Course, end: float, *, save_every_s: float | None = None) -> None:
    """Train to `end`: step lines of the printing rank, and saves."""
    r = story.r
    next_save = course.at + save_every_s * r.uniform(0.6, 1.0) if save_every_s else float("inf")
    skip = max(1, int((end - course.at) / (course.step_s * course.every) / 60))
    number = 0
    while course.at + course.step_s * course.every < end:
        course.at += course.step_s * course.every * r.uniform(0.98, 1.03)
        course.step += course.every
        course.loss = max(course.loss * r.uniform(0.985, 1.006), 1.4)
        number += 1
        if number % skip == 0:
            step_line(story, course, course.at, course.step_s)
        if course.at > next_save and course.at + 40 < end:
            seconds = r.uniform(3, 25)
            save(story, course, course.at, course.at + seconds)
            course.at += seconds
            next_save = course.at + (save_every_s or 0)


def printing_rank(story: Story, course: Course) -> Rank:
    """Who prints steps: Megatron's last rank, else rank 0."""
    return story.fleet.ranks[-1 if course.style == "megatron" else 0]


def step_line(story: Story, course: Course, t: float, seconds: float, tag: str | None = None) -> None:
    """One report of progress."""
    for rank in story.fleet.ranks if course.everyone else (printing_rank(story, course),):
        at = t + story.r.uniform(0, 0.05)
        story.rank(rank, at, step_text(story, course, rank, at, seconds), tag)


def step_text(story: Story, course: Course, rank: Rank, t: float, seconds: float) -> str:
    """In the script's own words."""
    clock, ns, world = rank.node.clock, story.ns(t), len(story.fleet.ranks)
    step, loss = course.step, course.loss
    if course.style == "megatron":
        return (
            f" [{iso(clock, ns, digits=6)}] iteration {step:8d}/  500000 | consumed samples: {step * world * 2:12d} | elapsed time "
            f"per iteration (ms): {seconds * 1000:.1f} | learning rate: 1.500000E-04 | global batch size: {world * 2:5d} | lm loss: "
            f"{loss:.6E} | loss scale: 1.0 | grad norm: 0.913 | number of skipped iterations:   0 | number of nan iterations:   0 |"
        )
    if course.style == "article":
        return f"[{iso(clock, ns)}] epoch {step // 1000} step {step} loss {loss:.4f} lr 1.5e-04 ({seconds:.2f} s/step)"
    if course.style == "logging":
        return f"{iso(clock, ns, digits=3, comma=',')} - trainer - INFO - step={step} loss={loss:.4f} step_time={seconds:.2f}s tokens_per_s={4096 * world / seconds:.0f}"
    return f"[{iso(clock, ns)}] step {step} | loss {loss:.4f} | {seconds:.3f} s/it"


def save_begin(story: Story, course: Course, t: float, tag: str | None = None) -> None:
    """A save begins."""
    rank = story.fleet.ranks[0]
    clock, ns, root = rank.node.clock, story.ns(t), story.fleet.job.checkpoints
    text = {
        "megatron": f"[{iso(clock, ns, digits=6)}] saving checkpoint at iteration {course.step:7d} to {root} in torch_dist format",
        "article": f"[{iso(clock, ns)}] Saving checkpoint to {root}/model_epoch{course.step // 1000}_step{course.step}.pt",
        "logging": f"{iso(clock, ns, digits=3, comma=',')} - trainer - INFO - saving checkpoint to {root}/step-{course.step}",
        "plain": f"[{iso(clock, ns)}] Saving model checkpoint to {root}/checkpoint-{course.step}",
    }[course.style]
    story.rank(rank, t, text, tag)


def save_end(story: Story, course: Course, t: float) -> None:
    """It was written."""
    rank = story.fleet.ranks[0]
    clock, ns, root = rank.node.clock, story.ns(t), story.fleet.job.checkpoints
    text = {
        "megatron": f"  [{iso(clock, ns, digits=6)}] successfully saved checkpoint from iteration {course.step:7d} to {root} [ t 1/1, p 1/1 ]",
        "article": f"[{iso(clock, ns)}] Checkpoint saved to {root}/model_epoch{course.step // 1000}_step{course.step}.pt",
        "logging": f"{iso(clock, ns, digits=3, comma=',')} - trainer - INFO - checkpoint saved to {root}/step-{course.step}",
        "plain": f"[{iso(clock, ns)}] Checkpoint saved to {root}/checkpoint-{course.step}",
    }[course.style]
    story.rank(rank, t, text)
    course.saves.append((t, course.step))


def save(story: Story, course: Course, begin: float, end: float) -> None:
    """A whole save."""
    save_begin(story, course, begin)
    save_end(story, course, end)


def hello(story: Story, t: float) -> None:
    """What scripts print of themselves at the start."""
    rank = story.fleet.ranks[0]
    v = story.fleet.versions
    clock, ns = rank.node.clock, story.ns(t)
    stamp = iso(clock, ns)
    story.rank(
        rank,
        t,
        [
            f"[{stamp}] torch {'.'.join(map(str, v.torch))}.0+cu121, NCCL {v.nccl_text}, {len(story.fleet.ranks)} GPUs ({story.fleet.gpu_name})",
            f"[{stamp}] building model {story.fleet.job.name}",
            f"[{stamp}] dataset: 41893 shards, seed 1234",
        ],
    )


def rank_lines(story: Story, t: float) -> None:
    """Some scripts let each rank say where it runs."""
    for rank in story.fleet.ranks:
        story.rank(
            rank,
            t + story.r.uniform(0, 1),
            f"[rank {rank.rank}/{len(story.fleet.ranks)}] local_rank {rank.local} on "
            f"{rank.node.host} pid {rank.pid} device cuda:{rank.local} ready",
            "place",
        )
