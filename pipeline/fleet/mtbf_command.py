"""`rootrank mtbf`."""

import sys
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import datetime, timedelta
from pathlib import Path
from typing import Annotated, Final

import msgspec
import typer
from msgspec.structs import replace

from pipeline.core.fleet.answers import FleetReport
from pipeline.core.fleet.jobs import Saving
from pipeline.core.fleet.rates import How
from pipeline.core.fleet.report import DEFAULT_BY, Options, fleet_report
from pipeline.core.fleet.restated import restatements
from pipeline.fleet import asked
from pipeline.fleet.load import NothingBuiltError, SeveralRunsError, Window, last_built_day, load_changes, load_fleet
from pipeline.fleet.page import render_page
from pipeline.fleet.restated_text import render_restatements
from pipeline.fleet.sightings import load_propagation
from pipeline.fleet.text import render_report
from pipeline.report import look_of
from pipeline.report.words import visible
from pipeline.store.clickhouse import Store, reading_settings
from pipeline.store.commands import (
    EXIT_PROBLEM,
    EXIT_UNREACHABLE,
    EXIT_USAGE,
    PasswordFile,
    Url,
    errors_as_exits,
    exit_with,
)
from pipeline.store.queries import STORED_RUNS
from pipeline.store.settings import DEFAULT_URL, settings_from_url
from pipeline.store.tables_text import printable_json

DEFAULT_LAST: Final = "90d"


def mtbf(
    *,
    first: Annotated[str, typer.Option("--from", help="First UTC day, as 2026-03-01.")] = "",
    last_day: Annotated[str, typer.Option("--to", help="Last UTC day, counted too; default: the newest built.")] = "",
    last: Annotated[str, typer.Option("--last", help="So long until --to, as 90d or 12w.")] = DEFAULT_LAST,
    by: Annotated[
        str, typer.Option(help=f"Rates by {', '.join(name for name in asked.BYS if name != 'all')}; several by comma.")
    ] = ",".join(DEFAULT_BY),
    exposure: Annotated[str, typer.Option(help="Time at risk: installed, in_service, busy, observed.")] = "in_service",
    as_of: Annotated[
        str, typer.Option(help="As it stood then: a day (its end) or a moment. Without what follows what.")
    ] = "",
    restated_since: Annotated[
        str, typer.Option(help="Print each figure that differs from a report issued then, with the reason.")
    ] = "",
    cluster: Annotated[str, typer.Option(help="Only this cluster.")] = "",
    run: Annotated[str, typer.Option(help=f"{', '.join(STORED_RUNS[:-1])} or {STORED_RUNS[-1]}.")] = "live",
    run_id: Annotated[str, typer.Option("--run-id", help="Which one, where there are several of that kind.")] = "",
    checkpoint_write: Annotated[float, typer.Option(help="Seconds that a save blocks training.", min=0.001)] = 60.0,
    restart: Annotated[float, typer.Option(help="Seconds from an interruption to the first step.", min=0.0)] = 300.0,
    as_json: Annotated[bool, typer.Option("--json", help="Print one JSON object with every row.")] = False,
    html: Annotated[Path | None, typer.Option(help="Write a page that stands alone, with plots.")] = None,
    clickhouse_url: Url = DEFAULT_URL,
    password_file: PasswordFile = None,
) -> None:
    """Report how often a fleet fails: rates with their intervals, MTBF, survival, repairs, jobs, lemons, costs.

    Infrastructure, planned, user code and unknown are never in one figure. Each rate has its count, its time at risk
    and the kind of it, a 95 % interval, the dispersion D (above 1.5 the interval is wider, marked *), the share of the
    worst unit, and the share of time that nobody observed.

    What it needs: units (`rootrank import`), days (`rootrank rollup`). Exit code 2: usage, or nothing to report of.

    \b
    Examples:
      rootrank mtbf
      rootrank mtbf --last 28d --by sku,driver
      rootrank mtbf --from 2026-01-01 --to 2026-03-31 --html q1.html
      rootrank mtbf --as-of 2026-04-01 --json
      rootrank mtbf --from 2026-01-01 --to 2026-03-31 --restated-since 2026-04-01
    """  # noqa: D301 - \b keeps the lines of an example apart
    until, since = asked.moment("--as-of", as_of), asked.moment("--restated-since", restated_since)
    options = Options(
        by=asked.properties(by),
        how=How(exposure=asked.exposure(exposure)),
        saving=Saving(write_s=checkpoint_write, restart_s=restart),
        as_of=as_of,
        run=f"{asked.run(run)} {run_id}".rstrip(),
    )
    begin, end = asked.day("--from", first), asked.day("--to", last_day)
    length = asked.days(last)
    with _said(), errors_as_exits():
        store = Store(reading_settings(settings_from_url(clickhouse_url, password_file=password_file)))
        final = end or last_built_day(store, run=run, run_id=run_id, cluster=cluster, as_of=until)
        start = begin or final - timedelta(days=length - 1)
        if start > final:
            exit_with(f"--to {final} is before --from {start}", EXIT_USAGE)
        window = Window(first=start, last=final, run=run, run_id=run_id, cluster=cluster, as_of=until)
        if restated_since:
            _print_restated(store, window, options, since, as_json=as_json)
            return
        report = _report(store, window, options)
    _show(report, as_json=as_json, html=html)


def _report(store: Store, window: Window, options: Options) -> FleetReport:
    """Errors are not kept as they were known: a report of the past says nothing of what follows what."""
    fleet = load_fleet(store, window)
    following, cut = ([], []) if options.as_of else load_propagation(store, window)
    return fleet_report(replace(fleet, defects=[*fleet.defects, *cut]), options, following)


def _show(report: FleetReport, *, as_json: bool, html: Path | None) -> None:
    if html is not None:
        _write(html, render_page(report))
    if as_json:
        typer.echo(printable_json(msgspec.json.format(msgspec.json.encode(report), indent=2)))
    elif html is None:
        look = look_of(sys.stdout)
        typer.echo(render_report(report, width=look.width, color=look.color), nl=False)


@contextmanager
def _said() -> Iterator[None]:
    try:
        yield
    except (NothingBuiltError, SeveralRunsError) as error:
        exit_with(str(error), EXIT_USAGE)


def _print_restated(store: Store, window: Window, options: Options, since: datetime, *, as_json: bool) -> None:
    """Exit code 1 where a figure differs."""
    before, after = load_fleet(store, replace(window, as_of=since)), load_fleet(store, window)
    old, new = fleet_report(before, options), fleet_report(after, options)
    found = restatements(old, new, before, after, load_changes(store, window, since))
    if as_json:
        typer.echo(printable_json(msgspec.json.format(msgspec.json.encode(found), indent=2)))
    else:
        look = look_of(sys.stdout)
        typer.echo(render_restatements(found, width=look.width, color=look.color), nl=False)
    if found:
        raise typer.Exit(EXIT_PROBLEM)


def _write(path: Path, page: str) -> None:
    try:
        path.write_text(page, encoding="utf-8")
    except OSError as error:
        exit_with(f"cannot write {path}: {error.strerror}", EXIT_UNREACHABLE)
    typer.echo(f"rootrank: wrote {visible(str(path))}", err=True)
