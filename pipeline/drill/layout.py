"""Which file a line goes to and what stands in front of it: how sites collect the logs of a job."""

import functools
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from random import Random
from typing import Final, Literal

from pipeline.drill.fleet import Fleet, Node
from pipeline.drill.names import hexes, uuid
from pipeline.drill.prefixes import WALL_FORMATS, KernelFormat, cri, docker_json, kernel_formatter, kubectl, rebooted
from pipeline.drill.story import BIG, Stream

Shape = Literal["folders", "joblog", "nodelogs", "pods", "torchelastic"]
Render = Callable[[int, str], str]

_KERNEL_FILES: Final[dict[KernelFormat, tuple[str, ...]]] = {
    "dmesg": ("dmesg.txt", "dmesg.log"), "dmesg_T": ("dmesg-T.txt", "dmesg.txt"), "dmesg_iso": ("dmesg.txt",),
    "kmsg": ("kernel.kmsg",), "syslog": ("kern.log", "messages", "syslog"), "rsyslog": ("kern.log", "syslog"),
    "journal_iso": ("journal.log",), "journal_precise": ("journal.log",), "journal_json": ("journal.json",),
}  # fmt: skip
# What is read from the kernel's ring buffer, which a reboot empties.
RING_FORMATS: Final = frozenset(("dmesg", "dmesg_T", "dmesg_iso", "kmsg"))


@dataclass(frozen=True)
class Target:
    """A file and how a line is written there; what was written before `since_ns` is lost."""

    path: str
    render: Render
    since_ns: int = -(2**63)


@dataclass(frozen=True)
class Layout:
    """One site's way. `again` is a second kernel log of each node with the same lines."""

    fleet: Fleet
    shape: Shape
    kernel: KernelFormat
    again: KernelFormat | None
    flat_kernel: bool
    tee: bool
    labelled: bool
    wrapper: Callable[..., str] | None
    callers: bool
    read_ns: int
    reboots: Mapping[str, int]
    seed: int

    def targets(self, stream: Stream) -> list[Target]:
        """Where a stream goes."""
        if stream.kind == "kernel":
            return self._kernel_targets(self._node(stream.node))
        if stream.kind == "service":
            return [Target(f"{stream.node}/{stream.name}" if stream.node else stream.name, _plain)]
        return [self._application(stream)]

    def _node(self, name: str) -> Node:
        return self._nodes[name]

    @functools.cached_property
    def _nodes(self) -> dict[str, Node]:
        return {node.name: node for node in (*self.fleet.nodes, *self.fleet.others)}

    def _kernel_targets(self, node: Node) -> list[Target]:
        kinds = [self.kernel, *([self.again] if self.again else [])]
        names = [_KERNEL_FILES[kind][self.seed % len(_KERNEL_FILES[kind])] for kind in kinds]
        if len(set(names)) < len(names):
            names[1] = f"more-{names[1]}"
        paths = [f"{node.name}.{name}" if self.flat_kernel else f"{node.name}/{name}" for name in names]
        return [self._kernel_target(node, kind, path) for kind, path in zip(kinds, paths, strict=True)]

    def _kernel_target(self, node: Node, kind: KernelFormat, path: str) -> Target:
        """After a reboot the ring buffer holds the new boot only, and kernel stamps begin at zero."""
        boot_ns = self.reboots.get(node.name)
        if boot_ns is None:
            return Target(path, kernel_formatter(kind, node, node.clock, self.read_ns, self.callers))
        old = kernel_formatter(kind, node, node.clock, boot_ns, self.callers)
        new = kernel_formatter(kind, node, rebooted(node.clock, boot_ns), self.read_ns, self.callers)
        since_ns = boot_ns if kind in RING_FORMATS else Target.since_ns
        return Target(path, lambda t, text: (old if t < boot_ns else new)(t, text), since_ns)

    @property
    def job_file(self) -> str:
        """The output of the job as a whole."""
        job = self.fleet.job
        return f"slurm-{job.job_id}.out" if job.scheduler == "slurm" else f"{job.name}.log"

    def _application(self, stream: Stream) -> Target:
        job, whole = self.fleet.job, self.job_file
        node = self._node(stream.node)
        if stream.kind == "batch":
            return Target(whole, _plain)
        if self.shape == "joblog":
            return Target(whole, self._labelled(stream, node))
        if self.shape == "nodelogs":
            return Target(
                f"{node.name}/{'torchrun.log' if job.launcher == 'torchrun' else 'job.log'}", self._teed(stream)
            )
        if self.shape == "pods":
            return Target(self._pod_path(node), self._wrapped(stream, node))
        if stream.kind == "agent":
            return Target(f"{node.name}/torchrun.log", _plain)
        local = self._local(stream)
        if self.shape == "torchelastic":
            run = f"{job.job_id}_{hexes(Random(f'{self.seed}{node.name}'), 8)}"
            return Target(f"{node.name}/torchelastic/{run}/attempt_0/{local}/stderr.log", _plain)
        return Target(f"{node.name}/rank{stream.rank}.log", _plain)

    def _local(self, stream: Stream) -> int:
        return stream.rank % len(self.fleet.nodes[0].gpus)

    def _teed(self, stream: Stream) -> Render:
        """`--tee` puts role and local rank in front of what ranks say."""
        if not self.tee or stream.kind != "rank":
            return _plain
        head = f"[default{self._local(stream)}]:"
        return lambda _, text: head + text

    def _labelled(self, stream: Stream, node: Node) -> Render:
        """`srun --label` puts the task's number in front, pdsh the host's name."""
        inner = self._teed(stream)
        if self.fleet.job.scheduler == "none":
            return lambda t, text: f"{node.short}: {inner(t, text)}"
        if not self.labelled:
            return inner
        count = len(self.fleet.nodes) * (len(node.gpus) if self.fleet.job.launcher == "srun" else 1)
        task = stream.rank if self.fleet.job.launcher == "srun" else node.number
        head = f"{task:>{len(str(count - 1))}}: "
        return lambda t, text: head + inner(t, text)

    def _pod_path(self, node: Node) -> str:
        pod = self.fleet.pod(node)
        return f"{node.name}/pods/ml_{pod}_{uuid(Random(f'{self.seed}{pod}'))}/pytorch/0.log"

    def _wrapped(self, stream: Stream, node: Node) -> Render:
        inner, wrapper, clock = self._teed(stream), self.wrapper, node.clock
        if wrapper is None:
            return inner
        return lambda t, text: wrapper(clock, t, inner(t, text))


def _plain(_: int, text: str) -> str:
    return text


def new_layout(r: Random, fleet: Fleet, read_ns: int, reboots: Mapping[str, int]) -> Layout:
    """A way that fits the job: pods where Kubernetes runs it, few files where it is large."""
    job, big = fleet.job, len(fleet.ranks) > BIG
    shapes: list[Shape] = ["folders", "folders", "torchelastic", "nodelogs"] if not big else ["nodelogs"]
    if job.launcher == "srun":
        shapes = ["folders"]
    if job.scheduler == "kubernetes":
        shapes = ["pods"]
    if fleet.shared_log:
        shapes = ["joblog"]
    kernel: KernelFormat = r.choice((*WALL_FORMATS, "dmesg", "kmsg"))
    again: KernelFormat | None = (
        r.choice(("dmesg", "kmsg")) if kernel in WALL_FORMATS and r.random() < 0.15 and not big else None
    )
    dotted = any("." in node.name for node in fleet.nodes)
    shape = r.choice(shapes)
    return Layout(
        fleet=fleet,
        shape=shape,
        kernel=kernel,
        again=again,
        flat_kernel=shape == "joblog" and not dotted and r.random() < 0.6,
        tee=job.launcher == "torchrun" and shape != "folders" and (fleet.versions.torch < (2, 2) or r.random() < 0.5),
        labelled=r.random() < 0.7,
        wrapper=r.choice((cri, docker_json, kubectl)) if shape == "pods" else None,
        callers=r.random() < 0.3,
        read_ns=read_ns,
        reboots=reboots,
        seed=r.randrange(10**6),
    )
