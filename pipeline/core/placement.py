"""Who ran where and when: look-ups that give a GPU, a pid or a rank all identifiers known of it.

A field comes from the line that says it best: one that states it, then one that it can be worked out from, then one
about the same process. What contradicts itself is in `contradictions` and is not used. Nothing is taken from two lives
of a rank, and what a line says itself is never overwritten.
"""

from collections.abc import Collection, Iterable
from functools import cached_property
from typing import Final

import msgspec
from msgspec import Struct

from pipeline.core.facts import DERIVED, DEVICE, HOW, JOINED, SOURCE, STATED, Claim, Facts, Seat
from pipeline.core.groups import Group, Sitting, differ, groups_of
from pipeline.core.membership import Process, Seen, join
from schemas.records import Entity, Event, Printer

__all__ = ["Facts", "Known", "PlacementMap", "Told", "is_whole"]

_FIELDS: Final = ("node", "machine_id", "gpu_uuid", "serial", "pci_bus_id", "gpu_index", "local_rank", "pid")
_NOBODY: Final = Printer()
_SEVERAL: Final = -1


class Told(Struct, frozen=True, kw_only=True):
    """One field of an entry: its value, how it is known, and the line."""

    value: str | int
    how: str
    where: str


class Known(Struct, frozen=True, kw_only=True):
    """All that is known of one rank, process or GPU: each field with its evidence."""

    rank: int | None = None
    fields: dict[str, Told]


# Who speaks through srun, in front of what it says.
_THROUGH_SRUN: Final = ("slurmstepd: ", "srun: ")


class PlacementMap:
    """Facts turned into look-ups. `preferred`: the names to print of machines that lines call by several."""

    def __init__(self, facts: Facts, preferred: Iterable[str] = ()) -> None:
        joined = join(facts, preferred)
        self._names = joined.names
        self._seen = joined.ranks
        self._gpus = joined.gpus
        self._tasks = joined.tasks
        self._rank_labels = joined.rank_labels
        self._hosts_in = joined.hosts_in
        self.listed = joined.listed
        self.world_size = joined.world_size
        self.world_size_at = joined.world_at
        self.contradictions = joined.contradictions
        self._facts = facts
        self.dropped = facts.dropped
        self._by: dict[tuple[str, str, object], int] = {}
        self._processes: dict[Process, list[Seen]] = {}
        self._index(joined.loose)
        self._always = {rank: _agreed(rank, seens) for rank, seens in self._seen.items()}
        # Where each rank is known to have run last.
        self.ranks = {rank: self._always[rank] or self._at(rank, None)[0] for rank in self._seen}
        self._local = self._counted_local_ranks()
        self._devices = {} if joined.device_lists else self._device_local_ranks()
        self.ranks = {rank: self._completed(entity, None)[0] for rank, entity in self.ranks.items()}

    def _index(self, loose: list[Seen]) -> None:
        for rank, observations in self._seen.items():
            for seen in observations:
                if seen.entity.node is None or not seen.sure:
                    continue
                for name in ("pci_bus_id", "gpu_uuid"):
                    self._note(seen.entity.node, name, getattr(seen.entity, name), rank)
                for name in ("pid", "local_rank"):
                    self._note(seen.host or "", name, getattr(seen.entity, name), rank)
                if (process := seen.process) is not None:
                    self._processes.setdefault(process, []).append(seen)
                    if seen.cuda_dev is not None:
                        self._note(process[0], "device", (process[1], seen.cuda_dev), rank)
        for seen in loose:
            if (process := seen.process) is not None:
                self._processes.setdefault(process, []).append(seen)

    def _note(self, place: str, name: str, value: object, rank: int) -> None:
        if value is not None and self._by.setdefault((place, name, value), rank) != rank:
            self._by[place, name, value] = _SEVERAL

    def _only(self, place: str | None, name: str, value: object) -> int | None:
        """The only rank that something is of; None where there is none or several."""
        rank = self._by.get((place or "", name, value), _SEVERAL) if place is not None else _SEVERAL
        return None if rank == _SEVERAL else rank

    def groups(self) -> list[Group]:
        """The communicators and process groups that lines name, with their members."""
        claims = [*self._facts.claims.values(), *self._facts.seats.values()]
        return groups_of(self._sitting(claim, claim.seat) for claim in claims if claim.seat is not None)

    def _sitting(self, claim: Claim, seat: Seat) -> Sitting:
        place = claim.place
        host = None if place.host is None else self._names.host(place.host)
        rank = place.rank
        if rank is None and place.pid is not None:
            device = None if place.cuda_dev is None else (place.pid, place.cuda_dev)
            rank = self._only(host, "pid", place.pid)
            rank = self._only(host, "device", device) if rank is None else rank
        return Sitting(seat=seat, host=host, pid=place.pid, rank=rank, claim=claim)

    def nodes(self) -> list[str]:
        """All nodes that any rank is known to run on."""
        return sorted({entity.node for entity in self.ranks.values() if entity.node})

    @cached_property
    def is_spread(self) -> bool:
        """Whether the job runs on several nodes, or may: ranks of it are known nowhere."""
        placed = sum(entity.node is not None for entity in self.ranks.values())
        return len(self.nodes()) > 1 or len(self.listed) > 1 or (self.world_size or 0) > placed

    def name(self, node: str) -> str:
        """The one name of a machine that lines call by several."""
        return self._names.machine(node)

    def resolve(self, entity: Entity, at_ns: int | None = None, printer: Printer = _NOBODY) -> Entity:
        """The entity with all that placement adds at that time; what the line says is never overwritten."""
        host = None if entity.node is None else self._names.host(entity.node)
        if entity.node is not None and host is not None:
            machine = self._names.machine(host)
            if machine != entity.node:
                entity = msgspec.structs.replace(entity, node=machine)
        rank = entity.rank
        if rank is None:
            rank = self._rank_of(self._gpus.known(entity, at_ns)[0], host, printer.cuda_dev)
        if rank in self._seen:
            known = self._always[rank]
            if known is None or _elsewhere(entity, known):
                known, _ = self._at(rank, at_ns, entity)
            if not _elsewhere(entity, known):
                entity = _filled(entity, known)
        return self._completed(entity, at_ns, host)[0]

    def subject(self, event: Event) -> Entity:
        """Who an event speaks of, with what its prefixes say beyond its subject."""
        entity, printer, at_ns = event.subject, event.printer, event.aligned_time_unix_nano
        if printer.task is not None:
            entity = self._of_task(entity, event)
        if printer.node_of_source and entity.node == printer.node:
            entity = self._of_file(entity, event)
        return self.resolve(entity, at_ns, printer)

    def _of_file(self, entity: Entity, event: Event) -> Entity:
        """An entity whose node is that of its file: without it where the file holds the lines of several nodes, or
        where other lines say better on which node the rank ran.

        What Slurm says of a step in the job's output comes from the daemon of any of its nodes, through srun into one
        file; in the daemon's own log it names itself nowhere.
        """
        bare = msgspec.structs.replace(entity, node=None, machine_id=None)
        said = event.attributes
        is_named = entity.node in (said.get("node"), said.get("host")) or said.get("step") == "batch"
        is_sent = any(daemon in event.prefix or daemon in event.body for daemon in _THROUGH_SRUN)
        if event.name.startswith("slurm.") and is_sent and not is_named and self.is_spread:
            return bare
        if len(self._hosts_in.get(f"{event.source}\x1f{event.generation}", ())) > 1:
            return bare
        if entity.rank is not None and entity.rank in self._seen:
            known, by = self._at(entity.rank, event.aligned_time_unix_nano, bare)
            if "node" in by and by["node"].trust < SOURCE and known.node != self.name(entity.node or ""):
                return bare
        return entity

    def _of_task(self, entity: Entity, event: Event) -> Entity:
        """Rank and node by srun's label, where lines say what the labels are."""
        source = f"{event.source}\x1f{event.generation}"
        if entity.rank is None and source in self._rank_labels:
            entity = msgspec.structs.replace(entity, rank=event.printer.task)
        host = self._tasks.get(f"{source}\x1f{event.printer.task}")
        of_file = event.printer.node_of_source and entity.node == event.printer.node
        if host is not None and (entity.node is None or of_file):
            entity = msgspec.structs.replace(entity, node=host)
        return entity

    def known(self) -> list[Known]:
        """Every rank, field by field, with the lines that say it."""
        entries = []
        for rank in self._seen:
            entity, by = self._at(rank, None)
            fields = {
                name: Told(value=getattr(entity, name), how=HOW[seen.trust], where=seen.where)
                for name, seen in by.items()
            }
            full, added = self._completed(entity, None)
            for name, (how, where) in added.items():
                fields[name] = Told(value=getattr(full, name), how=HOW[how], where=where)
            here = [seen for seen in self._seen[rank] if seen.entity.pid == entity.pid]
            fields.update(_only_device([seen for seen in here if seen.seat is not None] or here))
            entries.append(Known(rank=rank, fields=fields))
        return entries

    def unranked(self) -> list[Known]:
        """Processes of which no line says the rank."""
        entries = []
        for (host, pid), seens in sorted(self._processes.items()):
            if any(seen.entity.rank is not None for seen in seens):
                continue
            fields: dict[str, Told] = {}
            for seen in sorted(seens, key=lambda s: (s.trust, _order(s))):
                for name in _FIELDS:
                    value = getattr(seen.entity, name)
                    if value is not None:
                        fields.setdefault(name, Told(value=value, how=HOW[seen.trust], where=seen.where))
            fields.update(_only_device(seens))
            full, added = self._completed(Entity(node=self._names.machine(host), pid=pid), None, host)
            for name, (how, where) in added.items():
                fields.setdefault(name, Told(value=getattr(full, name), how=HOW[how], where=where))
            entries.append(Known(fields=fields))
        return entries

    def gpus(self) -> list[Known]:
        """GPUs of which lines show two names together."""
        return [
            Known(
                fields={name: Told(value=getattr(gpu, name), how=HOW[STATED], where=at) for name, at in lines.items()}
                | {"node": Told(value=gpu.node or "", how=HOW[STATED], where=min(lines.values()))}
            )
            for gpu, lines in self._gpus.all()
        ]

    # --- one rank -------------------------------------------------------------------------------------------------

    def _at(self, rank: int, at_ns: int | None, said: Entity | None = None) -> tuple[Entity, dict[str, Seen]]:
        """One rank at one time: the newest observation from before it, with whatever agrees with it, and which line
        gave each field. Never a mixture of two places.
        """
        observations = [s for s in self._seen[rank] if said is None or not _elsewhere(said, s.entity)]
        # A line that names the process or the GPU itself is of the time of that process.
        named = [s for s in observations if said is not None and _same_process(said, s.entity)]
        if named:
            observations = [s for s in observations if not _elsewhere(named[0].entity, s.entity)]
        placed = [s for s in observations if s.entity.node is not None]
        placed = [s for s in placed if s.trust < SOURCE] or placed
        earlier = [s for s in placed if at_ns is None or s.since_ns <= at_ns]
        base = max(earlier or placed[:1], key=lambda s: (s.since_ns, -s.trust, _order(s)), default=None)
        merged = Entity(rank=rank)
        by: dict[str, Seen] = {}
        near = at_ns if at_ns is not None else max((s.since_ns for s in observations), default=0)
        ordered = sorted(observations, key=lambda s: (s.trust, abs(s.since_ns - near), _order(s)))
        if base is not None:
            merged = _add(merged, by, base)
        for seen in ordered:
            if not _elsewhere(merged, seen.entity) and not differ(merged.pid, seen.entity.pid):
                merged = _add(merged, by, seen)
        return merged, _best(merged, by, ordered)

    def _rank_of(self, entity: Entity, host: str | None, cuda_dev: int | None) -> int | None:
        """The only rank with that GPU, process or local rank on that machine; None where there is none or several."""
        if host is None or entity.node is None:
            return None
        device = None if cuda_dev is None else (entity.pid, cuda_dev)
        keys = (
            (entity.node, "gpu_uuid", entity.gpu_uuid), (entity.node, "pci_bus_id", entity.pci_bus_id),
            (host, "pid", entity.pid), (host, "device", device), (host, "local_rank", entity.local_rank),
        )  # fmt: skip
        found = (self._only(*key) for key in keys)
        return next((rank for rank in found if rank is not None), None)

    def _completed(
        self, entity: Entity, at_ns: int | None, host: str | None = None
    ) -> tuple[Entity, dict[str, tuple[int, str]]]:
        """What the GPUs of the machine, the process, and counting add; with how and where each is known."""
        added: dict[str, tuple[int, str]] = {}
        host = host if host is not None else entity.node
        process = (host, entity.pid) if host is not None and entity.pid is not None else None
        if process is not None and entity.rank is None:
            for seen in self._processes.get(process, ()):
                if not _elsewhere(entity, seen.entity):
                    entity = _filled(entity, msgspec.structs.replace(seen.entity, rank=None))
        entity, lines = self._gpus.known(entity, at_ns)
        added.update({name: (JOINED, where) for name, where in lines.items()})
        if entity.local_rank is None:
            found = None
            if entity.rank is not None and self._is_last_place(entity):
                found = self._local.get(entity.rank)
            if found is None and process is not None:
                found = self._devices.get(process)
            if found is not None:
                entity = msgspec.structs.replace(entity, local_rank=found[0])
                added["local_rank"] = found[1:]
        return entity, added

    def _is_last_place(self, entity: Entity) -> bool:
        known = self.ranks.get(entity.rank if entity.rank is not None else -1)
        return known is not None and known.node == entity.node and not differ(known.pid, entity.pid)

    # --- local ranks that no line states --------------------------------------------------------------------------

    def _counted_local_ranks(self) -> dict[int, tuple[int, int, str]]:
        """The ranks of a node are its local ranks in order: where all ranks are placed and no line counts otherwise."""
        on: dict[str, list[int]] = {}
        for rank in self._seen:
            host = self._last_host(rank)
            if host is None:
                return {}
            on.setdefault(host, []).append(rank)
        if self.world_size is None or not is_whole(self.ranks, self.world_size):
            return {}
        counted: dict[int, tuple[int, int, str]] = {}
        for ranks in on.values():
            local = {rank: number for number, rank in enumerate(sorted(ranks))}
            if any(differ(self.ranks[rank].local_rank, local[rank]) for rank in ranks):
                continue
            for rank in ranks:
                lines = [s for s in self._seen[rank] if s.entity.node == self.ranks[rank].node]
                counted[rank] = (local[rank], DERIVED, min(lines, key=lambda s: (s.trust, _order(s))).where)
        return counted

    def _last_host(self, rank: int) -> str | None:
        """The host, or pod, on which a rank ran last; None where lines name several on one machine."""
        node = self.ranks[rank].node
        hosts = {seen.host for seen in self._seen[rank] if node is not None and seen.entity.node == node}
        return next(iter(hosts)) if len(hosts) == 1 else None

    def _device_local_ranks(self) -> dict[Process, tuple[int, int, str]]:
        """NCCL's device as local rank, for a process that no line tells more of. Only where each process of the host
        has one device and no two the same; a lone 0 may be the only device that the process sees.
        """
        of: dict[str, dict[int, dict[int, Seen]]] = {}
        for (host, pid), seens in self._processes.items():
            for seen in seens:
                if seen.cuda_dev is not None and seen.trust < SOURCE:
                    devices = of.setdefault(host, {}).setdefault(pid, {})
                    known = devices.get(seen.cuda_dev)
                    if known is None or _order(seen) < _order(known):
                        devices[seen.cuda_dev] = seen
                    if differ(seen.entity.local_rank, seen.cuda_dev):
                        return {}
        found: dict[Process, tuple[int, int, str]] = {}
        for host, pids in of.items():
            used = [device for devices in pids.values() for device in devices]
            if len(used) != len(set(used)) or len(used) != len(pids) or not any(used):
                continue
            for pid, devices in pids.items():
                ((device, seen),) = devices.items()
                found[host, pid] = (device, DEVICE, seen.where)
        return found


def is_whole(ranks: Collection[int], size: int) -> bool:
    """Whether these are all the ranks of a job of that size: each number from 0 on."""
    return len(ranks) == size and min(ranks, default=0) == 0 and max(ranks, default=-1) == size - 1


def _only_device(seens: list[Seen]) -> dict[str, Told]:
    """The device of a process, where its lines name but one."""
    found = sorted((seen for seen in seens if seen.cuda_dev is not None), key=lambda s: (s.trust, _order(s)))
    if len({seen.cuda_dev for seen in found}) != 1 or found[0].cuda_dev is None:
        return {}
    return {"cuda_dev": Told(value=found[0].cuda_dev, how=HOW[found[0].trust], where=found[0].where)}


def _agreed(rank: int, seens: list[Seen]) -> Entity | None:
    """A rank of which all lines say the same, at whatever time; None where two of them differ."""
    values: dict[str, str | int] = {}
    for seen in seens:
        entity = seen.entity
        for name in _FIELDS:
            value = getattr(entity, name)
            if value is not None and values.setdefault(name, value) != value:
                return None
    return Entity(rank=rank, **values)  # type: ignore[arg-type]


def _add(entity: Entity, by: dict[str, Seen], seen: Seen) -> Entity:
    """Fill in what is missing, and note which line it is from."""
    missing = {}
    for name in _FIELDS:
        if name not in by and (value := getattr(seen.entity, name)) is not None:
            missing[name] = value
            by[name] = seen
    return msgspec.structs.replace(entity, **missing) if missing else entity


def _best(merged: Entity, by: dict[str, Seen], ordered: list[Seen]) -> dict[str, Seen]:
    """For each field the line that says it best: the base of a merge need not."""
    best = dict(by)
    for name, seen in by.items():
        value = getattr(merged, name)
        better = (s for s in ordered if s.trust < seen.trust and getattr(s.entity, name) == value)
        best[name] = next(better, seen)
    return best


def _order(seen: Seen) -> tuple[object, ...]:
    return seen.first, seen.where


def _elsewhere(a: Entity, b: Entity) -> bool:
    """Whether two descriptions cannot be of one place. Pids may differ: the kernel and a container count apart."""
    return any(differ(getattr(a, name), getattr(b, name)) for name in ("node", "pci_bus_id", "local_rank"))


def _same_process(a: Entity, b: Entity) -> bool:
    return (a.pid is not None and a.pid == b.pid) or (a.gpu_uuid is not None and a.gpu_uuid == b.gpu_uuid)


def _filled(entity: Entity, known: Entity) -> Entity:
    missing = {
        name: getattr(known, name)
        for name in (*_FIELDS, "rank")
        if getattr(entity, name) is None and getattr(known, name) is not None
    }
    return msgspec.structs.replace(entity, **missing) if missing else entity
