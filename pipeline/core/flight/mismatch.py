"""Collectives that are not the same on all ranks of a group: another operation, size or data type at one number, or two
groups that some ranks call in another order than the others.
"""

from collections import Counter, defaultdict
from collections.abc import Callable, Hashable, Iterable
from typing import Final, Literal

from msgspec import Struct

from pipeline.core.flight.state import GroupState, Op

What = Literal["operation", "size", "data type"]
# Name, description and folded ranks of a group; what names it on all ranks.
GroupKey = tuple[str, str, str]
# What PyTorch does not compare (flight_recorder/components/types.py): each rank may bring another size.
_ANY_SIZE: Final = ("all_to_all", "alltoall")
_ANY_INPUT: Final = frozenset(("scatter",))
_ANY_OUTPUT: Final = frozenset(("gather",))
# Of so many groups of one rank the order is compared.
MAX_ORDERED: Final = 24


class Mismatch(Struct, frozen=True, kw_only=True):
    """The first number at which the ranks of a group differ. `odd`: the fewer of them, empty where it is a tie."""

    group: GroupKey
    seq: int
    what: What
    odd: list[int]
    others: list[int]
    odd_op: Op
    other_op: Op


class Crossed(Struct, frozen=True, kw_only=True):
    """Two operations that some ranks (`odd`, empty where it is a tie) enqueued in another order than the others."""

    first: GroupKey
    first_op: Op
    second: GroupKey
    second_op: Op
    odd: list[int]
    others: list[int]


# --- one number -------------------------------------------------------------------------------------------------------


def first_mismatches(members: dict[GroupKey, dict[int, GroupState]], stalled: Iterable[GroupKey]) -> list[Mismatch]:
    """The first mismatch of each group in which something is stuck, as far back as the dumps tell."""
    found = []
    for key in sorted(stalled):
        by_seq = _by_seq(members[key])
        compared = (_compare(key, seq, by_seq[seq]) for seq in sorted(by_seq))
        mismatch = next((one for one in compared if one is not None), None)
        if mismatch is not None:
            found.append(mismatch)
    return found


def _by_seq(group: dict[int, GroupState]) -> dict[int, dict[int, Op]]:
    by_seq: dict[int, dict[int, Op]] = defaultdict(dict)
    for rank, state in group.items():
        ops = [op for op in (*state.past, *state.ops) if not op.is_p2p and not op.name.endswith("coalesced")]
        counts = Counter(op.seq for op in ops)
        for op in ops:
            # Parts of a coalesced operation share a number.
            if counts[op.seq] == 1:
                by_seq[op.seq][rank] = op
    return by_seq


def _compare(key: GroupKey, seq: int, ops: dict[int, Op]) -> Mismatch | None:
    for what, signature in _SIGNATURES:
        common, odd, is_tie = _parted({rank: signature(op) for rank, op in ops.items()})
        if odd:
            return Mismatch(
                group=key, seq=seq, what=what, odd=[] if is_tie else odd,
                others=sorted([*common, *odd]) if is_tie else common, odd_op=ops[odd[0]], other_op=ops[common[0]],
            )  # fmt: skip
    return None


def _parted(signatures: dict[int, Hashable]) -> tuple[list[int], list[int], bool]:
    """The ranks that agree with most others, those that do not, and whether it is a tie."""
    by_signature: dict[Hashable, list[int]] = defaultdict(list)
    for rank in sorted(signatures):
        by_signature[signatures[rank]].append(rank)
    ordered = sorted(by_signature.values(), key=lambda ranks: (-len(ranks), ranks))
    if len(ordered) < 2:
        return (ordered[0] if ordered else []), [], False
    common, *rest = ordered
    return common, sorted(rank for ranks in rest for rank in ranks), len(rest[0]) == len(common)


def _size(op: Op) -> Hashable:
    if op.name.startswith(_ANY_SIZE) or "_v" in op.name:
        return None
    return (-1 if op.name in _ANY_INPUT else op.numel_in, -1 if op.name in _ANY_OUTPUT else op.numel_out)


def _types(op: Op) -> Hashable:
    return ("" if op.name in _ANY_INPUT else op.dtype_in, "" if op.name in _ANY_OUTPUT else op.dtype_out)


def _name(op: Op) -> Hashable:
    return op.name


_SIGNATURES: Final[tuple[tuple[What, Callable[[Op], Hashable]], ...]] = (
    ("operation", _name), ("size", _size), ("data type", _types),
)  # fmt: skip


# --- the order of two groups ------------------------------------------------------------------------------------------


def first_crossed(heads: dict[int, list[tuple[GroupKey, Op]]]) -> Crossed | None:
    """Two operations of which each is the first one of some ranks and waits behind the other on others. `heads`: of
    each rank the first pending collective of each group, in the order in which it enqueued them.
    """
    orders: dict[tuple[GroupKey, int, GroupKey, int], dict[int, bool]] = defaultdict(dict)
    ops: dict[tuple[GroupKey, int], Op] = {}
    for rank, pending in heads.items():
        for second, second_op in pending[1:MAX_ORDERED]:
            first, first_op = pending[0]
            a, b = (first, first_op.seq), (second, second_op.seq)
            ops.setdefault(a, first_op)
            ops.setdefault(b, second_op)
            orders[(*a, *b) if a < b else (*b, *a)][rank] = a < b
    for pair in sorted(orders):
        common, odd, is_tie = _parted(dict(orders[pair]))
        if odd:
            first, first_seq, second, second_seq = pair
            return Crossed(
                first=first, first_op=ops[first, first_seq], second=second, second_op=ops[second, second_seq],
                odd=[] if is_tie else odd, others=sorted([*common, *odd]) if is_tie else common,
            )  # fmt: skip
    return None
