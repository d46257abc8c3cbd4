"""What nobody reads: lines with a hint that no pattern fits, and lines that look like errors. Patterns rot."""

import re
from collections.abc import Iterable
from typing import Final

from msgspec import Struct

from pipeline.core.line_reader import line_reader
from pipeline.core.statements import Pending, Statements
from schemas.records import RawLine
from schemas.signals import SignalSet

# Words by which programs say that something is wrong. Not a rule: only what a person may want to look at.
LOOKS_WRONG: Final = re.compile(
    r"\b(?:error|errors|err|fail|failed|failure|fatal|exception|panic|abort|aborted|timeout|timed out|refused|denied"
    r"|corrupt|corrupted|crash|crashed|killed|lost|unable|unreachable|unexpected|invalid|critical|bug)\b",
    re.ASCII | re.IGNORECASE,
)
MAX_SHAPES: Final = 10_000
_SHAPE_CHARACTERS: Final = 200
_VALUES: Final = (
    (re.compile(r"\b0x[0-9a-f]{1,32}\b", re.ASCII | re.IGNORECASE), "#"),
    (re.compile(r"\b(?=[a-f]{0,40}\d)[0-9a-f]{8,64}\b", re.ASCII | re.IGNORECASE), "#"),
    (re.compile(r"\d{1,40}", re.ASCII), "#"),
    (re.compile(r"(?:/[\w.@#+-]{1,200}){2,40}", re.ASCII), "/…"),
)


class Shape(Struct, kw_only=True):
    """Lines that differ in their values only. `signals`: those whose hint is in them, for a near miss."""

    shape: str
    count: int
    example: str
    source: str
    line_no: int
    signals: list[str]


class Unmatched(Struct, kw_only=True):
    """Near misses and unknown errors by shape, most frequent first. `lines`: how many were looked at.

    `dropped_lines`: of shapes for which there was no room.
    """

    lines: int
    near_misses: list[Shape]
    unknown_errors: list[Shape]
    dropped_lines: int = 0


def shape_of(body: str) -> str:
    """A body without its values: numbers, addresses and paths."""
    body = body[:_SHAPE_CHARACTERS]
    for pattern, instead in _VALUES:
        body = pattern.sub(instead, body)
    return body.strip()


def unmatched(lines: Iterable[RawLine], signals: SignalSet) -> Unmatched:
    """Go through the lines of files, one file after the other."""
    reader = line_reader(signals)
    near: dict[str, Shape] = {}
    wrong: dict[str, Shape] = {}
    count = dropped = 0
    source, statements = "", Statements(signals, Pending())
    for line in lines:
        count += 1
        if line.source != source:
            source, statements = line.source, Statements(signals, Pending())
        wanted = statements.wants(line.body)
        if not wanted and not LOOKS_WRONG.search(line.body):
            continue
        whole = statements.whole(line)
        if whole is None:
            continue
        parsed, match = reader.read(whole.line.body)
        if statements.of(whole, parsed, match) or match is not None or statements.is_taken:
            continue
        hinted = [signal.id for signal in signals.near(parsed.body)] if wanted else []
        if not hinted and not LOOKS_WRONG.search(parsed.body):
            continue
        dropped += not _count(near if hinted else wrong, parsed.body, whole.line, hinted)
    return Unmatched(
        lines=count, near_misses=sorted(near.values(), key=_rarity), unknown_errors=sorted(wrong.values(), key=_rarity),
        dropped_lines=dropped,
    )  # fmt: skip


def _rarity(shape: Shape) -> tuple[int, str]:
    return -shape.count, shape.shape


def _count(shapes: dict[str, Shape], body: str, line: RawLine, signals: list[str]) -> bool:
    shape = shape_of(body)
    known = shapes.get(shape)
    if known is not None:
        known.count += 1
    elif len(shapes) < MAX_SHAPES:
        shapes[shape] = Shape(
            shape=shape, count=1, example=body[:400], source=line.source, line_no=line.line_no or 0, signals=signals
        )
    else:
        return False
    return True
