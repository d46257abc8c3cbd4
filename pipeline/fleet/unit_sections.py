"""What a fleet report says of units: trends, lifetimes, repairs, lemons."""

from typing import Final

from pipeline.core.fleet.answers import FleetReport, Incidence, LemonRow
from pipeline.fleet import numbers, remarks
from pipeline.fleet.section import MOST_ROWS, Section
from pipeline.fleet.tables import Column
from pipeline.report.words import counted, short

_DIFFER: Final = (
    "Healthy differ by: the coefficient of variation of their rates. A dash: they differ no more than chance does, or "
    "are too few to tell, and chance alone decides."
)


def trends(report: FleetReport) -> Section | None:
    """Whether failures became more frequent."""
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


def survival(report: FleetReport) -> list[Section]:
    """Time to the first failure, a section for each kind of unit."""
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
                        cells=[_share(row) for row in rows],
                    ),
                ],
                below=["Shares are cumulative incidence: components compete for the first failure."] if rows else [],
            )
        )
    return sections


def _share(row: Incidence) -> str:
    return f"{numbers.percent(row.share)} [{numbers.percent(row.lo)}, {numbers.percent(row.hi)}]"


def repair_times(report: FleetReport) -> Section | None:
    """How long repairs take."""
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
        below=[
            "Median and restricted mean count open repairs as censored; those of closed ones are too low. A repair "
            "that no known failure led to counts from when the unit was taken out of service."
        ],
    )


def repeats(report: FleetReport) -> Section | None:
    """Whether repairs helped."""
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


def lemons(report: FleetReport) -> Section:
    """Units that fail too often to be chance."""
    found, rows = report.lemons, report.lemons.rows[:MOST_ROWS]
    named = sum(row.is_lemon for row in found.rows)
    unit = remarks.UNIT_WORDS[found.unit_kind]
    said = (
        f"{counted(named, 'lemon')} among {counted(found.tested, unit)} (chance: Poisson against the others of its "
        f"SKU; healthy: as those of its SKU differ; the larger p decides, Benjamini-Hochberg "
        f"{numbers.percent(found.q)}). Judge them on the weeks to come, not on these."
    )
    return Section(
        title="Lemons",
        above=[said, *([found.warning] if found.warning else [])],
        columns=[
            Column(head=unit, cells=[_lemon_words(row) for row in rows], is_text=True),
            Column(head="SKU", cells=[short(row.cohort) for row in rows], is_text=True, rank=2),
            Column(head="n", cells=[f"{row.n:,}" for row in rows]),
            Column(head="expected", cells=[numbers.number(row.expected) for row in rows]),
            Column(head="p by chance", cells=[_p(row.p_value) for row in rows]),
            Column(head="p if healthy", cells=[_p(row.cohort_p_value) for row in rows]),
            Column(head="healthy differ by", cells=[numbers.percent(row.cohort_cv) for row in rows], rank=3),
            Column(
                head=f"shrunk, per 1,000 {unit}-days", cells=[numbers.number(row.shrunk_rate) for row in rows], rank=1
            ),
        ],
        left_out=len(found.rows) - len(rows),
        below=[_DIFFER] if rows else [],
    )


def _lemon_words(row: LemonRow) -> str:
    return f"{short(row.unit)}{'  lemon' if row.is_lemon else ''}"


def _p(value: float | None) -> str:
    if value is None:
        return numbers.UNKNOWN
    return f"{value:.1e}" if 0 < value < 1e-3 else f"{value:.3f}"
