"""Who waits for whom, from the states of all ranks: which ranks stopped, before or inside which collective.

A rank waits by the first of its pending operations that cannot go on: for members of the group that never entered it,
for members whose device is still at an earlier one, or for the other end of a send or receive. A rank that others wait
for and that waits for nobody is where it stopped. A collective that others completed and one rank did not holds that
rank alone: nobody it waits for, whatever else it enqueued behind it.
"""

from collections import defaultdict
from collections.abc import Iterable
from typing import Final, Literal

from msgspec import Struct

from pipeline.core.flight.mismatch import Crossed, GroupKey, Mismatch, first_crossed, first_mismatches
from pipeline.core.flight.state import Op, RankState
from pipeline.core.flight.table import Ranks, Table, Waiting, latest

Kind = Literal["before", "inside"]
MAX_ROUNDS: Final = 64


class Stuck(Struct, frozen=True, kw_only=True):
    """A rank that others wait for. `before`: it never entered the operation `seq`; `inside`: it entered and did not
    complete it. `pending` counts what is pending on it in all groups: with nothing its host stopped, not its device.
    """

    rank: int
    kind: Kind
    group: GroupKey
    seq: int
    op: str
    enqueued: int
    completed: int
    pending: int
    waiting: Ranks


class Together(Struct, frozen=True, kw_only=True):
    """An operation that all who take part in it entered and none completed."""

    group: GroupKey
    op: Op
    ranks: list[int]


class GroupView(Struct, frozen=True, kw_only=True):
    """Where the members of a group stand at its earliest pending operation. `absent`: members without a dump."""

    group: GroupKey
    op: Op
    inside: list[int]
    behind: list[int]
    completed: list[int]
    absent: list[int]


class Findings(Struct, frozen=True, kw_only=True):
    """What the dumps of all ranks say together. Empty where there is nothing to say.

    `missing`: ranks of which no dump is there; `awaited`: those of them that others wait for, where most dumps are
    there. `circle`: ranks that wait for each other. `together`: what is stuck without a rank that holds it up.
    """

    ranks: list[int]
    missing: list[int]
    stuck: list[Stuck]
    awaited: list[int]
    circle: list[int]
    waiting: list[Waiting]
    together: list[Together]
    mismatches: list[Mismatch]
    crossed: Crossed | None
    groups: list[GroupView]


def analyse(states: Iterable[RankState]) -> Findings:
    """Compare all ranks. The order of the states does not matter."""
    by_rank = latest(states)
    table = Table(by_rank)
    waits = {rank: wait for rank in sorted(by_rank) if (wait := table.wait_of(rank)) is not None}
    holders = _holders(waits)
    stuck_ranks = sorted(rank for rank in holders if rank in by_rank and rank not in waits)
    stuck = [one for rank in stuck_ranks if (one := _stuck(table, rank, holders[rank], waits)) is not None]
    missing = sorted(table.expected - set(by_rank))
    awaited = [rank for rank in sorted(holders) if rank not in by_rank]
    circle = [] if stuck_ranks or awaited else _circle(waits)
    among = set(stuck_ranks) - {one.rank for one in stuck}
    groups = table.stalled_groups()
    mismatches = first_mismatches(table.members, groups)
    # Where ranks differ that all are there, who is not there is not needed to explain it.
    is_told = bool(stuck) or any(mismatch.odd for mismatch in mismatches)
    return Findings(
        ranks=sorted(by_rank), missing=missing, stuck=stuck,
        awaited=[] if is_told or len(missing) * 2 > len(table.expected) else awaited, circle=circle,
        waiting=[waits[rank] for rank in sorted(waits)],
        together=_together(table, sorted(among) if among or waits else table.stalled),
        mismatches=mismatches,
        crossed=None if stuck or awaited or circle else first_crossed(table.heads()),
        groups=[view for key in groups if (view := _view(table, key)) is not None],
    )  # fmt: skip


def _holders(waits: dict[int, Waiting]) -> dict[int, Ranks]:
    """Who is waited for, by whom."""
    by_set: dict[int, list[int]] = defaultdict(list)
    for rank, wait in waits.items():
        by_set[id(wait.on)].append(rank)
    holders: dict[int, list[Ranks]] = defaultdict(list)
    for wait in first_of_each(waits.values()):
        shared = tuple(by_set[id(wait.on)])
        for one in wait.on:
            holders[one].append(shared)
    # Many ranks have the same waiting for them.
    together: dict[tuple[int, ...], Ranks] = {}
    for some in holders.values():
        name = tuple(map(id, some))
        if name not in together:
            together[name] = some[0] if len(some) == 1 else tuple(sorted(set().union(*some)))
    return {rank: together[tuple(map(id, some))] for rank, some in holders.items()}


def first_of_each(waits: Iterable[Waiting]) -> list[Waiting]:
    """Of those that wait for the same ranks the first one: looked through once, and not again for each that waits."""
    firsts: dict[int, Waiting] = {}
    for wait in waits:
        firsts.setdefault(id(wait.on), wait)
    return list(firsts.values())


def _stuck(table: Table, rank: int, held: Ranks, waits: dict[int, Waiting]) -> Stuck | None:
    """What holds up those who wait for a rank that waits for nobody. None: it is inside what all others are in."""
    # What was called first; in the middle of sends and receives a collective says more.
    wait = min((waits[one] for one in held), key=lambda one: (one.op.is_p2p, one.op.created_ns, one.group, one.rank))
    key, seq, name = wait.group, wait.op.seq, wait.op.name
    alone, pending = table.alone(rank), table.ranks[rank].pending
    kind: Kind = "before"
    if alone is not None:
        # Told by the group in which the others wait, if the rank is alone there too.
        own = table.first_in(rank, key)
        key, op = (key, own) if own is not None and table.is_completed_by_another(key, own) else alone
        seq, name, kind = op.seq, op.name, "inside"
    elif pending and table.pending(rank):
        if not _is_late_on_device(table, rank, key, seq):
            return None
        kind = "inside"
    group = table.members[key].get(rank)
    return Stuck(
        rank=rank, kind=kind, group=key, seq=seq, op=name, pending=pending, waiting=held,
        enqueued=table.enqueued(key, group) if group is not None else -1,
        completed=table.completed(key, group) if group is not None else -1,
    )  # fmt: skip


def _is_late_on_device(table: Table, rank: int, key: GroupKey, seq: int) -> bool:
    """Whether a rank enqueued what others wait in, and it has not started there while it has on others."""
    first = table.first_in(rank, key)
    others = table.members[key].values()
    started = any(op.seq == seq and op.state == "started" for group in others for op in group.ops)
    return first is not None and first.seq == seq and first.state == "scheduled" and started


def _together(table: Table, ranks: list[int]) -> list[Together]:
    """What these ranks are inside of, each once."""
    found: dict[tuple[GroupKey, int, tuple[int, ...]], Together] = {}
    seen: set[tuple[GroupKey, int, int]] = set()
    for rank in ranks:
        if any((key, op.seq, op.p2p_seq) in seen for key, op in table.pending(rank)[:1] if not op.is_p2p):
            continue
        one = table.inside(rank)
        if one is not None:
            key, op, inside = one
            seen.add((key, op.seq, op.p2p_seq))
            found.setdefault((key, op.seq, tuple(inside)), Together(group=key, op=op, ranks=inside))
    return [found[name] for name in sorted(found)]


def _circle(waits: dict[int, Waiting]) -> list[int]:
    """The ranks that wait for each other: what is left when those that nobody waits for are taken away."""
    left = set(waits)
    for _ in range(MAX_ROUNDS):
        awaited = set().union(*(wait.on for wait in first_of_each(waits[rank] for rank in left)))
        if left <= awaited:
            break
        left &= awaited
    return sorted(left)


def _view(table: Table, key: GroupKey) -> GroupView | None:
    """A group at its earliest pending collective; of sends and receives at the first one."""
    members = table.members[key]
    firsts = [op for rank in members if (op := table.first_in(rank, key)) is not None]
    op = min(firsts, key=lambda op: (op.seq, op.record_id), default=None)
    if op is None:
        return _p2p_view(table, key)
    behind, inside, completed = list[int](), list[int](), list[int]()
    for rank, group in members.items():
        first = table.first_in(rank, key)
        if first is not None and first.seq <= op.seq:
            inside.append(rank)
        elif table.completed(key, group) >= op.seq:
            completed.append(rank)
        elif table.enqueued(key, group) < op.seq:
            behind.append(rank)
    return GroupView(
        group=key, op=op, inside=sorted(inside), behind=sorted(behind), completed=sorted(completed),
        absent=list(table.absent(key)),
    )  # fmt: skip


def _p2p_view(table: Table, key: GroupKey) -> GroupView | None:
    pairs = [(rank, op) for rank, group in table.members[key].items() for op in group.ops if op.is_p2p]
    if not pairs:
        return None
    rank, op = min(pairs, key=lambda pair: (pair[1].created_ns, pair[0], pair[1].record_id))
    on = table.peer_behind(key, op, rank)
    return GroupView(
        group=key, op=op, inside=sorted({rank, op.peer} - set(on)), behind=[r for r in on if r in table.ranks],
        completed=[], absent=[r for r in on if r not in table.ranks],
    )  # fmt: skip
