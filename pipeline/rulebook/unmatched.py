"""What nobody reads: lines with a hint that no pattern fits, and lines that look like errors. Patterns rot."""

import re
from collections.abc import Iterable, Iterator
from typing import Final

from msgspec import Struct

from pipeline.core.line_reader import line_reader
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
    """Near misses and unknown errors by shape, most frequent first. `lines`: how many were looked at."""

    lines: int
    near_misses: list[Shape]
    unknown_errors: list[Shape]
    dropped_shapes: int = 0


def shape_of(body: str) -> str:
    """A body without its values: numbers, addresses and paths."""
    body = body[:_SHAPE_CHARACTERS]
    for pattern, instead in _VALUES:
        body = pattern.sub(instead, body)
    return body.strip()


def unmatched(lines: Iterable[tuple[str, int, str]], signals: SignalSet) -> Unmatched:
    """Go through (source, line number, text) of lines."""
    reader = line_reader(signals)
    near: dict[str, Shape] = {}
    wrong: dict[str, Shape] = {}
    count = dropped = 0
    for source, number, text in lines:
        count += 1
        hit = signals.hit(text)
        if not hit and not LOOKS_WRONG.search(text):
            continue
        parsed, match = reader.read(text)
        if match is not None:
            continue
        hinted = [s.id for s in signals.candidates(parsed.body) if s.role != "noise" and not s.sampled] if hit else []
        if not hinted and not LOOKS_WRONG.search(parsed.body):
            continue
        dropped += not _count(near if hinted else wrong, parsed.body, source, number, hinted)
    by_count = lambda shape: (-shape.count, shape.shape)  # noqa: E731
    return Unmatched(
        lines=count, near_misses=sorted(near.values(), key=by_count),
        unknown_errors=sorted(wrong.values(), key=by_count), dropped_shapes=dropped,
    )  # fmt: skip


def _count(shapes: dict[str, Shape], body: str, source: str, number: int, signals: list[str]) -> bool:
    shape = shape_of(body)
    known = shapes.get(shape)
    if known is not None:
        known.count += 1
    elif len(shapes) < MAX_SHAPES:
        shapes[shape] = Shape(shape=shape, count=1, example=body[:400], source=source, line_no=number, signals=signals)
    else:
        return False
    return True


def numbered(source: str, texts: Iterable[str]) -> Iterator[tuple[str, int, str]]:
    """The lines of one source with their numbers."""
    return ((source, number, text) for number, text in enumerate(texts, 1))
