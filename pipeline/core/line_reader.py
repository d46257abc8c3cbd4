"""Reads lines: prefixes off, then what the body means. Lines of one shape are taken apart in one step.

Most lines of a log differ in their digits only. A shape is a line without its digits; the second line of a shape gets
a plan: one pattern for all of its prefixes, and the signals that can match its body. What a plan gives is what
`parse_line` and `SignalSet.match` give, for any line: `tests/core/test_line_reader.py`.
"""

import re
from functools import lru_cache
from typing import Any, Final

from msgspec import Struct

from pipeline.core.parse import INDENT, ParsedLine, parse_line, take_apart
from pipeline.core.prefix_fields import Takers, takers_of
from schemas.matching import load_prefixes
from schemas.signals import Candidates, Match, SignalSet

_DIGITS: Final = b"0123456789"
_ZEROS: Final = bytes(0x30 if 0x30 <= byte <= 0x39 else byte for byte in range(256))
# Longer lines are rare, and their shapes rarer.
MAX_CHARACTERS: Final = 2_048
MAX_PLANS: Final = 4_096
MAX_VARIANTS: Final = 64
# What decides whether a prefix is one stands within so many characters behind those that came off …
_LOOK_AHEAD: Final = 64
# … but for this one: whether it is the whole prefix of NCCL hangs on what stands far behind it.
_FAR: Final = "nccl_torn"
# Where an octal escape or a count of Ray may stand, the digits decide what is text.
_OCTAL: Final = "#0"
_COUNT: Final = "[repeated"
# Whether this is a prefix hangs on what stands far behind it; it is printed once by a process, at its end.
_WHAT: Final = "what():"


class _Plan(Struct):
    """How lines of one shape are made. `variants`: the digit counts for which the prefixes are known to be these."""

    match: Any
    takers: Takers
    wrappers: tuple[str, ...]
    candidates: Candidates
    variants: set[bytes]


class LineReader:
    """Reads lines with one set of signals. What it keeps from line to line never changes what it gives."""

    def __init__(self, signals: SignalSet) -> None:
        self._signals = signals
        self._prefixes = {prefix.entry.name: prefix for prefix in load_prefixes().prefixes}
        self._plans: dict[bytes, _Plan | None] = {}

    def read(self, text: str) -> tuple[ParsedLine, Match | None]:
        """What the prefixes of a line say, and what its body means."""
        parsed, candidates = self._taken_apart(text)
        if candidates is None:
            return parsed, self._signals.match(parsed.body)
        return parsed, self._signals.match_among(candidates, parsed.body)

    def parse(self, text: str) -> ParsedLine:
        """What the prefixes of a line say."""
        return self._taken_apart(text)[0]

    def _taken_apart(self, text: str) -> tuple[ParsedLine, Candidates | None]:
        """A line without its prefixes, and the signals that can match it; None where its shape is not known yet."""
        if len(text) > MAX_CHARACTERS or _OCTAL in text or _COUNT in text or _WHAT in text:
            return parse_line(text), None
        try:
            data = text.encode()
        except UnicodeEncodeError:
            data = text.encode("utf-8", "surrogatepass")
        shape = data.translate(None, _DIGITS)
        plan = self._plans.get(shape)
        if plan is not None:
            found = plan.match(text)
            if found is not None and _variant(text, data, found.end()) in plan.variants:
                fields: dict[str, Any] = {}
                if plan.takers.take(found.groups(), fields):
                    fields["body"] = text[found.end() :]
                    fields["wrappers"] = plan.wrappers
                    return ParsedLine(**fields), plan.candidates
        parsed, by_shape = take_apart(text)
        if by_shape:
            self._learn(shape, data, text, parsed)
        return parsed, None

    def _learn(self, shape: bytes, data: bytes, text: str, parsed: ParsedLine) -> None:
        if shape not in self._plans:
            # A shape that is seen once is not worth a plan.
            if len(self._plans) >= MAX_PLANS:
                self._plans.clear()
            self._plans[shape] = None
            return
        plan = self._plans[shape]
        if plan is None or plan.wrappers != parsed.wrappers:
            plan = self._plan(shape, parsed)
            if plan is None:
                return
            self._plans[shape] = plan
        found = plan.match(text)
        if found is not None and text[found.end() :] == parsed.body and len(plan.variants) < MAX_VARIANTS:
            plan.variants.add(_variant(text, data, found.end()))

    def _plan(self, shape: bytes, parsed: ParsedLine) -> _Plan | None:
        # What is no prefix changed the line as a whole: colours, an object around it.
        if _FAR in parsed.wrappers or not self._prefixes.keys() >= set(parsed.wrappers):
            return None
        prefixes, pattern = [self._prefixes[name] for name in parsed.wrappers], ""
        takers = takers_of(prefixes)
        if not takers.in_order:
            return None
        for number, prefix in enumerate(prefixes):
            named = re.sub(r"\(\?P<(\w+)>", rf"(?P<\1_{number}>", prefix.entry.pattern)
            pattern += f"(?:{INDENT})?(?>{named})"
        return _Plan(
            match=re.compile(pattern, re.ASCII).match, takers=takers, wrappers=parsed.wrappers,
            candidates=self._signals.candidates_of_shape(shape.decode("utf-8", "surrogatepass")), variants=set(),
        )  # fmt: skip


def _variant(text: str, data: bytes, end: int) -> bytes:
    """The prefixes of a line, which end at a character, and what they may look at, as far as their shape goes."""
    head = end + _LOOK_AHEAD
    return (data[:head] if len(data) == len(text) else text[:head].encode("utf-8", "surrogatepass")).translate(_ZEROS)


@lru_cache(maxsize=4)
def line_reader(signals: SignalSet) -> LineReader:
    """The reader of a set of signals, shared by all who read with it."""
    return LineReader(signals)
