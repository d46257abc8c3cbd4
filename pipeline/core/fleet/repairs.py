"""How units came back: from a failure to the drain, the repair, and the first job that ended well on them again.

A failure opens a repair; until the unit is drained or mended, further failures belong to it. The repair is over with
the first job that begins after it on the unit (or its node) and completes, or where a span of it says `trusted`. A
failure after the mending and before that opens another repair: the first one did not help. What has not come by the
end of the data is None: open, to be censored and not to be left out.
"""

from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from typing import Final, Literal

from msgspec import Struct
from msgspec.structs import replace

from pipeline.core.fleet.days import DAY_NS
from pipeline.core.fleet.installed import end_of
from pipeline.core.fleet.intervals import FOREVER, Span
from pipeline.core.fleet.records import Failure, FleetSpan, Repair, UnitKind

TRUSTED: Final = "trusted"
Stage = Literal["drained", "ended", "trusted"]
# What is done to a unit, and what it is called where nobody names the action. A stated repair goes before the others.
_MENDING: Final[Mapping[str, str]] = {"repair": "", "reset": "reset", "boot": "reboot", "upgrade": "upgrade"}
_HOUR_NS: Final = 3_600 * 10**9
_Unit = tuple[str, UnitKind, str]


class Repeats(Struct, frozen=True, kw_only=True, order=True):
    """Of the repairs with one action: how many ended long enough ago to be judged, after how many of those the unit
    failed again within so many days, and how many are too recent.
    """

    action: str
    within_days: int
    repairs: int
    repeated: int
    too_recent: int


def repairs(failures: Iterable[Failure], spans: Iterable[FleetSpan]) -> list[Repair]:
    """All ways back, sorted. A stated repair that no failure leads to counts from when the unit was taken away. One
    of a node for the failure of a GPU in it is that GPU's, and not told again as the node's.
    """
    by_unit: dict[_Unit, list[FleetSpan]] = defaultdict(list)
    for span in sorted(spans, key=lambda s: (s.from_ns, end_of(s), s.kind, s.source, s.row)):
        if span.kind not in ("installed", "facts", "observed") and end_of(span) >= span.from_ns:
            by_unit[span.cluster, span.unit_kind, span.unit].append(span)
    failed: dict[_Unit, list[Failure]] = defaultdict(list)
    for failure in sorted(failures, key=lambda f: (f.at_ns, f.incident_id)):
        if failure.unit:
            failed[failure.cluster, failure.unit_kind, failure.unit].append(failure)
    found: list[Repair] = []
    of_gpus: dict[_Unit, list[Span]] = defaultdict(list)
    for unit in sorted(by_unit.keys() | failed.keys(), key=lambda key: key[1] != "gpu"):
        made = _of_unit(unit, failed.get(unit, []), by_unit, of_gpus[unit])
        hosts = {failure.at_ns: failure.node for failure in failed.get(unit, []) if unit[1] == "gpu" and failure.node}
        for way in made:
            if way.has_failure and way.failed_ns in hosts:
                of_gpus[unit[0], "node", hosts[way.failed_ns]].append(_covered(way))
        found.extend(made)
    return sorted(found, key=lambda r: (r.cluster, r.unit_kind, r.unit, r.failed_ns))


def repeats(made: Iterable[Repair], failures: Iterable[Failure], within_days: int, *, until_ns: int) -> list[Repeats]:
    """By action, how often the unit failed again after its repair. `until_ns`: failures are known up to then."""
    times: dict[_Unit, list[int]] = defaultdict(list)
    for failure in failures:
        times[failure.cluster, failure.unit_kind, failure.unit].append(failure.at_ns)
    counts: dict[str, list[int]] = defaultdict(lambda: [0, 0, 0])
    for repair in made:
        if repair.ended_ns is None:
            continue
        last_ns = repair.ended_ns + within_days * DAY_NS
        count = counts[repair.action]
        if last_ns > until_ns:
            count[2] += 1
            continue
        count[0] += 1
        count[1] += any(repair.ended_ns <= at <= last_ns for at in times[repair.cluster, repair.unit_kind, repair.unit])
    return [
        Repeats(action=action, within_days=within_days, repairs=n, repeated=again, too_recent=recent)
        for action, (n, again, recent) in sorted(counts.items())
    ]


class Wait(Struct, frozen=True, kw_only=True):
    """Hours from a failure to a stage, or to the end of the data where it had not come. `entered`: hours that had gone
    by when it came under observation; one that was over by then would never have been seen.
    """

    hours: float
    came: bool
    entered: float


def waits(made: Iterable[Repair], stage: Stage, from_ns: int, until_ns: int) -> list[Wait]:
    """What was waited for in [from_ns, until_ns), as survival analysis wants it."""
    found: list[Wait] = []
    for repair in made:
        at_ns = {"drained": repair.drained_ns, "ended": repair.ended_ns, "trusted": repair.trusted_ns}[stage]
        end_ns = until_ns if at_ns is None else min(at_ns, until_ns)
        if end_ns >= repair.failed_ns and (end_ns > from_ns or repair.failed_ns >= from_ns):
            wait = Wait(
                hours=(end_ns - repair.failed_ns) / _HOUR_NS,
                came=at_ns is not None and at_ns <= until_ns,
                entered=max(0, from_ns - repair.failed_ns) / _HOUR_NS,
            )
            found.append(wait)
    return found


def _of_unit(
    unit: _Unit, failures: Sequence[Failure], by_unit: Mapping[_Unit, list[FleetSpan]], of_gpus: Sequence[Span]
) -> list[Repair]:
    found: list[Repair] = []
    own = by_unit.get(unit, [])
    starts = [(f.at_ns, f.node) for f in failures]
    for number, (at_ns, node) in enumerate(starts):
        if found and _is_same(found[-1], at_ns):
            continue
        host = by_unit.get((unit[0], "node", node), []) if unit[1] == "gpu" else []
        spans = sorted([*own, *host], key=lambda s: s.from_ns) if host else own
        found.append(_way_back(unit, at_ns, starts[number + 1 :], spans))
    covered = [*map(_covered, found), *of_gpus]
    for span in own:
        if span.kind == "repair" and not any(a <= span.from_ns <= b for a, b in covered):
            way = replace(_way_back(unit, _taken_ns(span, own), starts, own), has_failure=False)
            covered.append((way.failed_ns, way.ended_ns or FOREVER))
            found.append(way)
    return found


def _covered(way: Repair) -> Span:
    """When a stated repair that begins is part of this way back: never, where nothing was mended."""
    return way.failed_ns, max(way.failed_ns, way.ended_ns or FOREVER) if way.begun_ns else way.failed_ns


def _is_same(open_one: Repair, at_ns: int) -> bool:
    """Whether a failure comes before the unit of an open repair was mended or trusted again."""
    over = [t for t in (open_one.ended_ns, open_one.trusted_ns) if t is not None]
    return not over or at_ns < min(over)


def _taken_ns(repair: FleetSpan, spans: Sequence[FleetSpan]) -> int:
    return min(
        (s.from_ns for s in spans if s.kind == "drain" and s.from_ns <= repair.from_ns <= end_of(s)),
        default=repair.from_ns,
    )


def _way_back(unit: _Unit, failed_ns: int, later: Sequence[tuple[int, str]], spans: Sequence[FleetSpan]) -> Repair:
    """From one failure on. `later`: the failures after it; what is done after the first one that follows a mending is
    another way back.
    """
    after = [s for s in spans if end_of(s) > failed_ns]
    well_ns = _first_good_job(after, failed_ns)
    # A unit on which a job went well before anybody touched it needed no repair.
    course = [s for s in after if s.kind != "busy" and s.from_ns < well_ns]
    drain = next((s for s in course if s.kind == "drain"), None)
    mending = _mending(course, later)
    free_ns = max((end_of(s) for s in (drain, *mending) if s is not None), default=failed_ns)
    stated = [s.to_ns for s in (drain, *mending) if s is not None and s.outcome == TRUSTED and s.to_ns is not None]
    again_ns = next((at for at, _ in later if at >= free_ns), FOREVER)
    trusted_ns = min([*stated, _first_good_job(after, free_ns)])
    last = mending[-1] if mending else None
    return Repair(
        cluster=unit[0], unit_kind=unit[1], unit=unit[2], failed_ns=failed_ns,
        drained_ns=None if drain is None else max(drain.from_ns, failed_ns),
        begun_ns=max(mending[0].from_ns, failed_ns) if mending else None,
        ended_ns=last.to_ns if last else None,
        trusted_ns=trusted_ns if trusted_ns < FOREVER and trusted_ns <= again_ns else None,
        action=(last.action or _MENDING[last.kind]) if last else "",
        outcome=last.outcome if last else "", ticket=_ticket([*mending, drain]),
    )  # fmt: skip


def _mending(course: Sequence[FleetSpan], later: Sequence[tuple[int, str]]) -> list[FleetSpan]:
    """The stated repairs, else the resets and so on; those that follow a failure after the first are another's."""
    stated = [s for s in course if s.kind == "repair"]
    chosen: list[FleetSpan] = []
    for span in stated or [s for s in course if s.kind in _MENDING]:
        if chosen and any(end_of(chosen[-1]) <= at <= span.from_ns for at, _ in later):
            break
        chosen.append(span)
    return chosen


def _first_good_job(spans: Sequence[FleetSpan], from_ns: int) -> int:
    """When the first job that began at `from_ns` or later completed; `FOREVER` for none."""
    return min(
        (s.to_ns for s in spans if s.kind == "busy" and s.outcome == "completed" and s.from_ns >= from_ns and s.to_ns),
        default=FOREVER,
    )


def _ticket(spans: Sequence[FleetSpan | None]) -> str:
    return next((s.ticket for s in reversed(spans) if s is not None and s.ticket), "")
