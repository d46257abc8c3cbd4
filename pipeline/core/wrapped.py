"""Lines that a terminal or a page broke at its width: what stands behind the break goes on with the line."""

from collections.abc import Iterator
from typing import Final

import msgspec

from pipeline.core.parse import ParsedLine
from schemas.records import RawLine

# No terminal is narrower, and no line that matters longer.
MIN_WIDTH: Final = 72
MAX_CHARACTERS: Final = 4_096


def may_go_on(line: RawLine, parsed: ParsedLine) -> bool:
    """Whether a line is so long that it may have been broken off, with something in front that its rest lacks."""
    return len(line.body) >= MIN_WIDTH and bool(parsed.wrappers)


def is_rest(parsed: ParsedLine) -> bool:
    """Whether a line may be the rest of another: nothing in front of it says that it begins there."""
    return not parsed.wrappers and bool(parsed.body.strip()) and not parsed.body[0].isspace()


def joined(head: RawLine, rest: RawLine) -> Iterator[RawLine]:
    """The two as one line: as they are, then with the blank that a copy loses at the end of a line."""
    for gap in ("", " "):
        body = f"{head.body}{gap}{rest.body}"
        if len(body) <= MAX_CHARACTERS:
            yield msgspec.structs.replace(head, body=body)
