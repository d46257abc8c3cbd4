"""Log text is written by anybody: no pattern takes more than linear time on any line, and none fails on any bytes."""

import re
import time
from collections.abc import Iterator

import pytest

from schemas import signals
from schemas.matching import Prefix, load_prefixes
from schemas.signal_files import Signal
from schemas.signals import HEAD_CHARS, TAIL_CHARS

SIGNALS = signals.load()
# What one body may cost at most is bounded by what of it is searched.
LONG = HEAD_CHARS + TAIL_CHARS
CUTS = 12
# What a line may cost, told by this machine at this moment: times the cost of a pattern that is linear and slow,
# because it tries a name of 64 characters at every place. A quadratic one on so long a line costs 50 times as much.
SLOW_BUT_LINEAR = re.compile(r"\w{1,64}:", re.ASCII).search
ALLOWED = 8


def allowed_s() -> float:
    line, start = "a" * LONG, time.process_time()
    for _ in range(20):
        SLOW_BUT_LINEAR(line)
    return ALLOWED * (time.process_time() - start) / 20


def pumped(example: str) -> Iterator[str]:
    """Lines that begin as the example and then go on and on with what a pattern may take there."""
    for number in range(1, CUTS + 1):
        head = example[: max(1, len(example) * number // CUTS)]
        word = re.findall(r"\S+\s*|\s+", head)[-1]
        for piece in (head[-1], word, head[-12:], "0", "a", " ", "a ", "0x", "(", "1, "):
            yield head + piece * ((LONG - len(head)) // len(piece)) + "\x00"


@pytest.mark.parametrize("signal", SIGNALS.signals, ids=lambda signal: signal.id)
def test_a_signal_reads_any_continuation_of_its_examples_in_linear_time(signal: Signal) -> None:
    searches = [re.compile(pattern, re.ASCII).search for pattern in signal.patterns]
    allowed = allowed_s()
    start, lines = time.process_time(), 0
    for example in signal.matches:
        for line in pumped(example.line):
            lines += 1
            for search in searches:
                search(line)
    spent = (time.process_time() - start) / lines
    assert spent < max(allowed, allowed_s())


@pytest.mark.parametrize("prefix", load_prefixes().prefixes, ids=lambda prefix: prefix.entry.name)
def test_a_prefix_reads_any_continuation_of_its_examples_in_linear_time(prefix: Prefix) -> None:
    allowed = allowed_s()
    start, lines = time.process_time(), 0
    for example in prefix.entry.matches:
        for line in pumped(example):
            lines += 1
            prefix.match(line, 0)
    spent = (time.process_time() - start) / lines
    assert spent < max(allowed, allowed_s())
