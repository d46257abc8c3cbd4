"""Which of many lines may hold a secret of which kind: a few searches over all of them together."""

import re
from bisect import bisect_right
from collections.abc import Iterator, Sequence
from itertools import accumulate
from typing import Final

from shippers.redact_patterns import Rules

_RUN: Final = b"w" * 16
_WORD: Final = b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789_-~"
_RUNS: Final = bytes(ord("w") if byte in _WORD else ord(" ") for byte in range(256))
_DIGITS: Final = bytes(
    ord("0") if byte in b"0123456789" else ord("-") if byte in b" -" else ord("x") for byte in range(256)
)

Hinted = list[tuple[bytes, tuple[int, ...]]]
Candidates = dict[int, set[int]]


class Finder:
    """Finds candidates by literals, by long words, by rows of digits, and by patterns that have none of these.

    A literal costs as much as the lines are long, so a few short words are looked for in all lines, and what hangs on
    them only where one is.
    """

    def __init__(self, rules: Rules, others: Sequence[bytes]) -> None:
        """`others` are literals by which a line becomes a candidate without a pattern."""
        by_hint: dict[bytes, set[int]] = {hint: set() for block in rules.blocks for hint in block.hints}
        in_run: dict[bytes, set[int]] = {}
        by_digits: dict[bytes, set[int]] = {}
        self._scans: list[tuple[re.Pattern[str], int]] = []
        for number, rule in enumerate(rules.patterns):
            for hint in rule.hints:
                (in_run if rule.in_run else by_hint).setdefault(hint, set()).add(number)
            for shape in rule.digits:
                by_digits.setdefault(shape, set()).add(number)
            if not rule.hints and not rule.digits:
                self._scans.append((rule.pattern, number))
        self._in_run: Hinted = [(hint, tuple(numbers)) for hint, numbers in in_run.items()]
        self._digits: Hinted = [(shape, tuple(numbers)) for shape, numbers in by_digits.items()]
        self._words: dict[bytes, Hinted] = {}
        for hint, numbers in by_hint.items():
            word = next((word for word in rules.words if word in hint), hint)
            self._words.setdefault(word, []).append((hint, tuple(numbers)))
        self._others = tuple(others)

    def candidates(self, texts: Sequence[str]) -> Candidates:
        """By number of a text the patterns that may fit it; none where only blocks and pieces have to be looked at."""
        block = "\n".join(texts)
        starts = [0, *accumulate(len(text) + 1 for text in texts)]
        raw = block.encode("ascii", "replace").lower()  # as many bytes as there are characters
        found: Candidates = {}
        for word, hinted in self._words.items():
            for number in _where(word, raw, starts):
                self._look(raw[starts[number] : starts[number + 1]], hinted, number, found)
        for number in _where(_RUN, raw.translate(_RUNS), starts):
            self._look(raw[starts[number] : starts[number + 1]], self._in_run, number, found)
        digits = raw.translate(_DIGITS)
        for shape, numbers in self._digits:
            for number in _where(shape, digits, starts):
                found.setdefault(number, set()).update(numbers)
        for other in self._others:
            for number in _where(other, raw, starts):
                found.setdefault(number, set())
        for pattern, rule in self._scans:
            for number, text in enumerate(texts):  # each by itself: a pattern may say where a line begins or ends
                if pattern.search(text):
                    found.setdefault(number, set()).add(rule)
        return found

    @staticmethod
    def _look(line: bytes, hinted: Hinted, number: int, found: Candidates) -> None:
        for hint, numbers in hinted:
            if hint in line:
                found.setdefault(number, set()).update(numbers)


def _where(literal: bytes, raw: bytes, starts: list[int]) -> Iterator[int]:
    """The numbers of the texts that hold a literal, each once."""
    at = raw.find(literal)
    while at >= 0:
        number = bisect_right(starts, at) - 1
        yield number
        at = raw.find(literal, starts[number + 1])
