"""`rootrank incidents`: the feed on a terminal or in a pipe."""

import sys
import time
from typing import Annotated, Final

import msgspec
import typer

from pipeline.report import look_of, render_table, render_text
from pipeline.report.words import visible
from pipeline.web import DEFAULT_HOST, DEFAULT_PORT
from pipeline.web.answers import Listing
from pipeline.web.client import FeedClient, FeedRefusedError, FeedUnreachableError
from schemas.records import Incident

DEFAULT_URL: Final = f"http://{DEFAULT_HOST}:{DEFAULT_PORT}"
USAGE: Final = 2
UNREACHABLE: Final = 3
_RECONNECT_S: Final = 2.0


def incidents(
    follow: Annotated[bool, typer.Option("--follow", "-f", help="Stay, and print each new revision.")] = False,
    as_json: Annotated[bool, typer.Option("--json", help="JSON; with --follow one incident a line.")] = False,
    run: Annotated[str, typer.Option(help="live, replay, drill, post_mortem or all.")] = "live",
    cluster: Annotated[str, typer.Option(help="Only this cluster.")] = "",
    state: Annotated[str, typer.Option(help="open, resolved, retracted, superseded (comma between) or all.")] = "",
    limit: Annotated[int, typer.Option(help="At most so many, newest first.", min=1, max=1000)] = 20,
    url: Annotated[str, typer.Option(envvar="ROOTRANK_URL", help="Address of the feed.")] = DEFAULT_URL,
) -> None:
    """Show the incidents of the running feed. Exit code 3 where it cannot be reached.

    Examples: rootrank incidents      rootrank incidents --run replay --json      rootrank incidents --follow
    """
    client = FeedClient(url=url)
    asked = {"run": run, "cluster": cluster, "state": state, "limit": str(limit)}
    try:
        listing = client.listing(asked)
        _print_lines(listing.incidents) if follow and as_json else _print_listing(listing, run, as_json)
        if follow:
            _follow(client, {"run": run, "cluster": cluster}, listing.last_event_id, as_json)
    except FeedRefusedError as error:
        _fail(visible(str(error)), USAGE)
    except FeedUnreachableError as error:
        _fail(
            f"no feed answers at {visible(url)} ({visible(str(error))}). Start one with `rootrank up`, or give --url.",
            UNREACHABLE,
        )
    except KeyboardInterrupt:
        raise typer.Exit(0) from None


def _fail(sentence: str, code: int) -> None:
    typer.echo(f"rootrank: {sentence}", err=True)
    raise typer.Exit(code)


def _print_listing(listing: Listing, run: str, as_json: bool) -> None:
    if as_json:
        sys.stdout.write(msgspec.json.format(msgspec.json.encode(listing), indent=2).decode() + "\n")
        return
    look = look_of(sys.stdout)
    sys.stdout.write(render_table(listing.incidents, width=look.width, color=look.color))
    left = listing.total - len(listing.incidents)
    if left > 0:
        typer.echo(f"{left} older not shown; give a larger --limit.", err=True)
    if not listing.incidents:
        for other, count in sorted(listing.other_runs.items()):
            typer.echo(f"{count} of run {visible(other)}, not shown: add --run {visible(other)}.", err=True)


def _print_lines(found: list[Incident]) -> None:
    for incident in found:
        sys.stdout.write(msgspec.json.encode(incident).decode() + "\n")
    sys.stdout.flush()


def _follow(client: FeedClient, asked: dict[str, str], last: str, as_json: bool) -> None:
    look = look_of(sys.stdout)
    said = False
    while True:
        try:
            for name, incident in client.stream(asked, last):
                last, said = name, False
                if as_json:
                    _print_lines([incident])
                else:
                    sys.stdout.write(f"\n{render_text(incident, width=look.width, color=look.color)}")
                    sys.stdout.flush()
        except FeedUnreachableError as error:
            if not said:
                typer.echo(f"rootrank: the feed is away ({visible(str(error))}); waiting for it", err=True)
            said = True
            time.sleep(_RECONNECT_S)
