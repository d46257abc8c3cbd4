"""From chains to conclusions: which one is the root, what stands beside it, or why the evidence cannot say.

Pure and order-independent: the same episodes and facts give the same conclusions, however they arrived.
"""

from collections.abc import Mapping
from typing import Final

import msgspec

from pipeline.core.alike import of_all
from pipeline.core.beside import context
from pipeline.core.causes import RuleSet
from pipeline.core.chains import Chain, Known, Resolved, chains_of, link_of
from pipeline.core.companions import filled, with_companions
from pipeline.core.conclusion import Conclusion, Reported
from pipeline.core.derived import derive
from pipeline.core.derived.flight import FlightEvidence, flight_evidence
from pipeline.core.episodes import Episode
from pipeline.core.lived_on import by_itself, last_steps, lives_on, trained_on
from pipeline.core.marks import STALLED
from pipeline.core.nameless import File, machines_of, told_where
from pipeline.core.one_fault import alone, each, one_per_entity, with_rivals
from pipeline.core.order import canonical
from pipeline.core.placement import PlacementMap
from pipeline.core.raised import ended_by_cuda, raised
from pipeline.core.run_state import runs_again
from pipeline.core.signs import DURING, FAILURES
from pipeline.core.silent import fell_silent, reporters
from pipeline.core.stalls import stopped
from pipeline.core.strangers import all_heard, at_home
from pipeline.core.unknown import gone_of, unknown
from schemas.records import Entity
from schemas.vocabulary import QUIET_CLASSES

# Of so many that print alike the process numbers are looked up.
MAX_RESOLVED: Final = 256
# Less than this proves a hint: it does not explain away what proves more.
HINT: Final = 0.5


def conclude(episodes: list[Episode], placement: PlacementMap, rules: RuleSet, reported: Reported) -> list[Conclusion]:
    """All conclusions of one investigation, the main one first. Empty where nothing failed."""
    items, found = _concluded(episodes, placement, rules, reported)
    return [_accompanied(one, items) for one in found]


def _concluded(
    episodes: list[Episode], placement: PlacementMap, rules: RuleSet, reported: Reported
) -> tuple[list[Resolved], list[Conclusion]]:
    machines = machines_of(episodes, placement)
    items = [_resolved(episode, placement, machines) for episode in episodes]
    flight = flight_evidence(items, placement, reporters(items))
    items = flight.items
    silent = fell_silent(items, placement, reported, flight.silent)
    stalled = stopped(items)
    stalls = [item for item in items if item.episode.name in DURING] or stalled
    items = derive(items, stalls, placement, silent[0] if len(silent) == 1 else None)
    failures = [item for item in items if item.episode.name in FAILURES]
    if failures:
        # Marks that stopped are a failure where no line tells of one; else they explain nothing and need no cause.
        items = [item for item in items if item.episode.name != STALLED]
    failures = failures or stalled
    known = _known(placement, heard=all_heard(items, placement, reported.nodes))
    chains = [chain for chain in chains_of(items, rules, known) if chain.is_whole and not lives_on(chain, items)]
    if failures:
        chains = _fallen(chains, items, failures, placement, silent)
    chains = _of_this_run(chains, episodes)
    ours, theirs = at_home(chains, items, placement, explains=_explains_failure)
    roots, outsiders = _not_explained(ours), _not_explained(theirs)
    linked = [c for c in roots if (_explains_failure(c) or not failures) and not _waits(c, flight)]
    loose = [*(c for c in roots if not any(c is other for other in linked)), *outsiders]
    linked.sort(key=lambda c: (-_score(c, failures), canonical(c.root_item.episode.first)))
    if not (failures or roots or outsiders):
        failures, gone = raised(items)
        if any(item.subject != Entity() for item in gone):
            return items, [gone_of(gone, items)]
    if not failures:
        found = each(one_per_entity([*linked, *loose]), placement)
        return items, [*found[:1], *(msgspec.structs.replace(c, main=False) for c in found[1:])]
    if not linked and failures is stalled and any(_is_said_by_the_job(c) for c in loose):
        return _concluded([e for e in episodes if e.name != STALLED], placement, rules, reported)
    if not linked:
        ended = [] if silent else ended_by_cuda(items, failures)
        main = gone_of(ended, items) if ended else unknown(items, failures, placement, reported, silent, flight)
        return items, [main, *alone(loose, placement, main.culprits)]
    main, beside = with_rivals(linked, loose, placement)
    main = of_all(main, items, placement)
    return items, [main, *alone(beside, placement, main.culprits)]


def _known(placement: PlacementMap, *, heard: bool) -> Known:
    placed = sum(entity.node is not None for entity in placement.ranks.values())
    return Known(
        placed=placement.world_size is not None and placed >= placement.world_size,
        nodes=placement.nodes(), blind=_blind(placement), heard=heard,
    )  # fmt: skip


def _blind(placement: PlacementMap) -> set[str]:
    """Nodes with ranks of which no line says the GPU."""
    ranks = placement.ranks.values()
    return {rank.node for rank in ranks if rank.node and rank.pci_bus_id is None and rank.gpu_uuid is None}


def _is_said_by_the_job(chain: Chain) -> bool:
    """Whether a process of the job tells of its failure: that says more than marks that stopped."""
    return chain.rule.class_ not in QUIET_CLASSES and chain.root_item.episode.first.source_kind == "application"


def _resolved(episode: Episode, placement: PlacementMap, machines: Mapping[File, str]) -> Resolved:
    subject = told_where(placement.subject(episode.first), episode.first, machines, placement)
    subject = link_of(subject, episode.attributes)
    if len(episode.crowd) < 2:
        return Resolved(episode=episode, subject=subject)
    members = episode.crowd.values()
    ranks = {member.rank for member in members if member.rank is not None}
    if len(members) <= MAX_RESOLVED:
        nameless = [member for member in members if member.rank is None]
        found = (placement.resolve(Entity(node=m.node or None, pid=m.pid), m.aligned_time_unix_nano) for m in nameless)
        ranks |= {entity.rank for entity in found if entity.rank is not None}
    # The subject is who printed the first line: what the episode says holds for all of them.
    return Resolved(episode=episode, subject=Entity(link=subject.link), crowd_ranks=frozenset(ranks))


def _accompanied(conclusion: Conclusion, items: list[Resolved]) -> Conclusion:
    steps = conclusion.steps
    if conclusion.main:
        steps = context(steps, conclusion.root, conclusion.class_, conclusion.culprits, items)
    of_job = conclusion.main and not conclusion.outside
    steps = with_companions(steps, conclusion.root, conclusion.culprits, items, speaks_for_job=of_job)
    culprits = [filled(culprit, steps, conclusion.class_, items) for culprit in conclusion.culprits]
    return msgspec.structs.replace(conclusion, steps=steps, culprits=culprits)


# --- choosing -----------------------------------------------------------------------------------------------------


def _not_explained(chains: list[Chain]) -> list[Chain]:
    """The chains whose root is no mere step of a stronger one."""
    inside: dict[int, list[Chain]] = {}
    for chain in chains:
        for number, one in enumerate(chain.steps):
            if number != chain.root or one.parent is not None:
                inside.setdefault(id(one.item), []).append(chain)
            if number == chain.root:
                inside.setdefault(-id(one.item), []).append(chain)
    return [chain for chain in chains if not _is_explained(chain, inside)]


def _is_explained(chain: Chain, inside: dict[int, list[Chain]]) -> bool:
    root = chain.root_item
    for other in inside.get(-id(root), ()):
        if other is not chain and other.strength > chain.strength:
            return True
    for other in inside.get(id(root), ()):
        if other is chain or other.root_item is root or other.strength < HINT <= chain.strength:
            continue
        if other.rule is chain.rule and other.subject == Entity() != chain.subject:
            # The same fault, told by a line that names nobody.
            continue
        mutual = any(one.item is other.root_item for one in chain.steps)
        if not mutual or other.weight > chain.weight:
            return True
    return False


def _fallen(
    chains: list[Chain], items: list[Resolved], failures: list[Resolved], placement: PlacementMap, silent: list[int]
) -> list[Chain]:
    """The chains, of which those whose ranks trained on explain nothing of the failure."""
    steps, waited = last_steps(items), reporters(items)
    found = (by_itself(c) if trained_on(c, steps, failures, waited, placement, silent) else c for c in chains)
    return [chain for chain in found if chain.is_whole]


def _waits(chain: Chain, flight: FlightEvidence) -> bool:
    """Whether the rank blamed waits for another one, by its own dump."""
    return chain.rule.scope in ("rank", "gpu", "peer") and chain.subject.rank in flight.waiting


def _of_this_run(chains: list[Chain], episodes: list[Episode]) -> list[Chain]:
    """The chains without the endings by the scheduler after which the job ran again, where anything else broke."""
    faults = [chain for chain in chains if chain.rule.class_ not in QUIET_CLASSES]
    endings = [chain for chain in chains if chain.rule.class_.startswith("scheduler/")]
    past = [chain for chain in endings if faults and runs_again(episodes, [chain.root_item.episode.first])]
    return [chain for chain in chains if not any(chain is other for other in past)]


def _explains_failure(chain: Chain) -> bool:
    """Whether the failure of the job hangs on the root, or is the root."""
    return any(
        one.item.episode.name in FAILURES or (one.role == "symptom" and one.parent is not None) for one in chain.steps
    )


def _score(chain: Chain, failures: list[Resolved]) -> float:
    inside = {id(one.item) for one in chain.steps}
    share = sum(id(failure) in inside for failure in failures) / len(failures) if failures else 0.0
    return chain.strength + 0.3 * share
