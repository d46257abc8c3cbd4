"""What PyTorch prints: c10d's watchdog, exceptions, the store. By version.

Source: torch/csrc/distributed/c10d at 1.12, 2.0, 2.4, 2.7; public logs of the versions between.
"""

from dataclasses import dataclass
from random import Random
from typing import Final

from pipeline.drill.clocks import local
from pipeline.drill.fleet import Fleet, Rank
from pipeline.drill.prefixes import clock_time
from pipeline.drill.story import Story

_ADVICE: Final = (
    "CUDA kernel errors might be asynchronously reported at some other API call, so the stacktrace below might be incorrect.",
    "For debugging consider passing CUDA_LAUNCH_BLOCKING=1.",
    "Compile with `TORCH_USE_CUDA_DSA` to enable device-side assertions.",
)
_GENERIC: Final = (
    "This is most likely caused by incorrect usages of collectives, e.g., wrong sizes used across ranks, the order of "
    "collectives is not same for all ranks or the scheduled collective, for some reason, didn't run. Additionally, this can "
    "be caused by GIL deadlock or other reasons such as network errors or bugs in the communications library (e.g. NCCL), etc. "
)
_DOWN: Final = (
    "Some NCCL operations have failed or timed out. Due to the asynchronous nature of CUDA kernels, subsequent GPU operations "
    "might run on corrupted/incomplete data."
)
_PROCESS_DOWN: Final = "To avoid data inconsistency, we are taking the entire process down."


@dataclass(frozen=True)
class Work:
    """A collective."""

    seq: int
    op: str
    numel_in: int
    numel_out: int

    def text(self, fleet: Fleet) -> str:
        """As the watchdog prints it, with the time-out."""
        timeout_ms = fleet.job.timeout_s * 1000
        if fleet.versions.torch < (2, 1):
            return f"WorkNCCL(SeqNum={self.seq}, OpType={self.op}, Timeout(ms)={timeout_ms})"
        return (
            f"WorkNCCL(SeqNum={self.seq}, OpType={self.op}, NumelIn={self.numel_in}, NumelOut={self.numel_out}, "
            f"Timeout(ms)={timeout_ms})"
        )


def some_work(r: Random, world: int, seq: int) -> Work:
    """A collective such as training does."""
    size = r.choice((1, 16, 1024, 1_048_576, 46_797_824, 131_072_000))
    op = r.choice(("ALLREDUCE", "ALLREDUCE", "ALLREDUCE", "_ALLGATHER_BASE", "_REDUCE_SCATTER_BASE"))
    if op == "_ALLGATHER_BASE":
        return Work(seq, op, size, size * world)
    if op == "_REDUCE_SCATTER_BASE":
        return Work(seq, op, size * world, size)
    return Work(seq, op, size, size)


# --- headers ----------------------------------------------------------------------------------------------------------


def header(story: Story, rank: Rank, t: float, severity: str = "E", file: str = "ProcessGroupNCCL.cpp") -> str:
    """What torch's C++ puts in front of a line."""
    v = story.fleet.versions.torch
    number = 400 + (hash_of(file) + v[1] * 137) % 1600
    if v < (2, 2):
        return f"[{severity} {file}:{number}] "
    if v < (2, 4):
        return f"[rank{rank.rank}]:[{severity} {file}:{number}] "
    at, _ = local(rank.node.clock, story.ns(t))
    # The fraction is of another clock.
    fraction = rank.node.clock.kernel_ns(story.ns(t)) % 1_000_000_000
    day = f"{at.tm_mon}{at.tm_mday:02d}"
    return f"[rank{rank.rank}]:[{severity}{day} {clock_time(rank.node.clock, story.ns(t))}.{fraction:09d} {file}:{number}] "


def hash_of(text: str) -> int:
    """A number of a text, the same in every run."""
    return sum(ord(c) * (i + 1) for i, c in enumerate(text))


def _group(rank: Rank, v: tuple[int, ...]) -> str:
    if v < (2, 3):
        return f"[Rank {rank.rank}] "
    if v < (2, 4):
        return f"[PG 0 Rank {rank.rank}] "
    if v < (2, 5):
        return f"[PG 0 (default_pg) Rank {rank.rank}] "
    return f"[PG ID 0 PG GUID 0(default_pg) Rank {rank.rank}] "


def _say(story: Story, rank: Rank, t: float, text: str, tag: str | None = None, severity: str = "E") -> float:
    return story.rank(rank, t, header(story, rank, t, severity) + text, tag)


def python(story: Story, rank: Rank, t: float, lines: list[str], tag: str | None = None) -> float:
    """Lines of an uncaught exception: torch marks them with the rank since 2.2."""
    mark = f"[rank{rank.rank}]: " if story.fleet.versions.torch >= (2, 2) else ""
    return story.rank(rank, t, "\n".join(mark + line for line in lines), tag)


# --- exceptions ---------------------------------------------------------------------------------------------------------


def traceback(fleet: Fleet, frames: list[tuple[str, int, str, str]], error: list[str]) -> list[str]:
    """A traceback: (file, line, function, code) of each frame, outermost first."""
    lines = ["Traceback (most recent call last):"]
    for file, number, function, code in frames:
        lines += [f'  File "{file}", line {number}, in {function}', f"    {code}"]
    return [*lines, *error]


def step_frames(fleet: Fleet) -> list[tuple[str, int, str, str]]:
    """Where a training step fails."""
    site = "/opt/lib/python3.10/site-packages/torch"
    return [
        (f"/workspace/{fleet.job.script}", 245, "<module>", "main()"),
        (f"/workspace/{fleet.job.script}", 198, "main", "loss.backward()"),
        (f"{site}/_tensor.py", 492, "backward", "torch.autograd.backward("),
        (
            f"{site}/autograd/__init__.py",
            251,
            "backward",
            "Variable._execution_engine.run_backward(  # Calls into the C++ engine",
        ),
    ]


def cuda_error(story: Story, rank: Rank, t: float, text: str, tag: str | None = None) -> float:
    """A CUDA error reaches Python."""
    fleet = story.fleet
    kind = "torch.AcceleratorError" if fleet.versions.torch >= (2, 8) else "RuntimeError"
    lines = traceback(fleet, step_frames(fleet), [f"{kind}: CUDA error: {text}", *_ADVICE, ""])
    return python(story, rank, t, lines, tag)


def cuda_abort(story: Story, rank: Rank, t: float, text: str, tag: str | None = None) -> float:
    """The watchdog thread meets a CUDA error and takes the process down (exit code -6)."""
    fleet = story.fleet
    v = fleet.versions.torch
    name = "NCCL" if v < (2, 3) else "Process group"
    body = f"{name} watchdog thread terminated with exception: CUDA error: {text}"
    t = _say(story, rank, t, _group(rank, v) + "\n".join((body, *_ADVICE, "")), tag)
    thrown = "c10::AcceleratorError" if v >= (2, 8) else "c10::DistBackendError" if v >= (2, 2) else "c10::CUDAError"
    what = f"  what():  {_group(rank, v) if v >= (2, 2) else ''}{body if v >= (2, 2) else 'CUDA error: ' + text}"
    return story.rank(rank, t, ["terminate called after throwing an instance of '" + thrown + "'", what, *_ADVICE], tag)


def nccl_error(story: Story, rank: Rank, t: float, failure: str, tag: str | None = None) -> float:
    """An NCCL call failed and Python raises it (exit code 1)."""
    fleet = story.fleet
    v = fleet.versions.torch
    kind = "torch.distributed.DistBackendError" if v >= (2, 1) else "RuntimeError"
    where = f"../torch/csrc/distributed/c10d/ProcessGroupNCCL.cpp:{1100 + v[1] * 97}"
    c10d = "/opt/lib/python3.10/site-packages/torch/distributed/distributed_c10d.py"
    frames = [*step_frames(fleet)[:2], (c10d, 2219, "all_reduce", "work = group.allreduce([tensor], opts)")]
    lines = traceback(fleet, frames, f"{kind}: NCCL error in: {where}, {failure}".split("\n"))
    return python(story, rank, t, lines, tag)


def nccl_abort(story: Story, rank: Rank, t: float, failure: str, tag: str | None = None) -> float:
    """The watchdog sees NCCL's error and takes the process down (exit code -6)."""
    v = story.fleet.versions.torch
    t = _down(story, rank, t)
    name = "NCCL" if v < (2, 3) else "Process group"
    body = f"{name} watchdog thread terminated with exception: NCCL error: {failure}"
    t = _say(story, rank, t, _group(rank, v) + body, tag)
    if story.big:
        return t
    thrown = "c10::DistBackendError" if v >= (2, 2) else "std::runtime_error"
    return story.rank(
        rank,
        t,
        [
            "terminate called after throwing an instance of '" + thrown + "'",
            f"  what():  {_group(rank, v)}{body.splitlines()[0]}",
        ],
    )


def _down(story: Story, rank: Rank, t: float) -> float:
    v = story.fleet.versions.torch
    mark = f"[Rank {rank.rank}] " if v >= (2, 2) else ""
    if not story.big:
        t = _say(story, rank, t, mark + _DOWN)
    return _say(story, rank, t, mark + _PROCESS_DOWN)


# --- the watchdog -------------------------------------------------------------------------------------------------------


def watchdog_timeout(
    story: Story, rank: Rank, stall: float, work: Work, *, enqueued: int, completed: int, told_by: int | None = None,
    tag: str | None = None,
) -> float:  # fmt: skip
    """A collective that a rank entered at `stall` timed out; `told_by` said so before. Returns when the process aborts."""
    fleet = story.fleet
    v = fleet.versions.torch
    ran_ms = fleet.job.timeout_s * 1000 + story.r.randrange(1, 110)
    t = stall + ran_ms / 1000
    body = f"Watchdog caught collective operation timeout: {work.text(fleet)} ran for {ran_ms} milliseconds before timing out."
    began = t
    t = _say(story, rank, t, f"[Rank {rank.rank}] {body}", tag)
    if v >= (2, 6):
        t = _say(
            story,
            rank,
            t,
            f"{_group(rank, v)} failure detected by watchdog at work sequence id: {work.seq} PG status: last "
            f"enqueued work: {enqueued}, last completed work: {completed}",
            tag,
        )
    elif v >= (2, 4):
        t = _say(
            story,
            rank,
            t,
            f"{_group(rank, v)}Exception (either an error or timeout) detected by watchdog at work: {work.seq}, "
            f"last enqueued NCCL work: {enqueued}, last completed NCCL work: {completed}.",
            tag,
        )
    if v >= (2, 4):
        t = _dump(story, rank, t, enqueued, completed, told_by)
    t = _down(story, rank, max(t, began + story.r.uniform(0.01, 0.4)))
    if v >= (2, 4) and not story.big:
        t = _say(
            story,
            rank,
            t,
            f"{_group(rank, v)}Process group watchdog thread terminated with exception: [Rank {rank.rank}] {body}",
        )
    elif not story.big:
        name = "NCCL" if v < (2, 3) else "Process group"
        t = _say(
            story,
            rank,
            t,
            f"{_group(rank, v)}{name} watchdog thread terminated with exception: [Rank {rank.rank}] {body}",
        )
    if not story.big:
        thrown = "c10::DistBackendError" if v >= (2, 2) else "std::runtime_error"
        t = story.rank(
            rank,
            t,
            [
                f"terminate called after throwing an instance of '{thrown}'",
                f"  what():  {_group(rank, v) if v >= (2, 2) else ''}[Rank {rank.rank}] {body}",
            ],
        )
    return t + story.r.uniform(0.05, 0.8)


def _dump(story: Story, rank: Rank, t: float, enqueued: int, completed: int, told_by: int | None) -> float:
    v = story.fleet.versions.torch
    group = _group(rank, v)
    if story.big and rank.rank % 64:
        return t
    if v >= (2, 6) and told_by is None:
        t = _say(
            story,
            rank,
            t,
            "Stack trace of the failed collective not found, potentially because FlightRecorder is disabled. "
            "You can enable it by setting TORCH_NCCL_TRACE_BUFFER_SIZE to a non-zero value.",
        )
    works = f"ast enqueued NCCL work: {enqueued}, last completed NCCL work: {completed}."
    if v < (2, 5):
        text = (
            f"Received a global dump signal from rank {told_by}, and will start to dump the debug info. L{works}"
            if told_by is not None
            else f"Received a dump signal from this local rank and will start to dump the debug info. L{works}"
        )
    else:
        source = "from this local rank" if told_by is None else f"from  rank {told_by}"
        text = f"Received a dump signal due to a collective timeout {source} and we will try our best to dump the debug info. L{works}{_GENERIC}"
        first = (
            "First PG on this rank to signal dumping."
            if told_by is None
            else "Observed flight recorder dump signal from another rank via TCPStore."
        )
        t = _say(story, rank, t, group + first)
    t = _say(story, rank, t, group + text)
    return _say(
        story,
        rank,
        t,
        f"{group}ProcessGroupNCCL preparing to dump debug info.{' Include stack trace: 1' if v >= (2, 5) else ''}",
    )


def heartbeat_stuck(story: Story, rank: Rank, began: float, tag: str | None = None) -> float:
    """The watchdog thread itself hung in a CUDA call; returns when the process aborts."""
    v = story.fleet.versions.torch
    wait_s = 600 if v < (2, 5) else 480
    t = began + wait_s + story.r.uniform(0, 2)
    group = _group(rank, v)
    if v < (2, 4):
        t = _say(
            story,
            rank,
            t,
            f"{group}Heartbeat monitor timed out! Process will be terminated after dumping debug info. workMetaList_.size()=3",
            tag,
            "F",
        )
        return t + 1
    t = _say(
        story,
        rank,
        t,
        f"{group}ProcessGroupNCCL's watchdog got stuck for {wait_s} seconds without making progress in monitoring "
        "enqueued collectives. This typically indicates a NCCL/CUDA API (e.g., CudaEventDestroy) hang blocking the watchdog, and "
        "could be triggered by another thread holding the GIL inside a CUDA api (for example, CudaEventDestroy), or other "
        "deadlock-prone behaviors.If you suspect the watchdog is not actually stuck and a longer timeout would help, you can either "
        f"increase the timeout (TORCH_NCCL_HEARTBEAT_TIMEOUT_SEC) to a larger value or disable the heartbeat monitor "
        f"(TORCH_NCCL_ENABLE_MONITORING=0).If either of aforementioned helps, feel free to file an issue to PyTorch about the short "
        f"timeout or false positive abort; otherwise, please attempt to debug the hang. workMetaList_.size()=3",
        tag,
    )
    t += story.r.uniform(15, 60)
    return (
        _say(
            story,
            rank,
            t,
            f"{group}Terminating the process after attempting to dump debug info, due to ProcessGroupNCCL watchdog hang.",
            tag,
            "F",
        )
        + 0.2
    )


def store_gone(story: Story, rank: Rank, t: float, root: Rank) -> float:
    """The key-value store died with the node of rank 0."""
    v = story.fleet.versions.torch
    if v < (2, 4):
        lines = traceback(
            story.fleet,
            step_frames(story.fleet)[:2],
            [
                "torch.distributed.DistNetworkError: Connection reset by peer"
                if v >= (2, 2)
                else "RuntimeError: Connection reset by peer",
            ],
        )
        return python(story, rank, t, lines)
    said = (
        "failed to recv, got 0 bytes"
        if v < (2, 8)
        else "Failed to recv, got 0 bytes. Connection was likely closed. Did the remote server shutdown or crash?"
    )
    if v >= (2, 6):
        r = story.r
        t = story.rank(
            rank,
            t,
            header(story, rank, t, "W", "TCPStore.cpp")
            + f"[c10d] recvValue failed on SocketImpl(fd={r.randrange(40, 99)}, "
            f"addr=[{rank.node.host}]:{r.randrange(32_000, 61_000)}, remote=[{root.node.host}]:29500): {said}",
        )
    return _say(
        story,
        rank,
        t,
        f'{_group(rank, v)}Failed to check the "should dump" flag on TCPStore, (maybe TCPStore server has shut '
        f"down too early), with error: {said}",
        severity="W",
    )
