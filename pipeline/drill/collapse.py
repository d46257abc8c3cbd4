"""How the rest of a job ends once a rank failed or stands still: what real jobs print then."""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Literal

from pipeline.drill.emit import kube, nccl, slurm, torch, torchrun
from pipeline.drill.emit.torch import Work
from pipeline.drill.fleet import Node, Rank
from pipeline.drill.story import Story

# How ranks on other nodes learn of it: by their watchdog, a broken connection, or a launcher that stops all.
How = Literal["watchdog", "remote", "killed"]


@dataclass(frozen=True)
class Exit:
    """A process ended. Codes below zero are signals."""

    rank: Rank
    at: float
    code: int


@dataclass
class Fall:
    """One collapse. `exits` are the first to end; `hung` stand still and say nothing; nodes in `lost` are gone."""

    story: Story
    stall: float
    work: Work
    exits: Sequence[Exit] = ()
    hung: Sequence[Rank] = ()
    lost: Sequence[Node] = ()
    how: How = "watchdog"
    tag: str = "peers"
    exit_tag: str = "exit"

    def __post_init__(self) -> None:
        """Whoever ended or hangs reports nothing more."""
        self.ended: dict[int, tuple[float, int]] = {e.rank.rank: (e.at, e.code) for e in self.exits}
        self.silent = {rank.rank for rank in self.hung} | set(self.ended)
        self.gone: set[str] = {node.name for node in self.lost}
        self.agents: dict[str, float] = {}

    def run(self) -> float:
        """Let it fall. Returns when the last line of it was printed."""
        for node in self._nodes_of(e.rank for e in self.exits):
            self._node_ends(node, tag=self.exit_tag)
        reporting = [
            rank for rank in self.story.fleet.ranks if rank.rank not in self.silent and rank.node.name not in self.gone
        ]
        if self.how == "watchdog":
            self._store(reporting)
            self._watchdogs(reporting)
        elif self.how == "remote":
            self._remote(reporting)
        if self.how == "killed" and self.story.fleet.job.launcher == "torchrun":
            self._stopped()
            return self._scheduler()
        return self.finish()

    def finish(self) -> float:
        """Launchers notice whoever ended, and the scheduler takes down the rest."""
        for node in self._nodes_of(
            rank for rank in self.story.fleet.ranks if rank.rank in self.ended and rank.node.name not in self.gone
        ):
            self._node_ends(node)
        return self._scheduler()

    # --- nodes --------------------------------------------------------------------------------------------------------

    def _nodes_of(self, ranks: Iterable[Rank]) -> list[Node]:
        found = {rank.node.name: rank.node for rank in ranks}
        return [node for name, node in found.items() if name not in self.agents]

    def _node_ends(self, node: Node, tag: str | None = None) -> None:
        """The launcher notices that ranks of a node ended, and stops the others there."""
        story, ranks = self.story, self.story.fleet.ranks_on(node)
        ended = {rank.local: self.ended[rank.rank] for rank in ranks if rank.rank in self.ended}
        first = min(
            (rank for rank in ranks if rank.local in ended), key=lambda rank: (ended[rank.local][0], rank.local)
        )
        when = ended[first.local][0]
        if story.fleet.job.launcher == "srun":
            self.agents[node.name] = when
            story_tasks = [
                rank.rank for rank in ranks if rank.local in ended and ended[rank.local][1] == ended[first.local][1]
            ]
            slurm.task_failed(story, when + story.r.uniform(0.1, 2), node, story_tasks, ended[first.local][1], tag)
            return
        poll_s = 5.0 if story.fleet.versions.torch < (2, 4) else 0.1
        seen = when + story.r.uniform(0, poll_s)
        early = {local: end for local, end in ended.items() if end[0] <= seen}
        done = torchrun.failed(story, node, first, seen, early, tag=tag)
        self.agents[node.name] = done
        self.silent |= {rank.rank for rank in ranks}

    def _stopped(self) -> None:
        """Somebody stops every other agent with SIGTERM."""
        story = self.story
        when = max([*self.agents.values(), self.stall]) + story.r.uniform(0.5, 4)
        for node in story.fleet.nodes:
            if node.name not in self.agents and node.name not in self.gone:
                self.agents[node.name] = torchrun.stopped(story, node, when + story.r.uniform(0, 1.5))

    # --- what ranks see ----------------------------------------------------------------------------------------------

    def _store(self, reporting: Sequence[Rank]) -> None:
        """The store of a torchrun job lives in the first agent."""
        story = self.story
        first = story.fleet.nodes[0]
        died = self.agents.get(first.name)
        if died is None or story.fleet.job.launcher != "torchrun" or story.fleet.versions.torch < (2, 4):
            return
        for rank in reporting if not story.big else reporting[::32]:
            torch.store_gone(story, rank, died + story.r.uniform(0.2, 20), story.fleet.ranks[0])

    def _watchdogs(self, reporting: Sequence[Rank]) -> None:
        story, work = self.story, self.work
        ahead = story.r.choice((0, 0, 1, 5, 12))
        told_by: int | None = None
        entered = {rank.rank: self.stall + abs(story.r.gauss(0.1, 0.15)) for rank in reporting}
        for rank in sorted(reporting, key=lambda rank: entered[rank.rank]):
            aborted = torch.watchdog_timeout(
                story,
                rank,
                entered[rank.rank],
                work,
                enqueued=work.seq + ahead,
                completed=work.seq - 1,
                told_by=told_by,
                tag=self.tag,
            )
            told_by = rank.rank if told_by is None else told_by
            self.ended[rank.rank] = (aborted, -6)

    def _remote(self, reporting: Sequence[Rank]) -> None:
        """Connections to who died break: sockets at once, InfiniBand when the card stops trying."""
        story, fleet = self.story, self.story.fleet
        dead = self.exits[0].rank if self.exits else fleet.ranks_on(self.lost[0])[0]
        over_ib = fleet.job.network != "socket"
        neighbours = [
            rank for rank in reporting if rank.local == dead.local and abs(rank.node.number - dead.node.number) <= 1
        ]
        began = max((e.at for e in self.exits), default=self.stall)
        for rank in reporting:
            near = rank in neighbours
            wait = fleet.job.ib_timeout_s * story.r.uniform(0.9, 1.2) if over_ib else story.r.uniform(0.2, 3)
            t = began + wait + (0 if near else story.r.uniform(0.5, 6))
            if near and over_ib:
                text = nccl.completion_text(
                    story.r, fleet, dead.node, 12, rank.nic(), dead.nic(), story.r.choice(("Send", "Recv"))
                )
                where = nccl.net_file(fleet)
            elif story.r.random() < 0.6:
                text, where = nccl.closed_text(fleet, story.r, dead), "misc/socket.cc:58"
            else:
                text, where = nccl.reset_text(fleet, story.r, dead), "misc/socket.cc:538"
            if near or not story.big or rank.rank % 16 == 0:
                nccl.warn(story, rank, t, where, text, self.tag)
                nccl.echo(story, rank, t + 0.001, 6)
            aborted = torch.nccl_abort(
                story, rank, t + story.r.uniform(0.01, 1), nccl.failure_text(fleet, 6, text), self.tag
            )
            self.ended[rank.rank] = (aborted + story.r.uniform(0.05, 0.5), -6)

    # --- the scheduler -----------------------------------------------------------------------------------------------

    def _scheduler(self) -> float:
        story, job = self.story, self.story.fleet.job
        ends = [*self.agents.values(), *(at for at, _ in self.ended.values())]
        t = max(ends, default=self.stall) + story.r.uniform(0.3, 3)
        if job.scheduler == "slurm":
            self._slurm(t)
        elif job.scheduler == "kubernetes":
            for name, when in list(self.agents.items())[:8]:
                node = next(node for node in story.fleet.nodes if node.name == name)
                kube.event(
                    story,
                    when + 1,
                    "Warning",
                    "BackOff",
                    f"pod/{kube.pod_of(story, node)}",
                    f"Back-off restarting failed container pytorch in pod {kube.pod_of(story, node)}_ml",
                )
        return t

    def _slurm(self, t: float) -> None:
        story, job = self.story, self.story.fleet.job
        if job.launcher == "torchrun":
            for node in story.fleet.nodes[: 8 if story.big else None]:
                if node.name in self.agents:
                    slurm.task_failed(story, self.agents[node.name] + story.r.uniform(0.1, 1), node, [node.number], 1)
        slurm.terminating(story, t)
        slurm.step_ended(story, t + 0.1)
        if job.launcher == "srun":
            for node in story.fleet.nodes[: 8 if story.big else None]:
                if node.name not in self.agents and node.name not in self.gone:
                    slurm.task_failed(story, t + 1, node, [rank.rank for rank in story.fleet.ranks_on(node)], -15)


def some_how(story: Story, *, quick: bool = True) -> How:
    """One of the ways that fit the job: a broken connection needs peers on other nodes."""
    ways: list[How] = ["watchdog", "watchdog"]
    if quick and len(story.fleet.nodes) > 1:
        ways += ["remote", "remote"]
    if quick and story.fleet.job.scheduler != "none":
        ways.append("killed")
    return story.r.choice(ways)
