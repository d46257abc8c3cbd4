"""Time to failure of jobs by their size, next to what the rate of single nodes predicts: 24 h / (N r).

What counts as a failure of an attempt follows Kokolis et al. (HPCA 2025): the scheduler says that a node failed, or the
attempt ended badly and a failure is known that explains it. Infrastructure only: the caller chooses the failures.
"""

from bisect import bisect_left
from collections import defaultdict
from collections.abc import Iterable, Sequence
from typing import Final

from msgspec import Struct

from pipeline.core.fleet.poisson import Rate, garwood, mtbf, rate
from pipeline.core.fleet.records import Failure, JobAttempt

_HOUR_NS: Final = 3_600_000_000_000
_MINUTE_NS: Final = 60_000_000_000
# A failure of a node explains the end of an attempt there if it came so long before it, or so shortly after it.
_BEFORE_END_NS: Final = 10 * _MINUTE_NS
AFTER_END_NS: Final = 5 * _MINUTE_NS
# Kokolis et al. take the rate of nodes from jobs above this size: small ones are mostly tests of their users' code.
ABOVE_GPUS: Final = 128
_ONE_NODE_GPUS: Final = 8
_ENDED_BADLY: Final = frozenset({"failed", "cancelled", "timed_out", "unknown"})


class SizeBucket(Struct, frozen=True, kw_only=True):
    """Attempts of jobs of `gpus_from` to `gpus_to` GPUs (both included; 0 and 0: nobody knows how many).

    `jobs` are attempts that ran in the window, `busy_hours` their wall time, `mttf` hours to failure. `predicted_hours`
    is what their nodes would give; `is_misfit`: the interval of what happened excludes it.
    """

    gpus_from: int
    gpus_to: int
    jobs: int
    failures: int
    busy_hours: float
    mttf: Rate
    predicted_hours: float | None
    is_misfit: bool


def predicted_mttf_hours(nodes: float, per_node_day: float) -> float:
    """Time to failure of a job on `nodes` of which any one ends it: 24 / (N r) hours."""
    return 24 / (nodes * per_node_day)


def mttf_by_size(
    attempts: Sequence[JobAttempt],
    failures: Iterable[Failure],
    *,
    from_ns: int,
    to_ns: int,
    per_node_day: float | None,
    level: float = 0.95,
) -> list[SizeBucket]:
    """Attempts in [from_ns, to_ns) by size, in powers of two from 8 GPUs; `per_node_day` None: no prediction.

    A failed attempt counts once, and in the window in which it ended.
    """
    failed = failed_attempts(attempts, failures)
    buckets: dict[tuple[int, int], list[JobAttempt]] = defaultdict(list)
    for attempt in attempts:
        if _busy_ns(attempt, from_ns, to_ns):
            buckets[_bucket(attempt.gpus)].append(attempt)
    found = []
    for (low, high), members in sorted(buckets.items(), key=lambda item: (item[0] == (0, 0), item[0])):
        hours = [_busy_ns(one, from_ns, to_ns) / _HOUR_NS for one in members]
        n = sum(_key(one) in failed and one.to_ns is not None and one.to_ns <= to_ns for one in members)
        expected = sum(len(one.nodes) * each for one, each in zip(members, hours, strict=True)) / 24
        expected *= per_node_day or 0
        bounds = garwood(n, level)
        found.append(
            SizeBucket(
                gpus_from=low,
                gpus_to=high,
                jobs=len(members),
                failures=n,
                busy_hours=sum(hours),
                mttf=mtbf(n, sum(hours), level),
                predicted_hours=sum(hours) / expected if expected else None,
                is_misfit=bool(expected) and not bounds.lo <= expected <= (bounds.hi or expected),
            )
        )
    return found


def node_failure_rate(
    attempts: Sequence[JobAttempt],
    failures: Iterable[Failure],
    *,
    from_ns: int,
    to_ns: int,
    above_gpus: int = ABOVE_GPUS,
    level: float = 0.95,
) -> Rate:
    """Failures per node-day of attempts on more than `above_gpus` GPUs: the r of the prediction."""
    failed = failed_attempts(attempts, failures)
    large = [one for one in attempts if (one.gpus or 0) > above_gpus and _busy_ns(one, from_ns, to_ns)]
    node_days = sum(len(one.nodes) * _busy_ns(one, from_ns, to_ns) for one in large) / (24 * _HOUR_NS)
    n = sum(_key(one) in failed and one.to_ns is not None and one.to_ns <= to_ns for one in large)
    return rate(n, node_days, level)


def failed_attempts(attempts: Iterable[JobAttempt], failures: Iterable[Failure]) -> set[tuple[str, str, int]]:
    """Attempts that a failure ended, as (cluster, job, begin): a node failed, or they ended badly for a known reason.

    A failure that names jobs explains their attempts that it falls into (until 5 min after the end); one that names
    none those of its node that ended from 5 min before it to 10 min after it. A completed attempt was not ended by it.
    """
    of_job: dict[tuple[str, str], list[int]] = defaultdict(list)
    of_node: dict[tuple[str, str], list[int]] = defaultdict(list)
    for failure in sorted(failures, key=lambda one: one.at_ns):
        for job_id in failure.job_ids:
            of_job[failure.cluster, job_id].append(failure.at_ns)
        if not failure.job_ids and failure.node:
            of_node[failure.cluster, failure.node].append(failure.at_ns)
    return {
        _key(one)
        for one in attempts
        if one.to_ns is not None
        and (
            one.end == "node_failure"
            or (one.end in _ENDED_BADLY and _falls_into(of_job[one.cluster, one.job_id], one.from_ns, one.to_ns))
            or (
                one.end == "failed"
                and any(_falls_into(of_node[one.cluster, n], one.to_ns - _BEFORE_END_NS, one.to_ns) for n in one.nodes)
            )
        )
    }


def _falls_into(times: Sequence[int], from_ns: int, end_ns: int) -> bool:
    index = bisect_left(times, from_ns)
    return index < len(times) and times[index] <= end_ns + AFTER_END_NS


def _key(attempt: JobAttempt) -> tuple[str, str, int]:
    return attempt.cluster, attempt.job_id, attempt.from_ns


def _busy_ns(attempt: JobAttempt, from_ns: int, to_ns: int) -> int:
    end = to_ns if attempt.to_ns is None else min(attempt.to_ns, to_ns)
    return max(0, end - max(attempt.from_ns, from_ns))


def _bucket(gpus: int | None) -> tuple[int, int]:
    if not gpus:
        return 0, 0
    if gpus <= _ONE_NODE_GPUS:
        return 1, _ONE_NODE_GPUS
    high = 1 << (gpus - 1).bit_length()
    return high // 2 + 1, high
