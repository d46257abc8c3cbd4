"""`rootrank sql`, `rootrank query` and `rootrank migrate`: results on standard output, everything else on error."""

import re
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Final, NoReturn

import orjson
import typer

from pipeline.store import migrations, queries
from pipeline.store.errors import (
    MigrationError,
    QueryFileError,
    StoreError,
    StoreRefusedError,
    StoreSettingsError,
    StoreUnreachableError,
)
from pipeline.store.settings import DEFAULT_URL, StoreSettings, as_reader, read_password, settings_from_url
from pipeline.store.tables_text import answer_json, answer_text, printable

# The driver is imported where something is asked: to list the queries needs none.
if TYPE_CHECKING:
    from pipeline.store.clickhouse import Store

EXIT_PROBLEM: Final = 1
EXIT_USAGE: Final = 2
EXIT_UNREACHABLE: Final = 3

LAST_WEEKS: Final = "only the last 28 days were asked for: for older ones add --param from=DAY --param to=DAY"
READING_WORDS: Final = frozenset({"SELECT", "WITH", "SHOW", "DESCRIBE", "DESC", "EXPLAIN", "EXISTS", "FROM"})

Url = Annotated[
    str, typer.Option("--clickhouse-url", envvar="CLICKHOUSE_URL", help="http://user:password@host:port/database")
]
PasswordFile = Annotated[
    Path | None, typer.Option("--password-file", envvar="CLICKHOUSE_PASSWORD_FILE", help="File with the password.")
]
ReaderUser = Annotated[
    str, typer.Option(envvar="CLICKHOUSE_READER_USER", help="Read as this user (sql/roles.sql); default: up's own.")
]
ReaderPasswordFile = Annotated[
    Path | None, typer.Option(envvar="CLICKHOUSE_READER_PASSWORD_FILE", help="File with that user's password.")
]
AsJson = Annotated[bool, typer.Option("--json", help="One JSON object per row, in a list.")]


def sql(
    statement: Annotated[str, typer.Argument(help="One reading statement; `-` reads it from standard input.")],
    *,
    as_json: AsJson = False,
    clickhouse_url: Url = DEFAULT_URL,
    password_file: PasswordFile = None,
    reader_user: ReaderUser = "",
    reader_password_file: ReaderPasswordFile = None,
) -> None:
    """Ask ClickHouse in SQL, read only. Tables: `SHOW TABLES`; live only: the views that end in `_live`.

    Examples: rootrank sql "SHOW TABLES"      rootrank sql "SELECT class, count() FROM incidents GROUP BY class" --json
    """
    text = (sys.stdin.read() if statement == "-" else statement).strip().rstrip(";").strip()
    with errors_as_exits():
        _refuse_writes(text)
        store = _reader(clickhouse_url, password_file, reader_user, reader_password_file)
        _show(queries.ask(store, text), as_json=as_json)


def query(
    context: typer.Context,
    name: Annotated[str, typer.Argument(help="The query's name; none: list them.")] = "",
    *,
    param: Annotated[list[str] | None, typer.Option(help="name=value; as often as needed.")] = None,
    listed: Annotated[bool, typer.Option("--list", help="List the queries, one a line.")] = False,
    long: Annotated[bool, typer.Option("--long", help="With --list: whole questions, parameters, examples.")] = False,
    helped: Annotated[bool, typer.Option("--help", help="Show this, or what a named query asks and takes.")] = False,
    as_json: AsJson = False,
    clickhouse_url: Url = DEFAULT_URL,
    password_file: PasswordFile = None,
    reader_user: ReaderUser = "",
    reader_password_file: ReaderPasswordFile = None,
) -> None:
    """Run a named query of sql/queries, read only.

    Examples: rootrank query --list      rootrank query gaps --help      rootrank query incidents --param run=replay
    """
    if helped and not name:
        typer.echo(context.get_help())
        return
    with errors_as_exits():
        if listed or not name:
            _show_queries(queries.list_queries(), as_json=as_json, long=long)
            return
        wanted = queries.load_query(name)
        if helped:
            _show_queries([wanted], as_json=as_json, long=True)
            return
        given = _given(param or [])
        queries.bind(wanted, given)
        store = _reader(clickhouse_url, password_file, reader_user, reader_password_file)
        answer = queries.run_query(store, wanted, given)
        _show(answer, as_json=as_json)
        if answer.rows:
            return
        for other in queries.other_runs(store, wanted, given):
            typer.echo(f"rows of run {other} exist: add --param run={other}", err=True)
        if not given.get("from") and any(parameter.name == "from" for parameter in wanted.parameters):
            typer.echo(LAST_WEEKS, err=True)


def migrate(
    *,
    status: Annotated[bool, typer.Option("--status", help="Only say which migrations are applied.")] = False,
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Only print the SQL that would run.")] = False,
    as_json: AsJson = False,
    clickhouse_url: Url = DEFAULT_URL,
    password_file: PasswordFile = None,
) -> None:
    """Bring the tables up to date. `--status` exits 1 where something is pending or changed.

    Examples: rootrank migrate --status      rootrank migrate --dry-run      rootrank migrate
    """
    from pipeline.store.clickhouse import Store

    with errors_as_exits():
        store = Store(settings_from_url(clickhouse_url, password_file=password_file))
        store.ping()
        files = migrations.load_migrations()
        if status:
            _show_status(migrations.status(store, files), as_json=as_json)
            return
        if dry_run:
            for migration in migrations.pending(store, files):
                typer.echo(f"-- {migration.path.name}\n{migration.text}")
            return
        applied = migrations.apply(store, files)
        if as_json:
            typer.echo(orjson.dumps([{"number": m.number, "name": m.name} for m in applied]).decode())
        else:
            for migration in applied:
                typer.echo(f"applied {migration.number:04d} {migration.name}")
            typer.echo(f"{store.settings.address} is up to date")


def _refuse_writes(text: str) -> None:
    word = _first_word(text)
    if word.upper() not in READING_WORDS:
        exit_with(
            f"`rootrank sql` only reads: {word.upper() or 'nothing'} is not one of {', '.join(sorted(READING_WORDS))}. "
            f"To change data, use a ClickHouse client with a user that may write",
            EXIT_USAGE,
        )


def _first_word(text: str) -> str:
    """The first word behind white space, comments and brackets. The engine refuses whatever this lets pass."""
    rest = text
    while rest:
        rest = rest.lstrip("( \t\r\n")
        if rest.startswith(("--", "#")):
            rest = rest.partition("\n")[2]
        elif rest.startswith("/*"):
            rest = rest.partition("*/")[2]
        else:
            break
    return rest.split(None, 1)[0].partition("(")[0] if rest.strip() else ""


def _reader(url: str, password_file: Path | None, user: str, user_password_file: Path | None) -> "Store":
    from pipeline.store.clickhouse import Store, reading_settings

    settings: StoreSettings = settings_from_url(url, password_file=password_file)
    if not user:
        return Store(reading_settings(settings))
    password = read_password(user_password_file) if user_password_file else ""
    return Store(as_reader(settings, user=user, password=password))


def _given(pairs: list[str]) -> dict[str, str]:
    given: dict[str, str] = {}
    for pair in pairs:
        name, equals, value = pair.partition("=")
        if not equals:
            raise QueryFileError(f"--param {pair!r}: write it as name=value")
        given[name] = value
    return given


def _show(answer: queries.Answer, *, as_json: bool) -> None:
    typer.echo(answer_json(answer) if as_json else answer_text(answer))


def _show_queries(found: list[queries.NamedQuery], *, as_json: bool, long: bool) -> None:
    if as_json:
        typer.echo(
            orjson.dumps(
                [
                    {
                        "name": q.name,
                        "question": q.question,
                        "parameters": [
                            {"name": p.name, "type": p.type, "default": p.default, "meaning": p.meaning}
                            for p in q.parameters
                        ],
                        "example": q.example,
                    }
                    for q in found
                ],
                option=orjson.OPT_INDENT_2,
            ).decode()
        )
        return
    if not long:
        left = max(len(q.name) for q in found)
        for q in found:
            typer.echo(f"{q.name:<{left}}  {_first_sentence(q.question)}")
        typer.echo("parameters and an example of one: rootrank query NAME --help; of all: rootrank query --list --long")
        return
    for q in found:
        typer.echo(f"{q.name}\n    {q.question}")
        for p in q.parameters:
            default = "required" if p.default is None else f"default {p.default or 'empty'}"
            typer.echo(f"    --param {p.name}=…  {p.type}, {default}: {p.meaning}")
        typer.echo(f"    {q.example}")


def _first_sentence(text: str) -> str:
    """The text up to the first mark that ends a sentence, or before what a colon or semicolon begins."""
    ends = (end.end() for end in re.finditer(r"[.?](?= |$)|[:;](?= )", text))
    return text[: next(ends, len(text))].rstrip(":;")


def _show_status(states: list[migrations.MigrationStatus], *, as_json: bool) -> None:
    answer = queries.Answer(
        columns=("number", "name", "state", "applied_at"),
        types=("UInt32", "String", "String", "String"),
        rows=[[s.number, s.name, s.state, s.applied_at] for s in states],
    )
    _show(answer, as_json=as_json)
    if any(s.state in {"pending", "changed"} for s in states):
        raise typer.Exit(EXIT_PROBLEM)


@contextmanager
def errors_as_exits() -> Iterator[None]:
    """Every error of the store as one line and an exit code."""
    try:
        yield
    except (StoreUnreachableError, StoreSettingsError) as error:
        exit_with(str(error), EXIT_UNREACHABLE if isinstance(error, StoreUnreachableError) else EXIT_USAGE)
    except StoreRefusedError as error:
        exit_with(*_refusal(error))
    except QueryFileError as error:
        exit_with(str(error), EXIT_USAGE)
    except MigrationError as error:
        exit_with(str(error), EXIT_PROBLEM)
    except StoreError as error:
        exit_with(str(error), EXIT_UNREACHABLE)


def _refusal(error: StoreRefusedError) -> tuple[str, int]:
    match error.code:
        case 164:
            return f"this connection only reads, ClickHouse refused to write: {error}", EXIT_USAGE
        case 497:
            return f"the reading user may not do this: {error}", EXIT_USAGE
        case 516 | 192 | 193 | 194:
            return f"ClickHouse does not accept the user or password ({error}). Check CLICKHOUSE_URL", EXIT_UNREACHABLE
        case 81:
            return f"the database does not exist yet: run `rootrank migrate` ({error})", EXIT_UNREACHABLE
        case 60:
            return f"{error}. `SHOW TABLES` lists what there is; `rootrank migrate` creates what is missing", EXIT_USAGE
        case _:
            return f"ClickHouse refused the statement: {error}", EXIT_USAGE


def exit_with(message: str, code: int) -> NoReturn:
    """Say it on standard error and leave."""
    typer.echo(f"rootrank: {printable(message)}", err=True)
    raise typer.Exit(code)
