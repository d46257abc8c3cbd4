"""What goes into a bundle, before it is redacted."""

from collections.abc import Iterable, Mapping
from typing import Any

from msgspec import Struct

from schemas.records import Incident

CAPTURE_HEAD = "rootrank: capture id="
CAPTURE_TEXT = "rootrank: capture.text id="


class Line(Struct, frozen=True, kw_only=True):
    """A raw line where it stands."""

    node: str
    source: str
    text: str
    line_no: int | None = None
    offset: int | None = None
    observed_at: str | None = None


class Contents(Struct, frozen=True, kw_only=True):
    """All of it. `captures` by their ids; `remarks`: what is not there, and why. `origin`: where it was taken from."""

    incident: Incident
    lines: list[Line]
    captures: dict[str, str]
    origin: str
    remarks: list[str] = []


def captures_in(bodies: Iterable[str]) -> dict[str, str]:
    """The texts of captures, put together from the lines that carried them."""
    found: dict[str, list[str]] = {}
    for body in bodies:
        if body.startswith(CAPTURE_HEAD):
            found.setdefault(_value(body, CAPTURE_HEAD), []).insert(0, body)
        elif body.startswith(CAPTURE_TEXT):
            _, _, text = body.partition(" | ")
            found.setdefault(_value(body, CAPTURE_TEXT), []).append(text)
    return {name: "\n".join(lines) + "\n" for name, lines in found.items() if name.isalnum()}


def _value(body: str, head: str) -> str:
    return body.removeprefix(head).split(" ", 1)[0]


def line_of(row: Mapping[str, Any]) -> Line:
    """A row of the store as a line."""
    observed = row.get("observed_at")
    return Line(
        node=row["node"], source=row["source"], text=row["body"], line_no=_number(row["line_no"]),
        offset=_number(row["offset"]),
        observed_at=str(observed) if observed and not str(observed).startswith("1970") else None,
    )  # fmt: skip


def _number(value: Any) -> int | None:
    """A number that some engines write as text."""
    return None if value is None else int(value)


def distinct(lines: Iterable[Line]) -> list[Line]:
    """Each line once, in the order of node, source and place."""
    known = {(line.node, line.source, line.offset, line.line_no, line.text): line for line in lines}
    return sorted(known.values(), key=lambda line: (line.node, line.source, line.offset or line.line_no or 0))
