"""Lines that a terminal or a page broke at its width: what stands behind the break goes on with the line."""

from collections.abc import Iterator
from typing import Final

import msgspec
from msgspec import Struct

from pipeline.core.parse import ParsedLine
from schemas.records import RawLine

# No terminal is narrower, and no line that matters longer.
MIN_WIDTH: Final = 72
MAX_PARTS: Final = 12


class Wrapped(Struct, kw_only=True):
    """A line of which more may follow: what there is of it so far, the width of its page, and of how many lines."""

    line: RawLine
    width: int
    parts: int = 1

    def grow(self, line: RawLine, rest: RawLine) -> bool:
        """Take one more part; whether more may still follow: only a full line is broken."""
        self.line, self.parts = line, self.parts + 1
        return self.parts < MAX_PARTS and len(rest.body) == self.width

    def joined(self, rest: RawLine) -> Iterator[RawLine]:
        """The two as one line: as they are, then with the blank that a copy loses at the end of a line."""
        for gap in ("", " "):
            yield msgspec.structs.replace(self.line, body=f"{self.line.body}{gap}{rest.body}")

    def goes_on(self, rest: RawLine, parsed: ParsedLine) -> bool:
        """Whether the next line may be the rest: it is no wider, and nothing in front says that it begins there."""
        if rest.line_no is None or self.line.line_no is None or rest.line_no != self.line.line_no + self.parts:
            return False
        return not parsed.wrappers and bool(parsed.body.strip()) and len(rest.body) <= self.width


def wrapped_of(line: RawLine, parsed: ParsedLine) -> Wrapped | None:
    """A line that may be broken off: it is long, and something stands in front of it that its rest lacks."""
    if len(line.body) < MIN_WIDTH or not parsed.wrappers:
        return None
    return Wrapped(line=line, width=len(line.body))
