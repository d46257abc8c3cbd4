"""What failures did to jobs: time to failure by size, effective training time, how often to save, goodput."""

from collections import defaultdict
from collections.abc import Sequence
from typing import Final

from msgspec import Struct
from msgspec.structs import replace

from pipeline.core.fleet.answers import Estimate, Goodput, Jobs, SizeRow
from pipeline.core.fleet.at_risk import HOUR_NS, exposure_ns
from pipeline.core.fleet.components import CATEGORIES
from pipeline.core.fleet.goodput import MeasuredEttr, daly_young_s, expected_ettr, goodput, measured_ettr
from pipeline.core.fleet.job_size import ABOVE_GPUS, SizeBucket, mttf_by_size, node_failure_rate
from pipeline.core.fleet.poisson import Rate
from pipeline.core.fleet.rates import PER_UNIT_DAYS
from pipeline.core.fleet.records import Category, Failure, Fleet, JobAttempt

DAY_S: Final = 86_400


class Saving(Struct, frozen=True, kw_only=True):
    """For how long a save blocks training, and how long a job takes from an interruption to its first step."""

    write_s: float = 60.0
    restart_s: float = 300.0


def jobs_of(fleet: Fleet, saving: Saving, level: float) -> Jobs:
    """Jobs by size. Only failures of infrastructure count: others are the program's or somebody's decision."""
    failures = [f for f in fleet.failures if f.category == "infrastructure"]
    above, found = _rate(fleet, failures, level)
    buckets = mttf_by_size(
        fleet.attempts, failures, from_ns=fleet.from_ns, to_ns=fleet.to_ns, per_node_day=found.value, level=level
    )
    return Jobs(
        rows=[_row(fleet, bucket, found.value, failures, saving) for bucket in buckets],
        per_1000_node_days=_scaled(found),
        above_gpus=above,
        write_s=saving.write_s,
        restart_s=saving.restart_s,
    )


def _rate(fleet: Fleet, failures: Sequence[Failure], level: float) -> tuple[int, Rate]:
    """Of large jobs as published rates are; of all where large ones are too few to fail."""
    for above in (ABOVE_GPUS, 0):
        found = node_failure_rate(
            fleet.attempts, failures, from_ns=fleet.from_ns, to_ns=fleet.to_ns, above_gpus=above, level=level
        )
        if found.n:
            break
    return above, found


def _scaled(found: Rate) -> Estimate:
    if found.value is None:
        return Estimate(None, None, None)
    hi = None if found.hi is None else found.hi * PER_UNIT_DAYS
    return Estimate(found.value * PER_UNIT_DAYS, found.lo * PER_UNIT_DAYS, hi)


def _row(
    fleet: Fleet, bucket: SizeBucket, per_node_day: float | None, failures: Sequence[Failure], saving: Saving
) -> SizeRow:
    members = [one for one in fleet.attempts if bucket.gpus_from <= (one.gpus or 0) <= bucket.gpus_to]
    nodes = sum(len(one.nodes) for one in members) / len(members) if members else 0.0
    measured = _measured(fleet, members, failures)
    every = daly_young_s(saving.write_s, nodes * per_node_day / DAY_S) if per_node_day and nodes else None
    expected = None
    if every and per_node_day:
        expected = expected_ettr(
            nodes=nodes, per_node_day=per_node_day, interval_s=every, restart_s=saving.restart_s,
            write_s=saving.write_s, queue_s=_queue_s(members),
        )  # fmt: skip
    wall = sum(one.scheduled_hours + one.queued_hours for one in measured)
    productive = sum((one.value or 0.0) * (one.scheduled_hours + one.queued_hours) for one in measured)
    return SizeRow(
        gpus_from=bucket.gpus_from,
        gpus_to=bucket.gpus_to,
        jobs=bucket.jobs,
        failures=bucket.failures,
        busy_hours=bucket.busy_hours,
        mttf_hours=Estimate(bucket.mttf.value, bucket.mttf.lo, bucket.mttf.hi),
        predicted_hours=bucket.predicted_hours,
        is_misfit=bucket.is_misfit,
        nodes=nodes,
        ettr=productive / wall if wall else None,
        ettr_expected=expected,
        queue_unknown=sum(one.queue_unknown for one in measured),
        save_every_s=every,
    )


def _measured(fleet: Fleet, members: Sequence[JobAttempt], failures: Sequence[Failure]) -> list[MeasuredEttr]:
    by_job: dict[tuple[str, str], list[JobAttempt]] = defaultdict(list)
    for attempt in members:
        by_job[attempt.cluster, attempt.job_id].append(attempt)
    lost: dict[tuple[str, str], float] = defaultdict(float)
    for failure in failures:
        for job_id in failure.job_ids:
            lost[failure.cluster, job_id] += (failure.lost_gpu_hours or 0.0) / len(failure.job_ids)
    found = []
    for job, attempts in by_job.items():
        gpus = max((one.gpus or 0 for one in attempts), default=0)
        unproductive_s = lost[job] * 3600 / gpus if gpus else 0.0
        inside = [_within(one, fleet.from_ns) for one in attempts]
        found.append(measured_ettr(inside, unproductive_s=unproductive_s, until_ns=fleet.to_ns))
    return found


def _within(attempt: JobAttempt, from_ns: int) -> JobAttempt:
    """The part of an attempt in the window, since what was lost before it is not known either."""
    return attempt if attempt.from_ns >= from_ns else replace(attempt, from_ns=from_ns, queued_ns=0)


def _queue_s(attempts: Sequence[JobAttempt]) -> float:
    """How long a restarted attempt waited, on average."""
    waited = [one.queued_ns for one in attempts if one.queued_ns is not None and one.attempt > 0]
    return sum(waited) / len(waited) / 1e9 if waited else 0.0


def goodput_of(fleet: Fleet) -> Goodput:
    """GPU-hours in jobs less those that interruptions lost, by the GPU-hours installed."""
    gpus = [exposure for exposure in fleet.exposures if exposure.unit_kind == "gpu"]
    capacity = sum(exposure_ns(exposure, "installed") for exposure in gpus) / HOUR_NS
    busy = sum(exposure_ns(exposure, "busy") for exposure in gpus) / HOUR_NS
    lost: dict[Category, float] = dict.fromkeys(CATEGORIES, 0.0)
    for failure in fleet.failures:
        lost[failure.category] += failure.lost_gpu_hours or 0.0
    return Goodput(
        capacity_gpu_hours=capacity,
        busy_gpu_hours=busy,
        lost_gpu_hours=lost,
        share=goodput(max(0.0, busy - sum(lost.values())), capacity) if busy else None,
        without_a_price=sum(failure.lost_gpu_hours is None for failure in fleet.failures),
    )
