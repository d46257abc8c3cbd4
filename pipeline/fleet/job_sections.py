"""What a fleet report says of jobs."""

from pipeline.core.fleet.answers import FleetReport, SizeRow
from pipeline.fleet import numbers, remarks
from pipeline.fleet.section import Section
from pipeline.fleet.tables import Column
from pipeline.report.words import counted, listed


def jobs(report: FleetReport) -> Section | None:
    """Time to failure by size beside the prediction, ETTR, and how often to write a checkpoint."""
    jobs, rows = report.jobs, report.jobs.rows
    if not rows:
        return None
    above = f"jobs above {jobs.above_gpus} GPUs" if jobs.above_gpus else "jobs of all sizes"
    misfits = [row for row in rows if row.is_misfit]
    below = [
        f"Predicted: 24 h / (nodes x rate), with {numbers.estimate(jobs.per_1000_node_days)} per 1,000 node-days of "
        f"{above}: attempts that their scheduler or an incident says a failure ended, over their hours.",
        f"ETTR expected and checkpoint every: Daly-Young for a write that blocks {numbers.seconds(jobs.write_s)} and a "
        f"restart of {numbers.seconds(jobs.restart_s)} (--checkpoint-write, --restart).",
    ]
    if misfits:
        below.insert(0, f"The prediction is outside the interval of: {', '.join(size_words(row) for row in misfits)}.")
    return Section(
        title=remarks.JOBS_TITLE,
        columns=[
            Column(head="GPUs", cells=[size_words(row) for row in rows], is_text=True),
            Column(head="attempts", cells=[f"{row.jobs:,}" for row in rows], rank=4),
            Column(head="failed", cells=[f"{row.failures:,}" for row in rows]),
            Column(head="busy h", cells=[numbers.whole(row.busy_hours) for row in rows], rank=3),
            Column(head="MTTF, h", cells=[numbers.estimate(row.mttf_hours) for row in rows]),
            Column(head="predicted, h", cells=[_predicted(row) for row in rows]),
            Column(head="ETTR", cells=[numbers.percent(row.ettr) for row in rows], rank=1),
            Column(head="expected", cells=[numbers.percent(row.ettr_expected) for row in rows], rank=5),
            Column(head="checkpoint every", cells=[numbers.seconds(row.save_every_s) for row in rows], rank=2),
        ],
        below=below,
    )


def size_words(row: SizeRow) -> str:
    """How many GPUs the jobs of a row have."""
    if not row.gpus_to:
        return "not known"
    return f"{row.gpus_from:,} to {row.gpus_to:,}" if row.gpus_from != row.gpus_to else f"{row.gpus_to:,}"


def _predicted(row: SizeRow) -> str:
    return f"{numbers.number(row.predicted_hours)}{' !' if row.is_misfit else ''}"


def goodput(report: FleetReport) -> Section | None:
    """What of the hardware was spent on work that was kept."""
    found = report.goodput
    if found.share is None:
        return None
    unpriced = (
        f" {counted(found.without_a_price, 'interruption')} without a known cost." if found.without_a_price else ""
    )
    lost = [
        f"{numbers.whole(hours)} to {remarks.LOST_WORDS[category]}"
        for category, hours in found.lost_gpu_hours.items()
        if hours
    ]
    return Section(
        title="Goodput",
        above=[
            f"{numbers.percent(found.share)} of {numbers.whole(found.capacity_gpu_hours)} GPU-hours installed were "
            f"spent on work that was kept: {numbers.whole(found.busy_gpu_hours)} in jobs, less "
            f"what interruptions lost: {listed(lost) or 'nothing that is known'}.{unpriced}"
        ],
    )
