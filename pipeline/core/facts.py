"""What lines say of who runs where, kept as a set of claims: adding events in any order gives the same facts.

A claim is what one line says together: all of it is true of one process or one GPU. Nothing is concluded here; joining
claims and finding those that contradict each other is the work of `placement`.
"""

from collections.abc import Iterator
from typing import Final

import msgspec
from msgspec import Struct, field

from pipeline.core.hosts import MAX_HOSTS, is_address
from schemas.records import TIME_MAX_NS, TIME_MIN_NS, Event, Printer

# How far to trust a value, best first: the line says it; its prefix says it; worked out from numbers that lines say;
# of another line about the same process or GPU; of the file that the line stands in; NCCL's number of the device.
STATED, PREFIX, DERIVED, JOINED, SOURCE, DEVICE = range(6)
HOW: Final = ("stated", "stated", "derived", "joined", "file", "device")

MAX_CLAIMS: Final = 60_000
MAX_VARIABLES: Final = 20_000
MAX_MARKS: Final = 4_096
MAX_LIST: Final = 4_096
# No job has more ranks: a larger number counts something else, or is made up.
MAX_WORLD: Final = 2**20
DEFAULT_GROUP: Final = "default_pg"

# Lines whose subject is one process or one GPU, every field of it.
_STATED: Final = frozenset(
    ("elastic.rank_failed", "launcher.rank_failed", "train.start", "placement.stated", "gpu.uuid", "gpu.serial")
)
# Lines of NCCL about the rank of a process in a communicator.
_OF_COMMUNICATOR: Final = frozenset(("nccl.init", "nccl.end", "nccl.topology"))
# Lines of a launcher about a process of its own, by its local rank.
_OF_LAUNCHER: Final = frozenset(("elastic.failed", "process.started"))
# What stands between two lives of a process.
_ENDS: Final = frozenset(("elastic.group_failed", "elastic.failed", "elastic.rank_failed", "elastic.rendezvous"))
VARIABLES: Final = frozenset(
    (
        "RANK", "GLOBAL_RANK", "LOCAL_RANK", "WORLD_SIZE", "LOCAL_WORLD_SIZE", "GROUP_RANK", "NODE_RANK",
        "PET_NODE_RANK", "SLURM_PROCID", "SLURM_LOCALID", "SLURM_NODEID", "SLURM_NTASKS", "SLURMD_NODENAME",
        "SLURM_JOB_NODELIST", "SLURM_NODELIST", "SLURM_STEP_NODELIST", "CUDA_VISIBLE_DEVICES", "HOSTNAME",
        "OMPI_COMM_WORLD_RANK", "OMPI_COMM_WORLD_LOCAL_RANK", "OMPI_COMM_WORLD_SIZE", "OMPI_COMM_WORLD_LOCAL_SIZE",
        "MV2_COMM_WORLD_RANK", "PMI_RANK", "PMIX_RANK", "PMI_SIZE", "MPI_LOCALRANKID", "NODE_NAME", "MY_NODE_NAME",
        "K8S_NODE_NAME", "SLURM_JOB_USER",
    )
)  # fmt: skip


class Place(Struct, frozen=True, kw_only=True, array_like=True, gc=False):
    """What one line says of one process or one GPU. `host` is as printed; `cuda_dev` counts what the process sees;
    `task` is srun's label with its source.
    """

    host: str | None = None
    rank: int | None = None
    local_rank: int | None = None
    pid: int | None = None
    cuda_dev: int | None = None
    gpu_index: int | None = None
    pci_bus_id: str | None = None
    gpu_uuid: str | None = None
    serial: str | None = None
    machine_id: str | None = None
    task: str | None = None


class Seat(Struct, frozen=True, kw_only=True, array_like=True, gc=False):
    """The rank that a process has in one communicator or process group.

    `kind`: `comm` where NCCL numbers all processes that call it, `split` for a part of another communicator, `pg` for a
    group of torch. `id` is the same on all its ranks, empty where the line does not say it; `pointer` and `parent` are
    local to the process.
    """

    kind: str
    rank: int
    size: int = 0
    id: str = ""
    pointer: str = ""
    parent: str = ""
    color: str = ""


class Span(Struct, kw_only=True, array_like=True, gc=False):
    """When lines that say one thing were written: bounds of the reference time, and from where to where in each source.

    `since_ns` is the earliest of their times and `until_ns` the latest; both unknown where a line has none.
    """

    lo_ns: int
    hi_ns: int
    since_ns: int
    until_ns: int
    lines: dict[str, tuple[int, int]]

    def take(self, other: "Span") -> None:
        """Grow to cover the other one too."""
        self.lo_ns, self.hi_ns = min(self.lo_ns, other.lo_ns), max(self.hi_ns, other.hi_ns)
        self.since_ns, self.until_ns = min(self.since_ns, other.since_ns), max(self.until_ns, other.until_ns)
        for source, (first, last) in other.lines.items():
            known = self.lines.get(source)
            self.lines[source] = (first, last) if known is None else (min(known[0], first), max(known[1], last))

    def copy(self) -> "Span":
        """The same, to grow on its own."""
        return msgspec.structs.replace(self, lines=dict(self.lines))


class Claim(Struct, kw_only=True, array_like=True, gc=False):
    """One thing that lines say, when, and the first line that says it."""

    place: Place
    trust: int
    span: Span
    first: tuple[int, str, int]
    where: str
    seat: Seat | None = None

    def take(self, other: "Claim") -> None:
        """Another line that says the same."""
        self.trust = min(self.trust, other.trust)
        self.span.take(other.span)
        if (other.first, other.where) < (self.first, self.where):
            self.first, self.where = other.first, other.where


class Variable(Struct, frozen=True, kw_only=True, gc=False):
    """One line of an environment dump."""

    writer: str
    offset: int
    name: str
    value: str
    claim: Claim


class Mark(Struct, frozen=True, kw_only=True, gc=False):
    """A line that ends the life of processes."""

    source: str
    offset: int
    at_ns: int


class Facts(Struct, kw_only=True):
    """All that an investigation knows of ranks, processes, GPUs and the names of machines."""

    claims: dict[str, Claim] = field(default_factory=dict)
    # Seats in parts of a communicator and in groups of torch: many per process, and none says the rank of the job.
    seats: dict[str, Claim] = field(default_factory=dict)
    worlds: dict[str, Claim] = field(default_factory=dict)
    variables: dict[str, Variable] = field(default_factory=dict)
    # Two names on one line; of a pod and its node, the pod is the first.
    shown: dict[str, Claim] = field(default_factory=dict)
    pods: dict[str, Claim] = field(default_factory=dict)
    # A process and a GPU that it uses: it may use several.
    uses: dict[str, Claim] = field(default_factory=dict)
    marks: dict[str, Mark] = field(default_factory=dict)
    # Every name that a line gives a machine.
    hosts: dict[str, None] = field(default_factory=dict)
    dropped: int = 0

    @property
    def size(self) -> tuple[int, ...]:
        """How much is said of each kind: another line that says what is known leaves it as it is."""
        named = (self.claims, self.seats, self.worlds, self.shown, self.pods, self.uses)
        return len(self.hosts), len(self.variables), len(self.marks), *map(len, named)

    def learn(self, event: Event) -> None:
        """Take what an event says about who runs where. The order of calls does not matter."""
        if event.subject.node and len(self.hosts) < MAX_HOSTS:
            self.hosts[event.subject.node] = None
        if event.name == "env.variable":
            name, value = event.attributes.get("name", ""), event.attributes.get("value", "")
            self._learn_variable(event, name, value, "")
            return
        if event.name == "gpu.memory_process":
            self._learn_use(event)
            return
        visible = event.attributes.get("visible")
        if visible and event.name == "placement.stated":
            # One line that is a dump by itself.
            self._learn_variable(event, "LOCAL_RANK", event.attributes.get("local_rank", ""), str(event.offset))
            self._learn_variable(event, "CUDA_VISIBLE_DEVICES", visible, str(event.offset))
        for place, trust, seat in _said(event):
            if seat is not None and seat.kind != "comm":
                self._claim(self.seats, _key(place, seat), _claim_of(event, place, trust, seat), MAX_CLAIMS)
                seat = None
            self._claim(self.claims, _key(place, seat), _claim_of(event, place, trust, seat), MAX_CLAIMS)
        size = world_number(event.attributes.get("world_size") or _stated_size(event))
        if size:
            self._claim(self.worlds, str(size), _claim_of(event, Place(), STATED), MAX_LIST)
        self._learn_names(event)
        if event.name in _ENDS:
            self._mark(event)

    def _claim(self, known: dict[str, Claim], key: str, claim: Claim, most: int) -> None:
        before = known.get(key)
        if before is not None:
            before.take(claim)
        elif len(known) < most:
            known[key] = claim
        else:
            self.dropped += 1

    def _learn_variable(self, event: Event, name: str, value: str, alone: str) -> None:
        """One variable. `alone` sets the dump apart from other lines of its writer."""
        if name not in VARIABLES or not value:
            return
        claim = _claim_of(event, _printed(event)[0], _printed(event)[1])
        writer = f"{_source(event)}\x1f{_writer(event.printer)}\x1f{alone}"
        key = f"{writer}\x1f{event.offset}\x1f{name}"
        found = Variable(writer=writer, offset=event.offset, name=name, value=value.strip("\"'"), claim=claim)
        if key in self.variables or len(self.variables) < MAX_VARIABLES:
            self.variables[key] = found
        else:
            self.dropped += 1

    def _learn_use(self, event: Event) -> None:
        """A row of a table of processes that hold memory of a GPU."""
        pid = number(event.attributes.get("pid"))
        place = msgspec.structs.replace(_of_subject(event), rank=None, local_rank=None, pid=pid)
        if place.pid is not None and place.host is not None and (place.pci_bus_id or place.gpu_uuid):
            self._claim(self.uses, _key(place, None), _claim_of(event, place, JOINED), MAX_LIST)

    def _learn_names(self, event: Event) -> None:
        """Which names one line gives one machine."""
        pod, attributes = event.printer.pod, event.attributes
        host = None if event.printer.node_of_source else event.printer.node
        if event.name == "nccl.network.devices" and host:
            for address in _own_addresses(attributes):
                self._name(self.shown, event, host, address)
        if event.name == "placement.pod":
            pod, node = attributes.get("pod"), attributes.get("node")
            self._name(self.pods, event, pod, node)
            address = attributes.get("pod_ip", "")
            self._name(self.shown, event, pod, address if is_address(address) else None)
        elif pod and host:
            self._name(self.pods, event, pod, host)
        if event.name in _STATED and host:
            self._name(self.shown, event, host, event.subject.node)

    def _name(self, known: dict[str, Claim], event: Event, name: str | None, also: str | None) -> None:
        if name and also and name != also:
            self._claim(known, f"{name}\x1f{also}", _claim_of(event, Place(host=name), STATED), MAX_LIST)

    def _mark(self, event: Event) -> None:
        if event.name == "elastic.rendezvous" and event.attributes.get("restart_count", "0") == "0":
            return
        at_ns = event.aligned_time_unix_nano
        mark = Mark(source=_source(event), offset=event.offset, at_ns=TIME_MIN_NS if at_ns is None else at_ns)
        self.marks[f"{mark.source}\x1f{mark.offset:020d}"] = mark
        if len(self.marks) > MAX_MARKS:
            del self.marks[max(self.marks)]


# --- what one event says ------------------------------------------------------------------------------------------


def _said(event: Event) -> Iterator[tuple[Place, int, Seat | None]]:
    attributes, subject, printer = event.attributes, event.subject, event.printer
    size, numbered = world_number(attributes.get("nranks")), number(attributes.get("rank"))
    printed, trust = _printed(event)
    if size and numbered is not None and event.name in _OF_COMMUNICATOR:
        of_file = printer.node_of_source and subject.node == printer.node
        yield _in_communicator(event, printed), SOURCE if of_file else STATED, _seat(attributes, numbered, size)
        return
    if event.name == "elastic.rendezvous":
        yield from _of_agent(event, printed, trust)
        return
    if event.name == "launcher.mapping":
        yield from _of_mapping(attributes.get("mapping", ""))
        return
    if event.name in _STATED or (event.name.startswith("gpu.") and _names_a_gpu(event)):
        yield from _stated(event)
    elif event.name == "slurm.task_exit" and attributes.get("host") and number(attributes.get("tasks")) is not None:
        # Slurm itself says on which node the task ran.
        yield Place(host=subject.node, task=f"{_source(event)}\x1f{attributes['tasks']}"), STATED, None
    elif event.name in _OF_LAUNCHER and subject.local_rank is not None:
        place = Place(host=subject.node, local_rank=subject.local_rank, pid=subject.pid, task=printed.task)
        yield place, trust, None
    elif event.name == "nccl.duplicate_gpu" and (other := number(attributes.get("other_rank"))) is not None:
        # NCCL compares the GPUs of one host.
        yield from ((Place(host=subject.node, rank=rank), trust, None) for rank in (subject.rank, other))
    elif event.name == "torch.process_group" and (own := number(attributes.get("own_rank"))) is not None:
        yield msgspec.structs.replace(printed, rank=own), trust, None
    elif subject.rank is not None and subject.rank != printer.rank:
        # Said of another rank than the printer, or by an event that does not tell the two apart.
        yield (_of_subject(event) if printer == Printer() else Place(rank=subject.rank)), PREFIX, None
    if event.source_kind == "application":
        yield from _of_printer(event, printed, trust)


def _of_printer(event: Event, printed: Place, trust: int) -> Iterator[tuple[Place, int, Seat | None]]:
    printer = event.printer
    group_rank, group = printer.group_rank, group_of(printer.process_group)
    if group_rank is not None and group:
        if printed.rank is None and group[1] == DEFAULT_GROUP:
            printed = msgspec.structs.replace(printed, rank=group_rank)
        yield printed, trust, Seat(kind="pg", rank=group_rank, id="\x1f".join(group))
        return
    process = printed.pid is not None and printed.host is not None and printed.cuda_dev is not None
    if printed.rank is not None or (printed.task is not None and printed.host is not None) or process:
        yield printed, trust, None


def _printed(event: Event) -> tuple[Place, int]:
    """Who printed the line, and how far to trust the host."""
    printer = event.printer
    host = printer.node or printer.pod
    trust = SOURCE if printer.node_of_source or printer.rank_of_source else PREFIX
    task = None if printer.task is None else f"{_source(event)}\x1f{printer.task}"
    return Place(
        host=host, rank=printer.rank, local_rank=printer.local_rank, pid=printer.pid, cuda_dev=printer.cuda_dev,
        task=task,
    ), trust  # fmt: skip


def _in_communicator(event: Event, printed: Place) -> Place:
    subject, attributes = event.subject, event.attributes
    cuda_dev = number(attributes.get("cuda_dev"))
    return Place(
        host=subject.node, pid=subject.pid, task=printed.task, machine_id=subject.machine_id,
        rank=None if event.printer.rank_of_source else printed.rank,
        local_rank=number(attributes.get("local_rank")) if subject.local_rank is None else subject.local_rank,
        cuda_dev=printed.cuda_dev if cuda_dev is None else cuda_dev, gpu_index=_index(subject.gpu_index),
        pci_bus_id=subject.pci_bus_id, gpu_uuid=subject.gpu_uuid, serial=subject.serial,
    )  # fmt: skip


def _seat(attributes: dict[str, str], rank: int, size: int) -> Seat:
    split = "parent" in attributes or "color" in attributes
    return Seat(
        kind="split" if split else "comm", rank=rank, size=size, id=attributes.get("comm_id", ""),
        pointer=attributes.get("comm", ""), parent=attributes.get("parent", ""), color=attributes.get("color", ""),
    )  # fmt: skip


def _of_agent(event: Event, printed: Place, trust: int) -> Iterator[tuple[Place, int, Seat | None]]:
    """The result of a rendezvous: which ranks the workers of one agent have."""
    attributes = event.attributes
    local, ranks = numbers(attributes.get("local_ranks", "")), numbers(attributes.get("global_ranks", ""))
    if not ranks or len(local) != len(ranks):
        return
    host = event.subject.node
    for local_rank, rank in zip(local, ranks, strict=True):
        if host is not None or printed.task is not None:
            yield Place(host=host, rank=rank, local_rank=local_rank, task=printed.task), trust, None
        yield Place(rank=rank, local_rank=local_rank), STATED, None


def _of_mapping(text: str) -> Iterator[tuple[Place, int, Seat | None]]:
    """DeepSpeed's table `{'gpu01': [0, 1], 'gpu02': [2, 3]}`: the ranks of each host, in the order of local ranks."""
    for part in text.split("]")[:MAX_LIST]:
        host, bracket, listed = part.partition("[")
        host = host.strip(" ,:{}'\"")
        if not bracket or not host or " " in host:
            continue
        for local_rank, rank in enumerate(numbers(listed)):
            yield Place(host=host, rank=rank, local_rank=local_rank), STATED, None


def _stated(event: Event) -> Iterator[tuple[Place, int, Seat | None]]:
    place = _of_subject(event)
    device = number(event.attributes.get("gpu")) if event.name == "placement.stated" else None
    if device is not None:
        # Without a rank it is a guess of the library, which the line says too.
        says_rank = "rank" in event.attributes or "local_rank" in event.attributes
        place = msgspec.structs.replace(place, cuda_dev=device if says_rank else None)
    says_host = place.host in (event.attributes.get("host"), event.attributes.get("node"))
    # What the agent tells is of its own node.
    says_host = says_host or event.source_kind == "telemetry"
    if not event.printer.node_of_source or place.host is None or says_host:
        yield place, STATED, None
        return
    # The line names no host: what the file says of it is worth less than the rest.
    yield place, SOURCE, None
    if place.rank is not None and (place.local_rank is not None or place.pid is not None):
        yield msgspec.structs.replace(place, host=None, machine_id=None), STATED, None


def _own_addresses(attributes: dict[str, str]) -> list[str]:
    """The addresses in NCCL's lists of its own interfaces: `[0]eth0:10.0.0.1<0>`."""
    listed = [attributes.get("oob", "")]
    if attributes.get("via") != "NET/IB":
        listed += attributes.get("devices", "").split()
    return [
        address
        for entry in listed
        if (address := entry.rpartition("<")[0].rpartition("]")[2].partition(":")[2].partition("%")[0])
    ]


def _names_a_gpu(event: Event) -> bool:
    said = event.subject
    return sum(value is not None for value in (said.pci_bus_id, said.gpu_uuid, said.serial, said.gpu_index)) >= 2


def _of_subject(event: Event) -> Place:
    said = event.subject
    return Place(
        host=said.node, rank=said.rank, local_rank=said.local_rank, pid=said.pid, gpu_index=_index(said.gpu_index),
        pci_bus_id=said.pci_bus_id, gpu_uuid=said.gpu_uuid, serial=said.serial, machine_id=said.machine_id,
    )  # fmt: skip


def _stated_size(event: Event) -> str | None:
    return event.attributes.get("nranks") if event.name == "placement.stated" else None


def _index(value: int | None) -> int | None:
    # NCCL prints -1 where NVML does not know the device.
    return value if value is None or value >= 0 else None


def _writer(printer: Printer) -> str:
    said = (printer.node, printer.pod, printer.rank, printer.local_rank, printer.task, printer.pid)
    return "\x1f".join("" if part is None else str(part) for part in said)


def _claim_of(event: Event, place: Place, trust: int, seat: Seat | None = None) -> Claim:
    at_ns = event.aligned_time_unix_nano
    since_ns = TIME_MIN_NS if at_ns is None else at_ns
    until_ns = TIME_MAX_NS if at_ns is None else max(at_ns, event.until_unix_nano or 0)
    hi_ns = event.hi_unix_nano if at_ns is None else event.hi_unix_nano + until_ns - at_ns
    source = _source(event)
    span = Span(
        lo_ns=event.lo_unix_nano, hi_ns=hi_ns, since_ns=since_ns, until_ns=until_ns,
        lines={source: (event.offset, event.offset)},
    )  # fmt: skip
    where = f"{event.source}:{event.line_no or event.offset}"
    first = (since_ns, event.source, event.offset)
    return Claim(place=place, trust=trust, span=span, first=first, where=where, seat=seat)


def _source(event: Event) -> str:
    return f"{event.source}\x1f{event.generation}"


def _key(place: Place, seat: Seat | None) -> str:
    parts = msgspec.structs.astuple(place) if seat is None else (
        *msgspec.structs.astuple(place), *msgspec.structs.astuple(seat)
    )  # fmt: skip
    return "\x1f".join("" if part is None else str(part) for part in parts)


def number(text: str | None) -> int | None:
    """A count in decimal digits; None for anything else."""
    return int(text) if text and len(text) < 10 and text.isascii() and text.isdigit() else None


def world_number(text: str | None) -> int | None:
    """A number of ranks; None where no job has so many."""
    found = number(text)
    return found if found is not None and found <= MAX_WORLD else None


def numbers(text: str) -> list[int]:
    """`0, 1, 2` as numbers; empty where a part is none."""
    found = [number(part.strip()) for part in text.split(",")[:MAX_LIST]]
    return [n for n in found if n is not None] if None not in found else []


def group_of(text: str | None) -> tuple[str, str] | None:
    """Name and description of a group in torch's prefix: `ID 0 PG GUID 0(default_pg)`, `0 (default_pg)`, `2`."""
    if not text:
        return None
    name, bracket, description = text.partition("(")
    name = name.rpartition("GUID ")[2].strip()
    description = description.rstrip(")") if bracket else ""
    return name, DEFAULT_GROUP if name == "0" and not description else description
