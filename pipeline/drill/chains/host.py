"""C24, C29: a node loses power, or rank 0 goes and takes the store with it."""

from pipeline.drill.chains.common import cuda_death, fall, unclear, work_of
from pipeline.drill.chains.memory import gone_after, lose_node, node_lost
from pipeline.drill.collapse import Exit, Fall
from pipeline.drill.emit import host, nvrm, telemetry, torch
from pipeline.drill.fleet import Wants
from pipeline.drill.opening import start, train
from pipeline.drill.registry import Told, chain
from pipeline.drill.story import Story
from pipeline.drill.truth import Claim


@chain("C24", "power_lost", Wants(min_nodes=2))
def power_lost(story: Story) -> Told:
    """A power supply loses its input, redundancy is gone, the node falls silent."""
    return _power(story, evidence=True, comes_back=story.r.random() < 0.5)


@chain("C24", "silent_node", Wants(min_nodes=2, schedulers=("slurm", "kubernetes")))
def silent_node(story: Story) -> Told:
    """A node falls silent and nothing says why."""
    return _power(story, evidence=False, comes_back=story.r.random() < 0.4)


def _power(story: Story, *, evidence: bool, comes_back: bool) -> Told:
    course = start(story)
    t = train(story, course)
    rank, r = story.pick(not_first_node=True), story.r
    node = rank.node
    if evidence:
        number = r.randrange(16, 200)
        telemetry.bmc(story, node, t, number, "Power Supply #0x51", "Power Supply AC lost", "sel")
        telemetry.bmc(
            story, node, t, number + 1, "Power Unit #0x01", r.choice(("Redundancy Lost", "Power off/down")), "sel"
        )
    story.dead[node.name] = t + 0.5
    lose_node(story, course, t, node)
    if comes_back:
        del story.dead[node.name]
        back = t + r.uniform(240, 900)
        story.reboots[node.name] = back
        story.kernel(node, back + 0.001, host.booted(story.fleet.versions), "boot")
    who = story.node_as_culprit(node)
    claims = [Claim(class_="hardware/psu", also=["hardware/power"], culprits=[who], needs=["sel"])] if evidence else []
    return Told([*claims, *node_lost(who)], node)


@chain("C29", "rank0_gpu", Wants(torch=((2, 4), (9, 0)), launchers=("torchrun",), min_nodes=2))
def rank0_gpu(story: Story) -> Told:
    """Rank 0's GPU fails; the store goes with its agent, and every rank complains about that."""
    course = start(story)
    t = train(story, course)
    rank, r, v = story.fleet.ranks[0], story.r, story.fleet.versions
    t = story.kernel(rank.node, t, [*nvrm.identity(rank.gpu), *nvrm.fallen(v, rank.gpu, None)], "xid")
    dead = cuda_death(story, rank, t + r.uniform(0.05, 10), "unspecified launch failure")
    fall(story, course, t, exits=[dead], how="watchdog")
    who = story.who(rank)
    return Told([
        Claim(class_="hardware/gpu_xid_79", culprits=[who], needs=["xid"]),
        Claim(class_="hardware/gpu_failure", culprits=[who], needs=["cuda"], silent_ok=True), *unclear([who]),
    ], rank.node)  # fmt: skip


@chain("C29", "rank0_exception", Wants(torch=((2, 4), (9, 0)), launchers=("torchrun",), min_nodes=2))
def rank0_exception(story: Story) -> Told:
    """Rank 0 raises an exception of its own code."""
    course = start(story)
    t = train(story, course)
    rank, r = story.fleet.ranks[0], story.r
    frames = [
        *torch.step_frames(story.fleet)[:2],
        (f"/workspace/{story.fleet.job.script}", 311, "log_metrics", "wandb.log(metrics)"),
    ]
    error = r.choice(
        (
            "ValueError: too many values to unpack (expected 2)",
            "KeyError: 'grad_norm'",
            "TypeError: unsupported operand type(s) for +: 'NoneType' and 'float'",
        )
    )
    done = torch.python(story, rank, t, torch.traceback(story.fleet, frames, [error]), "py")
    fall(story, course, t, exits=[Exit(rank, done + r.uniform(0.2, 2), 1)], how="watchdog")
    who = story.who(rank, gpu=False)
    return Told([Claim(class_="software/python_exception", culprits=[who], needs=["py"]), *unclear([who])], rank.node)


@chain("C29", "rank0_killed", Wants(torch=((2, 4), (9, 0)), launchers=("torchrun",), min_nodes=2))
def rank0_killed(story: Story) -> Told:
    """The kernel kills rank 0 for memory."""
    course = start(story)
    t = train(story, course)
    rank, r = story.fleet.ranks[0], story.r
    story.kernel(
        rank.node,
        t,
        host.oom(
            r,
            comm=rank.comm,
            pid=rank.host_pid,
            group=None,
            asker=rank.comm,
            anon_kb=r.randrange(200, 900) * 1024 * 1024,
        ),
        "kernel",
    )
    fall(story, course, t, exits=[Exit(rank, t + r.uniform(0.05, 1), -9)], how="watchdog")
    who = story.who(rank, gpu=False)
    return Told(
        [
            Claim(class_="resource/host_oom", culprits=[who], needs=["kernel"]),
            Claim(class_="infra/process_killed", also=["resource/host_oom"], culprits=[who], needs=["exit"]),
            *unclear([who]),
        ],
        rank.node,
    )


@chain(
    "C29",
    "node0_lost",
    Wants(min_nodes=2, schedulers=("slurm", "kubernetes"), torch=((2, 4), (9, 0)), launchers=("torchrun",)),
)
def node0_lost(story: Story) -> Told:
    """The node of rank 0 dies: every rank loses the store at once."""
    course = start(story)
    t = train(story, course)
    r, fleet = story.r, story.fleet
    node = fleet.nodes[0]
    story.dead[node.name] = t
    for rank in fleet.ranks[len(node.gpus) :: 8 if story.big else 1]:
        torch.store_gone(story, rank, t + r.uniform(1, 30), fleet.ranks[0])
    Fall(story, t + r.uniform(0, 1) * course.step_s, work_of(story, course), lost=[node]).run()
    # srun ran on the node that died: what is left comes from the controller and the events.
    gone_after(story, node, t)
    who = story.node_as_culprit(node)
    return Told(node_lost(who), node)
