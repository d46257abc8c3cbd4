"""What tells of a failure where nothing else does: an operation that failed, a process that its watcher misses."""

from typing import Final

from pipeline.core.chains import Resolved

# A collective failed, somebody waited in vain for what a worker had to say, or for the others at the start.
_RAISED: Final = ("torch.nccl.error", "vllm.engine_failed", "tcpstore.connect_timeout")
# A coordinator hears nothing more of a process.
_UNHEARD: Final = "jax.task_lost"
_HEARTBEAT: Final = "heartbeat"
# An actor ended that was not told to.
_ACTOR: Final = "ray.worker_died"
_TOLD: Final = "INTENDED"
# A worker of an engine ended. Also printed while the engine goes away: that it was needed shows who waits for it.
_WORKER: Final = "vllm.process_died"
_WAITS: Final = "vllm.block_wait"
_FOUND_DEAD: Final = "EngineDeadError"


def raised(items: list[Resolved]) -> tuple[list[Resolved], list[Resolved]]:
    """Lines by which the job failed, and those of them that say who is gone."""
    missed = any(
        item.episode.name == _WAITS or item.episode.attributes.get("exception") == _FOUND_DEAD for item in items
    )
    gone = [item for item in items if _is_gone(item, missed=missed)]
    return [*(item for item in items if item.episode.name in _RAISED), *gone], gone


def _is_gone(item: Resolved, *, missed: bool) -> bool:
    name, attributes = item.episode.name, item.episode.attributes
    if name == _UNHEARD:
        return _HEARTBEAT in attributes.get("why", "")
    if name == _ACTOR:
        return not attributes.get("exit", "").startswith(_TOLD)
    return name == _WORKER and missed
