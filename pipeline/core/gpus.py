"""The GPUs of each machine: bus address, UUID, serial number and index, as far as lines show two of them together."""

from collections.abc import Iterable
from typing import Final

import msgspec

from pipeline.core.contradictions import Contradiction, Lives, Sight, contradiction, see
from pipeline.core.facts import Claim, Place
from schemas.records import Entity

# An index may change at a reboot, and inside a container it counts what the container sees.
_KINDS: Final = ("pci_bus_id", "gpu_uuid", "serial", "gpu_index")
_WORDS: Final = {"pci_bus_id": "address", "gpu_uuid": "UUID", "serial": "serial number", "gpu_index": "index"}

# machine, kind, value, other kind
_Link = tuple[str, str, object, str]


def _names(place: Place) -> tuple[str | int | None, ...]:
    return place.pci_bus_id, place.gpu_uuid, place.serial, place.gpu_index


def tells_a_gpu(place: Place) -> bool:
    """Whether a line gives two names of one GPU."""
    return _names(place).count(None) < len(_KINDS) - 1


class GpuTable:
    """Looks up what is known of a GPU by any of its names."""

    def __init__(self, claims: Iterable[tuple[str, Claim]], lives: Lives) -> None:
        """`claims`: each that tells a GPU, with the machine it is about."""
        self.contradictions: list[Contradiction] = []
        links: dict[_Link, dict[object, Sight]] = {}
        for machine, claim in claims:
            values = [
                (kind, value) for kind, value in zip(_KINDS, _names(claim.place), strict=True) if value is not None
            ]
            for kind, value in values:
                for other, also in values:
                    if other != kind:
                        see(links.setdefault((machine, kind, value, other), {}), also, claim)
        self._drop_contradicted(links, lives)
        self._links = {link: said for link, said in links.items() if said}

    def _drop_contradicted(self, links: dict[_Link, dict[object, Sight]], lives: Lives) -> None:
        gone: list[tuple[_Link, object]] = []
        for link, said in links.items():
            pair = lives.clash(said)
            if pair is None:
                continue
            machine, kind, value, other = link
            # Both directions say the same; two indexes of one GPU are told where the GPU is named.
            if (kind, other) not in (("gpu_uuid", "pci_bus_id"), ("serial", "gpu_uuid"), ("serial", "pci_bus_id")):
                thing = f"the {_WORDS[other]} of GPU {value} on {machine} is"
                if kind == "gpu_index":
                    thing = f"the {_WORDS[other]} of GPU number {value} on {machine} is"
                self.contradictions.append(contradiction("gpu", thing, said, pair, node=machine))
            gone.extend((link, also) for also in pair)
        for (machine, kind, value, other), also in gone:
            links[machine, kind, value, other].pop(also, None)
            links.get((machine, other, also, kind), {}).pop(value, None)

    def all(self) -> list[tuple[Entity, dict[str, str]]]:
        """Every GPU with all its names, and the line of each name."""
        found: list[tuple[Entity, dict[str, str]]] = []
        taken: set[tuple[str, str, object]] = set()
        for machine, kind, value, _ in sorted(self._links, key=_by_kind):
            if (machine, kind, value) in taken:
                continue
            entity, added = self.known(msgspec.structs.replace(Entity(node=machine), **{kind: value}), None)
            lines = {kind: min(line for line in added.values()), **added} if added else {}
            taken |= {(machine, name, getattr(entity, name)) for name in _KINDS}
            if lines:
                found.append((entity, lines))
        return found

    def known(self, entity: Entity, at_ns: int | None) -> tuple[Entity, dict[str, str]]:
        """The entity with every name of its GPU at that time, and the line of each that was added."""
        machine, added = entity.node, {}
        if machine is None:
            return entity, {}
        values = {kind: getattr(entity, kind) for kind in _KINDS}
        if all(value is None for value in values.values()):
            return entity, {}
        for _ in _KINDS:
            fresh = False
            for kind in _KINDS:
                for other in _KINDS:
                    if values[kind] is None or values[other] is not None:
                        continue
                    found = _pick(self._links.get((machine, kind, values[kind], other), {}), at_ns)
                    if found is not None:
                        values[other], added[other], fresh = found[0], found[1], True
            if not fresh:
                break
        return (msgspec.structs.replace(entity, **values) if added else entity), added


def _by_kind(link: _Link) -> tuple[str, int, str]:
    machine, kind, value, _ = link
    return machine, _KINDS.index(kind), str(value)


def _pick(said: dict[object, Sight], at_ns: int | None) -> tuple[object, str] | None:
    """The value at that time: the newest from before it, else the oldest one."""
    if not said:
        return None
    ordered = sorted(said, key=lambda value: (said[value].span.since_ns, said[value].first, str(value)))
    before = [value for value in ordered if at_ns is None or said[value].span.since_ns <= at_ns]
    value = before[-1] if before else ordered[0]
    return value, said[value].where
