"""C30 and other endings that are no faults: limits, cancels, preemption, the end of training, harmless notices."""

from pipeline.drill.emit import host, kube, nccl, nvrm, slurm, torch, torchrun, training
from pipeline.drill.fleet import Wants
from pipeline.drill.opening import start, train
from pipeline.drill.prefixes import iso
from pipeline.drill.registry import Told, chain
from pipeline.drill.story import Story
from pipeline.drill.truth import Claim

_SLURM = Wants(schedulers=("slurm",))


def _quiet(class_: str, *others: str) -> Told:
    return Told([Claim(class_=class_, also=list(others), quiet=True, silent_ok=True)])


def _stopped_everywhere(story: Story, t: float, because: str) -> None:
    """Slurm ends a job: SIGTERM to all, healthy GPUs lose their channels, the step's line."""
    fleet, r = story.fleet, story.r
    slurm.job_ended(story, t, because)
    if fleet.job.launcher == "torchrun":
        for node in fleet.nodes:
            torchrun.stopped(story, node, t + r.uniform(0.05, 1))
    slurm.step_ended(story, t + 0.2, because)
    for node in fleet.nodes[:8]:
        tasks = [node.number] if fleet.job.launcher == "torchrun" else [rank.rank for rank in fleet.ranks_on(node)]
        slurm.task_failed(story, t + r.uniform(1, 4), node, tasks, 1 if fleet.job.launcher == "torchrun" else -15)
    killed = r.random() < 0.4
    for node in fleet.nodes[:16]:
        if killed:
            rank = r.choice(fleet.ranks_on(node))
            story.kernel(
                node, t + r.uniform(30, 33), nvrm.torn_down(r, fleet.versions, rank.gpu, (rank.host_pid, rank.comm))
            )


@chain("C30", "time_limit", _SLURM, quiet=True)
def time_limit(story: Story) -> Told:
    """The job's time is up."""
    course = start(story)
    t = train(story, course)
    _stopped_everywhere(story, t, "TIME LIMIT")
    return _quiet("scheduler/time_limit")


@chain("C30", "preempted", _SLURM, quiet=True)
def preempted(story: Story) -> Told:
    """A job of higher priority takes the nodes."""
    course = start(story)
    t = train(story, course)
    _stopped_everywhere(story, t, "PREEMPTION")
    return _quiet("scheduler/preempted")


@chain("C30", "cancelled", _SLURM, quiet=True)
def cancelled(story: Story) -> Told:
    """Somebody cancels the job."""
    course = start(story)
    t = train(story, course)
    slurm.controller(story, t - 0.05, f"_slurm_rpc_kill_job: REQUEST_KILL_JOB JobId={story.fleet.job.job_id} uid 1044")
    _stopped_everywhere(story, t, "")
    return _quiet("scheduler/cancelled")


@chain("C30", "pod_preempted", Wants(schedulers=("kubernetes",)), quiet=True)
def pod_preempted(story: Story) -> Told:
    """Kubernetes preempts the pods of a job."""
    course = start(story)
    t = train(story, course)
    for node in story.fleet.nodes:
        pod = kube.pod_of(story, node)
        kube.event(
            story,
            t,
            "Normal",
            "Preempted",
            f"pod/{pod}",
            "Preempted by pod 5d1c0a4e-7f3b-4d2a-8f11-0c2b7e6d9a10 on node " + node.name,
        )
        torchrun.stopped(story, node, t + story.r.uniform(0.2, 2))
    return _quiet("scheduler/preempted")


@chain("benign", "finished", quiet=True)
def finished(story: Story) -> Told:
    """Training ends as it should; what is torn down complains a little."""
    course = start(story)
    t = train(story, course)
    r, fleet = story.r, story.fleet
    training.save(story, course, t, t + r.uniform(3, 20))
    first = fleet.ranks[0]
    at = story.end_s + 0.5
    done = {
        "megatron": f"[after training is done] datetime: {iso(first.node.clock, story.ns(at))} ",
        "article": f"[{iso(first.node.clock, story.ns(at))}] Training finished",
        "logging": f"{iso(first.node.clock, story.ns(at), digits=3, comma=',')} - trainer - INFO - training completed",
        "plain": f"[{iso(first.node.clock, story.ns(at))}] Training complete",
    }
    story.rank(training.printing_rank(story, course), at, done[course.style])
    for rank in fleet.ranks if not story.big else fleet.ranks[::16]:
        leaves = at + r.uniform(0.3, 4)
        if fleet.versions.torch >= (2, 4) and r.random() < 0.5:
            text = (
                "Warning: WARNING: destroy_process_group() was not called before program exit, which can leak resources. For more info, please see "
                "https://pytorch.org/docs/stable/distributed.html#shutdown (function operator())"
            )
            story.rank(rank, leaves, torch.header(story, rank, leaves, "W") + text)
        nccl.info(
            story,
            rank,
            leaves + 0.1,
            f"[Service thread] Connection closed by localRank {(rank.local + 1) % len(rank.node.gpus)}",
            thread=4,
        )
        nccl.info(
            story,
            rank,
            leaves + 0.3,
            f"comm 0x55{r.getrandbits(36):09x}0 rank {rank.rank} nranks {len(fleet.ranks)} cudaDev {rank.local} busId {rank.gpu.nccl} - Destroy COMPLETE",
        )
        if fleet.versions.torch >= (2, 6) and rank.rank and r.random() < 0.4:
            torch.store_gone(story, rank, leaves + 0.5, first)
    return _quiet("benign/shutdown_noise")


@chain("benign", "notices", quiet=True)
def notices(story: Story) -> Told:
    """A healthy job on machines that print what sounds bad and is not."""
    course = start(story)
    r, fleet = story.r, story.fleet
    t = train(story, course)
    for node in r.sample(fleet.nodes, min(3, len(fleet.nodes))):
        for beat in range(r.randrange(3, 30)):
            story.kernel(node, 60.0 * beat + r.uniform(0, 3), host.register_refused(r, node.nics[0]))
    rank = story.pick()
    story.kernel(
        rank.node, t - 100, host.aer_corrected(fleet.versions, rank.gpu.bdf, rank.gpu.port, "nvidia", fleet.gpu_pci_id)
    )
    story.kernel(rank.node, t - 90, host.memory_corrected(r))
    for one in fleet.ranks[:16]:
        at = 7.0 + r.uniform(0, 1)
        text = "[c10d] The client socket cannot be initialized to connect to [localhost]:29500 (errno: 97 - Address family not supported by protocol)."
        story.rank(one, at, torch.header(story, one, at, "W", "socket.cpp").replace(f"[rank{one.rank}]:", "") + text)
        if fleet.job.network != "socket":
            nccl.async_event(story, one, 9.9, one.nic(), "port active", 9, None)
    return _quiet("benign/harmless_warning")


@chain("benign", "row_remap", quiet=True)
def row_remap(story: Story) -> Told:
    """A GPU remaps a row after correctable errors; the job goes on."""
    course = start(story)
    t = train(story, course)
    rank, r = story.pick(), story.r
    story.kernel(
        rank.node,
        t - 200,
        [*nvrm.identity(rank.gpu), nvrm.remapped(story.fleet.versions, rank.gpu, r.randrange(1 << 20, 1 << 26))],
    )
    training.until(story, course, t + 600)
    return _quiet("benign/gpu_row_remap")


@chain("benign", "short_stall", quiet=True)
def short_stall(story: Story) -> Told:
    """The file server hangs for half a minute during a save and comes back; training goes on."""
    course = start(story)
    t = train(story, course)
    r = story.r
    node = story.fleet.nodes[0]
    training.save_begin(story, course, t)
    story.kernel(node, t + 61, host.nfs_silent("nas01"))
    story.kernel(node, t + 61 + r.uniform(5, 30), host.nfs_ok("nas01"))
    training.save_end(story, course, t + 100)
    course.at = t + 100
    training.until(story, course, t + 1200)
    return _quiet("benign/harmless_warning")
