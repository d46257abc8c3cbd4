"""What was blamed and went on: a process that should have died, ranks that trained on after a fault. Pure."""

from collections.abc import Collection, Iterable, Mapping
from typing import Final

import msgspec

from pipeline.core.chains import SECOND_NS, Chain, Resolved, Step
from pipeline.core.derived.scene import last_of, lasts, newest_of
from pipeline.core.order import Stamped, canonical, lag_ns, order
from pipeline.core.placement import PlacementMap
from pipeline.core.signs import FAILURES, LAST_WORDS, LOST_A_PEER, SURVIVORS
from pipeline.core.silent import lines_of
from schemas.records import Event

_STEP: Final = "train.step"
# Of such faults a rank does not train on; and only of these it is known which ranks they concern.
_STOPS: Final = ("hard", "soft", "hang")
_OF_RANKS: Final = ("rank", "gpu", "node")
# What the line of a fault is, and of what it does: later ones show that it bit later.
_TELLING: Final = ("cause", "intermediate")


def lives_on(chain: Chain, items: Iterable[Resolved]) -> bool:
    """Whether what should have died by the root speaks of the death of others afterwards.

    Of a node any rank speaks, and the BMC's clock often cannot say when: only what was earlier for certain is left out.
    """
    rank, node, root = chain.subject.rank, chain.subject.node, chain.root_item.episode.first
    if not chain.rule.dies:
        return False
    survivors = [item for item in items if item.episode.name in SURVIVORS]
    if chain.rule.scope == "node":
        ours = [line for item in survivors if node is not None for line in _lines_on(item, node)]
        return any(order(root, line) != "after" for line in ours)
    if rank is None:
        return False
    return any(order(root, line) == "before" for item in survivors for line in lines_of(item, rank))


def _lines_on(item: Resolved, node: str) -> list[Stamped]:
    """The first lines of the ranks of a node."""
    if not item.episode.crowd:
        return [item.episode.first] if item.subject.node == node and item.subject.rank is not None else []
    return [member for member in item.episode.crowd.values() if member.node == node]


# --- training on ----------------------------------------------------------------------------------------------------


def last_steps(items: Iterable[Resolved]) -> dict[int, Event]:
    """The last step of training that each rank tells of."""
    return {rank: last_of(item) for rank, item in newest_of(items, (_STEP,)).items()}


def trained_on(
    chain: Chain, steps: Mapping[int, Event], failures: Iterable[Resolved], waited: Collection[int],
    placement: PlacementMap, silent: Collection[int],
) -> bool:  # fmt: skip
    """Whether all ranks that a fault concerns went on with steps for longer than it could have waited. `steps`:
    the last step of each rank; `failures`: how the job failed; `waited`: the ranks that report that they waited.

    A fault that stops a process stops its steps; then what stopped the job later is something else. Not where one of
    these ranks is the one that fell silent, nor where a later line tells of the fault again, or of what it did, nor
    where the job failed by then and was started anew.
    """
    ranks = _concerned(chain, placement)
    if not ranks or not ranks.isdisjoint(silent) or not ranks <= steps.keys():
        return False
    least_ns = int(chain.rule.bites_s * SECOND_NS)
    if _is_another_run(chain.root_item.episode.first, failures, [steps[rank] for rank in ranks], least_ns):
        return False
    telling = [chain.root_item, *(step.item for step in chain.steps if _tells(step, ranks, waited))]
    lags = [lag_ns(line, steps[rank]) for line in lasts(telling) for rank in ranks]
    return all(lag is not None and lag[0] >= least_ns for lag in lags)


def _is_another_run(root: Event, failures: Iterable[Resolved], steps: Iterable[Event], least_ns: int) -> bool:
    """Whether the job failed soon after the fault, or the steps are of so long after its failure that it was started
    anew: of a rank the last step is kept, which then says nothing of what came before the failure.
    """
    after = [item.episode.first for item in failures if order(root, item.episode.first) == "before"]
    failed = min(after, key=canonical, default=None)
    if failed is None:
        return False
    lags = [lag_ns(root, failed), *(lag_ns(failed, step) for step in steps)]
    took, *since = (lag[0] if lag is not None else 0 for lag in lags)
    return took < least_ns or any(ns >= least_ns for ns in since)


def by_itself(chain: Chain) -> Chain:
    """The chain without what it did to others."""
    kept = [
        number
        for number, one in enumerate(chain.steps)
        if number == chain.root or (one.role != "symptom" and one.item.episode.name not in FAILURES)
    ]
    at = {number: place for place, number in enumerate(kept)}
    steps = [
        msgspec.structs.replace(
            chain.steps[number],
            parent=_moved(chain.steps[number].parent, at, chain.root),
            leads_to=_moved(chain.steps[number].leads_to, at, chain.root),
        )
        for number in kept
    ]
    return msgspec.structs.replace(chain, steps=steps, root=at[chain.root], effects=0)


def _moved(number: int | None, at: Mapping[int, int], root: int) -> int | None:
    return None if number is None else at.get(number, at[root])


def _concerned(chain: Chain, placement: PlacementMap) -> set[int]:
    """The ranks that a fault concerns, as far as they are known: of a GPU of which nobody says whose it is, all of its
    node. Of a fault that stops nobody, or of whoever uses something, none.
    """
    rule, subject = chain.told, chain.subject
    if (rule.interruption not in _STOPS and not rule.dies) or (rule.scope not in _OF_RANKS and not _is_own(chain)):
        return set()
    if subject.rank is not None:
        return {subject.rank}
    if subject.node is None:
        return set()
    here = {rank: one for rank, one in placement.ranks.items() if one.node == subject.node}
    if rule.scope != "gpu" or subject.pci_bus_id is None:
        return set(here)
    users = {rank for rank, one in here.items() if one.pci_bus_id == subject.pci_bus_id}
    return users or {rank for rank, one in here.items() if one.pci_bus_id is None}


def _is_own(chain: Chain) -> bool:
    """Whether the kernel of a node says of itself what may concern the whole job."""
    return chain.rule.scope == "job" and chain.root_item.episode.first.source_kind == "kernel"


def _tells(step: Step, ranks: Collection[int], waited: Collection[int]) -> bool:
    """Whether a step is of the fault or of what it did: of a rank that reports that it waited only its last words."""
    if step.role == "context":
        return False
    first, ours = step.item.episode.first, step.item.ranks.intersection(ranks)
    if first.role in _TELLING or (ours and first.name in LAST_WORDS):
        return True
    return any(rank not in waited for rank in ours) and first.name not in SURVIVORS | LOST_A_PEER
