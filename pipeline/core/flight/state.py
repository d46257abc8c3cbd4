"""Where one rank stands, worked out from its dump alone: per process group the numbers, what is pending, what was last
done. Written as lines that go the way of all lines, and read back from what their signal gives.
"""

from collections import defaultdict
from collections.abc import Collection, Iterable, Iterator, Mapping
from functools import lru_cache
from itertools import chain, pairwise
from typing import Final

import msgspec
from msgspec import Struct

from pipeline.core.facts import MAX_WORLD
from pipeline.core.flight.dump import Dump, Entry, Group, Status

# An operation that was younger than this when the file was written need not be stuck.
FRESH_NS: Final = 5_000_000_000
# What a signal reads of a line is no longer than this.
MAX_STATE: Final = 3_600
MAX_RANKS_TEXT: Final = 1_200
MAX_OPS: Final = 3
MAX_PEERS: Final = 16
MAX_PAST: Final = 2
# Lines of all ranks together: an investigation keeps no more.
MAX_LINES: Final = 16_000
MAX_LINES_OF_RANK: Final = 16
DEFAULT_GROUP: Final = "default_pg"


class Op(Struct, frozen=True, array_like=True):
    """One operation of a rank. `peer`: of a send or receive the other rank, in the job; -1 where it is none."""

    record_id: int
    seq: int
    p2p_seq: int
    profiling_name: str
    state: str
    numel_in: int
    numel_out: int
    dtype_in: str
    dtype_out: str
    shape: str
    created_ns: int
    timeout_ms: int
    where: str = ""
    peer: int = -1
    sends: bool = False

    @property
    def is_p2p(self) -> bool:
        """Whether it is a send or a receive."""
        return self.peer >= 0

    @property
    def name(self) -> str:
        """The operation without the library that does it."""
        return self.profiling_name.rpartition(":")[2]


class GroupState(Struct, frozen=True, array_like=True):
    """One process group as one rank sees it. `ranks` is folded text, empty where the members are not known.

    `enqueued`, `started`, `completed`: the last numbers that PyTorch counts, which are of sends and receives too where
    the group has any (`p2p`). `seen`, `done`: the last collective among the entries, and the last one that is done; -1:
    none. `pending` counts operations that are not done; `ops` are the first of them, `past` the last done collectives.
    """

    name: str
    desc: str
    ranks: str
    enqueued: int
    started: int
    completed: int
    seen: int
    done: int
    p2p: bool
    pending: int
    ops: list[Op] = []
    past: list[Op] = []


class RankState(Struct, frozen=True):
    """One rank. `fresh`: its oldest pending operation was young when the dump was written; `last_ns`: its last sign of
    life. A rank with many groups is told in several of these; `whole`: together they hold all groups.
    """

    rank: int
    version: str
    library: str
    pending: int
    last_ns: int
    fresh: bool
    groups: list[GroupState]
    whole: bool = True

    @property
    def lists_groups(self) -> bool:
        """Whether a group that is not here has no communicator on the rank yet."""
        return self.whole and any(group.ranks for group in self.groups)


# --- ranks as text ----------------------------------------------------------------------------------------------------


def folded(ranks: Iterable[int]) -> str:
    """`0-511`, `3, 7`, every eighth as `0-56:8`: numbers as a person would write them."""
    return ", ".join(_runs(sorted(set(ranks))))


def _runs(numbers: list[int]) -> Iterable[str]:
    at = 0
    while at < len(numbers):
        end = at + 1
        step = numbers[end] - numbers[at] if end < len(numbers) else 0
        while end < len(numbers) and numbers[end] - numbers[end - 1] == step:
            end += 1
        if end - at < (3 if step == 1 else 4):
            # Few numbers make no run, and the second may begin one.
            yield str(numbers[at])
            at += 1
            continue
        yield f"{numbers[at]}-{numbers[end - 1]}" + (f":{step}" if step > 1 else "")
        at = end


class Runs(Collection[int]):
    """The numbers of a folded text, in order. Only their runs are kept: a short text may name a million."""

    __slots__ = ("_runs",)

    def __init__(self, runs: tuple[range, ...] = ()) -> None:
        self._runs = runs

    def __contains__(self, number: object) -> bool:
        return any(number in run for run in self._runs)

    def __iter__(self) -> Iterator[int]:
        return chain.from_iterable(self._runs)

    def __len__(self) -> int:
        return sum(map(len, self._runs))


NO_RANKS: Final = Runs()


@lru_cache(maxsize=4_096)
def unfolded(text: str) -> Runs:
    """The numbers that `folded` wrote; empty where it did not write them, or where they are no ranks."""
    runs: list[range] = []
    for part in text.split(", "):
        span, _, step = part.partition(":")
        first, dash, last = span.partition("-")
        ends = (first, last if dash else first, step or "1")
        if not all(one.isdecimal() and one.isascii() and len(one) < 8 for one in ends) or int(ends[2]) < 1:
            return NO_RANKS
        run = range(int(ends[0]), int(ends[1]) + 1, int(ends[2]))
        if not run or run[-1] >= MAX_WORLD or (runs and run[0] <= runs[-1][-1]):
            return NO_RANKS
        runs.append(run)
    return Runs(tuple(runs))


# --- from a dump ------------------------------------------------------------------------------------------------------


def state_of(dump: Dump, rank: int, written_ns: int | None = None) -> RankState:
    """Where a rank stands. `written_ns`: when the file of the dump was last written, which a copy may have changed."""
    of_group: dict[tuple[str, str], list[Entry]] = defaultdict(list)
    for entry in dump.entries:
        of_group[entry.group, entry.desc].append(entry)
    known = {(g.name, g.desc): g for g in dump.groups.values() if g.name or g.desc or not of_group}
    by_name = _by_name(dump.groups)
    for name, desc in of_group:
        # Before version 2.0 entries do not say the description.
        group = known.get((name, desc)) or (by_name.get(name) if not desc else None)
        known.setdefault((name, desc), group or Group(name=name, desc=desc, ranks=()))
    numbers = _numbers(dump, list(known))
    groups = [_group_state(group, of_group.get(key, []), numbers.get(key)) for key, group in known.items()]
    oldest = min((op.created_ns for group in groups for op in group.ops if op.created_ns), default=0)
    age_ns = written_ns - oldest if written_ns is not None and oldest else -1
    return RankState(
        rank=rank, version=dump.version, library=dump.library, pending=sum(group.pending for group in groups),
        last_ns=max((entry.last_ns for entry in dump.entries), default=0), fresh=0 <= age_ns < FRESH_NS, groups=groups,
    )  # fmt: skip


def _by_name(groups: Mapping[str, Group]) -> dict[str, Group]:
    return {group.name: group for group in groups.values()}


def _numbers(dump: Dump, groups: list[tuple[str, str]]) -> dict[tuple[str, str], Status]:
    """The status of each group. `pg_status` is keyed by a number that is local to the process: entries say which group
    it is of; of the rest both count the groups in the order in which they were made, unless names are hashes.
    """
    of_id = {entry.pg_id: (entry.group, entry.desc) for entry in dump.entries}
    found = {key: dump.status[pg_id] for pg_id, key in of_id.items() if pg_id in dump.status}
    if not all(text.isdecimal() and text.isascii() for text in (*dump.status, *(name for name, _ in groups))):
        return found
    # A group that got no operation yet has no status: only what fills a gap between two known ones is sure.
    by_id = {int(text): text for text in dump.status}
    ids, names = sorted(by_id), sorted(groups, key=lambda key: int(key[0]))
    places = {key: place for place, key in enumerate(names)}
    anchors = [(-1, -1)]
    for at, pg_id in enumerate(ids):
        key = of_id.get(by_id[pg_id])
        if key in places and places[key] > anchors[-1][1]:
            anchors.append((at, places[key]))
    for (id_at, name_at), (next_id, next_name) in pairwise([*anchors, (len(ids), len(names))]):
        if next_id - id_at == next_name - name_at:
            for offset in range(1, next_id - id_at):
                found.setdefault(names[name_at + offset], dump.status[by_id[ids[id_at + offset]]])
    return found


def _group_state(group: Group, entries: list[Entry], status: Status | None) -> GroupState:
    p2p = any(entry.is_p2p for entry in entries)
    # Gloo has no events: what is no longer watched is done. Its numbers count sends and receives too.
    gloo = any(entry.backend == "gloo" for entry in entries)
    counted = status.completed if status is not None and not p2p and not gloo else -1
    waiting, done = _parted(entries, counted)
    seen = max((entry.seq for entry in entries if not entry.is_p2p), default=-1)
    last = max((entry.seq for entry in done if not entry.is_p2p), default=-1)
    first = min((entry.seq for entry in waiting if not entry.is_p2p), default=None)
    enqueued, completed = max(seen, -1), max(last, -1 if first is None else first - 1)
    if status is not None and not gloo:
        enqueued, completed = max(enqueued, status.enqueued), max(completed, status.completed)
    text = folded(group.ranks)
    return GroupState(
        name=group.name, desc=group.desc, ranks=text if len(text) <= MAX_RANKS_TEXT else "", enqueued=enqueued,
        started=status.started if status is not None else -1, completed=completed, seen=seen,
        done=max(last, -1 if first is None else first - 1), p2p=p2p, pending=len(waiting),
        ops=_first_ops(waiting, group.ranks), past=_past(done),
    )  # fmt: skip


def _parted(entries: list[Entry], counted: int) -> tuple[list[Entry], list[Entry]]:
    """The entries of one group that are pending, and those that are done.

    Parts of a coalesced operation never say that they are done: what ends the operation says it for them. Collectives
    of a group run one after the other, so that what stands before one that is done is done too.
    """
    parts: dict[tuple[bool, int], bool] = {}
    last, peers = counted, set[tuple[bool, int, int]]()
    waiting, done = list[Entry](), list[Entry]()
    for entry in reversed(entries):
        number = entry.p2p_seq if entry.is_p2p else entry.seq
        is_done = _is_done(entry) or parts.get((entry.is_p2p, number), False)
        if entry.op.endswith("coalesced"):
            parts[entry.is_p2p, number] = is_done
        if not entry.is_p2p:
            is_done = is_done or entry.seq <= last
            last = max(last, entry.seq) if is_done else last
        elif (ends := entry.ends) is not None:
            is_done = is_done or ends in peers
            if is_done:
                peers.add(ends)
        (done if is_done else waiting).append(entry)
    return waiting[::-1], done[::-1]


def _is_done(entry: Entry) -> bool:
    return entry.state == "completed" or (entry.backend == "gloo" and entry.retired)


def _first_ops(waiting: list[Entry], ranks: tuple[int, ...]) -> list[Op]:
    """The first pending collectives, and the first send and receive between each two."""
    ops, ends_seen, collectives = list[Op](), set[tuple[bool, int]](), 0
    for entry in waiting:
        ends = entry.ends
        if ends is None:
            collectives += not entry.is_p2p
            if not entry.is_p2p and collectives <= MAX_OPS:
                ops.append(_op(entry))
        elif ends[2] < len(ranks) and (ends[0], ends[2]) not in ends_seen and len(ends_seen) < MAX_PEERS:
            ends_seen.add((ends[0], ends[2]))
            ops.append(_op(entry, peer=ranks[ends[2]], sends=ends[0]))
    return ops


def _past(done: list[Entry]) -> list[Op]:
    return [_op(entry) for entry in [one for one in done if not one.is_p2p][-MAX_PAST:]]


def _op(entry: Entry, *, peer: int = -1, sends: bool = False) -> Op:
    return Op(
        entry.record_id, entry.seq, entry.p2p_seq, entry.profiling_name, entry.state, *entry.sizes[:2], *entry.dtypes,
        entry.sizes[2], entry.created_ns, entry.timeout_ms, entry.where, peer, sends,
    )  # fmt: skip


# --- as lines ---------------------------------------------------------------------------------------------------------


def lines_of(state: RankState, stamp: str, most: int = MAX_LINES_OF_RANK) -> list[str]:
    """The state as lines: first the last sign of life, whose stamp is the earliest time of what follows, then the
    groups in as few lines as hold them. Where it has to be short, the numbers of a group come before its operations.
    """
    said = _parts(state, most)
    state = msgspec.structs.replace(state, whole=sum(map(len, said)) == len(state.groups))
    world = world_of([state])
    head = [f"{stamp} flight recorder: last entry of rank {state.rank}"] if stamp else []
    return head + [
        f"flight recorder: rank {state.rank}, part {number} of {len(said)}, world {world}, {state.pending} pending, "
        f"state {msgspec.json.encode(msgspec.structs.replace(state, groups=groups)).decode()}"
        for number, groups in enumerate(said, 1)
    ]


def _parts(state: RankState, most: int) -> list[list[GroupState]]:
    parts: list[list[GroupState]] = [[]]
    size = 0
    for group in _shortened(sorted(state.groups, key=_importance), most * MAX_STATE):
        width = _width(group)
        if size + width > MAX_STATE and parts[-1]:
            if len(parts) == most:
                break
            parts.append([])
            size = 0
        parts[-1].append(group)
        size += width
    return parts


def _importance(group: GroupState) -> tuple[bool, int]:
    """Groups with something pending first, by what is pending for longest."""
    return (not group.pending, min((op.record_id for op in group.ops), default=0))


def _shortened(groups: list[GroupState], room: int) -> Iterable[GroupState]:
    """The groups, each with as many of its operations as there is room for beside the numbers of all."""
    bare = [msgspec.structs.replace(group, ops=[], past=[]) for group in groups]
    room -= sum(map(_width, bare))
    for group, numbers in zip(groups, bare, strict=True):
        for ops, past in ((group.ops, group.past), (group.ops, []), (group.ops[:1], [])):
            fuller = msgspec.structs.replace(group, ops=ops, past=past)
            more = _width(fuller) - _width(numbers)
            if more <= room and _width(fuller) <= MAX_STATE:
                room -= more
                yield fuller
                break
        else:
            yield numbers


def _width(group: GroupState) -> int:
    return len(msgspec.json.encode(group)) + 1


def read_state(text: str) -> RankState | None:
    """The state that a line holds; None where it holds none."""
    try:
        return msgspec.json.decode(text, type=RankState)
    except (ValueError, RecursionError):
        return None


def world_of(states: Iterable[RankState]) -> int:
    """How many ranks the job has: the size of its default group; 0 where no dump says it."""
    sizes = [
        len(unfolded(group.ranks))
        for state in states
        for group in state.groups
        if group.ranks and (group.desc == DEFAULT_GROUP or (group.name == "0" and not group.desc))
    ]
    return max(sizes, default=0)
