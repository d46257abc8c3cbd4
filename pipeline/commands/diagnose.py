"""`rootrank diagnose`."""

import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Annotated

import orjson
import typer

from pipeline.diagnose import Diagnosis, diagnose_plan
from pipeline.folder import FolderPlan, missing_in, plan
from pipeline.manifest import ManifestError
from pipeline.page_file import DEFAULT_PAGE, not_replaceable, with_page_name, write_page
from pipeline.progress import ReadingProgress
from pipeline.report import look_of, render_diagnosis, render_html
from pipeline.report.alignment_words import clock_lines
from pipeline.report.words import counted, listed, visible
from pipeline.workers import WorkerLostError, Workers, look_seldom_for_cycles

__all__ = ["diagnose", "with_page_name"]

FOUND, USAGE, UNREADABLE = 1, 2, 3


def diagnose(
    paths: Annotated[
        list[Path], typer.Argument(help="Files and folders of logs (also .gz, .xz, .zst).", readable=False)
    ],
    *,
    as_json: Annotated[bool, typer.Option("--json", help="Print one JSON object.")] = False,
    html: Annotated[
        Path | None,
        typer.Option(
            metavar="[FILE.html]", help=f"Also write a page that needs nothing else; without a name: {DEFAULT_PAGE}."
        ),
    ] = None,
    force: Annotated[bool, typer.Option("--force", help="Let --html replace a file that is no such page.")] = False,
    full: Annotated[bool, typer.Option("--full", help="Print every step of long chains.")] = False,
    node: Annotated[str, typer.Option(help="Node of files that do not say theirs.")] = "",
    processes: Annotated[
        int | None,
        typer.Option(help="How many processes read a large folder; default: one per core, 8 at most.", min=1, max=64),
    ] = None,
) -> None:
    """Find the root cause in a folder of logs.

    Works out from the content what each file is; a rootrank.toml in the folder can state nodes, ranks and clocks.

    Exit code 0: no incident, 1: incident found, 2: usage, 3: an input cannot be read, or none is text.

    \b
    Examples:
      rootrank diagnose ./logs
      rootrank diagnose ./logs --full
      rootrank diagnose ./logs --json
      rootrank diagnose kern.log rank*.log
      rootrank diagnose ./logs --html
      rootrank diagnose ./logs --html incident.html
    """  # noqa: D301 - \b keeps the lines of an example apart
    if html is not None and not force and (reason := not_replaceable(html)):
        typer.echo(f"rootrank: {visible(reason)}", err=True)
        raise typer.Exit(USAGE)
    missing = missing_in(paths)
    if missing is not None:
        typer.echo(f"rootrank: {visible(missing)}", err=True)
        raise typer.Exit(UNREADABLE)
    folder, diagnosis = _diagnosed(paths, node, processes)
    clocks = _clocks(folder, diagnosis)
    _print(diagnosis, _read(folder), clocks, as_json=as_json, full=full)
    problems = [f"cannot read {gap.reason}" for gap in diagnosis.unreadable]
    if not folder.nodes and not problems:
        problems.append(f"no log to read in {', '.join(map(str, paths))}")
    if html is not None:
        problems += _write_page(diagnosis, html, paths, clocks, is_read=bool(folder.nodes))
    for problem in problems:
        typer.echo(f"rootrank: {visible(problem)}", err=True)
    raise typer.Exit(UNREADABLE if problems else FOUND if diagnosis.incidents else 0)


def _diagnosed(paths: list[Path], node: str, processes: int | None) -> tuple[FolderPlan, Diagnosis]:
    look_seldom_for_cycles()
    with Workers(processes) as workers:
        try:
            folder = plan(paths, node=node or None, workers=workers)
        except ManifestError as error:
            typer.echo(f"rootrank: {visible(str(error))}", err=True)
            raise typer.Exit(USAGE) from None
        except WorkerLostError as error:
            raise _lost(error) from None
        progress = ReadingProgress(sum(len(node.sources) for node in folder.nodes))
        try:
            return folder, diagnose_plan(folder, workers, progress)
        except WorkerLostError as error:
            raise _lost(error) from None
        finally:
            progress.done()


def _lost(error: WorkerLostError) -> typer.Exit:
    typer.echo(f"rootrank: {visible(str(error))}", err=True)
    return typer.Exit(UNREADABLE)


def _write_page(
    diagnosis: Diagnosis, file: Path, paths: list[Path], clocks: Sequence[str], *, is_read: bool
) -> list[str]:  # fmt: skip
    """Write the page and say so; what went wrong, if it did."""
    gaps = [*diagnosis.gaps, *diagnosis.unreadable]
    read = listed([visible(str(path)) for path in paths])
    try:
        page = render_html(diagnosis.incidents, gaps, diagnosis.notes, read=read, is_read=is_read, clocks=clocks)
        write_page(file, page)
    except OSError as error:
        return [f"cannot write the page to {file}: {error.strerror}; name a file in a folder you may write"]
    typer.echo(f"rootrank: wrote {visible(str(file))}", err=True)
    return []


def _notes(diagnosis: Diagnosis) -> list[str]:
    return [f"{note.class_}: {note.why} ({note.source}:{note.line_no or '?'}: {note.text})" for note in diagnosis.notes]


def _read(folder: FolderPlan) -> str:
    """How much was read; nothing where no file is text."""
    kinds = {source.path: source.kind for node in folder.nodes for source in node.sources}
    kernels = sum(kind == "kernel" for kind in kinds.values())
    return f"{counted(len(kinds), 'file')} ({counted(kernels, 'kernel log')})" if kinds else ""


def _clocks(folder: FolderPlan, diagnosis: Diagnosis) -> list[str]:
    """What is known of the clocks of the nodes."""
    nodes = sum(not node.reporter.startswith("file:") for node in folder.nodes)
    return clock_lines(folder.clocks, diagnosis.clocks, nodes)


def _print(diagnosis: Diagnosis, read: str, clocks: list[str], *, as_json: bool, full: bool) -> None:
    if as_json:
        shape = diagnosis.shape() | {"clocks": clocks}
        sys.stdout.buffer.write(orjson.dumps(shape, option=orjson.OPT_INDENT_2 | orjson.OPT_APPEND_NEWLINE))
        sys.stdout.buffer.flush()
        return
    look = look_of(sys.stdout)
    gaps = [*diagnosis.gaps, *diagnosis.unreadable]
    text = render_diagnosis(
        diagnosis.incidents, gaps, _notes(diagnosis), read=read, is_read=bool(read), clocks=clocks, full=full,
        width=look.width, color=look.color,
    )  # fmt: skip
    sys.stdout.write(text)
