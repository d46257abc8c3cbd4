"""Days written as `rootrank rollup` writes them, for tests of what is made of them."""

from collections.abc import Iterable, Sequence
from datetime import UTC, date, datetime

from pipeline.core.fleet.components import category_of, component_of
from pipeline.core.fleet.records import Cohort, Defect, EpisodeCount, Exposure, Failure
from pipeline.fleet import day_rows
from pipeline.fleet.day_rows import Build
from pipeline.store.clickhouse import Store
from pipeline.store.tables import Table

HOUR_NS = 3_600_000_000_000
DAY_NS = 24 * HOUR_NS
EPOCH = date(1970, 1, 1)
FLEET_SPANS = Table(
    name="fleet_spans_rows",
    columns=(
        "run", "run_id", "cluster", "source", "generation", "row", "unit_kind", "unit", "kind", "started_at",
        "ended_at", "node", "known_at", "version",
    ),
)  # fmt: skip


NOBODYS = Cohort()


def ns(day: str, hour: float = 0) -> int:
    """Unix time of an hour of a UTC day."""
    return (date.fromisoformat(day) - EPOCH).days * DAY_NS + int(hour * HOUR_NS)


def ms(at: str) -> int:
    """Unix time in ms of a UTC time as 2026-03-05T12:00."""
    return int(datetime.fromisoformat(at).replace(tzinfo=UTC).timestamp() * 1000)


def node(name: str, hours: float = 24, *, cohort: Cohort = NOBODYS, observed: float = 24) -> Exposure:
    """A node that was in service for so many hours of a day."""
    return Exposure(
        cluster="c1", unit_kind="node", unit=name, node=name, cohort=cohort, installed_ns=DAY_NS,
        in_service_ns=int(hours * HOUR_NS), busy_ns=int(hours / 2 * HOUR_NS),
        observed_ns=int(min(observed, hours) * HOUR_NS),
    )  # fmt: skip


def failure(
    incident: str, at_ns: int, *, node: str = "n1", class_: str = "hardware/gpu_xid_79", gpu: str = "",
    cohort: Cohort = NOBODYS, lost: float | None = None,
) -> Failure:  # fmt: skip
    """A failure of a node, or of a GPU in it."""
    return Failure(
        cluster="c1", incident_id=incident, at_ns=at_ns, class_=class_, category=category_of(class_),
        component=component_of(class_), unit_kind="gpu" if gpu else "node", unit=gpu or node, node=node, cohort=cohort,
        lost_gpu_hours=lost,
    )  # fmt: skip


def build(
    store: Store, day: str, built_at: str, *, exposures: Iterable[Exposure] = (), failures: Iterable[Failure] = (),
    episodes: Iterable[EpisodeCount] = (), defects: Iterable[Defect] = (), why: str = "late data", run: str = "live",
    run_id: str = "",
) -> None:  # fmt: skip
    """Write one build of one day of cluster c1."""
    one = Build(run=run, run_id=run_id, cluster="c1", day=date.fromisoformat(day), built_at_ms=ms(built_at))
    _insert(store, day_rows.EXPOSURE_DAYS, day_rows.exposure_rows(one, exposures))
    _insert(store, day_rows.FAILURE_DAYS, day_rows.failure_rows(one, failures))
    _insert(store, day_rows.EPISODE_DAYS, day_rows.episode_rows(one, [(e, "") for e in episodes]))
    _insert(store, day_rows.DATA_QUALITY, day_rows.defect_rows(one, defects))
    store.insert(day_rows.FLEET_BUILDS, [(*one.head, "1", "d", why)])


def installed(store: Store, units: Iterable[str], since: str) -> None:
    """Tell of nodes that were installed on a day and are still there."""
    rows = [
        (
            "live",
            "",
            "c1",
            "inventory.csv",
            1,
            row,
            "node",
            unit,
            "installed",
            ns(since),
            None,
            unit,
            ms("2026-01-01"),
            1,
        )
        for row, unit in enumerate(units, 1)
    ]
    rows += [(*rows[0][:5], 0, *rows[0][6:8], "imported", *rows[0][9:])]
    _insert(store, FLEET_SPANS, rows)


def imported(store: Store, source: str, at_ms: int) -> None:
    """Say that an import of cluster c1 is whole."""
    row = ("live", "", "c1", source, at_ms, 0, "", "", "imported", at_ms * 1_000_000, None, "", at_ms, 1)
    _insert(store, FLEET_SPANS, [row])


def _insert(store: Store, table: Table, rows: Sequence[tuple[object, ...]]) -> None:
    if rows:
        store.insert(table, rows)
