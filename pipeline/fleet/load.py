"""The facts of a window from ClickHouse, as they stand or as they stood at a moment."""

from collections import defaultdict
from collections.abc import Callable, Mapping, Sequence
from datetime import UTC, date, datetime, timedelta
from typing import Any, Final, TypeVar

from msgspec import Struct
from msgspec.structs import replace

from pipeline.core.fleet.attempts import distinct
from pipeline.core.fleet.days import DAY_NS, bounds
from pipeline.core.fleet.lifetimes import lives
from pipeline.core.fleet.names import attempts_by_machine, by_machine
from pipeline.core.fleet.records import (
    Cohort,
    Defect,
    EpisodeCount,
    Exposure,
    Failure,
    Fleet,
    FleetSpan,
    JobAttempt,
)
from pipeline.core.fleet.repairs import repairs
from pipeline.core.fleet.restated import Changes
from pipeline.store.clickhouse import Store
from pipeline.store.sqlfiles import statement

NOW: Final = datetime(2299, 1, 1, tzinfo=UTC)
T = TypeVar("T")


class NothingBuiltError(Exception):
    """There is nothing to report of; the text says what to run."""


class SeveralRunsError(Exception):
    """Replays of the same lines would be added up; the text says what to choose from."""


class Window(Struct, frozen=True, kw_only=True):
    """The days from first to last, both counted, of a run; `cluster` empty: all. `as_of`: as it stood then.

    `run_id` empty: the only one that there is.
    """

    first: date
    last: date
    run: str = "live"
    run_id: str = ""
    cluster: str = ""
    as_of: datetime = NOW

    @property
    def parameters(self) -> dict[str, Any]:
        """As the statements of sql/fleet take it."""
        return {
            "run": self.run,
            "run_id": self.run_id,
            "cluster": self.cluster,
            "first": self.first,
            "last": self.last,
            "as_of": _text(self.as_of),
        }


def last_built_day(store: Store, *, run: str, run_id: str, cluster: str, as_of: datetime) -> date:
    """The newest day that is built. Raises NothingBuiltError where none is, StoreError."""
    where = {"run": run, "run_id": run_id, "cluster": cluster}
    rows = store.rows(statement("last_built_day", "fleet"), {**where, "as_of": _text(as_of)})
    if not rows:
        raise NothingBuiltError(_nothing(store, {**where, "as_of": _text(as_of)}, ""))
    day: date = rows[0][0]
    return day


def load_fleet(store: Store, asked: Window) -> Fleet:
    """Everything that a report of the window is made of; it begins and ends on a day that is built.

    Raises NothingBuiltError where no day of it is, SeveralRunsError where a cluster has days of several runs,
    StoreError.
    """
    built = store.rows(statement("built_days", "fleet"), asked.parameters)
    if not built:
        raise NothingBuiltError(_nothing(store, asked.parameters, f" from {asked.first} to {asked.last}"))
    _check_runs(built)
    days = sorted({day for _, day, _ in built})
    window = replace(asked, first=days[0], last=days[-1])
    from_ns, to_ns = bounds(window.first)[0], bounds(window.last)[1]
    failures = _read(store, window, "window_failures", _failure)
    told = _read(store, window, "window_spans", _span)
    spans, _ = by_machine(told)
    attempts, _ = distinct(_read(store, window, "window_attempts", _attempt))
    exposures = _read(store, window, "window_exposures", _exposure)
    there = {(exposure.cluster, exposure.unit_kind, exposure.unit) for exposure in exposures}
    return Fleet(
        from_ns=from_ns,
        to_ns=to_ns,
        unbuilt_ns=_unbuilt_ns(built, window),
        exposures=exposures,
        lives=[life for life in lives(spans) if (life.cluster, life.unit_kind, life.unit) in there],
        failures=failures,
        attempts=attempts_by_machine(attempts, told),
        repairs=list(repairs(failures, spans)),
        episodes=_read(store, window, "window_episodes", _episode),
        defects=[*_read(store, window, "window_defects", _defect), *_missing(built, window)],
    )


def load_changes(store: Store, window: Window, since: datetime) -> Changes:
    """Why figures of the window may differ from those of a report issued at `since`. Raises StoreError."""
    given = {**window.parameters, "since": _text(since)}
    builds = store.rows(statement("builds_since", "fleet"), given)
    corrections = store.rows(statement("corrections_since", "fleet"), given)
    return Changes(
        builds=[(cluster, f"{days} day{'s' if days > 1 else ''} built again: {why}") for cluster, why, days in builds],
        corrections={(cluster, incident): f"{why} ({by})" for cluster, incident, why, by in corrections},
    )


def _nothing(store: Store, where: Mapping[str, Any], when: str) -> str:
    if not store.rows(statement("told_spans", "fleet"), where)[0][0]:
        of = f" of cluster {where['cluster']}" if where["cluster"] else ""
        return (
            f"nothing says which units{of} there were, so there is no time at risk. Tell it: `rootrank import csv "
            f"FILE --cluster NAME`, or slurm or kubernetes for csv"
        )
    at = where["as_of"]
    if at != _text(NOW):
        return f"no day{when} was built yet at {at[:19]} UTC, so no report was issued then: give a later moment"
    return f"no day{when} is built: run `rootrank rollup --from DAY --to DAY`"


def _check_runs(built: Sequence[Sequence[Any]]) -> None:
    runs = {(cluster, run_id) for cluster, _, run_id in built}
    if len(runs) > len({cluster for cluster, _ in runs}):
        names = ", ".join(sorted({run_id for _, run_id in runs}))
        raise SeveralRunsError(f"days were built for several runs, which are not added up; give --run-id: {names}")


def _missing(built: Sequence[Sequence[Any]], window: Window) -> list[Defect]:
    """Days between the first and the last that have no build: no figure counts them."""
    found = []
    for cluster in sorted({name for name, _, _ in built}):
        days = {day for name, day, _ in built if name == cluster}
        for number in range((window.last - window.first).days + 1):
            day = window.first + timedelta(days=number)
            if day not in days:
                found.append(
                    Defect(
                        kind="day_not_built", cluster=cluster, unit=str(day), at_ns=bounds(day)[0],
                        detail=f"not in the rates; `rootrank rollup --day {day}` builds it",
                    )
                )  # fmt: skip
    return found


def _unbuilt_ns(built: Sequence[Sequence[Any]], window: Window) -> dict[str, int]:
    """Of how much of the window there is no build, by cluster; under the empty name of no cluster at all."""
    days: dict[str, set[date]] = defaultdict(set)
    for cluster, day, _ in built:
        days[cluster].add(day)
        days[""].add(day)
    length = (window.last - window.first).days + 1
    return {cluster: (length - len(there)) * DAY_NS for cluster, there in days.items()}


def _read(store: Store, window: Window, name: str, make: Callable[[Sequence[Any]], T]) -> list[T]:
    return [make(row) for row in store.rows(statement(name, "fleet"), window.parameters)]


def _cohort(row: Sequence[Any]) -> Cohort:
    sku, driver, rack, position, firmware, batch = row
    return Cohort(sku=sku, driver=driver, rack=rack, position=position, firmware=firmware, batch=batch)


def _exposure(row: Sequence[Any]) -> Exposure:
    cluster, unit_kind, unit, node = row[:4]
    installed, in_service, busy, observed = row[10:]
    return Exposure(
        cluster=cluster, unit_kind=unit_kind, unit=unit, node=node, cohort=_cohort(row[4:10]), installed_ns=installed,
        in_service_ns=in_service, busy_ns=busy, observed_ns=observed,
    )  # fmt: skip


def _failure(row: Sequence[Any]) -> Failure:
    cluster, unit_kind, unit, node = row[:4]
    incident, at_ns, class_, category, component, job_ids, job_gpus, lost, corrected_by = row[10:]
    return Failure(
        cluster=cluster, incident_id=incident, at_ns=at_ns, class_=class_, category=category, component=component,
        unit_kind=unit_kind or "node", unit=unit, node=node, cohort=_cohort(row[4:10]), job_ids=tuple(job_ids),
        job_gpus=job_gpus, lost_gpu_hours=lost, corrected_by=corrected_by,
    )  # fmt: skip


def _episode(row: Sequence[Any]) -> EpisodeCount:
    cluster, unit_kind, unit, sku, name, xid, lines, episodes, by_window = row
    return EpisodeCount(
        cluster=cluster, unit_kind=unit_kind, unit=unit, cohort=Cohort(sku=sku), name=name, xid=xid, lines=lines,
        episodes=episodes, by_window=dict(by_window),
    )  # fmt: skip


def _defect(row: Sequence[Any]) -> Defect:
    kind, cluster, unit, detail, source, number, at_ns = row
    return Defect(kind=kind, cluster=cluster, unit=unit, detail=detail, source=source, row=number, at_ns=at_ns)


def _attempt(row: Sequence[Any]) -> JobAttempt:
    cluster, job_id, attempt, nodes, gpus, from_ns, to_ns, end, queued_ns, owner, source, number = row
    return JobAttempt(
        cluster=cluster, job_id=job_id, attempt=attempt, nodes=tuple(nodes), gpus=gpus, from_ns=from_ns, to_ns=to_ns,
        end=end, queued_ns=queued_ns, owner=owner, source=source, row=number,
    )  # fmt: skip


def _span(row: Sequence[Any]) -> FleetSpan:
    cluster, unit_kind, unit, kind, from_ns, to_ns, node, facts, job, attempt = row[:10]
    action, outcome, ticket, source, number = row[10:]
    return FleetSpan(
        cluster=cluster, unit_kind=unit_kind, unit=unit, kind=kind, from_ns=from_ns, to_ns=to_ns, node=node,
        facts=facts, job_id=job, attempt=attempt, action=action, outcome=outcome, ticket=ticket, source=source,
        row=number,
    )  # fmt: skip


def _text(at: datetime) -> str:
    """To the millisecond, as ClickHouse reads it."""
    return at.astimezone(UTC).strftime("%Y-%m-%d %H:%M:%S.%f")[:-3]
