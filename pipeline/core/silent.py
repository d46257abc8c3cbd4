"""Who fell silent: the ranks for which all others waited in vain. Decided here only. Pure.

The dumps of the flight recorder say most; then who does not report what all others report, whose marks of progress
stopped first, and whom a launcher saw end. Who reports that it waited did not fall silent, and neither did who lost a
peer before it ended: that peer did.
"""

from collections.abc import Collection, Iterable, Sequence
from typing import Final

from pipeline.core.chains import STOPPED, Resolved
from pipeline.core.conclusion import Reported
from pipeline.core.derived.launcher import OWN_END
from pipeline.core.marks import MARKS, writer_of
from pipeline.core.order import Stamped, order
from pipeline.core.placement import PlacementMap
from pipeline.core.progress_marks import Stall
from pipeline.core.signs import LOST_A_PEER, OF_OTHERS, REPORTS, WAITERS
from schemas.records import Event

_FAILED: Final = "elastic.failed"
_ENDS: Final = (_FAILED, "elastic.rank_failed")


def fell_silent(
    items: Sequence[Resolved], placement: PlacementMap, reported: Reported, shown: Sequence[int]
) -> list[int]:
    """The ranks that fell silent, as far as anything says. `shown`: by the dumps of the others."""
    waits = [item for item in items if item.episode.name in WAITERS]
    losses = [item for item in items if item.episode.name in LOST_A_PEER]
    found = list(shown) or _unreported(items, waits, losses, placement, reported)
    return found or _stopped_first(items, reported.stall) or _ended_first(items, waits, losses)


def reporters(items: Iterable[Resolved]) -> set[int]:
    """The ranks that say themselves that they waited."""
    return {rank for item in items if item.episode.name in REPORTS for rank in item.ranks}


# --- by who does not report -----------------------------------------------------------------------------------------


def _unreported(
    items: Sequence[Resolved], waits: Sequence[Resolved], losses: Sequence[Resolved], placement: PlacementMap,
    reported: Reported,
) -> list[int]:  # fmt: skip
    """Ranks that are known, whose logs were read past the window, and that did not report what the others report."""
    waits = [item for item in waits if item.ranks]
    known = set(placement.ranks)
    if not waits:
        return []
    if placement.world_size is None and reported.all_ended:
        return _unheard_of(items)
    if placement.world_size is None or len(known) < placement.world_size:
        return []
    silent = sorted(known.difference(*(item.ranks for item in waits)) & _heard(items))
    # Whom the launcher stopped fell silent for that; before anybody gave up waiting, for the failure of a neighbour.
    stops = [item for item in items if item.episode.name in STOPPED and item.ranks]
    early = [s for s in stops if all(order(s.episode.first, wait.episode.first) == "before" for wait in waits)]
    silent = [rank for rank in silent if not any(rank in item.ranks for item in early)]
    stopped = {rank for item in stops for rank in item.ranks}
    silent = [rank for rank in silent if rank not in stopped] or silent
    fallen = _fallen_first(items, waits, losses)
    nodes = {placement.ranks[rank].node for rank in fallen if rank in known}
    silent = [rank for rank in silent if rank in fallen or placement.ranks[rank].node not in nodes]
    silent = [rank for rank in silent if not _lost_a_peer(losses, rank, [wait.episode.first for wait in waits])]
    if not silent or len(silent) * 2 > len(known):
        return []
    window_ns = max(item.episode.end_ns for item in waits)
    unread = [
        rank
        for rank in silent
        if not reported.all_ended and reported.through_ns.get(placement.ranks[rank].node or "", 0) < window_ns
    ]
    return [] if unread else silent


def _unheard_of(items: Iterable[Resolved]) -> list[int]:
    """Rank 0 where each of ranks 1 to n reports a stall and it does not: a job of any size has a rank 0.

    Only where something of it would be there: a line of its own, or of the process before rank 1 on its node, or one
    file of all who report. A log that nobody collected is silent too.
    """
    items = list(items)
    ranks = reporters(items)
    if len(ranks) < 2 or ranks != set(range(1, len(ranks) + 1)):
        return []
    files = {(line.writer, line.source) for item in items if item.episode.name in REPORTS for line in _lines(item)}
    return [0] if len(files) == 1 or 0 in _heard(items) or _is_beside_rank_1(items) else []


def _is_beside_rank_1(items: Iterable[Resolved]) -> bool:
    """Whether the file of rank 1 has lines of the first and of the second process of a node: launchers number the ranks
    of a node in a row, so the first of them is rank 0.
    """
    places: dict[int | None, set[tuple[str, str]]] = {0: set(), 1: set()}
    reports: set[tuple[str, str]] = set()
    for item in items:
        event = item.episode.first
        if event.source_kind == "application":
            places.setdefault(event.subject.local_rank, set()).add((event.writer, event.source))
        if item.episode.name in REPORTS:
            reports |= {(line.writer, line.source) for line in lines_of(item, 1)}
    return bool(places[0] & places[1] & reports)


def _heard(items: Iterable[Resolved]) -> set[int]:
    """The ranks of which a line of their own was read: of the others nobody knows whether they said anything."""
    own = (item for item in items if not item.episode.name.startswith(OF_OTHERS))
    return {rank for item in own if item.episode.first.source_kind == "application" for rank in item.ranks}


def _fallen_first(items: Sequence[Resolved], waits: Sequence[Resolved], losses: Sequence[Resolved]) -> set[int]:
    """The ranks that a launcher saw end, perhaps before anybody gave up waiting, and that do not say that they waited
    or lost a peer: for them it stopped their neighbours, which need not have been silent before.
    """
    ends = [item for item in items if item.episode.name in _ENDS and item.episode.attributes.get("exitcode") in OWN_END]
    firsts = [wait.episode.first for wait in waits]
    late = [end for end in ends if any(order(first, end.episode.first) == "before" for first in firsts)]
    ranks = {rank for end in ends for rank in end.ranks}.difference(reporters(items), *(end.ranks for end in late))
    return {rank for rank in ranks if not any(lines_of(item, rank) for item in losses)}


def _lost_a_peer(losses: Iterable[Resolved], rank: int, ends: Sequence[Event]) -> bool:
    """Whether a rank says that it lost another one, before any of these lines for certain."""
    return any(all(order(line, end) == "before" for end in ends) for item in losses for line in lines_of(item, rank))


# --- by marks of progress -------------------------------------------------------------------------------------------


def _stopped_first(items: Iterable[Resolved], stall: Stall | None) -> list[int]:
    """Ranks whose marks stopped before those of all others, but for those that report that they wait."""
    if stall is None or not stall.stopped_first:
        return []
    items = list(items)
    waiting = reporters(items)
    # A rank may print marks of several kinds, and in several places: the last one of all counts.
    newest: dict[int, tuple[int, bool]] = {}
    for item in items:
        rank, last = item.subject.rank, item.episode.last or item.episode.first
        if rank is not None and item.episode.name in MARKS and last.aligned_time_unix_nano is not None:
            mark = (last.aligned_time_unix_nano, writer_of(last) in stall.stopped_first)
            newest[rank] = max(newest.get(rank, mark), mark)
    return sorted(rank for rank, (_, is_first) in newest.items() if is_first and rank not in waiting)


# --- by a launcher --------------------------------------------------------------------------------------------------


def _ended_first(items: Sequence[Resolved], waits: Sequence[Resolved], losses: Sequence[Resolved]) -> list[int]:
    """The one rank that a launcher saw end by itself before anybody gave up waiting, and that had lost no peer."""
    ends = [item for item in items if item.episode.name == _FAILED and item.subject.rank is not None]
    ends = [item for item in ends if item.episode.attributes.get("exitcode") in OWN_END]
    early = [item for item in ends if all(order(item.episode.first, wait.episode.first) == "before" for wait in waits)]
    ranks = {item.subject.rank for item in early if item.subject.rank is not None}
    if not waits or len(ranks) != 1:
        return []
    (rank,) = ranks
    return [] if _was_left(losses, rank, early) else [rank]


def _was_left(losses: Iterable[Resolved], rank: int, ends: Sequence[Resolved]) -> bool:
    """Whether a rank that ended says that it lost another one, unless it says so of what came after its end."""
    said = (line for item in losses for line in lines_of(item, rank))
    return any(order(line, end.episode.first) != "after" for line in said for end in ends)


# --- the lines of an item -------------------------------------------------------------------------------------------


def lines_of(item: Resolved, rank: int) -> list[Stamped]:
    """The first line of a rank."""
    if not item.episode.crowd:
        return [item.episode.first] if item.subject.rank == rank else []
    member = item.episode.crowd.get(str(rank))
    return [] if member is None else [member]


def _lines(item: Resolved) -> Collection[Stamped]:
    """The first line of everybody who printed it."""
    return item.episode.crowd.values() or [item.episode.first]
