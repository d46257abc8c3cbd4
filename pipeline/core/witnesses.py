"""One fault that two witnesses tell: the kernel's line of a GPU and what the node agent was told by NVML.

Both are one episode where the clocks cannot set them apart: what NVML tells happened between the wait before and the
reading, and the kernel's stamp lies in that or it does not. When either arrived says nothing. Pure.
"""

from collections.abc import Mapping
from typing import Final

import msgspec
from msgspec import Struct

from pipeline.core.episodes import Coalescing, Episode, merged
from pipeline.core.order import canonical, order
from pipeline.core.placement import PlacementMap
from schemas.records import Entity

AGENT: Final = "telemetry"
_NAMES: Final = ("pci_bus_id", "gpu_uuid", "serial")


class _Seen(Struct, frozen=True, kw_only=True):
    """An episode with its GPU by every name that is known."""

    episode: Episode
    gpu: Entity
    variant: list[str]


def joined(episodes: list[Episode], placement: PlacementMap, coalescing: Mapping[str, Coalescing]) -> list[Episode]:
    """The episodes in canonical order, each fault once. The same set gives the same, whatever the order."""
    told = [e for e in episodes if _is_witnessed(e, coalescing) and e.first.source_kind == AGENT]
    if not told:
        return episodes
    groups: dict[tuple[str, str | None], list[list[_Seen]]] = {}
    kept = []
    for episode in episodes:
        if _is_witnessed(episode, coalescing) and episode.first.source_kind != AGENT:
            seen = _seen(episode, placement, coalescing)
            groups.setdefault((episode.name, seen.gpu.node), []).append([seen])
        elif episode.first.source_kind != AGENT or not _is_witnessed(episode, coalescing):
            kept.append(episode)
    for episode in told:
        seen = _seen(episode, placement, coalescing)
        here = groups.setdefault((episode.name, seen.gpu.node), [])
        same = [group for group in here if any(_is_one_fault(seen, other) for other in group)]
        here[:] = [group for group in here if not any(group is one for one in same)]
        here.append([*(other for group in same for other in group), seen])
    kept.extend(_one([seen.episode for seen in group]) for by_gpu in groups.values() for group in by_gpu)
    return sorted(kept, key=lambda episode: canonical(episode.first))


def _is_witnessed(episode: Episode, coalescing: Mapping[str, Coalescing]) -> bool:
    how = coalescing.get(episode.name)
    return how is not None and how.witnessed


def _seen(episode: Episode, placement: PlacementMap, coalescing: Mapping[str, Coalescing]) -> _Seen:
    variant = [episode.attributes.get(name, "") for name in coalescing[episode.name].variant]
    return _Seen(episode=episode, gpu=placement.subject(episode.first), variant=variant)


def _is_one_fault(told: _Seen, other: _Seen) -> bool:
    """Whether the kernel may tell the very fault: of that GPU and kind, and not certainly at another time."""
    if other.episode.first.source_kind == AGENT or told.gpu.node is None:
        return False
    pairs = [(getattr(told.gpu, name), getattr(other.gpu, name)) for name in _NAMES]
    both = [mine == theirs for mine, theirs in pairs if mine is not None and theirs is not None]
    # What one of them does not say does not tell them apart.
    kinds = zip(told.variant, other.variant, strict=True)
    is_same = bool(both) and all(both) and all(mine == theirs or not mine or not theirs for mine, theirs in kinds)
    return is_same and not _are_apart(told.episode, other.episode)


def _are_apart(a: Episode, b: Episode) -> bool:
    return _is_over_before(a, b) or _is_over_before(b, a)


def _is_over_before(a: Episode, b: Episode) -> bool:
    """Whether the last line of one was certainly written before the first of the other. Where only the first line of
    an episode is kept, its end says how long it went on.
    """
    return order(a.newest, b.first) == "before" and a.end_ns < b.start_ns


def _one(group: list[Episode]) -> Episode:
    """The episode of one fault: the kernel's line is the evidence, as it says more, and every line stays named."""
    by_kernel = [episode for episode in group if episode.first.source_kind != AGENT]
    by_agent = [episode for episode in group if episode.first.source_kind == AGENT]
    if not by_kernel or not by_agent:
        return _together(group)
    kernel, agent = _together(by_kernel), _together(by_agent)
    return msgspec.structs.replace(
        merged(kernel, agent), first=kernel.first, last=kernel.last,
        # NVML's moment begins with the wait before: the kernel's stamp is the sharper one.
        start_ns=min(kernel.start_ns, agent.start_ns + agent.first.resolution_ns),
        count=max(kernel.count, agent.count),
    )  # fmt: skip


def _together(group: list[Episode]) -> Episode:
    whole = group[0]
    for episode in group[1:]:
        whole = merged(whole, episode)
    return whole
