"""The sections of a fleet report behind its rates, as tables with sentences around them."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

from pipeline.core.fleet.answers import FleetReport, LemonRow, SensitivityRow, ShareRow, SizeRow
from pipeline.core.fleet.components import CATEGORIES
from pipeline.core.fleet.records import Category, Defect
from pipeline.fleet import numbers, remarks
from pipeline.fleet.tables import Column
from pipeline.report.words import counted, short

MOST_ROWS: Final = 12
MOST_KINDS: Final = 6
_PARTS: Final[tuple[tuple[Category, str, int], ...]] = (
    ("unknown", "unknown", 0),
    ("infrastructure", "infrastr.", 1),
    ("planned", "planned", 3),
    ("user_code", "user code", 2),
)


@dataclass(frozen=True, kw_only=True)
class Section:
    """A title, sentences above and below, and a table between; `left_out`: rows that are not shown."""

    title: str
    above: Sequence[str] = ()
    columns: Sequence[Column] = ()
    left_out: int = 0
    below: Sequence[str] = ()


def sections_of(report: FleetReport) -> list[Section]:
    """Those that have anything to say."""
    found = (
        _trends(report),
        *_survival(report),
        _repairs(report),
        _repeats(report),
        _jobs(report),
        _goodput(report),
        _lemons(report),
        *(_costs(report, category) for category in CATEGORIES),
        _shares(report),
        _propagation(report),
        _sensitivity(report),
        _quality(report),
    )
    return [section for section in found if section is not None]


def _trends(report: FleetReport) -> Section | None:
    rows = report.trends
    if not rows:
        return None
    return Section(
        title="Trend within the window",
        columns=[
            Column(head="category", cells=[remarks.CATEGORY_WORDS[row.category] for row in rows], is_text=True),
            Column(head="cluster", cells=[short(row.cluster) for row in rows], is_text=True, rank=1),
            Column(head="n", cells=[f"{row.n:,}" for row in rows]),
            Column(head="Laplace z", cells=[numbers.number(row.laplace_z) for row in rows], rank=3),
            Column(head="p", cells=[numbers.number(row.laplace_p) for row in rows]),
            Column(head="Crow-AMSAA beta", cells=[numbers.estimate(row.beta) for row in rows], rank=2),
            Column(head="verdict", cells=[row.verdict for row in rows], is_text=True),
        ],
        below=["z above 0 and beta above 1: more frequent with time. Over clock time: a fleet that grows has more."],
    )


def _survival(report: FleetReport) -> list[Section]:
    sections = []
    for found in report.survival:
        rows = [row for row in report.incidence if row.unit_kind == found.unit_kind]
        unit = remarks.UNIT_WORDS[found.unit_kind]
        sections.append(
            Section(
                title=remarks.survival_title(found),
                above=remarks.survival_lines(found),
                columns=[
                    Column(head="ended by", cells=[short(row.component) for row in rows], is_text=True),
                    Column(head="n", cells=[f"{row.failed:,}" for row in rows]),
                    Column(
                        head=f"share of {unit}s by {numbers.hours(found.horizon_hours)}",
                        cells=[numbers.percent(row.share) for row in rows],
                    ),
                ],
                below=["Shares are cumulative incidence: components compete for the first failure."] if rows else [],
            )
        )
    return sections


def _repairs(report: FleetReport) -> Section | None:
    rows = report.repair_times
    if not rows:
        return None
    words = {"drain": "to drain", "repair": "to repair (MTTR)", "trusted": "to trusted service"}
    return Section(
        title="Repairs",
        columns=[
            Column(head="from failure", cells=[words[row.step] for row in rows], is_text=True),
            Column(head="n", cells=[f"{row.n:,}" for row in rows]),
            Column(head="open", cells=[f"{row.still_open:,}" for row in rows]),
            Column(head="median", cells=[numbers.hours(row.median_hours) for row in rows]),
            Column(head="restricted mean", cells=[numbers.hours(row.restricted_mean_hours) for row in rows]),
            Column(head="up to", cells=[numbers.hours(row.horizon_hours) for row in rows], rank=2),
            Column(head="mean of closed", cells=[numbers.hours(row.closed_mean_hours) for row in rows], rank=1),
            Column(head="median of closed", cells=[numbers.hours(row.closed_median_hours) for row in rows], rank=3),
        ],
        below=["Median and restricted mean count open repairs as censored; those of closed ones are too low."],
    )


def _repeats(report: FleetReport) -> Section | None:
    rows = report.repeats
    if not rows:
        return None
    return Section(
        title="Failed again after a repair",
        columns=[
            Column(head="action", cells=[short(row.action) or "not told" for row in rows], is_text=True),
            Column(head="repairs", cells=[f"{row.repairs:,}" for row in rows]),
            Column(head="within 7 days", cells=[_part(row.within_7_days, row.judged_7_days) for row in rows]),
            Column(head="within 28 days", cells=[_part(row.within_28_days, row.judged_28_days) for row in rows]),
        ],
    )


def _part(n: int, judged: int) -> str:
    return f"{n:,} of {judged:,} ({numbers.percent(n / judged)})" if judged else "too recent"


def _jobs(report: FleetReport) -> Section | None:
    jobs, rows = report.jobs, report.jobs.rows
    if not rows:
        return None
    above = f"jobs above {jobs.above_gpus} GPUs" if jobs.above_gpus else "jobs of all sizes"
    misfits = [row for row in rows if row.is_misfit]
    below = [
        f"Law: 24 h / (nodes x rate), with {numbers.estimate(jobs.per_1000_node_days)} per 1,000 node-days of {above}.",
        f"ETTR expected and save every: Daly-Young for a save that blocks {numbers.seconds(jobs.write_s)} and a "
        f"restart of {numbers.seconds(jobs.restart_s)} (--checkpoint-write, --restart).",
    ]
    if misfits:
        below.insert(0, f"Leaves the law: {', '.join(size_words(row) for row in misfits)}.")
    return Section(
        title=remarks.JOBS_TITLE,
        columns=[
            Column(head="GPUs", cells=[size_words(row) for row in rows], is_text=True),
            Column(head="attempts", cells=[f"{row.jobs:,}" for row in rows], rank=4),
            Column(head="failed", cells=[f"{row.failures:,}" for row in rows]),
            Column(head="busy h", cells=[numbers.whole(row.busy_hours) for row in rows], rank=3),
            Column(head="MTTF, h", cells=[numbers.estimate(row.mttf_hours) for row in rows]),
            Column(head="law, h", cells=[_law(row) for row in rows]),
            Column(head="ETTR", cells=[numbers.percent(row.ettr) for row in rows], rank=1),
            Column(head="expected", cells=[numbers.percent(row.ettr_expected) for row in rows], rank=5),
            Column(head="save every", cells=[numbers.seconds(row.save_every_s) for row in rows], rank=2),
        ],
        below=below,
    )


def size_words(row: SizeRow) -> str:
    """How many GPUs the jobs of a row have."""
    if not row.gpus_to:
        return "not known"
    return f"{row.gpus_from:,} to {row.gpus_to:,}" if row.gpus_from != row.gpus_to else f"{row.gpus_to:,}"


def _law(row: SizeRow) -> str:
    return f"{numbers.number(row.predicted_hours)}{' !' if row.is_misfit else ''}"


def _goodput(report: FleetReport) -> Section | None:
    found = report.goodput
    if found.share is None:
        return None
    unpriced = (
        f" {counted(found.without_a_price, 'interruption')} without a known cost." if found.without_a_price else ""
    )
    return Section(
        title="Goodput",
        above=[
            f"{numbers.percent(found.share)} of {numbers.whole(found.capacity_gpu_hours)} GPU-hours installed were "
            f"spent on work that was kept: {numbers.whole(found.busy_gpu_hours)} in jobs, less "
            f"{numbers.whole(found.lost_gpu_hours)} lost to interruptions.{unpriced}"
        ],
    )


def _lemons(report: FleetReport) -> Section:
    found, rows = report.lemons, report.lemons.rows[:MOST_ROWS]
    named = sum(row.is_lemon for row in found.rows)
    unit = remarks.UNIT_WORDS[found.unit_kind]
    said = (
        f"{counted(named, 'lemon')} among {counted(found.tested, unit)} (Poisson against the others of its SKU, "
        f"Benjamini-Hochberg {numbers.percent(found.q)}). Judge them on the weeks to come, not on these."
    )
    return Section(
        title="Lemons",
        above=[said, *([found.warning] if found.warning else [])],
        columns=[
            Column(head=unit, cells=[_lemon_words(row) for row in rows], is_text=True),
            Column(head="SKU", cells=[short(row.cohort) for row in rows], is_text=True, rank=2),
            Column(head="n", cells=[f"{row.n:,}" for row in rows]),
            Column(head="expected", cells=[numbers.number(row.expected) for row in rows]),
            Column(head="p", cells=[_p(row.p_value) for row in rows]),
            Column(
                head=f"shrunk, per 1,000 {unit}-days", cells=[numbers.number(row.shrunk_rate) for row in rows], rank=1
            ),
        ],
        left_out=len(found.rows) - len(rows),
    )


def _lemon_words(row: LemonRow) -> str:
    return f"{short(row.unit)}{'  lemon' if row.is_lemon else ''}"


def _p(value: float) -> str:
    return f"{value:.1e}" if 0 < value < 1e-3 else f"{value:.3f}"


def _costs(report: FleetReport, category: Category) -> Section | None:
    every = [row for row in report.costs if row.category == category]
    rows = every[:MOST_ROWS]
    if not rows:
        return None
    return Section(
        title=f"Cost and count: {remarks.CATEGORY_WORDS[category]}",
        columns=[
            Column(head="class", cells=[short(row.class_) for row in rows], is_text=True),
            Column(head="GPU-hours", cells=[numbers.whole(row.lost_gpu_hours) for row in rows]),
            Column(head="share", cells=[numbers.percent(row.share_of_cost) for row in rows], rank=1),
            Column(head="n", cells=[f"{row.n:,}" for row in rows]),
            Column(head="by cost", cells=[f"#{row.rank_by_cost}" for row in rows]),
            Column(head="by count", cells=[f"#{row.rank_by_count}" for row in rows]),
            Column(head="no cost known", cells=[f"{row.without_a_price:,}" for row in rows], rank=2),
        ],
        left_out=len(every) - len(rows),
    )


def _shares(report: FleetReport) -> Section | None:
    periods = list(dict.fromkeys(row.period for row in report.shares))
    if not periods:
        return None
    of = {period: [row for row in report.shares if row.period == period] for period in periods}
    most = [of[period][0] for period in periods]
    return Section(
        title="Interruptions over time",
        columns=[
            Column(head="period", cells=periods, is_text=True),
            Column(head="n", cells=[f"{sum(row.n for row in of[period]):,}" for period in periods]),
            *(
                Column(
                    head=head, cells=[numbers.percent(_share_of(of[period], category)) for period in periods], rank=rank
                )
                for category, head, rank in _PARTS
            ),
            Column(
                head="most frequent",
                cells=[f"{short(row.class_)} {numbers.percent(row.share)}" for row in most],
                is_text=True,
            ),
        ],
        below=["Shares are of all interruptions of a period, those of unknown cause included."],
    )


def _share_of(rows: Sequence[ShareRow], category: Category) -> float:
    return sum(row.share for row in rows if row.category == category)


def _propagation(report: FleetReport) -> Section | None:
    every = [row for row in report.propagation if row.followed or row.concurrent]
    rows = every[:MOST_ROWS]
    if not rows:
        return None
    return Section(
        title="What follows what",
        columns=[
            Column(head="error", cells=[short(row.cause) for row in rows], is_text=True),
            Column(head="then", cells=[short(row.effect) for row in rows], is_text=True),
            Column(head="n", cells=[f"{row.sources:,}" for row in rows]),
            Column(
                head="followed, %",
                cells=[f"{100 * row.share:.0f} [{100 * row.lo:.0f}, {100 * row.hi:.0f}]" for row in rows],
            ),
            Column(head="same unit", cells=[f"{row.same_unit:,}" for row in rows], rank=1),
            Column(head="same node", cells=[f"{row.same_node:,}" for row in rows], rank=2),
            Column(head="other node", cells=[f"{row.other_node:,}" for row in rows], rank=3),
            Column(head="order open", cells=[f"{row.concurrent:,}" for row in rows], rank=4),
            Column(head="by odds, %", cells=[f"{100 * row.by_odds:.0f}" for row in rows], rank=6),
            Column(head="before", cells=[f"{row.preceded:,}" for row in rows], rank=7),
            Column(head="top 1", cells=[numbers.percent(row.top_share) for row in rows], rank=5),
        ],
        left_out=len(every) - len(rows),
        below=[
            "Within 5 s, by the order that the clocks allow. Order open: they cannot say which was first. Before: so "
            "many had one just before, which is what chance makes."
        ],
    )


def _sensitivity(report: FleetReport) -> Section | None:
    every = report.sensitivity
    kinds = list(dict.fromkeys((row.name, row.xid, row.unit_kind) for row in every))[:MOST_KINDS]
    if not kinds:
        return None
    rows = [row for row in every if (row.name, row.xid, row.unit_kind) in kinds]
    return Section(
        title="Episodes by the window that joins lines",
        columns=[
            Column(
                head="event", is_text=True,
                cells=[_event(row) if row.window_s is None else "" for row in rows],
            ),
            Column(
                head="window",
                cells=["of its class" if row.window_s is None else numbers.seconds(row.window_s) for row in rows],
            ),
            Column(head="lines", cells=[f"{row.lines:,}" for row in rows], rank=3),
            Column(head="episodes", cells=[f"{row.episodes:,}" for row in rows]),
            Column(head="per 1,000 unit-days", cells=[numbers.estimate(row.rate) for row in rows]),
            Column(head="D", cells=[numbers.number(row.dispersion) for row in rows], rank=2),
            Column(head="top 1", cells=[numbers.percent(row.top_1_share) for row in rows], rank=1),
        ],
        below=["Episodes are errors, not failures: they have no MTBF of their own here."],
    )  # fmt: skip


def _event(row: SensitivityRow) -> str:
    return f"{short(row.name)}{'' if row.xid is None else f' {row.xid}'}"


def _quality(report: FleetReport) -> Section:
    if not report.defects:
        return Section(title="Data quality", above=["No span, failure or clock contradicts another."])
    return Section(
        title="Data quality",
        above=[
            "What cannot be true or cannot be counted:",
            *(f"{row.n:,} {row.kind.replace('_', ' ')}, as {_example(row.examples[0])}" for row in report.defects),
        ],
        below=['All rows: rootrank sql "SELECT * FROM data_quality"'],
    )


def _example(defect: Defect) -> str:
    place = f" ({short(defect.source)}:{defect.row})" if defect.source else ""
    return f"{short(defect.unit)}: {short(defect.detail)}{place}"
