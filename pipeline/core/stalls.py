"""What marks of progress that stopped say of a failure: who stopped first, and the sentence on it. Pure."""

from collections.abc import Collection, Iterable, Sequence
from typing import Final

from pipeline.core.chains import Resolved
from pipeline.core.derived.scene import as_event
from pipeline.core.marks import MARKS, STALLED, writer_of
from pipeline.core.order import canonical
from pipeline.core.progress_marks import Stall

WHY_UNKNOWN: Final = (
    "the job hangs, or ended without a line that says so; stacks of its processes (py-spy), kernel logs of all nodes "
    "or flight-recorder dumps would decide"
)
LAST_MARK: Final = "the last mark of progress of the rank that stopped"


def stopped(items: Iterable[Resolved]) -> list[Resolved]:
    """The marks that stopped: one item at most."""
    return [item for item in items if item.episode.name == STALLED]


def stopped_first(items: Sequence[Resolved], stall: Stall | None, reports: Collection[str]) -> list[int]:
    """Ranks whose marks stopped before those of all others, but for those that report (by `reports`) that they wait."""
    if stall is None or not stall.stopped_first:
        return []
    waiting = {rank for item in items if item.episode.name in reports for rank in item.ranks}
    # A rank may print marks of several kinds, and in several places: the last one of all counts.
    newest: dict[int, tuple[int, bool]] = {}
    for item in items:
        rank, last = item.subject.rank, item.episode.last or item.episode.first
        if rank is not None and item.episode.name in MARKS and last.aligned_time_unix_nano is not None:
            mark = (last.aligned_time_unix_nano, writer_of(last) in stall.stopped_first)
            newest[rank] = max(newest.get(rank, mark), mark)
    return sorted(rank for rank, (_, is_first) in newest.items() if is_first and rank not in waiting)


def last_marks(items: Iterable[Resolved], ranks: Collection[int]) -> list[Resolved]:
    """The last mark of each of these ranks."""
    newest: dict[int, Resolved] = {}
    for item in items:
        rank = item.subject.rank
        if rank is not None and rank in ranks and item.episode.name in MARKS:
            last = as_event(item, item.episode.last or item.episode.first, item.subject)
            last.episode.count = 1
            if rank not in newest or canonical(newest[rank].episode.first) < canonical(last.episode.first):
                newest[rank] = last
    return [newest[rank] for rank in sorted(newest)]


def said_of(stalled: Resolved, first: Sequence[int]) -> str:
    """The sentence on marks that stopped, where no line tells more."""
    step = stalled.episode.attributes.get("last_step")
    since = f"The job has made no progress since step {step}" if step else "The job makes no progress any more"
    if not first:
        return f"{since}; no line says why."
    names = ", ".join(str(rank) for rank in first)
    return f"{since}: rank {names} stopped before all others, and nothing says why."
