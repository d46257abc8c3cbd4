"""The states of all ranks by process group: how far each member came, and whom an operation waits for."""

from collections import defaultdict
from collections.abc import Iterable
from typing import Final

from msgspec import Struct

from pipeline.core.facts import MAX_WORLD
from pipeline.core.flight.mismatch import GroupKey
from pipeline.core.flight.state import NO_RANKS, GroupState, Op, RankState, Runs, unfolded, world_of

# Of several ranks; shared by all who wait for the same ones, so that many need not be many times as much.
Ranks = tuple[int, ...]
# What all groups list together: 10 groups of each rank of a job of 200,000.
MAX_MEMBERS: Final = 2**21


class Waiting(Struct, frozen=True, kw_only=True):
    """A rank that waits, its operation, and whom it waits for."""

    rank: int
    group: GroupKey
    op: Op
    on: Ranks


class Table:
    """The states by group. `members` has those of each group whose dumps show it, `absent` the rest of it."""

    def __init__(self, by_rank: dict[int, RankState]) -> None:
        self.ranks = by_rank
        self.members: dict[GroupKey, dict[int, GroupState]] = defaultdict(dict)
        self._keys: dict[int, list[tuple[GroupKey, GroupState]]] = {}
        said = _said_members(by_rank)
        for rank, state in by_rank.items():
            self._keys[rank] = [(_key(group, rank, said), group) for group in state.groups if _is_shared(group)]
            for key, group in self._keys[rank]:
                self.members[key][rank] = group
        self._mixed = {key for key, of in self.members.items() if any(group.p2p for group in of.values())}
        self._listed = _listed(self.members, world_of(by_rank.values()) or MAX_WORLD)
        self.expected = set(by_rank).union(*self._listed.values())
        self._absent: dict[GroupKey, Ranks] = {}
        self._unaware: dict[GroupKey, frozenset[int]] = {}
        self._blockers: dict[tuple[GroupKey, int, bool], Ranks] = {}
        self._furthest = {
            key: max((self.completed(key, group) for group in of.values()), default=-1)
            for key, of in self.members.items()
        }

    def enqueued(self, key: GroupKey, group: GroupState) -> int:
        """The last collective that a member entered; -1: not known."""
        return group.seen if key in self._mixed else group.enqueued

    def completed(self, key: GroupKey, group: GroupState) -> int:
        """The last collective that a member completed; -1: not known."""
        return group.done if key in self._mixed else group.completed

    def is_completed_by_another(self, key: GroupKey, op: Op) -> bool:
        """Whether some member completed what is pending here."""
        return self._furthest[key] >= op.seq

    def absent(self, key: GroupKey) -> Ranks:
        """The members of a group without a dump."""
        if key not in self._absent:
            self._absent[key] = tuple(rank for rank in self._listed[key] if rank not in self.ranks)
        return self._absent[key]

    def pending(self, rank: int) -> list[tuple[GroupKey, Op]]:
        """The pending operations by which a rank may wait, in the order in which it enqueued them: the first collective
        of each group, sends and receives.
        """
        found = []
        for key, group in self._keys[rank]:
            collectives = [op for op in group.ops if not op.is_p2p]
            found += [(key, op) for op in (*collectives[:1], *(op for op in group.ops if op.is_p2p))]
        return sorted(found, key=lambda pair: (pair[1].record_id, pair[0]))

    def first_in(self, rank: int, key: GroupKey) -> Op | None:
        """The first pending collective of a rank in a group."""
        group = self.members[key].get(rank)
        return next((op for op in group.ops if not op.is_p2p), None) if group is not None else None

    def alone(self, rank: int) -> tuple[GroupKey, Op] | None:
        """The earliest pending collective of a rank, if another member completed it."""
        first = next(((key, op) for key, op in self.pending(rank) if not op.is_p2p), None)
        return first if first is not None and self.is_completed_by_another(*first) else None

    # --- waiting ------------------------------------------------------------------------------------------------------

    def wait_of(self, rank: int) -> Waiting | None:
        """The first pending operation of a rank that waits for somebody; None where it waits for nobody."""
        if self.ranks[rank].fresh or self.alone(rank):
            return None
        absent: Waiting | None = None
        for key, op in self.pending(rank):
            on = self.peer_behind(key, op, rank) if op.is_p2p else self._on(key, op)
            if not on:
                continue
            wait = Waiting(rank=rank, group=key, op=op, on=on)
            if any(one in self.ranks for one in on):
                return wait
            absent = absent or wait
        return absent

    def _on(self, key: GroupKey, op: Op) -> Ranks:
        """Members that did not enter a collective, or whose device is at an earlier one; else those without a dump."""
        name = (key, op.seq, op.state == "started")
        if name not in self._blockers:
            members = self.members[key]
            behind = {rank for rank, group in members.items() if self._is_behind(key, group, *name[1:])}
            behind |= self._without(key)
            self._blockers[name] = tuple(sorted(behind)) or self.absent(key)
        return self._blockers[name]

    def _without(self, key: GroupKey) -> frozenset[int]:
        """Members whose dumps do not have the group: a rank that has no communicator of it yet does not list it."""
        if key not in self._unaware:
            here = (rank for rank in self._listed[key] if rank in self.ranks and rank not in self.members[key])
            self._unaware[key] = frozenset(rank for rank in here if self.ranks[rank].lists_groups)
        return self._unaware[key]

    def _is_behind(self, key: GroupKey, group: GroupState, seq: int, started: bool) -> bool:
        enqueued, completed = self.enqueued(key, group), self.completed(key, group)
        # In a group with sends and receives a dump may not say how far a member came.
        is_unknown = key in self._mixed and group.seen < 0
        if enqueued < seq and not is_unknown:
            return True
        if 0 <= completed < seq - 1:
            return True
        # With timing on, an operation that has not started on the device says so.
        own = next((one for one in group.ops if one.seq == seq and not one.is_p2p), None)
        return started and group.started >= 0 and own is not None and own.state == "scheduled"

    def peer_behind(self, key: GroupKey, op: Op, rank: int) -> Ranks:
        """The other end of a send or receive, unless the other half of it is pending there too."""
        other = self.members[key].get(op.peer)
        halves = other.ops if other is not None else ()
        is_met = any(one.is_p2p and one.peer == rank and one.sends != op.sends for one in halves)
        return () if is_met else (op.peer,)

    def inside(self, rank: int) -> tuple[GroupKey, Op, list[int]] | None:
        """The earliest pending operation of a rank that all who take part in it entered and nobody completed."""
        for key, op in self.pending(rank):
            if op.is_p2p:
                if not self.peer_behind(key, op, rank):
                    return key, op, sorted((rank, op.peer))
                continue
            members = self.members[key]
            ranks = sorted(r for r, group in members.items() if any(one.seq == op.seq for one in group.ops))
            wanted, among = self._listed[key] or members, set(ranks)
            if len(ranks) > 1 and len(ranks) >= len(wanted) and all(one in among for one in wanted):
                return key, op, ranks
        return None

    # --- what is stuck ------------------------------------------------------------------------------------------------

    @property
    def stalled(self) -> list[int]:
        """The ranks on which something is pending, and not only just now."""
        return sorted(rank for rank, state in self.ranks.items() if state.pending and not state.fresh)

    def heads(self) -> dict[int, list[tuple[GroupKey, Op]]]:
        """Of each stalled rank the first pending collective of each group, in the order in which it enqueued them."""
        return {rank: [pair for pair in self.pending(rank) if not pair[1].is_p2p] for rank in self.stalled}

    def stalled_groups(self) -> list[GroupKey]:
        """The groups in which something is pending, and not only just now."""
        stalled = set(self.stalled)
        return [
            key
            for key, members in sorted(self.members.items())
            if any(rank in stalled and group.pending for rank, group in members.items())
        ]


def latest(states: Iterable[RankState]) -> dict[int, RankState]:
    """One state of each rank: of several dumps the last, of several parts of one dump all groups."""
    parts: dict[int, list[RankState]] = defaultdict(list)
    for state in states:
        parts[state.rank].append(state)
    merged = {}
    for rank, of_rank in parts.items():
        newest = max((state.last_ns, state.pending, state.version) for state in of_rank)
        same = [state for state in of_rank if (state.last_ns, state.pending, state.version) == newest]
        groups = {(g.name, g.desc, g.ranks): g for state in same for g in state.groups}
        merged[rank] = RankState(
            rank=rank, version=newest[2], library=same[0].library, pending=newest[1], last_ns=newest[0],
            fresh=any(state.fresh for state in same), whole=all(state.whole for state in same),
            groups=[groups[key] for key in sorted(groups)],
        )  # fmt: skip
    return merged


def _listed(keys: Iterable[GroupKey], world: int) -> dict[GroupKey, Runs]:
    """The members that each group lists; none where they are more than the ranks of the job, or where the groups before
    it list more together than those of any job. Anybody may have written such a line.
    """
    listed, left = dict[GroupKey, Runs](), MAX_MEMBERS
    for key in sorted(keys):
        ranks = unfolded(key[2])
        listed[key] = ranks if len(ranks) <= min(world, left) else NO_RANKS
        left -= len(listed[key])
    return listed


def _is_shared(group: GroupState) -> bool:
    """Whether a group can be told on other ranks: before version 1.3 a group is a number that is local to a process."""
    return bool(group.ranks or group.desc) or group.name in ("", "0")


def _said_members(by_rank: dict[int, RankState]) -> dict[tuple[str, str], set[str]]:
    said: dict[tuple[str, str], set[str]] = defaultdict(set)
    for state in by_rank.values():
        for group in state.groups:
            if group.ranks:
                said[group.name, group.desc].add(group.ranks)
    return said


def _key(group: GroupState, rank: int, said: dict[tuple[str, str], set[str]]) -> GroupKey:
    """What names a group on all ranks: groups that were split off another one may share a name."""
    if group.ranks:
        return (group.name, group.desc, group.ranks)
    fitting = [text for text in said.get((group.name, group.desc), ()) if rank in unfolded(text)]
    return (group.name, group.desc, fitting[0] if len(fitting) == 1 else "")
