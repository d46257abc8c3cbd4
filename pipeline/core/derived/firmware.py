"""Whose firmware fell silent: the line that says so calls the GPU by a number of the driver's own."""

from typing import Final

from pipeline.core.chains import Resolved, on_one_machine
from pipeline.core.derived.scene import Changes, Scene
from pipeline.core.order import lag_ns

# The driver names the GPU by its address when it gives it up, which takes it some time-outs.
WITHIN_NS: Final = 600 * 1_000_000_000
_RESET: Final = "GPU Reset Required"


def silent(scene: Scene) -> Changes:
    """The GPU of a firmware that fell silent: the only one that the same log gives up soon after."""
    for item in scene.named("gpu.gsp_silent"):
        if item.subject.pci_bus_id is not None:
            continue
        given_up = [other for other in scene.named("gpu.xid") if _is_given_up(other) and _follows(item, other)]
        if len({other.subject.pci_bus_id for other in given_up}) == 1:
            yield id(item), [Resolved(episode=item.episode, subject=given_up[0].subject)]


def _is_given_up(item: Resolved) -> bool:
    said = item.episode.attributes
    return said.get("xid") in ("119", "120") or (said.get("xid") == "154" and said.get("action_to_name") == _RESET)


def _follows(item: Resolved, other: Resolved) -> bool:
    here, there = on_one_machine(item.subject, item.episode.first, other)
    lag = lag_ns(item.episode.first, other.episode.first)
    near = lag is None or (lag[0] <= WITHIN_NS and lag[1] >= 0)
    return here.node is not None and here.node == there.node and near
