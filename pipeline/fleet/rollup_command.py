"""`rootrank rollup`."""

import time
from datetime import date
from typing import Annotated

import msgspec
import typer

from pipeline.fleet import asked
from pipeline.fleet.day_rows import Build
from pipeline.fleet.rollup import Built, Rules, build_day, clusters, days_between, yesterday
from pipeline.report.words import counted
from pipeline.rules import load_rules
from pipeline.store.commands import (
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


def rollup(
    *,
    day: Annotated[str, typer.Option(help="One UTC day, as 2026-03-31; default: the last one that is over.")] = "",
    first: Annotated[str, typer.Option("--from", help="The first of several days.")] = "",
    last: Annotated[str, typer.Option("--to", help="The last of several days, which is built too.")] = "",
    cluster: Annotated[str, typer.Option(help="Only this cluster.")] = "",
    run: Annotated[str, typer.Option(help=f"{', '.join(STORED_RUNS[:-1])} or {STORED_RUNS[-1]}.")] = "live",
    run_id: Annotated[str, typer.Option("--run-id", help="Only this replay or drill.")] = "",
    why: Annotated[str, typer.Option(help="Why it is built; restatements print it.")] = "late data",
    as_json: AsJson = False,
    clickhouse_url: Url = DEFAULT_URL,
    password_file: PasswordFile = None,
) -> None:
    """Build the days that rates are made of: time at risk, episodes, failures, and a list of what cannot be true.

    Build a day once it is over and its late lines are in, and again whenever older data came in (an import, a
    correction): the newest build of a day counts, older ones are kept for `--as-of`. Nothing is changed by building a
    day again of the same data.

    \b
    Examples:
      rootrank rollup
      rootrank rollup --from 2026-03-01 --to 2026-03-31 --why "drains imported"
      rootrank rollup --day 2026-03-31 --cluster c1 --json
    """  # noqa: D301 - \b keeps the lines of an example apart
    from pipeline.store.clickhouse import Store

    days = _days(day, first, last, _now_ms())
    if run not in STORED_RUNS:
        exit_with(f"--run {run}: it is one of {', '.join(STORED_RUNS)}", EXIT_USAGE)
    rules = load_rules()
    with errors_as_exits():
        store = Store(settings_from_url(clickhouse_url, password_file=password_file))
        found = clusters(store, run, run_id, cluster)
        if not found:
            of = f" of cluster {cluster}" if cluster else ""
            exit_with(
                f"nothing is told of any unit{of} in run {run}. Say which units there were: `rootrank import csv FILE "
                f"--cluster NAME`, or slurm or kubernetes for csv",
                EXIT_USAGE,
            )
        for run_id, name in found:
            for one in days:
                # Of its own moment: a report that is issued while others are still being built can be made again.
                build = Build(run=run, run_id=run_id, cluster=name, day=one, built_at_ms=_now_ms())
                built = build_day(store, build, Rules(coalescing=rules.coalescing, digest=rules.digest), why)
                typer.echo(printable_json(msgspec.json.encode(built)) if as_json else _line(built))


def _now_ms() -> int:
    return time.time_ns() // 1_000_000


def _days(day: str, first: str, last: str, now_ms: int) -> list[date]:
    if day and (first or last):
        exit_with("give --day or --from and --to, not both", EXIT_USAGE)
    begin = _date(day or first or last, now_ms)
    end = _date(day or last or first, now_ms)
    if end < begin:
        exit_with(f"--to {end} is before --from {begin}", EXIT_USAGE)
    # Of a day that is not over, time at risk that nobody has lived through yet would count as free of failures.
    if end > (over := yesterday(now_ms)):
        exit_with(f"{end} is not over; the last day that is: {over} (UTC)", EXIT_USAGE)
    return days_between(begin, end)


def _date(text: str, now_ms: int) -> date:
    if not text:
        return yesterday(now_ms)
    try:
        found = date.fromisoformat(text)
    except ValueError:
        exit_with(f"{text!r} is not a day; write it as 2026-03-31", EXIT_USAGE)
    return asked.possible("day", found)


def _line(built: Built) -> str:
    return printable(
        f"{built.day} {built.cluster}: {counted(built.units, 'unit')}, {built.installed_hours:,.1f} GPU-hours "
        f"installed, {counted(built.episodes, 'episode')}, {counted(built.failures, 'failure')}, "
        f"{counted(built.defects, 'doubt')}{' (table data_quality)' if built.defects else ''}"
    )
