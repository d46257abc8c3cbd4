"""Who fell silent: the ranks for which all others waited in vain. Decided here only. Pure.

The dumps of the flight recorder say most; then who does not report what all others report, whose marks of progress
stopped first, and whom a launcher saw end. Who reports that it waited did not fall silent, and neither did who lost a
peer before it ended: that peer did. Where one waited elsewhere than all others, nobody is missing.
"""

from collections.abc import Collection, Iterable, Mapping, Sequence
from typing import Final

from pipeline.core.chains import STOPPED, Resolved
from pipeline.core.conclusion import Reported
from pipeline.core.derived.calls import odd_one
from pipeline.core.derived.launcher import ABORTED, OWN_END
from pipeline.core.derived.ranks import MAX_NAMED, numbers
from pipeline.core.marks import MARKS, writer_of
from pipeline.core.order import Stamped, canonical, order
from pipeline.core.placement import PlacementMap
from pipeline.core.progress_marks import Stall
from pipeline.core.signs import LOST_A_PEER, OF_OTHERS, REPORTS, SURVIVORS, WAITERS
from schemas.records import Event

_FAILED: Final = "elastic.failed"
_ENDS: Final = (_FAILED, "elastic.rank_failed")
_CALL: Final = "function"
_BARRIER: Final = "torch.monitored_barrier"
_STORE: Final = "tcpstore.error"
_OF_GLOO: Final = "//cpu//"
# What was raised and not printed, and an abort.
_UNSAID: Final = ABORTED | {"1"}
# From here on shells count signals.
MAX_CHOSEN: Final = 128


def fell_silent(
    items: Sequence[Resolved], placement: PlacementMap, reported: Reported, shown: Sequence[int]
) -> list[int]:
    """The ranks that fell silent, as far as anything says. `shown`: by the dumps of the others."""
    waits = [item for item in items if item.episode.name in WAITERS]
    losses = [item for item in items if item.episode.name in LOST_A_PEER]
    if not shown and odd_one(items, placement) is not None:
        return []
    return (
        list(shown)
        or _missed(items)
        or _unreported(items, waits, losses, placement, reported)
        or _had_to_be_stopped(items, placement)
        or _stopped_first(items, reported.stall)
        or _ended_first(items, waits, losses)
    )


def reporters(items: Iterable[Resolved]) -> set[int]:
    """The ranks that say themselves that they waited."""
    return {rank for item in items if item.episode.name in REPORTS for rank in item.ranks}


def _missed(items: Sequence[Resolved]) -> list[int]:
    """The ranks that did not come to a monitored barrier or to the start of a group, as those that wait there name
    them, and that tell of no other call in which they waited.
    """
    lists = {said for item in items if (said := _missed_by(item.episode.name, item.episode.attributes))}
    ranks = sorted(numbers(next(iter(lists)))) if len(lists) == 1 else []
    elsewhere = {rank for item in items if item.episode.name in SURVIVORS for rank in item.ranks}
    return [] if len(ranks) > MAX_NAMED or elsewhere & set(ranks) else ranks


def _missed_by(name: str, said: Mapping[str, str]) -> str:
    """The ranks that a line misses. Gloo's ranks meet by the address that each puts into the store under its number.
    Source: gloo/rendezvous/context.cc, torch ProcessGroupGloo.cpp (the prefix is the number of the device).
    """
    if name == _BARRIER:
        return said.get("ranks", "") if said.get("what") == "failed" else ""
    if name != _STORE or _OF_GLOO not in said.get("keys", ""):
        return ""
    device, slash, rank = said["keys"].rpartition(_OF_GLOO)[2].partition("/")
    return rank if slash and device.isdecimal() and rank.isdecimal() else ""


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
    silent = [rank for rank in silent if not _lost_a_peer(losses, rank, _ends(waits))]
    if not silent or len(silent) * 2 > len(known):
        return []
    window_ns = max(item.episode.end_ns for item in waits)
    unread = [
        rank
        for rank in silent
        if not reported.all_ended and reported.through_ns.get(placement.ranks[rank].node or "", 0) < window_ns
    ]
    return [] if unread else silent


def _ends(waits: Iterable[Resolved]) -> list[Event]:
    """The first line of each wait; of those that differ only in the call that waited, of all together."""
    ends: dict[str | int, Event] = {}
    for wait in waits:
        key = wait.episode.name if _CALL in wait.episode.attributes else id(wait)
        ends[key] = min(ends.get(key, wait.episode.first), wait.episode.first, key=canonical)
    return list(ends.values())


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
    ends = _own_ends(items)
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
        rank, last = item.subject.rank, item.episode.newest
        if rank is not None and item.episode.name in MARKS and last.aligned_time_unix_nano is not None:
            mark = (last.aligned_time_unix_nano, writer_of(last) in stall.stopped_first)
            newest[rank] = max(newest.get(rank, mark), mark)
    return sorted(rank for rank, (_, is_first) in newest.items() if is_first and rank not in waiting)


# --- by a launcher --------------------------------------------------------------------------------------------------


def _ended_first(items: Sequence[Resolved], waits: Sequence[Resolved], losses: Sequence[Resolved]) -> list[int]:
    """The one rank that a launcher saw end by itself before anybody gave up waiting, and that had lost no peer."""
    ends = [item for item in items if item.episode.name in _ENDS and item.subject.rank is not None]
    if not waits:
        return _ended_by_itself(items, ends, losses)
    ends = [item for item in ends if item.episode.name == _FAILED and _exitcode(item) in OWN_END]
    early = [item for item in ends if all(order(item.episode.first, wait.episode.first) == "before" for wait in waits)]
    ranks = {item.subject.rank for item in early if item.subject.rank is not None}
    if not waits or len(ranks) != 1:
        return []
    (rank,) = ranks
    return [] if _was_left(losses, rank, early) else [rank]


def _ended_by_itself(items: Sequence[Resolved], ends: Sequence[Resolved], losses: Sequence[Resolved]) -> list[int]:
    """The one rank that ended with a code of its own; else the one that failed without a word, where all that lost a
    peer are known and it tells of nothing that it waited for.
    """
    if not losses:
        return []
    chosen = {item.subject.rank for item in ends if _is_chosen(_exitcode(item))}
    if not chosen and all(item.ranks for item in losses):
        own = (item for item in items if not item.episode.name.startswith(OF_OTHERS))
        victims = {rank for item in own if item.episode.first.role == "symptom" for rank in item.ranks}
        chosen = {item.subject.rank for item in ends if _exitcode(item) in _UNSAID} - victims
    return [rank for rank in chosen if rank is not None] if len(chosen) == 1 else []


def _own_ends(items: Iterable[Resolved]) -> list[Resolved]:
    """The ends that a launcher saw and did not bring about."""
    return [item for item in items if item.episode.name in _ENDS and _exitcode(item) in OWN_END]


def _exitcode(item: Resolved) -> str:
    return item.episode.attributes.get("exitcode", "")


def _is_chosen(exitcode: str) -> bool:
    """Whether a program ended with a code of its own: what it raised, the loss of a peer too, ends Python with 1, and
    shells tell of signals by 129 and more.
    """
    return exitcode.isdecimal() and len(exitcode) < 4 and 1 < int(exitcode) < MAX_CHOSEN


def _had_to_be_stopped(items: Sequence[Resolved], placement: PlacementMap) -> list[int]:
    """The one rank that had not ended when its launcher stopped it, where all others ended and as many lines that name
    no rank tell of a wait in vain.
    """
    ended = {rank for item in _own_ends(items) for rank in item.ranks}
    left = set(placement.ranks) - ended
    nameless = [item for item in items if item.episode.name in SURVIVORS and not item.ranks]
    if placement.world_size != len(placement.ranks) or len(left) != 1 or len(ended) < 2:
        return []
    waited = any(item.episode.name in WAITERS for item in nameless)
    return sorted(left) if waited and sum(item.episode.count for item in nameless) >= len(ended) else []


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
