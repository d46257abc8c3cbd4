"""What stands beside a conclusion: how its ranks and nodes differ from the others, as steps of context."""

from collections.abc import Sequence
from typing import Final

from pipeline.core.chains import Resolved, Step
from pipeline.core.derived.again import RECURS
from pipeline.core.derived.compare import TRANSPORT_DIFFERS, VERSION_DIFFERS
from pipeline.core.derived.missing import GPU_MISSING
from pipeline.core.derived.outliers import OUTLIER
from pipeline.core.derived.stragglers import SLOW
from pipeline.core.order import canonical
from schemas.records import Entity

# The most telling first.
_KINDS: Final = (RECURS, SLOW, TRANSPORT_DIFFERS, GPU_MISSING, VERSION_DIFFERS, OUTLIER)
MAX_STEPS: Final = 3
# Where a device or a store broke, a difference elsewhere says nothing.
_OPEN: Final = ("unknown/", "software/", "network/")


def context(steps: list[Step], root: int, class_: str, culprits: Sequence[Entity], items: list[Resolved]) -> list[Step]:
    """The steps with the few comparisons that concern the conclusion, those of its culprits first."""
    taken = {id(step.item) for step in steps}
    found = []
    for item in items:
        name = item.episode.name
        if name not in _KINDS or id(item) in taken:
            continue
        own = any(_concerns(item.subject, culprit) for culprit in culprits)
        of_all = class_.startswith(_OPEN) and name != OUTLIER
        if own or of_all or name == RECURS:
            found.append(((not own, _KINDS.index(name), canonical(item.episode.first)), item))
    added = [
        Step(item=item, role="context", parent=root, why=f"compared with the others: {_numbers(item)}")
        for _, item in sorted(found, key=lambda pair: pair[0])[:MAX_STEPS]
    ]
    return [*steps, *added]


def _concerns(subject: Entity, culprit: Entity) -> bool:
    """Whether a comparison is about the culprit: its rank, its GPU, or its node."""
    if subject.rank is not None and culprit.rank is not None:
        return subject.rank == culprit.rank
    if subject.node is None or subject.node != culprit.node:
        return False
    a, b = subject.pci_bus_id, culprit.pci_bus_id
    return a is None or b is None or a == b


def _numbers(item: Resolved) -> str:
    return item.episode.attributes.get("numbers", "")
