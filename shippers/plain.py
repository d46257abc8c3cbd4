"""Lines of a text file as records."""

from collections.abc import Iterator

from schemas.lines import body_of
from schemas.records import RawLine
from shippers.generation import Chunk

Shaped = tuple[list[RawLine], int]


def shape_lines(chunk: Chunk, source: str, generation: str, observed_ns: int, numbers: Iterator[int]) -> Shaped:
    """One record a line, and how many lines were used.

    NUL bytes before a line, left by a writer that did not notice a truncation, are no part of it.
    """
    offset = chunk.start
    line_no = chunk.line_no
    lines: list[RawLine] = []
    for raw in chunk.raws:
        if line_no is not None:
            line_no += 1
        text = raw.lstrip(b"\0") if raw[:1] == b"\0" else raw
        lines.append(
            RawLine(
                seq=next(numbers),
                source=source,
                generation=generation,
                offset=offset + len(raw) - len(text),
                body=body_of(text)[0],
                line_no=line_no,
                observed_time_unix_nano=observed_ns,
                truncated=chunk.too_long,
            )
        )
        offset += len(raw) + 1
    return lines, len(chunk.raws)
