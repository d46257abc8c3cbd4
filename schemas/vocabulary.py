"""Closed vocabularies. A new value is a reviewed change of this file."""

from typing import Final, Literal, get_args

Run = Literal["live", "replay", "drill", "post_mortem"]
Quality = Literal["good", "holdover", "stepped", "none"]
# What of an event's time nobody states: it was inferred from neighbours.
Inferred = Literal["year", "date", "zone", "boot"]
Severity = Literal["trace", "debug", "info", "warning", "error", "critical", "fatal"]
Role = Literal["cause", "intermediate", "symptom", "context", "noise"]
Order = Literal["before", "after", "concurrent"]
EdgeOrder = Literal["certain", "probable", "concurrent"]
StepRole = Literal["root", "cascade", "symptom", "context"]
VerdictState = Literal["provisional", "settled"]
IncidentState = Literal["open", "resolved", "retracted", "superseded"]
# States of incidents that are true and speak for themselves.
STANDING: Final = frozenset[str](("open", "resolved"))
IncidentSeverity = Literal["critical", "error", "warning"]
SourceState = Literal["on", "off", "refused"]
Interruption = Literal["soft", "hard", "hang", "slow", "none"]
Phase = Literal[
    "init", "data_loading", "forward", "backward", "gradient_sync", "optimizer",
    "checkpoint_save", "checkpoint_load", "evaluation", "shutdown", "unknown",
]  # fmt: skip
ActionKind = Literal[
    "none", "restart_in_place", "restart_excluding_node", "reset_gpu", "drain_node", "replace_gpu",
    "fix_code", "fix_config", "check_network", "check_storage", "contact_support",
]  # fmt: skip

# OpenTelemetry SeverityNumber: first number of each range of four.
SEVERITY_NUMBER: Final[dict[str, int]] = {
    "trace": 1, "debug": 5, "info": 9, "warning": 13, "error": 17, "critical": 18, "fatal": 21,
}  # fmt: skip

_CLASSES_BY_DOMAIN: Final[dict[str, str]] = {
    "hardware": "gpu_ecc_uncorrectable gpu_row_remap_failure gpu_xid_79 gpu_xid_119 gpu_error gpu_failure gpu_suspect "
    "gpu_slow thermal power pcie_link nvlink_fault nvswitch_sxid fabric_manager imex sdc_suspect ib_hca_fatal "
    "host_memory cpu nvme psu",
    "network": "ib_link_flap ib_retry_exceeded roce_retry_exceeded roce_gid_misconfig gdr_acs_misconfig "
    "ib_local_protection tcp_timeout tcp_syn_dropped tcp_refused_unexplained no_route wrong_interface "
    "name_resolution fabric_congestion",
    "software": "collective_mismatch uneven_inputs gil_lock slow_preprocessing dataloader_deadlock "
    "dataloader_worker_crash external_download watchdog_stuck nccl_bug nccl_version_mismatch driver_mismatch "
    "segfault cuda_oom illegal_memory_access illegal_instruction device_assert python_exception assertion deadlock "
    "checkpoint_corrupt config_error loss_nan",
    "storage": "fs_hang checkpoint_write checkpoint_read nfs_unresponsive lustre_eviction local_disk_error disk_full",
    "resource": "host_oom cgroup_oom shm_full fd_limit cpu_starved cpu_throttle rdma_mr_limit memory_bandwidth "
    "pcie_contention memory_limit gpu_memory_leaked gpu_fragmentation",
    "infra": "node_failure node_absent pod_evicted process_killed process_stopped reboot maintenance",
    "unknown": "silent_rank collective_timeout",
    "scheduler": "time_limit cancelled preempted",
    "operator": "sighup sigint",
    "external": "supervisor_sigterm",
    "benign": "gpu_row_remap shutdown_noise harmless_warning",
}

CLASSES: Final[frozenset[str]] = frozenset(
    f"{domain}/{name}" for domain, names in _CLASSES_BY_DOMAIN.items() for name in names.split()
)
# Endings that are notes, never incidents.
QUIET_CLASSES: Final[frozenset[str]] = frozenset(
    c for c in CLASSES if c.split("/")[0] in {"scheduler", "benign"} or c == "infra/maintenance"
)

# Labels say what one line is; classes (above) name the root of an incident.
_LABELS_BY_LAYER: Final[dict[str, str]] = {
    "hardware": "gpu_xid gpu_ecc gpu_row_remap gpu_fell_off_bus gpu_hang gpu_engine gpu_firmware gpu_thermal "
    "gpu_power gpu_recovery_action nvlink nvlink_c2c nvswitch pcie cpu_mce memory_ecc cpu_thermal power nic disk "
    "node_down",
    "network": "nccl_timeout nccl_remote_error ib_link ib_transport nic_link tcp_connect tcp_retransmit congestion "
    "fabric_config dns",
    "software": "oom gpu_app_fault cuda_error gpu_driver gpu_channel_teardown driver_mismatch nccl_version "
    "nccl_config collective_mismatch exception crash dataloader data_format zombie_gpu_process rendezvous elastic",
    "storage": "disk_io fs_error fs_readonly no_space nfs_stall lustre_evict fs_stall checkpoint_write "
    "checkpoint_corrupt data_read",
    "resource": "cpu_throttle host_oom shm_exhausted memory_bandwidth pcie_contention gpu_fragmentation "
    "cpu_starvation fs_contention eviction preemption time_limit limits",
    "context": "placement progress telemetry lifecycle",
}
LABELS: Final[frozenset[str]] = frozenset(
    f"{layer}/{name}" for layer, names in _LABELS_BY_LAYER.items() for name in names.split()
)

SCOPES: Final[frozenset[str]] = frozenset({"gpu", "node", "nic", "link", "rank", "job", "fabric", "disk", "fs"})
ROLES: Final[frozenset[str]] = frozenset(get_args(Role))
SEVERITIES: Final[frozenset[str]] = frozenset(get_args(Severity))
