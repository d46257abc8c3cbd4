"""`rootrank flight`."""

import sys
from pathlib import Path
from typing import Annotated

import orjson
import typer

from pipeline.core.flight.analysis import analyse
from pipeline.core.flight.state import RankState
from pipeline.flight_files import states_in
from pipeline.folder import FolderPlan, missing_in, plan
from pipeline.logfiles import UnreadableFileError
from pipeline.manifest import ManifestError
from pipeline.progress import ReadingProgress
from pipeline.report.flight_text import flight_shape, flight_text, is_quiet
from pipeline.report.words import visible

FOUND, USAGE, UNREADABLE = 1, 2, 3


def flight(
    paths: Annotated[
        list[Path], typer.Argument(help="Dumps, or folders that hold them (also .gz, .xz, .zst).", readable=False)
    ],
    *,
    as_json: Annotated[bool, typer.Option("--json", help="Print one JSON object.")] = False,
    all_rows: Annotated[bool, typer.Option("--all", help="Show all process groups with something pending.")] = False,
) -> None:
    """Compare dumps of PyTorch's flight recorder: which ranks stopped, at which collective, and who waits for them.

    Reads pickles (nccl_trace_rank_3) without executing them, and JSON. Other files in a folder are left alone.

    Exit code 0: nothing is stuck, 1: something is, 2: usage, 3: no dump, or one that cannot be read.

    \b
    Examples:
      rootrank flight ./dumps
      rootrank flight /tmp/nccl_trace_rank_* --json
    """  # noqa: D301 - \b keeps the lines of an example apart
    missing = missing_in(paths)
    if missing is not None:
        typer.echo(f"rootrank: {visible(missing)}", err=True)
        raise typer.Exit(UNREADABLE)
    try:
        folder = plan(paths)
    except ManifestError as error:
        typer.echo(f"rootrank: {visible(str(error))}", err=True)
        raise typer.Exit(USAGE) from None
    states, unreadable = _read(folder)
    if not states:
        problem = f"no flight-recorder dump in {', '.join(map(str, paths))}; PyTorch writes them where a time-out"
        unreadable.append(f"{problem} is found with TORCH_NCCL_DUMP_ON_TIMEOUT and TORCH_FR_BUFFER_SIZE set")
    found = analyse(states)
    if as_json:
        shape = flight_shape(states, found, unreadable)
        sys.stdout.buffer.write(orjson.dumps(shape, option=orjson.OPT_INDENT_2 | orjson.OPT_APPEND_NEWLINE))
        sys.stdout.buffer.flush()
    elif states:
        sys.stdout.writelines(f"{visible(line)}\n" for line in flight_text(states, found, all_rows=all_rows))
    for problem in unreadable:
        typer.echo(f"rootrank: {visible(problem)}", err=True)
    raise typer.Exit(UNREADABLE if unreadable else 0 if is_quiet(found) else FOUND)


def _read(folder: FolderPlan) -> tuple[list[RankState], list[str]]:
    """The states in all dumps of a folder, and what could not be read."""
    sources = [source for node in folder.nodes for source in node.sources if source.dump]
    states, unreadable = list[RankState](), [f"cannot read {gap.reason}" for gap in folder.unreadable]
    progress = ReadingProgress(len(sources))
    try:
        for source in sources:
            try:
                states += states_in(source.path, source.name)
                progress.read(source.name, source.path.stat().st_size)
            except (UnreadableFileError, FileNotFoundError) as error:
                unreadable.append(f"cannot read {error}")
    finally:
        progress.done()
    return states, unreadable
