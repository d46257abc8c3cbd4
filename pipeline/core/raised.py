"""What tells of a failure where nothing else does: an operation that failed, a process that its watcher misses."""

from typing import Final

from pipeline.core.chains import Resolved
from pipeline.core.derived.ranks import LISTED, UNHEARD
from pipeline.core.order import canonical, order
from pipeline.core.signs import WAITERS

# A collective failed, somebody waited in vain for what a worker had to say, or for the others at the start.
_RAISED: Final = (
    "torch.nccl.error",
    "vllm.engine_failed",
    "tcpstore.connect_timeout",
    "jax.barrier",
    "torch.unique_id.failed",
    "torch.monitored_barrier",
)
_HEARTBEAT: Final = "heartbeat"
# An actor ended that was not told to.
_ACTOR: Final = "ray.worker_died"
_TOLD: Final = "INTENDED"
# A worker of an engine ended. Also printed while the engine goes away: that it was needed shows who waits for it.
_WORKER: Final = "vllm.process_died"
_WAITS: Final = "vllm.block_wait"
_FOUND_DEAD: Final = "EngineDeadError"
# What CUDA says where a kernel of the process ended and the driver's own record would say by what: an access of the
# program, mostly, or a fault of the GPU. The process can go on with nothing on its GPU.
CUDA: Final = ("cuda.error", "nccl.cuda.failure")
_UNSAID: Final = frozenset(
    (
        "unspecified launch failure", "the launch timed out and was terminated", "unknown error",
        "Invalid access of peer GPU memory over nvlink or a hardware error", "CUDA_ERROR_CONTAINED",
        "CUDA_ERROR_LAUNCH_FAILED", "CUDA_ERROR_LAUNCH_TIMEOUT",
    )
)  # fmt: skip


def raised(items: list[Resolved]) -> tuple[list[Resolved], list[Resolved]]:
    """Lines by which the job failed, and those of them that say who is gone."""
    missed = any(
        item.episode.name == _WAITS or item.episode.attributes.get("exception") == _FOUND_DEAD for item in items
    )
    gone = [item for item in items if _is_gone(item, missed=missed)]
    failed = [item for item in items if item.episode.name in _RAISED or _is_unsaid(item)]
    return [*failed, *gone], gone or ended_by_cuda(items, [])


def ended_by_cuda(items: list[Resolved], failures: list[Resolved]) -> list[Resolved]:
    """The lines of the one process that CUDA failed in before anything else failed. Of several none is known to be the
    first, and who waited for others first was not waited for.
    """
    ended = [item for item in items if _is_unsaid(item)]
    waited = {rank for item in failures if item.episode.name in WAITERS for rank in item.ranks}
    if len({_who(item) for item in ended}) != 1 or any(item.ranks & waited for item in ended):
        return []
    first = min(ended, key=lambda item: canonical(item.episode.first)).episode.first
    return [] if any(order(one.episode.first, first) == "before" for one in failures) else ended


def _is_unsaid(item: Resolved) -> bool:
    said = item.episode.attributes
    return item.episode.name in CUDA and (said.get("error") or said.get("name")) in _UNSAID


def _who(item: Resolved) -> tuple[object, ...]:
    subject = item.subject
    return (item.ranks,) if item.ranks else (subject.node, subject.pid, subject.local_rank)


def _is_gone(item: Resolved, *, missed: bool) -> bool:
    name, attributes = item.episode.name, item.episode.attributes
    if name == UNHEARD:
        return _HEARTBEAT in attributes.get("why", "")
    if name == LISTED:
        return "id" in attributes or "first" in attributes or _HEARTBEAT in attributes.get("why", "")
    if name == _ACTOR:
        return not attributes.get("exit", "").startswith(_TOLD)
    return name == _WORKER and missed
