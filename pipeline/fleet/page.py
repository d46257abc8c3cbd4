"""A fleet report as one page that stands alone: sentences, plots and tables, for light and dark, without script."""

from collections.abc import Iterator, Sequence
from itertools import groupby
from typing import Final

from pipeline.core.fleet.answers import Estimate, FleetReport, RateRow, Survival
from pipeline.core.fleet.records import Category
from pipeline.fleet import numbers, plots, remarks
from pipeline.fleet.section import Section
from pipeline.fleet.sections import sections_of
from pipeline.fleet.tables import Column
from pipeline.fleet.text import HEADS, rate_columns
from pipeline.report.markup import Child, Html, tag
from pipeline.report.page import stand_alone
from pipeline.report.words import counted, listed, short

MOST_ROWS: Final = 40


def render_page(report: FleetReport) -> str:
    """The whole page. Names come from records and are escaped."""
    title, *lines = remarks.title_lines(report)
    return stand_alone(
        title,
        f"fleet report · {listed([short(name) for name in report.clusters])}",
        "Skip to the report",
        tag("h1", title, class_="all"),
        tag("section", *(tag("p", line) for line in lines), class_="remarks"),
        _over_time(report),
        *(_category(category, list(rows)) for category, rows in groupby(report.rates, key=lambda row: row.category)),
        _unknown(report),
        *_sections(report),
    )


def _card(title: str, *children: Child) -> Html:
    return tag("section", tag("h2", title), *children, class_="remarks report")


def _over_time(report: FleetReport) -> Html | None:
    drawn = plots.shares_plot(report.shares)
    if drawn is None:
        return None
    return _card("Interruptions by class over time", _figure(drawn, plots.legend(report)))


def _category(category: Category, rows: Sequence[RateRow]) -> Html:
    total = rows[0]
    parts: list[Child] = [_tiles(total), *(tag("p", line, class_="quiet") for line in remarks.counted_lines(total))]
    for by, of_one in groupby(rows[1:], key=lambda row: row.by):
        shown = list(of_one)
        if by == "cluster" and len(shown) == 1:
            continue
        parts.append(tag("h3", f"By {HEADS[by]}"))
        parts.append(_figure(plots.forest(shown, total)) if len(shown) > 1 else None)
        parts.append(_table(rate_columns(HEADS[by], shown[:MOST_ROWS]), f"Rates by {HEADS[by]}"))
        parts.append(_more(len(shown) - MOST_ROWS))
    if any(row.interval != "Garwood" for row in rows):
        parts.append(tag("p", remarks.CLUSTERED, class_="quiet"))
    return _card(f"{remarks.CATEGORY_WORDS[category]}: {counted(total.n, 'failure')}", *parts)


def _tiles(total: RateRow) -> Html:
    unit = remarks.UNIT_WORDS[total.unit_kind]
    tiles = [_tile(total.rate, f"per 1,000 {unit}-days", "")]
    tiles.append(_tile(total.system_mtbf_hours, "MTBF of the system (wall clock)", " h"))
    if total.node_mtbf_hours:
        tiles.append(_tile(total.node_mtbf_hours, "MTBF of a node (node-hours)", " h"))
    if total.gpu_mtbf_hours:
        tiles.append(_tile(total.gpu_mtbf_hours, "MTBF of a GPU (GPU-hours)", " h"))
    tiles.append((numbers.number(total.dispersion), "dispersion D (1: as by chance)", ""))
    tiles.append((numbers.percent(total.top_1_share), "on the worst unit", short(total.top_unit)))
    tiles.append((numbers.percent(total.top_10_share), "on the ten worst", ""))
    tiles.append((numbers.percent(total.unobserved_share), "of the time unobserved", ""))
    return tag(
        "ul",
        *(
            tag("li", tag("b", said), tag("span", name), tag("small", more))
            for said, name, more in tiles
            if said != numbers.UNKNOWN
        ),
        class_="tiles",
    )


def _tile(found: Estimate, name: str, unit: str) -> tuple[str, str, str]:
    said, _, bounds = numbers.estimate(found).partition(" [")
    return f"{said}{unit}", name, f"[{bounds}" if bounds else ""


def _unknown(report: FleetReport) -> Html | None:
    lines = remarks.unknown_lines(report)
    return tag("section", *(tag("p", line) for line in lines), class_="remarks") if lines else None


def _sections(report: FleetReport) -> Iterator[Html]:
    drawn = {section.title: _drawn(section, report) for section in sections_of(report)}
    for section in sections_of(report):
        yield _card(
            section.title,
            *(tag("p", line) for line in section.above),
            drawn[section.title],
            _table(section.columns, section.title),
            _more(section.left_out),
            *(tag("p", line, class_="quiet") for line in section.below),
        )


def _drawn(section: Section, report: FleetReport) -> Html | None:
    for found in report.survival:
        if section.title == remarks.survival_title(found):
            return _survival(found)
    if section.title == remarks.JOBS_TITLE and (law := plots.law_plot(report.jobs.rows)) is not None:
        return _figure(law, plots.line_legend([("interval", "measured, with its interval"), ("law", "predicted: 1/N")]))
    return None


def _survival(found: Survival) -> Html | None:
    drawn = plots.survival_plot(found)
    lines = [("measured", "Kaplan-Meier, with its band")]
    if found.weibull_shape:
        lines.append(("weibull", "Weibull"))
    if found.exponential_mttf_hours:
        lines.append(("exponential", "exponential (a constant rate)"))
    return _figure(drawn, plots.line_legend(lines))


def _figure(drawn: Html | None, caption: Html | None = None) -> Html | None:
    if drawn is None:
        return None
    said = tag("figcaption", caption) if caption else None
    return tag("figure", tag("div", drawn, class_="scroll", tabindex=0), said)


def _table(columns: Sequence[Column], name: str) -> Html | None:
    if not columns or not columns[0].cells:
        return None
    heads = [tag("th", column.head, scope="col", class_=_side(column, n)) for n, column in enumerate(columns)]
    body = [
        tag(
            "tr",
            *(
                tag("td" if n else "th", column.cells[row], class_=_side(column, n), scope=None if n else "row")
                for n, column in enumerate(columns)
            ),
        )
        for row in range(len(columns[0].cells))
    ]
    table = tag("table", tag("caption", name), tag("thead", tag("tr", *heads)), tag("tbody", *body), class_="figures")
    return tag("div", table, class_="scroll", tabindex=0)


def _side(column: Column, place: int) -> str | None:
    return None if column.is_text or place == 0 else "number"


def _more(rest: int) -> Html | None:
    return tag("p", f"… and {rest:,} more; rootrank mtbf --json has all", class_="quiet") if rest > 0 else None
