"""What the dumps of the flight recorder come to, in sentences. Pure text."""

from typing import Final

from pipeline.core.flight.analysis import Findings, Stuck
from pipeline.core.flight.mismatch import Crossed, GroupKey, Mismatch
from pipeline.core.flight.state import DEFAULT_GROUP, Op, folded

UNDEFINED: Final = "undefined"


def group_text(key: GroupKey) -> str:
    """`72 (EXPERT_MODEL_PARALLEL_GROUP)`, as PyTorch writes it."""
    name, desc, _ = key
    if not desc or desc == UNDEFINED:
        return name or DEFAULT_GROUP
    return f"{name} ({desc})" if name else desc


def ranks_text(ranks: list[int]) -> str:
    """`Rank 3`, `Ranks 0-7, 9`."""
    return f"Rank {ranks[0]}" if len(ranks) == 1 else f"Ranks {folded(ranks)}"


def op_text(op: Op) -> str:
    """`all_reduce number 512`, `send 0->3`."""
    return op.name if op.is_p2p else f"{op.name} number {op.seq}"


def stuck_said(found: Findings) -> tuple[str, str]:
    """The ranks that others wait for, and what would say why."""
    sentences = [_stuck_sentence(alike) for alike in stuck_alike(found)]
    is_host = all(one.pending == 0 for one in found.stuck)
    why = (
        "the dumps say which rank stopped and where, not why: its host did not call the collective, so its stack "
        "(py-spy) and the log of its node would decide"
        if is_host
        else "the dumps say which rank stopped and where, not why: the kernel log of its node (Xid) and its stack "
        "(py-spy) would decide"
    )
    return " ".join(sentences), why


def stuck_alike(found: Findings) -> list[list[Stuck]]:
    """The stuck ranks, those together that stopped alike in one group."""
    alike: dict[tuple[object, ...], list[Stuck]] = {}
    for one in found.stuck:
        name = (one.kind, one.group, one.seq, one.op, one.pending == 0)
        alike.setdefault(name, []).append(one)
    return [alike[name] for name in sorted(alike, key=str)]


def _stuck_sentence(alike: list[Stuck]) -> str:
    first, ranks = alike[0], [one.rank for one in alike]
    waiting = sorted(set().union(*{one.waiting for one in alike}))
    who = f"rank {waiting[0]} waits" if len(waiting) == 1 else f"ranks {folded(waiting)} wait"
    waits = f"{who} for {_it(ranks)}"
    what = f"{first.op} number {first.seq} of process group {group_text(first.group)}"
    if " " in first.op:
        # A send or receive has no number that both ends share.
        what = f"the other half of {first.op} in process group {group_text(first.group)}"
    if first.kind == "before":
        host = "; nothing is pending there, so the host stopped, not the device" if first.pending == 0 else ""
        return f"{ranks_text(ranks)} never entered {what}{host}; {waits}."
    return f"{ranks_text(ranks)} entered {what} and did not complete it while others did; {waits}."


def missing_said(found: Findings) -> tuple[str, str]:
    """Ranks of which no dump is there, for which others wait."""
    ranks, awaited = found.awaited, set(found.awaited)
    waiting = ranks_text([wait.rank for wait in found.waiting if not awaited.isdisjoint(wait.on)]).lower()
    said = f"Of {ranks_text(ranks).lower()} there is no flight-recorder dump, and {waiting} waited for {_it(ranks)}."
    return said, (
        "a process that died dumps nothing, and a dump that was not collected is missing too: the log of that rank and "
        "the kernel log of its node would decide"
    )


def circle_said(found: Findings) -> tuple[str, str]:
    """Ranks that wait for each other."""
    said = f"{ranks_text(found.circle)} wait for each other in different operations; no rank holds up all others."
    return said, "their stacks (py-spy) would show who calls what in which order"


def crossed_said(crossed: Crossed) -> tuple[str, str]:
    """Two operations in two orders."""
    ranks = crossed.odd or crossed.others
    said = (
        f"{ranks_text(ranks)} enqueued {op_text(crossed.first_op)} of process group {group_text(crossed.first)} and "
        f"{op_text(crossed.second_op)} of process group {group_text(crossed.second)} in another order than others, and "
        "nobody completed either."
    )
    return said, "their stacks (py-spy) would show who calls what in which order"


def together_said(found: Findings) -> tuple[str, str]:
    """What all entered and nobody completed."""
    first = found.together[0]
    more = f" (and of {len(found.together) - 1} more)" if len(found.together) > 1 else ""
    said = (
        f"All {len(first.ranks)} ranks of process group {group_text(first.group)}{more} entered "
        f"{op_text(first.op)} and none completed it."
    )
    return said, "no rank lags: kernel logs of all nodes and the counters of the network between them would decide"


def mismatch_said(mismatch: Mismatch) -> str:
    """Where the ranks of a group differ."""
    ranks = mismatch.odd or mismatch.others
    own, other = _signature(mismatch.odd_op), _signature(mismatch.other_op)
    tie = "" if mismatch.odd else " on half of them"
    return (
        f"{ranks_text(ranks)}: another {mismatch.what} at number {mismatch.seq} of process group "
        f"{group_text(mismatch.group)}: {own}{tie}, others {other}."
    )


def _signature(op: Op) -> str:
    return f"{op.name} {op.shape} {op.dtype_in}".strip()


def _it(ranks: list[int]) -> str:
    return "it" if len(ranks) == 1 else "them"
