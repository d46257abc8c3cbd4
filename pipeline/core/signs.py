"""What the lines of a job that failed say of it, by the names of their events."""

from typing import Final

from pipeline.core.derived.flight import FAILURES as FLIGHT_FAILURES

# Evidence that a job failed, beyond doubt: without one of these, symptoms alone open no incident.
FAILURES: Final = frozenset(
    (
        "nccl.watchdog.timeout", "nccl.watchdog.exception", "nccl.watchdog.stuck", "elastic.failed",
        "elastic.rank_failed", "gloo.timeout", "process.abort", "slurm.node_failure", *FLIGHT_FAILURES,
    )
)  # fmt: skip
# What a rank prints when it waited in vain: who prints it did not stop the others.
WAITERS: Final = frozenset(("nccl.watchdog.timeout", "gloo.timeout", "torch.comm.aborted"))
# What says that a collective stood still.
STALLS: Final = WAITERS | {"nccl.watchdog.exception", "nccl.watchdog.stuck"}
# What tells that a rank was waiting.
REPORTS: Final = WAITERS | {"nccl.watchdog.work", "nccl.wait.timeout", "nccl.watchdog.down"}
# What is printed while a stall lasts: what ended before it was not waited for.
DURING: Final = STALLS | {"nccl.wait.timeout", "torch.abort.timeout", "nccl.watchdog.work"}
# What a rank prints of the death of another one.
SURVIVORS: Final = WAITERS | {"nccl.socket.closed", "gloo.closed", "gloo.reset"}
# Lines by which somebody speaks of other ranks.
OF_OTHERS: Final = ("elastic.", "slurm.", "launcher.", "placement.", "collective.", "torch.remote_error")
# What a process prints of its own end, without saying what led to it.
LAST_WORDS: Final = frozenset(("cuda.error", "nccl.cuda.failure", "python.exception", "process.abort"))
# What a rank prints when another one is gone. The store goes with the process that keeps it.
LOST_A_PEER: Final = frozenset(
    ("nccl.socket.closed", "gloo.closed", "gloo.reset", "torch.nccl.error", "tcpstore.error")
)
