"""Noise stays noise: what a healthy cluster prints raises next to nothing."""

from collections import Counter

import pytest

from schemas.vocabulary import SEVERITY_NUMBER
from tests import noise
from tests.lines.reading import events_of

LINES = 1_000_000
PIECE = 50_000


@pytest.mark.slow
def test_of_a_million_ordinary_lines_fewer_than_ten_warn() -> None:
    warned: Counter[tuple[str, str]] = Counter()
    piece: list[str] = []
    for number, line in enumerate(noise.lines(LINES), 1):
        piece.append(line)
        if number % PIECE == 0:
            for event in events_of("\n".join(piece)):
                if SEVERITY_NUMBER[event.severity] >= SEVERITY_NUMBER["warning"]:
                    warned[event.name, event.body] += event.count
            piece.clear()
    assert sum(warned.values()) < 10, warned.most_common(20)


def test_every_fault_among_the_noise_is_an_event() -> None:
    lines = list(noise.mixed(4_000, 50))
    told = [event for event in events_of("\n".join(lines)) if SEVERITY_NUMBER[event.severity] >= 13]
    assert sum(event.count for event in told) >= 4_000 // 50
