"""`rootrank rebuild`: old lines read with today's signals and rules, compared, and put in place where told to."""

import sys
import time
from datetime import UTC, date, datetime
from enum import StrEnum
from typing import Annotated, Any, Final

import msgspec
import orjson
import typer

from pipeline.core.fleet.rebuilt import Comparison, IncidentChange, NameCount
from pipeline.fleet.rebuild import Scope, begun, scope_of, window_of
from pipeline.fleet.rebuild_journal import settle
from pipeline.store.clickhouse import Store
from pipeline.store.commands import AsJson, PasswordFile, Url, errors_as_exits
from pipeline.store.settings import DEFAULT_URL, settings_from_url
from pipeline.store.tables_text import printable, printable_json

SHOWN: Final = 40
EXIT_INTERRUPTED: Final = 130
_INTERRUPTED: Final = (
    "interrupted: what was made is dropped; what was already being put in place is brought to its end by the next run"
)
_CLEAR: Final = "\r\x1b[K"


class Origin(StrEnum):
    """What to rebuild from."""

    RAW = "raw"


def rebuild(
    *,
    source: Annotated[Origin, typer.Option("--from", help="What to read again: raw lines.")],
    cluster: Annotated[str, typer.Option(help="Only this cluster.")] = "",
    since: Annotated[datetime | None, typer.Option(formats=["%Y-%m-%d"], help="First day (UTC).")] = None,
    until: Annotated[datetime | None, typer.Option(formats=["%Y-%m-%d"], help="Last day (UTC).")] = None,
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Only say what would be read.")] = False,
    yes: Annotated[bool, typer.Option("--yes", help="Put what was made in place.")] = False,
    as_json: AsJson = False,
    clickhouse_url: Url = DEFAULT_URL,
    password_file: PasswordFile = None,
) -> None:
    """Read stored raw lines with today's signals and rules into new events and incidents, and compare.

    Nothing changes without --yes: the comparison is printed and what was made is dropped. Follow a rebuild with
    `rootrank rollup --why rebuild`, so that reports tell old figures from new ones.

    Examples: rootrank rebuild --from raw --dry-run      rootrank rebuild --from raw --since 2026-03-01 --yes
    """
    del source
    now_ms = time.time_ns() // 1_000_000
    with errors_as_exits():
        store = Store(settings_from_url(clickhouse_url, password_file=password_file))
        left = settle(store, now_ms)
        if left is not None:
            done = "was put in place to its end" if left.state == "done" else "was dropped"
            typer.echo(f"rebuild {left.rebuild_id}, which was killed, {done}", err=True)
        today = datetime.now(UTC).date()
        window, oldest = window_of(store, cluster, _day(since), _day(until), today)
        scope = scope_of(store, window, oldest)
        if dry_run:
            _echo({"scope": scope}, scope_text(scope), as_json=as_json)
            return
        typer.echo(scope_text(scope), err=True)
        said = Line()
        try:
            with begun(store, window, now_ms=now_ms) as work:
                comparison = work.build(said.say)
                said.done()
                if yes:
                    work.swap()
        except KeyboardInterrupt:
            said.done()
            typer.echo(_INTERRUPTED, err=True)
            raise typer.Exit(EXIT_INTERRUPTED) from None
        name = work.entry.rebuild_id
        shape = {"scope": scope, "comparison": comparison, "is_in_place": yes, "rebuild_id": name}
        _echo(shape, f"{comparison_text(comparison)}\n{_ending(name, is_in_place=yes)}", as_json=as_json)


class Line:
    """One line of a terminal that says what is being done. Silent where nobody watches."""

    def __init__(self) -> None:
        self._watched = sys.stderr.isatty()
        self._said_s = 0.0

    def say(self, text: str) -> None:
        """Show this in place of what was shown."""
        if self._watched and time.monotonic() - self._said_s > 0.2:
            self._said_s = time.monotonic()
            sys.stderr.write(f"{_CLEAR}{printable(text)}")
            sys.stderr.flush()

    def done(self) -> None:
        """Take the line off."""
        if self._watched:
            sys.stderr.write(_CLEAR)
            sys.stderr.flush()


def scope_text(scope: Scope) -> str:
    """What is read, and what cannot be."""
    text = [
        f"{scope.since} to {scope.until} (UTC): {scope.lines} lines of {scope.reporters} reporters, "
        f"{scope.events} events"
    ]
    if scope.events_before:
        text.append(f"{scope.events_before} events of days before {scope.oldest} stay: their lines are no longer kept")
    if scope.events_without_line:
        text.append(f"{scope.events_without_line} events in these days stay: their lines are no longer kept")
    return "\n".join(text)


def comparison_text(comparison: Comparison) -> str:
    """What a swap changes."""
    text = ["", "events by name: now, then (new, gone)"]
    differing = [count for count in comparison.events if count.added or count.gone or count.before != count.after]
    text += [f"  {_count(count)}" for count in differing] or ["  none differ"]
    same = len(comparison.events) - len(differing)
    text += [f"  and {same} names with as many as before"] if same and differing else []
    text += ["", "incidents by class: now, then"]
    text += [f"  {printable(count.name)}: {count.before}, {count.after}" for count in comparison.classes] or ["  none"]
    text += ["", f"{comparison.unchanged} incidents are as they were, {len(comparison.changes)} change"]
    text += [f"  {_change(change)}" for change in comparison.changes[:SHOWN]]
    if len(comparison.changes) > SHOWN:
        text.append(f"  and {len(comparison.changes) - SHOWN} more (--json lists all)")
    if comparison.left:
        text.append(f"{comparison.left} incidents stay: what they rest on reaches beyond the lines that were read")
    return "\n".join(text)


def _count(count: NameCount) -> str:
    return f"{printable(count.name)}: {count.before}, {count.after} ({count.added} new, {count.gone} gone)"


def _change(change: IncidentChange) -> str:
    corrected = "; a person has corrected it" if change.is_corrected else ""
    match change.kind:
        case "new":
            what = f"new: {change.class_after}"
        case "gone":
            what = f"gone: {change.class_before}"
        case _ if change.class_after and change.class_before != change.class_after:
            what = f"{change.class_before} becomes {change.class_after}"
        case _:
            what = f"{change.class_before or change.class_after}: other {', '.join(change.what)}"
    return f"{printable(change.incident_id)} {printable(what)}{corrected}"


def _ending(rebuild_id: str, *, is_in_place: bool) -> str:
    if is_in_place:
        return f"rebuild {rebuild_id} is in place; now run `rootrank rollup --why rebuild`"
    return "nothing was changed, what was made is dropped; run it with --yes to put it in place"


def _echo(shape: dict[str, Any], text: str, *, as_json: bool) -> None:
    encoded = orjson.dumps(msgspec.to_builtins(shape), option=orjson.OPT_INDENT_2)
    typer.echo(printable_json(encoded) if as_json else text)


def _day(moment: datetime | None) -> date | None:
    return None if moment is None else moment.date()
