"""Who waited in another call than all others, by the tracebacks of ranks that waited in vain.

A blocking backend (gloo) raises in the thread that called: the deepest frame is the collective in which the rank
stood, and the functions of the program above it say whether it had already left what the others were still in. Ranks
that are only late come to the same call.
Source: torch/distributed/distributed_c10d.py (work.wait() in the call itself), torch/csrc/distributed/c10d/reducer.cpp.
"""

from collections import Counter
from collections.abc import Sequence
from typing import Final, NamedTuple

import msgspec

from pipeline.core.blocks import WAITED, callers_of
from pipeline.core.chains import Resolved
from pipeline.core.derived.ranks import Start
from pipeline.core.derived.scene import Changes, Scene, as_event
from pipeline.core.order import Place, canonical
from pipeline.core.placement import PlacementMap

# The rank came to the end of its data; attributes of what differs.
ENDED_EARLY: Final = "train.end.early"
_END: Final = "train.end"
_MISMATCH: Final = "collective.mismatch"
_TIMEOUT: Final = "gloo.timeout"
# Whose lines show in which collective a rank stood: Python's calls, and what autograd and DDP call by themselves.
_OF_TORCH: Final = ("/torch/distributed/", "/torch/autograd/", "/torch/nn/parallel/")
_BACKWARD: Final = "_engine_run_backward"
_NAMES: Final = {_BACKWARD: "backward", "_verify_param_shape_across_processes": "the wrapping by DDP"}
# So many agree on where they wait.
MIN_ALIKE: Final = 2


class Odd(NamedTuple):
    """The rank that waited elsewhere, where it did, and where the others did."""

    rank: int
    item: Resolved
    others: list[Resolved]


def odd_of_calls(scene: Scene) -> Changes:
    """The one rank that waited elsewhere than all others of the job."""
    odd = None if scene.silent is not None else odd_one(scene.items, scene.placement)
    if odd is None:
        return
    ends = [item for item in scene.named(_END) if item.subject.rank == odd.rank]
    item = ends[-1] if ends and _has_left(odd) else odd.item
    kept = [item] if len(item.ranks) > 1 else []
    yield id(item), [*kept, _finding(scene, odd, item)]


def odd_one(items: Sequence[Resolved], placement: PlacementMap) -> Odd | None:
    """The rank that waited elsewhere than all others, who agree. None where a rank says nothing of its own waiting: it
    may be the one waited for.
    """
    if all(item.episode.name != _TIMEOUT for item in items):
        return None
    found = _stood(items)
    counts = Counter(_call(item) for item, _ in found.values())
    if len(found) != placement.world_size or len(counts) != 2 or None in counts:
        return None
    if min(counts.values()) != 1 or max(counts.values()) < MIN_ALIKE:
        return None
    ((common, _), (single, _)) = counts.most_common()
    (rank,) = (rank for rank, (item, _) in found.items() if _call(item) == single)
    others = [item for item, _ in found.values() if _call(item) == common]
    return Odd(rank, found[rank][0], others)


def _stood(items: Sequence[Resolved]) -> dict[int, tuple[Resolved, Place | Start]]:
    """By rank the first line of its waiting."""
    found: dict[int, tuple[Resolved, Place | Start]] = {}
    for item in (item for item in items if item.episode.name in WAITED):
        places = {m.rank: m.place for m in item.episode.crowd.values() if m.rank is not None}
        for rank in item.ranks:
            place = places.get(rank, canonical(item.episode.first))
            if rank not in found or place < found[rank][1]:
                found[rank] = item, place
    return found


def _call(item: Resolved) -> str | None:
    said = item.episode.attributes
    return said.get("function") if any(part in said.get("file", "") for part in _OF_TORCH) else None


def _has_left(odd: Odd) -> bool:
    """Whether the odd rank is out of the function in which the others still train: its data ended before theirs."""
    own, theirs = _callers(odd.item), {_callers(one) for one in odd.others}
    left = all(len(one) > len(own) and one[: len(own)] == own for one in theirs)
    return left and _call(odd.others[0]) == _BACKWARD


def _finding(scene: Scene, odd: Odd, item: Resolved) -> Resolved:
    """What the odd rank did, by its own word of its end or by the line of its waiting."""
    event = msgspec.structs.replace(
        item.episode.newest, name=ENDED_EARLY if _has_left(odd) else _MISMATCH, role="cause",
        label="software/collective_mismatch",
        attributes={**item.episode.attributes, "rank": str(odd.rank), "differ": _differ(odd)},
    )  # fmt: skip
    return as_event(item, event, scene.rank(odd.rank))


def _callers(item: Resolved) -> tuple[str, ...]:
    return callers_of(item.episode.attributes)


def _differ(odd: Odd) -> str:
    own, theirs = (_NAMES.get(call or "", call) for call in (_call(odd.item), _call(odd.others[0])))
    return f"in {own}, the others in {theirs}"
