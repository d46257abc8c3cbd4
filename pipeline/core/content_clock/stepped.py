"""Nodes whose lines of the same events come later than before, against others': a clock was set, or the node is slow.

Bounds alone do not prove a change that is smaller than they are wide; what is usual of a dozen meetings shows it.
"""

import itertools
from collections.abc import Iterable
from statistics import median_low
from typing import Final

from msgspec import Struct

from pipeline.core.content_clock.bounds import drift_ns
from pipeline.core.content_clock.meetings import Meeting

BLOCK: Final = 12
# Of each block so many at either end are not asked: lines that were late.
TRIMMED: Final = 1
# Coarse stamps of a regular event may all be early for a while and all be late for another: a clock that is set by
# less than they resolve is not noticed. What hosts do between the event and their line may change, too.
SURE_SHARE: Final = 1.05
SURE_NS: Final = 20_000_000
# Of so many lines in a row most are usual.
FEW: Final = 5
# A cadence that is regular for so many of its steps, give or take a part of the change, shows who left it.
REGULAR: Final = 0.9

# When two nodes told of an event, in twice ns: the one, the other.
Twice = tuple[int, int]


class Change(Struct, frozen=True, kw_only=True):
    """The lines of one of `nodes` come `ns` later than before; `spread_ns`: between the least and the most that was
    usual of them at any time.
    """

    nodes: tuple[str, ...]
    ns: int
    spread_ns: int


def changes(meetings: list[Meeting], hub: str, nodes: Iterable[str]) -> list[Change]:
    """Whose lines have moved, by the clock of the hub; the hub's alone where those of most others have."""
    others = [node for node in nodes if node != hub and any(node in meeting.together for meeting in meetings)]
    found = [change for node in others if (change := _change(meetings, hub, node)) is not None]
    if len(others) > 1 and 2 * len(found) > len(others):
        ns = -median_low(change.ns for change in found)
        return [Change(nodes=(hub,), ns=ns, spread_ns=max(change.spread_ns for change in found))]
    if len(others) == 1 and found:
        # Of two nobody tells which, but for their own cadence.
        who = _who(_met(meetings, hub, others[0]), hub, others[0], found[0].ns)
        return [Change(nodes=who, ns=-found[0].ns if who == (hub,) else found[0].ns, spread_ns=found[0].spread_ns)]
    return found


# When an event was, and what the clocks of two nodes showed.
_Shown = tuple[int, tuple[int, int], tuple[int, int]]


def _change(meetings: list[Meeting], hub: str, node: str) -> Change | None:
    shown = [(m.at_ns, m.together[hub], m.together[node]) for m in meetings if {hub, node} <= m.together.keys()]
    blocks = [shown[first : first + BLOCK] for first in range(0, len(shown) - BLOCK + 1, BLOCK)]
    usual = [_usual([_later(one) for one in block]) for block in blocks]
    coarse_ns = max((mine[1] - mine[0] + his[1] - his[0] for _, mine, his in shown), default=0) // 2
    moved_ns, moves = 0, list[tuple[int, int]]()
    for number, block in enumerate(blocks):
        for before in range(max(0, number - 2), number):
            may_ns = SURE_NS + round(SURE_SHARE * coarse_ns) + drift_ns(block[-1][0] - blocks[before][0][0])
            ns = usual[number] - usual[before]
            if abs(ns) > may_ns:
                moves.append((before, number))
                moved_ns = ns if abs(ns) > abs(moved_ns) else moved_ns
    spread_ns = sum(_spread_ns(shown, first, last) for first, last in _merged(moves))
    return Change(nodes=(node,), ns=moved_ns, spread_ns=max(abs(moved_ns), spread_ns)) if moves else None


def _merged(moves: list[tuple[int, int]]) -> list[tuple[int, int]]:
    """First and last block of each stretch in which something moved."""
    merged: list[tuple[int, int]] = []
    for first, last in sorted(moves):
        if merged and first < merged[-1][1]:
            merged[-1] = (merged[-1][0], max(last, merged[-1][1]))
        else:
            merged.append((first, last))
    return merged


def _spread_ns(shown: list[_Shown], first: int, last: int) -> int:
    """How much of what is usual of few lines changes over some blocks, as far as clocks drift meanwhile."""
    end = (last + 1) * BLOCK
    part = shown[first * BLOCK : end if end + BLOCK <= len(shown) else len(shown)]
    few = [median_low(map(_later, part[number : number + FEW])) for number in range(len(part) - FEW + 1)]
    return (max(few) - min(few)) // 2 + 1 + drift_ns(part[-1][0] - part[0][0])


def _later(shown: _Shown) -> int:
    """By how much the node shows more than the hub; in twice ns."""
    _, mine, his = shown
    return his[0] + his[1] - mine[0] - mine[1]


def _usual(twice: list[int]) -> int:
    """The mean of what is neither very small nor very large; of doubled values."""
    kept = sorted(twice)[TRIMMED:-TRIMMED]
    return sum(kept) // (2 * len(kept))


def _met(meetings: list[Meeting], one: str, other: str) -> list[Twice]:
    return [(sum(m.together[one]), sum(m.together[other])) for m in meetings if {one, other} <= m.together.keys()]


def _who(met: list[Twice], hub: str, node: str, ns: int) -> tuple[str, ...]:
    """Who of two left its own cadence by the change while the other kept it; both where that is not plain."""
    near_ns = abs(ns) // 4
    # By a clock that was set back the events are not in their order.
    orders = [_astray(sorted(met)), _astray(sorted(met, key=lambda shown: shown[1]))]
    regular = [sum(max(abs(mine), abs(his)) <= near_ns for mine, his in astray) for astray in orders]
    astray = orders[0] if regular[0] > regular[1] else orders[1]
    mine_left = sum(abs(mine + ns) <= near_ns and abs(his) <= near_ns for mine, his in astray)
    his_left = sum(abs(his - ns) <= near_ns and abs(mine) <= near_ns for mine, his in astray)
    if max(regular) >= REGULAR * len(astray) and (mine_left, his_left) in ((1, 0), (0, 1)):
        return (hub,) if mine_left else (node,)
    return (hub, node)


def _astray(met: list[Twice]) -> list[tuple[int, int]]:
    """By how much each of two leaves the usual pace from one event to the next."""
    paces = [((after[0] - one[0]) // 2, (after[1] - one[1]) // 2) for one, after in itertools.pairwise(met)]
    usual_ns = median_low(min(pace) for pace in paces)
    return [(mine - usual_ns, his - usual_ns) for mine, his in paces]
