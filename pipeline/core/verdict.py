"""From episodes to conclusions: which one is the root, what it explains, or why the evidence cannot say.

Pure and order-independent: the same episodes and facts give the same conclusions, however they arrived.
"""

from collections.abc import Iterable
from typing import Final

import msgspec
from msgspec import Struct

from pipeline.core.causes import Link, Rule, RuleSet, related
from pipeline.core.episodes import Episode
from pipeline.core.order import canonical, lag_ns, order
from pipeline.core.placement import PlacementMap
from schemas.records import Entity
from schemas.vocabulary import EdgeOrder, StepRole

SECOND_NS: Final = 1_000_000_000
# Evidence that a job failed, beyond doubt: without one of these, symptoms alone open no incident.
FAILURES: Final = frozenset(
    {"nccl.watchdog.timeout", "nccl.watchdog.exception", "nccl.watchdog.stuck", "elastic.failed",
     "elastic.rank_failed", "gloo.timeout", "process.abort", "slurm.node_failure"}
)  # fmt: skip
# What a rank prints when it waited in vain: who prints it did not stop the others.
WAITERS: Final = frozenset({"nccl.watchdog.timeout", "gloo.timeout", "torch.comm.aborted"})


class Resolved(Struct, frozen=True, kw_only=True):
    """An episode and its subject with all identifiers that placement adds."""

    episode: Episode
    subject: Entity


class Step(Struct, frozen=True, kw_only=True):
    """One step of a chain and the step (index) it hangs on; the root hangs on nothing."""

    item: Resolved
    role: StepRole
    parent: int | None = None
    why: str = ""
    order: EdgeOrder = "concurrent"


class Conclusion(Struct, frozen=True, kw_only=True):
    """One root cause, or `unknown/...` with the reason in `why_unknown`."""

    class_: str
    rule: Rule | None
    culprits: list[Entity]
    confidence: float
    steps: list[Step]
    silent_ranks: list[int] = []
    why_unknown: str | None = None
    alternatives: list["Conclusion"] = []
    independent: bool = False

    @property
    def root(self) -> Resolved:
        """The episode that defines the conclusion."""
        return next((s.item for s in self.steps if s.role == "root"), self.steps[0].item)


class Reported(Struct, frozen=True, kw_only=True):
    """What is known of how well the job was watched: nodes whose logs were read past the window."""

    read_past: frozenset[str]
    all_read: bool


def conclude(episodes: list[Episode], placement: PlacementMap, rules: RuleSet, reported: Reported) -> list[Conclusion]:
    """All conclusions of one investigation, the main one first. Empty where nothing failed."""
    items = [Resolved(episode=e, subject=placement.resolve(e.subject)) for e in episodes]
    failures = [item for item in items if item.episode.name in FAILURES]
    chains = [chain for rule in rules.rules for chain in _chains(rule, items, rules)]
    chains = [chain for chain in chains if not (chain.rule and chain.rule.needs_effect and len(chain.steps) < 2)]
    roots = [c for c in chains if not any(_explains(other, c) for other in chains if other is not c)]
    linked = [c for c in roots if _explained(c) or not failures]
    loose = [c for c in roots if c not in linked]
    linked.sort(key=lambda c: (-_score(c, failures), canonical(c.root.episode.first)))
    loose.sort(key=lambda c: canonical(c.root.episode.first))
    if not failures:
        return _one_per_entity(linked)
    if not linked:
        return [_unknown(items, failures, placement, reported, rules), *_independent(loose)]
    main = _with_rivals(linked)
    return [main, *_independent(loose)]


# --- chains -------------------------------------------------------------------------------------------------------


def _chains(rule: Rule, items: list[Resolved], rules: RuleSet) -> list[Conclusion]:
    """One chain per entity that shows a root pattern of the rule."""
    groups: dict[str, list[tuple[int, Resolved]]] = {}
    for item in items:
        for rank, pattern in enumerate(rule.root):
            if pattern.matches(item.episode):
                groups.setdefault(_entity_name(rule, item.subject), []).append((rank, item))
                break
    return [_chain(rule, members, items, rules) for _, members in sorted(groups.items())]


def _chain(rule: Rule, members: list[tuple[int, Resolved]], items: list[Resolved], rules: RuleSet) -> Conclusion:
    members.sort(key=lambda member: (member[0], canonical(member[1].episode.first)))
    root = members[0][1]
    subject = _merge_subjects([item.subject for _, item in members])
    before = [
        (link, item)
        for item in items
        for link in rule.before
        if item is not root and link.matches(item.episode) and related(link.scope, subject, item.subject)
        and _may_precede(item, root, link.max_lag_s)
    ]  # fmt: skip
    before.sort(key=lambda pair: canonical(pair[1].episode.first))
    steps: list[Step] = []
    taken: set[int] = set()
    for link, item in before:
        if id(item) not in taken:
            taken.add(id(item))
            _append(steps, item, "root" if not steps else "cascade", None if not steps else 0, link.why)
    root_role: StepRole = "cascade" if steps else "root"
    root_why = before[0][0].why if before else ""
    _append(steps, root, root_role, 0 if steps else None, root_why)
    root_index = len(steps) - 1
    taken.add(id(root))
    for _, item in members[1:]:
        if id(item) not in taken:
            taken.add(id(item))
            _append(steps, item, "cascade", root_index, "the same fault, as another line reports it")
    _follow(rules.effects(rule), subject, items, steps, root_index, taken)
    return Conclusion(class_=rule.class_, rule=rule, culprits=[subject], confidence=rule.confidence, steps=steps)


def _follow(
    links: list[Link], subject: Entity, items: list[Resolved], steps: list[Step], root_index: int, taken: set[int]
) -> None:
    """Append everything that the links lead to, in the order of the links."""
    for link in links:
        for item in items:
            if id(item) in taken or not link.matches(item.episode):
                continue
            if not related(link.scope, subject, item.subject):
                continue
            parent = _parent(link, item, steps, root_index)
            if parent is None:
                continue
            taken.add(id(item))
            _append(steps, item, _role(link, item), parent, link.why)


def _role(link: Link, item: Resolved) -> StepRole:
    """What happens to the culprit itself is cascade; what others notice of it is symptom."""
    if item.episode.first.role == "context":
        return "context"
    return "symptom" if link.scope in ("job", "peer") else "cascade"


def _parent(link: Link, item: Resolved, steps: list[Step], root_index: int) -> int | None:
    """The step that this one hangs on: the last of the named events that may precede it, else the root."""
    named = [i for i, step in enumerate(steps) if step.item.episode.name in link.after]
    close = [i for i in named if _near_subject(steps[i].item.subject, item.subject)]
    for candidates in (close, named, [root_index]):
        fitting = [i for i in candidates if _may_precede(steps[i].item, item, link.max_lag_s)]
        if fitting:
            return fitting[-1]
    return None


def _near_subject(a: Entity, b: Entity) -> bool:
    return (a.rank is not None and a.rank == b.rank) or (a.rank is None and a.node is not None and a.node == b.node)


def _append(steps: list[Step], item: Resolved, role: StepRole, parent: int | None, why: str) -> None:
    sure: EdgeOrder = "concurrent"
    if parent is not None and order(steps[parent].item.episode.first, item.episode.first) == "before":
        sure = "certain"
    steps.append(Step(item=item, role=role, parent=parent, why=why, order=sure))


def _may_precede(cause: Resolved, effect: Resolved, max_lag_s: float) -> bool:
    """Whether the clocks allow the cause to come first, and not longer before than the lag."""
    if order(effect.episode.first, cause.episode.first) == "before":
        return False
    lag = lag_ns(cause.episode.first, effect.episode.first)
    return lag is None or lag[0] <= max_lag_s * SECOND_NS


# --- choosing -----------------------------------------------------------------------------------------------------


def _explained(chain: Conclusion) -> bool:
    return any(s.item.episode.name in FAILURES or s.role == "symptom" for s in chain.steps if s.parent is not None)


def _explains(a: Conclusion, b: Conclusion) -> bool:
    """Whether b's root is a mere step of a's chain, and a does not depend on b in the same way."""
    inside = any(s.item is b.root for s in a.steps if s.parent is not None or s.item is not a.root)
    if not inside or a.root is b.root:
        return a.root is b.root and _strength(a) > _strength(b)
    mutual = any(s.item is a.root for s in b.steps)
    return not mutual or (_strength(a), len(a.steps)) > (_strength(b), len(b.steps))


def _strength(chain: Conclusion) -> float:
    return chain.rule.strength if chain.rule else 0.0


def _score(chain: Conclusion, failures: list[Resolved]) -> float:
    inside = {id(s.item) for s in chain.steps}
    share = sum(id(f) in inside for f in failures) / len(failures) if failures else 0.0
    return _strength(chain) + 0.3 * share


def _with_rivals(linked: list[Conclusion]) -> Conclusion:
    """The best chain. Equals of the same rule that nothing orders share the blame, or there is no culprit at all."""
    best, rest = linked[0], linked[1:]
    rivals = [
        c for c in rest
        if c.rule is best.rule and order(best.root.episode.first, c.root.episode.first) == "concurrent"
        and best.rule is not None and best.rule.scope in ("rank", "job")
    ]  # fmt: skip
    others = [c for c in rest if c not in rivals]
    alternatives = [c for c in others if c.class_ != best.class_ or c.culprits != best.culprits][:3]
    if not rivals:
        return msgspec.structs.replace(best, alternatives=alternatives)
    culprits = [best.culprits[0], *(c.culprits[0] for c in rivals)]
    if len(culprits) == 2:
        return msgspec.structs.replace(
            best, culprits=culprits, confidence=best.confidence / 2, alternatives=alternatives
        )
    return msgspec.structs.replace(
        best, culprits=[], confidence=best.confidence / 2, alternatives=alternatives,
        why_unknown=f"{len(culprits)} ranks show the same failure and the clocks cannot say which came first",
    )  # fmt: skip


def _independent(chains: list[Conclusion]) -> list[Conclusion]:
    """Faults that explain nothing of the job's failure and stand on their own."""
    return [msgspec.structs.replace(c, independent=True) for c in _one_per_entity(chains) if _strength(c) >= 0.8]


def _one_per_entity(chains: list[Conclusion]) -> list[Conclusion]:
    best: dict[str, Conclusion] = {}
    for chain in chains:
        name = entity_suffix(chain.culprits)
        if name not in best or _strength(chain) > _strength(best[name]):
            best[name] = chain
    return list(best.values())


# --- unknown ------------------------------------------------------------------------------------------------------


def _unknown(
    items: list[Resolved], failures: list[Resolved], placement: PlacementMap, reported: Reported, rules: RuleSet
) -> Conclusion:
    """No cause found: the rank that fell silent where the evidence shows one, else nobody."""
    silent = _silent_ranks(items, placement, reported)
    first = min(failures, key=lambda item: canonical(item.episode.first))
    steps = [Step(item=first, role="root")]
    taken = {id(first)}
    symptoms = [i for i in items if i.episode.first.role == "symptom" and id(i) not in taken]
    for item in symptoms:
        _append(steps, item, "symptom", 0, "the same stall, as another rank reports it")
    if silent:
        entities = [placement.ranks[rank] for rank in silent]
        return Conclusion(
            class_="unknown/silent_rank", rule=None, culprits=entities, confidence=0.6 if len(silent) == 1 else 0.4,
            steps=steps, silent_ranks=silent,
            why_unknown="the rank stopped without a line that says why; its stack (py-spy), the kernel log of its "
            "node or a flight-recorder dump would decide",
        )  # fmt: skip
    return Conclusion(
        class_="unknown/collective_timeout", rule=None, culprits=[], confidence=0.3, steps=steps,
        why_unknown="no line before the stall names a cause; kernel logs of all nodes, the log of every rank or "
        "flight-recorder dumps would decide",
    )  # fmt: skip


def _silent_ranks(items: list[Resolved], placement: PlacementMap, reported: Reported) -> list[int]:
    """Ranks that are known, whose logs were read past the window, and that did not report what the others report."""
    waiting = {i.subject.rank for i in items if i.episode.name in WAITERS and i.subject.rank is not None}
    known = set(placement.ranks)
    if not waiting or placement.world_size is None or len(known) < placement.world_size:
        return []
    silent = sorted(known - waiting)
    if not silent or len(silent) * 2 > len(known):
        return []
    unread = [r for r in silent if placement.ranks[r].node not in reported.read_past and not reported.all_read]
    return [] if unread else silent


# --- names --------------------------------------------------------------------------------------------------------


def _entity_name(rule: Rule, subject: Entity) -> str:
    """What keeps two roots of one rule apart, by the scope of the rule."""
    if rule.scope == "gpu":
        return f"{subject.node} {subject.pci_bus_id or subject.gpu_uuid or subject.gpu_index}"
    if rule.scope in ("rank", "peer"):
        return f"rank {subject.rank}" if subject.rank is not None else f"{subject.node} {subject.pid}"
    if rule.scope == "nic":
        return f"{subject.node} {subject.nic}"
    return f"{subject.node}" if rule.scope == "node" else "job"


def _merge_subjects(subjects: Iterable[Entity]) -> Entity:
    """The first subject, with what the others add."""
    merged: dict[str, object] = {}
    for subject in subjects:
        for name, value in msgspec.structs.asdict(subject).items():
            if value is not None:
                merged.setdefault(name, value)
    return msgspec.convert(merged, Entity)


def entity_suffix(culprits: list[Entity]) -> str:
    """A stable name of what was hit, for ids of incidents that stand beside the main one."""
    parts = (
        f"{e.node or ''} {e.pci_bus_id or e.gpu_uuid or e.nic or (f'rank {e.rank}' if e.rank is not None else '')}"
        for e in culprits
    )
    return "; ".join(sorted(part.strip() for part in parts))
