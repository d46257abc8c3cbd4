"""`rootrank placement`."""

import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Annotated, Final

import orjson
import typer

from pipeline.core.contradictions import gaps_of
from pipeline.core.placement import Known, PlacementMap
from pipeline.folder import missing_in, plan
from pipeline.manifest import ManifestError
from pipeline.placements import JobMap, Placements, placements
from pipeline.report.words import visible

CONTRADICTED, USAGE, UNREADABLE = 1, 2, 3
_WORDS: Final = {
    "node": "node", "machine_id": "machine id", "local_rank": "local rank", "pid": "pid", "cuda_dev": "CUDA device",
    "gpu_index": "GPU index", "pci_bus_id": "GPU address", "gpu_uuid": "GPU UUID", "serial": "GPU serial",
}  # fmt: skip


def placement(
    paths: Annotated[
        list[Path], typer.Argument(help="Files and folders of logs (also .gz, .xz, .zst).", readable=False)
    ],
    *,
    as_json: Annotated[bool, typer.Option("--json", help="Print one JSON object.")] = False,
    node: Annotated[str, typer.Option(help="Node of files that do not say theirs.")] = "",
) -> None:
    """Show which rank ran where, with the log line behind each entry.

    Where two lines contradict each other, both are shown and neither is used.

    Exit code 0: no contradiction, 1: some lines contradict each other, 2: usage, 3: input that cannot be read.

    \b
    Examples:
      rootrank placement ./logs
      rootrank placement ./logs --json
    """  # noqa: D301 - \b keeps the lines of an example apart
    missing = missing_in(paths)
    if missing is not None:
        typer.echo(f"rootrank: {visible(missing)}", err=True)
        raise typer.Exit(UNREADABLE)
    try:
        folder = plan(paths, node=node or None)
    except ManifestError as error:
        typer.echo(f"rootrank: {visible(str(error))}", err=True)
        raise typer.Exit(USAGE) from None
    found = placements(folder)
    if as_json:
        shape = orjson.dumps(found.shape(), option=orjson.OPT_INDENT_2 | orjson.OPT_APPEND_NEWLINE)
        sys.stdout.buffer.write(shape)
        sys.stdout.buffer.flush()
    else:
        sys.stdout.writelines(f"{visible(line)}\n" for line in _text(found))
    for gap in found.unreadable:
        typer.echo(f"rootrank: {visible(f'cannot read {gap.reason}')}", err=True)
    contradicted = any(one.contradictions for _, one in found.jobs)
    raise typer.Exit(UNREADABLE if found.unreadable else CONTRADICTED if contradicted else 0)


def _text(found: Placements) -> Iterator[str]:
    if found.is_empty:
        yield "No line says which rank ran where."
    for job, one in found.jobs:
        yield from _job(found, job, one)
    for gap in (*found.gaps, *found.unreadable):
        yield f"not read: {gap.source}: {gap.reason}"


def _job(found: Placements, job: JobMap, one: PlacementMap) -> Iterator[str]:
    ranks, processes, gpus = one.known(), one.unranked(), one.gpus()
    if not (ranks or processes or gpus or one.contradictions):
        return
    yield f"job {job.job_id}, attempt {job.attempt}" if job.job_id else f"no job ({job.key})"
    if one.world_size is not None:
        yield f"  {one.world_size} ranks"
        if one.world_size_at:
            yield f"      {_evidence(found, one.world_size_at)}"
    for known in ranks:
        yield from _entry(found, f"rank {known.rank}", known)
    for known in processes:
        yield from _entry(found, "a process of unknown rank", known)
    for known in gpus:
        yield from _entry(found, "a GPU", known)
    for group in one.groups():
        members = ", ".join("?" if m.rank is None else str(m.rank) for _, m in sorted(group.members.items())[:64])
        name = f"{group.description} {group.name}".strip()
        yield f"  {_GROUPS[group.kind]} {name}: ranks {members}"
    for gap in gaps_of(one.contradictions):
        yield f"  {gap.reason}"


_GROUPS: Final = {"comm": "communicator", "split": "split communicator", "pg": "process group"}


def _entry(found: Placements, title: str, known: Known) -> Iterator[str]:
    """All that is known of one rank or GPU on a line, then each log line behind it with what rests on it."""
    told = {word: known.fields[name] for name, word in _WORDS.items() if name in known.fields}
    words = (f"{word} {one.value}" + ("" if one.how == "stated" else f" ({one.how})") for word, one in told.items())
    yield f"  {title}: {', '.join(words)}"
    resting: dict[str, list[str]] = {}
    for word, one in told.items():
        if one.where:
            resting.setdefault(one.where, []).append(word)
    for where, names in resting.items():
        what = f"  <- {', '.join(names)}" if len(resting) > 1 else ""
        yield f"      {_evidence(found, where)}{what}"


def _evidence(found: Placements, where: str) -> str:
    return f"{where}: {found.lines.get(where, '')}"
