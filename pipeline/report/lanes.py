"""The lanes of a timeline: which place each step of an incident belongs to, and in which order places are drawn.

A step says its place in words ("rank 6 GPU 0000:5e:00.0 on hx32") and, where several ranks print alike, by their
numbers. Steps of one rank share a lane however much of the place each of them names; ranks that print alike share one
lane, so that 16,384 of them take no more room than two.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

from pipeline.report import words
from schemas.records import ChainStep, Culprit, Incident

MAX_LANES: Final = 12
_NAMED_SILENT: Final = 3
_WEIGHT: Final = {"root": 0, "cascade": 1, "symptom": 2, "context": 3}


@dataclass(frozen=True, kw_only=True)
class Lane:
    """One row: whose it is, on which node, what else tells it apart, the numbers of its steps; whether it is the
    culprit's own, of a rank that prints nothing, of many ranks.
    """

    who: str
    node: str = ""
    detail: str = ""
    steps: tuple[int, ...] = ()
    culprit: bool = False
    silent: bool = False
    many: bool = False


@dataclass(frozen=True, kw_only=True)
class _Spot:
    """The place of one step or more. `ranks`: several ranks that print alike, `alike` of them in all."""

    rank: int | None = None
    device: str = ""
    node: str = ""
    ranks: frozenset[int] = frozenset()
    alike: int = 0
    steps: tuple[ChainStep, ...] = ()


def lanes_of(incident: Incident, steps: Sequence[ChainStep]) -> list[Lane]:
    """The lanes from top to bottom: the root and its node, then in the order of telling, those of a node together, many
    ranks and the job last.

    Silent ranks have a lane without steps. At most MAX_LANES: the least telling ones share the last lane.
    """
    spots: list[_Spot] = []
    for step in steps:
        spot = _spot(step)
        at = next((n for n, other in enumerate(spots) if _same(other, spot)), None)
        if at is None:
            spots.append(spot)
        else:
            spots[at] = _merged(spots[at], spot)
    accused = _accused(spots, incident.culprits)
    lanes = [_lane(spot, spot in accused, incident) for spot in _together(spots)]
    return _at_most(_with_silent(lanes, incident, spots), spots)


def _spot(step: ChainStep) -> _Spot:
    if len(step.ranks) > 1:
        said = step.where.partition(" ")[0]
        alike = int(said) if said.isdecimal() and len(said) < 10 else 0
        ranks = frozenset(step.ranks)
        return _Spot(ranks=ranks, alike=max(alike, len(ranks)), steps=(step,))
    head, found, node = f" {step.where}".rpartition(" on ")
    parts = (head if found else step.where).split()
    rank = None
    if len(parts) > 1 and parts[0] == "rank" and parts[1].isdecimal() and len(parts[1]) < 10:
        rank, parts = int(parts[1]), parts[2:]
    return _Spot(rank=rank, device=" ".join(parts), node=node if found else "", steps=(step,))


def _same(one: _Spot, other: _Spot) -> bool:
    if one.ranks or other.ranks:
        return bool(one.ranks and other.ranks)
    if one.node and other.node and one.node != other.node:
        return False
    if one.rank is not None and other.rank is not None:
        return one.rank == other.rank
    if one.device.startswith("GPU "):  # a GPU has one rank, a network adapter may have several
        return one.device == other.device
    return (one.rank, one.device, one.node) == (other.rank, other.device, other.node)


def _merged(one: _Spot, other: _Spot) -> _Spot:
    return _Spot(
        rank=other.rank if one.rank is None else one.rank,
        device=one.device or other.device,
        node=one.node or other.node,
        ranks=one.ranks | other.ranks,
        alike=max(one.alike, other.alike, len(one.ranks | other.ranks)),
        steps=one.steps + other.steps,
    )


def _together(spots: Sequence[_Spot]) -> list[_Spot]:
    """Spots of a node beside each other; roots and their nodes first, many ranks and the whole job last."""
    nodes = [spot.node or f"\0{number}" for number, spot in enumerate(spots)]
    broken = {node for node, spot in zip(nodes, spots, strict=True) if _has_root(spot)}

    def place(number: int) -> tuple[int, bool, int, bool, int]:
        spot, node = spots[number], nodes[number]
        last = 2 if spot.device == "job" and spot.rank is None else 1 if spot.ranks else 0
        return last, node not in broken, nodes.index(node), not _has_root(spot), number

    return [spots[number] for number in sorted(range(len(spots)), key=place)]


def _has_root(spot: _Spot) -> bool:
    return any(step.role == "root" for step in spot.steps)


def _lane(spot: _Spot, culprit: bool, incident: Incident) -> Lane:
    who, node, detail = _label(spot)
    return Lane(
        who=who,
        node=node,
        detail=detail,
        steps=tuple(step.step for step in spot.steps),
        culprit=culprit,
        silent=spot.rank is not None and spot.rank in incident.blast_radius.silent_ranks,
        many=bool(spot.ranks),
    )


def _label(spot: _Spot) -> tuple[str, str, str]:
    if spot.ranks:
        more = " …" if spot.alike > len(spot.ranks) else ""
        return words.counted(spot.alike, "rank"), "", f"{words.rank_list(spot.ranks)}{more}"
    if spot.rank is not None:
        return f"rank {spot.rank}", spot.node, spot.device
    if spot.device == "job":
        return "job", "", "no rank or node named"
    return (spot.device, "", spot.node) if spot.device else (spot.node, "", "node")


def _accused(spots: Sequence[_Spot], culprits: Sequence[Culprit]) -> list[_Spot]:
    """The culprits' own lanes; for one that has none, the lane of its node."""
    found: list[_Spot] = []
    for culprit in culprits:
        own = [spot for spot in spots if _is_own(spot, culprit)]
        found += own or [spot for spot in spots if _is_node(spot) and spot.node == culprit.node]
    return found


def _is_own(spot: _Spot, culprit: Culprit) -> bool:
    if spot.ranks or (culprit.node and spot.node and culprit.node != spot.node):
        return False
    gpu = f"GPU {culprit.pci_bus_id}"
    if spot.rank is not None:
        return spot.rank == culprit.rank or spot.device == gpu
    return bool(spot.device) and spot.device in (gpu, culprit.nic)


def _is_node(spot: _Spot) -> bool:
    return spot.rank is None and not spot.device and not spot.ranks


def _with_silent(lanes: list[Lane], incident: Incident, spots: Sequence[_Spot]) -> list[Lane]:
    """Lanes of ranks that print nothing go above all that others print of them, but below the root."""
    seen = {spot.rank for spot in spots}
    quiet = [rank for rank in incident.blast_radius.silent_ranks if rank not in seen]
    if not quiet:
        return lanes
    accused = {culprit.rank: culprit.node or "" for culprit in incident.culprits}
    if len(quiet) <= _NAMED_SILENT:
        rows = [
            Lane(who=f"rank {rank}", node=accused.get(rank, ""), culprit=rank in accused, silent=True) for rank in quiet
        ]
    else:
        some = any(rank in accused for rank in quiet)
        rows = [
            Lane(
                who=f"{len(quiet):,} silent ranks", detail=words.rank_list(quiet), culprit=some, silent=True, many=True
            )
        ]
    roots = {step.step for spot in spots if _has_root(spot) for step in spot.steps}
    after = sum(not roots.isdisjoint(lane.steps) for lane in lanes[:1])
    return [*lanes[:after], *rows, *lanes[after:]]


def _at_most(lanes: list[Lane], spots: Sequence[_Spot]) -> list[Lane]:
    rest = len(lanes) - MAX_LANES
    if rest <= 0:
        return lanes
    weight = {step.step: _WEIGHT[step.role] for spot in spots for step in spot.steps}

    def telling(number: int) -> tuple[bool, int, int]:
        lane = lanes[number]
        return not lane.culprit and not lane.many, min((weight[step] for step in lane.steps), default=1), number

    kept = set(sorted(range(len(lanes)), key=telling)[: MAX_LANES - 1])
    folded = [lane for number, lane in enumerate(lanes) if number not in kept]
    more = Lane(
        who=words.counted(len(folded), "more place"),
        detail=words.listed([lane.who for lane in folded]),
        steps=tuple(sorted(step for lane in folded for step in lane.steps)),
    )
    return [*(lane for number, lane in enumerate(lanes) if number in kept), more]
