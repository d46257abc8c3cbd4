"""Claims about clocks from what logs contain: see docs/decisions/0026-clocks-from-content.md.

The nodes whose clocks are bound to each other get one timeline. Where nothing is claimed of any of them it is theirs,
within `others_bound_ns` of what other clocks show; where something is claimed, it is the one of the claims.
"""

import itertools
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from statistics import median_low
from typing import Final

import msgspec
from msgspec import Struct, field

from pipeline.core.content_clock.bounds import (
    FAR,
    STEER_NS,
    Bounds,
    Rate,
    Rates,
    bend_ns,
    bounds_of,
    close,
    contradicted,
    drift_ns,
    off,
    radii,
)
from pipeline.core.content_clock.meetings import SLACK_NS, Mark, Meeting, counts_of, meetings_of, rounds_of, timed_by
from pipeline.core.content_clock.stepped import Change, changes
from pipeline.core.times import PAIR_PPM
from schemas.records import ClockClaim

CONTENT: Final = "content"
DEFAULT: Final = "default"
# More nodes than this are compared with one of them only, which makes bounds of pairs twice as wide.
ALL_PAIRS: Final = 128
MOST_ROUNDS: Final = 16
# So many additions in pure Python take well under a second.
WORK: Final = 1_000_000
# A bound that is no better than this is not worth a timeline of its own.
USEFUL_NS: Final = 4_000_000_000
MOST_LEFT_OUT: Final = 3
# How clocks run shows once their offsets are known, and the offsets more sharply once it is known how they run.
PASSES: Final = 4
# Behind the last round, and before the first, a steady clock is followed so far.
BEYOND_NS: Final = (300_000_000_000, 1_800_000_000_000)
LEAST_ROUNDS: Final = 3
NEAR_ROUNDS: Final = 8
# The clock of the hub is the timeline.
STILL: Final = Rate(ppb=0, off_ppb=0)
# A rank that is slower is later by less than about a step: the others wait for it.
LATER_STEPS: Final = 1.25
# Lines that may be later by more than this tell too little of a clock.
MOST_LATER_NS: Final = 3_000_000_000
SET: Final = "its clock was set while the job ran"
SET_OR_LATER: Final = "its clock was set while the job ran, or it printed later than before from then on"
ONE_SET: Final = "the clock of one of the two was set while the job ran, and nothing shows which"
ODD: Final = "what it logs together with others does not fit any one offset of its clock"
ONE_ODD: Final = "what the two log together does not fit any one offset of their clocks"


class Widest(Struct, frozen=True, kw_only=True):
    """The two clocks that are furthest apart of those that are aligned: by `ns`, within `within_ns`."""

    ahead: str
    behind: str
    ns: int
    within_ns: int


class Denied(Struct, frozen=True, kw_only=True):
    """Two claims about clocks that what both nodes log contradicts by `ns`."""

    one: str
    other: str
    ns: int


class Alignment(Struct, frozen=True, kw_only=True):
    """What the logs say of clocks. `nodes`: those with a claim from content; `bound_ns`: within what each of them is
    known at its best moment; `others_bound_ns`: within what clocks of which nothing is known are right, 0 where that
    is as ever; `left_out`: who contradicts the others, and why; `moved`: whose lines come later than before, and are
    given bounds that are wider by that.
    """

    claims: dict[str, ClockClaim]
    nodes: list[str]
    bound_ns: int
    others_bound_ns: int
    left_out: dict[str, str]
    moved: list[Change] = []
    widest: Widest | None = None
    denied: list[Denied] = []


NOTHING: Final = Alignment(claims={}, nodes=[], bound_ns=0, others_bound_ns=0, left_out={})


def combined(groups: Sequence[Alignment], nodes: Iterable[str]) -> Alignment:
    """Several groups of nodes, each on a timeline of its own; of all nodes those in none are as far off as need be."""
    others_ns = max(group.others_bound_ns for group in groups)
    wide = ClockClaim(offset_ns=0, bound_ns=others_ns, by=DEFAULT, others_bound_ns=others_ns)
    claims = dict.fromkeys(nodes, wide) if others_ns else {}
    for number, group in enumerate(groups, 1):
        for node, claim in group.claims.items():
            is_own = claim.by == CONTENT
            claims[node] = msgspec.structs.replace(
                claim,
                others_bound_ns=others_ns,
                bound_ns=claim.bound_ns if is_own else others_ns,
                timeline=number if is_own else 0,
            )
    widest = [group.widest for group in groups if group.widest is not None]
    return Alignment(
        claims=claims, nodes=sorted(node for group in groups for node in group.nodes),
        bound_ns=max(group.bound_ns for group in groups), others_bound_ns=others_ns,
        left_out={node: why for group in groups for node, why in group.left_out.items()},
        moved=[change for group in groups for change in group.moved],
        widest=max(widest, key=lambda one: one.ns, default=None),
        denied=[denied for group in groups for denied in group.denied],
    )  # fmt: skip


class _Odd(Struct, kw_only=True):
    """Who does not go with the others: left out and why, or kept with bounds that are wider by so much (ns)."""

    left_out: dict[str, str] = field(default_factory=dict)
    wider: dict[str, int] = field(default_factory=dict)
    moved: list[Change] = field(default_factory=list)

    @property
    def is_too_much(self) -> bool:
        """Whether so many contradict each other that nothing can be concluded."""
        return len(self.left_out) > MOST_LEFT_OUT

    def note(self, change: Change, meetings: list[Meeting]) -> None:
        """Lines of one of some nodes come later than before: a clock was set, or the rank is slower."""
        pace_ns = _pace_ns(meetings)
        slack_ns = max((meeting.slack_ns for meeting in meetings), default=0)
        may_be_later = abs(change.ns) <= LATER_STEPS * pace_ns
        if may_be_later and change.spread_ns + slack_ns <= MOST_LATER_NS:
            self.moved.append(change)
            self.wider[change.nodes[-1]] = change.spread_ns
        else:
            why = ONE_SET if len(change.nodes) > 1 else SET_OR_LATER if may_be_later else SET
            self.left_out.update(dict.fromkeys(change.nodes, why))

    def nothing(self) -> Alignment:
        """What is left to say where nothing is aligned."""
        return Alignment(claims={}, nodes=[], bound_ns=0, others_bound_ns=0, left_out=self.left_out)


def _pace_ns(meetings: list[Meeting]) -> int:
    """How long a step takes; where no line says which step it is of, the time from line to line."""
    shown = [meeting for meeting in meetings if len(meeting.together) > 1]
    paces = [meeting.pace_ns for meeting in shown if meeting.pace_ns]
    return median_low(paces or [after.at_ns - before.at_ns for before, after in itertools.pairwise(shown)] or [0])


class _Found(Struct, frozen=True, kw_only=True):
    """Offsets (reference minus wall) of nodes relative to the hub at some moments, and the bounds of each pair."""

    hub: str
    rounds: list[int]
    middles: dict[str, list[int]]
    radii: dict[str, list[int]]
    bounds: list[Bounds]
    wider: frozenset[str]

    def is_steady(self, node: str) -> bool:
        """Whether the clock of a node ran straight against the hub's from round to round."""
        if node in self.wider:
            return False
        at, middles, radii_ns = self.rounds, self.middles[node], self.radii[node]
        least_ns = min(radii_ns)
        for before, here, after in zip(range(len(at)), range(1, len(at)), range(2, len(at)), strict=False):
            whole_ns = at[after] - at[before]
            straight = middles[before] + (middles[after] - middles[before]) * (at[here] - at[before]) // whole_ns
            # Where less is known the middle tells less.
            vague_ns = sum(radii_ns[number] - least_ns for number in (before, here, after))
            if abs(middles[here] - straight) > STEER_NS + bend_ns(whole_ns) // 4 + vague_ns:
                return False
        return len(at) >= LEAST_ROUNDS

    def rate(self, node: str, number: int) -> Rate | None:
        """How a steady clock ran near one round: by those rounds around it that tell it best."""
        at, middles, radii_ns = self.rounds, self.middles[node], self.radii[node]
        found = None
        for reach in range(1, NEAR_ROUNDS + 1):
            first, last = max(0, number - reach), min(len(at) - 1, number + reach)
            whole_ns = at[last] - at[first]
            # What a host is late by at all events alike does not change how its clock seems to run.
            off_ns = 2 * STEER_NS + bend_ns(whole_ns) + max(0, radii_ns[first] + radii_ns[last] - SLACK_NS)
            ppb, off_ppb = (middles[last] - middles[first]) * 10**9 // whole_ns, off_ns * 10**9 // whole_ns
            if found is None or off_ppb < found.off_ppb:
                found = Rate(ppb=ppb, off_ppb=off_ppb)
        return found if found is not None and abs(found.ppb) + found.off_ppb < 1_000 * PAIR_PPM else None

    def rates(self) -> dict[int, dict[str, Rate]]:
        """How steady clocks ran, by round."""
        steady = [node for node in self.middles if self.is_steady(node)]
        return {
            at_ns: {node: rate for node in steady if (rate := self.rate(node, number)) is not None}
            for number, at_ns in enumerate(self.rounds if steady else [])
        }


def align(marks: Iterable[Mark], nodes: Iterable[str], claims: Mapping[str, ClockClaim], default_ns: int) -> Alignment:
    """Claims for nodes of which nothing is claimed. `default_ns`: within what their clocks are taken to be right."""
    meetings, nodes = meetings_of(marks), set(nodes)
    odd = _Odd()
    for _ in range(MOST_LEFT_OUT + 1):
        found = _found(meetings, odd)
        if found is None:
            break
        denied = _denied(found, claims)
        if all(node in claims for node in nodes):
            return msgspec.structs.replace(NOTHING, denied=denied)
        wrong = _wrong(found, default_ns)
        if not wrong:
            made = _claimed(found, nodes, claims, default_ns, odd)
            return msgspec.structs.replace(made, denied=denied)
        odd.left_out.update(wrong)
        if odd.is_too_much:
            break
    return odd.nothing() if not all(node in claims for node in nodes) else NOTHING


def _found(meetings: list[Meeting], odd: _Odd) -> _Found | None:
    """Offsets of the nodes that are bound to each other at most moments, relative to one of them."""
    rates: dict[int, dict[str, Rate]] = {}
    for _ in range(PASSES):
        found = _once(meetings, odd, rates, with_hub_only=True)
        if found is None:
            return None
        rates = found.rates()
        if not rates:
            break
    return _once(meetings, odd, rates, with_hub_only=False)


def _once(meetings: list[Meeting], odd: _Odd, rates: Mapping[int, Rates], *, with_hub_only: bool) -> _Found | None:
    while True:
        counts = {node: count for node, count in counts_of(meetings).items() if node not in odd.left_out}
        if len(counts) < 2:
            return None
        names = sorted(counts)
        hub = min(names, key=lambda node: (node in odd.wider, -counts[node], node))
        among = {names.index(hub)} if with_hub_only or len(names) > ALL_PAIRS else None
        most = max(2, min(MOST_ROUNDS, WORK // len(names) ** 3))
        meetings = timed_by(meetings, hub)
        if not rates and (moved := changes(meetings, hub, [node for node in names if node not in odd.wider])):
            for change in moved:
                odd.note(change, meetings)
            if odd.is_too_much:
                return None
            continue
        compared: list[tuple[int, Bounds]] = []
        worst: Counter[str] = Counter()
        for round_ in rounds_of(meetings, most):
            bounds = bounds_of(round_, names, rates.get(round_.at_ns, {}), odd.wider, among)
            wrong = contradicted(bounds)
            if wrong:
                worst[names[wrong[0]]] += 1
            elif among is not None or close(bounds):
                compared.append((round_.at_ns, bounds))
        if not worst or odd.is_too_much:
            return _joined(names, names.index(hub), compared, odd, is_star=among is not None)
        node = min(worst, key=lambda name: (-worst[name], name))
        odd.left_out |= dict.fromkeys(names, ONE_ODD) if len(names) == 2 else {node: ODD}


def _joined(
    names: list[str], hub: int, compared: list[tuple[int, Bounds]], odd: _Odd, *, is_star: bool
) -> _Found | None:
    """What is known of the same nodes at several moments."""
    known = [(at_ns, bounds, _near(bounds, hub)) for at_ns, bounds in compared]
    times = Counter(i for _, _, near in known for i in near)
    members = {i for i, count in times.items() if 2 * count >= len(known)}
    if not any(members <= near for _, _, near in known):
        members = max((near for _, _, near in known), key=len, default=set())
    if len(members) < 2:
        return None
    kept = sorted(members)
    found = _Found(
        hub=names[hub], rounds=[], middles={names[i]: [] for i in kept}, radii={names[i]: [] for i in kept}, bounds=[],
        wider=frozenset(odd.wider),
    )  # fmt: skip
    for at_ns, bounds, near in known:
        if members <= near:
            part = [[bounds[i][j] for j in kept] for i in kept]
            middles = [(bounds[i][hub] - bounds[hub][i]) // 2 for i in kept]
            wide = [-(-(bounds[i][hub] + bounds[hub][i]) // 2) for i in kept] if is_star else radii(part, middles)
            found.rounds.append(at_ns)
            found.bounds.append(part)
            for i, middle, radius in zip(kept, middles, wide, strict=True):
                found.middles[names[i]].append(middle)
                found.radii[names[i]].append(radius)
    return found


def _near(bounds: Bounds, hub: int) -> set[int]:
    """Who is bound to the hub well enough."""
    return {
        i
        for i in range(len(bounds))
        if bounds[i][hub] < FAR and bounds[hub][i] < FAR and bounds[i][hub] + bounds[hub][i] <= 2 * USEFUL_NS
    }


def _wrong(found: _Found, default_ns: int) -> dict[str, str]:
    """Clocks that are elsewhere at another moment, and those that are further off than any clock is taken to be."""
    set_: set[str] = set()
    for j, (node, middles) in enumerate(found.middles.items()):
        i = list(found.middles).index(found.hub) if found.hub in found.middles else j
        half = [-(-(bounds[i][j] + bounds[j][i]) // 2) for bounds in found.bounds]
        for number in range(1, len(middles)):
            may_ns = drift_ns(found.rounds[number] - found.rounds[number - 1]) + half[number] + half[number - 1]
            if abs(middles[number] - middles[number - 1]) > may_ns:
                set_.add(node)
    if set_ and len(found.middles) == 2:
        return dict.fromkeys(found.middles, ONE_SET)
    if set_:
        return dict.fromkeys([found.hub] if 2 * len(set_) >= len(found.middles) else sorted(set_), SET)
    usual = median_low(middles[-1] for middles in found.middles.values())
    far = {node for node, middles in found.middles.items() if abs(middles[-1] - usual) > 2 * default_ns}
    return dict.fromkeys(sorted(far), f"its clock seems to be more than {2 * default_ns // 10**9} s off the others'")


def _denied(found: _Found, claims: Mapping[str, ClockClaim]) -> list[Denied]:
    """Claims of two nodes that are further apart than what both log allows, the worst first."""
    stated = [(i, name, claims[name]) for i, name in enumerate(found.middles) if name in claims]
    worst: list[Denied] = []
    for (i, one, a), (j, other, b) in itertools.combinations(stated, 2):
        apart_ns, may_ns, off_ns = a.offset_ns - b.offset_ns, a.bound_ns + b.bound_ns, 0
        for number, bounds in enumerate(found.bounds):
            if apart_ns - may_ns > bounds[i][j] or -apart_ns - may_ns > bounds[j][i]:
                off_ns = max(off_ns, abs(apart_ns - found.middles[one][number] + found.middles[other][number]))
        if off_ns:
            worst.append(Denied(one=one, other=other, ns=off_ns))
    return sorted(worst, key=lambda denied: -denied.ns)


def _widest(found: _Found) -> Widest:
    """The clocks that are furthest apart at the last round."""
    last = {node: middles[-1] for node, middles in found.middles.items()}
    ahead, behind = min(last, key=last.__getitem__), max(last, key=last.__getitem__)
    i, j = (list(last).index(node) for node in (ahead, behind))
    apart_ns = last[behind] - last[ahead]
    off_ns = off(found.bounds[-1], list(last.values()), i, j) if i != j else 0
    return Widest(
        ahead=ahead, behind=behind, ns=apart_ns, within_ns=min(off_ns, found.radii[ahead][-1] + found.radii[behind][-1])
    )


def _claimed(found: _Found, nodes: set[str], claims: Mapping[str, ClockClaim], default_ns: int, odd: _Odd) -> Alignment:
    if any(node in claims for node in found.middles):
        made, others_ns = _by_claims(found, claims, default_ns), 0
    else:
        outside = [node for node in nodes if node not in found.middles and node not in claims]
        if any(node in claims for node in nodes) or len(outside) > len(found.middles):
            # Two timelines, or less gained than lost.
            return odd.nothing()
        made, others_ns = _by_themselves(found, default_ns)
        wide = ClockClaim(offset_ns=0, bound_ns=others_ns, by=DEFAULT, others_bound_ns=others_ns)
        made |= dict.fromkeys(outside, wide) if made else {}
    aligned = sorted(node for node, claim in made.items() if claim.by == CONTENT)
    bound_ns = max((min(knot[2] for knot in made[node].knots) for node in aligned), default=0)
    return Alignment(
        claims=made, nodes=aligned, bound_ns=bound_ns, others_bound_ns=others_ns, left_out=odd.left_out,
        moved=odd.moved if aligned else [], widest=_widest(found) if aligned else None,
    )  # fmt: skip


def _by_themselves(found: _Found, default_ns: int) -> tuple[dict[str, ClockClaim], int]:
    """A timeline of their own: the one that their clocks agree on best, as far as each is taken to be right."""
    lows: list[int] = []
    highs: list[int] = []
    for number in range(len(found.rounds)):
        at = [(middles[number], found.radii[node][number]) for node, middles in found.middles.items()]
        lows.append(max(-default_ns - middle - radius for middle, radius in at))
        highs.append(min(default_ns - middle + radius for middle, radius in at))
    low, high = min(lows), max(highs)
    if any(a > b for a, b in zip(lows, highs, strict=True)):
        return {}, 0
    shift = (low + high) // 2
    others_ns = default_ns + -(-(high - low) // 2) + drift_ns(max(found.rounds) - min(found.rounds))
    claims = {
        node: ClockClaim(
            offset_ns=0, bound_ns=others_ns, by=CONTENT, others_bound_ns=others_ns,
            knots=_knots(found, node, [middle + shift for middle in found.middles[node]], found.radii[node]),
        )
        for node in found.middles
    }  # fmt: skip
    return claims, others_ns


_Knots = list[tuple[int, int, int, int]]


def _knots(found: _Found, node: str, offsets: list[int], bounds: list[int]) -> _Knots:
    """What a claim says of the clock of a node at every round, and beyond where the clock runs steadily."""
    at, walls, steady = found.rounds, found.middles[node], found.is_steady(node)
    knots: _Knots = []
    for number, at_ns in enumerate(at):
        astray_ns = 0
        if number + 1 < len(at):
            elapsed_ns = at[number + 1] - at_ns
            astray_ns = drift_ns(elapsed_ns) // 2
            if steady:
                astray_ns = min(astray_ns, STEER_NS + bend_ns(elapsed_ns) // 4)
        knots.append((at_ns - walls[number], offsets[number], bounds[number], astray_ns))
    first, last = (found.rate(node, number) if steady else None for number in (0, len(at) - 1))
    if node == found.hub:
        first = last = STILL
    before = _beyond(knots[0], first, -1)[::-1] if first is not None else []
    return [*before, *knots, *(_beyond(knots[-1], last, 1) if last is not None else [])]


def _beyond(knot: tuple[int, int, int, int], rate: Rate, way: int) -> _Knots:
    """A steady clock after the last round, or before the first."""
    wall_ns, offset_ns, bound_ns, _ = knot
    return [
        (
            wall_ns + way * far_ns, offset_ns + way * far_ns * rate.ppb // 10**9,
            bound_ns + far_ns * rate.off_ppb // 10**9 + bend_ns(far_ns) + STEER_NS, STEER_NS,
        )
        for far_ns in BEYOND_NS
    ]  # fmt: skip


def _by_claims(found: _Found, claims: Mapping[str, ClockClaim], default_ns: int) -> dict[str, ClockClaim]:
    """On the timeline of those of which something is claimed."""
    names = list(found.middles)
    anchors = [(i, claims[name]) for i, name in enumerate(names) if name in claims]
    made: dict[str, ClockClaim] = {}
    for j, name in enumerate(names):
        offsets, wide = list[int](), list[int]()
        for bounds in found.bounds:
            high = min(claim.offset_ns + claim.bound_ns + bounds[j][i] for i, claim in anchors)
            low = max(claim.offset_ns - claim.bound_ns - bounds[i][j] for i, claim in anchors)
            offsets.append((low + high) // 2)
            wide.append(high - (low + high) // 2)
        if name not in claims and min(wide) >= 0:
            knots = [
                (at_ns - middle, offset, bound, 0)
                for at_ns, middle, offset, bound in zip(found.rounds, found.middles[name], offsets, wide, strict=True)
            ]
            astray = [drift_ns(after[0] - before[0]) // 2 for before, after in itertools.pairwise(knots)]
            knots = [(*knot[:3], off_ns) for knot, off_ns in zip(knots, [*astray, 0], strict=True)]
            made[name] = ClockClaim(offset_ns=0, bound_ns=default_ns, by=CONTENT, knots=knots)
    return made
