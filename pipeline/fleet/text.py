"""A fleet report for a terminal."""

from collections.abc import Iterable, Iterator, Sequence
from itertools import groupby
from textwrap import wrap
from typing import Final

from pipeline.core.fleet.answers import Estimate, FleetReport, RateRow
from pipeline.core.fleet.records import Category
from pipeline.fleet import numbers, remarks
from pipeline.fleet.section import Section
from pipeline.fleet.sections import sections_of
from pipeline.fleet.tables import Column, painted, table_lines
from pipeline.report.words import counted, short

MOST_ROWS: Final = 12
HEADS: Final = {
    "cluster": "cluster", "sku": "SKU", "driver": "driver", "rack": "rack", "position": "position",
    "firmware": "firmware", "batch": "batch", "component": "component", "class": "class",
}  # fmt: skip


def render_report(report: FleetReport, *, width: int = 80, color: bool = False) -> str:
    """The whole report. Names come from records: control characters are spelled out."""
    return "".join(f"{line.rstrip()}\n" for line in _lines(report, width, color))


def _lines(report: FleetReport, width: int, color: bool) -> Iterator[str]:
    for number, line in enumerate(remarks.title_lines(report)):
        yield from (painted(part, "bold" if number == 0 else "", color) for part in wrap(line, width))
    for category, rows in groupby(report.rates, key=lambda row: row.category):
        yield from _category(category, list(rows), width, color)
    for line in remarks.unknown_lines(report):
        yield ""
        yield from wrap(line, width)
    for section in sections_of(report):
        yield from _section(section, width, color)


def _category(category: Category, rows: Sequence[RateRow], width: int, color: bool) -> Iterator[str]:
    total = rows[0]
    yield ""
    yield painted(f"{remarks.CATEGORY_WORDS[category].upper()}  {counted(total.n, 'failure')}", "bold", color)
    for line in remarks.total_lines(total):
        yield from wrap(line, width - 2, initial_indent="  ", subsequent_indent="    ")
    for by, of_one in groupby(rows[1:], key=lambda row: row.by):
        shown = list(of_one)
        if by == "cluster" and len(shown) == 1:
            continue
        yield ""
        yield from table_lines(rate_columns(HEADS[by], shown[:MOST_ROWS]), width, color=color)
        yield from _more(len(shown) - MOST_ROWS)
    if any(row.interval != "Garwood" for row in rows):
        yield from wrap(remarks.CLUSTERED, width)


def _more(rest: int) -> Iterator[str]:
    if rest > 0:
        yield f"… and {rest:,} more; --json has all"


def rate_columns(head: str, rows: Sequence[RateRow]) -> list[Column]:
    """What is said of each rate, from the most to the least needed."""
    kind = remarks.of_one_kind(rows)
    return [
        Column(head=head, cells=[short(row.value) or "not known" for row in rows], is_text=True),
        *remarks.kind_columns(rows),
        Column(head="n", cells=[f"{row.n:,}" for row in rows]),
        Column(head=f"{kind}-days", cells=[numbers.whole(row.exposure_hours / 24) for row in rows], rank=3),
        Column(head=f"per 1,000 {kind}-days", cells=[remarks.rate(row) for row in rows]),
        Column(head="MTBF system, h", cells=[_center(row.system_mtbf_hours) for row in rows], rank=8),
        Column(head="node, h", cells=[_center(row.node_mtbf_hours) for row in rows], rank=6),
        Column(head="GPU, h", cells=[_center(row.gpu_mtbf_hours) for row in rows], rank=7),
        Column(head="D", cells=[numbers.number(row.dispersion) for row in rows], rank=1),
        Column(head="top 1", cells=[numbers.percent(row.top_1_share) for row in rows], rank=2),
        Column(head="top 10", cells=[numbers.percent(row.top_10_share) for row in rows], rank=9),
        Column(head="unobserved", cells=[numbers.percent(row.unobserved_share) for row in rows], rank=4),
    ]


def _center(found: Estimate | None) -> str:
    if found is None or (found.value is None and found.lo is None):
        return numbers.UNKNOWN
    return f"> {numbers.number(found.lo)}" if found.value is None else numbers.number(found.value)


def _section(section: Section, width: int, color: bool) -> Iterator[str]:
    yield ""
    yield painted(section.title.upper(), "bold", color)
    yield from _wrapped(section.above, width)
    if section.columns and section.columns[0].cells:
        yield from table_lines(section.columns, width, color=color)
    yield from _more(section.left_out)
    yield from _wrapped(section.below, width)


def _wrapped(lines: Iterable[str], width: int) -> Iterator[str]:
    for line in lines:
        yield from wrap(line, width, subsequent_indent="  ")
