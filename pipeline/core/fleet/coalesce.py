"""Lines that repeat one fault become one episode: by a longest silence for each kind, and by what ends a fault.

A published rule of 5 s for everything is wrong where a driver repeats itself more slowly: it prints Xid 119 every 6 s,
once per call that timed out, and memory errors until the GPU is reset.

Whether a line begins an episode depends on nothing but the line before it and on what ended between the two. So a day
can be counted by itself, given the lines of `longest_s()` before it.
"""

from bisect import bisect_left
from collections.abc import Iterable, Mapping, Sequence
from typing import Final, NamedTuple

from msgspec import Struct

from pipeline.core.episodes import DEFAULT_WINDOW_S, Coalescing
from pipeline.core.fleet.records import FleetSpan, SpanKind

_SECOND: Final = 1_000_000_000
# Whoever tells of a fault that lasts until a reset does not always tell of the reset. The study of Delta ends what
# persists after a day (arXiv 2503.11901); without any end all faults of a GPU's life would be one.
PERSISTS_S: Final = 86_400
# Sensitivity of counts to the window is published at these (s).
CURVE_S: Final = (5, 60, 300, 600, 3_600, 86_400)
_OUT_OF_SERVICE: Final = frozenset[SpanKind](("drain", "repair", "maintenance", "upgrade", "boot", "reset"))


class Window(Struct, frozen=True, kw_only=True):
    """The longest silence inside an episode, and the spans whose end closes it at once."""

    silence_s: int
    closed_by: frozenset[SpanKind] = _OUT_OF_SERVICE
    why: str = ""


class Episode(NamedTuple):
    """When it began (ns) and how many lines it has."""

    begin_ns: int
    lines: int


_UNTIL_RESET: Final = Window(silence_s=PERSISTS_S, why="memory errors repeat until the GPU is reset")
_UNTIL_BACK: Final = Window(
    silence_s=PERSISTS_S, closed_by=_OUT_OF_SERVICE - {"reset"},
    why="off the bus until the node was restarted: a reset does not reach it",
)  # fmt: skip
_APPLICATION: Final = Window(silence_s=5, why="an application's fault: printed within seconds (arXiv 2503.11901)")
_GSP: Final = Window(silence_s=600, why="one line per call that timed out, every 6 s, with pauses of minutes")
WINDOWS: Final[Mapping[int, Window]] = {
    13: _APPLICATION,
    31: _APPLICATION,
    48: _UNTIL_RESET,
    63: _UNTIL_RESET,
    64: _UNTIL_RESET,
    74: Window(silence_s=60, why="both ends of a link, and retraining"),
    79: _UNTIL_BACK,
    94: _UNTIL_RESET,
    95: _UNTIL_RESET,
    119: _GSP,
    120: _GSP,
}
_BY_NAME: Final[Mapping[str, Window]] = {"gpu.fell_off_bus": _UNTIL_BACK}


def window_of(name: str, xid: int | None, coalescing: Mapping[str, Coalescing]) -> Window:
    """The window of a kind of event: by Xid number, else that of the diagnosis for its name, else 60 s.

    `coalescing` is that of the rules. The diagnosis keeps one window for all Xids, since there an episode too many is a
    line too many; here it is a fault too many.
    """
    known = WINDOWS.get(xid) if xid is not None else _BY_NAME.get(name)
    if known is not None:
        return known
    how = coalescing.get(name)
    return Window(silence_s=how.window_s if how else DEFAULT_WINDOW_S)


def longest_s(coalescing: Mapping[str, Coalescing]) -> int:
    """How far before a day lines must be known for its episodes to be counted."""
    silences = [PERSISTS_S, DEFAULT_WINDOW_S, *CURVE_S, *(how.window_s for how in coalescing.values())]
    return max(silences)


def closings(spans: Iterable[FleetSpan], window: Window) -> dict[str, list[int]]:
    """When each unit was back (ns, ascending): the ends of spans that close an episode of this kind.

    A GPU is back with its node: look for both. A span without an end closes nothing yet.
    """
    found: dict[str, list[int]] = {}
    for span in spans:
        if span.kind in window.closed_by and span.to_ns is not None:
            found.setdefault(span.unit, []).append(span.to_ns)
    for ends_ns in found.values():
        ends_ns.sort()
    return found


def episodes(times_ns: Iterable[int], window: Window, closes_ns: Sequence[int] = ()) -> list[Episode]:
    """Episodes of the lines of one kind on one unit, in any order. `closes_ns` ascends, as `closings` gives it."""
    found: list[Episode] = []
    silence_ns = window.silence_s * _SECOND
    begin_ns, last_ns, lines = 0, 0, 0
    for at_ns in sorted(times_ns):
        if lines and at_ns - last_ns <= silence_ns and not _closed(closes_ns, last_ns, at_ns):
            lines += 1
        else:
            if lines:
                found.append(Episode(begin_ns, lines))
            begin_ns, lines = at_ns, 1
        last_ns = at_ns
    if lines:
        found.append(Episode(begin_ns, lines))
    return found


def sensitivity(
    lines: Mapping[str, Iterable[int]], windows_s: Sequence[int] = CURVE_S,
    closes_ns: Mapping[str, Sequence[int]] | None = None,
) -> dict[int, int]:  # fmt: skip
    """How many episodes of one kind there would be with each longest silence (s). `lines`: times in ns by unit.

    With `closes_ns` by unit the ends of faults count as they do in `episodes`; without, silence alone does.
    """
    ascending = sorted(windows_s)
    limits_ns = [window_s * _SECOND for window_s in ascending]
    # By how many windows each gap is exceeded: those are the ones in which it separates two episodes.
    separated = [0] * (len(limits_ns) + 1)
    for unit, times_ns in lines.items():
        ends_ns = closes_ns.get(unit, ()) if closes_ns else ()
        last_ns: int | None = None
        for at_ns in sorted(times_ns):
            if last_ns is None or _closed(ends_ns, last_ns, at_ns):
                separated[-1] += 1
            else:
                separated[bisect_left(limits_ns, at_ns - last_ns)] += 1
            last_ns = at_ns
    return {window_s: sum(separated[place + 1 :]) for place, window_s in enumerate(ascending)}


def _closed(closes_ns: Sequence[int], last_ns: int, at_ns: int) -> bool:
    """Whether the unit came back after the one line and not after the other."""
    if not closes_ns:
        return False
    place = bisect_left(closes_ns, last_ns + 1)
    return place < len(closes_ns) and closes_ns[place] <= at_ns
