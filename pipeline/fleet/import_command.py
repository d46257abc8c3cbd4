"""`rootrank import`."""

import shlex
import sys
import time
from datetime import date, tzinfo
from enum import StrEnum
from pathlib import Path
from typing import Annotated, Final

import msgspec
import typer
from msgspec import Struct

from pipeline.core.fleet.days import day_of
from pipeline.core.fleet.defects import when
from pipeline.core.fleet.imports.told import ImportFormatError, Told
from pipeline.fleet.importing import Origin, parse, write, zone_of
from pipeline.fleet.rollup import yesterday
from pipeline.store.commands import (
    EXIT_PROBLEM,
    EXIT_UNREACHABLE,
    EXIT_USAGE,
    AsJson,
    PasswordFile,
    Url,
    errors_as_exits,
    exit_with,
)
from pipeline.store.queries import STORED_RUNS
from pipeline.store.settings import DEFAULT_URL, settings_from_url
from pipeline.store.tables_text import printable, printable_json

SHOWN_DEFECTS: Final = 10


class Form(StrEnum):
    """Who wrote the file."""

    SLURM = "slurm"
    KUBERNETES = "kubernetes"
    CSV = "csv"


class ImportReport(Struct, frozen=True, kw_only=True):
    """What an import has read. `first` and `last` are UTC; `generation_ms` is 0 where nothing was written."""

    form: str
    source: str
    run: str
    run_id: str
    cluster: str
    zone: str
    spans: int
    units: int
    attempts: int
    first: str
    last: str
    defects: dict[str, int]
    skipped: dict[str, int]
    generation_ms: int


def import_file(
    form: Annotated[Form, typer.Argument(help="Who wrote the file.", metavar="slurm|kubernetes|csv")],
    file: Annotated[Path, typer.Argument(help="The file; `-` reads standard input (then give --source).")],
    *,
    cluster: Annotated[str, typer.Option(help="The cluster it tells of.")],
    zone: Annotated[str, typer.Option(help="Zone of stamps that have none: Europe/Berlin, +01:00.")] = "",
    source: Annotated[str, typer.Option(help="Name of the source; default: the file as given.")] = "",
    run: Annotated[str, typer.Option(help=f"{', '.join(STORED_RUNS[:-1])} or {STORED_RUNS[-1]}.")] = "live",
    run_id: Annotated[
        str, typer.Option("--run-id", help="Which replay or drill, as `rootrank replay` prints it.")
    ] = "",
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Only read the file and say what it tells.")] = False,
    as_json: AsJson = False,
    clickhouse_url: Url = DEFAULT_URL,
    password_file: PasswordFile = None,
) -> None:
    """Import inventory, drains, repairs and jobs, so that rates have their time at risk.

    A source that is imported again replaces what it told before: a file imported twice counts once. What cannot be
    used is named in the table data_quality with its line. Nodes of Slurm count as installed from their first job to
    their last, those of Kubernetes up to the snapshot (import one every day, each under its own name), until an
    inventory (csv) tells better. Slurm's stamps are local: give --zone (default: UTC). What to write into the csv for a
    swap, a driver upgrade or a drain: docs/mtbf.md, with an example.

    \b
    slurm       sacct -a -D -X --parsable2 -S 2026-03-01 --format=\\
                  JobID,JobIDRaw,User,Submit,Eligible,Start,End,ElapsedRaw,State,NodeList,AllocTRES,Restarts
    kubernetes  kubectl get nodes,pods,events -A -o json
    csv         unit_kind,unit,node,kind,from,to,sku,rack,position,driver,firmware,batch,pci_bus_id,leaf_switch,
                  action,outcome,ticket
                the first line names the columns, in any order; needed are unit_kind, unit, kind, from, and the node of
                an installed GPU. unit_kind gpu or node; kind installed, facts, drain, repair, maintenance, upgrade,
                boot, reset, busy or observed; from and to ISO 8601 with an offset, to empty: still; action reset,
                reboot, reseat, swap, none_found. pci_bus_id: error lines that name no UUID find their GPU by it

    \b
    Examples:
      rootrank import csv inventory.csv --cluster c1 --dry-run
      rootrank import slurm sacct-2026-03.txt --cluster c1 --zone Europe/Berlin
      kubectl get nodes,pods,events -A -o json | rootrank import kubernetes - --source k8s-2026-03-31 --cluster c1
    """  # noqa: D301 - \b keeps the lines of an example apart
    if run not in STORED_RUNS:
        exit_with(f"--run {run}: it is one of {', '.join(STORED_RUNS)}", EXIT_USAGE)
    if run != "live" and not run_id:
        exit_with(f"which {run}? Give --run-id, as `rootrank {run}` printed it", EXIT_USAGE)
    if not cluster.strip():
        exit_with("--cluster must name one: an empty name stands for all of them elsewhere", EXIT_USAGE)
    if str(file) == "-" and not source:
        exit_with("standard input has no name: give --source, the same one for the same data", EXIT_USAGE)
    origin = Origin(run=run, run_id=run_id or run, cluster=cluster, source=source or str(file))
    # Names that are not UTF-8 stay apart: their bytes are written out. In JSON those are in no name that counts.
    unreadable = "replace" if form is Form.KUBERNETES else "backslashreplace"
    told = _parsed(form, _text(file, unreadable), origin, _zone(zone))
    now_ms = time.time_ns() // 1_000_000
    has_any = bool(told.spans or told.attempts)
    if has_any and not dry_run:
        from pipeline.store.clickhouse import Store

        with errors_as_exits():
            write(Store(settings_from_url(clickhouse_url, password_file=password_file)), origin, told, now_ms)
    is_written = has_any and not dry_run
    report = _report(form, origin, told, zone or ("UTC" if form is Form.SLURM else ""), now_ms if is_written else 0)
    if as_json:
        typer.echo(printable_json(msgspec.json.encode(report)))
    else:
        _show(report, told, yesterday(now_ms))
    if not has_any:
        exit_with("there is nothing to import in it; what was imported before of this source stands", EXIT_PROBLEM)


def _text(file: Path, unreadable: str) -> str:
    try:
        data = sys.stdin.buffer.read() if str(file) == "-" else file.read_bytes()
    except OSError as error:
        exit_with(f"cannot read {file}: {error.strerror}", EXIT_UNREACHABLE)
    return data.decode("utf-8-sig", errors=unreadable)


def _zone(name: str) -> tzinfo | None:
    if not name:
        return None
    try:
        return zone_of(name)
    except ValueError as error:
        exit_with(f"--zone {error}", EXIT_USAGE)


def _parsed(form: Form, text: str, origin: Origin, zone: tzinfo | None) -> Told:
    try:
        return parse(form.value, text, origin, zone)
    except ImportFormatError as error:
        exit_with(f"{origin.source}: {error}", EXIT_USAGE)


def _report(form: Form, origin: Origin, told: Told, zone: str, generation_ms: int) -> ImportReport:
    times = told.range_ns()
    return ImportReport(
        form=form.value, source=origin.source, run=origin.run, run_id=origin.run_id, cluster=origin.cluster, zone=zone,
        spans=len(told.spans),
        units=len({(span.unit_kind, span.unit) for span in told.spans}), attempts=len(told.attempts),
        first=when(times[0]) if times else "", last=when(times[1]) if times else "", defects=told.by_kind(),
        skipped=told.skipped, generation_ms=generation_ms,
    )  # fmt: skip


def _show(report: ImportReport, told: Told, last_day: date) -> None:
    lines = [
        f"{report.source} tells {report.spans} spans of {report.units} units and {report.attempts} job attempts"
        + (f", {report.first} to {report.last}" if report.first else "")
    ]
    if report.zone:
        lines.append(f"stamps without a zone were taken as {report.zone}")
    lines += [f"left out: {count} {what}" for what, count in report.skipped.items()]
    lines += [f"doubts: {count} {kind}" for kind, count in report.defects.items()]
    lines += [f"  line {d.row}: {d.unit or '-'}: {d.detail}" for d in told.defects[:SHOWN_DEFECTS]]
    if len(told.defects) > SHOWN_DEFECTS:
        lines.append(f"  and {len(told.defects) - SHOWN_DEFECTS} more (table data_quality)")
    if report.generation_ms:
        lines.append("written; what this source told before no longer counts. Next, build the days that it changes:")
        lines.append(f"  {_next(report, told, last_day)}")
    elif report.spans or report.attempts:
        lines.append("nothing was written")
    for line in lines:
        typer.echo(printable(line))


def _next(report: ImportReport, told: Told, last_day: date) -> str:
    """The command that builds the days which the file tells of, up to the last that is over."""
    begin_ns, end_ns = told.range_ns() or (0, 0)
    goes_on = any(span.to_ns is None for span in told.spans) or any(a.to_ns is None for a in told.attempts)
    last = last_day if goes_on else min(day_of(end_ns), last_day)
    cluster, why = shlex.quote(report.cluster), shlex.quote(f"import of {report.source}")
    of_run = "" if report.run == "live" else f" --run {report.run} --run-id {shlex.quote(report.run_id)}"
    return f"rootrank rollup{of_run} --cluster {cluster} --from {day_of(begin_ns)} --to {last} --why {why}"
