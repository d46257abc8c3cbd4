"""What marks of progress that stopped say of a failure: who stopped first, and the sentence on it. Pure."""

from collections.abc import Collection, Iterable, Sequence
from typing import Final

from pipeline.core.chains import Resolved
from pipeline.core.derived.scene import as_event, last_of, newest_of
from pipeline.core.marks import MARKS, STALLED

WHY_UNKNOWN: Final = (
    "the job hangs, or ended without a line that says so; stacks of its processes (py-spy), kernel logs of all nodes "
    "or flight-recorder dumps would decide"
)
LAST_MARK: Final = "the last mark of progress of the rank that stopped"


def stopped(items: Iterable[Resolved]) -> list[Resolved]:
    """The marks that stopped: one item at most."""
    return [item for item in items if item.episode.name == STALLED]


def last_marks(items: Iterable[Resolved], ranks: Collection[int]) -> list[Resolved]:
    """The last mark of each of these ranks."""
    newest = newest_of((item for item in items if item.subject.rank in ranks), MARKS)
    lasts = [as_event(newest[rank], last_of(newest[rank]), newest[rank].subject) for rank in sorted(newest)]
    for last in lasts:
        last.episode.count = 1
    return lasts


def said_of(stalled: Resolved, first: Sequence[int]) -> str:
    """The sentence on marks that stopped, where no line tells more."""
    step = stalled.episode.attributes.get("last_step")
    since = f"The job has made no progress since step {step}" if step else "The job makes no progress any more"
    if not first:
        return f"{since}; no line says why."
    names = ", ".join(str(rank) for rank in first)
    return f"{since}: rank {names} stopped before all others, and nothing says why."
