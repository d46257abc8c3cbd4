"""`rootrank bundle`."""

import os
import sys
from pathlib import Path
from typing import Annotated, Final

import orjson
import typer

from pipeline.bundle.archive import SUFFIXES, Bundle, bundle_of, write_archive
from pipeline.bundle.contents import Contents
from pipeline.bundle.from_folder import NoSuchIncidentError, contents_of_folder
from pipeline.bundle.redacting import NotRedactedError, by_the_agent
from pipeline.manifest import ManifestError
from pipeline.report.words import visible

USAGE: Final = 2
UNREACHABLE: Final = 3
STORE_URL: Final = "http://127.0.0.1:8123/rootrank"


def bundle(
    incident: Annotated[str, typer.Argument(help="The incident's id; of a folder its beginning is enough.")],
    *,
    out: Annotated[Path, typer.Option(help="The archive to write: FILE.tar.zst or FILE.tar.gz.")],
    folder: Annotated[
        Path | None, typer.Option(help="Take it from this folder of logs instead of from ClickHouse.", readable=False)
    ] = None,
    anonymise: Annotated[
        bool, typer.Option("--anonymise", help="Replace names of nodes and users; the list is written beside FILE.")
    ] = False,
    around: Annotated[int, typer.Option(min=0, max=2000, help="Lines before and after each line of evidence.")] = 50,
    minutes: Annotated[
        float, typer.Option(min=0, max=1440, help="Of blamed nodes, all lines so long before and after (live).")
    ] = 5,
    run: Annotated[str, typer.Option(help="live, replay or drill; empty: any.")] = "",
    force: Annotated[
        bool, typer.Option("--force", help="Write also where secrets cannot be looked for, or FILE is there.")
    ] = False,
    as_json: Annotated[bool, typer.Option("--json", help="Say in one JSON object what was written.")] = False,
    clickhouse_url: Annotated[
        str, typer.Option(envvar="CLICKHOUSE_URL", help="ClickHouse; as whom: the environment, as for `query`.")
    ] = STORE_URL,
) -> None:
    """Write one redacted archive of an incident for the vendor: verdict, report, evidence, lines around, captures.

    Exit code 0: written, 2: usage or no such incident, 3: cannot be read, reached or written.

    \b
    Examples:
      rootrank bundle 3f9a61c20b7d4e55 --out case.tar.zst
      rootrank bundle 3f9a61c20b7d4e55 --out case.tar.gz --anonymise
      rootrank bundle 637c815d --folder ./logs --out case.tar.zst
    """  # noqa: D301 - \b keeps the lines of an example apart
    if not out.name.endswith(SUFFIXES):
        raise _refused(f"--out {out}: the name must end in {' or '.join(SUFFIXES)}")
    if out.exists() and not force:
        raise _refused(f"{out} is there; name another file, or --force replaces it")
    contents = _contents(incident, folder, run, around, minutes, clickhouse_url)
    made = _made(contents, anonymise=anonymise, force=force)
    top = f"rootrank-{contents.incident.incident_id}"
    try:
        write_archive(made, out, top)
        written = [out, *_write_names(made, out)]
    except OSError as error:
        raise _failed(f"cannot write {error.filename or out}: {error.strerror}") from None
    _tell(made, written, contents, as_json=as_json)


def _contents(
    incident: str, folder: Path | None, run: str, around: int, minutes: float, clickhouse_url: str
) -> Contents:
    try:
        if folder is not None:
            if not folder.is_dir():
                raise _failed(f"{folder} is no folder")
            return contents_of_folder(folder, incident, around)
        return _from_store(incident, run, around, minutes, clickhouse_url)
    except (NoSuchIncidentError, ManifestError) as error:
        raise _refused(str(error)) from None


def _from_store(incident: str, run: str, around: int, minutes: float, clickhouse_url: str) -> Contents:
    try:
        from pipeline.bundle.from_store import contents_of_store
        from pipeline.store.errors import StoreError
        from pipeline.store.jobs import reading_store
    except ImportError as error:
        raise _failed(
            f"the package {error.name} is missing; pip install 'rootrank[pipeline]', or give --folder"
        ) from None
    try:
        store = reading_store(clickhouse_url, os.environ)
        try:
            return contents_of_store(store, incident, run, around, minutes)
        finally:
            store.close()
    except StoreError as error:
        raise _failed(str(error)) from None


def _made(contents: Contents, *, anonymise: bool, force: bool) -> Bundle:
    try:
        return bundle_of(contents, by_the_agent, anonymise=anonymise)
    except NotRedactedError as error:
        if not force:
            raise _failed(f"secrets cannot be looked for: {error}; --force writes it as it is") from None
        typer.echo(f"rootrank: nothing is redacted: {visible(str(error))}", err=True)
        return bundle_of(contents, None, anonymise=anonymise, remark=f"redaction: {error}")


def _write_names(made: Bundle, out: Path) -> list[Path]:
    """The list of pseudonyms, for whoever made the bundle alone."""
    if not made.names:
        return []
    path = out.with_name(f"{out.name}.names.json")
    fd = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_CLOEXEC, 0o600)
    with os.fdopen(fd, "wb") as file:
        file.write(orjson.dumps(made.names, option=orjson.OPT_INDENT_2 | orjson.OPT_APPEND_NEWLINE))
    return [path]


def _tell(made: Bundle, written: list[Path], contents: Contents, *, as_json: bool) -> None:
    shape = {
        "incident_id": contents.incident.incident_id,
        "written": [str(path) for path in written],
        "bytes": written[0].stat().st_size,
        "files": sorted(made.files),
        "raw_lines": len(contents.lines),
        "captures": sorted(contents.captures),
        "redacted": made.redacted,
        "remarks": contents.remarks,
    }
    if as_json:
        sys.stdout.buffer.write(orjson.dumps(shape, option=orjson.OPT_INDENT_2 | orjson.OPT_APPEND_NEWLINE))
        sys.stdout.buffer.flush()
        return
    redacted = ", ".join(f"{count} x {kind}" for kind, count in made.redacted.items()) or "nothing found to redact"
    typer.echo(f"{visible(str(written[0]))}: {len(made.files)} files, {len(contents.lines)} lines, {redacted}")
    for path in written[1:]:
        typer.echo(f"{visible(str(path))}: which name is which; keep it, do not send it")
    for remark in contents.remarks:
        typer.echo(f"rootrank: {visible(remark)}", err=True)


def _refused(text: str) -> typer.Exit:
    typer.echo(f"rootrank: {visible(text)}", err=True)
    return typer.Exit(USAGE)


def _failed(text: str) -> typer.Exit:
    typer.echo(f"rootrank: {visible(text)}", err=True)
    return typer.Exit(UNREACHABLE)
