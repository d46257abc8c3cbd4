"""Lines of several nodes that tell of one event, and in which rounds their clocks are compared.

A mark is one such line. `enter` and `leave`: nobody leaves before all have entered, certain. `together`: all print it
within `SLACK_NS` of each other, but for one line in 20 (`pipeline.core.content_clock.bounds`).
"""

import itertools
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from statistics import median_low
from typing import Final, Literal

from msgspec import Struct, field

SECOND_NS: Final = 1_000_000_000
# Ends of one collective on its ranks: 2.55 ms at p99 in public traces of 8 to 64 GPUs (ByteDance-Seed/
# StragglerAnalysis), 3 ms at most. What a host does until its line is written differs from line to line.
SLACK_NS: Final = 3_000_000
# A line that does not follow a collective at once may be printed before the backward pass: a rank that is slower than
# the others by less than this part of the step is still within the slack.
STEP_SHARE: Final = 0.2
# So many meetings make one round, of which those that are late are told apart (`bounds.LEAST_MEETINGS`).
ROUND_MEETINGS: Final = 24
# A pause in the meetings so much longer than usual ends a round: clocks drift apart meanwhile.
PAUSE_FACTOR: Final = 10
PAUSE_NS: Final = 60 * SECOND_NS
# Lines that are stamped together are of a buffer that was emptied: of so many steps one comes with the one before.
TOGETHER_ONE_IN: Final = 5
AT_ONCE_NS: Final = 1_000_000
# Two rounds nearer than this are one: a timeline between them must not run backwards.
ROUNDS_APART_NS: Final = 10 * SECOND_NS

MarkKind = Literal["enter", "leave", "together"]


class Mark(Struct, frozen=True, kw_only=True, gc=False):
    """One line that tells of an event of several nodes: `number` of `series`. Written within `resolution_ns` after
    `wall_ns` of the wall clock of `node`. `follows`: a collective ends right before it.
    """

    node: str
    source: str
    series: str
    number: str
    kind: MarkKind
    wall_ns: int
    resolution_ns: int
    follows: bool = False


class Meeting(Struct, kw_only=True):
    """One event: what each node's clock showed, as (from, to) in ns; `at_ns` is when, by about any of these clocks.

    `pace_ns`: how long a step takes, 0 where that is not known.
    """

    at_ns: int = 0
    slack_ns: int = 0
    pace_ns: int = 0
    together: dict[str, tuple[int, int]] = field(default_factory=dict)
    enter: dict[str, int] = field(default_factory=dict)
    leave: dict[str, int] = field(default_factory=dict)

    @property
    def nodes(self) -> set[str]:
        """Who was there."""
        return {*self.together, *self.enter, *self.leave}


class Round(Struct, frozen=True, kw_only=True):
    """Meetings near one moment, at which clocks are compared."""

    at_ns: int
    together: list[Meeting]
    limits: list[Meeting]


def meetings_of(marks: Iterable[Mark]) -> list[Meeting]:
    """The events that lines of two nodes or more tell of, by time."""
    marks = _unbuffered(list(marks))
    speakers, (paces, slacks) = _speakers(marks), _paces(marks)
    found: dict[tuple[str, str], Meeting] = {}
    twice: set[tuple[str, str, str]] = set()
    for mark in marks:
        new = Meeting(slack_ns=slacks[mark.series], pace_ns=paces.get(mark.series, 0))
        meeting = found.setdefault((mark.series, mark.number), new)
        node, until_ns = mark.node, mark.wall_ns + mark.resolution_ns
        if mark.kind == "enter":
            meeting.enter[node] = max(mark.wall_ns, meeting.enter.get(node, mark.wall_ns))
        elif mark.kind == "leave":
            meeting.leave[node] = min(until_ns, meeting.leave.get(node, until_ns))
        elif speakers[mark.series, node] == mark.source:
            if node in meeting.together:
                twice.add((mark.series, mark.number, node))
            meeting.together[node] = (mark.wall_ns, until_ns)
    for series, number, node in twice:
        # Said again after a restart: nobody knows which of them the others mean.
        del found[series, number].together[node]
    return sorted(_of_several(found.values()), key=lambda meeting: meeting.at_ns)


def _unbuffered(marks: list[Mark]) -> list[Mark]:
    """Without files whose steps are stamped several at once, with pauses: by whoever reads a buffer when it is full.

    Coarse stamps are the same for several steps, too, but the next one is as far away as they are coarse.
    """
    times: dict[tuple[str, str], list[tuple[int, int]]] = {}
    coarse: dict[tuple[str, str], int] = {}
    for mark in marks:
        if mark.kind == "together" and mark.number.isdigit():
            key = mark.series, mark.source
            times.setdefault(key, []).append((int(mark.number), mark.wall_ns))
            coarse[key] = max(coarse.get(key, AT_ONCE_NS), mark.resolution_ns)
    buffered: set[tuple[str, str]] = set()
    for key, shown in times.items():
        shown.sort()
        paces = [after[1] - before[1] for before, after in itertools.pairwise(shown) if after[0] > before[0]]
        pauses = [pace_ns for pace_ns in paces if pace_ns > AT_ONCE_NS]
        at_once = sum(0 <= pace_ns <= AT_ONCE_NS for pace_ns in paces)
        if pauses and TOGETHER_ONE_IN * at_once >= len(paces) and median_low(pauses) > 2 * coarse[key]:
            buffered.add(key)
    return [mark for mark in marks if mark.kind != "together" or (mark.series, mark.source) not in buffered]


def _of_several(meetings: Iterable[Meeting]) -> Iterator[Meeting]:
    for meeting in meetings:
        if len(meeting.nodes) > 1 and (meeting.together or (meeting.enter and meeting.leave)):
            shown = [lo for lo, _ in meeting.together.values()] or list(meeting.leave.values())
            meeting.at_ns = median_low(shown)
            yield meeting


def timed_by(meetings: list[Meeting], hub: str) -> list[Meeting]:
    """The meetings by when they were on the clock of one node, as far as it was there."""
    for meeting in meetings:
        shown = meeting.together.get(hub) or (meeting.leave.get(hub),)
        meeting.at_ns = shown[0] or meeting.at_ns
    return sorted(meetings, key=lambda meeting: meeting.at_ns)


def _speakers(marks: Iterable[Mark]) -> dict[tuple[str, str], str]:
    """Of the files of a node the one that says most: the first of eight ranks prints sooner than one rank does."""
    counts = Counter((mark.series, mark.node, mark.source) for mark in marks if mark.kind == "together")
    ordered = sorted(counts, key=lambda key: (counts[key], [-ord(letter) for letter in key[2]]))
    return {(series, node): source for series, node, source in ordered}


def _paces(marks: list[Mark]) -> tuple[dict[str, int], dict[str, int]]:
    """By series how long a step takes, and how far apart the lines of one event are printed: some emitters print at the
    end of a collective.
    """
    times: dict[tuple[str, str, bool], list[tuple[int, int]]] = {}
    for mark in marks:
        if mark.kind == "together" and mark.number.isdigit():
            times.setdefault((mark.series, mark.source, mark.follows), []).append((int(mark.number), mark.wall_ns))
    paces: dict[str, int] = {}
    slacks = {mark.series: SLACK_NS for mark in marks}
    for (series, _, follows), shown in times.items():
        shown.sort()
        found = [
            (ns - before_ns) // (step - before)
            for (before, before_ns), (step, ns) in itertools.pairwise(shown)
            if step > before and ns >= before_ns
        ]
        if found:
            pace_ns = median_low(found)
            paces[series] = max(paces.get(series, 0), pace_ns)
            if not follows:
                slacks[series] = max(slacks[series], SLACK_NS + round(pace_ns * STEP_SHARE))
    return paces, slacks


def rounds_of(meetings: list[Meeting], at_most: int) -> list[Round]:
    """Meetings by time: those that are together in rounds of enough, those with limits in every round."""
    together = [meeting for meeting in meetings if len(meeting.together) > 1]
    limits = [meeting for meeting in meetings if meeting.enter and meeting.leave]
    runs = [*_runs(together), *([] if together else _runs(limits))]
    size = max(ROUND_MEETINGS, -(-sum(map(len, runs)) // at_most))
    rounds: list[Round] = []
    for run in runs:
        count = max(1, len(run) // size)
        for number in range(count):
            part = run[len(run) * number // count : len(run) * (number + 1) // count]
            at_ns = part[len(part) // 2].at_ns
            if rounds and at_ns - rounds[-1].at_ns < ROUNDS_APART_NS:
                continue
            near = sorted(limits, key=lambda meeting: abs(meeting.at_ns - at_ns))[: 8 * ROUND_MEETINGS]
            rounds.append(Round(at_ns=at_ns, together=part if together else [], limits=near))
    return rounds


def _runs(meetings: list[Meeting]) -> Iterator[list[Meeting]]:
    """Meetings without long pauses between them."""
    gaps = [after.at_ns - before.at_ns for before, after in itertools.pairwise(meetings)]
    pause_ns = max(PAUSE_NS, PAUSE_FACTOR * median_low(gaps)) if gaps else PAUSE_NS
    run: list[Meeting] = []
    for meeting in meetings:
        if run and meeting.at_ns - run[-1].at_ns > pause_ns:
            yield run
            run = []
        run.append(meeting)
    if run:
        yield run


def counts_of(meetings: Iterable[Meeting]) -> Mapping[str, int]:
    """How many meetings each node was at."""
    return Counter(node for meeting in meetings for node in meeting.nodes)
