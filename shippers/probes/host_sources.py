"""The host counters as built-in sources: what each reads and needs, and the class that does it.

Plain tuples, so that nothing of a source is imported before it is switched on: name, profile, reads, needs, class.
"""

from collections.abc import Callable
from importlib import import_module
from typing import TYPE_CHECKING, Final

from shippers.config import Config, Profile
from shippers.positions import SourcePosition

if TYPE_CHECKING:
    from shippers.probed import ProbedSource

Row = tuple[str, Profile, str, str, str]

HOST: Final[tuple[Row, ...]] = (
    ("throttling", "minimal", "CPU time taken from cgroups with a quota (cpu.stat)", "the cgroups of the host",
     "throttling:Throttling"),
    ("memory", "minimal", "OOM kills of the machine and of cgroups", "Linux 4.13 or later", "memory:Memory"),
    ("pressure", "minimal", "waits for CPU, memory and I/O (/proc/pressure)", "a kernel with PSI", "pressure:Pressure"),
    ("tcp", "minimal", "TCP segments sent again, connections dropped (/proc/net)", "the network namespace of the host",
     "tcp:Tcp"),
    ("sockets", "minimal", "to which peers TCP sends much again (ss -ti)", "the program ss (iproute2)",
     "sockets:Sockets"),
    ("infiniband", "minimal", "links and counters of InfiniBand and RoCE ports", "an InfiniBand or RoCE adapter",
     "infiniband:InfiniBand"),
    ("interfaces", "minimal", "links and errors of network interfaces", "the network namespace of the host",
     "interfaces:Interfaces"),
    ("edac", "minimal", "memory errors by module", "ECC memory and its EDAC driver", "edac:Edac"),
    ("heat", "minimal", "processors slowed down for heat", "a processor that counts it", "heat:Heat"),
    ("numa", "minimal", "memory pages from the wrong NUMA node", "more than one NUMA node", "numa:Numa"),
    ("mounts", "minimal", "mounts that hang, fail, become read-only or go", "the mounts of the host", "mounts:Mounts"),
    ("space", "minimal", "room on local disks and in /dev/shm", "the mounts of the host", "space:SpaceLeft"),
    ("nvme", "full", "health of NVMe disks (smartctl or nvme)", "root, and one of these programs", "nvme:Nvme"),
    ("descriptors", "full", "open files of processes against their limits", "root, the processes of the host",
     "descriptors:Descriptors"),
    ("tasks", "full", "processes that hang in the kernel", "the processes of the host", "tasks:Tasks"),
    ("sel", "full", "event log of the BMC (ipmitool)", "root, ipmitool and a BMC", "sel:EventLog"),
    ("ras", "full", "ranks that NCCL RAS misses", "a job with NCCL 2.24 or later", "ras:Ras"),
)  # fmt: skip


def maker(where: str) -> "Callable[[Config, SourcePosition | None], ProbedSource]":
    """How a source is made of the class that is named `module:Class`."""

    def make(_: Config, saved: SourcePosition | None) -> "ProbedSource":
        from shippers.probed import ProbedSource

        module, _colon, name = where.partition(":")
        return ProbedSource(getattr(import_module(f"shippers.probes.{module}"), name)(), saved)

    return make
