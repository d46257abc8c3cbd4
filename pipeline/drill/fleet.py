"""An invented fleet: nodes with GPUs and NICs, a job on some of them, and the versions of what prints."""

from dataclasses import dataclass
from random import Random
from typing import Final, Literal, Protocol

from pipeline.drill.clocks import NodeClock, new_clock
from pipeline.drill.names import checkpoint_root, hexes, job_name, node_names, python, script, uuid

Scheduler = Literal["slurm", "kubernetes", "none"]
Launcher = Literal["torchrun", "srun"]
Network = Literal["ib", "roce", "socket"]

_BUSES: Final = {
    8: (("1b", "43", "52", "61", "9d", "c3", "d1", "df"), ("07", "0f", "47", "4e", "87", "90", "b7", "bd"),
        ("18", "2a", "3a", "5d", "9a", "ab", "ba", "db"), ("19", "3b", "4c", "5d", "9b", "bb", "cb", "db")),
    4: (("17", "3b", "ca", "e3"), ("01", "41", "81", "c1"), ("31", "4b", "98", "b1")),
}  # fmt: skip
_MODELS: Final = {
    "A100": ("NVIDIA A100-SXM4-80GB", "10de:20b2", 81920, 1410),
    "H100": ("NVIDIA H100 80GB HBM3", "10de:2330", 81559, 1980),
    "H200": ("NVIDIA H200", "10de:2335", 143771, 1980),
    "B200": ("NVIDIA B200", "10de:2901", 183359, 1965),
    "GB200": ("NVIDIA GB200", "10de:2941", 189471, 2062),
}
_ZONES: Final = (0, 0, 0, 8 * 3600, 3600, 2 * 3600, -5 * 3600, -8 * 3600, 5 * 3600 + 1800)
# torch, the NCCL that came with it or was put under it, the first year of such a job.
_FRAMEWORKS: Final = (
    ((1, 13), (2, 14, 3), 2023), ((2, 0), (2, 14, 3), 2023), ((2, 0), (2, 18, 1), 2023), ((2, 1), (2, 18, 1), 2023),
    ((2, 1), (2, 18, 3), 2024), ((2, 2), (2, 19, 3), 2024), ((2, 3), (2, 20, 5), 2024), ((2, 4), (2, 20, 5), 2024),
    ((2, 4), (2, 22, 3), 2024), ((2, 5), (2, 21, 5), 2025), ((2, 6), (2, 21, 5), 2025), ((2, 6), (2, 23, 4), 2025),
    ((2, 6), (2, 24, 3), 2025), ((2, 6), (2, 25, 1), 2025), ((2, 7), (2, 26, 2), 2025), ((2, 8), (2, 27, 3), 2025),
    ((2, 9), (2, 27, 5), 2026), ((2, 9), (2, 28, 3), 2026), ((2, 9), (2, 28, 9), 2026),
)  # fmt: skip
_DRIVERS: Final = (
    "535.104.05", "535.183.01", "550.90.07", "550.163.01", "560.35.03", "565.57.01", "570.86.15", "570.124.06",
    "570.211.01", "575.57.08", "580.65.06", "580.95.05",
)  # fmt: skip
_KERNELS: Final = ("5.4.0-190-generic", "5.15.0-113-generic", "6.1.0-27-amd64", "6.8.0-45-generic", "6.12.9-gke",
                   "6.14.0-24-generic")  # fmt: skip


@dataclass(frozen=True)
class Gpu:
    """A GPU. `bus` is domain:bus:device without the function, as the NVIDIA driver writes it."""

    index: int
    bus: str
    uuid: str
    serial: str

    @property
    def bdf(self) -> str:
        """With the function, as the kernel writes it."""
        return f"{self.bus}.0"

    @property
    def port(self) -> str:
        """The PCIe port above it."""
        domain, bus, _ = self.bus.split(":")
        return f"{domain}:{max(int(bus, 16) - 1, 0):02x}:01.0"

    @property
    def nccl(self) -> str:
        """As NCCL writes it: hexadecimal without separators or leading zeros."""
        return f"{int(self.bus.replace(':', '') + '0', 16):x}"

    @property
    def nvml(self) -> str:
        """As NVML writes it."""
        domain, rest = self.bus.split(":", 1)
        return f"0000{domain}:{rest.upper()}.0"


@dataclass(frozen=True)
class Nic:
    """A network card and the addresses that it has."""

    name: str
    bdf: str
    netdev: str
    gid: str


@dataclass(frozen=True)
class Node:
    """A node. `host` is what its processes take for the host name: its own, or a pod's. `number` counts the job's."""

    name: str
    ip: str
    gpus: tuple[Gpu, ...]
    nics: tuple[Nic, ...]
    clock: NodeClock
    boot_id: str
    host: str
    pod: str | None = None
    number: int = -1

    @property
    def short(self) -> str:
        """Up to the first dot, as NCCL and Slurm print it."""
        return self.name.split(".")[0]

    @property
    def short_host(self) -> str:
        """The same of what processes take for the host name."""
        return self.host.split(".")[0]


@dataclass(frozen=True)
class Rank:
    """A rank and its process: `pid` in the container, `host_pid` on the node."""

    rank: int
    local: int
    node: Node
    gpu: Gpu
    pid: int
    host_pid: int
    comm: str

    def nic(self) -> Nic:
        """The NIC that its GPU uses."""
        return self.node.nics[self.local % len(self.node.nics)]


@dataclass(frozen=True)
class Versions:
    """What prints: the versions decide how lines look."""

    driver: str
    torch: tuple[int, ...]
    nccl: tuple[int, ...]
    kernel: str
    slurm: str
    year: int

    @property
    def branch(self) -> int:
        """The driver branch, such as 535."""
        return int(self.driver.split(".")[0])

    @property
    def kernel_at(self) -> tuple[int, int]:
        """Major and minor of the kernel."""
        major, minor = self.kernel.split(".")[:2]
        return int(major), int(minor)

    @property
    def nccl_text(self) -> str:
        """`2.18.3`."""
        return ".".join(map(str, self.nccl))


@dataclass(frozen=True)
class Job:
    """One job and how it was started. `timeout_s` is the process group's; `ib_timeout_s` how long the HCA retries."""

    job_id: str
    name: str
    user: str
    scheduler: Scheduler
    launcher: Launcher
    network: Network
    timeout_s: int
    ib_timeout_s: float
    nccl_debug: str
    script: str
    python: str
    checkpoints: str
    container: bool


@dataclass(frozen=True)
class Fleet:
    """All of it. `ranks` in order; `nodes` are the job's, `others` run something else or nothing.

    `office` is the clock of the machines that manage the fleet. With `shared_log` all ranks of all nodes print into one
    file: no reader can tell whose clock stamped a line, so none may be far off.
    """

    nodes: tuple[Node, ...]
    others: tuple[Node, ...]
    ranks: tuple[Rank, ...]
    versions: Versions
    job: Job
    model: str
    zone_s: int
    claimed: bool
    shared_log: bool
    office: NodeClock
    cluster: str
    begin_ns: int

    @property
    def gpu_name(self) -> str:
        """As nvidia-smi prints it."""
        return _MODELS[self.model][0]

    @property
    def gpu_pci_id(self) -> str:
        """Vendor and device."""
        return _MODELS[self.model][1]

    @property
    def gpu_memory_mib(self) -> int:
        """Memory of one GPU."""
        return _MODELS[self.model][2]

    @property
    def gpu_clock_mhz(self) -> int:
        """The highest SM clock."""
        return _MODELS[self.model][3]

    def pod(self, node: Node) -> str:
        """The pod of a node of the job where Kubernetes runs it."""
        return node.pod or f"drill-{self.job.name}-worker-{node.number}"

    def ranks_on(self, node: Node) -> list[Rank]:
        """The ranks of a node of the job, by local rank."""
        per = len(node.gpus)
        return list(self.ranks[node.number * per : (node.number + 1) * per])


@dataclass(frozen=True, kw_only=True)
class Wants:
    """What a chain needs of its fleet; None leaves it open."""

    models: tuple[str, ...] = ("A100", "H100", "H200")
    drivers: tuple[int, int] = (0, 999)
    kernels: tuple[int, int] = (0, 9999)
    torch: tuple[tuple[int, int], tuple[int, int]] = ((1, 0), (9, 0))
    networks: tuple[Network, ...] = ("ib", "ib", "roce", "socket")
    schedulers: tuple[Scheduler, ...] = ("slurm", "slurm", "kubernetes", "none")
    launchers: tuple[Launcher, ...] = ("torchrun", "torchrun", "srun")
    min_nodes: int = 1
    container: bool | None = None


class Falsified(Protocol):
    """Makes other clocks of those of a node."""

    def __call__(self, name: str, clock: NodeClock, *, shared: bool) -> NodeClock: ...


def new_fleet(
    r: Random, wants: Wants, ranks: int, per_node: int, *, skewed: bool = False, begin_ns: int | None = None,
    falsified: Falsified | None = None,
) -> Fleet:  # fmt: skip
    """A fleet for so many ranks; `skewed`: every clock is seconds off, and claimed to be; `falsified` makes others of
    the clocks of nodes.
    """
    versions = _versions(r, wants)
    model = r.choice([m for m in wants.models if m != "GB200" or per_node == 4] or ["H100"])
    count = max(ranks // per_node, wants.min_nodes)
    job = _job(r, wants, versions)
    some_day_ns = _begin_ns(r, versions.year)
    begin_ns = some_day_ns if begin_ns is None else begin_ns
    zone_s = r.choice(_ZONES)
    claimed = skewed or r.random() < 0.7
    shared = not skewed and r.random() < _shared_share(job, ranks)
    others = r.choice((0, 1, 1, 2, 3))
    names = node_names(r, count + others)
    outside = set(r.sample(range(count + others), others))
    buses = ("0008:01:00", "0009:01:00", "0018:01:00", "0019:01:00") if model == "GB200" else tuple(
        f"0000:{bus}:00" for bus in r.choice(_BUSES[per_node])
    )  # fmt: skip
    pods = job.scheduler == "kubernetes" and r.random() < 0.6
    subnet = r.randrange(1, 200)
    nodes: list[Node] = []
    job_at = 0
    for number, name in enumerate(names):
        uptime_s = r.uniform(0.6, 60) * 86_400
        clock = new_clock(
            r,
            begin_ns,
            wide=claimed and not shared,
            zone_s=zone_s,
            uptime_s=uptime_s,
            disciplined=False if skewed else None,
        )
        if falsified is not None:
            clock = falsified(name, clock, shared=shared)
        inside = number not in outside
        pod = f"drill-{job.name}-worker-{job_at}" if pods and inside else None
        nodes.append(Node(
            name=name, ip=f"10.{subnet + number // 60_000}.{number // 250 % 250}.{number % 250 + 2}",
            gpus=tuple(_gpu(r, i, bus) for i, bus in enumerate(buses)), nics=_nics(r, job.network, per_node),
            clock=clock, boot_id=uuid(r), host=pod or name, pod=pod, number=job_at if inside else -1,
        ))  # fmt: skip
        job_at += inside
    inside_nodes = tuple(node for node in nodes if node.number >= 0)
    return Fleet(
        nodes=inside_nodes,
        others=tuple(n for n in nodes if n.number < 0),
        ranks=_ranks(r, inside_nodes, per_node, job),
        versions=versions,
        job=job,
        model=model,
        zone_s=zone_s,
        claimed=claimed,
        shared_log=shared,
        office=new_clock(r, begin_ns, wide=False, zone_s=zone_s, uptime_s=86_400.0, disciplined=True),
        cluster=f"drill-{r.choice('abcdefgh')}",
        begin_ns=begin_ns,
    )


def _shared_share(job: Job, ranks: int) -> float:
    """How often all ranks print into one file."""
    if job.scheduler == "kubernetes":
        return 0.0
    if job.launcher == "srun":
        return 1.0 if ranks > 512 else 0.65
    return 0.5 if ranks > 512 else 0.2


def _versions(r: Random, wants: Wants) -> Versions:
    low, high = wants.torch
    torch, nccl, year = r.choice([f for f in _FRAMEWORKS if low <= f[0] <= high])
    drivers = [d for d in _DRIVERS if wants.drivers[0] <= int(d.split(".")[0]) <= wants.drivers[1]]
    kernels = [
        k for k in _KERNELS if wants.kernels[0] <= int(k.split(".")[0]) * 100 + int(k.split(".")[1]) <= wants.kernels[1]
    ]
    return Versions(
        driver=r.choice(drivers), torch=torch, nccl=nccl, kernel=r.choice(kernels or list(_KERNELS)),
        slurm=r.choice(("20.11", "22.05", "23.02", "24.05")), year=year,
    )  # fmt: skip


def _job(r: Random, wants: Wants, versions: Versions) -> Job:
    scheduler = r.choice(wants.schedulers)
    launcher: Launcher = "torchrun" if scheduler != "slurm" else r.choice(wants.launchers)
    default_s = 1800 if versions.torch < (2, 2) else 600
    timeout_s = default_s if r.random() < 0.75 else r.choice((300, 900, 1200, 1800, 3600))
    exponent = r.choice((18, 18, 22)) if versions.nccl < (2, 23) else r.choice((20, 20, 22))
    return Job(
        job_id=str(r.randrange(1000, 9_999_999)),
        name=job_name(r),
        user=f"user{r.randrange(10, 99)}",
        scheduler=scheduler,
        launcher=launcher,
        network=r.choice(wants.networks),
        timeout_s=timeout_s,
        ib_timeout_s=4.096e-6 * 2**exponent * 8,
        nccl_debug=r.choice(("INFO", "INFO", "WARN", "VERSION", "")),
        script=script(r),
        python=python(r),
        checkpoints=checkpoint_root(r),
        container=(scheduler == "kubernetes" or r.random() < 0.25) if wants.container is None else wants.container,
    )


def _begin_ns(r: Random, year: int) -> int:
    day = r.randrange(0, 355)
    if r.random() < 0.03:
        day = 364
    second = 1_672_531_200 + (year - 2023) * 365 * 86_400 + (86_400 if year > 2024 else 0) + day * 86_400
    return (second + r.randrange(86_400)) * 1_000_000_000 + r.randrange(10**9)


def _gpu(r: Random, index: int, bus: str) -> Gpu:
    return Gpu(
        index=index, bus=bus, uuid=f"GPU-{uuid(r)}", serial=str(r.randrange(1_650_000_000_000, 1_659_999_999_999))
    )


def _nics(r: Random, network: Network, per_node: int) -> tuple[Nic, ...]:
    kind = "ib" if network == "ib" else "ens"
    return tuple(
        Nic(
            name=f"mlx5_{i}",
            bdf=f"0000:{0x15 + 0x11 * i:02x}:00.0",
            netdev=f"ib{i}" if kind == "ib" else f"ens{i + 1}np0",
            gid=f"fe80::{hexes(r, 4)}:{hexes(r, 4)}:{hexes(r, 4)}:{hexes(r, 4)}",
        )
        for i in range(per_node)
    )


def _ranks(r: Random, nodes: tuple[Node, ...], per_node: int, job: Job) -> tuple[Rank, ...]:
    comm = "pt_main_thread" if r.random() < 0.3 else job.python.rsplit("/", 1)[1][:15]
    ranks: list[Rank] = []
    for number, node in enumerate(nodes):
        host_pid = r.randrange(20_000, 900_000)
        pid = r.randrange(80, 900) if job.container else host_pid
        for local, gpu in enumerate(node.gpus):
            ranks.append(Rank(
                rank=number * per_node + local, local=local, node=node, gpu=gpu, pid=pid + local,
                host_pid=host_pid + local, comm=comm,
            ))  # fmt: skip
    return tuple(ranks)
