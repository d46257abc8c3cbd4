"""`rootrank diagnose`."""

import sys
from pathlib import Path
from typing import Annotated

import orjson
import typer

from pipeline.diagnose import Diagnosis, diagnose_plan
from pipeline.folder import missing_in, plan
from pipeline.manifest import ManifestError
from pipeline.progress import ReadingProgress
from pipeline.report import look_of, render_diagnosis, render_html
from pipeline.report.words import visible

FOUND, USAGE, UNREADABLE = 1, 2, 3


def diagnose(
    paths: Annotated[
        list[Path], typer.Argument(help="Files and folders of logs (also .gz, .xz, .zst).", readable=False)
    ],
    *,
    as_json: Annotated[bool, typer.Option("--json", help="Print one JSON object.")] = False,
    html: Annotated[Path | None, typer.Option(help="Also write a self-contained page.")] = None,
    node: Annotated[str, typer.Option(help="Node of files that do not say theirs.")] = "",
) -> None:
    """Find the root cause in a folder of logs.

    Works out from the content what each file is; a rootrank.toml in the folder can state nodes, ranks and clocks.

    Exit code 0: no incident, 1: incident found, 2: usage, 3: input that cannot be read.

    Examples: rootrank diagnose ./logs      rootrank diagnose ./logs --json      rootrank diagnose kern.log rank*.log
    """
    missing = missing_in(paths)
    if missing is not None:
        typer.echo(f"rootrank: {visible(missing)}", err=True)
        raise typer.Exit(UNREADABLE)
    try:
        folder = plan(paths, node=node or None)
    except ManifestError as error:
        typer.echo(f"rootrank: {visible(str(error))}", err=True)
        raise typer.Exit(USAGE) from None
    progress = ReadingProgress(sum(len(node.sources) for node in folder.nodes))
    try:
        diagnosis = diagnose_plan(folder, progress)
    finally:
        progress.done()
    _print(diagnosis, as_json=as_json)
    problems = [f"cannot read {gap.reason}" for gap in diagnosis.unreadable]
    if not folder.nodes and not problems:
        nothing = f"no log to read in {', '.join(map(str, paths))}"
        if diagnosis.gaps:
            typer.echo(f"rootrank: {visible(nothing)}; what is there is named under gaps", err=True)
        else:
            problems.append(nothing)
    if html is not None:
        problems += _write_page(diagnosis, html)
    for problem in problems:
        typer.echo(f"rootrank: {visible(problem)}", err=True)
    raise typer.Exit(UNREADABLE if problems else FOUND if diagnosis.incidents else 0)


def _write_page(diagnosis: Diagnosis, path: Path) -> list[str]:
    """Write the page; what went wrong, if it did."""
    try:
        path.write_text(_page(diagnosis), encoding="utf-8")
    except OSError as error:
        return [f"cannot write the page to {path}: {error.strerror}; name a file in a folder you may write"]
    return []


def _notes(diagnosis: Diagnosis) -> list[str]:
    return [f"{note.class_}: {note.why} ({note.source}:{note.line_no or '?'}: {note.text})" for note in diagnosis.notes]


def _print(diagnosis: Diagnosis, *, as_json: bool) -> None:
    if as_json:
        sys.stdout.buffer.write(orjson.dumps(diagnosis.shape(), option=orjson.OPT_INDENT_2 | orjson.OPT_APPEND_NEWLINE))
        sys.stdout.buffer.flush()
        return
    look = look_of(sys.stdout)
    gaps = [*diagnosis.gaps, *diagnosis.unreadable]
    sys.stdout.write(render_diagnosis(diagnosis.incidents, gaps, _notes(diagnosis), width=look.width, color=look.color))


def _page(diagnosis: Diagnosis) -> str:
    return render_html(diagnosis.incidents, [*diagnosis.gaps, *diagnosis.unreadable], _notes(diagnosis))
