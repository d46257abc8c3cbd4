"""Spans in which a node does not work as usual: what happens inside them is context, what outlasts them is a fault.

Boot, until links are trained; a driver that starts; a drained node; maintenance that somebody declared.
"""

from collections.abc import Iterator, Mapping
from datetime import datetime
from typing import Final

import msgspec
from msgspec import Struct

from pipeline.core.chains import SECOND_NS, Resolved
from pipeline.core.derived.scene import Changes, Scene
from schemas.records import Event

# Links train and the fabric manager comes up within minutes of the first line of the kernel.
BOOT_S: Final = 300
# NVLinks are trained anew when the driver starts.
DRIVER_S: Final = 60
# What people do between taking a node out and putting it back.
MAX_DRAIN_S: Final = 14 * 86_400

_LINKS: Final = ("network/ib_link", "network/nic_link", "hardware/nvlink", "hardware/nvswitch", "hardware/pcie")
_NVLINK: Final = ("hardware/nvlink", "hardware/nvswitch")
# A device that fails for good while it starts has failed.
_FOR_GOOD: Final = ("critical", "fatal")
_ROLES: Final = ("cause", "intermediate")


class Span(Struct, frozen=True, kw_only=True):
    """Reference times in ns. `labels`: what such a span explains; None: everything the node says of itself."""

    kind: str
    start_ns: int
    end_ns: int
    labels: tuple[str, ...] | None = None


def inside_spans(scene: Scene) -> Changes:
    """What a node says of its devices and links inside a span is told as context.

    A drain or a declared maintenance explains nothing on a node on which ranks of the job run: somebody works there.
    """
    spans = _spans(scene)
    busy = {scene.placement.name(node) for node in scene.placement.nodes()}
    for item in scene.items if spans else ():
        event, node = item.episode.first, item.subject.node
        if node is None or node not in spans or event.role not in _ROLES or event.source_kind == "application":
            continue
        if event.aligned_time_unix_nano is None or item.episode.start_ns < 0:
            continue
        fitting = (span for span in spans[node] if _explains(span, event, is_busy=node in busy))
        span = next((span for span in fitting if _covers(span, item)), None)
        if span is not None:
            calm = msgspec.structs.replace(event, name=f"{event.name}.in_{span.kind}", role="context")
            episode = msgspec.structs.replace(item.episode, first=calm, last=None)
            yield id(item), [Resolved(episode=episode, subject=item.subject)]


def _explains(span: Span, event: Event, *, is_busy: bool) -> bool:
    return not is_busy if span.labels is None else event.severity not in _FOR_GOOD


def _covers(span: Span, item: Resolved) -> bool:
    """Whether all lines of an item are inside, and of the kind that such a span explains."""
    is_inside = span.start_ns <= item.episode.start_ns and item.episode.end_ns <= span.end_ns
    return is_inside and (span.labels is None or item.episode.first.label in span.labels)


def _spans(scene: Scene) -> Mapping[str, list[Span]]:
    found: dict[str, list[Span]] = {}
    for node, span in (*_starts(scene), *_drains(scene), *_declared(scene)):
        found.setdefault(node, []).append(span)
    return found


def _starts(scene: Scene) -> Iterator[tuple[str, Span]]:
    for name, kind, length_s, labels in (
        ("host.boot", "boot", BOOT_S, _LINKS), ("gpu.driver_loaded", "driver_start", DRIVER_S, _NVLINK),
    ):  # fmt: skip
        for item in scene.named(name):
            at_ns, node = item.episode.first.aligned_time_unix_nano, item.subject.node
            if at_ns is not None and node is not None:
                end_ns = item.episode.end_ns + length_s * SECOND_NS
                yield node, Span(kind=kind, start_ns=at_ns, end_ns=end_ns, labels=labels)


def _drains(scene: Scene) -> Iterator[tuple[str, Span]]:
    """From a node taken out to the same node put back."""
    backs = [(item.subject.node, item.episode.start_ns) for item in scene.named("slurm.node_back")]
    for item in scene.named("slurm.drained"):
        node, start_ns = item.subject.node, item.episode.start_ns
        if node is None or start_ns < 0 or item.episode.first.role != "context":
            continue
        later = [at_ns for back, at_ns in backs if back == node and at_ns > start_ns]
        end_ns = min(later, default=start_ns + MAX_DRAIN_S * SECOND_NS)
        yield node, Span(kind="drain", start_ns=start_ns, end_ns=end_ns)


def _declared(scene: Scene) -> Iterator[tuple[str, Span]]:
    for item in scene.named("span.declared"):
        event, node = item.episode.first, item.subject.node
        start_ns, end_ns = _time_ns(event, "start"), _time_ns(event, "end")
        if node is None or start_ns is None:
            continue
        end_ns = start_ns + MAX_DRAIN_S * SECOND_NS if end_ns is None else end_ns
        yield node, Span(kind=event.attributes["kind"], start_ns=start_ns, end_ns=end_ns)


def _time_ns(event: Event, name: str) -> int | None:
    text = event.attributes.get(name)
    if text is None:
        return None
    try:
        at = datetime.fromisoformat(text)
    except ValueError:
        return None
    return round(at.timestamp() * 1_000_000) * 1_000 if at.tzinfo is not None else None
