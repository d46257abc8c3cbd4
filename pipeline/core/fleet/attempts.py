"""Job attempts: which are told twice, and the busy spans that follow from them."""

from collections.abc import Iterable, Sequence

from pipeline.core.fleet.defects import when
from pipeline.core.fleet.history import GPUS
from pipeline.core.fleet.records import Defect, FleetSpan, JobAttempt


def distinct(attempts: Iterable[JobAttempt]) -> tuple[list[JobAttempt], list[Defect]]:
    """Each attempt once, sorted: of several of one job that begin at once the one that has ended, then that ended last.

    Files number attempts each for itself, from the first that is in them; when one began they agree on. One source that
    tells an attempt twice is a defect (`duplicate_attempt`); two sources may both know it.
    """
    chosen: dict[tuple[str, str, int], JobAttempt] = {}
    defects: list[Defect] = []
    for attempt in sorted(attempts, key=_rank):
        other = chosen.get((attempt.cluster, attempt.job_id, attempt.from_ns))
        chosen[attempt.cluster, attempt.job_id, attempt.from_ns] = attempt
        if other is not None and other.source == attempt.source:
            defects.append(_twice(other, attempt))
    return sorted(chosen.values(), key=lambda a: (a.cluster, a.from_ns, a.job_id, a.attempt)), defects


def busy_spans(attempt: JobAttempt, until_ns: int) -> list[FleetSpan]:
    """One for each node, with the number of GPUs that the job had there where that is known; what goes on is busy to
    `until_ns`. GPUs that do not divide are handed out from the first node on.
    """
    to_ns = until_ns if attempt.to_ns is None else attempt.to_ns
    return [
        FleetSpan(
            cluster=attempt.cluster, unit_kind="node", unit=node, kind="busy", from_ns=attempt.from_ns,
            to_ns=max(to_ns, attempt.from_ns), job_id=attempt.job_id, attempt=attempt.attempt, outcome=attempt.end,
            facts={} if gpus is None else {GPUS: str(gpus)}, source=attempt.source, row=attempt.row,
        )
        for node, gpus in zip(attempt.nodes, _shares(attempt.gpus, len(attempt.nodes)), strict=True)
    ]  # fmt: skip


def _shares(gpus: int | None, nodes: int) -> Sequence[int | None]:
    if gpus is None:
        return [None] * nodes
    return [gpus // nodes + (place < gpus % nodes) for place in range(nodes)]


def _rank(attempt: JobAttempt) -> tuple[bool, int, str, int]:
    return attempt.to_ns is not None, attempt.to_ns or 0, attempt.source, attempt.row


def _twice(one: JobAttempt, other: JobAttempt) -> Defect:
    return Defect(
        kind="duplicate_attempt", cluster=one.cluster, unit=f"job {one.job_id}", source=one.source, row=one.row,
        at_ns=one.from_ns,
        detail=f"attempt {one.attempt} from {when(one.from_ns)} to {when(one.to_ns)} is told in row {other.row} too; "
        "that one counts",
    )  # fmt: skip
