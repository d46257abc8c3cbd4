"""C14, C15, C16, C25: host memory runs out, shared memory runs out, or a DIMM fails."""

from pipeline.drill.chains.common import UNCLEAR, fall, unclear, work_of
from pipeline.drill.collapse import Exit, Fall, How
from pipeline.drill.emit import host, kube, nccl, slurm, torch, torchrun
from pipeline.drill.emit.training import Course
from pipeline.drill.fleet import Node, Rank, Wants
from pipeline.drill.names import hexes, uuid
from pipeline.drill.opening import start, train
from pipeline.drill.registry import Told, chain
from pipeline.drill.story import Story
from pipeline.drill.truth import Claim, Who

_SITE = "/opt/lib/python3.10/site-packages/torch"


def _group(story: Story, node: Node) -> str:
    """The memory cgroup of the job on a node."""
    job, r = story.fleet.job, story.r
    if job.scheduler == "kubernetes":
        pod = uuid(r).replace("-", "_")
        return f"/kubepods.slice/kubepods-pod{pod}.slice/cri-containerd-{hexes(r, 64)}.scope"
    if job.scheduler == "slurm":
        return f"/slurm/uid_1000/job_{job.job_id}/step_0"
    return "/system.slice/train.service"


@chain("C14", "loader_cgroup")
def loader_cgroup(story: Story) -> Told:
    """The memory limit kills a loader's worker; its rank raises and ends with 1."""
    return _loader(story, in_group=True)


@chain("C14", "loader_global")
def loader_global(story: Story) -> Told:
    """The node is out of memory and the victim is a loader's worker."""
    return _loader(story, in_group=False)


def _loader(story: Story, *, in_group: bool) -> Told:
    course = start(story)
    t = train(story, course)
    rank, r = story.pick(), story.r
    worker_host, worker = rank.host_pid + r.randrange(400, 900), rank.pid + r.randrange(400, 900)
    worker = worker if story.fleet.job.container else worker_host
    group = _group(story, rank.node) if in_group else None
    comm = "pt_data_worker" if r.random() < 0.6 else rank.comm
    story.kernel(rank.node, t, host.oom(r, comm=comm, pid=worker_host, group=group, asker=r.choice((comm, "python3")),
                 anon_kb=r.randrange(20, 300) * 1024 * 1024), "kernel")  # fmt: skip
    frames = [
        *torch.step_frames(story.fleet)[:2],
        (f"{_SITE}/utils/data/dataloader.py", 1295, "_get_data", "success, data = self._try_get_data()"),
        (f"{_SITE}/utils/data/_utils/signal_handling.py", 66, "handler", "_error_if_any_worker_fails()"),
    ]
    error = f"RuntimeError: DataLoader worker (pid {worker}) is killed by signal: Killed. "
    done = torch.python(story, rank, t + r.uniform(0.2, 5), torch.traceback(story.fleet, frames, [error]), "py")
    fall(story, course, t, exits=[Exit(rank, done + r.uniform(0.3, 2), 1)])
    _slurm_oom(story, in_group=in_group)
    return Told(
        _oom_claims(
            story, rank, in_group=in_group, weaker=["software/dataloader_worker_crash"], pids=[worker, worker_host]
        ),
        rank.node,
    )


def _slurm_oom(story: Story, *, in_group: bool) -> None:
    if story.fleet.job.scheduler == "slurm" and in_group:
        slurm.oom(story, story.end_s + 0.5, 1, "slurm_oom")


def _oom_claims(story: Story, rank: Rank, *, in_group: bool, weaker: list[str], pids: list[int]) -> list[Claim]:
    who = story.who(rank, gpu=False, pids=pids)
    class_ = "resource/cgroup_oom" if in_group else "resource/host_oom"
    other = ["resource/host_oom", "resource/cgroup_oom"]
    return [
        Claim(class_=class_, culprits=[who], needs=["kernel"]),
        Claim(
            class_="resource/cgroup_oom",
            also=[*other, *weaker, *UNCLEAR],
            culprits=[who],
            needs=["slurm_oom"],
            silent_ok=True,
        ),
        Claim(class_=weaker[0], also=[*other, *weaker, *UNCLEAR], culprits=[who], needs=["py"], silent_ok=True),
        *unclear([who]),
    ]


@chain("C15", "rank_cgroup")
def rank_cgroup(story: Story) -> Told:
    """The memory limit kills the rank itself."""
    return _rank_killed(story, in_group=True)


@chain("C15", "rank_global")
def rank_global(story: Story) -> Told:
    """The node runs out of memory and the kernel picks the rank."""
    return _rank_killed(story, in_group=False)


def _rank_killed(story: Story, *, in_group: bool) -> Told:
    course = start(story)
    t = train(story, course)
    rank, r = story.pick(), story.r
    group = _group(story, rank.node) if in_group else None
    asker = r.choice((rank.comm, "pt_data_worker", "systemd-journal" if not in_group else "python3"))
    story.kernel(
        rank.node,
        t,
        host.oom(
            r, comm=rank.comm, pid=rank.host_pid, group=group, asker=asker, anon_kb=r.randrange(60, 900) * 1024 * 1024
        ),
        "kernel",
    )
    fall(story, course, t, exits=[Exit(rank, t + r.uniform(0.05, 1), -9)])
    _slurm_oom(story, in_group=in_group)
    if story.fleet.job.scheduler == "kubernetes" and in_group and r.random() < 0.6:
        kube.terminated(story, t + 1, rank.node, "OOMKilled", 137, "slurm_oom")
    return Told(_oom_claims(story, rank, in_group=in_group, weaker=["infra/process_killed"], pids=[]), rank.node)


@chain("C16", "loader_bus_error", Wants(container=True))
def loader_bus_error(story: Story) -> Told:
    """/dev/shm is full: a loader's worker dies of a bus error."""
    course = start(story)
    t = train(story, course, low=60)
    rank, r = story.pick(), story.r
    worker = rank.pid + r.randrange(300, 900)
    story.rank(
        rank,
        t,
        "ERROR: Unexpected bus error encountered in worker. This might be caused by insufficient shared memory (shm).",
        "py",
    )
    frames = [
        *torch.step_frames(story.fleet)[:2],
        (f"{_SITE}/utils/data/_utils/signal_handling.py", 66, "handler", "_error_if_any_worker_fails()"),
    ]
    error = (
        f"RuntimeError: DataLoader worker (pid {worker}) is killed by signal: Bus error. It is possible that dataloader's workers are out of "
        "shared memory. Please try to raise your shared memory limit."
    )
    done = torch.python(story, rank, t + r.uniform(0.05, 1), torch.traceback(story.fleet, frames, [error]), "py")
    fall(story, course, t, exits=[Exit(rank, done + r.uniform(0.3, 2), 1)])
    who = story.who(rank, gpu=False, pids=[worker])
    return Told([Claim(class_="resource/shm_full", culprits=[who], needs=["py"]), *unclear([who])], rank.node)


@chain("C16", "nccl_segment", Wants(container=True))
def nccl_segment(story: Story) -> Told:
    """NCCL cannot make its shared memory at the start; the job does not come up."""
    course = start(story, joins=False)
    rank, r, fleet = story.pick(), story.r, story.fleet
    t = course.at
    hit = fleet.ranks_on(rank.node)
    exits = []
    detail = ", error: No space left on device (28)" if fleet.versions.nccl >= (2, 23) else ""
    for one in hit if r.random() < 0.5 else [rank]:
        at = t + r.uniform(0, 0.3)
        name = f"/dev/shm/nccl-{r.choice('abcXYZ')}{hexes(r, 5)}"
        text = f"Error while creating shared memory segment {name} (size 9637888){detail}"
        story.rank(one, at, _forced_warn(story, one, at, text), "py")
        done = torch.nccl_error(story, one, at + 0.1, nccl.failure_text(fleet, 2, text), "py")
        exits.append(Exit(one, done + r.uniform(0.3, 1.5), 1))
    fall(story, course, t, exits=exits, how="killed" if fleet.job.scheduler != "none" else "watchdog")
    culprits = [story.who(e.rank, gpu=False) for e in exits]
    return Told([Claim(class_="resource/shm_full", culprits=culprits, needs=["py"]), *unclear(culprits)], rank.node)


def _forced_warn(story: Story, rank: Rank, t: float, text: str) -> str:
    """NCCL's line as it stands in front of torch's exception; printed whatever NCCL_DEBUG says only with WARN or more."""
    return f"{rank.node.short_host}:{rank.pid}:{rank.pid + 240} [{rank.local}] misc/shmutils.cc:72 NCCL WARN {text}"


@chain("C25", "process_hit")
def process_hit(story: Story) -> Told:
    """A DIMM loses data of a rank: SIGBUS."""
    course = start(story)
    t = train(story, course)
    rank, r = story.pick(), story.r
    story.kernel(rank.node, t, host.memory_uncorrected(r, rank.comm, rank.host_pid), "kernel")
    fall(story, course, t, exits=[Exit(rank, t + r.uniform(0.02, 0.5), -7)])
    who = story.who(rank, gpu=False)
    return Told(
        [
            Claim(class_="hardware/host_memory", culprits=[who], needs=["kernel"]),
            Claim(
                class_="infra/process_killed",
                also=[*UNCLEAR, "software/segfault", "hardware/host_memory", "resource/shm_full"],
                culprits=[who],
                needs=["exit"],
                silent_ok=True,
            ),
            *unclear([who]),
        ],
        rank.node,
    )


@chain("C25", "panic", Wants(min_nodes=2))
def panic(story: Story) -> Told:
    """A machine check that the kernel does not survive: the node is gone."""
    course = start(story)
    t = train(story, course)
    rank, r = story.pick(not_first_node=True), story.r
    node = rank.node
    last = story.kernel(node, t, host.machine_check_panic(r), "kernel")
    story.dead[node.name] = last + 0.01
    lose_node(story, course, t, node)
    who = story.node_as_culprit(node)
    return Told([
        Claim(class_="hardware/host_memory", also=["hardware/cpu"], culprits=[who], needs=["kernel"]), *node_lost(who),
    ], node)  # fmt: skip


def lose_node(story: Story, course: Course, t: float, node: Node) -> None:
    """A node fell silent at `t`: its peers wait or lose their connections, the schedulers miss it."""
    how: How = story.r.choice(("watchdog", "remote"))
    Fall(story, t + story.r.uniform(0, 1) * course.step_s, work_of(story, course), lost=[node], how=how).run()
    gone_after(story, node, t)


def gone_after(story: Story, node: Node, t: float) -> None:
    """What the schedulers say once they miss a node."""
    r, job = story.r, story.fleet.job
    if job.scheduler == "slurm":
        noticed = t + r.uniform(120, 300)
        slurm.controller(story, noticed, f"error: Nodes {node.short} not responding, setting DOWN", "lost")
        slurm.controller(story, noticed + 0.01, f"Killing JobId={job.job_id} on failed node {node.short}", "lost")
        slurm.node_failure(story, noticed + 0.5, node, "lost")
    elif job.scheduler == "kubernetes":
        noticed = t + r.uniform(40, 50)
        kube.event(
            story,
            noticed,
            "Normal",
            "NodeNotReady",
            f"node/{node.name}",
            f"Node {node.name} status is now: NodeNotReady",
            "lost",
        )
        pod = kube.pod_of(story, node)
        kube.event(
            story,
            noticed + 300,
            "Normal",
            "TaintManagerEviction",
            f"pod/{pod}",
            f"Marking for deletion Pod ml/{pod}",
            "lost",
        )
    elif job.launcher == "torchrun":
        others = [other for other in story.fleet.nodes if other is not node]
        for other in others[:1]:
            torchrun.lost_store(story, other, t + r.uniform(20, 60))


def node_lost(who: Who) -> list[Claim]:
    """A node fell silent: what is left without a word of why."""
    return [
        Claim(class_="infra/node_failure", also=["infra/reboot"], culprits=[who], needs=["lost"]),
        Claim(
            class_="infra/node_failure",
            also=[*UNCLEAR, "infra/reboot"],
            culprits=[who],
            needs=["peers"],
            silent_ok=True,
        ),
        Claim(
            class_="unknown/collective_timeout",
            also=[*UNCLEAR, "infra/reboot"],
            culprits=[who],
            quiet=True,
            silent_ok=True,
        ),
    ]
