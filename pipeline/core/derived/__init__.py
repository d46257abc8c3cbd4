"""Evidence that no line gives alone: whom a report names, who is out of step, what went on when a stall began.

Each finding is one of the items with another subject, another name or one more attribute: the line stays its evidence.
It takes the place of the item, so that a line stands on a chain once. Nothing here depends on the order of the items.
Each kind of evidence is one function of the scene in `KINDS`; a later kind wins over an earlier one of the same item.
None of them sees what happened while a node started or was worked on: that is told as context before.
"""

from collections.abc import Callable, Mapping, Sequence
from typing import Final

from pipeline.core.blocks import WAITED
from pipeline.core.chains import Resolved
from pipeline.core.derived import (
    activities,
    again,
    calls,
    compare,
    congestion,
    firmware,
    flight,
    held,
    kills,
    launcher,
    lockups,
    missing,
    outliers,
    ports,
    ranks,
    spans,
    stores,
    stragglers,
)
from pipeline.core.derived.scene import Changes, Scene
from pipeline.core.placement import PlacementMap
from pipeline.core.readings import of_event
from schemas.records import Event

# Names and attributes that no signal gives; `train.stalled` comes from `progress_marks`.
EVENTS: Final = frozenset(
    (
        "checkpoint.unfinished", "data.download.unfinished", "data.preprocess.unfinished", "train.end.early",
        "train.stalled", held.HELD, congestion.CONGESTED, *flight.EVENTS,
        compare.VERSION_DIFFERS, compare.TRANSPORT_DIFFERS, missing.GPU_MISSING, outliers.OUTLIER, stragglers.SLOW,
        again.RECURS,
    )
)  # fmt: skip
ATTRIBUTES: Final = {
    "host.hung_task": frozenset(("blocked_in",)), "host.soft_lockup": frozenset(("lasting",)),
    "collective.mismatch": frozenset(("differ",)), "python.exception": frozenset(("uncaught",)),
    **dict.fromkeys(WAITED, frozenset(("file", "line", "function", "callers", "uncaught"))),
    "nic.link.down": frozenset(("layer",)), "ib.port.down": frozenset(("layer",)), **flight.ATTRIBUTES,
    compare.VERSION_DIFFERS: frozenset(("component", "numbers")), compare.TRANSPORT_DIFFERS: frozenset(("numbers",)),
    missing.GPU_MISSING: frozenset(("against", "numbers")), outliers.OUTLIER: frozenset(("measure", "numbers")),
    **dict.fromkeys(("gpu.clocks_reduced", "gpu.hot"), frozenset(("brief",))),
    stragglers.SLOW: frozenset(("cause", "numbers")), again.RECURS: frozenset(("numbers",)),
}  # fmt: skip

# What is shown for as long as it lasts, by another line each time.
SHOWN_AGAIN: Final = frozenset((stragglers.SLOW,))

KINDS: Final[Mapping[str, Callable[[Scene], Changes]]] = {
    "processes": launcher.processes,
    "first_exit": launcher.first_exit,
    "killed_by_launcher": launcher.killed_by_launcher,
    "named": ranks.named,
    "odd_of_statements": ranks.odd_of_statements,
    "noticed": ranks.noticed,
    "stuck": ranks.stuck,
    "ports": ports.ports,
    "held": held.held,
    "kills": kills.kills,
    "lasting": lockups.lasting,
    "silent_firmware": firmware.silent,
    "congested": congestion.congested,
    "over": stores.over,
    "hardly_throttled": stores.hardly_throttled,
    "odd_of_waiters": ranks.odd_of_waiters,
    "odd_of_calls": calls.odd_of_calls,
    "hung": stores.hung,
    "unfinished": activities.unfinished,
    "recurs": again.recurs,
    "versions": compare.versions,
    "transports": compare.transports,
    "missing": missing.gpus,
    "outliers": outliers.outliers,
    "brief": stragglers.brief,
    "narrow": stragglers.narrow,
    "slower": stragglers.slower,
    "reported": stragglers.reported,
}


def is_measured(event: Event) -> bool:
    """Whether a line means something only beside many others of its kind, which come all the time."""
    return event.role == "context" and (event.name == "train.straggler" or of_event(event) is not None)


def is_watched(event: Event) -> bool:
    """Whether lines of a kind may lead to an incident together, though none of them does alone."""
    return event.name in missing.LISTS or is_measured(event)


def derive(
    items: list[Resolved], stalls: Sequence[Resolved], placement: PlacementMap, silent: int | None
) -> list[Resolved]:
    """The items with what follows from several of them. `silent`: the one rank that did not report the stall."""
    calm = _with(items, dict(spans.inside_spans(Scene(items, stalls, placement, silent))))
    scene = Scene(calm, stalls, placement, silent)
    changed: dict[int, list[Resolved]] = {}
    for kind in KINDS.values():
        changed.update(kind(scene))
    return _with(calm, changed)


def _with(items: Sequence[Resolved], changed: Mapping[int, list[Resolved]]) -> list[Resolved]:
    return [one for item in items for one in changed.get(id(item), [item])]
