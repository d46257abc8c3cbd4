"""What a pattern matches. Everybody may write into a folder of logs, so a link there leads nowhere and round nothing.

As `glob.iglob(pattern, recursive=True)`, but `**` does not go through links: of two links to their own folder it would
never come back.
"""

import fnmatch
import glob
import os
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Final

_ANY_DEPTH: Final = "**"


def matching(pattern: str) -> set[Path]:
    """All paths that a pattern matches. What cannot be listed has none."""
    root, *parts = Path(pattern).parts if pattern.startswith("/") else (".", *Path(pattern).parts)
    found: set[Path] = set()
    waiting: list[tuple[str, tuple[str, ...]]] = [(root, tuple(parts))]
    seen: set[tuple[str, int]] = set()
    while waiting:
        folder, left = waiting.pop()
        if (folder, len(left)) in seen:
            continue
        seen.add((folder, len(left)))
        for path, rest in _below(folder, left):
            if rest:
                waiting.append((path, rest))
            else:
                found.add(Path(path))
    return found


def _below(folder: str, parts: tuple[str, ...]) -> Iterator[tuple[str, tuple[str, ...]]]:
    """What the first part matches in a folder, each with the parts that are left."""
    head, rest = parts[0], parts[1:]
    if head == _ANY_DEPTH:
        if rest:
            yield folder, rest
        for entry in _entries(folder):
            if entry.name.startswith("."):
                continue
            if _is_folder(entry, follows=False):
                yield entry.path, parts
            elif not rest:
                yield entry.path, ()
        return
    if not glob.has_magic(head):
        path = str(Path(folder, head))
        if rest or os.path.lexists(path):
            yield path, rest
        return
    fits = re.compile(fnmatch.translate(head)).match
    for entry in _entries(folder):
        is_shown = head.startswith(".") or not entry.name.startswith(".")
        if is_shown and fits(entry.name) and (not rest or _is_folder(entry, follows=True)):
            yield entry.path, rest


def _entries(folder: str) -> "list[os.DirEntry[str]]":
    try:
        with os.scandir(folder) as entries:
            return list(entries)
    except OSError:
        return []


def _is_folder(entry: "os.DirEntry[str]", *, follows: bool) -> bool:
    try:
        return entry.is_dir(follow_symlinks=follows)
    except OSError:
        return False
