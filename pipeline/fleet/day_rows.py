"""What follows from a day as rows of the tables of days. Columns are in the order of sql/migrations/0007_fleet.sql."""

from collections.abc import Iterable
from datetime import UTC, date, datetime
from operator import attrgetter
from typing import Any, Final

from msgspec import Struct

from pipeline.core.fleet.records import Defect, EpisodeCount, Exposure, Failure
from pipeline.store.tables import Table

Row = tuple[Any, ...]
COHORT: Final = ("sku", "driver", "rack", "position", "firmware", "batch")
_cohort = attrgetter(*COHORT)
_BUILD: Final = ("run", "run_id", "cluster", "day", "built_at")

FLEET_BUILDS: Final = Table(
    name="fleet_builds_rows", columns=(*_BUILD, "engine_version", "rules_digest", "why")
)  # fmt: skip
EXPOSURE_DAYS: Final = Table(
    name="exposure_days_rows",
    columns=(
        *_BUILD, "unit_kind", *COHORT, "unit", "node", "installed_ns", "in_service_ns", "busy_ns", "observed_ns",
    ),
)  # fmt: skip
EPISODE_DAYS: Final = Table(
    name="episode_days_rows",
    columns=(*_BUILD, "unit_kind", "name", "xid", *COHORT, "unit", "node", "lines", "episodes", "by_window"),
)
FAILURE_DAYS: Final = Table(
    name="failure_days_rows",
    columns=(
        *_BUILD, "incident_id", "at", "class", "category", "component", "unit_kind", "unit", "node", *COHORT, "job_ids",
        "job_gpus", "lost_gpu_hours", "corrected_by",
    ),
)  # fmt: skip
DATA_QUALITY: Final = Table(
    name="data_quality_rows", columns=(*_BUILD, "kind", "unit", "detail", "source", "row", "at")
)  # fmt: skip


class Build(Struct, frozen=True, kw_only=True):
    """One build of one day of one cluster."""

    run: str
    run_id: str
    cluster: str
    day: date
    built_at_ms: int

    @property
    def built_at(self) -> datetime:
        """When it was built, to the ms."""
        return datetime.fromtimestamp(self.built_at_ms // 1000, tz=UTC).replace(
            microsecond=self.built_at_ms % 1000 * 1000
        )

    @property
    def address(self) -> dict[str, Any]:
        """The day and the moment as parameters of a statement."""
        return {"day": self.day, "built_at": self.built_at}

    @property
    def head(self) -> Row:
        """The columns that all its rows begin with."""
        return (self.run, self.run_id, self.cluster, self.day, self.built_at_ms)


def exposure_rows(build: Build, exposures: Iterable[Exposure]) -> list[Row]:
    """A row for each."""
    return [
        (
            *build.head, e.unit_kind, *_cohort(e.cohort), e.unit, e.node, e.installed_ns, e.in_service_ns, e.busy_ns,
            e.observed_ns,
        )
        for e in exposures
    ]  # fmt: skip


def episode_rows(build: Build, counts: Iterable[tuple[EpisodeCount, str]]) -> list[Row]:
    """A row for each count and the node it is of."""
    return [
        (
            *build.head, c.unit_kind, c.name, c.xid, *_cohort(c.cohort), c.unit, node, c.lines, c.episodes, c.by_window,
        )
        for c, node in counts
    ]  # fmt: skip


def failure_rows(build: Build, failures: Iterable[Failure]) -> list[Row]:
    """A row for each."""
    return [
        (
            *build.head, f.incident_id, f.at_ns, f.class_, f.category, f.component, f.unit_kind, f.unit, f.node,
            *_cohort(f.cohort), list(f.job_ids), f.job_gpus, f.lost_gpu_hours, f.corrected_by,
        )
        for f in failures
    ]  # fmt: skip


def defect_rows(build: Build, defects: Iterable[Defect]) -> list[Row]:
    """A row for each."""
    return [(*build.head, d.kind, d.unit, d.detail, d.source, d.row, d.at_ns) for d in defects]
