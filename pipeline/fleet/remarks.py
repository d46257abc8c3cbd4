"""What a fleet report says in sentences, the same in a terminal and on a page."""

from collections.abc import Sequence
from typing import Final

from pipeline.core.fleet.answers import Estimate, FleetReport, RateRow, SensitivityRow, Survival
from pipeline.core.fleet.records import Category, ExposureKind, UnitKind
from pipeline.fleet import numbers
from pipeline.fleet.tables import Column
from pipeline.report.words import counted, listed, short

CATEGORY_WORDS: Final[dict[Category, str]] = {
    "infrastructure": "Infrastructure",
    "planned": "Planned",
    "user_code": "User code",
    "unknown": "Cause not known",
}
LOST_WORDS: Final[dict[Category, str]] = {
    "infrastructure": "infrastructure",
    "planned": "what was planned",
    "user_code": "user code",
    "unknown": "causes not known",
}
KIND_WORDS: Final[dict[ExposureKind, str]] = {
    "installed": "installed",
    "in_service": "in service",
    "busy": "busy (inside jobs)",
    "observed": "observed (in service, and an agent told of it)",
}
UNIT_WORDS: Final[dict[UnitKind, str]] = {"node": "node", "gpu": "GPU"}
_ANY: Final = "unit"
JOBS_TITLE: Final = "Jobs by size (infrastructure failures)"
# What failures are told apart by and units are not: without a failure there is none.
OF_FAILURES: Final = frozenset({"component", "class"})
CLUSTERED: Final = (
    "* they cluster on few units (dispersion D above 1.5): the interval is wider than the exact one, from "
    "resampling whole units."
)
NOTHING_AT_RISK: Final = (
    "No unit was at risk, so there are no rates: say which units there were on these days (rootrank import), then "
    "build the days again (rootrank rollup). What was known and could not be used stands under data quality."
)


def title_lines(report: FleetReport) -> list[str]:
    """What the report is of."""
    days = report.window_hours / 24
    issued = f", as of {report.as_of}" if report.as_of else ""
    of_run = "" if report.run == "live" else f", run {report.run}"
    hours = report.node_hours if report.node_hours["in_service"] else report.gpu_hours
    served = hours["in_service"]
    unobserved = numbers.percent(max(0.0, 1 - hours["observed"] / served) if served else None)
    lines = [
        f"Fleet report, {report.from_} to {report.to} ({counted(round(days), 'day')}, UTC){issued}{of_run}",
        f"{listed([short(name) for name in report.clusters]) or 'no cluster'}: "
        f"{counted(report.nodes, 'node')}, {counted(report.gpus, 'GPU')}. "
        f"Time at risk: {KIND_WORDS[report.exposure_kind]}; intervals {100 * report.level:.0f} %; "
        f"{unobserved} of the time in service nobody observed, so failures may be missing there.",
        f"Node-hours: {_hours(report.node_hours)}.",
        f"GPU-hours: {_hours(report.gpu_hours)}.",
    ]
    if report.unknown_share is not None:
        lines.append(f"Of all interruptions the cause is not known for {numbers.percent(report.unknown_share)}.")
    if not any((*report.node_hours.values(), *report.gpu_hours.values())):
        lines.append(NOTHING_AT_RISK)
    return lines


def _hours(hours: dict[ExposureKind, float]) -> str:
    return ", ".join(f"{kind.replace('_', ' ')} {numbers.whole(hours[kind])}" for kind in hours)


def total_lines(total: RateRow) -> list[str]:
    """The rate of a category with its three denominators and with all that says whether to trust it."""
    return [
        f"{rate(total)} per 1,000 {UNIT_WORDS[total.unit_kind]}-days",
        f"MTBF, three denominators: {_mtbf(total)}",
        f"dispersion D {numbers.number(total.dispersion)}; top 1 {numbers.percent(total.top_1_share)}"
        f"{f' ({short(total.top_unit)})' if total.top_unit else ''}, top 10 {numbers.percent(total.top_10_share)}; "
        f"unobserved {numbers.percent(total.unobserved_share)}",
        *counted_lines(total),
    ]


def counted_lines(total: RateRow) -> list[str]:
    """What was counted over which time, and what could not be."""
    unit = UNIT_WORDS[total.unit_kind]
    lines = [
        f"n {total.n:,} over {numbers.whole(total.exposure_hours / 24)} {unit}-days "
        f"{KIND_WORDS[total.exposure_kind]} of {counted(total.units, unit)}; blamed on no unit: {total.nobody:,}"
    ]
    if total.uncounted:
        lines.append(f"{counted(total.uncounted, 'failure')} on units that were not at risk: not counted")
    return lines


def of_one_kind(rows: Sequence[RateRow | SensitivityRow]) -> str:
    """What the units of rates are called; `unit` where some rates are of nodes and some of GPUs."""
    kinds = {row.unit_kind for row in rows}
    return UNIT_WORDS[kinds.pop()] if len(kinds) == 1 else _ANY


def kind_columns(rows: Sequence[RateRow | SensitivityRow]) -> list[Column]:
    """Which units each rate is of, where not all are of the same."""
    cells = [UNIT_WORDS[row.unit_kind] for row in rows]
    return [Column(head=_ANY, cells=cells, is_text=True)] if of_one_kind(rows) == _ANY else []


def exposed_line(rows: Sequence[SensitivityRow]) -> str:
    """Over which time episodes are counted."""
    over = {
        row.unit_kind: f"{numbers.whole(row.exposure_hours / 24)} {UNIT_WORDS[row.unit_kind]}-days "
        f"({numbers.percent(row.unobserved_share)} unobserved)"
        for row in rows
    }
    return f"Over {listed(list(over.values()))}, {KIND_WORDS[rows[0].exposure_kind]}."


def rate(row: RateRow | SensitivityRow) -> str:
    """A rate with its interval, marked where that was widened."""
    return f"{numbers.estimate(row.rate)}{_mark(row)}"


def _mark(total: RateRow | SensitivityRow) -> str:
    return "*" if total.interval != "Garwood" else ""


def unknown_lines(report: FleetReport) -> list[str]:
    """By what no rate can be given."""
    missing = [by for by in report.by if by not in OF_FAILURES and not any(row.by == by for row in report.rates)]
    return [f"No rates by {listed(missing)}: nothing imported says it of any unit."] if missing else []


def _mtbf(total: RateRow) -> str:
    parts = [f"system (wall clock) {hours(total.system_mtbf_hours)}"]
    if total.node_mtbf_hours:
        parts.append(f"node (node-hours) {hours(total.node_mtbf_hours)}")
    if total.gpu_mtbf_hours:
        parts.append(f"GPU (GPU-hours) {hours(total.gpu_mtbf_hours)}")
    return "; ".join(parts)


def hours(found: Estimate) -> str:
    """Hours with their interval; the bound alone where nothing failed."""
    said = numbers.estimate(found)
    return said if said == numbers.UNKNOWN else said.replace(" [", " h [") if "[" in said else f"{said} h"


def survival_title(found: Survival) -> str:
    """What the section is called."""
    return f"Time to the first failure of a {UNIT_WORDS[found.unit_kind]}"


def survival_lines(found: Survival) -> list[str]:
    """The curve in a sentence, and whether a constant rate describes it."""
    unit = UNIT_WORDS[found.unit_kind]
    lines = [
        f"{counted(found.units, unit)}, of which {found.failed:,} failed in the window (earlier failures are not "
        f"looked at), the others censored; time since "
        f"{'they were installed' if found.clock == 'age' else 'the begin of the window'}"
    ]
    if found.from_hours:
        lines.append(f"From the age of {numbers.hours(found.from_hours)} on: too few were seen younger")
    median = "not reached" if found.median_hours is None else numbers.hours(found.median_hours)
    lines.append(
        f"Median {median}; mean of the first {numbers.hours(found.horizon_hours - found.from_hours)}: "
        f"{numbers.hours(found.restricted_mean_hours)}{' after that age' if found.from_hours else ''}"
    )
    if found.weibull_shape is not None and found.weibull_scale_hours is not None:
        lines.append(
            f"Weibull: scale {numbers.hours(found.weibull_scale_hours)}, shape {numbers.number(found.weibull_shape)}; "
            f"exponential: MTTF {numbers.hours(found.exponential_mttf_hours)}"
        )
    if found.exponential_is_wrong:
        lines.append(f"Warning: a constant rate is wrong here, do not use {unit}-hours by failures. {found.why}")
    return lines
