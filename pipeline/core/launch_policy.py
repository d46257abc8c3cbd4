"""What a launcher should do after each class of failure: the policy, as data. `pipeline.core.launcher` applies it.

Expiry: how long a node is left out, counted from the failure, unless somebody puts it back or takes it away before.
No published work gives these times by class. What there is: where hardware was the cause, a failed LANL node was down
for 68 minutes (median) and 5.7 hours (mean; LA-UR-05-7318), and NVIDIA's catalogue says of each Xid whether a reset, a
restart of the node or a repair ends it. A node that is left out for too long costs a spare; one that comes back too
soon kills the job again, so the times are well above the mean.
"""

from typing import Final, Literal

from msgspec import Struct

# exclude: leave the culprit's node out. recurs: stop where the same failure comes again. restart: nothing speaks
# against it. ask: whoever stopped it decides. unknown: restart, unless a node is under suspicion.
Kind = Literal["exclude", "recurs", "restart", "ask", "unknown"]


class Policy(Struct, frozen=True, kw_only=True):
    """One row. `hours`: how long a node is left out. `nameless`: the answer where the node is not known.

    `advice` follows the class in the reason.
    """

    kind: Kind
    advice: str
    hours: float = 0.0
    nameless: Literal["restart", "undecided"] = "undecided"


# A part is to be tested, reseated or replaced: a week of service.
REPAIR: Final = Policy(kind="exclude", hours=168, advice="the node needs a repair")
# A reset of the GPU or a restart of the node ends it, and somebody has to do it: one day.
RESET: Final = Policy(kind="exclude", hours=24, advice="the node needs a reset or a restart first")
# Cables and switch ports settle or are seen to within a shift.
LINK: Final = Policy(kind="exclude", hours=12, nameless="restart", advice="the node's own link went down")
# The node comes back by itself, after twice the median down time and a health check.
ITSELF: Final = Policy(kind="exclude", hours=4, nameless="restart", advice="the node has to come back first")
# What holds the GPU's memory ends with the node's next clean-up.
HELD: Final = Policy(kind="exclude", hours=4, advice="something still holds the GPU of that node")

CODE: Final = Policy(kind="recurs", advice="the program's own failure")
LIMIT: Final = Policy(kind="recurs", advice="the job ran into a limit or a setting of its own")
NETWORK: Final = Policy(kind="restart", advice="check the network first")
STORAGE: Final = Policy(kind="restart", advice="check the storage first")
PASSING: Final = Policy(kind="restart", advice="nothing says that it would come again")
SCHEDULER: Final = Policy(kind="restart", advice="the scheduler ended it; start it again when there is room")
SOMEBODY: Final = Policy(kind="ask", advice="somebody stopped it; whoever did decides")
UNKNOWN: Final = Policy(kind="unknown", advice="no cause was found")

_ROWS: Final[tuple[tuple[Policy, str], ...]] = (
    (REPAIR, "hardware/ gpu_row_remap_failure sdc_suspect host_memory cpu nvme psu"),
    (REPAIR, "storage/ local_disk_error"),
    (
        RESET,
        "hardware/ gpu_ecc_uncorrectable gpu_xid_79 gpu_xid_119 gpu_error gpu_failure gpu_suspect gpu_slow thermal "
        "power pcie_link nvlink_fault nvswitch_sxid fabric_manager imex ib_hca_fatal",
    ),
    (RESET, "software/ driver_mismatch"),
    (LINK, "network/ ib_link_flap"),
    (ITSELF, "infra/ node_failure node_absent reboot"),
    (HELD, "resource/ gpu_memory_leaked"),
    (
        CODE,
        "software/ collective_mismatch uneven_inputs gil_lock slow_preprocessing dataloader_deadlock "
        "dataloader_worker_crash watchdog_stuck nccl_bug segfault cuda_oom illegal_memory_access illegal_instruction "
        "device_assert python_exception assertion deadlock checkpoint_corrupt loss_nan",
    ),
    (LIMIT, "software/ config_error nccl_version_mismatch"),
    (
        LIMIT,
        "resource/ host_oom cgroup_oom shm_full fd_limit cpu_throttle rdma_mr_limit memory_limit gpu_fragmentation",
    ),
    (LIMIT, "network/ roce_gid_misconfig gdr_acs_misconfig ib_local_protection wrong_interface"),
    (
        NETWORK,
        "network/ ib_retry_exceeded roce_retry_exceeded tcp_timeout tcp_syn_dropped tcp_refused_unexplained no_route "
        "name_resolution fabric_congestion",
    ),
    (
        STORAGE,
        "storage/ fs_hang checkpoint_write checkpoint_read nfs_unresponsive lustre_eviction disk_full",
    ),
    (PASSING, "software/ external_download"),
    (PASSING, "resource/ cpu_starved memory_bandwidth pcie_contention"),
    (PASSING, "infra/ pod_evicted process_killed process_stopped"),
    (PASSING, "operator/ sighup"),
    (PASSING, "benign/ gpu_row_remap shutdown_noise harmless_warning"),
    (SCHEDULER, "scheduler/ time_limit preempted"),
    (SCHEDULER, "infra/ maintenance"),
    (SOMEBODY, "scheduler/ cancelled"),
    (SOMEBODY, "operator/ sigint"),
    (SOMEBODY, "external/ supervisor_sigterm"),
    (UNKNOWN, "unknown/ silent_rank collective_timeout"),
)


def _table() -> dict[str, Policy]:
    """The rows by class."""
    return {domain + name: policy for policy, row in _ROWS for domain, *names in [row.split()] for name in names}


POLICY: Final = _table()
