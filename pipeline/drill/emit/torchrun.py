"""What the elastic agent (torchrun) prints on each node. Source: torch/distributed/elastic at 1.13 to 2.9."""

import signal
from collections.abc import Mapping, Sequence

from pipeline.drill.clocks import local
from pipeline.drill.fleet import Node, Rank
from pipeline.drill.prefixes import iso
from pipeline.drill.story import Story

_API = "torch.distributed.elastic.multiprocessing.api"
_NAMES = {"W": "WARNING", "E": "ERROR", "I": "INFO"}


def _say(
    story: Story, node: Node, t: float, severity: str, text: str, tag: str | None = None, module: str = _API
) -> float:
    v, clock = story.fleet.versions.torch, node.clock
    if v < (2, 1):
        head = f"{_NAMES[severity]}:{module}:"
    elif v < (2, 4):
        head = f"[{iso(clock, story.ns(t), digits=3, comma=',')}] {module}: [{_NAMES[severity]}] "
    else:
        at, rest = local(clock, story.ns(t))
        pid = story.fleet.ranks_on(node)[0].pid - 40
        head = (
            f"{severity}{at.tm_mon:02d}{at.tm_mday:02d} {at.tm_hour:02d}:{at.tm_min:02d}:{at.tm_sec:02d}.{rest // 1_000_000:03d}000 "
            f"{pid} {module.replace('.', '/')}.py:{860 + v[1]}] "
        )
    return story.agent(node, t, head + text, tag)


def joined(story: Story, node: Node, t: float, attempt: int = 0) -> None:
    """All agents met; what this one got."""
    ranks = story.fleet.ranks_on(node)
    numbers = [rank.rank for rank in ranks]
    first = story.fleet.nodes[0]
    world = len(story.fleet.ranks)
    text = "\n".join(
        (
            "[default] Rendezvous complete for workers. Result:",
            f"  restart_count={attempt}",
            f"  master_addr={first.host}",
            "  master_port=29500",
            f"  group_rank={node.number}",
            f"  group_world_size={len(story.fleet.nodes)}",
            f"  local_ranks={[rank.local for rank in ranks]}",
            f"  role_ranks={numbers}",
            f"  global_ranks={numbers}",
            f"  role_world_sizes={[world] * len(ranks)}",
            f"  global_world_sizes={[world] * len(ranks)}",
            "",
        )
    )
    _say(story, node, t, "I", text, "place", "torch.distributed.elastic.agent.server.api")


def failed(
    story: Story,
    node: Node,
    first: Rank,
    seen: float,
    exits: Mapping[int, tuple[float, int]],
    *,
    tag: str | None = None,
) -> float:
    """Workers of a node failed: SIGTERM to the others, then the table. `exits`: local rank to time and code."""
    t = seen
    v = story.fleet.versions.torch
    others = [rank for rank in story.fleet.ranks_on(node) if rank.local not in exits]
    for rank in others:
        t = _say(story, node, t, "W", f"Sending process {rank.pid} closing signal SIGTERM")
    stubborn = others if others and story.r.random() < 0.25 and not story.big else []
    if stubborn:
        t += 30
        kill = (
            "Signals.SIGTERM, forcefully exiting via Signals.SIGKILL" if v >= (2, 0) else "15, forcefully exiting via 9"
        )
        for rank in stubborn:
            t = _say(story, node, t, "W", f"Unable to shutdown process {rank.pid} via {kill}")
    else:
        t += story.r.uniform(0.2, 2.5)
    code = exits[first.local][1]
    t = _say(
        story,
        node,
        t,
        "E",
        f"failed (exitcode: {code}) local_rank: {first.local} (pid: {first.pid}) of binary: {story.fleet.job.python}",
        tag,
    )
    # The table names whoever had failed when the agent looked; lately also those that it stopped itself.
    ended = {**{rank.local: (t, -9 if stubborn else -15) for rank in others if v >= (2, 9)}, **exits}
    return _table(story, node, first, t + 0.05, ended, tag)


def _table(
    story: Story, node: Node, first: Rank, t: float, ended: Mapping[int, tuple[float, int]], tag: str | None
) -> float:
    job = story.fleet.job
    lines = [
        "Traceback (most recent call last):",
        f'  File "{job.python.rsplit("/", 1)[0]}/torchrun", line 8, in <module>',
        "    sys.exit(main())",
        '  File "/opt/lib/python3.10/site-packages/torch/distributed/launcher/api.py", line 264, in launch_agent',
        "    raise ChildFailedError(",
        "torch.distributed.elastic.multiprocessing.errors.ChildFailedError: ",
        "=" * 60,
        f"{job.script} FAILED",
        "-" * 60,
        "Failures:",
    ]
    by_local = {rank.local: rank for rank in story.fleet.ranks_on(node)}
    rest = [local_rank for local_rank in sorted(ended) if local_rank != first.local]
    number = 1
    if story.big:
        rest = rest[:1]
    for local_rank in rest:
        lines += _row(story, node, by_local[local_rank], number, ended[local_rank])
        number += 1
    if not rest:
        lines.append("  <NO_OTHER_FAILURES>")
    lines += [
        "-" * 60,
        "Root Cause (first observed failure):",
        *_row(story, node, first, 0, ended[first.local]),
        "=" * 60,
    ]
    return story.agent(node, t, "\n".join(lines), tag)


def _row(story: Story, node: Node, rank: Rank, number: int, ended: tuple[float, int]) -> Sequence[str]:
    when, code = ended
    name = signal.Signals(-code).name if code < 0 else ""
    back = (
        f"Signal {-code} ({name}) received by PID {rank.pid}"
        if code < 0
        else "To enable traceback see: https://pytorch.org/docs/stable/elastic/errors.html"
    )
    at = iso(node.clock, story.ns(when)).replace(" ", "_")
    return (
        f"[{number}]:",
        f"  time      : {at}",
        f"  host      : {node.host}",
        f"  rank      : {rank.rank} (local_rank: {rank.local})",
        f"  exitcode  : {code} (pid: {rank.pid})",
        "  error_file: <N/A>",
        f"  traceback : {back}",
    )


def stopped(story: Story, node: Node, t: float, number: int = 15, tag: str | None = None) -> float:
    """The agent itself got a signal and stops its workers."""
    v = story.fleet.versions.torch
    name = signal.Signals(number).name
    said = (
        f"Received {number} death signal, shutting down workers"
        if v < (2, 3)
        else f"Received Signals.{name} death signal, shutting down workers"
    )
    t = _say(story, node, t, "W", said, tag, "torch.distributed.elastic.agent.server.api")
    for rank in story.fleet.ranks_on(node):
        t = _say(story, node, t, "W", f"Sending process {rank.pid} closing signal {name}")
    pid = story.fleet.ranks_on(node)[0].pid - 40
    lines = [
        "Traceback (most recent call last):",
        f'  File "{story.fleet.job.python.rsplit("/", 1)[0]}/torchrun", line 8, in <module>',
        "    sys.exit(main())",
        f"{_API}.SignalException: Process {pid} got signal: {number}",
    ]
    return story.agent(node, t + story.r.uniform(0.5, 3), "\n".join(lines), tag)


def lost_store(story: Story, node: Node, t: float) -> float:
    """The agent cannot reach the rendezvous store any more."""
    pid = story.fleet.ranks_on(node)[0].pid - 40
    module = "torch.distributed.elastic.rendezvous.dynamic_rendezvous"
    return _say(
        story,
        node,
        t,
        "W",
        f"The node '{node.host}_{pid}_0' has failed to send a keep-alive heartbeat to the rendezvous "
        f"'{story.fleet.job.job_id}' due to an error of type RendezvousConnectionError.",
        None,
        module,
    )


def waiting(story: Story, node: Node, t: float, joined_nodes: int, wait_s: int, tag: str | None = None) -> None:
    """Too few agents came."""
    text = f"Timed out after {wait_s + 1} seconds waiting for clients. {joined_nodes}/{len(story.fleet.nodes)} clients joined."
    lines = [
        "Traceback (most recent call last):",
        f'  File "{story.fleet.job.python.rsplit("/", 1)[0]}/torchrun", line 8, in <module>',
        "    sys.exit(main())",
        f"torch.distributed.DistStoreError: {text}",
    ]
    story.agent(node, t, "\n".join(lines), tag)
