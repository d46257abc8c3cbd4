"""The file that a page is written to: whole or not at all, and never over something else."""

import os
from collections.abc import Sequence
from pathlib import Path
from typing import Final

from pipeline.report.page import GENERATOR

DEFAULT_PAGE: Final = "rootrank-report.html"
_SUFFIXES: Final = (".html", ".htm")
_HEAD_BYTES: Final = 2_000


def with_page_name(arguments: Sequence[str]) -> list[str]:
    """The arguments with the default name behind each `--html` that is not followed by a name of a page.

    So `--html` may stand anywhere: what follows is its FILE only if it ends in .html, and else a path to read. A FILE
    of another name is given as `--html=FILE`.
    """
    found: list[str] = []
    for number, argument in enumerate(arguments):
        if argument == "--":
            return [*found, *arguments[number:]]
        following = arguments[number + 1] if number + 1 < len(arguments) else ""
        bare = argument == "--html" and not following.lower().endswith(_SUFFIXES)
        found.append(f"{argument}={DEFAULT_PAGE}" if bare else argument)
    return found


def not_replaceable(file: Path) -> str:
    """Why a page must not be written there: it holds something else than a page of rootrank. Nothing where it may."""
    if not file.is_file():
        return ""
    try:
        with file.open("rb") as stream:
            head = stream.read(_HEAD_BYTES)
    except OSError as error:
        return f"{file} is there and cannot be read ({error.strerror}); --force replaces it"
    if not head or f'<meta name="generator" content="{GENERATOR} '.encode() in head:
        return ""
    return f"{file} is there and is no page of rootrank; --html=OTHER.html writes another file, --force replaces it"


def write_page(file: Path, page: str) -> None:
    """Write a file whole or not at all; into what is no file (a pipe, /dev/stdout) it is written directly.

    Raises OSError.
    """
    if file.exists() and not file.is_file():
        file.write_text(page, encoding="utf-8")
        return
    whole = file.with_name(f".{file.name}.{os.getpid()}")
    try:
        with whole.open("x", encoding="utf-8") as stream:
            stream.write(page)
        whole.replace(file)
    finally:
        whole.unlink(missing_ok=True)
