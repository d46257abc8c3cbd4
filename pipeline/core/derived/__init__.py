"""Evidence that no line gives alone: whom a report names, who is out of step, what went on when a stall began.

Each finding is one of the items with another subject, another name or one more attribute: the line stays its evidence.
It takes the place of the item, so that a line stands on a chain once. Nothing here depends on the order of the items.
Each kind of evidence is one function of the scene in `KINDS`; a later kind wins over an earlier one of the same item.
"""

from collections.abc import Callable, Mapping, Sequence
from typing import Final

from pipeline.core.chains import Resolved
from pipeline.core.derived import activities, flight, held, launcher, ports, ranks, spans, stores
from pipeline.core.derived.scene import Changes, Scene
from pipeline.core.placement import PlacementMap

# Names and attributes that no signal gives; `train.stalled` comes from `progress_marks`.
EVENTS: Final = frozenset(
    (
        "checkpoint.unfinished", "data.download.unfinished", "data.preprocess.unfinished", "train.end.early",
        "train.stalled", held.HELD, *flight.EVENTS,
    )
)  # fmt: skip
ATTRIBUTES: Final = {
    "host.hung_task": frozenset(("blocked_in",)), "collective.mismatch": frozenset(("differ",)),
    "nic.link.down": frozenset(("layer",)), "ib.port.down": frozenset(("layer",)), **flight.ATTRIBUTES,
}  # fmt: skip

KINDS: Final[Mapping[str, Callable[[Scene], Changes]]] = {
    "inside_spans": spans.inside_spans,
    "processes": launcher.processes,
    "first_exit": launcher.first_exit,
    "named": ranks.named,
    "odd_of_statements": ranks.odd_of_statements,
    "noticed": ranks.noticed,
    "ports": ports.ports,
    "held": held.held,
    "over": stores.over,
    "hardly_throttled": stores.hardly_throttled,
    "odd_of_waiters": ranks.odd_of_waiters,
    "hung": stores.hung,
    "unfinished": activities.unfinished,
}


def derive(
    items: list[Resolved], stalls: Sequence[Resolved], placement: PlacementMap, silent: int | None
) -> list[Resolved]:
    """The items with what follows from several of them. `silent`: the one rank that did not report the stall."""
    scene = Scene(items, stalls, placement, silent)
    changed: dict[int, list[Resolved]] = {}
    for kind in KINDS.values():
        changed.update(kind(scene))
    return [one for item in items for one in changed.get(id(item), [item])]
