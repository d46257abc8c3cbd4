"""Where no cause is found: the rank that fell silent, or what would decide it."""

from typing import Final

from pipeline.core.chains import Resolved, Step, step
from pipeline.core.conclusion import REPEATED, Conclusion, Reported, entity_text
from pipeline.core.derived.flight import FAILURES as FLIGHT_FAILURES
from pipeline.core.derived.flight import FlightEvidence
from pipeline.core.derived.launcher import ABORTED, LAUNCHER_KILLED, LAUNCHER_STOPPED
from pipeline.core.derived.ranks import LISTED
from pipeline.core.marks import STALLED
from pipeline.core.order import canonical
from pipeline.core.placement import PlacementMap
from pipeline.core.raised import CUDA
from pipeline.core.signs import FAILURES, LAST_WORDS
from pipeline.core.stalls import LAST_MARK, WHY_UNKNOWN, last_marks, said_of
from schemas.records import Entity
from schemas.vocabulary import Interruption

# What only tells that processes of the job ended; and how those end that a launcher stops.
_ENDED: Final = frozenset(("elastic.failed", "elastic.rank_failed", "process.abort"))
_STOPPED: Final = (LAUNCHER_STOPPED, LAUNCHER_KILLED)
# What is said of a process that is gone, and what would decide it.
_IS_GONE: Final = (
    "A process of the job is gone, as who watches it says; nothing says why.",
    "nothing says why it ended; its own last lines and the kernel log of its node would decide",
)
_DID_NOT_COME: Final = (
    "Tasks of the job did not come to a barrier that the others had reached; nothing says why.",
    "nothing says what they did instead; their own logs and the kernel logs of their nodes would decide",
)
_CUDA_ENDED: Final = (
    "CUDA failed in a process of the job; the error does not say what led to it.",
    "an illegal access of the program ends like this, and a fault of the GPU; the kernel log of its node (Xid) or "
    "compute-sanitizer would decide",
)
# What the dumps of other ranks show of a stall.
_SHOWN: Final = {
    "flight.waiting": "others wait in a collective for what did not come",
    "flight.queued": "others wait behind them",
    "flight.stalled": "all entered it and none completed it",
}


def unknown(
    items: list[Resolved],
    failures: list[Resolved],
    placement: PlacementMap,
    reported: Reported,
    silent: list[int],
    flight: FlightEvidence,
) -> Conclusion:
    """No cause found: the rank that fell silent where the evidence shows one, else nobody."""
    first = min(failures, key=lambda item: canonical(item.episode.first))
    steps = [Step(item=first, role="symptom")]
    for item in items:
        last_word = bool(item.ranks & set(silent)) and item.episode.name in LAST_WORDS
        if item is not first and (_is_of_job(item) or last_word):
            why = "the rank's own last words" if last_word else _SHOWN.get(item.episode.name, REPEATED)
            steps.append(step(item, "symptom", 0, why, steps))
    for item in last_marks(items, silent):
        steps.append(step(item, "context", 0, LAST_MARK, steps))
    if flight.silent:
        # Of several dumps each names its rank by itself: they are no rivals.
        return Conclusion(
            class_="unknown/silent_rank", rule=None, culprits=_stopped(items, silent, placement),
            confidence=0.4 if flight.is_guess else 0.7, steps=steps, silent_ranks=silent,
            said=flight.said, why_unknown=flight.why,
        )  # fmt: skip
    alone = all(item.episode.name == STALLED for item in failures)
    sentence = said_of(first, silent) if alone else flight.said
    if silent:
        return Conclusion(
            class_="unknown/silent_rank", rule=None,
            culprits=[placement.ranks.get(rank) or Entity(rank=rank) for rank in silent],
            confidence=0.6 if len(silent) == 1 else 0.4, steps=steps, silent_ranks=silent, said=sentence,
            why_unknown=_why_silent(items, steps, silent),
        )  # fmt: skip
    return Conclusion(
        class_="unknown/collective_timeout", rule=None, culprits=[], confidence=0.3, steps=steps,
        said=sentence, why_unknown=flight.why or _why_unknown(placement, reported, alone=alone),
    )  # fmt: skip


def gone_of(gone: list[Resolved], items: list[Resolved]) -> Conclusion:
    """Who watches over processes says that one is gone, and nothing says why."""
    first = min(gone, key=lambda item: canonical(item.episode.first))
    steps = [Step(item=first, role="symptom")]
    for item in items:
        if item is not first and _is_of_job(item):
            steps.append(step(item, "symptom", 0, REPEATED, steps))
    named = [item.subject for item in gone if item.subject != Entity()]
    culprits = list({(entity_text(entity), entity.pid): entity for entity in named}.values())
    ranks = sorted({entity.rank for entity in culprits if entity.rank is not None})
    said, why = _CUDA_ENDED if first.episode.name in CUDA else _IS_GONE
    if all(item.episode.name == LISTED and "id" in item.episode.attributes for item in gone):
        said, why = _DID_NOT_COME
    return Conclusion(
        class_="unknown/silent_rank", rule=None, culprits=culprits, confidence=0.5 if len(culprits) == 1 else 0.3,
        steps=steps, silent_ranks=ranks, said=said, why_unknown=why,
    )  # fmt: skip


def _is_of_job(item: Resolved) -> bool:
    """A symptom that a process of the job prints, or that a device of one of its ranks shows."""
    event = item.episode.first
    return event.role == "symptom" and (event.source_kind == "application" or bool(item.ranks))


def _stopped(items: list[Resolved], ranks: list[int], placement: PlacementMap) -> list[Entity]:
    """The ranks that stopped, each with the process group in which its dump shows it."""
    shown = {item.subject.rank: item.subject for item in items if item.episode.name in FLIGHT_FAILURES}
    return [shown.get(rank) or placement.ranks.get(rank) or Entity(rank=rank) for rank in ranks]


def interruption_of(conclusion: Conclusion) -> Interruption:
    """What stopped the job where no cause is found: the end of a process, where launchers tell of it and of no wait."""
    told = [step.item for step in conclusion.steps if step.item.episode.name in FAILURES]
    if not told or any(item.episode.name not in _ENDED for item in told):
        return "hang"
    silent = set(conclusion.silent_ranks)
    ends = [item for item in told if item.episode.attributes.get("exitcode") not in _STOPPED]
    return "soft" if not silent or any(item.ranks & silent for item in ends) else "hang"


def has_last_words(steps: list[Step], ranks: list[int]) -> bool:
    """Whether one of these ranks says of its own end."""
    return any(one.item.ranks & set(ranks) and one.item.episode.name in LAST_WORDS for one in steps)


def _why_silent(items: list[Resolved], steps: list[Step], ranks: list[int]) -> str:
    """What is missing where it is known which rank stopped."""
    ends = [item.episode.attributes.get("exitcode") for item in items if item.episode.name == "elastic.failed"
            and item.ranks & set(ranks)]  # fmt: skip
    if has_last_words(steps, ranks):
        said = "the rank's own error does not say what led to it"
    elif ABORTED.intersection(ends) and any(item.episode.name == "process.abort" and not item.ranks for item in items):
        said = (
            "its launcher saw it abort (SIGABRT); the lines of an abort that are there name no process and may be its"
        )
        return f"{said}; its own log would decide"
    elif any(end not in _STOPPED for end in ends):
        said = "its launcher saw it end, and no line of its own says why"
        return f"{said}; its log and the kernel log of its node would decide"
    else:
        said = "the rank stopped without a line"
    return (
        f"{said}; a flight-recorder dump or its stack (py-spy) from while it hung would decide, or the kernel log of "
        "its node where that was not read"
    )


def _why_unknown(placement: PlacementMap, reported: Reported, *, alone: bool) -> str:
    """What would decide it; nodes of the job that fell silent first."""
    silent = sorted(set(reported.silent) & set(placement.nodes() or reported.silent))
    named = ", ".join(silent[:8]) + (f" and {len(silent) - 8} more" if len(silent) > 8 else "")
    told = f"nothing is heard of {named} any more: look there first; else " if silent else ""
    if alone:
        return f"{told}{WHY_UNKNOWN}"
    return (
        f"{told}no line before the stall names a cause; kernel logs of all nodes, the log of every rank or "
        "flight-recorder dumps would decide"
    )
