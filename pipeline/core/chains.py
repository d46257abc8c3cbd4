"""From one root to a chain: what came before it, what followed, and the step that each step hangs on."""

from collections import Counter, defaultdict
from collections.abc import Collection, Mapping
from typing import Final

import msgspec
from msgspec import Struct

from pipeline.core.causes import Condition, Link, Pattern, Rule, RuleSet, Scope, related
from pipeline.core.episodes import Episode
from pipeline.core.order import canonical, lag_ns, order, sureness
from schemas.records import Entity, Event
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
    odds: float | None = None


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
    def weight(self) -> tuple[float, int]:
        """Which of two that contain each other explains the other."""
        return self.strength, len(self.steps)

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


class Known(Struct, frozen=True, kw_only=True):
    """What is known of a job. `placed`: where every rank runs, so that what hits no rank does not explain what the
    ranks print. `nodes`: where ranks run. `blind`: those of which no line says the GPUs of the ranks. `heard`: all of
    the job was read, so that what only one of its processes says did not happen to the others.
    """

    placed: bool = False
    nodes: Collection[str] = ()
    blind: Collection[str] = ()
    heard: bool = False


def chains_of(items: list[Resolved], rules: RuleSet, known: Known = Known()) -> list[Chain]:  # noqa: B008
    """For each rule one chain per entity that shows one of its root patterns."""
    index = _ByEvent(items)
    return [
        _Builder(rule, rules, index, known).build(members)
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
                subject = Entity() if pattern.names_nobody else item.subject
                groups.setdefault(_entity_name(rule.scope, subject), []).append((preference, item))
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
    if pattern.given and not any(_said_there(condition, item, index) for condition in pattern.given):
        return False
    return not any(
        order(item.episode.first, other.episode.first) != "before"
        for condition in pattern.unless
        for other in _said_there(condition, item, index)
    )


def _said_there(condition: Condition, item: Resolved, index: "_ByEvent") -> list[Resolved]:
    """The lines that a condition speaks of, as far as they tell of the same place as this one. Lines that name no place
    at all are not told apart by it.
    """
    event = item.episode.first
    return [
        other for other in index.matching(condition)
        if related(condition.scope, *on_one_machine(item.subject, event, other))
        or (condition.scope == "node" and item.subject.node is None and other.subject.node is None)
    ]  # fmt: skip


def _rarest(groups: list[list[tuple[int, Resolved]]]) -> list[list[tuple[int, Resolved]]]:
    for members in groups:
        members.sort(key=lambda member: (member[0], canonical(member[1].episode.first)))
    groups.sort(key=lambda members: canonical(members[0][1].episode.first))
    if len(groups) <= MAX_ROOTS:
        return groups
    kinds = Counter(kind_of(members[0][1]) for members in groups)
    return sorted(groups, key=lambda members: kinds[kind_of(members[0][1])])[:MAX_ROOTS]


def kind_of(item: Resolved) -> tuple[str, ...]:
    """What makes two failures alike."""
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

    def __init__(self, rule: Rule, rules: RuleSet, index: _ByEvent, known: Known) -> None:
        self._known = known
        self._rule = rule
        self._rules = rules
        self._index = index
        self._steps: list[Step] = []
        self._hindsight = self._names_nobody = False
        self._taken: set[int] = set()
        # Of steps that follow from another, by their number: the longest time between the two.
        self._lags: dict[int, float] = {}
        self._by_name: dict[str, list[int]] = defaultdict(list)
        self._by_place: dict[tuple[str, object], list[int]] = defaultdict(list)

    def build(self, members: list[tuple[int, Resolved]]) -> Chain:
        """The chain of one entity; `members` are its root episodes, the preferred one first."""
        root = members[0][1]
        members = [member for member in members if is_near(root, member[1])]
        patterns = [self._rule.root[which] for which, _ in members]
        self._hindsight, self._names_nobody = patterns[0].hindsight, patterns[0].names_nobody
        telling = [item for (_, item), pattern in zip(members, patterns, strict=True) if not pattern.names_nobody]
        subject = _blamed(self._rule.scope, telling, heard=self._known.heard) if telling else Entity()
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
        if (
            not self._known.placed
            or self._names_nobody
            or subject.rank is not None
            or self._rule.scope in ("nic", "link", "job", "rank")
        ):
            return True
        if self._rule.scope == "gpu" and subject.node in self._known.blind:
            # Nobody says which GPUs the ranks of the node use: this one may be theirs.
            return True
        if self._rule.scope == "node" and subject.node in self._known.nodes:
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
            if item is not root
            and related(link.scope, *on_one_machine(subject, root.episode.first, item))
            and may_precede(item, root, link.max_lag_s)
        ]
        for link, item in sorted(found, key=lambda pair: canonical(pair[1].episode.first)):
            self._append(item, "cascade" if self._steps else "root", 0 if self._steps else None, link.why)

    def _follow(self, link: Link, subject: Entity, root: int) -> None:
        first = self._steps[root].item.episode.first
        for item in self._index.matching(link):
            if id(item) in self._taken or not related(link.scope, *on_one_machine(subject, first, item)):
                continue
            if item.episode.first.event_id == first.event_id:
                # What a comparison rests on is the line that shows it.
                continue
            parent = self._parent(link, item, root)
            if parent is not None:
                self._lags[len(self._steps)] = link.max_lag_s
                self._append(item, _role(link, item), parent, link.why)

    def _parent(self, link: Link, item: Resolved, root: int) -> int | None:
        """The step that this one hangs on: of the named events the last that may precede it, its own place first."""
        place = _place(item.subject)
        near = (self._by_place.get((name, place), ()) for name in reversed(link.after))
        named = (self._by_name.get(name, ()) for name in reversed(link.after))
        for candidates in (*near, *named, [root]):
            for index in reversed(candidates):
                if self._may_precede(index, item, link) or (index == root and self._hindsight):
                    return index
        return None

    def _may_precede(self, index: int, item: Resolved, link: Link) -> bool:
        """Whether a step may lead to the item. One without a time does not stretch the lag from what it hangs on."""
        at, max_lag_s = index, link.max_lag_s
        while may_precede(self._steps[at].item, item, max_lag_s):
            parent = self._steps[at].parent
            if parent is None or self._steps[at].item.episode.start_ns >= 0:
                return True
            max_lag_s += self._lags.get(at, 0.0)
            at = parent
        return False

    def _append(self, item: Resolved, role: StepRole, parent: int | None, why: str) -> None:
        if id(item) in self._taken:
            return
        self._taken.add(id(item))
        name, number = item.episode.name, len(self._steps)
        self._by_name[name].append(number)
        self._by_place[name, _place(item.subject)].append(number)
        self._steps.append(step(item, role, parent, why, self._steps))


# Stands for the one machine of a kernel log of which no line says which it is.
_HERE: Final = "(the machine of this file)"


def on_one_machine(entity: Entity, root: Event, item: Resolved) -> tuple[Entity, Entity]:
    """Who is blamed for the root, and of whom a line speaks: a kernel log is of one machine, named or not."""
    event = item.episode.first
    nameless = entity.node is None and item.subject.node is None and root.source_kind == event.source_kind == "kernel"
    if not nameless or (root.source, root.generation) != (event.source, event.generation):
        return entity, item.subject
    return msgspec.structs.replace(entity, node=_HERE), msgspec.structs.replace(item.subject, node=_HERE)


def is_near(root: Resolved, item: Resolved) -> bool:
    """Whether two lines may be of one fault, by the time between them."""
    lag = lag_ns(root.episode.first, item.episode.first)
    return lag is None or (lag[0] <= SAME_FAULT_S * SECOND_NS and lag[1] >= -SAME_FAULT_S * SECOND_NS)


def step(item: Resolved, role: StepRole, parent: int | None, why: str, steps: list[Step]) -> Step:
    """A step that hangs on another, with what the clocks say of the two."""
    sure: EdgeOrder = "concurrent"
    odds = None
    if parent is not None:
        sure, odds = sureness(steps[parent].item.episode.first, item.episode.first)
    return Step(item=item, role=role, parent=parent, why=why, order=sure, odds=odds)


def may_precede(cause: Resolved, effect: Resolved, max_lag_s: float) -> bool:
    """Whether the clocks allow the cause to come first, and not longer before than the lag."""
    if order(effect.episode.first, cause.episode.first) == "before":
        return False
    lag = lag_ns(cause.episode.first, effect.episode.first)
    return lag is None or lag[0] <= max_lag_s * SECOND_NS


def _blamed(scope: Scope, items: list[Resolved], *, heard: bool) -> Entity:
    """Who a rule blames. Of a connection both ends; the one end that several failed connections have in common; the
    node whose own kernel says it.
    """
    if scope == "job":
        return _only_one(items, heard=heard)
    if scope == "node":
        return _of_node(items)
    if scope != "link":
        return culprit_of(scope, [item.subject for item in items])
    kernels = [item for item in items if item.episode.first.source_kind == "kernel"]
    if kernels:
        return _first_node(kernels)
    links = {item.subject.link for item in items if item.subject.link is not None}
    if len(links) == 1:
        return Entity(link=links.pop())
    common = set.intersection(*(set(link.split(BETWEEN)) for link in links)) if links else set()
    if len(common) != 1:
        return _between(items)
    end = common.pop()
    known = any(item.subject.node == end for item in items)
    return Entity(node=end) if known else Entity(link=end)


def _first_node(items: list[Resolved]) -> Entity:
    """The node of the first of these lines, where no other node may have said the same before."""
    first = min(items, key=lambda item: canonical(item.episode.first))
    others = [item for item in items if item.subject.node != first.subject.node]
    if any(order(first.episode.first, other.episode.first) != "before" for other in others):
        return Entity()
    return Entity(node=first.subject.node, machine_id=first.subject.machine_id)


def _between(items: list[Resolved]) -> Entity:
    """The two machines between which all the failed connections lie: each port has addresses of its own."""
    known = [item for item in items if item.subject.link is not None]
    pairs = {(item.subject.node, item.episode.attributes.get("peer")) for item in known}
    here, there = pairs.pop() if len(pairs) == 1 else (None, None)
    return Entity(link=BETWEEN.join(sorted((here, there)))) if here and there else Entity()


# What a launcher does to ranks that did not fail.
STOPPED: Final = frozenset(("elastic.terminate", "elastic.kill"))
# What names a node; the rest of an entity names something on it.
_OF_NODES: Final = ("node", "machine_id", "switch", "nvlink_domain")
_FIELDS: Final = Entity.__struct_fields__


def _only_one(items: list[Resolved], *, heard: bool) -> Entity:
    """Of what concerns the whole job: what the lines agree on that name another node or rank than who printed them.
    Else, where all of the job was read, what all agree on that name anybody: it did not happen elsewhere.
    """
    items = [item for item in items if item.episode.name not in STOPPED]
    told = [item.subject for item in items if _tells_of_another(item)]
    if told or not heard:
        return _agreed(told)
    return _agreed([item.subject for item in items if item.subject != Entity()])


def _tells_of_another(item: Resolved) -> bool:
    """Whether a line names another node than its printer's, or a rank that is not there."""
    event, subject = item.episode.first, item.subject
    if event.subject.node not in (None, event.printer.node, event.printer.pod):
        return True
    return subject.rank not in (None, event.printer.rank) and subject.node != event.printer.node


def _beyond_printer(item: Resolved) -> Entity:
    """Whom a line names apart from who printed it, with what placement adds to that."""
    event = item.episode.first
    if all(getattr(event.subject, name) in (None, getattr(event.printer, name, None)) for name in _FIELDS):
        return Entity()
    own = {name: None for name in _FIELDS if getattr(item.subject, name) == getattr(event.printer, name, None)}
    return msgspec.structs.replace(item.subject, **own)


def _agreed(entities: list[Entity]) -> Entity:
    """What all of these say alike."""
    said = {name: {getattr(entity, name) for entity in entities} for name in _FIELDS}
    return Entity(**{name: values.pop() for name, values in said.items() if len(values) == 1})


def _of_node(items: list[Resolved]) -> Entity:
    """The node, by the preferred line, and of the rest what its lines agree on beyond who printed them: whoever reports
    a fault of the node is not at fault for it.
    """
    said: dict[str, list[object]] = defaultdict(list)
    for item in (item for item in items if item.episode.name not in STOPPED):
        beyond = _beyond_printer(item)
        for name in _FIELDS:
            value = getattr(item.subject if name in _OF_NODES else beyond, name)
            if value is not None:
                said[name].append(value)
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
