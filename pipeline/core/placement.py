"""Who ran where and when, from what lines say; resolves a GPU, a pid or a rank into all identifiers known of it."""

from typing import Final

import msgspec
from msgspec import Struct, field

from schemas.records import TIME_MIN_NS, Entity, Event

_FIELDS: Final = ("node", "machine_id", "gpu_uuid", "serial", "pci_bus_id", "gpu_index", "local_rank", "pid")


class Seen(Struct, kw_only=True):
    """One thing that lines say of a rank: an entity, since when (reference ns), and how far to trust it."""

    entity: Entity
    since_ns: int
    trust: int


class Facts(Struct, kw_only=True):
    """All that an investigation knows of ranks, by the size of the communicator that numbered them; 0 for others."""

    by_world: dict[int, dict[int, dict[str, Seen]]] = field(default_factory=dict)
    gpus: dict[str, Entity] = field(default_factory=dict)

    def learn(self, event: Event) -> None:
        """Take what an event says about who runs where. The order of calls does not matter."""
        subject = event.subject
        if event.name in ("gpu.uuid", "gpu.serial") and subject.node and subject.pci_bus_id:
            name = f"{subject.node} {subject.pci_bus_id}"
            known = self.gpus.get(name, Entity())
            self.gpus[name] = Entity(
                gpu_uuid=_least(known.gpu_uuid, subject.gpu_uuid), serial=_least(known.serial, subject.serial)
            )
        world, numbered = event.attributes.get("nranks"), event.attributes.get("rank")
        if world and numbered and world.isdecimal() and numbered.isdecimal():
            # The number that the communicator gives; global where the communicator is the world's.
            self._see(int(world), int(numbered), event, 0)
        if subject.rank is not None:
            self._see(0, subject.rank, event, 0 if event.name == "elastic.rank_failed" else 1)

    def _see(self, world: int, rank: int, event: Event, trust: int) -> None:
        said = Entity(**{name: getattr(event.subject, name) for name in _FIELDS})
        key = "\x1f".join(str(part) for part in msgspec.structs.astuple(said))
        since_ns = event.aligned_time_unix_nano if event.aligned_time_unix_nano is not None else TIME_MIN_NS
        seen = self.by_world.setdefault(world, {}).setdefault(rank, {})
        known = seen.get(key)
        if known is None:
            seen[key] = Seen(entity=said, since_ns=since_ns, trust=trust)
        else:
            known.since_ns, known.trust = min(known.since_ns, since_ns), min(known.trust, trust)

    def world_size(self) -> int | None:
        """The size of the largest communicator; None where no line states one."""
        return max((world for world in self.by_world if world), default=None)

    def ranks(self) -> dict[int, list[Seen]]:
        """What is seen of each global rank: by the world's communicator, and by lines that name it without one."""
        merged: dict[int, list[Seen]] = {}
        for world in (self.world_size() or 0, 0) if self.world_size() else (0,):
            for rank, seen in self.by_world.get(world, {}).items():
                merged.setdefault(rank, []).extend(seen.values())
        return {rank: sorted(merged[rank], key=_order) for rank in sorted(merged)}


class PlacementMap:
    """Facts turned into look-ups."""

    def __init__(self, facts: Facts) -> None:
        self._seen = facts.ranks()
        self._gpus = facts.gpus
        self.world_size = facts.world_size()
        # Where each rank is known to have run last.
        self.ranks = {rank: self._at(rank, None) for rank in self._seen}
        self._by: dict[tuple[str, str, object], set[int]] = {}
        for rank, observations in self._seen.items():
            for seen in observations:
                for name in ("pci_bus_id", "gpu_uuid", "pid", "local_rank"):
                    value = getattr(seen.entity, name)
                    if value is not None and seen.entity.node is not None:
                        self._by.setdefault((seen.entity.node, name, value), set()).add(rank)

    def nodes(self) -> list[str]:
        """All nodes that any rank is known to run on."""
        return sorted({entity.node for entity in self.ranks.values() if entity.node})

    def resolve(self, entity: Entity, at_ns: int | None = None) -> Entity:
        """The entity with all that placement adds at that time; what the line says is never overwritten."""
        rank = entity.rank if entity.rank is not None else self._rank_of(entity)
        if rank in self._seen:
            known = self._at(rank, at_ns, entity)
            if not _elsewhere(entity, known):
                entity = _filled(entity, known)
        gpu = self._gpus.get(f"{entity.node} {entity.pci_bus_id}")
        return _filled(entity, gpu) if gpu is not None else entity

    def _at(self, rank: int, at_ns: int | None, said: Entity | None = None) -> Entity:
        """One rank at one time: the newest observation from before it, with whatever agrees with it. Never a mixture
        of two places.
        """
        observations = [s for s in self._seen[rank] if said is None or not _elsewhere(said, s.entity)]
        # A line that names the process or the GPU itself is of the time of that process.
        named = [s for s in observations if said is not None and _same_process(said, s.entity)]
        if named:
            observations = [s for s in observations if not _elsewhere(named[0].entity, s.entity)]
        placed = [s for s in observations if s.entity.node is not None]
        earlier = [s for s in placed if at_ns is None or s.since_ns <= at_ns]
        base = max(earlier or placed[:1], key=lambda s: (-s.trust, s.since_ns, _order(s)), default=None)
        merged = Entity(rank=rank)
        if base is not None:
            merged = _filled(merged, base.entity)
        near = at_ns if at_ns is not None else max((s.since_ns for s in observations), default=0)
        for seen in sorted(observations, key=lambda s: (s.trust, abs(s.since_ns - near), _order(s))):
            if not _elsewhere(merged, seen.entity) and not _differ(merged.pid, seen.entity.pid):
                merged = _filled(merged, seen.entity)
        return merged

    def _rank_of(self, entity: Entity) -> int | None:
        if entity.node is None:
            return None
        for name in ("gpu_uuid", "pci_bus_id", "pid", "local_rank"):
            ranks = self._by.get((entity.node, name, getattr(entity, name)), set())
            if len(ranks) == 1:
                return next(iter(ranks))
        return None


def _order(seen: Seen) -> tuple[int, tuple[str, ...]]:
    return seen.since_ns, tuple(str(part) for part in msgspec.structs.astuple(seen.entity))


def _least(*values: str | None) -> str | None:
    return min((value for value in values if value is not None), default=None)


def _elsewhere(a: Entity, b: Entity) -> bool:
    """Whether two descriptions cannot be of one place. Pids may differ: the kernel and a container count apart."""
    return any(_differ(getattr(a, name), getattr(b, name)) for name in ("node", "pci_bus_id", "local_rank"))


def _same_process(a: Entity, b: Entity) -> bool:
    return (a.pid is not None and a.pid == b.pid) or (a.gpu_uuid is not None and a.gpu_uuid == b.gpu_uuid)


def _differ(a: object, b: object) -> bool:
    return a is not None and b is not None and a != b


def _filled(entity: Entity, known: Entity) -> Entity:
    missing = {
        name: getattr(known, name)
        for name in (*_FIELDS, "rank")
        if getattr(entity, name) is None and getattr(known, name) is not None
    }
    return msgspec.structs.replace(entity, **missing) if missing else entity
