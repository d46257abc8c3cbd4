"""How much of the time that was paid for trained: ETTR of a job, goodput of a cluster, how often to checkpoint.

ETTR is productive time / (scheduled + queued) of one job over all its attempts (Kokolis et al., HPCA 2025).
"""

from collections.abc import Sequence
from math import sqrt
from typing import Final

from msgspec import Struct

from pipeline.core.fleet.records import JobAttempt

_DAY_S: Final = 86_400
_HOUR_NS: Final = 3_600_000_000_000
# Kokolis et al. compared their short form with simulation up to so many interruptions of the job a day: within 5 %.
MOST_FAILURES_PER_DAY: Final = 10.0


class MeasuredEttr(Struct, frozen=True, kw_only=True):
    """ETTR of one job. `queue_unknown` attempts waited nobody knows how long: with any, `value` is an upper bound."""

    value: float | None
    attempts: int
    scheduled_hours: float
    queued_hours: float
    unproductive_hours: float
    queue_unknown: int


def expected_ettr(
    *,
    nodes: float,
    per_node_day: float,
    interval_s: float,
    restart_s: float,
    write_s: float = 0.0,
    queue_s: float = 0.0,
) -> float:
    """ETTR to expect of a job on `nodes` that checkpoints every `interval_s`, blocked `write_s` by each.

    Every interruption costs half an interval, `restart_s` and `queue_s`. Short form for small losses, fit for up to
    MOST_FAILURES_PER_DAY; a job that would lose more than all has 0. Raises ValueError for an interval of 0.
    """
    if interval_s <= 0:
        raise ValueError(f"a checkpoint interval of {interval_s} s")
    per_second = nodes * per_node_day / _DAY_S
    kept = 1 - per_second * (restart_s + interval_s / 2)
    return max(0.0, kept) / ((1 + write_s / interval_s) * (1 + per_second * queue_s))


def measured_ettr(attempts: Sequence[JobAttempt], *, unproductive_s: float, until_ns: int) -> MeasuredEttr:
    """ETTR of the attempts of one job until `until_ns`.

    `unproductive_s`: what was trained twice since the last checkpoints, and restarts until the first step.
    """
    began = [one for one in attempts if one.from_ns < until_ns]
    scheduled = sum(_end_ns(one, until_ns) - one.from_ns for one in began) / _HOUR_NS
    queued = sum(one.queued_ns or 0 for one in began) / _HOUR_NS
    lost = unproductive_s / 3600
    return MeasuredEttr(
        value=max(0.0, scheduled - lost) / (scheduled + queued) if scheduled + queued else None,
        attempts=len(began),
        scheduled_hours=scheduled,
        queued_hours=queued,
        unproductive_hours=lost,
        queue_unknown=sum(one.queued_ns is None for one in began),
    )


def goodput(productive_gpu_hours: float, capacity_gpu_hours: float) -> float | None:
    """Share of a cluster's capacity that trained; None: there was no capacity."""
    return productive_gpu_hours / capacity_gpu_hours if capacity_gpu_hours > 0 else None


def daly_young_s(write_s: float, failures_per_s: float) -> float | None:
    """Interval between checkpoints that loses least, first order: sqrt(2 w / rate) (Young 1974, Daly 2006).

    Holds while `write_s` is far below the time between failures. None: without failures there is no such interval.
    """
    return sqrt(2 * write_s / failures_per_s) if failures_per_s > 0 else None


def _end_ns(attempt: JobAttempt, until_ns: int) -> int:
    return until_ns if attempt.to_ns is None else min(attempt.to_ns, until_ns)
