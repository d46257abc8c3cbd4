"""`rootrank clocks`."""

import sys
from typing import Annotated, Final

import msgspec
import typer

from pipeline.report import look_of
from pipeline.report.clock_words import NONE_YET, no_node_of
from pipeline.report.clocks_text import render_clocks
from pipeline.report.words import visible
from pipeline.web import DEFAULT_HOST, DEFAULT_PORT
from pipeline.web.answers import ClockListing
from pipeline.web.client import FeedClient, FeedRefusedError, FeedUnreachableError
from pipeline.web.query import RUNS

UNUSABLE: Final = 1
USAGE: Final = 2
UNREACHABLE: Final = 3


def clocks(
    *,
    bad: Annotated[
        bool, typer.Option("--bad", help="Only those that are not good, or whose wall clock is off by more than 1 s.")
    ] = False,
    as_json: Annotated[bool, typer.Option("--json", help="Print one JSON object (times in ns).")] = False,
    run: Annotated[str, typer.Option(help=f"{', '.join(RUNS[:-1])} or {RUNS[-1]}.")] = "live",
    cluster: Annotated[str, typer.Option(help="Only this cluster.")] = "",
    url: Annotated[
        str, typer.Option(envvar="ROOTRANK_URL", help="Address of the feed.")
    ] = f"http://{DEFAULT_HOST}:{DEFAULT_PORT}",
) -> None:
    """Show each node's clock as measured against the brokers', worst first: those that cannot be used, wall clocks
    that are off by more than 1 s, then by state and bound.

    Wall off by: reference minus wall clock, + means that the wall clock is behind. The reference is certain to be
    within the bound of that. Drift: + means that the raw clock runs slow. Jumps are those of the last hour.

    Good: measured, the bound is certain. Holdover: no beacon came for a while, the bound grows. Stepped: the measured
    clock (the node's raw clock or the broker's) broke off, the bound covers both readings. None: not measured. Silent:
    nothing was told of the node for two minutes. What to do: docs/clocks.md.

    Exit code 0: every clock can be used, 1: one cannot (none or silent) or no node has one, 2: usage, 3: the feed
    cannot be reached or does not know clocks yet. A wall clock that is off can be used: lines are not ordered by it.

    \b
    Examples:
      rootrank clocks
      rootrank clocks --bad
      rootrank clocks --json | jq '.clocks[] | select(.bound_ns > 5000000) | .node'
    """  # noqa: D301 - \b keeps the lines of an example apart
    asked = {"run": run, "cluster": cluster, "bad": "1" if bad else "0"}
    try:
        listing = FeedClient(url=url).clocks(asked)
    except FeedRefusedError as error:
        typer.echo(f"rootrank: {visible(str(error))}", err=True)
        raise typer.Exit(USAGE) from None
    except FeedUnreachableError as error:
        typer.echo(
            f"rootrank: no feed answers at {visible(url)} ({visible(str(error))}). Start one with `rootrank up`, or "
            "give --url.",
            err=True,
        )
        raise typer.Exit(UNREACHABLE) from None
    if as_json:
        sys.stdout.write(msgspec.json.format(msgspec.json.encode(listing), indent=2).decode() + "\n")
    else:
        look = look_of(sys.stdout)
        sys.stdout.write(render_clocks(listing, width=look.width, color=look.color))
    _remark(listing, cluster)
    raise typer.Exit(_code(listing))


def _remark(listing: ClockListing, cluster: str) -> None:
    """What the table does not show, on standard error."""
    if not listing.following:
        typer.echo(f"rootrank: this is not the present: {visible(listing.reason)}", err=True)
    elif not any(listing.counts.values()):
        typer.echo(no_node_of(listing, cluster) or f"No node has sent clock beacons yet. {NONE_YET}", err=True)
    for other, count in sorted(listing.other_runs.items()):
        typer.echo(f"{count} of run {visible(other)}, not shown: add --run {visible(other)}.", err=True)


def _code(listing: ClockListing) -> int:
    if not listing.following:
        return UNREACHABLE
    usable = sum(count for state, count in listing.counts.items() if state not in ("none", "silent"))
    return 0 if usable and usable == sum(listing.counts.values()) else UNUSABLE
