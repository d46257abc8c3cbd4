"""A story: who printed what, at which true time. Files are made of it afterwards."""

from collections import defaultdict
from collections.abc import Iterable
from dataclasses import dataclass, field
from random import Random
from typing import Literal, NamedTuple

from pipeline.drill.clocks import SECOND_NS
from pipeline.drill.fleet import Fleet, Nic, Node, Rank
from pipeline.drill.truth import Who

StreamKind = Literal["kernel", "rank", "agent", "batch", "service"]
# Above this many ranks a collapse says the same in fewer lines.
BIG: int = 512


class Stream(NamedTuple):
    """One writer: a kernel, a rank, a launcher's agent, the batch script, or a service (`name` is its file)."""

    kind: StreamKind
    node: str
    name: str = ""
    rank: int = -1


class Line(NamedTuple):
    """What was written: `text` may be several lines. `tag` names what it proves."""

    true_ns: int
    order: int
    text: str
    tag: str | None


@dataclass
class Story:
    """Collects lines. Times are true seconds since the job began."""

    r: Random
    fleet: Fleet
    lines: dict[Stream, list[Line]] = field(default_factory=lambda: defaultdict(list))
    # Nodes that fell silent, and when (true seconds): nothing of theirs is written after it.
    dead: dict[str, float] = field(default_factory=dict)
    # Nodes that started anew, and when.
    reboots: dict[str, float] = field(default_factory=dict)
    end_s: float = 0.0
    # Above so many ranks a collapse says the same in fewer lines.
    brief_above: int = BIG
    _order: int = 0

    def ns(self, t: float) -> int:
        """The true time."""
        return self.fleet.begin_ns + round(t * SECOND_NS)

    def _add(self, stream: Stream, t: float, text: str, tag: str | None) -> None:
        if stream.node in self.dead and t > self.dead[stream.node]:
            return
        self._order += 1
        self.end_s = max(self.end_s, t)
        self.lines[stream].append(Line(self.ns(t), self._order, text, tag))

    def kernel(self, node: Node, t: float, text: str | Iterable[str], tag: str | None = None) -> float:
        """The kernel of a node prints; several lines come some 100 us apart. Returns when it is done."""
        for one in [text] if isinstance(text, str) else text:
            self._add(Stream("kernel", node.name), t, one, tag)
            t += self.r.uniform(40e-6, 200e-6)
        return t

    def rank(self, rank: Rank, t: float, text: str | Iterable[str], tag: str | None = None) -> float:
        """A rank's process prints."""
        for one in [text] if isinstance(text, str) else text:
            self._add(Stream("rank", rank.node.name, rank=rank.rank), t, one, tag)
            t += self.r.uniform(20e-6, 300e-6)
        return t

    def agent(self, node: Node, t: float, text: str | Iterable[str], tag: str | None = None) -> float:
        """The launcher on a node prints."""
        for one in [text] if isinstance(text, str) else text:
            self._add(Stream("agent", node.name), t, one, tag)
            t += self.r.uniform(20e-6, 300e-6)
        return t

    def batch(self, t: float, text: str | Iterable[str], tag: str | None = None) -> float:
        """The job's script, srun and slurmstepd print into the job's output."""
        for one in [text] if isinstance(text, str) else text:
            self._add(Stream("batch", self.fleet.nodes[0].name), t, one, tag)
            t += self.r.uniform(20e-6, 300e-6)
        return t

    def service(
        self, node: Node | None, file: str, t: float, text: str | Iterable[str], tag: str | None = None
    ) -> None:
        """A service with a log of its own (or a person's command) prints; None: not on a node of the fleet."""
        for one in [text] if isinstance(text, str) else text:
            self._add(Stream("service", node.name if node else "", name=file), t, one, tag)

    # --- who -------------------------------------------------------------------------------------------------------

    @property
    def big(self) -> bool:
        """Whether lines must be few for each rank."""
        return len(self.fleet.ranks) > self.brief_above

    def pick(self, *, not_first_node: bool = False) -> Rank:
        """A rank that something happens to."""
        ranks = self.fleet.ranks
        if not_first_node and len(self.fleet.nodes) > 1:
            ranks = ranks[len(self.fleet.nodes[0].gpus) :]
        return self.r.choice(ranks)

    def who(self, rank: Rank, *, gpu: bool = True, pids: Iterable[int] = ()) -> Who:
        """A rank as a culprit; `pids` are other processes of it that may be named."""
        return Who(
            node=rank.node.name, aliases=self.aliases(rank.node), rank=rank.rank, local_rank=rank.local,
            pids=sorted({rank.pid, rank.host_pid, *pids}), pci_bus_id=rank.gpu.bdf if gpu else None,
            gpu_uuid=rank.gpu.uuid if gpu else None, serial=rank.gpu.serial if gpu else None,
            gpu_index=rank.gpu.index if gpu else None,
        )  # fmt: skip

    def node_as_culprit(self, node: Node, *, nic: Nic | None = None) -> Who:
        """A node as a culprit, without a rank."""
        return Who(
            node=node.name, aliases=self.aliases(node), nics=[nic.name, nic.netdev, nic.bdf] if nic is not None else []
        )

    def aliases(self, node: Node) -> list[str]:
        """Other names of the node: its short name, its address, its pod."""
        pod = {self.fleet.pod(node)} if self.fleet.job.scheduler == "kubernetes" and node.number >= 0 else set()
        return sorted({node.short, node.short_host, node.host, node.ip, *pod} - {node.name})
