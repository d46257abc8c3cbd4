"""Which component each class of incident is about, and in which category it is counted.

Rates of different categories never stand in one figure: infrastructure is what broke by itself, planned is what
somebody decided, user code is what the program did, unknown is what the evidence does not decide. Where people may
disagree, the reason for the choice stands beside it.
"""

from collections.abc import Mapping
from types import MappingProxyType
from typing import Final, Literal, get_args

from msgspec import Struct

from pipeline.core.fleet.records import Category

Component = Literal[
    "GPU", "GPU memory", "NVLink", "PCIe", "NIC", "network", "host", "power and cooling", "storage",
    "framework", "user program", "scheduler and operator", "unknown", "nothing broke",
]  # fmt: skip
COMPONENTS: Final[tuple[Component, ...]] = get_args(Component)
CATEGORIES: Final[tuple[Category, ...]] = get_args(Category)


class Place(Struct, frozen=True):
    """Where a class is counted. `why`: the reason, where the choice is debatable."""

    component: Component
    category: Category
    why: str = ""


def _plain(component: Component, category: Category, names: str) -> dict[str, Place]:
    return dict.fromkeys(names.split(), Place(component, category))


_UNDEBATED: Final = {
    **_plain("GPU memory", "infrastructure", "hardware/gpu_ecc_uncorrectable hardware/gpu_row_remap_failure"),
    **_plain(
        "GPU", "infrastructure",
        "hardware/gpu_xid_79 hardware/gpu_xid_119 hardware/gpu_error hardware/gpu_slow",
    ),
    **_plain("NVLink", "infrastructure", "hardware/nvlink_fault hardware/nvswitch_sxid"),
    **_plain("PCIe", "infrastructure", "hardware/pcie_link"),
    **_plain("NIC", "infrastructure", "hardware/ib_hca_fatal"),
    **_plain("host", "infrastructure", "hardware/host_memory hardware/cpu infra/node_failure"),
    **_plain("power and cooling", "infrastructure", "hardware/thermal hardware/power hardware/psu"),
    **_plain("storage", "infrastructure", "hardware/nvme storage/fs_hang storage/nfs_unresponsive"),
    **_plain("storage", "infrastructure", "storage/lustre_eviction storage/local_disk_error"),
    **_plain("network", "infrastructure", "network/ib_link_flap network/no_route network/name_resolution"),
    **_plain("network", "infrastructure", "network/tcp_timeout network/tcp_syn_dropped network/fabric_congestion"),
    **_plain("network", "infrastructure", "network/roce_gid_misconfig network/gdr_acs_misconfig"),
    **_plain("framework", "infrastructure", "software/nccl_bug"),
    **_plain("user program", "user_code", "software/collective_mismatch software/uneven_inputs software/gil_lock"),
    **_plain("user program", "user_code", "software/slow_preprocessing software/dataloader_deadlock"),
    **_plain("user program", "user_code", "software/cuda_oom software/python_exception software/assertion"),
    **_plain("user program", "user_code", "software/device_assert software/deadlock software/config_error"),
    **_plain("user program", "user_code", "resource/memory_limit resource/cgroup_oom resource/gpu_fragmentation"),
    **_plain("scheduler and operator", "planned", "infra/maintenance scheduler/time_limit scheduler/cancelled"),
    **_plain("scheduler and operator", "planned", "scheduler/preempted operator/sighup operator/sigint"),
    **_plain("unknown", "unknown", "unknown/silent_rank unknown/collective_timeout"),
    **_plain("nothing broke", "planned", "benign/shutdown_noise benign/harmless_warning"),
}  # fmt: skip

_DEBATED: Final = {
    "hardware/gpu_failure": Place("GPU", "infrastructure", "only the framework saw it; no GPU log agrees or denies"),
    "hardware/gpu_suspect": Place("GPU", "infrastructure", "a suspicion; a person may correct it"),
    "hardware/sdc_suspect": Place("GPU", "infrastructure", "a GPU computes wrongly more often than a program differs"),
    "hardware/fabric_manager": Place("NVLink", "infrastructure", "a service of the host; what fails with it is NVLink"),
    "hardware/imex": Place("NVLink", "infrastructure", "a service of the host; what fails with it is NVLink"),
    "network/ib_retry_exceeded": Place(
        "network", "infrastructure", "the path is meant; a peer that died first has a class of its own"
    ),
    "network/roce_retry_exceeded": Place(
        "network", "infrastructure", "the path is meant; a peer that died first has a class of its own"
    ),
    "network/ib_local_protection": Place(
        "network", "infrastructure", "memory registration: drivers and firmware more often than the program"
    ),
    "network/wrong_interface": Place(
        "network", "infrastructure", "a site's nodes should have a default that works; a job's own setting is rarer"
    ),
    "network/tcp_refused_unexplained": Place(
        "unknown", "unknown", "the peer's process was gone; why it went is what would count"
    ),
    "software/nccl_version_mismatch": Place(
        "framework", "infrastructure", "nodes of one job differ: images and nodes are the site's to keep equal"
    ),
    "software/driver_mismatch": Place(
        "framework", "infrastructure", "drivers are the site's, libraries often the job's"
    ),
    "software/watchdog_stuck": Place("framework", "infrastructure", "no user code runs in the watchdog's thread"),
    "software/segfault": Place("user program", "user_code", "extensions crash more often than memory or CPUs fail"),
    "software/illegal_memory_access": Place(
        "user program", "user_code", "kernels do it; a GPU that does has other errors beside it"
    ),
    "software/illegal_instruction": Place(
        "user program", "user_code", "kernels do it; a GPU that does has other errors beside it"
    ),
    "software/dataloader_worker_crash": Place(
        "user program", "user_code", "a worker killed for memory has another class"
    ),
    "software/external_download": Place(
        "user program", "user_code", "that all ranks wait for it is the program's doing"
    ),
    "software/checkpoint_corrupt": Place(
        "user program", "user_code", "a writer that renames when done leaves none; disks have classes of their own"
    ),
    "software/loss_nan": Place("user program", "user_code", "a GPU that computes wrongly has a class of its own"),
    "storage/checkpoint_write": Place(
        "storage", "infrastructure", "the file system refused; a full disk has its own class"
    ),
    "storage/checkpoint_read": Place(
        "storage", "infrastructure", "the file system refused; a corrupt file has its own class"
    ),
    "storage/disk_full": Place(
        "storage", "infrastructure", "quotas and cleaning are the site's; a job may have filled it"
    ),
    "resource/host_oom": Place("user program", "user_code", "the job's processes fill a node that is theirs"),
    "resource/shm_full": Place("user program", "user_code", "the size is part of how the job is started"),
    "resource/fd_limit": Place("user program", "user_code", "a leak or a limit; the program holds the files"),
    "resource/cpu_starved": Place("host", "infrastructure", "others on the node take the CPU"),
    "resource/cpu_throttle": Place("host", "infrastructure", "heat, power or a quota: none is the program's"),
    "resource/rdma_mr_limit": Place("host", "infrastructure", "the limit on locked memory is the site's"),
    "resource/memory_bandwidth": Place(
        "host", "infrastructure", "others on the node, or a memory channel that is lost"
    ),
    "resource/pcie_contention": Place("PCIe", "infrastructure", "others on the bus; topology is the site's"),
    "resource/gpu_memory_leaked": Place("host", "infrastructure", "the node was handed on before it was clean"),
    "infra/node_absent": Place("host", "infrastructure", "it never joined; its start is the site's"),
    "infra/pod_evicted": Place("host", "infrastructure", "nodes evict under pressure; a drain is maintenance"),
    "infra/process_killed": Place("unknown", "unknown", "a signal from outside; no log says whose"),
    "infra/process_stopped": Place("unknown", "unknown", "a signal from outside; no log says whose"),
    "infra/reboot": Place("host", "infrastructure", "one that nobody declared; declared ones are maintenance"),
    "external/supervisor_sigterm": Place("unknown", "unknown", "somebody decided it, and did not say why"),
    "benign/gpu_row_remap": Place("nothing broke", "planned", "the memory repaired itself; counted as an episode only"),
}

PLACES: Final[Mapping[str, Place]] = MappingProxyType(_UNDEBATED | _DEBATED)
_UNKNOWN: Final = Place("unknown", "unknown", "a class that this version does not know")


def component_of(class_: str) -> Component:
    """The component that a class is about; "unknown" for a class that is not in the vocabulary."""
    return PLACES.get(class_, _UNKNOWN).component


def category_of(class_: str) -> Category:
    """The category that a class is counted in; "unknown" for a class that is not in the vocabulary."""
    return PLACES.get(class_, _UNKNOWN).category
