"""What a fleet report says of causes: costs, shares over time, what follows what, episodes, doubts."""

from collections.abc import Sequence
from typing import Final

from pipeline.core.fleet.answers import FleetReport, SensitivityRow, ShareRow
from pipeline.core.fleet.records import Category, Defect
from pipeline.fleet import numbers, remarks
from pipeline.fleet.section import MOST_ROWS, Section
from pipeline.fleet.tables import Column
from pipeline.report.words import counted, short

MOST_KINDS: Final = 6
_PARTS: Final[tuple[tuple[Category, str, int], ...]] = (
    ("unknown", "unknown", 0),
    ("infrastructure", "infrastr.", 1),
    ("planned", "planned", 3),
    ("user_code", "user code", 2),
)


def costs(report: FleetReport, category: Category) -> Section | None:
    """Cost beside count by class of one category."""
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
        below=[
            f"Shares are of this category. Of all interruptions the cause is not known for "
            f"{numbers.percent(report.unknown_share)}."
        ],
    )


def shares(report: FleetReport) -> Section | None:
    """Interruptions over time, the unknown share with them."""
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


def propagation(report: FleetReport) -> Section | None:
    """Which errors are followed by which."""
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


def sensitivity(report: FleetReport) -> Section | None:
    """Episodes for every window that joins lines."""
    every = report.sensitivity
    kinds = list(dict.fromkeys((row.name, row.xid, row.unit_kind) for row in every))[:MOST_KINDS]
    if not kinds:
        return None
    rows = [row for row in every if (row.name, row.xid, row.unit_kind) in kinds]
    lost = sum(row.uncounted for row in every if row.window_s is None)
    return Section(
        title="Episodes by the window that joins lines",
        columns=[
            Column(
                head="event", is_text=True,
                cells=[_event(row) if row.window_s is None else "" for row in rows],
            ),
            *remarks.kind_columns(rows),
            Column(
                head="window",
                cells=["of its class" if row.window_s is None else numbers.seconds(row.window_s) for row in rows],
            ),
            Column(head="lines", cells=[f"{row.lines:,}" for row in rows], rank=3),
            Column(head="episodes", cells=[f"{row.episodes:,}" for row in rows]),
            Column(head=f"per 1,000 {remarks.of_one_kind(rows)}-days", cells=[remarks.rate(row) for row in rows]),
            Column(head="D", cells=[numbers.number(row.dispersion) for row in rows], rank=2),
            Column(head="top 1", cells=[numbers.percent(row.top_1_share) for row in rows], rank=1),
        ],
        below=[
            remarks.exposed_line(rows),
            *([remarks.CLUSTERED] if any(row.interval != "Garwood" for row in rows) else []),
            "Episodes are errors, not failures: they have no MTBF of their own here.",
            *([f"{counted(lost, 'episode')} on units that were not at risk: not counted."] if lost else []),
        ],
    )  # fmt: skip


def _event(row: SensitivityRow) -> str:
    return f"{short(row.name)}{'' if row.xid is None else f' {row.xid}'}"


def quality(report: FleetReport) -> Section:
    """What cannot be true or cannot be counted."""
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
