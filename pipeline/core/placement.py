"""Who ran where, from what lines say; resolves a GPU, a pid or a rank into all identifiers known of it."""

from typing import Final

import msgspec
from msgspec import Struct

from schemas.records import Entity, Event

_FIELDS: Final = ("node", "machine_id", "gpu_uuid", "serial", "pci_bus_id", "gpu_index", "local_rank", "pid")


class Fact(Struct, kw_only=True):
    """What is known of one rank. Each field keeps its best value: from a placement line first, then the smallest."""

    rank: int
    values: dict[str, tuple[int, str]] = {}

    def learn(self, subject: Entity, trust: int) -> None:
        """Take what a line says of this rank. Lower `trust` numbers win; the order of calls does not matter."""
        for name in _FIELDS:
            value = getattr(subject, name)
            if value is not None:
                said = (trust, str(value))
                self.values[name] = min(self.values.get(name, said), said)

    def entity(self) -> Entity:
        """The rank with all its identifiers."""
        known: dict[str, object] = {name: value for name, (_, value) in self.values.items()}
        return msgspec.convert({**known, "rank": self.rank}, Entity, strict=False)


class Facts(Struct, kw_only=True):
    """All that an investigation knows of ranks, by the size of the communicator that numbered them."""

    by_world: dict[int, dict[int, Fact]] = {}
    gpus: dict[str, Fact] = {}

    def learn(self, event: Event) -> None:
        """Take what an event says about who runs where."""
        subject = event.subject
        if event.name in ("gpu.uuid", "gpu.serial") and subject.node and subject.pci_bus_id:
            gpu = self.gpus.setdefault(f"{subject.node} {subject.pci_bus_id}", Fact(rank=-1))
            gpu.learn(subject, 0)
        world, numbered = event.attributes.get("nranks"), event.attributes.get("rank")
        if world and numbered:
            # The number that the communicator gives; global where the communicator is the world's.
            self._fact(int(world), int(numbered)).learn(subject, 0)
        if subject.rank is not None:
            self._fact(0, subject.rank).learn(subject, 0 if world or event.name == "elastic.rank_failed" else 1)

    def _fact(self, world: int, rank: int) -> Fact:
        return self.by_world.setdefault(world, {}).setdefault(rank, Fact(rank=rank))

    def world_size(self) -> int | None:
        """The size of the largest communicator; None where no line states one."""
        return max((world for world in self.by_world if world), default=None)

    def ranks(self) -> dict[int, Entity]:
        """Global ranks: those of the world's communicator, and those that lines name without a communicator."""
        merged: dict[int, Fact] = {}
        for world in (self.world_size() or 0, 0):
            for rank, fact in self.by_world.get(world, {}).items():
                into = merged.setdefault(rank, Fact(rank=rank))
                for name, said in fact.values.items():
                    into.values[name] = min(into.values.get(name, said), said)
        return {rank: merged[rank].entity() for rank in sorted(merged)}


class PlacementMap:
    """Facts turned into look-ups."""

    def __init__(self, facts: Facts) -> None:
        self.ranks = facts.ranks()
        self.world_size = facts.world_size()
        self._gpus = {name: fact.values for name, fact in facts.gpus.items()}
        self._by: dict[tuple[str, str, object], set[int]] = {}
        for rank, entity in self.ranks.items():
            for name in ("pci_bus_id", "gpu_uuid", "pid", "local_rank"):
                value = getattr(entity, name)
                if value is not None and entity.node is not None:
                    self._by.setdefault((entity.node, name, value), set()).add(rank)

    def nodes(self) -> list[str]:
        """All nodes that any rank is known to run on."""
        return sorted({entity.node for entity in self.ranks.values() if entity.node})

    def resolve(self, entity: Entity) -> Entity:
        """The entity with every identifier that placement adds. What the line itself says is never overwritten."""
        rank = entity.rank if entity.rank is not None else self._rank_of(entity)
        known = self.ranks.get(rank) if rank is not None else None
        if known is not None and not _contradicts(entity, known):
            entity = _filled(entity, known)
        gpu = self._gpus.get(f"{entity.node} {entity.pci_bus_id}")
        if gpu is not None:
            said = {name: value for name, (_, value) in gpu.items()}
            entity = _filled(entity, msgspec.convert(said, Entity, strict=False))
        return entity

    def _rank_of(self, entity: Entity) -> int | None:
        if entity.node is None:
            return None
        for name in ("gpu_uuid", "pci_bus_id", "pid", "local_rank"):
            ranks = self._by.get((entity.node, name, getattr(entity, name)), set())
            if len(ranks) == 1:
                return next(iter(ranks))
        return None


def _contradicts(said: Entity, known: Entity) -> bool:
    pairs = ((said.node, known.node), (said.pci_bus_id, known.pci_bus_id), (said.local_rank, known.local_rank))
    return any(a is not None and b is not None and a != b for a, b in pairs)


def _filled(entity: Entity, known: Entity) -> Entity:
    missing = {
        name: getattr(known, name)
        for name in (*_FIELDS, "rank")
        if getattr(entity, name) is None and getattr(known, name) is not None
    }
    return msgspec.structs.replace(entity, **missing) if missing else entity
