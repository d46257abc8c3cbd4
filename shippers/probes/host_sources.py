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
    ("throttling", "minimal", "cpu.stat of cgroups with a quota", "the cgroups of the host", "throttling:Throttling"),
    ("memory", "minimal", "OOM kills in /proc/vmstat and of cgroups", "Linux 4.13 or later", "memory:Memory"),
    ("pressure", "minimal", "/proc/pressure", "a kernel with PSI", "pressure:Pressure"),
    ("tcp", "minimal", "/proc/net/snmp and netstat", "the network namespace of the host", "tcp:Tcp"),
    ("sockets", "minimal", "`ss -ti`, while much is sent again", "the program ss (iproute2)", "sockets:Sockets"),
    ("infiniband", "minimal", "/sys/class/infiniband", "an InfiniBand or RoCE adapter", "infiniband:InfiniBand"),
    ("interfaces", "minimal", "/sys/class/net", "the network namespace of the host", "interfaces:Interfaces"),
    ("edac", "minimal", "/sys/devices/system/edac", "ECC memory and its EDAC driver", "edac:Edac"),
    ("heat", "minimal", "thermal_throttle of the processors", "a processor that counts it", "heat:Heat"),
    ("numa", "minimal", "numastat of the NUMA nodes", "more than one NUMA node", "numa:Numa"),
    ("mounts", "minimal", "mountinfo, statvfs of network file systems", "the mounts of the host", "mounts:Mounts"),
    ("space", "minimal", "statvfs of local disks and /dev/shm", "the mounts of the host", "space:SpaceLeft"),
    ("nvme", "full", "smartctl or nvme smart-log", "root, and one of these programs", "nvme:Nvme"),
    ("descriptors", "full", "/proc/PID/fd and limits", "root, the processes of the host", "descriptors:Descriptors"),
    ("tasks", "full", "/proc/PID/stat, stack and wchan", "the processes of the host", "tasks:Tasks"),
    ("sel", "full", "`ipmitool sel elist`", "root, ipmitool and a BMC", "sel:EventLog"),
    ("ras", "full", "NCCL RAS on port 28028 of this machine", "a job with NCCL 2.24 or later", "ras:Ras"),
)  # fmt: skip


def maker(where: str) -> "Callable[[Config, SourcePosition | None], ProbedSource]":
    """How a source is made of the class that is named `module:Class`."""

    def make(_: Config, saved: SourcePosition | None) -> "ProbedSource":
        from shippers.probed import ProbedSource

        module, _colon, name = where.partition(":")
        return ProbedSource(getattr(import_module(f"shippers.probes.{module}"), name)(), saved)

    return make
