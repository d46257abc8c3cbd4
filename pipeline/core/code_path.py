"""Which failures of a program are the same: by type and place of an exception, else by the line without its values."""

from itertools import groupby
from typing import Final

from pipeline.core.episodes import DEFAULT_WINDOW_S, Episode
from pipeline.core.order import order
from schemas.records import Event

# A shorter silence than that between two episodes may be one failure that two logs tell.
APART_NS: Final = DEFAULT_WINDOW_S * 1_000_000_000
# A launcher says that processes ended or are started, or they meet anew.
RESTARTS: Final = frozenset(
    {"elastic.failed", "elastic.rank_failed", "elastic.group", "elastic.group_failed", "job.restarting", "nccl.init"}
)
MAX_TEXT: Final = 300


def failure_of(event: Event) -> str:
    """A name of what failed that stays over attempts: no number, no address, no line that moves with an edit.

    Of an exception its type and the function that raised it, from the deepest frame of its traceback.
    """
    file, function = event.attributes.get("file"), event.attributes.get("function")
    kind, colon, _ = event.body.partition(":")
    is_exception = kind.replace(".", "").isidentifier() and kind.rpartition(".")[2][:1].isupper()
    if file and colon and is_exception:
        place = f"{function} of {file}" if function else file
        return f"{kind} in {without_values(place)}"[:MAX_TEXT]
    return without_values(event.body[:MAX_TEXT])


def without_values(text: str) -> str:
    """The text with `#` for every word that has a digit: counts, addresses, ids, sizes."""
    words = ("".join(letters) for _, letters in groupby(text, key=_is_of_word))
    return "".join("#" if any(c.isdigit() for c in word) else word for word in words)


def repeats(root: Episode, episodes: list[Episode]) -> int:
    """How often the same rank met the same failure again in other lives of its process, in one attempt of a job.

    Only what is told long before or after counts, with a line between that its processes ended or were started.
    """
    rank, said = root.subject.rank, failure_of(root.first)
    if rank is None or root.start_ns < 0:
        return 0
    again = [
        other for other in episodes
        if other is not root and other.name == root.name and other.subject.rank == rank
        and failure_of(other.first) == said
    ]  # fmt: skip
    if not again:
        return 0
    restarts = [episode for episode in episodes if episode.name in RESTARTS]
    return sum(_in_another_life(root, other, restarts) for other in again)


def _in_another_life(a: Episode, b: Episode, restarts: list[Episode]) -> bool:
    """Whether one ended long before the other began, for certain, and the processes of the job did so between them."""
    first, second = (a, b) if a.start_ns <= b.start_ns else (b, a)
    if first.start_ns < 0 or second.start_ns - first.end_ns <= APART_NS:
        return False
    if order(first.first, second.first) != "before":
        return False
    return any(first.start_ns <= episode.start_ns <= second.start_ns for episode in restarts)


def _is_of_word(character: str) -> bool:
    return character.isalnum() or character == "_"
