"""Cause rules as data: what may be a root, what comes before it, what follows, and what to do.

The files are `pipeline/causes/*.toml`; this module holds their shape and the matching of one pattern.
"""

import hashlib
from collections.abc import Iterator, Mapping
from string import Formatter
from typing import Final, Literal

from msgspec import Struct, field

from pipeline.core.calibration import Calibration
from pipeline.core.episodes import Coalescing, Episode
from schemas.records import Entity
from schemas.vocabulary import ActionKind, IncidentSeverity, Interruption, Role

# `link`: between two ends, of which no line says which one is at fault.
Scope = Literal["gpu", "rank", "peer", "node", "nic", "link", "job"]

# What a sentence of a rule may name: the identifiers of the culprit, and it as process or device (`who`) and as GPU.
TEMPLATE_NAMES: Final = frozenset((*Entity.__struct_fields__, "who", "gpu"))
# What a line of the root may give: the target of an action names its part, an explanation the numbers of a comparison.
PART: Final = "part"
NUMBERS: Final = "numbers"


def matches(event: str, where: dict[str, list[str]], episode: Episode) -> bool:
    """Whether an episode has this name and these values."""
    return episode.name == event and all(episode.attributes.get(name, "") in where[name] for name in where)


class Condition(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Something that another line of the investigation says, of what stands in the scope relation to the root."""

    event: str
    where: dict[str, list[str]] = {}
    scope: Scope = "job"

    def matches(self, episode: Episode) -> bool:
        """Whether the episode is of this kind."""
        return matches(self.event, self.where, episode)


class Pattern(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """An event name and, where given, the values its attributes must have, and the roles and labels of the line.

    `has`: attributes that the line must give, with whatever value. `given`: one of these must be known of the
    investigation; `unless`: none of these may be known of a time before the root. `needs_effect`: alone it is nothing.
    `strength` and `confidence`: where this root proves less or more than the others of its rule. `hindsight`: the line
    reports what began earlier, so that it may stand after what followed from it. `names_nobody`: whom the line names is
    not at fault. `explanation`,
    `consequence`, `severity`, `interruption` and `not_network_because`: where they are others than the rule's.
    """

    event: str
    where: dict[str, list[str]] = {}
    roles: list[Role] = []
    labels: list[str] = []
    has: list[str] = []
    given: list[Condition] = []
    unless: list[Condition] = []
    needs_effect: bool = False
    strength: float | None = None
    confidence: float | None = None
    hindsight: bool = False
    names_nobody: bool = False
    explanation: str | None = None
    consequence: str | None = None
    severity: IncidentSeverity | None = None
    interruption: Interruption | None = None
    not_network_because: str | None = None

    def matches(self, episode: Episode) -> bool:
        """Whether the episode is of this kind."""
        fits = not self.roles or episode.first.role in self.roles
        fits = fits and (not self.labels or episode.first.label in self.labels)
        fits = fits and all(episode.attributes.get(name) for name in self.has)
        return fits and matches(self.event, self.where, episode)


class Link(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Something that comes before or after the root, how it is related, and within which time.

    `after` names the events it hangs on where they are on the chain; else it hangs on the root.
    """

    event: str
    scope: Scope
    why: str
    max_lag_s: float
    where: dict[str, list[str]] = {}
    after: list[str] = []

    def matches(self, episode: Episode) -> bool:
        """Whether the episode is of this kind."""
        return matches(self.event, self.where, episode)


class ActionText(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """What to do; `target` and `why` are templates over the culprit's identifiers."""

    kind: ActionKind
    target: str
    why: str
    reference: str = ""


class Case(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """A story inside a rule file: lines by node and source, and the class they must lead to ("" = anything else)."""

    name: str
    lines: list[dict[str, str]]
    concludes: str


class Rule(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """One cause. `root` patterns stand in order of preference: the first that is there is the root.

    `needs_effect`: alone it is nothing. `dies`: the culprit's process, or all of its node, ends by it; who lives on is
    no culprit. `bites_s`: for how long after its line the ranks that it concerns may go on before it stops them.
    A `hard` interruption of a node takes the ranks that run there with it.
    `consequence` and `not_network_because` are said only where the chain shows that others noticed.
    """

    id: str
    chain: str
    status: Literal["stable", "experimental"]
    title: str
    class_: str = field(name="class")
    scope: Scope
    strength: float
    confidence: float
    explanation: str
    consequence: str = ""
    references: list[str]
    root: list[Pattern]
    action: ActionText
    severity: IncidentSeverity = "error"
    interruption: Interruption = "soft"
    needs_effect: bool = False
    dies: bool = False
    bites_s: float = 60.0
    before: list[Link] = []
    then: list[Link] = []
    groups: list[str] = []
    not_network_because: str | None = None
    story: list[Case] = []


def names_in(template: str) -> list[str]:
    """What a sentence names, in its order; raises ValueError where it is none."""
    return [name for _, name, _, _ in Formatter().parse(template) if name is not None]


def sentences(rule: Rule) -> Iterator[tuple[str, str, frozenset[str]]]:
    """The sentences of a rule: the field, the text, and what it may name."""
    yield "action.target", rule.action.target, TEMPLATE_NAMES | {PART}
    yield "action.why", rule.action.why, TEMPLATE_NAMES
    variants: list[Rule | Pattern] = [rule, *rule.root]
    for one in variants:
        yield "explanation", one.explanation or "", TEMPLATE_NAMES | {NUMBERS}
        yield "consequence", one.consequence or "", TEMPLATE_NAMES
        yield "not_network_because", one.not_network_because or "", TEMPLATE_NAMES


class RuleSet(Struct, frozen=True, kw_only=True):
    """All rules, with the groups of effects they share and the coalescing of events."""

    rules: list[Rule]
    groups: Mapping[str, list[Link]]
    coalescing: Mapping[str, Coalescing]
    digest: str
    calibration: Calibration = Calibration()

    @property
    def root_events(self) -> set[str]:
        """Names of events that may be a root, or that let another one be a root."""
        patterns = [pattern for rule in self.rules for pattern in rule.root]
        return {pattern.event for pattern in patterns} | {one.event for pattern in patterns for one in pattern.given}

    def effects(self, rule: Rule) -> list[Link]:
        """What may follow the root of a rule: its own links first, then its groups'."""
        return [*rule.then, *(link for group in rule.groups for link in self.groups[group])]


def digest_of(texts: Mapping[str, str]) -> str:
    """12 hex characters over file names and contents."""
    total = hashlib.sha256()
    for name in sorted(texts):
        total.update(name.encode() + b"\0" + texts[name].encode() + b"\0")
    return total.hexdigest()[:12]


def related(scope: Scope, root: Entity, other: Entity) -> bool:
    """Whether `other` stands in the scope relation to `root`. An identifier that is not known decides nothing."""
    if scope in ("job", "link"):
        return True
    if scope == "peer":
        return not related("rank", root, other)
    if scope == "rank":
        if root.rank is not None and other.rank is not None:
            return root.rank == other.rank
        return (
            _same_node(root, other)
            and _agree(root.pid, other.pid)
            and _agree(root.local_rank, other.local_rank)
            and _one_known(root, other)
        )
    if not _same_node(root, other):
        return False
    if scope == "gpu":
        return _equal(root.gpu_uuid, other.gpu_uuid) or _equal(root.pci_bus_id, other.pci_bus_id)
    if scope == "nic":
        return _equal(root.nic, other.nic) or (root.nic is None or other.nic is None)
    return True


def _one_known(root: Entity, other: Entity) -> bool:
    return _equal(root.pid, other.pid) or _equal(root.local_rank, other.local_rank)


def _same_node(a: Entity, b: Entity) -> bool:
    return a.node is not None and a.node == b.node


def _equal(a: object, b: object) -> bool:
    return a is not None and a == b


def _agree(a: object, b: object) -> bool:
    return a is None or b is None or a == b
