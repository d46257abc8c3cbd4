"""`rootrank why`."""

import os
import sys
from functools import partial
from typing import Annotated, Final

import msgspec
import typer

from pipeline.asking import Asking, Deadline, TooLateError, after
from pipeline.report.why_text import why_lines
from pipeline.report.words import visible
from pipeline.store.history import JobHistory
from pipeline.web import DEFAULT_HOST, DEFAULT_PORT
from pipeline.web.answers import JobView
from pipeline.web.client import FeedClient, FeedRefusedError, FeedUnreachableError
from pipeline.why import known_of
from schemas.vocabulary import STANDING

FOUND: Final = 1
USAGE: Final = 2
UNREACHABLE: Final = 3
STORE_URL: Final = "http://127.0.0.1:8123/rootrank"


class _StoreSilentError(Exception):
    """The store cannot be asked; the text says why."""


def why(
    job: Annotated[str, typer.Argument(help="A job id.")],
    *,
    as_json: Annotated[bool, typer.Option("--json", help="Print one JSON object.")] = False,
    run: Annotated[str, typer.Option(help="live, replay, drill or all.")] = "live",
    cluster: Annotated[str, typer.Option(help="Only this cluster.")] = "",
    wait_s: Annotated[float, typer.Option(min=0, max=3_600, help="Wait so long for feed and ClickHouse.")] = 15,
    url: Annotated[
        str, typer.Option(envvar="ROOTRANK_URL", help="Address of the feed.")
    ] = f"http://{DEFAULT_HOST}:{DEFAULT_PORT}",
    clickhouse_url: Annotated[
        str, typer.Option(envvar="CLICKHOUSE_URL", help="ClickHouse; as whom: the environment, as for `query`.")
    ] = STORE_URL,
) -> None:
    """Say what is known of a job, attempt by attempt, also of one that ended without an incident.

    Nodes, how far it got, how it ended, incidents and notes, which logs were read; and what is not known. From the feed
    and from ClickHouse, or from the one of them that answers.

    Exit code 0: no incident, 1: an incident stands, 2: usage, 3: neither of them answers.

    \b
    Examples:
      rootrank why 48211
      rootrank why 48211 --json
      rootrank why 48211 --run replay
    """  # noqa: D301 - \b keeps the lines of an example apart
    deadline = after(wait_s)
    kept = Asking(partial(_history, clickhouse_url, job, run, cluster))
    seen = Asking(partial(FeedClient(url=url).job, job, {"run": run, "cluster": cluster}))
    problems: list[str] = []
    view, history = _view(seen, deadline, url, problems), _kept(kept, deadline, problems)
    known = known_of(job, view, history, problems)
    if as_json:
        sys.stdout.write(msgspec.json.format(msgspec.json.encode(known), indent=2).decode() + "\n")
    else:
        sys.stdout.writelines(f"{line}\n" for line in why_lines(known))
    if view is None and history is None:
        typer.echo(
            "rootrank: neither feed nor ClickHouse answers; start them with `rootrank up`, or give --url and "
            "--clickhouse-url",
            err=True,
        )
        raise typer.Exit(UNREACHABLE)
    stands = any(i.state in STANDING for one in known.attempts for i in one.incidents)
    raise typer.Exit(FOUND if stands else 0)


def _view(seen: Asking[JobView], deadline: Deadline, url: str, problems: list[str]) -> JobView | None:
    try:
        return seen.answer(deadline)
    except FeedRefusedError as error:
        typer.echo(f"rootrank: {visible(str(error))}", err=True)
        raise typer.Exit(USAGE) from None
    except TooLateError:
        reason = "not in time"
    except FeedUnreachableError as error:
        reason = str(error)
    problems.append(f"what the feed holds, newest incidents and notes: no feed answers at {url} ({reason})")
    return None


def _kept(kept: Asking[JobHistory], deadline: Deadline, problems: list[str]) -> JobHistory | None:
    try:
        return kept.answer(deadline)
    except TooLateError:
        reason = "ClickHouse did not answer in time"
    except _StoreSilentError as error:
        reason = str(error)
    problems.append(f"what the store keeps, progress, endings and which logs were read: {reason}")
    return None


def _history(clickhouse_url: str, job: str, run: str, cluster: str) -> JobHistory:
    try:
        from pipeline.store.errors import StoreError
        from pipeline.store.jobs import histories
    except ImportError as error:
        raise _StoreSilentError(f"the package {error.name} is missing; pip install 'rootrank[pipeline]'") from None
    try:
        return histories(clickhouse_url, [job], os.environ, run=run, cluster=cluster)[0]
    except StoreError as error:
        raise _StoreSilentError(str(error)) from None
