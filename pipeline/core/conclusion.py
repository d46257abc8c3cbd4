"""What is concluded of a job or node, and how far it was read."""

from typing import Final

import msgspec
from msgspec import Struct

from pipeline.core.causes import Rule
from pipeline.core.chains import Chain, Resolved, Step
from pipeline.core.hosts import expand_hosts
from pipeline.core.placement import PlacementMap
from pipeline.core.progress_marks import Stall
from schemas.records import Entity

# Of so many nodes that one line lists each is named.
MAX_LISTED: Final = 32
REPEATED: Final = "the same failure, as another line reports it"
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
        return "; ".join(sorted(entity_text(entity) for entity in self.culprits))


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


def conclusion_of(chain: Chain, placement: PlacementMap) -> Conclusion:
    named = chain.subject != Entity()
    return Conclusion(
        class_=chain.rule.class_, rule=chain.told, culprits=_each(chain.subject) if named else [],
        confidence=chain.confidence, steps=chain.steps, root=chain.root, outside=is_outside(chain, placement),
        why_unknown=None if named else NO_END_NAMED if chain.rule.scope == "link" else NOBODY_NAMED,
    )  # fmt: skip


def _each(subject: Entity) -> list[Entity]:
    """The subject; of a list in Slurm's bracket form every node, unless it lists a whole part of the cluster."""
    names = expand_hosts(subject.node) if subject.node and "[" in subject.node else []
    if not 0 < len(names) <= MAX_LISTED:
        return [subject]
    return [msgspec.structs.replace(subject, node=name) for name in names]


def entity_text(entity: Entity) -> str:
    rank = f"rank {entity.rank}" if entity.rank is not None else ""
    return f"{entity.node or ''} {entity.pci_bus_id or entity.gpu_uuid or entity.nic or entity.link or rank}".strip()


def is_outside(chain: Chain, placement: PlacementMap) -> bool:
    """Whether every rank is known to run elsewhere."""
    if chain.rule.scope not in ("gpu", "nic", "node") or placement.world_size is None or chain.subject.node is None:
        return False
    placed = [entity for entity in placement.ranks.values() if entity.node]
    if len(placed) < placement.world_size:
        return False
    if chain.rule.scope == "gpu" and chain.subject.rank is None and chain.subject.pci_bus_id is not None:
        return all(entity.pci_bus_id is not None for entity in placed)
    return not {entity.node for entity in placed}.intersection(one.node for one in _each(chain.subject))
