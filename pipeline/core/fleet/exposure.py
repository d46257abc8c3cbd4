"""Time at risk of every unit in every cohort, exact to the ns.

installed: from insert to remove. in service: installed and in no drain, repair, maintenance, upgrade, boot or reset.
busy: installed and inside a job attempt. observed: in service and an agent told of its progress. Each is a set of
instants, so what two spans say at once counts once. `pipeline.core.fleet.history` says what a node hands to its GPUs.

Where a job had some of a node's GPUs and nobody says which, its time is spread evenly over those installed: the sum
over them is exact, the figure of a single GPU is a mean.
"""

from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from itertools import pairwise
from typing import Final

from msgspec import Struct, structs

from pipeline.core.fleet.defects import when
from pipeline.core.fleet.history import (
    NOTHING,
    FleetHistory,
    JobKey,
    Share,
    UnitHistory,
    UnitKey,
    cohorts,
)
from pipeline.core.fleet.installed import end_of
from pipeline.core.fleet.intervals import Span, has, measure, minus, union
from pipeline.core.fleet.records import Cohort, Defect, Exposure, Failure

# What a failure is called that comes while its unit is away: being repaired, it is not at risk; of the others somebody
# planned that it does not work.
_AWAY: Final[Mapping[str, str]] = {
    "drain": "failure_in_repair", "repair": "failure_in_repair", "reset": "failure_in_repair",
    "maintenance": "failure_in_maintenance", "upgrade": "failure_in_upgrade", "boot": "failure_in_boot",
}  # fmt: skip


class Seats(Struct, frozen=True):
    """The GPUs that sit in a node over [begin, end), sorted by name, and how many of them shared jobs keep busy."""

    begin: int
    end: int
    gpus: tuple[str, ...]
    busy: int


def exposures(told: FleetHistory) -> list[Exposure]:
    """Time at risk over the whole window of a history, by unit, node and cohort, sorted."""
    seats = _seats(told)
    rows: list[Exposure] = []
    for key, unit in told.units.items():
        if unit.pieces:
            rows.extend(_of_unit(key, unit, told, seats))
    rows.sort(key=lambda e: (e.cluster, e.unit_kind, e.unit, e.node, e.cohort))
    return rows


def failures_at_risk(failures: Iterable[Failure], told: FleetHistory) -> tuple[list[Failure], list[Defect]]:
    """Failures whose unit was at risk when it failed, with node and cohort of that instant; of others, a defect each.

    All of them in the window of the history. A failure blamed on nobody counts as it is. One on a GPU that nothing is
    told of counts on its node, and is named (`failure_of_unknown_gpu`). Kinds that do not count:
    `failure_of_unknown_unit`, `failure_not_installed`, `failure_in_repair` (drain, repair, reset),
    `failure_in_maintenance`, `failure_in_upgrade`, `failure_in_boot`.
    """
    counted: list[Failure] = []
    defects: list[Defect] = []
    for failure in sorted(failures, key=lambda f: (f.at_ns, f.cluster, f.incident_id, f.unit)):
        placed, defect = _placed(failure, told) if failure.unit else (failure, None)
        counted.extend([] if placed is None else [placed])
        defects.extend([] if defect is None else [defect])
    return counted, defects


def _of_unit(
    key: UnitKey, unit: UnitHistory, told: FleetHistory, seats: Mapping[tuple[str, str], list[Seats]]
) -> list[Exposure]:
    cluster, kind, name = key
    sums: dict[tuple[str, Cohort], list[int]] = {}
    for begin, end, node in unit.pieces:
        host = told.units.get((cluster, "node", node), NOTHING) if kind == "gpu" else NOTHING
        out, busy, observed = _joint(unit, host)
        shared = seats.get((cluster, node), []) if kind == "gpu" else []
        for a, b, cohort in cohorts(begin, end, unit.facts, host.facts):
            total = sums.setdefault((node, cohort), [0, 0, 0, 0])
            total[0] += b - a
            total[1] += b - a - measure(out, a, b)
            total[2] += measure(busy, a, b) + sum(_shared(s, name, busy, a, b) for s in shared)
            total[3] += measure(observed, a, b)
    return [
        Exposure(
            cluster=cluster, unit_kind=kind, unit=name, node=node if kind == "gpu" else name, cohort=cohort,
            installed_ns=ns[0], in_service_ns=ns[1], busy_ns=ns[2], observed_ns=ns[3],
        )
        for (node, cohort), ns in sums.items()
    ]  # fmt: skip


def _joint(unit: UnitHistory, host: UnitHistory) -> tuple[list[Span], list[Span], list[Span]]:
    """Out of service, busy and observed in service, of a unit in its node."""
    out = union([*unit.out, *host.out]) if unit.out and host.out else unit.out or host.out
    busy = union([*unit.busy, *host.busy_whole]) if unit.busy and host.busy_whole else unit.busy or host.busy_whole
    seen = (
        union([*unit.observed, *host.observed]) if unit.observed and host.observed else unit.observed or host.observed
    )
    return out, busy, minus(seen, out)


def _seats(told: FleetHistory) -> dict[tuple[str, str], list[Seats]]:
    """Of every node with jobs that had some of its GPUs, who sat there and how many were busy."""
    sharing = {(c, name): u for (c, kind, name), u in told.units.items() if kind == "node" and u.shares}
    sitting: dict[tuple[str, str], list[tuple[int, int, str]]] = defaultdict(list)
    if sharing:
        for (cluster, kind, name), unit in told.units.items():
            if kind == "gpu":
                for begin, end, node in unit.pieces:
                    if (cluster, node) in sharing:
                        sitting[cluster, node].append((begin, end, name))
    return {place: _steps(sitting[place], node, place[0], told) for place, node in sharing.items() if sitting[place]}


def _steps(sitting: Sequence[tuple[int, int, str]], node: UnitHistory, cluster: str, told: FleetHistory) -> list[Seats]:
    # While GPUs name a job as theirs, it is not spread: those are the ones it has.
    named: dict[JobKey, list[Span]] = defaultdict(list)
    for _, _, name in sitting:
        for job, spans in told.units[cluster, "gpu", name].jobs.items():
            named[job].extend(spans)
    shares = [
        Share(begin, end, share.gpus, share.job)
        for share in node.shares
        for begin, end in minus([(share.begin, share.end)], union(named[share.job]))
    ]
    edges = sorted({t for s in shares for t in (s.begin, s.end)} | {t for a, b, _ in sitting for t in (a, b)})
    steps: list[Seats] = []
    for a, b in pairwise(edges):
        gpus = tuple(sorted(name for begin, end, name in sitting if begin <= a and b <= end))
        by_job = {(s.job, s.gpus) for s in shares if s.begin <= a and b <= s.end}
        busy = min(sum(gpus_of_job for _, gpus_of_job in by_job), len(gpus))
        if busy:
            steps.append(Seats(a, b, gpus, busy))
    return steps


def _shared(seats: Seats, name: str, busy: Sequence[Span], begin: int, end: int) -> int:
    """How much of [begin, end), its own busy spans aside, a GPU is in shared jobs.

    For seat i of n, k of them busy, floor((k t + i) / n) between the ends: whole ns that add up over time, and over the
    seats to k times the length (Hermite's identity).
    """
    a, b = max(begin, seats.begin), min(end, seats.end)
    if a >= b or name not in seats.gpus:
        return 0
    seat, n, k = seats.gpus.index(name), len(seats.gpus), seats.busy
    return sum((k * t + seat) // n - (k * f + seat) // n for f, t in minus([(a, b)], busy))


def _placed(failure: Failure, told: FleetHistory) -> tuple[Failure | None, Defect | None]:
    unit = told.units.get((failure.cluster, failure.unit_kind, failure.unit), NOTHING)
    if not unit.is_known and failure.unit_kind == "gpu" and failure.node:
        on_node, why = _placed(structs.replace(failure, unit_kind="node", unit=failure.node), told)
        if on_node is not None:
            text = f"nothing says that GPU {failure.unit} was installed; counted on its node {failure.node}"
            return on_node, _refused(failure, "failure_of_unknown_gpu", text)
        return None, why
    if not unit.is_known:
        text = f"nothing says that {failure.unit_kind} {failure.unit} was ever installed; not counted"
        return None, _refused(failure, "failure_of_unknown_unit", text)
    held = next((piece for piece in unit.pieces if piece[0] <= failure.at_ns < piece[1]), None)
    if held is None:
        return None, _refused(failure, "failure_not_installed", f"{failure.unit} was not installed then; not counted")
    is_gpu = failure.unit_kind == "gpu"
    host = told.units.get((failure.cluster, "node", held[2]), NOTHING) if is_gpu else NOTHING
    if has(_joint(unit, host)[0], failure.at_ns):
        away = next(s for s in (*unit.away, *host.away) if s.from_ns <= failure.at_ns < end_of(s))
        text = f"{failure.unit} was in {away.kind} from {when(away.from_ns)} ({away.source}:{away.row}); not counted"
        return None, _refused(failure, _AWAY[away.kind], text)
    cohort = cohorts(failure.at_ns, failure.at_ns + 1, unit.facts, host.facts)[0][2]
    return structs.replace(failure, node=held[2] if is_gpu else failure.unit, cohort=cohort), None


def _refused(failure: Failure, kind: str, detail: str) -> Defect:
    return Defect(
        kind=kind, cluster=failure.cluster, unit=failure.unit, detail=f"incident {failure.incident_id}: {detail}",
        source="incidents", at_ns=failure.at_ns,
    )  # fmt: skip
