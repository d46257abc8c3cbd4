"""From one root to a chain: what came before it, what followed, and the step that each step hangs on."""

from collections import Counter, defaultdict
from collections.abc import Iterable
from typing import Final

import msgspec
from msgspec import Struct

from pipeline.core.causes import Link, Pattern, Rule, RuleSet, Scope, related
from pipeline.core.episodes import Episode
from pipeline.core.order import canonical, lag_ns, order
from schemas.records import Entity
from schemas.vocabulary import EdgeOrder, StepRole

SECOND_NS: Final = 1_000_000_000
# When more entities than this show a rule's root pattern, the rarest kinds are looked at: a root is a minority, what
# hundreds of ranks print alike is an echo.
MAX_ROOTS: Final = 16
# Root lines of one entity that lie further apart than this are two failures, not one.
SAME_FAULT_S: Final = 3_600.0


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


class Chain(Struct, frozen=True, kw_only=True):
    """What one rule makes of one entity: steps with the root at index `root`, and how many of them are its effects."""

    rule: Rule
    subject: Entity
    steps: list[Step]
    root: int
    effects: int
    pattern: Pattern

    @property
    def strength(self) -> float:
        """How much the root proves."""
        return self.rule.strength if self.pattern.strength is None else self.pattern.strength

    @property
    def confidence(self) -> float:
        """How often a conclusion from this root is right."""
        return self.rule.confidence if self.pattern.confidence is None else self.pattern.confidence

    @property
    def is_whole(self) -> bool:
        """Whether it shows the effects without which its root is nothing."""
        return self.effects > 0 or not (self.rule.needs_effect or self.pattern.needs_effect)

    @property
    def root_item(self) -> Resolved:
        """The episode that defines the chain."""
        return self.steps[self.root].item


def chains_of(items: list[Resolved], rules: RuleSet, *, placed: bool) -> list[Chain]:
    """For each rule one chain per entity that shows one of its root patterns.

    `placed`: it is known where every rank runs, so that what hits no rank does not explain what the ranks print.
    """
    index = _ByEvent(items)
    return [
        _Builder(rule, rules, index, placed=placed).build(members)
        for rule in rules.rules
        for members in _rarest(_roots_by_entity(rule, index))
    ]


def _roots_by_entity(rule: Rule, index: "_ByEvent") -> list[list[tuple[int, Resolved]]]:
    groups: dict[str, list[tuple[int, Resolved]]] = {}
    taken: set[int] = set()
    for preference, pattern in enumerate(rule.root):
        for item in index.matching(pattern):
            if id(item) not in taken:
                taken.add(id(item))
                groups.setdefault(_entity_name(rule.scope, item.subject), []).append((preference, item))
    return list(groups.values())


def _rarest(groups: list[list[tuple[int, Resolved]]]) -> list[list[tuple[int, Resolved]]]:
    for members in groups:
        members.sort(key=lambda member: (member[0], canonical(member[1].episode.first)))
    groups.sort(key=lambda members: canonical(members[0][1].episode.first))
    if len(groups) <= MAX_ROOTS:
        return groups
    kinds = Counter(_kind(members[0][1]) for members in groups)
    return sorted(groups, key=lambda members: kinds[_kind(members[0][1])])[:MAX_ROOTS]


def _kind(item: Resolved) -> tuple[str, ...]:
    attributes = item.episode.attributes
    return (item.episode.name, attributes.get("type", ""), attributes.get("exitcode", ""), attributes.get("xid", ""))


class _ByEvent:
    """Items by event name, in canonical order."""

    def __init__(self, items: list[Resolved]) -> None:
        self._by_name: dict[str, list[Resolved]] = defaultdict(list)
        for item in items:
            self._by_name[item.episode.name].append(item)

    def matching(self, pattern: Pattern | Link) -> Iterable[Resolved]:
        """The items that a pattern or link speaks of."""
        return [item for item in self._by_name.get(pattern.event, ()) if pattern.matches(item.episode)]


class _Builder:
    """Builds one chain."""

    def __init__(self, rule: Rule, rules: RuleSet, index: _ByEvent, *, placed: bool) -> None:
        self._placed = placed
        self._rule = rule
        self._rules = rules
        self._index = index
        self._steps: list[Step] = []
        self._hindsight = False
        self._taken: set[int] = set()
        self._by_name: dict[str, list[int]] = defaultdict(list)
        self._by_place: dict[tuple[str, object], list[int]] = defaultdict(list)

    def build(self, members: list[tuple[int, Resolved]]) -> Chain:
        """The chain of one entity; `members` are its root episodes, the preferred one first."""
        root = members[0][1]
        pattern = self._rule.root[members[0][0]]
        self._hindsight = pattern.hindsight
        subject = culprit_of(self._rule.scope, [item.subject for _, item in members])
        self._before(root, subject)
        why = self._rule.before[0].why if self._steps else ""
        self._append(root, "cascade" if self._steps else "root", 0 if self._steps else None, why)
        number = len(self._steps) - 1
        for _, item in members[1:]:
            if _near(root, item):
                self._append(item, "cascade", number, "the same fault, as another line reports it")
        told = len(self._steps)
        for link in self._rules.effects(self._rule):
            if link.scope not in ("job", "peer") or self._hits_a_rank(subject, told):
                self._follow(link, subject, number)
        effects = sum(one.role != "context" for one in self._steps[told:])
        return Chain(
            rule=self._rule, subject=subject, steps=self._steps, root=number, effects=effects,
            pattern=pattern,
        )  # fmt: skip

    def _hits_a_rank(self, subject: Entity, told: int) -> bool:
        """Whether the root may concern others: it is of a rank, or a rank of its node fell with it, or nobody knows."""
        if self._rule.takes_all or self._rule.scope in ("nic", "job", "rank"):
            return True
        if not self._placed or subject.rank is not None:
            return True
        return any(one.role == "cascade" and one.item.subject.rank is not None for one in self._steps[told:])

    def _before(self, root: Resolved, subject: Entity) -> None:
        """What led to the root; the earliest of it is where the story begins."""
        found = [
            (link, item)
            for link in self._rule.before
            for item in self._index.matching(link)
            if item is not root and related(link.scope, subject, item.subject) and may_precede(item, root, link)
        ]
        for link, item in sorted(found, key=lambda pair: canonical(pair[1].episode.first)):
            self._append(item, "cascade" if self._steps else "root", 0 if self._steps else None, link.why)

    def _follow(self, link: Link, subject: Entity, root: int) -> None:
        for item in self._index.matching(link):
            if id(item) in self._taken or not related(link.scope, subject, item.subject):
                continue
            parent = self._parent(link, item, root)
            if parent is not None:
                self._append(item, _role(link, item), parent, link.why)

    def _parent(self, link: Link, item: Resolved, root: int) -> int | None:
        """The step that this one hangs on: of the named events the last that may precede it, its own place first."""
        place = _place(item.subject)
        near = (self._by_place.get((name, place), ()) for name in reversed(link.after))
        named = (self._by_name.get(name, ()) for name in reversed(link.after))
        for candidates in (*near, *named, [root]):
            for index in reversed(candidates):
                if may_precede(self._steps[index].item, item, link) or (index == root and self._hindsight):
                    return index
        return None

    def _append(self, item: Resolved, role: StepRole, parent: int | None, why: str) -> None:
        if id(item) in self._taken:
            return
        self._taken.add(id(item))
        name, number = item.episode.name, len(self._steps)
        self._by_name[name].append(number)
        self._by_place[name, _place(item.subject)].append(number)
        self._steps.append(step(item, role, parent, why, self._steps))


def _near(root: Resolved, item: Resolved) -> bool:
    lag = lag_ns(root.episode.first, item.episode.first)
    return lag is None or (lag[0] <= SAME_FAULT_S * SECOND_NS and lag[1] >= -SAME_FAULT_S * SECOND_NS)


def step(item: Resolved, role: StepRole, parent: int | None, why: str, steps: list[Step]) -> Step:
    """A step that hangs on another, with what the clocks say of the two."""
    sure: EdgeOrder = "concurrent"
    if parent is not None and order(steps[parent].item.episode.first, item.episode.first) == "before":
        sure = "certain"
    return Step(item=item, role=role, parent=parent, why=why, order=sure)


def may_precede(cause: Resolved, effect: Resolved, link: Link) -> bool:
    """Whether the clocks allow the cause to come first, and not longer before than the link's lag."""
    if order(effect.episode.first, cause.episode.first) == "before":
        return False
    lag = lag_ns(cause.episode.first, effect.episode.first)
    return lag is None or lag[0] <= link.max_lag_s * SECOND_NS


def culprit_of(scope: Scope, subjects: list[Entity]) -> Entity:
    """The entity a rule blames: the first subject with what the others add. A link's culprit is no rank, and a job's
    has only what all its lines agree on.
    """
    merged: dict[str, object] = {}
    for subject in subjects:
        for name, value in msgspec.structs.asdict(subject).items():
            if value is not None:
                merged.setdefault(name, value)
    if scope == "job":
        merged = {name: value for name, value in merged.items() if {getattr(s, name) for s in subjects} == {value}}
    if scope == "nic":
        merged = {name: merged[name] for name in ("node", "machine_id", "nic", "link", "switch") if name in merged}
    return msgspec.convert(merged, Entity)


def _role(link: Link, item: Resolved) -> StepRole:
    """What happens to the culprit itself is cascade; what others notice of it is symptom."""
    if item.episode.first.role == "context":
        return "context"
    return "symptom" if link.scope in ("job", "peer") else "cascade"


def _place(subject: Entity) -> object:
    return subject.rank if subject.rank is not None else subject.node


def _entity_name(scope: Scope, subject: Entity) -> str:
    """What keeps two roots of one rule apart, by the scope of the rule."""
    if scope == "gpu":
        rank = None if subject.rank is None else f"rank {subject.rank}"
        return f"{subject.node} {subject.pci_bus_id or subject.gpu_uuid or rank or subject.gpu_index}"
    if scope in ("rank", "peer"):
        return f"rank {subject.rank}" if subject.rank is not None else f"{subject.node} {subject.pid}"
    if scope == "nic":
        return f"{subject.node} {subject.nic}"
    return f"{subject.node}" if scope == "node" else "job"
