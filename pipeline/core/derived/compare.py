"""Ranks and nodes of one job beside each other: versions and networks that differ."""

from collections import Counter, defaultdict
from collections.abc import Callable, Iterable, Mapping
from typing import Final

from pipeline.core.chains import Resolved
from pipeline.core.derived.scene import Changes, Scene, as_finding, last_of
from pipeline.core.order import Place, canonical
from schemas.records import Entity

VERSION_DIFFERS: Final = "compare.version_differs"
TRANSPORT_DIFFERS: Final = "compare.transport_differs"

# Component by event name, and the attribute that gives the version; `env.version` names the component itself.
_VERSIONS: Final[Mapping[str, tuple[str, str]]] = {
    "nccl.version": ("nccl", "version"), "nccl.driver": ("cuda driver", "driver"),
    "gpu.driver": ("driver", "version"), "gpu.driver_loaded": ("driver", "version"), "gpu.uuid": ("driver", "version"),
    "train.start": ("torch", "torch"), "env.version": ("", "version"),
}  # fmt: skip
# What a node has once, whatever its ranks say.
_OF_NODE: Final = frozenset(("driver", "cuda driver"))
_LABELS: Final = {"nccl": "software/nccl_version", "driver": "software/driver_mismatch"}
_SOCKET: Final = "Socket"


def versions(scene: Scene) -> Changes:
    """For each component one version that is not the others'."""
    by_component: dict[str, dict[str, Resolved]] = defaultdict(dict)
    for name, (component, _) in _VERSIONS.items():
        for item in scene.named(name):
            component_of = component or item.episode.attributes.get("component", "")
            for place in _places(item, component_of) if _version(item) else ():
                known = by_component[component_of].get(place)
                by_component[component_of][place] = item if known is None else max(known, item, key=_when)
    for component, places in sorted(by_component.items()):
        counts = Counter(_alike(_version(item), places.values()) for item in places.values())
        if len(counts) < 2:
            continue
        (common, most), *others = sorted(counts.items(), key=lambda pair: (-pair[1], pair[0]))
        is_rule = most > sum(count for _, count in others)
        odd = [item for item in places.values() if _alike(_version(item), places.values()) != common]
        item = min(odd, key=_when)
        own = _alike(_version(item), places.values())
        numbers = f"{component} {own} on {counts[own]}, {common} on {most}"
        attributes = {"component": component, "numbers": numbers}
        subject = _shared(odd) if is_rule else Entity()
        label = _LABELS.get(component, "software/nccl_config")
        yield id(item), [item, as_finding(item, item.episode.first, VERSION_DIFFERS, subject, role="context",
                                          label=label, attributes=attributes)]  # fmt: skip


def transports(scene: Scene) -> Changes:
    """The nodes whose NCCL fell back to sockets where that of the others did not."""
    by_node = _networks(scene.named("nccl.network"), lambda item: item.episode.attributes.get("network", ""))
    if not by_node:
        by_node = _networks(scene.named("nccl.network.devices"), _used)
    fallen = {node: found[_SOCKET] for node, found in by_node.items() if set(found) == {_SOCKET}}
    others = Counter(name for node, found in by_node.items() if node not in fallen for name in found if name != _SOCKET)
    if not fallen or not others or len(fallen) * 2 > len(by_node):
        return
    network, count = min(others.items(), key=lambda pair: (-pair[1], pair[0]))
    item = min(fallen.values(), key=_when)
    numbers = f"NET/Socket on {counted(len(fallen), 'node')}, {network} on {count}"
    subject = of_node(item.subject) if len(fallen) == 1 else Entity()
    finding = as_finding(
        item, item.episode.first, TRANSPORT_DIFFERS, subject, role="context", label="network/fabric_config",
        attributes={"numbers": numbers},
    )  # fmt: skip
    yield id(item), [item, finding]


def _networks(items: Iterable[Resolved], name: Callable[[Resolved], str]) -> dict[str, dict[str, Resolved]]:
    """By node the networks that it uses, each with its first line."""
    found: dict[str, dict[str, Resolved]] = defaultdict(dict)
    for item in items:
        network, node = name(item), item.subject.node
        if network and node:
            known = found[node].get(network)
            found[node][network] = item if known is None else min(known, item, key=_when)
    return found


def _used(item: Resolved) -> str:
    """The network of a line that lists devices; empty where it lists none, or those of the bootstrap."""
    attributes = item.episode.attributes
    via = attributes.get("via", "")
    return via.removeprefix("NET/") if via.startswith("NET/") and "devices" in attributes else ""


def _version(item: Resolved) -> str:
    return item.episode.attributes.get(_VERSIONS[item.episode.name][1], "")


def _alike(version: str, items: Iterable[Resolved]) -> str:
    """The version, without what was built for (`+cu121`) where others leave that out."""
    public, _, local = version.partition("+")
    return public if local and any(_version(item) == public for item in items) else version


def _places(item: Resolved, component: str) -> list[str]:
    """Of whom a line speaks: of many ranks that print it alike, each."""
    if len(item.episode.crowd) > 1 and component not in _OF_NODE:
        members = item.episode.crowd.values()
        return [_place(Entity(node=m.node, rank=m.rank, pid=m.pid), component) for m in members]
    place = _place(item.subject, component)
    return [place] if place else []


def _place(subject: Entity, component: str) -> str:
    if subject.rank is not None and component not in _OF_NODE:
        return f"rank {subject.rank}"
    return subject.node or ""


def _shared(items: list[Resolved]) -> Entity:
    """Who shows the odd version: the one rank, or the one node of all that do."""
    if len(items) == 1:
        return items[0].subject
    nodes = {item.subject.node for item in items}
    return of_node(items[0].subject) if len(nodes) == 1 and None not in nodes else Entity()


def of_node(subject: Entity) -> Entity:
    return Entity(node=subject.node, machine_id=subject.machine_id)


def counted(number: int, what: str) -> str:
    return f"{number} {what}" + ("" if number == 1 else "s")


def _when(item: Resolved) -> Place:
    return canonical(last_of(item))
