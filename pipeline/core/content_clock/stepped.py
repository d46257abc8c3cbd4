"""Clocks that were set while a job ran: what they show of the same events jumps against the others.

Bounds alone do not prove a step that is smaller than they are wide; what is usual of a dozen meetings shows it.
"""

from collections import Counter
from typing import Final

from pipeline.core.content_clock.bounds import drift_ns
from pipeline.core.content_clock.meetings import Meeting

BLOCK: Final = 12
# Of each block so many at either end are not asked: lines that were late.
TRIMMED: Final = 1
# Coarse stamps of a regular event may all be early for a while and all be late for another: a clock that is set by
# less than they resolve is not noticed. What hosts do between the event and their line may change, too.
SURE_SHARE: Final = 1.05
SURE_NS: Final = 20_000_000


def stepped(meetings: list[Meeting], hub: str) -> list[str]:
    """Whose clocks were set, by the clock of the hub; the hub alone where all others jump against it."""
    others = sorted({node for meeting in meetings for node in meeting.together} - {hub})
    jumped: Counter[str] = Counter()
    for node in others:
        shown = [(m.at_ns, m.together[hub], m.together[node]) for m in meetings if {hub, node} <= m.together.keys()]
        blocks = [shown[first : first + BLOCK] for first in range(0, len(shown) - BLOCK + 1, BLOCK)]
        usual = [_usual([mine[0] + mine[1] - his[0] - his[1] for _, mine, his in block]) for block in blocks]
        coarse_ns = max((mine[1] - mine[0] + his[1] - his[0] for _, mine, his in shown), default=0) // 2
        for number, block in enumerate(blocks):
            for before in range(max(0, number - 2), number):
                may_ns = SURE_NS + round(SURE_SHARE * coarse_ns) + drift_ns(block[-1][0] - blocks[before][0][0])
                if abs(usual[number] - usual[before]) > may_ns:
                    jumped[node] += 1
    if len(others) > 1 and 2 * len(jumped) > len(others):
        return [hub]
    return sorted(jumped)


def _usual(twice: list[int]) -> int:
    """The mean of what is neither very small nor very large; of doubled values."""
    kept = sorted(twice)[TRIMMED:-TRIMMED]
    return sum(kept) // (2 * len(kept))
