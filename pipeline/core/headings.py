"""Tracebacks of which only the first line says who wrote them: `[… TP3] Scheduler hit an exception: Traceback …`.

A logger writes one record of several lines, with its prefix before the first. The lines behind it that say nobody are
of the same writer for as long as they look like the traceback.
"""

import re
from typing import Any, Final

import msgspec
from msgspec import Struct

from pipeline.core.parse import ParsedLine

_WHO: Final = ("rank", "local_rank", "task", "pid", "cuda_dev", "pg_rank", "pg", "process")
# So far in the file (bytes) the next line of a traceback stands at most.
MAX_DISTANCE: Final = 16 * 1024
_TRACEBACK: Final = "Traceback (most recent call last):"
# torch.multiprocessing.spawn counts the processes of its node, one for each GPU.
_SPAWNED: Final = re.compile(r"-- Process (?P<process>\d{1,4}) terminated with the following error:", re.ASCII)
_CHAINED: Final = (
    "During handling of the above exception, another exception occurred:",
    "The above exception was the direct cause of the following exception:",
)


class Heading(Struct, kw_only=True):
    """Who began a traceback, and whether its exception was seen: then only another one in the chain goes on with it."""

    said: dict[str, int | str]
    offset: int
    node: str | None = None
    pod: str | None = None
    ended: bool = False
    chained: bool = False


def heading_of(parsed: ParsedLine, offset: int) -> Heading | None:
    """What the line begins for those behind it; None where it begins no traceback or does not say who writes it."""
    if parsed.body.endswith(_TRACEBACK):
        said = _said(parsed)
        return Heading(said=said, offset=offset, node=parsed.node, pod=parsed.pod) if said else None
    spawned = _SPAWNED.fullmatch(parsed.body)
    if spawned is None:
        return None
    said = {"local_rank": int(spawned["process"])}
    return Heading(said=said, offset=offset, node=parsed.node, pod=parsed.pod, chained=True)


def headed(parsed: ParsedLine, heading: Heading, offset: int) -> ParsedLine | None:
    """The line, as one of the heading's writer where it looks like the traceback; None where that is over.

    What somebody else prints in between, without a traceback of its own, changes nothing: of large files it is unread.
    """
    body = parsed.body
    if offset - heading.offset > MAX_DISTANCE or _said(parsed) or (parsed.node, parsed.pod) != _place(heading):
        return None
    if body and not body[0].isspace():
        if body.startswith(_CHAINED):
            heading.chained = True
        elif body == _TRACEBACK:
            if not heading.chained:
                return None
            heading.ended = heading.chained = False
        elif not is_exception(body):
            return parsed
        elif heading.ended:
            return None
        else:
            heading.ended = True
    heading.offset = offset
    said: Any = heading.said
    return msgspec.structs.replace(parsed, **said)


def _place(heading: Heading) -> tuple[str | None, str | None]:
    return heading.node, heading.pod


def is_exception(body: str) -> bool:
    """Whether a line is the last one of a traceback: the type of an exception, and what it says."""
    name, colon, _ = body.partition(":")
    last = name.rpartition(".")[2]
    if not name.replace(".", "").isidentifier() or not last[:1].isupper() or last.isupper():
        return False
    return bool(colon) or last.endswith(("Error", "Exception", "Interrupt", "Exit", "Iteration"))


def _said(parsed: ParsedLine) -> dict[str, int | str]:
    return {name: value for name in _WHO if (value := getattr(parsed, name)) is not None}
