"""What one line says of the progress of a job, and the pace of one writer of such lines.

Marks are lines with a step, bars, and annotations (`rootrank: step=120 phase=train`). Times are reference time in ns.
"""

from collections.abc import Mapping
from math import ceil, log2
from typing import Final

from msgspec import Struct, field

from schemas.records import Event

SECOND_NS: Final = 1_000_000_000
# A step with a loss that is no number is one too.
MARKS: Final = frozenset(("train.step", "train.mark", "progress.bar", "train.nan", "train.overflow"))

# What a kernel says of a process that hangs.
HANGS: Final = frozenset(("host.hung_task",))
# Marks that stopped: told by no line, but by the fold of marks.
STALLED: Final = "train.stalled"
# The source of marks that come as records, not as lines.
RECORDS: Final = "annotation"

# --- limits -------------------------------------------------------------------------------------------------------

LEAST_NS: Final = 120 * SECOND_NS
SLOW_FACTOR: Final = 3
# The slow-step time is what one gap in twenty exceeds; while fewer gaps than this are known, the job is starting.
SLOW_SHARE: Final = 0.95
MIN_GAPS: Final = 4
# A first step, a compilation, a phase of which nothing is known.
UNKNOWN_NS: Final = 1_800 * SECOND_NS
# A pause from which the job came back once must not be mistaken again; what is read late is waited for.
BEFORE_FACTOR: Final = 1.5
MAX_LAG_NS: Final = 1_800 * SECOND_NS

# Recent gaps weigh more: beyond so many, all counts are halved.
MAX_GAPS_KEPT: Final = 512
BUCKETS_PER_OCTAVE: Final = 8

_PHASE_OF: Final[Mapping[str, str]] = {
    "checkpoint.started": "checkpoint_save", "checkpoint.scheduled": "checkpoint_save",
    "checkpoint.progress": "checkpoint_save", "checkpoint.saved": "checkpoint_save",
    "checkpoint.loaded": "checkpoint_load", "train.phase": "evaluation", "train.start": "init", "nccl.init": "init",
    "elastic.rendezvous": "init", "elastic.launch": "init", "elastic.joined": "init", "tcpstore.joining": "init",
    "data.preprocess": "init", "data.download": "init",
}  # fmt: skip
_STATED: Final = frozenset(("init", "compile", "checkpoint_save", "checkpoint_load", "evaluation"))
# Bars with such a first word.
_EVALUATES: Final = ("valid", "eval", "test", "predict", "sanity")
# What says by itself that the job, or a process of it, ends or has failed.
_ENDS: Final = frozenset(
    (
        "train.end", "train.interrupted", "nccl.end", "process.abort", "launcher.done", "launcher.exit",
        "launcher.rank_failed", "launcher.aborted", "launcher.daemon_lost", "elastic.succeeded",
        "elastic.failed", "elastic.rank_failed", "elastic.group_failed", "elastic.signal", "elastic.terminate",
        "elastic.kill", "elastic.shutdown_failed", "slurm.cancelled", "slurm.cancel_request", "slurm.task_exit",
        "slurm.task_ended", "slurm.job_end", "slurm.step_aborted", "slurm.interrupt", "slurm.node_failure",
        "job.ended", "job.preempted", "job.failed", "job.evicted", "job.restarting", "container.exited",
        "container.teardown", "pod.evicted", "pod.deadline", "pod.node_shutdown", "service.exited",
        "service.killed", "ray.training_failed", "ray.workers_crashed", "nccl.watchdog.timeout",
        "nccl.watchdog.exception", "nccl.watchdog.stuck", "nccl.watchdog.down", "nccl.wait.timeout",
        "torch.monitored_barrier", "torch.comm.aborted", "gloo.timeout",
    )
)  # fmt: skip


# --- what one event says --------------------------------------------------------------------------------------------


def ends(event: Event) -> bool:
    """Whether the job says that it, or a process of it, ends or has failed."""
    return event.name in _ENDS or (event.name == "train.mark" and event.attributes.get("phase") == "shutdown")


def phase_of(event: Event) -> str:
    """The known phase that a line is a sign of; empty where it is none."""
    name, attributes = event.name, event.attributes
    if name == "train.mark":
        stated = attributes.get("phase", "")
        return stated if stated in _STATED else ""
    if name == "train.phase" and attributes.get("phase") == "compile":
        return "compile"
    if name == "progress.bar":
        return "evaluation" if attributes.get("what", "").lower().startswith(_EVALUATES) else ""
    if name == "checkpoint.progress" and attributes.get("what") == "load":
        return "checkpoint_load"
    return _PHASE_OF.get(name, "")


def position(event: Event) -> tuple[int | None, int | None]:
    """How far the job is, and where it ends, in steps of its own."""
    said = event.attributes
    return _number(said.get("step") or said.get("done")), _number(said.get("total"))


def _counts(event: Event) -> str:
    """What the steps are counted within: an epoch, or what a bar is of."""
    return event.attributes.get("epoch") or event.attributes.get("what", "")


def _number(text: str | None) -> int | None:
    return int(text) if text and len(text) < 16 and text.isascii() and text.isdigit() else None


def writer_of(event: Event) -> str:
    """What tells the writers of marks apart: node, source, and the rank or task that the line's prefixes say."""
    printer = event.printer
    said = (event.node, event.source, event.subject.rank, printer.task, printer.local_rank)
    return "\x1f".join("" if part is None else str(part) for part in said)


def _lag_ns(event: Event) -> int:
    """How long after its stamp a line was read; 0 where nobody says."""
    if not event.observed_time_unix_nano or event.raw_ns is None:
        return 0
    lag_ns = event.observed_time_unix_nano - event.raw_ns - event.resolution_ns
    return max(0, min(lag_ns, MAX_LAG_NS))


# --- the pace of one writer -----------------------------------------------------------------------------------------


class Gaps(Struct, array_like=True):
    """How long gaps were, as counts of buckets 9 % wide: bucket b ends at 2**(b/8) s."""

    counts: dict[int, int] = field(default_factory=dict)

    def add(self, gap_ns: int) -> None:
        """Count one gap."""
        bucket = ceil(BUCKETS_PER_OCTAVE * log2(max(gap_ns / SECOND_NS, 0.01)))
        self.counts[bucket] = self.counts.get(bucket, 0) + 1

    def fade(self) -> None:
        """Let earlier gaps count less once there are many. Hangs on the order of calls: for one writer only."""
        if self.total > MAX_GAPS_KEPT:
            self.counts = {bucket: count // 2 for bucket, count in self.counts.items() if count > 1}

    @property
    def total(self) -> int:
        """How many there are."""
        return sum(self.counts.values())

    @property
    def slow_ns(self) -> int:
        """What all but one in twenty stay below; 0 where there are none."""
        wanted = ceil(SLOW_SHARE * self.total)
        for bucket in sorted(self.counts):
            wanted -= self.counts[bucket]
            if wanted <= 0:
                return int(2 ** (bucket / BUCKETS_PER_OCTAVE) * SECOND_NS)
        return 0


class Writer(Struct, array_like=True):
    """The marks of one rank, or of nobody in particular, in one source.

    `step`: where it is, `within`: in which epoch or bar; `stride`: by how much marks go on, `skipped`: by how much one
    went on by far more; `warm`: marks since the start that were read one after the other; `is_full`: the end of its bar
    or its last step is reached; `pause_ns`: the longest gap that went beyond the limit outside known phases; `read_ns`:
    when the last mark was read, `lag_ns`: how late marks are read.
    """

    reporter: str
    source: str
    rank: int | None
    last_ns: int = 0
    step: int | None = None
    within: str = ""
    stride: int = 0
    skipped: int = 0
    warm: int = 0
    is_full: bool = False
    pause_ns: int = 0
    read_ns: int = 0
    lag_ns: int = 0
    gaps: Gaps = field(default_factory=Gaps)

    @property
    def is_warm(self) -> bool:
        """Whether its usual step time is known."""
        return self.warm >= MIN_GAPS

    @property
    def slow_ns(self) -> int:
        """Its slow-step time."""
        return self.gaps.slow_ns

    @property
    def limit_ns(self) -> int:
        """For how long it may say nothing outside known phases."""
        before_ns = min(int(BEFORE_FACTOR * self.pause_ns), UNKNOWN_NS)
        return max(SLOW_FACTOR * self.slow_ns, LEAST_NS if self.is_warm else UNKNOWN_NS, before_ns)

    def went_on(self, event: Event) -> bool:
        """Whether a mark says more than the one before it."""
        step, _ = position(event)
        return self.last_ns == 0 or step is None or (step, _counts(event)) != (self.step, self.within)

    def take(self, event: Event, at_ns: int, phase: str) -> int:
        """Take a mark that went on. `phase`: the known phase that it ends; gives how long that took in ns, else 0."""
        step, total = position(event)
        gap_ns = at_ns - self.last_ns if self.last_ns else 0
        ahead = step - self.step if step is not None and self.step is not None else 0
        if gap_ns > 0:
            self._measure(gap_ns, ahead, phase)
        # What a full buffer holds says nothing of when the next one is full.
        is_new = event.observed_time_unix_nano == 0 or event.observed_time_unix_nano > self.read_ns
        self.warm += gap_ns > 0 and is_new
        self.is_full = total is not None and step is not None and step >= total
        self.step, self.within, self.last_ns = step, _counts(event), max(self.last_ns, at_ns)
        self.lag_ns = self.lag_ns * 9 // 10 if is_new else self.lag_ns
        self.read_ns = max(self.read_ns, event.observed_time_unix_nano)
        self.lag_ns = max(_lag_ns(event), self.lag_ns)
        return gap_ns if phase and gap_ns > 0 else 0

    def _measure(self, gap_ns: int, ahead: int, phase: str) -> None:
        if phase or ahead < 0 or self.is_full:
            # A known phase, a restart from an earlier step, another epoch.
            is_start = phase == "init" or (ahead < 0 and gap_ns > self.limit_ns)
            self.warm = 0 if is_start else self.warm
            return
        if 0 < 4 * self.stride < ahead != self.skipped:
            # Of the marks of a large file some are read. What comes twice is another stride.
            gap_ns, self.skipped = gap_ns * self.stride // ahead, ahead
        elif ahead > 0:
            self.stride = ahead
        if gap_ns > LEAST_NS and gap_ns > self.limit_ns:
            self.pause_ns = max(self.pause_ns, gap_ns)
        self.gaps.add(gap_ns)
        self.gaps.fade()
