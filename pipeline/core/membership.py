"""From claims to what is seen of each rank: names folded, numbers of the right communicator, contradictions dropped."""

from collections.abc import Callable, Iterable, Mapping
from operator import attrgetter
from typing import Any, Final

import msgspec
from msgspec import Struct

from pipeline.core.contradictions import Contradiction, Lives, Sight, Value, contradiction, see
from pipeline.core.environment import Dump, dumps_of, sizes_of
from pipeline.core.facts import DERIVED, JOINED, SOURCE, STATED, Claim, Facts, Place, Seat, Span, number
from pipeline.core.gpus import GpuTable, tells_a_gpu
from pipeline.core.hosts import HostNames
from schemas.records import Entity

# What one rank cannot have two of at one time on one machine, how it is read, and what falls with it.
_ONE: Final = {
    name: (attrgetter(f"entity.{name}"), falls)
    for name, falls in (
        ("pci_bus_id", ("pci_bus_id", "gpu_uuid", "serial", "gpu_index")), ("gpu_uuid", ("gpu_uuid", "serial")),
        ("gpu_index", ("gpu_index",)), ("local_rank", ("local_rank",)), ("pid", ("pid",)),
    )
}  # fmt: skip
_WORDS: Final = {
    "pci_bus_id": "the GPU", "gpu_uuid": "the GPU", "gpu_index": "the GPU number", "local_rank": "the local rank",
    "pid": "the process",
}  # fmt: skip

# host, pid
Process = tuple[str, int]
# host, pid, address of a communicator in the process
Pointer = tuple[str, int | None, str]


class Seen(Struct, kw_only=True, gc=False):
    """What lines say of one rank or process. `host` is whose pids these are: the machine, or the pod on it.

    `sure`: the host holds. That of a file does where no line of the file names another one.
    """

    entity: Entity
    host: str | None
    trust: int
    span: Span
    first: tuple[int, str, int]
    where: str
    cuda_dev: int | None = None
    task: str | None = None
    seat: Seat | None = None
    sure: bool = True

    @property
    def since_ns(self) -> int:
        """Reference time of the first line that says it."""
        return self.span.since_ns

    @property
    def process(self) -> Process | None:
        """The process, where both its host and its pid are known."""
        return None if self.host is None or self.entity.pid is None else (self.host, self.entity.pid)

    def claim(self) -> Claim:
        """The same as a claim, for what only asks when and where."""
        return Claim(place=Place(), trust=self.trust, span=self.span, first=self.first, where=self.where)

    def drop(self, *fields: str) -> None:
        """Forget fields that other lines contradict."""
        self.entity = msgspec.structs.replace(self.entity, **dict.fromkeys(fields))


class Joined(Struct, kw_only=True):
    """All that the claims give. `tasks`: the host of each srun label; `rank_labels`: sources whose labels are ranks;
    `listed`: all nodes of the job, where it says them.
    """

    names: HostNames
    world_size: int | None
    world_at: str
    ranks: dict[int, list[Seen]]
    loose: list[Seen]
    gpus: GpuTable
    tasks: dict[str, str]
    rank_labels: set[str]
    device_lists: bool
    # The hosts that the lines of each source name.
    hosts_in: dict[str, set[str]]
    listed: frozenset[str]
    contradictions: list[Contradiction]


def join(facts: Facts, preferred: Iterable[str] = ()) -> Joined:
    """Everything that the facts say, in one picture. `preferred`: names to print of machines that have several."""
    return _Join(facts, preferred).joined()


class _Join:
    """The steps, each of which uses what the ones before it found."""

    def __init__(self, facts: Facts, preferred: Iterable[str]) -> None:
        self._lives = Lives(facts.marks.values())
        self._uses = _in_order(facts.uses)
        self._dumps = dumps_of(facts.variables)
        self._found: list[Contradiction] = []
        claims = _in_order(facts.claims)
        self._names = _names(facts, claims, self._dumps, preferred)
        self._ids, parts = self._pointers(facts, claims)
        # A line about a part of a communicator need not say that it is one.
        if parts:
            claims = [claim for claim in claims if self._pointer(claim) not in parts]
        self._tasks = self._task_hosts(claims)
        self._world, self._world_at = self._size(facts, claims)
        claims += [claim for dump in self._dumps for claim in dump.claims(self._world)]
        claims.sort(key=attrgetter("first"))
        self._claims = claims
        seats = self._world_seats()
        self._ranks: dict[int, list[Seen]] = {}
        self._loose: list[Seen] = []
        self._hosts_in: dict[str, set[str]] = {}
        for claim in claims:
            self._add(self._seen(claim, seats))
        for seen in (*self._loose, *(seen for seens in self._ranks.values() for seen in seens)):
            seen.sure = seen.trust < SOURCE or self._is_only_host(seen.host, seen.span)

    def joined(self) -> Joined:
        labels = self._rank_labels()
        gpus = GpuTable(self._gpu_claims(), self._lives)
        self._drop_double_seats()
        self._join_processes()
        self._join_uses()
        self._drop_two_places()
        self._translate_devices()
        self._drop_two_values()
        self._drop_shared_local_ranks()
        return Joined(
            names=self._names, world_size=self._world, world_at=self._world_at,
            ranks={rank: self._ranks[rank] for rank in sorted(self._ranks)}, loose=self._loose, gpus=gpus,
            tasks=self._tasks, rank_labels=labels,
            device_lists=any(dump.devices for dump in self._dumps), hosts_in=self._hosts_in,
            listed=frozenset(self._names.machine(host) for dump in self._dumps for host in dump.listed if host),
            contradictions=[*self._found, *gpus.contradictions],
        )  # fmt: skip

    # --- reading --------------------------------------------------------------------------------------------------

    def _pointers(self, facts: Facts, claims: list[Claim]) -> tuple[dict[Pointer, str], set[Pointer]]:
        """The id behind each pointer of a process to a communicator, and the pointers to parts of communicators."""
        ids: dict[Pointer, set[str]] = {}
        for claim in claims:
            if claim.seat is not None and claim.seat.id and (pointer := self._pointer(claim)) is not None:
                ids.setdefault(pointer, set()).add(claim.seat.id)
        parts = {self._pointer(claim) for claim in facts.seats.values()}
        known = {pointer: next(iter(found)) for pointer, found in ids.items() if len(found) == 1}
        return known, {pointer for pointer in parts if pointer is not None and pointer not in known}

    def _pointer(self, claim: Claim) -> Pointer | None:
        place, seat = claim.place, claim.seat
        if seat is None or not seat.pointer or place.host is None:
            return None
        return self._names.host(place.host), place.pid, seat.pointer

    def _seat_name(self, claim: Claim) -> str:
        """What names the communicator of a claim: its id, else its size."""
        if claim.seat is None:
            return ""
        pointer = self._pointer(claim)
        known = self._ids.get(pointer, "") if pointer is not None else ""
        return claim.seat.id or known or f"of {claim.seat.size}"

    def _task_hosts(self, claims: list[Claim]) -> dict[str, str]:
        """The host behind each srun label: a task runs on one node."""
        hosts: dict[str, set[str]] = {}
        for claim in claims:
            place = claim.place
            if place.task is not None and place.host is not None and claim.trust < SOURCE:
                hosts.setdefault(place.task, set()).add(self._names.host(place.host))
        return {task: next(iter(on)) for task, on in hosts.items() if len(on) == 1}

    def _size(self, facts: Facts, claims: list[Claim]) -> tuple[int | None, str]:
        """The number of ranks: what lines state, where it can be true; else the size of the largest communicator."""
        largest = max((c for c in claims if c.seat and c.seat.kind == "comm"), key=_size_of, default=None)
        stated = {int(size): claim for size, claim in facts.worlds.items()}
        for size, claim in sizes_of(self._dumps).items():
            known = stated.get(size)
            stated[size] = claim if known is None or claim.trust < known.trust else known
        best = min((claim.trust for claim in stated.values()), default=STATED)
        said: dict[int, Sight] = {}
        for size, claim in stated.items():
            if claim.trust == best:
                see(said, size, claim)
        self._drop_too_small(said, largest)
        pair = self._lives.clash(said)
        if pair is not None:
            self._tell("world", "the number of ranks is", said, pair)
            return None, ""
        if said:
            newest = max(said, key=lambda size: (said[size].span.since_ns, said[size].first))
            return newest, said[newest].where
        return (_size_of(largest), largest.where) if largest else (None, "")

    def _drop_too_small(self, said: dict[int, Sight], largest: Claim | None) -> None:
        """A number of ranks below the size of a communicator of the same time counts something else."""
        if largest is None:
            return
        for size in sorted(said):
            both = {size: said[size]}
            see(both, _size_of(largest), largest)
            if size < _size_of(largest) and self._lives.clash(both):
                self._tell("world", "the number of ranks is", both, (size, _size_of(largest)))
                del said[size]

    def _world_seats(self) -> set[str]:
        """The communicators of all ranks, by what names them. One that counts otherwise than prefixes do is none."""
        seats: set[str] = set()
        wrong: set[str] = set()
        for claim in self._claims:
            seat, place = claim.seat, claim.place
            if seat is None or seat.kind != "comm" or seat.size != self._world:
                continue
            name = self._seat_name(claim)
            seats.add(name)
            if place.rank is not None and place.rank != seat.rank and name not in wrong:
                wrong.add(name)
                said = f"rank {place.rank} by its prefix"
                also = f"rank {seat.rank} in a communicator of {seat.size}"
                self._found.append(
                    Contradiction(
                        kind="order", thing="a process is", said=said, said_at=claim.where, also=also,
                        also_at=claim.where, node=place.host,
                    )
                )  # fmt: skip
        return seats - wrong

    def _seen(self, claim: Claim, seats: set[str]) -> Seen:
        place, seat, trust = claim.place, claim.seat, claim.trust
        host = None if place.host is None else self._names.host(place.host)
        if host is None and place.task is not None and place.task in self._tasks:
            host, trust = self._tasks[place.task], max(trust, JOINED)
        rank = place.rank
        if seat is not None and seat.kind == "comm" and self._seat_name(claim) in seats:
            rank = seat.rank
        return Seen(
            entity=Entity(
                node=None if host is None else self._names.machine(host), machine_id=place.machine_id,
                gpu_uuid=place.gpu_uuid, serial=place.serial, pci_bus_id=place.pci_bus_id, gpu_index=place.gpu_index,
                rank=rank, local_rank=place.local_rank, pid=place.pid,
            ),
            host=host, trust=trust, span=claim.span, first=claim.first, where=claim.where, cuda_dev=place.cuda_dev,
            task=place.task, seat=seat,
        )  # fmt: skip

    def _add(self, seen: Seen) -> None:
        rank = seen.entity.rank
        if seen.host is not None and seen.trust < SOURCE:
            for source in seen.span.lines:
                self._hosts_in.setdefault(source, set()).add(seen.host)
        (self._loose if rank is None else self._ranks.setdefault(rank, [])).append(seen)

    def _rank_labels(self) -> set[str]:
        """The sources whose srun labels are ranks: a line says so of a label other than 0, and none says otherwise."""
        agree: set[str] = set()
        differ: set[str] = set()
        for rank, seens in self._ranks.items():
            for seen in seens:
                if seen.task is None or seen.trust >= SOURCE:
                    continue
                source, _, label = seen.task.rpartition("\x1f")
                if number(label) != rank:
                    differ.add(source)
                elif rank:
                    agree.add(source)
        return agree - differ

    def _gpu_claims(self) -> Iterable[tuple[str, Claim]]:
        for claim in [*self._claims, *self._uses]:
            if claim.place.host is None or not tells_a_gpu(claim.place):
                continue
            host = self._names.host(claim.place.host)
            if claim.trust != SOURCE or self._is_only_host(host, claim.span):
                yield self._names.machine(host), claim

    def _is_only_host(self, host: str | None, span: Span) -> bool:
        """Whether no line of the files names another host."""
        for source in span.lines:
            hosts = self._hosts_in.get(source)
            if hosts is not None and (len(hosts) > 1 or host not in hosts):
                return False
        return True

    # --- joining --------------------------------------------------------------------------------------------------

    def _join_processes(self) -> None:
        """Give ranks what is said of their processes: by pid, else by the local rank on their host."""
        by_pid: dict[Process, set[int]] = {}
        by_local: dict[tuple[str, int], set[int]] = {}
        pids: dict[tuple[int, str], set[int]] = {}
        for rank, seens in self._ranks.items():
            for seen in seens:
                if seen.host is None or not seen.sure:
                    continue
                if seen.entity.pid is not None:
                    by_pid.setdefault((seen.host, seen.entity.pid), set()).add(rank)
                    pids.setdefault((rank, seen.host), set()).add(seen.entity.pid)
                if seen.entity.local_rank is not None:
                    by_local.setdefault((seen.host, seen.entity.local_rank), set()).add(rank)
        hosts = {seen.host for seens in self._ranks.values() for seen in seens if seen.host is not None}
        left: list[Seen] = []
        single = self._of_one_agent()
        # Those with a local rank first: they may bring the pid that others are joined by.
        for seen in sorted(self._loose, key=lambda s: s.entity.local_rank is None):
            host = seen.host
            if host is None and len(hosts) == 1 and seen.entity.pid is not None:
                host = next(iter(hosts))
            pid, local = seen.entity.pid, seen.entity.local_rank
            ranks = by_pid.get((host, pid), set()) if host is not None and pid is not None else set()
            if not ranks and host is not None and local is not None and seen.sure:
                ranks = {r for r in by_local.get((host, local), ()) if not pids.get((r, host), set()) - {pid}}
            if not ranks and seen.host is None and local in single:
                ranks = {single[local]}
            if len(ranks) != 1 or (pid is None and local is None):
                left.append(seen)
                continue
            (rank,) = ranks
            if pid is not None and host is not None:
                by_pid.setdefault((host, pid), set()).add(rank)
            self._ranks[rank].append(self._of_rank(seen, rank, host))
        self._loose = left

    def _of_one_agent(self) -> dict[int | None, int]:
        """The rank of each local rank, in a job whose ranks all have local ranks of their own: it is on one machine."""
        if self._world is None or len(self._ranks) != self._world:
            return {}
        of: dict[int | None, int] = {}
        for rank, seens in self._ranks.items():
            local = {seen.entity.local_rank for seen in seens} - {None}
            if len(local) != 1:
                return {}
            of[next(iter(local))] = rank
        return of if len(of) == self._world else {}

    def _of_rank(self, seen: Seen, rank: int, host: str | None) -> Seen:
        node = None if host is None else self._names.machine(host)
        entity = msgspec.structs.replace(seen.entity, rank=rank, node=node)
        return msgspec.structs.replace(seen, entity=entity, host=host, trust=max(seen.trust, JOINED))

    def _join_uses(self) -> None:
        """The GPU that a process holds memory of, where it is but one and no line says better which GPU is its own."""
        of: dict[Process, list[Claim]] = {}
        for claim in self._uses:
            if claim.place.host is not None and claim.place.pid is not None:
                of.setdefault((self._names.host(claim.place.host), claim.place.pid), []).append(claim)
        seens_of = self._ranks.items() if of else ()
        ranks = {s.process: rank for rank, seens in seens_of for s in seens if s.process is not None}
        for process, claims in of.items():
            if len({claim.place.pci_bus_id or claim.place.gpu_uuid for claim in claims}) > 1:
                continue
            seen = msgspec.structs.replace(self._seen(claims[0], set()), trust=JOINED)
            rank = ranks.get(process)
            if rank is None:
                self._loose.append(seen)
            elif not any(s.entity.pci_bus_id or s.entity.gpu_uuid for s in self._ranks[rank]):
                self._ranks[rank].append(self._of_rank(seen, rank, process[0]))

    def _translate_devices(self) -> None:
        """CUDA_VISIBLE_DEVICES turns the number of a device in its process into the GPU's own number or UUID."""
        by_rank: dict[int, list[Dump]] = {}
        by_host: dict[str, list[Dump]] = {}
        for dump in self._dumps:
            if not dump.devices:
                continue
            rank = next((c.place.rank for c in dump.claims(self._world) if c.place.rank is not None), None)
            host = dump.host()[0]
            if rank is not None:
                by_rank.setdefault(rank, []).append(dump)
            elif host is not None:
                by_host.setdefault(self._names.host(host), []).append(dump)
        for rank, seens in self._ranks.items():
            for seen in [s for s in seens if s.host is not None and s.trust < SOURCE]:
                dumps = by_rank.get(rank) or by_host.get(seen.host or "", [])
                found = _translated(seen, dumps)
                if found is not None:
                    seens.append(found)

    # --- contradictions -------------------------------------------------------------------------------------------

    def _tell(
        self, kind: str, thing: str, said: dict[Value, Sight], pair: tuple[Value, Value], node: str | None = None
    ) -> None:
        self._found.append(contradiction(kind, thing, said, pair, node=node))

    def _drop_double_seats(self) -> None:
        """One rank of one communicator is one process, whatever the time."""
        for rank, seens in self._ranks.items():
            seats: dict[str, dict[Process, Sight]] = {}
            for seen in seens:
                if seen.seat is None or seen.seat.kind != "comm" or not seen.seat.id:
                    continue
                if (process := seen.process) is not None:
                    see(seats.setdefault(seen.seat.id, {}), process, seen.claim())
            for name, said in seats.items():
                if len(said) > 1:
                    a, b = sorted(said, key=lambda process: (said[process].first, process))[:2]
                    shown = {f"pid {pid} on {host}": said[host, pid] for host, pid in (a, b)}
                    first, second = shown
                    self._tell("seat", f"rank {rank} of communicator {name} is", shown, (first, second), a[0])
                    for seen in seens:
                        if seen.seat is not None and seen.seat.id == name:
                            seen.drop("rank")
        for rank, seens in self._ranks.items():
            self._loose += [seen for seen in seens if seen.entity.rank is None]
            self._ranks[rank] = [seen for seen in seens if seen.entity.rank is not None]
        self._ranks = {rank: seens or [_mention(rank)] for rank, seens in self._ranks.items()}

    def _drop_two_places(self) -> None:
        """A rank that is put on two machines at one time is on neither."""
        for rank, seens in self._ranks.items():
            bad = self._clashing(said := _said(seens, lambda seen: seen.entity.node))
            if bad:
                self._tell("place", f"rank {rank} is on", said, bad[0])
                nodes = {node for pair in bad for node in pair}
                gone = [seen for seen in seens if seen.entity.node in nodes]
                kept = [seen for seen in seens if seen.entity.node not in nodes]
                for seen in gone:
                    seen.drop("rank")
                self._loose += gone
                self._ranks[rank] = kept or [_mention(rank)]

    def _clashing(self, said: dict[Value, Sight]) -> list[tuple[Value, Value]]:
        """All pairs of values that were said of one time, the first one first."""
        pairs = []
        while (pair := self._lives.clash(said)) is not None:
            pairs.append(pair)
            said = {value: sight for value, sight in said.items() if value != pair[1]}
        return pairs

    def _drop_two_values(self) -> None:
        """Of one rank on one machine: two GPUs, two pids or two local ranks at one time."""
        for rank, seens in self._ranks.items():
            nodes = sorted({seen.entity.node or "" for seen in seens} - {""})
            for node in nodes or [""]:
                here = [s for s in seens if s.entity.node == node or (s.entity.node is None and len(nodes) <= 1)]
                for name, (value_of, falls) in _ONE.items():
                    said = _said(here, value_of)
                    bad = self._clashing(said)
                    if not bad:
                        continue
                    self._tell(name, f"{_WORDS[name]} of rank {rank} is", said, bad[0], node or None)
                    values = {value for pair in bad for value in pair}
                    for seen in here:
                        if getattr(seen.entity, name) in values:
                            seen.drop(*falls)

    def _drop_shared_local_ranks(self) -> None:
        """Two ranks under one local rank of one host at one time: it is the local rank of neither."""
        seats: dict[tuple[str, int], list[Seen]] = {}
        for seens in self._ranks.values():
            for seen in seens:
                if seen.host is not None and seen.entity.local_rank is not None:
                    seats.setdefault((seen.host, seen.entity.local_rank), []).append(seen)
        for (host, local_rank), here in sorted(seats.items()):
            said = _said(here, lambda seen: seen.entity.rank)
            bad = self._clashing(said)
            if not bad:
                continue
            self._tell("local", f"local rank {local_rank} on {host} is rank", said, bad[0], host)
            for rank in {rank for pair in bad for rank in pair}:
                for seen in self._ranks[rank]:
                    if seen.entity.local_rank == local_rank and seen.host in (host, None):
                        seen.drop("local_rank")


def _said(seens: list[Seen], value_of: Callable[[Seen], Any]) -> dict[Any, Sight]:
    """When each value was said; empty where there is but one, so that nothing can disagree."""
    said: dict[Any, Sight] = {}
    strong = [seen for seen in seens if seen.trust < SOURCE]
    if len({value_of(seen) for seen in strong} - {None}) > 1:
        for seen in strong:
            if (value := value_of(seen)) is not None:
                see(said, value, seen.claim())
    return said


def _mention(rank: int) -> Seen:
    """That there is such a rank, and no more."""
    span = Span(lo_ns=0, hi_ns=0, since_ns=0, until_ns=0, lines={})
    return Seen(entity=Entity(rank=rank), host=None, trust=SOURCE, span=span, first=(0, "", 0), where="")


def _translated(seen: Seen, dumps: list[Dump]) -> Seen | None:
    """What the device lists of its process say of the GPU; None where they say nothing or differ."""
    lists = {tuple(dump.devices) for dump in dumps}
    if len(lists) != 1:
        return None
    (devices,) = lists
    stated = seen.cuda_dev if seen.trust == STATED else None
    at = stated if stated is not None else 0 if len(devices) == 1 else None
    if at is None or at >= len(devices):
        return None
    device = devices[at]
    index = number(device)
    where = dumps[0].at["CUDA_VISIBLE_DEVICES"]
    entity = Entity(
        node=seen.entity.node, rank=seen.entity.rank, pid=seen.entity.pid, gpu_index=index,
        gpu_uuid=device if index is None else None,
    )  # fmt: skip
    return Seen(
        entity=entity, host=seen.host, trust=DERIVED, span=seen.span.copy(), first=dumps[0].claim.first, where=where
    )


def _names(facts: Facts, claims: list[Claim], dumps: list[Dump], preferred: Iterable[str]) -> HostNames:
    hosts = set(facts.hosts) | {claim.place.host for claim in claims if claim.place.host is not None}
    hosts |= {host for dump in dumps if (host := dump.host()[0]) is not None}
    shown = [(a, b) for a, b in (key.split("\x1f", 1) for key in sorted(facts.shown))]
    return HostNames(sorted(hosts), shown, pods=_pods(facts), preferred=preferred)


def _pods(facts: Facts) -> dict[str, str]:
    """The node of each pod; of none that was seen on two."""
    nodes: dict[str, set[str]] = {}
    for key in facts.pods:
        pod, node = key.split("\x1f", 1)
        nodes.setdefault(pod, set()).add(node)
    return {pod: next(iter(on)) for pod, on in nodes.items() if len(on) == 1}


def _in_order(claims: Mapping[str, Claim]) -> list[Claim]:
    """Claims in an order that depends on nothing but what they say."""
    return [claim for _, claim in sorted(claims.items(), key=lambda pair: (pair[1].first, pair[0]))]


def _size_of(claim: Claim | None) -> int:
    return claim.seat.size if claim and claim.seat else 0
