"""Builds days: time at risk, episodes, failures and what cannot be true, for one day of one cluster at a time.

A build never changes an older one. Its own row is written last, so a build that is cut off counts for nothing, and one
that is made again of the same data says the same.
"""

from collections import defaultdict
from collections.abc import Mapping, Sequence
from datetime import UTC, date, datetime
from typing import Any, Final

from msgspec import Struct

from pipeline import VERSION
from pipeline.core.episodes import Coalescing
from pipeline.core.fleet.coalesce import CURVE_S, longest_s, window_of
from pipeline.core.fleet.days import bounds
from pipeline.core.fleet.exposure import exposures, failures_at_risk
from pipeline.core.fleet.history import FleetHistory, cohorts, history
from pipeline.core.fleet.names import by_machine, failures_by_machine
from pipeline.core.fleet.records import Cohort, Defect, EpisodeCount, Exposure, UnitKind
from pipeline.fleet import day_rows
from pipeline.fleet.day_rows import Build
from pipeline.fleet.told import Names, failures_of, spans_of, undated_failures
from pipeline.store.clickhouse import Store
from pipeline.store.sqlfiles import statement

_SECOND: Final = 1_000_000_000


class Rules(Struct, frozen=True, kw_only=True):
    """What a build depends on besides the data."""

    coalescing: Mapping[str, Coalescing]
    digest: str


class Built(Struct, frozen=True, kw_only=True):
    """What a build has found."""

    cluster: str
    run_id: str
    day: date
    built_at: datetime
    units: int
    installed_hours: float
    episodes: int
    failures: int
    defects: int


def clusters(store: Store, run: str, run_id: str = "", cluster: str = "") -> list[tuple[str, str]]:
    """The run ids and clusters of which anything is told. Raises StoreError."""
    rows = store.rows(statement("clusters", "fleet"), {"run": run, "run_id": run_id, "cluster": cluster})
    return [(run_id, name) for run_id, name in rows]


def build_day(store: Store, build: Build, rules: Rules, why: str) -> Built:
    """Build one day and write it. Raises StoreError; then the day stands as it stood before."""
    from_ns, to_ns = bounds(build.day)
    where = {
        "run": build.run, "run_id": build.run_id, "cluster": build.cluster, "from_ns": from_ns,
        "to_ns": to_ns,
    }  # fmt: skip
    told = spans_of(store, where)
    spans, misnamed = by_machine(told)
    names = Names(spans)
    units = history(spans, from_ns, to_ns)
    found = exposures(units)
    _insert(store, day_rows.EXPOSURE_DAYS, day_rows.exposure_rows(build, found))
    failures, lost = failures_at_risk(failures_by_machine(failures_of(store, where, names), told), units)
    counts, unknown = _episodes(store, build, where, rules, _Cohorts(units, found, names))
    undated = undated_failures(store, where, build.built_at_ms * 1_000_000)
    noted = [*misnamed, *units.defects, *lost, *undated, *unknown]
    _insert(store, day_rows.EPISODE_DAYS, day_rows.episode_rows(build, counts))
    _insert(store, day_rows.FAILURE_DAYS, day_rows.failure_rows(build, failures))
    _insert(store, day_rows.DATA_QUALITY, day_rows.defect_rows(build, noted))
    store.insert(day_rows.FLEET_BUILDS, [(*build.head, VERSION, rules.digest, why)])
    return Built(
        cluster=build.cluster, run_id=build.run_id, day=build.day, built_at=build.built_at,
        units=len({(e.unit_kind, e.unit) for e in found}),
        installed_hours=sum(e.installed_ns for e in found if e.unit_kind == "gpu") / 3600 / _SECOND,
        episodes=sum(count.episodes for count, _ in counts), failures=len(failures), defects=len(noted),
    )  # fmt: skip


def _insert(store: Store, table: Any, rows: Sequence[tuple[Any, ...]]) -> None:
    if rows:
        store.insert(table, rows)


class _Cohorts:
    """Where and in which cohort a unit was: of those that stayed what they are, else at an instant."""

    def __init__(self, told: FleetHistory, found: Sequence[Exposure], names: Names) -> None:
        self._told = told
        self.of: dict[tuple[UnitKind, str], Exposure] = {(e.unit_kind, e.unit): e for e in found}
        self.names = names

    def at(self, cluster: str, kind: UnitKind, unit: str, at_ns: int) -> tuple[str, Cohort]:
        """Node and cohort. `at_ns` 0: the unit has one of each."""
        known = self.of.get((kind, unit))
        if known is None or not at_ns:
            return (known.node, known.cohort) if known else ("", Cohort())
        own = self._told.units[cluster, kind, unit]
        node = next((node for begin, end, node in own.pieces if begin <= at_ns < end), known.node)
        host = self._told.units.get((cluster, "node", node)) if kind == "gpu" else None
        return node if kind == "gpu" else unit, cohorts(at_ns, at_ns + 1, own.facts, host.facts if host else {})[0][2]


def _episodes(
    store: Store, build: Build, where: Mapping[str, Any], rules: Rules, units: _Cohorts
) -> tuple[list[tuple[EpisodeCount, str]], list[Defect]]:
    """Episodes that begin on the day, by unit and cohort, each with its node; units that no span names are defects."""
    back_ns = longest_s(rules.coalescing) * _SECOND
    windows = _windows(store, where, rules.coalescing)
    if not windows["kinds"]:
        return [], []
    given = {
        **where,
        **windows,
        "back_ns": back_ns,
        "day": build.day,
        "built_at": build.built_at,
        "curve_s": [*CURVE_S],
    }
    sums: dict[tuple[UnitKind, str, str, int | None, str, Cohort], list[int]] = {}
    unknown: dict[tuple[UnitKind, str], int] = defaultdict(int)
    for kind, unit, last_node, machine, name, xid, at_ns, lines, count, by_window in store.rows(
        statement("episodes", "fleet"), given
    ):
        known = units.names.node(unit, machine) if kind == "node" else unit
        if (kind, known) not in units.of:
            unknown[kind, known] += lines
        node, cohort = units.at(build.cluster, kind, known, at_ns)
        total = sums.setdefault((kind, known, name, xid, node or last_node, cohort), [0] * (2 + len(CURVE_S)))
        for place, value in enumerate((lines, count, *by_window)):
            total[place] += value
    counts = [
        (
            EpisodeCount(
                cluster=build.cluster, unit_kind=kind, unit=unit, cohort=cohort, name=name, xid=xid, lines=total[0],
                episodes=total[1], by_window=dict(zip(CURVE_S, total[2:], strict=True)),
            ),
            node,
        )
        for (kind, unit, name, xid, node, cohort), total in sums.items()
    ]  # fmt: skip
    return counts, [_unknown(build.cluster, *key, lines) for key, lines in sorted(unknown.items())]


def _unknown(cluster: str, kind: UnitKind, unit: str, lines: int) -> Defect:
    return Defect(
        kind=f"events_of_unknown_{kind}", cluster=cluster, unit=unit, source="events",
        detail=f"{lines} error lines of a {kind} that nothing says was installed that day: episodes without exposure",
    )  # fmt: skip


def _windows(store: Store, where: Mapping[str, Any], coalescing: Mapping[str, Coalescing]) -> dict[str, Any]:
    """The window of each kind of error that there is, as the statement's parameters."""
    kinds = [(name, xid) for name, xid in store.rows(statement("event_kinds", "fleet"), where)]
    windows = [window_of(name, xid, coalescing) for name, xid in kinds]
    return {
        "kinds": [f"{name}/{'' if xid is None else xid}" for name, xid in kinds],
        "silences_ns": [window.silence_s * _SECOND for window in windows],
        "closed_by": [sorted(window.closed_by) for window in windows],
    }  # fmt: skip


def days_between(first: date, last: date) -> list[date]:
    """Both, and those between them."""
    return [date.fromordinal(number) for number in range(first.toordinal(), last.toordinal() + 1)]


def yesterday(now_ms: int) -> date:
    """The last UTC day that is over."""
    return date.fromordinal(datetime.fromtimestamp(now_ms / 1000, tz=UTC).date().toordinal() - 1)
