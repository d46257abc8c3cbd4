"""What NCCL prints, by version. Source: NVIDIA/nccl 2.14 to 2.28 (debug.cc, init.cc, misc/socket.cc, transport/net_ib*)."""

from random import Random
from typing import Final

from pipeline.drill.fleet import Fleet, Nic, Node, Rank
from pipeline.drill.prefixes import iso
from pipeline.drill.story import Story

_STATUS: Final = {4: "IBV_WC_LOC_PROT_ERR", 5: "IBV_WC_WR_FLUSH_ERR", 12: "IBV_WC_RETRY_EXC_ERR"}
_VENDOR: Final = {4: 81, 5: 249, 12: 129}
_HINT: Final = " (run with NCCL_DEBUG=INFO for details)"
RESULT_TEXT: Final = {
    1: ("unhandled cuda error", "ncclUnhandledCudaError: Call to CUDA function failed."),
    2: (
        "unhandled system error",
        "ncclSystemError: System call (e.g. socket, malloc) or external library call failed or device error. ",
    ),
    3: ("internal error", "ncclInternalError: Internal check failed."),
    6: (
        "remote process exited or there was a network error",
        "ncclRemoteError: A call failed possibly due to a network error or a remote process exiting prematurely.",
    ),
}


def prints(fleet: Fleet, level: str) -> bool:
    """Whether NCCL_DEBUG lets this level through."""
    return {"INFO": 3, "WARN": 2, "VERSION": 1, "": 0}[fleet.job.nccl_debug] >= {"INFO": 3, "WARN": 2, "VERSION": 1}[
        level
    ]


def _tid(rank: Rank, thread: int) -> int:
    return rank.pid + 200 + rank.local * 8 + thread


def info(story: Story, rank: Rank, t: float, text: str, tag: str | None = None, thread: int = 0) -> None:
    """An INFO line, where NCCL_DEBUG asks for it."""
    if prints(story.fleet, "INFO"):
        head = f"{rank.node.short_host}:{rank.pid}:{_tid(rank, thread)} [{rank.local}] NCCL INFO "
        story.rank(rank, t, head + text, tag)


def warn(story: Story, rank: Rank, t: float, where: str, text: str, tag: str | None = None, thread: int = 2) -> None:
    """A WARN line: an empty line, then the text; with a time stamp from 2.26."""
    if not prints(story.fleet, "WARN"):
        return
    stamp = f"[{iso(rank.node.clock, story.ns(t))}] " if story.fleet.versions.nccl >= (2, 26) else ""
    head = f"{stamp}{rank.node.short_host}:{rank.pid}:{_tid(rank, thread)} [{rank.local}] {where} NCCL WARN "
    story.rank(rank, t, "\n" + head + text, tag)


def net_file(fleet: Fleet) -> str:
    """Source file and line of the IB transport's complaints."""
    return "transport/net_ib.cc:" + str({14: 1295, 18: 1103, 19: 1270, 20: 1783}.get(fleet.versions.nccl[1], 2458))


def init(story: Story, rank: Rank, t: float, comm_id: str) -> None:
    """What a rank prints while it joins its first communicator."""
    fleet, v = story.fleet, story.fleet.versions.nccl
    world = len(fleet.ranks)
    if rank.rank == 0 and prints(fleet, "VERSION"):
        story.rank(rank, t, f"NCCL version {fleet.versions.nccl_text}+cuda12.{4 if v < (2, 23) else 8}")
    gpu, comm = rank.gpu, f"0x55{story.r.getrandbits(36):09x}0"
    if not story.big:
        info(
            story,
            rank,
            t + 0.1,
            f"Bootstrap : Using eth0:{rank.node.ip}<0>" if v < (2, 24) else f"Bootstrap: Using eth0:{rank.node.ip}<0>",
        )
        info(story, rank, t + 0.2, _network(rank, fleet))
        name = {"ib": "IB", "roce": "IB", "socket": "Socket"}[fleet.job.network]
        info(story, rank, t + 0.3, f"Using network {name}")
    call = "ncclCommInitRankConfig " if v >= (2, 23) else "ncclCommInitRank " if v >= (2, 21) else ""
    body = f"comm {comm} rank {rank.rank} nranks {world} cudaDev {rank.local} "
    if v >= (2, 18, 3):
        body += f"nvmlDev {gpu.index} "
    body += f"busId {gpu.nccl}"
    if v >= (2, 16):
        body += f" commId 0x{comm_id}"
    if v >= (2, 18, 3) and not story.big:
        info(story, rank, t + 0.4, f"{call}{body} - Init START", "place")
    if world <= 64 and rank.local < 2:
        info(story, rank, t + 0.8, f"Setting affinity for GPU {gpu.index} to ffffffff,00000000,ffffffff")
        peer = (rank.rank + len(rank.node.gpus)) % world
        info(
            story,
            rank,
            t + 1.1,
            f"Channel 00/0 : {rank.rank}[{rank.local}] -> {peer}[{rank.local}] [send] via {_via(fleet, rank)}",
        )
        info(story, rank, t + 1.4, "Connected all rings")
        info(story, rank, t + 1.5, "Connected all trees")
    info(story, rank, t + 1.9, f"{call}{body} - Init COMPLETE", "place")


def _network(rank: Rank, fleet: Fleet) -> str:
    if fleet.job.network == "socket":
        return f"NET/Socket : Using [0]eth0:{rank.node.ip}<0>"
    kind = "IB" if fleet.job.network == "ib" else "RoCE"
    used = " ".join(f"[{i}]{nic.name}:1/{kind}" for i, nic in enumerate(rank.node.nics))
    return f"NET/IB : Using {used} [RO]; OOB eth0:{rank.node.ip}<0>"


def _via(fleet: Fleet, rank: Rank) -> str:
    return "NET/Socket/0" if fleet.job.network == "socket" else f"NET/IB/{rank.local}/GDRDMA"


def completion_text(r: Random, fleet: Fleet, peer: Node, status: int, own: Nic, peer_nic: Nic, direction: str) -> str:
    """The body of a failed work completion."""
    v = fleet.versions.nccl
    address = f"{peer.ip}<{r.randrange(32_000, 61_000)}>"
    roce = fleet.job.network == "roce"
    own_gid, peer_gid = _v4(own, fleet), _v4(peer_nic, fleet)
    if v < (2, 20):
        text = f"NET/IB : Got completion from peer {address} with error {status}, opcode 0, len 0, vendor err {_VENDOR[status]}"
        if v >= (2, 18):
            text += f" ({direction})" + (f" localGid {own_gid} remoteGid {peer_gid}" if roce else "")
        return text
    colon = " :" if v < (2, 22) else ":"
    gids = f" localGid {own_gid} remoteGids{peer_gid}" if roce else ""
    if v < (2, 28):
        text = (
            f"NET/IB{colon} Got completion from peer {address} with status={status} opcode=0 len=0 vendor err "
            f"{_VENDOR[status]} ({direction}){gids}"
        )
        return text + (f" hca {own.name}" if v >= (2, 22) else "")
    return (
        f"NET/IB: Got completion from peer {address} with status={_STATUS[status]}({status}) opcode=IBV_WC_SEND(0) reqSize=0 "
        f"vendor_err={_VENDOR[status]} req_type={direction}{gids} hca {own.name}"
    )


def _v4(nic: Nic, fleet: Fleet) -> str:
    return f"::ffff:{nic.gid}" if fleet.job.network == "roce" and "." in nic.gid else nic.gid


def async_event(story: Story, rank: Rank, t: float, nic: Nic, event: str, code: int, tag: str | None) -> None:
    """A port's event as NCCL prints it."""
    v = story.fleet.versions.nccl
    if v < (2, 20):
        text = f"NET/IB : Got async event : {event}"
    elif v < (2, 23):
        text = f"NET/IB : {nic.name}:1 Got async event : {event}"
    elif v < (2, 28, 7):
        text = f"NET/IB : {nic.name}:1 Got async error event: {event}"
    else:
        text = f"NET/IB : {nic.name}:1 Got non-fatal async event: {event}({code})"
    warn(story, rank, t, net_file(story.fleet).split(":")[0] + ":147", text, tag, thread=1)


def closed_text(fleet: Fleet, r: Random, peer: Rank) -> str:
    """A peer's socket was closed: the body."""
    v = fleet.versions.nccl
    prefix = "Net : " if v < (2, 16) else "socketProgress: "
    return f"{prefix}Connection closed by remote peer {peer.node.host}<{r.randrange(32_000, 61_000)}>"


def reset_text(fleet: Fleet, r: Random, peer: Rank) -> str:
    """A peer's socket was reset: the body."""
    v = fleet.versions.nccl
    prefix = "Net : " if v < (2, 16) else "socketProgressOpt: "
    return f"{prefix}Call to recv from {peer.node.ip}<{r.randrange(32_000, 61_000)}> failed : Connection reset by peer"


def echo(story: Story, rank: Rank, t: float, code: int) -> None:
    """The way of an error up the calls, at INFO."""
    for file in (f"{net_file(story.fleet)}", "transport/net.cc:1298", "proxy.cc:694", "proxy.cc:874 [Progress Thread]"):
        where, _, thread = file.partition(" ")
        info(story, rank, t, f"{where} -> {code}{' ' + thread if thread else ''}", thread=3)
        t += 0.0002


def failure_text(fleet: Fleet, code: int, last_error: str) -> str:
    """The body of torch's exception for an NCCL result."""
    text, name = RESULT_TEXT[code]
    hint = "" if code == 6 or fleet.versions.nccl < (2, 18) else _HINT
    if code == 3 and fleet.versions.nccl >= (2, 18):
        hint = " - please report this issue to the NCCL developers"
    return f"{text}{hint}, NCCL version {fleet.versions.nccl_text}\n{name}\nLast error:\n{last_error}"
