"""`rootrank replay`."""

import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Annotated, Final

import typer
from rich.console import Console
from rich.progress import BarColumn, Progress, TextColumn, TimeElapsedColumn

from pipeline.commands.kafka_watch import KafkaWatch
from pipeline.commands.services import DEFAULT_BOOTSTRAP, Bootstrap
from pipeline.folder import plan
from pipeline.manifest import ManifestError
from pipeline.replay import Replay, ReplayError, Settings, Status, is_run_id, new_run_id, work_dir
from pipeline.report.words import visible

USAGE, UNREADABLE = 2, 3
SAY_EVERY_S: Final = 10.0


def replay(
    path: Annotated[Path, typer.Argument(help="Folder of logs; a rootrank.toml in it may state nodes and clocks.")],
    *,
    kafka: Bootstrap = DEFAULT_BOOTSTRAP,
    speed: Annotated[float, typer.Option(help="Recorded seconds per second.", min=0.001)] = 60.0,
    as_fast_as_possible: Annotated[bool, typer.Option("--as-fast-as-possible", help="Release all at once.")] = False,
    run_id: Annotated[str, typer.Option(help="Name of this replay; default: a new one.")] = "",
) -> None:
    """Play a folder of logs as a fleet: one real shipper per node, through Kafka, marked run = replay.

    Needs a running pipeline (`rootrank up`). See the result with `rootrank incidents --run replay`.

    \b
    Examples:
      rootrank replay ./logs --speed 60
      rootrank replay ./logs --as-fast-as-possible
    """  # noqa: D301 - \b keeps the lines of an example apart
    if run_id and not is_run_id(run_id):
        typer.echo(f"rootrank: --run-id {run_id!r}: use letters, digits, '.', '_' and '-'", err=True)
        raise typer.Exit(USAGE)
    if not path.exists():
        typer.echo(f"rootrank: {visible(str(path))}: no such folder", err=True)
        raise typer.Exit(UNREADABLE)
    try:
        folder = plan([path])
    except ManifestError as error:
        typer.echo(f"rootrank: {visible(str(error))}", err=True)
        raise typer.Exit(USAGE) from None
    for gap in (*folder.gaps, *folder.unreadable):
        typer.echo(f"rootrank: not replayed: {visible(f'{gap.source}: {gap.reason}')}", err=True)
    if not folder.nodes:
        typer.echo(f"rootrank: {visible(str(path))}: no log to replay", err=True)
        raise typer.Exit(UNREADABLE)
    settings = Settings(
        bootstrap=kafka, work_dir=work_dir(), run_id=run_id or new_run_id(),
        speed=None if as_fast_as_possible else speed,
    )  # fmt: skip
    _play(Replay(folder, settings), kafka)
    typer.echo(f"replayed {len(folder.nodes)} nodes as {settings.run_id}", err=True)


def _play(play: Replay, bootstrap: str) -> None:
    console = Console(file=sys.stderr)
    bar = Progress(
        TextColumn("replay"), BarColumn(), TextColumn("{task.percentage:.0f} %"),
        TextColumn("{task.fields[done]}/{task.fields[all]} shippers done"), TimeElapsedColumn(),
        console=console, disable=not console.is_terminal,
    )  # fmt: skip
    try:
        with bar, KafkaWatch(bootstrap, lambda text: typer.echo(f"rootrank: {text}", err=True)):
            task = bar.add_task("", total=max(play.status.bytes_total, 1), done=0, all=play.status.shippers)

            def show(status: Status) -> None:
                bar.update(task, completed=status.bytes_released, done=status.shippers_done)

            play.run(show if console.is_terminal else now_and_then(time.monotonic))
    except ReplayError as error:
        typer.echo(f"rootrank: {error}", err=True)
        raise typer.Exit(UNREADABLE) from None
    except KeyboardInterrupt:
        typer.echo("rootrank: replay stopped", err=True)
        raise typer.Exit(UNREADABLE) from None


def now_and_then(clock_s: Callable[[], float]) -> Callable[[Status], None]:
    """Says how far a replay is where no bar can be drawn: a line on standard error every ten seconds of the clock."""
    next_s = clock_s() + SAY_EVERY_S

    def show(status: Status) -> None:
        nonlocal next_s
        if clock_s() < next_s:
            return
        next_s = clock_s() + SAY_EVERY_S
        percent = min(100 * status.bytes_released // max(status.bytes_total, 1), 100)
        typer.echo(f"replay: {percent} % released, {status.shippers_done}/{status.shippers} shippers done", err=True)

    return show
