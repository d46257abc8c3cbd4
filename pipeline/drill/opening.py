"""How a job begins, and what a fleet prints anyway."""

from collections.abc import Callable
from typing import Final

from pipeline.drill.emit import host, kube, nccl, nvrm, slurm, telemetry, torchrun, training
from pipeline.drill.emit.training import Course
from pipeline.drill.fleet import Node
from pipeline.drill.names import hexes
from pipeline.drill.story import Story

_NOISE: Final = (
    "perf: interrupt took too long (2512 > 2500), lowering kernel.perf_event_max_sample_rate to 79500",
    "IPv6: ADDRCONF(NETDEV_CHANGE): veth3a1: link becomes ready",
    "docker0: port 3(veth77c1) entered forwarding state",
    "nvidia-uvm: Loaded the UVM driver, major device number 511.",
    'audit: type=1400 audit(1772600000.101:77): apparmor="STATUS" operation="profile_replace" name="docker-default"',
    "TCP: eth0: Driver has suspect GRO implementation, TCP performance may be compromised.",
    "nvidia 0000:1b:00.0: enabling device (0140 -> 0142)",
    "cgroup: fork rejected by pids controller in /system.slice/cron.service",
    "EXT4-fs (sda2): re-mounted. Opts: errors=remount-ro. Quota mode: none.",
)


def start(story: Story, *, joins: bool = True) -> Course:
    """The job starts and, unless told otherwise, its ranks join."""
    r, fleet = story.r, story.fleet
    if fleet.job.scheduler == "slurm" and r.random() < 0.6:
        slurm.environment(story, 0.1)
    if fleet.job.scheduler == "kubernetes":
        kube.scheduled(story, -5)
    training.hello(story, 4.0)
    if fleet.job.launcher == "torchrun" and fleet.versions.torch >= (2, 0) and r.random() < 0.4:
        for node in fleet.nodes:
            torchrun.joined(story, node, 3.0 + r.uniform(0, 0.5))
    if not story.big and (fleet.job.nccl_debug != "INFO" or r.random() < 0.2):
        training.rank_lines(story, 6.0)
    if r.random() < 0.2 and not story.big:
        for node in fleet.nodes:
            telemetry.inventory(story, node, 1.0)
    if joins:
        comm_id = hexes(r, 16)
        for rank in fleet.ranks:
            nccl.init(story, rank, 8.0 + r.uniform(0, 2), comm_id)
    begin, step = r.uniform(20, 60), r.choice((0, 0, 4500, 12_000))
    return training.new_course(r, begin, step, few_ranks=len(fleet.ranks) <= 64)


def train(story: Story, course: Course, *, low: float = 600, high: float = 5400) -> float:
    """Some steps and saves; returns when trouble begins."""
    until = course.at + story.r.uniform(low, high)
    training.until(story, course, until, save_every_s=story.r.choice((400.0, 900.0, 1800.0)))
    return max(until, course.at + story.r.uniform(0.1, 1) * course.step_s)


def noise(story: Story) -> None:
    """What healthy kernels print."""
    r, fleet = story.r, story.fleet
    every = max(1, len(fleet.nodes) // 64)
    for number, node in enumerate((*fleet.nodes, *fleet.others)):
        if number % every:
            story.kernel(node, r.uniform(-3000, 0), r.choice(_NOISE))
            continue
        if r.random() < 0.3:
            story.kernel(node, r.uniform(-9000, -8000), nvrm.loaded(fleet.versions, is_open=r.random() < 0.5))
        for _ in range(r.choice((1, 2, 4))):
            story.kernel(node, r.uniform(-3000, max(story.end_s, 60)), r.choice(_NOISE))
        if r.random() < 0.1:
            for beat in range(r.randrange(2, 12)):
                story.kernel(node, 60.0 * beat, host.register_refused(r, node.nics[0]))


# --- things that are true and have nothing to do with it -------------------------------------------------------------


def _corrected_pcie(story: Story, node: Node, t: float) -> None:
    gpu = story.r.choice(node.gpus)
    story.kernel(node, t, host.aer_corrected(story.fleet.versions, gpu.bdf, gpu.port, "nvidia", story.fleet.gpu_pci_id))


def _corrected_memory(story: Story, node: Node, t: float) -> None:
    story.kernel(node, t, host.memory_corrected(story.r))


def _old_flap(story: Story, node: Node, t: float) -> None:
    nic = story.r.choice(node.nics)
    before = -story.r.uniform(2.5, 6) * 3600
    say = host.ib_port if nic.netdev.startswith("ib") else host.link
    words = ("DOWN", "ACTIVE") if nic.netdev.startswith("ib") else ("down", "up")
    story.kernel(node, before, say(nic, words[0]))
    story.kernel(node, before + story.r.uniform(2, 6), say(nic, words[1]))


def _old_nfs(story: Story, node: Node, t: float) -> None:
    before = -story.r.uniform(2.5, 6) * 3600
    story.kernel(node, before, host.nfs_silent("nas-home"))
    story.kernel(node, before + story.r.uniform(10, 90), host.nfs_ok("nas-home"))


def _foreign_channel(story: Story, node: Node, t: float) -> None:
    gpu, r = story.r.choice(node.gpus), story.r
    story.kernel(node, t, nvrm.identity(gpu))
    story.kernel(
        node, t + 0.001, nvrm.stopped_channel(r, story.fleet.versions, gpu, (r.randrange(3000, 9000), "jupyter"))
    )


def _foreign_remap(story: Story, node: Node, t: float) -> None:
    gpu = story.r.choice(node.gpus)
    story.kernel(
        node, t, [*nvrm.identity(gpu), nvrm.remapped(story.fleet.versions, gpu, story.r.randrange(1 << 20, 1 << 26))]
    )


def _foreign_oom(story: Story, node: Node, t: float) -> None:
    r = story.r
    story.kernel(node, t, host.oom(
        r, comm="jupyter-lab", pid=r.randrange(3000, 9000), group="/user.slice/user-1044.slice/session-88.scope",
        asker="jupyter-lab", anon_kb=r.randrange(8, 60) * 1024 * 1024,
    ))  # fmt: skip


_ANYWHERE: Final[tuple[Callable[[Story, Node, float], None], ...]] = (
    _corrected_pcie,
    _corrected_memory,
    _old_flap,
    _old_nfs,
)
_OUTSIDE: Final[tuple[Callable[[Story, Node, float], None], ...]] = (_foreign_channel, _foreign_remap)


def distract(story: Story, *, quiet: bool, spare: Node | None = None) -> None:
    """A few true things on nodes other than the one at fault; `quiet`: none that is an incident of its own."""
    r, fleet = story.r, story.fleet
    for _ in range(r.choice((0, 1, 1, 2, 3))):
        if fleet.others and r.random() < 0.5:
            outside = _OUTSIDE if quiet else (*_OUTSIDE, _foreign_oom)
            r.choice(outside)(story, r.choice(fleet.others), r.uniform(0, max(story.end_s, 60)))
            continue
        nodes = [node for node in (*fleet.nodes, *fleet.others) if node is not spare]
        if nodes:
            r.choice(_ANYWHERE)(story, r.choice(nodes), r.uniform(0, max(story.end_s, 60)))
