"""From chains to conclusions: which one is the root, what stands beside it, or why the evidence cannot say.

Pure and order-independent: the same episodes and facts give the same conclusions, however they arrived.
"""

import re
from collections.abc import Mapping
from typing import Final

import msgspec
from msgspec import Struct

from pipeline.core.beside import context
from pipeline.core.causes import Rule, RuleSet
from pipeline.core.chains import Chain, Known, Resolved, Step, chains_of, link_of, step
from pipeline.core.companions import filled, with_companions
from pipeline.core.derived import derive
from pipeline.core.derived.flight import FAILURES as FLIGHT_FAILURES
from pipeline.core.derived.flight import FlightEvidence, flight_evidence
from pipeline.core.derived.launcher import ended_first
from pipeline.core.derived.ranks import unheard_of
from pipeline.core.episodes import Episode
from pipeline.core.marks import STALLED
from pipeline.core.nameless import File, machines_of, told_where
from pipeline.core.order import Stamped, canonical, order
from pipeline.core.placement import PlacementMap
from pipeline.core.progress_marks import Stall
from pipeline.core.raised import raised
from pipeline.core.stalls import LAST_MARK, WHY_UNKNOWN, last_marks, said_of, stopped, stopped_first
from pipeline.core.strangers import all_heard, at_home
from schemas.records import Entity
from schemas.vocabulary import QUIET_CLASSES

# Evidence that a job failed, beyond doubt: without one of these, symptoms alone open no incident.
FAILURES: Final = frozenset(
    (
        "nccl.watchdog.timeout", "nccl.watchdog.exception", "nccl.watchdog.stuck", "elastic.failed",
        "elastic.rank_failed", "gloo.timeout", "process.abort", "slurm.node_failure", *FLIGHT_FAILURES,
    )
)  # fmt: skip
# What a rank prints when it waited in vain: who prints it did not stop the others.
WAITERS: Final = frozenset(("nccl.watchdog.timeout", "gloo.timeout", "torch.comm.aborted"))
# What says that a collective stood still.
STALLS: Final = WAITERS | {"nccl.watchdog.exception", "nccl.watchdog.stuck"}
# What tells that a rank was waiting.
REPORTS: Final = WAITERS | {"nccl.watchdog.work", "nccl.wait.timeout", "nccl.watchdog.down"}
# What is printed while a stall lasts: what ended before it was not waited for.
DURING: Final = STALLS | {"nccl.wait.timeout", "torch.abort.timeout", "nccl.watchdog.work"}
# What a rank prints of the death of another one.
SURVIVORS: Final = WAITERS | {"nccl.socket.closed", "gloo.closed", "gloo.reset"}
# What a launcher does to ranks that did not fail, and lines by which somebody speaks of other ranks.
STOPPED: Final = frozenset(("elastic.terminate", "elastic.kill"))
_OF_OTHERS: Final = ("elastic.", "slurm.", "launcher.", "placement.", "collective.", "torch.remote_error")
# What a process prints of its own end, without saying what led to it.
LAST_WORDS: Final = frozenset(("cuda.error", "nccl.cuda.failure", "python.exception", "process.abort"))
_ADDRESS: Final = re.compile(r"[0-9a-f]{4,8}:[0-9a-f]{2}:[0-9a-f]{2}\.[0-7]", re.ASCII)
# Of so many that print alike the process numbers are looked up.
MAX_RESOLVED: Final = 256
# A rule this strong rests on a record of the fault itself; it stands alone where it explains nothing of the failure.
STANDS_ALONE: Final = 0.8
_REPEATED: Final = "the same failure, as another line reports it"
# What the dumps of other ranks show of a stall.
_SHOWN: Final = {
    "flight.waiting": "others wait in a collective for what did not come",
    "flight.queued": "others wait behind them",
    "flight.stalled": "all entered it and none completed it",
}
# Less than this proves a hint: it does not explain away what proves more.
HINT: Final = 0.5
NOBODY_NAMED: Final = "no line says which process or device it is; the log of every rank would decide"
NO_END_NAMED: Final = (
    "it lies between two ends, and no line says which of them; the log and the kernel log of the other end would decide"
)


class Conclusion(Struct, frozen=True, kw_only=True):
    """One root cause, or `unknown/...` with the reason in `why_unknown`.

    `main`: it speaks for the failure of the job; others stand beside it. `outside`: where the job has no rank.
    `confidence`: the rule's own estimate. `rivals`: among how many it cannot tell. `said`: the sentence on it where no
    rule has one.
    """

    class_: str
    rule: Rule | None
    culprits: list[Entity]
    confidence: float
    steps: list[Step]
    root: int = 0
    silent_ranks: list[int] = []
    why_unknown: str | None = None
    alternatives: list["Conclusion"] = []
    main: bool = True
    outside: bool = False
    said: str = ""
    rivals: int = 1

    @property
    def root_item(self) -> Resolved:
        """The episode that defines the conclusion."""
        return self.steps[self.root].item

    @property
    def entity(self) -> str:
        """A stable name of what was hit, for ids of incidents that stand beside the main one."""
        return "; ".join(sorted(_entity_text(entity) for entity in self.culprits))


class Reported(Struct, frozen=True, kw_only=True):
    """How far each node was read, on the reference timeline in ns; TIME_MAX_NS where it was read to its end.

    `nodes`: those that report themselves. `silent`: those of which nothing is heard any more. `stall`: marks of
    progress that stopped.
    """

    through_ns: dict[str, int]
    all_ended: bool
    nodes: list[str] = []
    silent: list[str] = []
    stall: Stall | None = None


def conclude(episodes: list[Episode], placement: PlacementMap, rules: RuleSet, reported: Reported) -> list[Conclusion]:
    """All conclusions of one investigation, the main one first. Empty where nothing failed."""
    items, found = _concluded(episodes, placement, rules, reported)
    return [_accompanied(one, items) for one in found]


def _concluded(
    episodes: list[Episode], placement: PlacementMap, rules: RuleSet, reported: Reported
) -> tuple[list[Resolved], list[Conclusion]]:
    machines = machines_of(episodes, placement)
    items = [_resolved(episode, placement, machines) for episode in episodes]
    flight = flight_evidence(items, placement)
    items = flight.items
    silent = flight.silent or _silent_ranks(items, placement, reported)
    silent = silent or stopped_first(items, reported.stall, REPORTS)
    silent = silent or ended_first(items, [item for item in items if item.episode.name in WAITERS])
    stalled = stopped(items)
    stalls = [item for item in items if item.episode.name in DURING] or stalled
    items = derive(items, stalls, placement, silent[0] if len(silent) == 1 else None)
    failures = [item for item in items if item.episode.name in FAILURES]
    if failures:
        # Marks that stopped are a failure where no line tells of one; else they explain nothing and need no cause.
        items = [item for item in items if item.episode.name != STALLED]
    failures = failures or stalled
    known = _known(placement, heard=all_heard(items, placement, reported.nodes))
    chains = [chain for chain in chains_of(items, rules, known) if chain.is_whole and not _lives_on(chain, items)]
    ours, theirs = at_home(chains, items, placement, explains=_explains_failure)
    roots, outsiders = _not_explained(ours), _not_explained(theirs)
    linked = [c for c in roots if (_explains_failure(c) or not failures) and not _outside(c, placement)]
    linked = [c for c in linked if not _waits(c, flight)]
    loose = [*(c for c in roots if not any(c is other for other in linked)), *outsiders]
    linked.sort(key=lambda c: (-_score(c, failures), canonical(c.root_item.episode.first)))
    if not (failures or roots or outsiders):
        failures, gone = raised(items)
        if any(item.subject != Entity() for item in gone):
            return items, [_gone(gone, items)]
    if not failures:
        found = _each(_one_per_entity([*linked, *loose]), placement)
        return items, [*found[:1], *(msgspec.structs.replace(c, main=False) for c in found[1:])]
    if not linked and failures is stalled and any(_is_said_by_the_job(c) for c in loose):
        return _concluded([e for e in episodes if e.name != STALLED], placement, rules, reported)
    if not linked:
        return items, [_unknown(items, failures, placement, reported, silent, flight), *_alone(loose, placement, [])]
    main, beside = _with_rivals(linked, placement)
    return items, [main, *_alone([*beside, *loose], placement, main.culprits)]


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
    steps = with_companions(steps, conclusion.root, conclusion.culprits, items, speaks_for_job=conclusion.main)
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
        if not mutual or _weight(other) > _weight(chain):
            return True
    return False


def _weight(chain: Chain) -> tuple[float, int]:
    return chain.strength, len(chain.steps)


def _lives_on(chain: Chain, items: list[Resolved]) -> bool:
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
    return any(order(root, line) == "before" for item in survivors for line in _lines_of(item, rank))


def _lines_on(item: Resolved, node: str) -> list[Stamped]:
    """The first lines of the ranks of a node."""
    if not item.episode.crowd:
        return [item.episode.first] if item.subject.node == node and item.subject.rank is not None else []
    return [member for member in item.episode.crowd.values() if member.node == node]


def _lines_of(item: Resolved, rank: int) -> list[Stamped]:
    """The first line of a rank."""
    if not item.episode.crowd:
        return [item.episode.first] if item.subject.rank == rank else []
    member = item.episode.crowd.get(str(rank))
    return [] if member is None else [member]


def _waits(chain: Chain, flight: FlightEvidence) -> bool:
    """Whether the rank blamed waits for another one, by its own dump."""
    return chain.rule.scope in ("rank", "gpu", "peer") and chain.subject.rank in flight.waiting


def _explains_failure(chain: Chain) -> bool:
    """Whether the failure of the job hangs on the root, or is the root."""
    return any(
        one.item.episode.name in FAILURES or (one.role == "symptom" and one.parent is not None) for one in chain.steps
    )


def _outside(chain: Chain, placement: PlacementMap) -> bool:
    """Whether every rank is known to run elsewhere."""
    if chain.rule.scope not in ("gpu", "nic", "node") or placement.world_size is None or chain.subject.node is None:
        return False
    placed = [entity for entity in placement.ranks.values() if entity.node]
    if len(placed) < placement.world_size:
        return False
    if chain.rule.scope == "gpu" and chain.subject.rank is None and chain.subject.pci_bus_id is not None:
        return all(entity.pci_bus_id is not None for entity in placed)
    return chain.subject.node not in {entity.node for entity in placed}


def _score(chain: Chain, failures: list[Resolved]) -> float:
    inside = {id(one.item) for one in chain.steps}
    share = sum(id(failure) in inside for failure in failures) / len(failures) if failures else 0.0
    return chain.strength + 0.3 * share


# Faults of which each entity has a record of its own: all that show one are at fault.
_RECORDED: Final = ("gpu", "nic", "node")


def _with_rivals(linked: list[Chain], placement: PlacementMap) -> tuple[Conclusion, list[Chain]]:
    """The best chain, and those that stand beside it. Equals of the same rule that the clocks cannot order share it."""
    best, rest = linked[0], linked[1:]
    equals = _equals(best, rest)
    others = [c for c in rest if not any(c is equal for equal in equals)]
    main = _shared(best, equals, placement)
    return msgspec.structs.replace(main, alternatives=[_conclusion(c, placement) for c in others][:3]), others


def _each(chains: list[Chain], placement: PlacementMap) -> list[Conclusion]:
    """Where nothing failed: a conclusion for each fault; what several ranks say alike at one time is one."""
    found, rest = [], chains
    while rest:
        best, rest = rest[0], rest[1:]
        equals = _equals(best, rest)
        if best.rule.scope in _RECORDED:
            equals = [c for c in equals if Entity() in (best.subject, c.subject)]
        # What names nobody is of those that the same rule names, whenever it was printed.
        equals += [c for c in rest if c.rule is best.rule and c.subject == Entity() and not any(c is e for e in equals)]
        rest = [c for c in rest if not any(c is equal for equal in equals)]
        found.append(_shared(best, equals, placement))
    return found


def _equals(best: Chain, rest: list[Chain]) -> list[Chain]:
    first = best.root_item.episode.first
    return [c for c in rest if c.rule is best.rule and order(first, c.root_item.episode.first) == "concurrent"]


def _shared(best: Chain, equals: list[Chain], placement: PlacementMap) -> Conclusion:
    """The conclusion of a chain and of those that cannot be told from it."""
    main = _conclusion(best, placement)
    if not equals:
        return main
    # A line that names nobody is of those that others name.
    named = [entity for entity in (best.subject, *(c.subject for c in equals)) if entity != Entity()]
    culprits = _one_card(named)
    main = msgspec.structs.replace(main, why_unknown=None if culprits else main.why_unknown)
    together = _together(main, culprits, equals)
    if best.rule.scope in _RECORDED or len(culprits) == 1:
        return together
    if len(culprits) == 2:
        return msgspec.structs.replace(together, rivals=2)
    nodes = {entity.node for entity in culprits}
    if len(nodes) == 1 and None not in nodes:
        # Several ranks of one node at once: it is the node that they share.
        node = Entity(node=culprits[0].node, machine_id=culprits[0].machine_id)
        return msgspec.structs.replace(together, culprits=[node])
    why = f"{len(culprits)} ranks show the same failure and the clocks cannot say which came first"
    return msgspec.structs.replace(main, culprits=[], rivals=2, why_unknown=why)


def _one_card(culprits: list[Entity]) -> list[Entity]:
    """A network card that the kernel calls by its bus address and others by its name is one."""
    if len(culprits) != 2 or culprits[0].node != culprits[1].node:
        return culprits
    addresses = [c.nic for c in culprits if c.nic is not None and _ADDRESS.fullmatch(c.nic)]
    named = [c for c in culprits if c.nic is not None and not _ADDRESS.fullmatch(c.nic)]
    if len(addresses) == 1 and len(named) == 1:
        return [msgspec.structs.replace(named[0], pci_bus_id=addresses[0])]
    return culprits


def _together(main: Conclusion, culprits: list[Entity], equals: list[Chain]) -> Conclusion:
    steps = list(main.steps)
    present = {id(one.item): number for number, one in enumerate(steps)}
    for chain in equals:
        number = present.get(id(chain.root_item))
        if number is None:
            steps.append(step(chain.root_item, "root", None, "", steps))
        elif len(culprits) > 1:
            steps[number] = Step(item=chain.root_item, role="root")
    return msgspec.structs.replace(main, culprits=culprits, steps=steps)


def _alone(chains: list[Chain], placement: PlacementMap, blamed: list[Entity]) -> list[Conclusion]:
    """Faults that stand on their own beside the main conclusion, one per entity that is not blamed already."""
    known = {_entity_text(entity) for entity in blamed}
    strong = [c for c in chains if c.strength >= STANDS_ALONE and _entity_text(c.subject) not in known]
    strong.sort(key=lambda c: canonical(c.root_item.episode.first))
    return [msgspec.structs.replace(_conclusion(c, placement), main=False) for c in _one_per_entity(strong)]


def _one_per_entity(chains: list[Chain]) -> list[Chain]:
    best: dict[str, Chain] = {}
    for chain in chains:
        name = _entity_text(chain.subject)
        if name not in best or _weight(chain) > _weight(best[name]):
            best[name] = chain
    return list(best.values())


def _conclusion(chain: Chain, placement: PlacementMap) -> Conclusion:
    named = chain.subject != Entity()
    return Conclusion(
        class_=chain.rule.class_, rule=chain.told, culprits=[chain.subject] if named else [],
        confidence=chain.confidence, steps=chain.steps, root=chain.root, outside=_outside(chain, placement),
        why_unknown=None if named else NO_END_NAMED if chain.rule.scope == "link" else NOBODY_NAMED,
    )  # fmt: skip


def _entity_text(entity: Entity) -> str:
    rank = f"rank {entity.rank}" if entity.rank is not None else ""
    return f"{entity.node or ''} {entity.pci_bus_id or entity.gpu_uuid or entity.nic or entity.link or rank}".strip()


# --- unknown ------------------------------------------------------------------------------------------------------


def _unknown(
    items: list[Resolved],
    failures: list[Resolved],
    placement: PlacementMap,
    reported: Reported,
    silent: list[int],
    flight: FlightEvidence,
) -> Conclusion:
    """No cause found: the rank that fell silent where the evidence shows one, else nobody."""
    stalled = stopped(items)
    first = min([*failures, *stalled], key=lambda item: canonical(item.episode.first))
    steps = [Step(item=first, role="symptom")]
    for item in items:
        last_word = bool(item.ranks & set(silent)) and item.episode.name in LAST_WORDS
        if item is not first and (_is_of_job(item) or last_word):
            why = "the rank's own last words" if last_word else _SHOWN.get(item.episode.name, _REPEATED)
            steps.append(step(item, "symptom", 0, why, steps))
    for item in last_marks(items, silent):
        steps.append(step(item, "context", 0, LAST_MARK, steps))
    if flight.silent:
        # Of several dumps each names its rank by itself: they are no rivals.
        return Conclusion(
            class_="unknown/silent_rank", rule=None, culprits=_stopped(items, silent, placement), confidence=0.7,
            steps=steps, silent_ranks=silent, said=flight.said, why_unknown=flight.why,
        )  # fmt: skip
    alone = all(item.episode.name == STALLED for item in failures)
    sentence = said_of(first, silent) if alone else flight.said
    if silent:
        return Conclusion(
            class_="unknown/silent_rank", rule=None,
            culprits=[placement.ranks.get(rank) or Entity(rank=rank) for rank in silent],
            confidence=0.6 if len(silent) == 1 else 0.4, steps=steps, silent_ranks=silent, said=sentence,
            why_unknown=_why_silent(steps, silent),
        )  # fmt: skip
    return Conclusion(
        class_="unknown/collective_timeout", rule=None, culprits=[], confidence=0.3, steps=steps,
        said=sentence, why_unknown=flight.why or _why_unknown(placement, reported, alone=alone),
    )  # fmt: skip


def _gone(gone: list[Resolved], items: list[Resolved]) -> Conclusion:
    """Who watches over processes says that one is gone, and nothing says why."""
    first = min((i for i in gone if i.subject != Entity()), key=lambda item: canonical(item.episode.first))
    steps = [Step(item=first, role="symptom")]
    for item in items:
        if item is not first and _is_of_job(item):
            steps.append(step(item, "symptom", 0, _REPEATED, steps))
    named = [item.subject for item in gone if item.subject != Entity()]
    culprits = list({(_entity_text(entity), entity.pid): entity for entity in named}.values())
    ranks = sorted({entity.rank for entity in culprits if entity.rank is not None})
    return Conclusion(
        class_="unknown/silent_rank", rule=None, culprits=culprits, confidence=0.5 if len(culprits) == 1 else 0.3,
        steps=steps, silent_ranks=ranks, said="A process of the job is gone, as who watches it says; nothing says why.",
        why_unknown="nothing says why it ended; its own last lines and the kernel log of its node would decide",
    )  # fmt: skip


def _is_of_job(item: Resolved) -> bool:
    """A symptom that a process of the job prints, or that a device of one of its ranks shows."""
    event = item.episode.first
    return event.role == "symptom" and (event.source_kind == "application" or bool(item.ranks))


def _stopped(items: list[Resolved], ranks: list[int], placement: PlacementMap) -> list[Entity]:
    """The ranks that stopped, each with the process group in which its dump shows it."""
    shown = {item.subject.rank: item.subject for item in items if item.episode.name in FLIGHT_FAILURES}
    return [shown.get(rank) or placement.ranks.get(rank) or Entity(rank=rank) for rank in ranks]


def has_last_words(steps: list[Step], ranks: list[int]) -> bool:
    """Whether one of these ranks says of its own end."""
    return any(one.item.ranks & set(ranks) and one.item.episode.name in LAST_WORDS for one in steps)


def _why_silent(steps: list[Step], ranks: list[int]) -> str:
    """What is missing where it is known which rank stopped."""
    if has_last_words(steps, ranks):
        said = "the rank's own error does not say what led to it"
    elif any(one.item.ranks & set(ranks) and one.item.episode.name == "elastic.failed" for one in steps):
        said = "its launcher saw it end first, and no line of its own says why"
        return f"{said}; its log and the kernel log of its node would decide"
    else:
        said = "the rank stopped without a line"
    return (
        f"{said}; a flight-recorder dump or its stack (py-spy) from while it hung would decide, or the kernel log of "
        "its node where that was not read"
    )


def _why_unknown(placement: PlacementMap, reported: Reported, *, alone: bool) -> str:
    """What would decide it; nodes of the job that fell silent first."""
    silent = sorted(set(reported.silent) & set(placement.nodes() or reported.silent))
    named = ", ".join(silent[:8]) + (f" and {len(silent) - 8} more" if len(silent) > 8 else "")
    told = f"nothing is heard of {named} any more: look there first; else " if silent else ""
    if alone:
        return f"{told}{WHY_UNKNOWN}"
    return (
        f"{told}no line before the stall names a cause; kernel logs of all nodes, the log of every rank or "
        "flight-recorder dumps would decide"
    )


def _silent_ranks(items: list[Resolved], placement: PlacementMap, reported: Reported) -> list[int]:
    """Ranks that are known, whose logs were read past the window, and that did not report what the others report."""
    waits = [item for item in items if item.episode.name in WAITERS and item.ranks]
    known = set(placement.ranks)
    if not waits:
        return []
    if placement.world_size is None and reported.all_ended:
        return unheard_of({rank for item in items if item.episode.name in REPORTS for rank in item.ranks})
    if placement.world_size is None or len(known) < placement.world_size:
        return []
    silent = sorted(known.difference(*(item.ranks for item in waits)) & _heard(items))
    # Whom the launcher stopped fell silent for that; before anybody gave up waiting, for the failure of a neighbour.
    stops = [item for item in items if item.episode.name in STOPPED and item.ranks]
    early = [s for s in stops if all(order(s.episode.first, wait.episode.first) == "before" for wait in waits)]
    silent = [rank for rank in silent if not any(rank in item.ranks for item in early)]
    stopped = {rank for item in stops for rank in item.ranks}
    silent = [rank for rank in silent if rank not in stopped] or silent
    if not silent or len(silent) * 2 > len(known):
        return []
    window_ns = max(item.episode.end_ns for item in waits)
    unread = [
        rank
        for rank in silent
        if not reported.all_ended and reported.through_ns.get(placement.ranks[rank].node or "", 0) < window_ns
    ]
    return [] if unread else silent


def _heard(items: list[Resolved]) -> set[int]:
    """The ranks of which a line of their own was read: of the others nobody knows whether they said anything."""
    own = (item for item in items if not item.episode.name.startswith(_OF_OTHERS))
    return {rank for item in own if item.episode.first.source_kind == "application" for rank in item.ranks}
