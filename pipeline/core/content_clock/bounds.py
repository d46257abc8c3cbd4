"""How far the clocks of nodes can be apart at one moment: differences that are bounded, and what follows from them.

`bounds[i][j]` is the most (ns) that the offset of i, reference minus wall, is above that of j.
"""

from collections.abc import Mapping
from functools import lru_cache
from math import comb
from typing import Final

from msgspec import Struct

from pipeline.core.content_clock.meetings import Meeting, Round
from pipeline.core.times import PAIR_PPM

# A rate changes by less than this a second: a quartz whose temperature rises by 5 ppm a minute was still within.
RATE_PPB_PER_S: Final = 30
# What a clock that is steered is put right by between two rounds.
STEER_NS: Final = 300_000
# Lines are later than the slack, or than a tenth of what coarse stamps resolve, in less than one of 20 cases.
LATE_ONE_IN: Final = 20
LEAST_MEETINGS: Final = 17
# A bound is wrong by chance in one case of so many.
ONE_IN: Final = 100_000
FAR: Final = 2**62

Bounds = list[list[int]]


class Rate(Struct, frozen=True, kw_only=True):
    """How fast an offset grows against that of the hub, and how wrong that may be, in parts per billion."""

    ppb: int
    off_ppb: int


Rates = Mapping[str, Rate]


def drift_ns(elapsed_ns: int) -> int:
    """How far two clocks may run apart meanwhile."""
    return abs(elapsed_ns) * PAIR_PPM // 1_000_000


def bend_ns(elapsed_ns: int) -> int:
    """How far a clock may leave the course that it is on meanwhile."""
    return (elapsed_ns // 1_000_000) ** 2 * RATE_PPB_PER_S // 2_000_000


@lru_cache(maxsize=1024)
def most_late(count: int) -> int:
    """Of so many lines of which each is late in one of LATE_ONE_IN cases, how many at most are late."""
    share, unlikely = 1 / LATE_ONE_IN, 1.0
    for late in range(count + 1):
        unlikely -= comb(count, late) * share**late * (1 - share) ** (count - late)
        if unlikely * ONE_IN < 1:
            return late
    return count


def bounds_of(
    round_: Round, nodes: list[str], rates: Rates, wider: Mapping[str, int], among: set[int] | None = None
) -> Bounds:
    """What the meetings of a round say of each pair; of pairs with one of `among` where that is given. `wider`: by how
    much the lines of a node may be further off than others.
    """
    bounds = [[0 if i == j else FAR for j in range(len(nodes))] for i in range(len(nodes))]
    shown = [
        [_shown(m.together.get(node), m, round_.at_ns, rates.get(node)) for m in round_.together] for node in nodes
    ]
    slack_ns = max((meeting.slack_ns for meeting in round_.together), default=0)
    for i in range(len(nodes)):
        for j in range(i):
            if among is None or i in among or j in among:
                more_ns = wider.get(nodes[i], 0) + wider.get(nodes[j], 0)
                bounds[i][j], bounds[j][i] = _pair(shown[i], shown[j], slack_ns + more_ns)
    numbers = {node: number for number, node in enumerate(nodes)}
    for meeting in round_.limits:
        _limit(bounds, meeting, round_.at_ns, numbers, among)
    return bounds


# From and to on a clock, both brought to the moment of the round, and how far off that may be; None: not there.
Shown = tuple[int, int, int] | None


def _shown(shown: tuple[int, int] | None, meeting: Meeting, at_ns: int, rate: Rate | None) -> Shown:
    if shown is None:
        return None
    since_ns = meeting.at_ns - at_ns
    if rate is None:
        return *shown, drift_ns(since_ns) // 2 + 1
    moved_ns = since_ns * rate.ppb // 1_000_000_000
    far_ns = abs(since_ns) * rate.off_ppb // 1_000_000_000 + bend_ns(since_ns) + 1
    return shown[0] + moved_ns, shown[1] + moved_ns, min(far_ns, drift_ns(since_ns) + 1)


def _pair(one: list[Shown], other: list[Shown], slack_ns: int) -> tuple[int, int]:
    """The most that the offset of one is above that of the other, and the other way round."""
    above: list[int] = []
    below: list[int] = []
    coarse_ns = loose_ns = 0
    for a, b in zip(one, other, strict=True):
        if a is not None and b is not None:
            far_ns = a[2] + b[2]
            above.append(b[1] - a[0] + far_ns)
            below.append(a[1] - b[0] + far_ns)
            coarse_ns = max(coarse_ns, a[1] - a[0], b[1] - b[0])
            loose_ns = max(loose_ns, a[1] - a[0] + b[1] - b[0] + far_ns)
    if len(above) < LEAST_MEETINGS:
        return FAR, FAR
    above.sort()
    below.sort()
    # Those who print whenever they like are not held together by anything.
    tenth = len(above) // 10
    if above[-1 - tenth] - above[tenth] > 2 * (slack_ns + loose_ns):
        return FAR, FAR
    late, late_ns = most_late(len(above)), max(slack_ns, coarse_ns // 10)
    return above[late] + late_ns, below[late] + late_ns


def _limit(bounds: Bounds, meeting: Meeting, at_ns: int, numbers: dict[str, int], among: set[int] | None) -> None:
    """Nobody leaves before all have entered."""
    far_ns = drift_ns(meeting.at_ns - at_ns)
    for entered, enter_ns in meeting.enter.items():
        i = numbers.get(entered)
        for left, leave_ns in meeting.leave.items() if i is not None else ():
            j = numbers.get(left)
            if i is None or j is None or i == j or not (among is None or i in among or j in among):
                continue
            bounds[i][j] = min(bounds[i][j], leave_ns - enter_ns + far_ns)


def contradicted(bounds: Bounds) -> list[int]:
    """Who is part of most pairs that cannot be, worst first."""
    size = len(bounds)
    wrong = [sum(bounds[i][j] + bounds[j][i] < 0 for j in range(size)) for i in range(size)]
    return sorted((i for i in range(size) if wrong[i]), key=lambda i: (-wrong[i], i))


def close(bounds: Bounds) -> bool:
    """Make each bound the least that follows from all; whether they can all be true."""
    for middle, through in enumerate(bounds):
        for row in bounds:
            reach = row[middle]
            if reach < FAR:
                row[:] = [min(known, reach + further) for known, further in zip(row, through, strict=True)]
    return all(row[number] >= 0 for number, row in enumerate(bounds))


def radii(bounds: Bounds, middles: list[int]) -> list[int]:
    """How far each may be from its middle on a timeline that suits all of them.

    For any offsets within the bounds there is one shift of the timeline that brings each within its radius, because
    the radii of each two add up to what their difference may be off.
    """
    size = len(bounds)
    return [
        -(-max((off(bounds, middles, i, j) for j in range(size) if j != i), default=0) // 2) for i in range(size)
    ]  # fmt: skip


def off(bounds: Bounds, middles: list[int], i: int, j: int) -> int:
    """How far the difference of two may be from that of their middles."""
    apart = middles[i] - middles[j]
    return max(bounds[i][j] - apart, bounds[j][i] + apart)
