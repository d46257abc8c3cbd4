"""From one root to a chain: what came before it, what followed, and the step that each step hangs on."""

from collections import Counter, defaultdict
from collections.abc import Collection, Mapping
from typing import Final

import msgspec
from msgspec import Struct

from pipeline.core.causes import Condition, Link, Pattern, Rule, RuleSet, Scope, related
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
# What such a fault of a node does to the ranks that run there needs no line of theirs.
_OF_ALL_RANKS: Final = ("hard", "hang", "slow")
# Between the two ends of a connection.
BETWEEN: Final = " <-> "
# An IPv4 address written as a GID.
_MAPPED: Final = "::ffff:"


class Resolved(Struct, frozen=True, kw_only=True, gc=False):
    """An episode and its subject with all identifiers that placement adds.

    `crowd_ranks`: of an episode of many, their ranks as far as they are known.
    """

    episode: Episode
    subject: Entity
    crowd_ranks: frozenset[int] = frozenset()

    @property
    def ranks(self) -> frozenset[int]:
        """The ranks that it speaks of."""
        if self.crowd_ranks:
            return self.crowd_ranks
        return frozenset() if self.subject.rank is None else frozenset((self.subject.rank,))


class Step(Struct, frozen=True, kw_only=True, gc=False):
    """One step of a chain and the step (index) it hangs on; the root hangs on nothing.

    `leads_to`: of context from before a step, that step.
    """

    item: Resolved
    role: StepRole
    parent: int | None = None
    leads_to: int | None = None
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
    needs_effect: bool

    @property
    def strength(self) -> float:
        """How much the root proves."""
        return self.rule.strength if self.pattern.strength is None else self.pattern.strength

    @property
    def confidence(self) -> float:
        """How often a conclusion from this root is right."""
        return self.rule.confidence if self.pattern.confidence is None else self.pattern.confidence

    @property
    def told(self) -> Rule:
        """The rule as it reads for this root."""
        names = ("explanation", "consequence", "severity", "interruption", "not_network_because")
        own = {name: getattr(self.pattern, name) for name in names if getattr(self.pattern, name) is not None}
        return msgspec.structs.replace(self.rule, **own) if own else self.rule

    @property
    def is_whole(self) -> bool:
        """Whether it shows the effects without which its root lines are nothing."""
        return self.effects > 0 or not self.needs_effect

    @property
    def root_item(self) -> Resolved:
        """The episode that defines the chain."""
        return self.steps[self.root].item


def chains_of(
    items: list[Resolved], rules: RuleSet, *, placed: bool, nodes: Collection[str] = (), blind: Collection[str] = ()
) -> list[Chain]:
    """For each rule one chain per entity that shows one of its root patterns.

    `placed`: it is known where every rank runs, so that what hits no rank does not explain what the ranks print.
    `nodes`: where ranks run. `blind`: those of which no line says the GPUs of the ranks.
    """
    index = _ByEvent(items)
    return [
        _Builder(rule, rules, index, placed=placed, nodes=nodes, blind=blind).build(members)
        for rule in rules.rules
        for members in _rarest(_roots_by_entity(rule, index))
    ]


def _roots_by_entity(rule: Rule, index: "_ByEvent") -> list[list[tuple[int, Resolved]]]:
    groups: dict[str, list[tuple[int, Resolved]]] = {}
    taken: set[int] = set()
    for preference, pattern in enumerate(rule.root):
        for item in index.matching(pattern):
            if id(item) not in taken and _holds(pattern, item, index):
                taken.add(id(item))
                groups.setdefault(_entity_name(rule.scope, item.subject), []).append((preference, item))
    return [fault for members in groups.values() for fault in _apart(members)]


def _apart(members: list[tuple[int, Resolved]]) -> list[list[tuple[int, Resolved]]]:
    """The root lines of one entity, fault by fault. What has no time may belong to each of them."""
    timed = [member for member in members if member[1].episode.start_ns >= 0]
    timed.sort(key=lambda member: (member[1].episode.start_ns, canonical(member[1].episode.first)))
    faults: list[list[tuple[int, Resolved]]] = []
    end_ns = 0
    for member in timed:
        if not faults or member[1].episode.start_ns - end_ns > SAME_FAULT_S * SECOND_NS:
            faults.append([])
        faults[-1].append(member)
        end_ns = max(end_ns, member[1].episode.end_ns)
    untimed = [member for member in members if member[1].episode.start_ns < 0]
    return [[*fault, *untimed] for fault in faults] if faults else [untimed]


def _holds(pattern: Pattern, item: Resolved, index: "_ByEvent") -> bool:
    """Whether what the other lines say lets this one be a root."""
    if pattern.given and not any(index.matching(condition) for condition in pattern.given):
        return False
    return not any(
        order(item.episode.first, other.episode.first) != "before"
        for condition in pattern.unless
        for other in index.matching(condition)
    )


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

    def matching(self, pattern: Pattern | Link | Condition) -> list[Resolved]:
        """The items that a pattern or link speaks of."""
        return [item for item in self._by_name.get(pattern.event, ()) if pattern.matches(item.episode)]


class _Builder:
    """Builds one chain."""

    def __init__(
        self,
        rule: Rule,
        rules: RuleSet,
        index: _ByEvent,
        *,
        placed: bool,
        nodes: Collection[str],
        blind: Collection[str],
    ) -> None:
        self._placed = placed
        self._nodes = nodes
        self._blind = blind
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
        members = [member for member in members if _near(root, member[1])]
        patterns = [self._rule.root[which] for which, _ in members]
        self._hindsight = patterns[0].hindsight
        subject = _blamed(self._rule.scope, [item for _, item in members])
        self._before(root, subject)
        why = self._rule.before[0].why if self._steps else ""
        self._append(root, "cascade" if self._steps else "root", 0 if self._steps else None, why)
        number = len(self._steps) - 1
        for _, item in members[1:]:
            self._append(item, "cascade", number, "the same fault, as another line reports it")
        told = len(self._steps)
        for link in self._rules.effects(self._rule):
            if link.scope not in ("job", "peer") or self._hits_a_rank(subject, told):
                self._follow(link, subject, number)
        effects = sum(one.role != "context" for one in self._steps[told:])
        return Chain(
            rule=self._rule, subject=subject, steps=self._steps, root=number, effects=effects, pattern=patterns[0],
            needs_effect=self._rule.needs_effect or all(pattern.needs_effect for pattern in patterns),
        )  # fmt: skip

    def _hits_a_rank(self, subject: Entity, told: int) -> bool:
        """Whether the root may concern others: it is of a rank, or ends a node with ranks, or a rank of its node fell
        with it or says it, or nobody knows.
        """
        if not self._placed or subject.rank is not None or self._rule.scope in ("nic", "link", "job", "rank"):
            return True
        if self._rule.scope == "gpu" and subject.node in self._blind:
            # Nobody says which GPUs the ranks of the node use: this one may be theirs.
            return True
        if self._rule.scope == "node" and subject.node in self._nodes:
            printed = any(one.item.episode.first.source_kind == "application" for one in self._steps[:told])
            if printed or self._rule.interruption in _OF_ALL_RANKS:
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
            if item.episode.first.event_id == self._steps[root].item.episode.first.event_id:
                # What a comparison rests on is the line that shows it.
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


def _blamed(scope: Scope, items: list[Resolved]) -> Entity:
    """Who a rule blames. Of a connection both ends; the one end that several failed connections have in common; the
    node whose own kernel says it.
    """
    if scope in ("job", "node"):
        return _agreed(scope, items)
    if scope != "link":
        return culprit_of(scope, [item.subject for item in items])
    kernel = next((item.subject for item in items if item.episode.first.source_kind == "kernel"), None)
    if kernel is not None:
        return Entity(node=kernel.node, machine_id=kernel.machine_id)
    links = {item.subject.link for item in items if item.subject.link is not None}
    if len(links) == 1:
        return Entity(link=links.pop())
    common = set.intersection(*(set(link.split(BETWEEN)) for link in links)) if links else set()
    if len(common) != 1:
        return Entity()
    end = common.pop()
    known = any(item.subject.node == end for item in items)
    return Entity(node=end) if known else Entity(link=end)


# Whom a launcher stops did nothing.
_OF_STOPPED: Final = ("elastic.terminate", "elastic.kill")
# What names a node; the rest of an entity names something on it.
_OF_NODES: Final = ("node", "machine_id", "switch", "nvlink_domain")


def _agreed(scope: Scope, items: list[Resolved]) -> Entity:
    """What all the lines that name anybody agree on. A node's name comes from the preferred line, and of the rest what
    its lines agree on beyond who printed them: whoever reports a fault of the node is not at fault for it.
    """
    named = [item for item in items if item.subject != Entity() and item.episode.name not in _OF_STOPPED]
    said: dict[str, list[object]] = defaultdict(list)
    for item in named:
        printer = item.episode.first.printer
        for name, value in msgspec.structs.asdict(item.subject).items():
            own = value is not None and value == getattr(printer, name, None)
            if value is not None and (scope == "job" or name in _OF_NODES or not own):
                said[name].append(value)
    if scope == "job":
        kept = {name: values[0] for name, values in said.items() if len(values) == len(named) and len(set(values)) == 1}
        return msgspec.convert(kept, Entity)
    kept = {name: values[0] for name, values in said.items() if len(set(values)) == 1 or name in _OF_NODES}
    return msgspec.convert(kept, Entity)


def link_of(subject: Entity, attributes: Mapping[str, str]) -> Entity:
    """The subject of a line about a connection, with both ends where the line gives them: addresses, else names."""
    here, there = attributes.get("local_gid") or subject.node, attributes.get("remote_gid") or attributes.get("peer")
    if "remote_gid" in attributes and "local_gid" not in attributes:
        there = attributes.get("peer")
    if subject.link is not None or not here or not there:
        return subject
    ends = sorted({here.removeprefix(_MAPPED), there.removeprefix(_MAPPED)})
    return msgspec.structs.replace(subject, link=BETWEEN.join(ends))


def culprit_of(scope: Scope, subjects: list[Entity]) -> Entity:
    """The entity a rule blames: the first subject with what the others add. A link's culprit is no rank."""
    merged: dict[str, object] = {}
    for subject in subjects:
        for name, value in msgspec.structs.asdict(subject).items():
            if value is not None:
                merged.setdefault(name, value)
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
        named = (subject.pci_bus_id, subject.gpu_uuid, rank, subject.gpu_index, subject.pid)
        return f"{subject.node} {next((name for name in named if name is not None), None)}"
    if scope in ("rank", "peer"):
        return f"rank {subject.rank}" if subject.rank is not None else f"{subject.node} {subject.pid}"
    if scope == "nic":
        return f"{subject.node} {subject.nic}"
    return f"{subject.node}" if scope == "node" else "job"
