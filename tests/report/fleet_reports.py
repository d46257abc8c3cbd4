"""A fleet report with every section, and one whose every name is hostile."""

from msgspec.structs import replace

from pipeline.core.fleet.answers import FleetReport
from pipeline.core.fleet.propagation import Propagation
from pipeline.core.fleet.records import Cohort, Defect, EpisodeCount, Fleet, JobAttempt, Life, Repair
from pipeline.core.fleet.report import DEFAULT_BY, Options, fleet_report
from tests.core.fleet.small_fleets import HOUR_NS, T0, failed, fleet, unit

NODES = 24
CLASSES = (
    "hardware/gpu_xid_79", "hardware/gpu_ecc_uncorrectable", "network/ib_link_flap", "hardware/nvlink_fault",
    "software/cuda_oom", "scheduler/preempted", "unknown/silent_rank", "storage/fs_hang", "hardware/thermal",
    "infra/node_failure", "software/nccl_bug",
)  # fmt: skip
DAYS = 90


def whole(name: str = "") -> FleetReport:
    """Ninety days of 24 nodes, one of them a lemon. With a `name`, it stands in every place that records name."""
    return fleet_report(_facts(name), Options(by=(*DEFAULT_BY, "firmware")), [_follows(name)])


def _facts(name: str) -> Fleet:
    cohorts = [
        Cohort(sku=f"{name}sku{n % 2}", rack=f"{name}r{n % 4}", driver=f"{name}5{n % 3}0.1") for n in range(NODES)
    ]
    nodes = [
        unit(f"{name}n{n}", 24 * DAYS - n, cohort=cohorts[n], busy=1500, observed=1900, cluster=f"{name}c1")
        for n in range(NODES)
    ]
    failures = [
        failed(
            20 * number + 3, f"{name}n{n}", cohort=cohorts[n], class_=CLASSES[number % len(CLASSES)], lost=number,
            cluster=f"{name}c1", incident=f"i{number}",
        )
        for number, n in enumerate(0 if number % 4 == 0 else number % NODES for number in range(80))
    ]  # fmt: skip
    return replace(
        fleet(nodes, failures, hours=24 * DAYS),
        lives=[
            Life(cluster=f"{name}c1", unit_kind="node", unit=f"{name}n{n}", from_ns=T0 - n * 24 * HOUR_NS)
            for n in range(NODES)
        ],
        attempts=[_attempt(name, number) for number in range(60)],
        repairs=[_repair(name, number) for number in range(12)],
        episodes=[_episodes(name, number) for number in range(4)],
        defects=[Defect(kind="inverted_span", cluster=f"{name}c1", unit=f"{name}n1", detail=name, source=name, row=3)],
    )


def _attempt(name: str, number: int) -> JobAttempt:
    nodes = 1 << number % 4
    begin = T0 + number * 30 * HOUR_NS
    return JobAttempt(
        cluster=f"{name}c1", job_id=f"{name}j{number}", attempt=0, nodes=tuple(f"{name}n{n}" for n in range(nodes)),
        gpus=8 * nodes, from_ns=begin, to_ns=begin + 20 * HOUR_NS,
        end="node_failure" if number % 5 == 0 else "completed",
    )  # fmt: skip


def _repair(name: str, number: int) -> Repair:
    at = T0 + number * 50 * HOUR_NS
    ended = None if number % 4 == 3 else at + (number + 1) * HOUR_NS
    return Repair(
        cluster=f"{name}c1", unit_kind="node", unit=f"{name}n{number}", failed_ns=at, drained_ns=at + HOUR_NS // 4,
        begun_ns=at + HOUR_NS, ended_ns=ended, trusted_ns=ended, action=f"{name}reset",
    )  # fmt: skip


def _episodes(name: str, number: int) -> EpisodeCount:
    return EpisodeCount(
        cluster=f"{name}c1", unit_kind="node", unit=f"{name}n{number}", cohort=Cohort(), name=f"{name}gpu.xid", xid=119,
        lines=90, episodes=3, by_window={5: 60, 600: 3},
    )  # fmt: skip


def _follows(name: str) -> Propagation:
    return Propagation(
        cause=f"{name}Xid 48", effect=f"{name}Xid 63", sources=40, followed=30, share=0.75, lo=0.6, hi=0.86,
        same_unit=30, same_node=0, other_node=1, concurrent=2, preceded=1, top_share=0.4, by_odds=0.78,
    )  # fmt: skip
