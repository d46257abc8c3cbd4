"""From a file that somebody else's program wrote to rows: what it tells, and what of it cannot be used."""

from collections.abc import Callable, Mapping
from datetime import UTC, timedelta, timezone, tzinfo
from typing import Final, Literal
from zoneinfo import ZoneInfo

from msgspec import Struct

from pipeline.core.fleet.days import day_of
from pipeline.core.fleet.imports.inventory_csv import parse_inventory
from pipeline.core.fleet.imports.kubernetes import parse_kubernetes
from pipeline.core.fleet.imports.sacct import parse_sacct
from pipeline.core.fleet.imports.told import Told
from pipeline.core.fleet.records import Defect
from pipeline.fleet.day_rows import DATA_QUALITY, Build, defect_rows
from pipeline.store.clickhouse import Store
from pipeline.store.fleet_rows import attempt_row, imported_row, span_row
from pipeline.store.tables import FLEET_SPANS, JOB_ATTEMPTS
from schemas.zones import zone_offset_s

Form = Literal["slurm", "kubernetes", "csv"]
# The row that says that a source was imported, and how many rows of defects belong to it.
IMPORTED: Final = "imported"
# Rows of one insert: what a person waits for in between, and what memory holds.
_ROWS: Final = 200_000


class Origin(Struct, frozen=True, kw_only=True):
    """Whose file it is: run, run id, cluster, and the name that a later import of the same file has again."""

    run: str
    run_id: str
    cluster: str
    source: str


def parse(form: Form, text: str, origin: Origin, zone: tzinfo | None) -> Told:
    """What the text tells. Raises ImportFormatError. Without a zone Slurm's stamps are UTC; those of a CSV need one."""
    readers: Mapping[Form, Callable[[], Told]] = {
        "slurm": lambda: parse_sacct(text, cluster=origin.cluster, source=origin.source, zone=zone or UTC),
        "kubernetes": lambda: parse_kubernetes(text, cluster=origin.cluster, source=origin.source),
        "csv": lambda: parse_inventory(text, cluster=origin.cluster, source=origin.source, zone=zone),
    }
    return readers[form]()


def zone_of(name: str) -> tzinfo:
    """A time zone by its name (Europe/Berlin) or offset (+01:00). Raises ValueError."""
    offset_s = zone_offset_s(name)
    if offset_s is not None:
        return timezone(timedelta(seconds=offset_s))
    try:
        return ZoneInfo(name)
    except (OSError, ValueError, KeyError):
        raise ValueError(f"{name!r} is no time zone: write it as Europe/Berlin or +01:00") from None


def write(store: Store, origin: Origin, told: Told, now_ms: int) -> None:
    """Write all of it as one generation, the newest. Raises StoreError; then import the file again."""
    head = (origin.run, origin.run_id, origin.cluster)
    spans = [span_row(head, span, now_ms, now_ms, now_ms) for span in told.spans]
    attempts = [attempt_row(head, attempt, now_ms, now_ms, now_ms) for attempt in told.attempts]
    build = Build(
        run=origin.run, run_id=origin.run_id, cluster=origin.cluster, day=day_of(now_ms * 1_000_000), built_at_ms=now_ms
    )  # fmt: skip
    said = f"{len(spans)} spans, {len(attempts)} job attempts, {len(told.defects)} defects"
    mark = Defect(kind=IMPORTED, cluster=origin.cluster, unit="", detail=said, source=origin.source)
    defects = defect_rows(build, [*told.defects, mark])
    # The last row makes all of them count.
    done = imported_row(head, origin.source, now_ms)
    for table, rows in ((DATA_QUALITY, defects), (JOB_ATTEMPTS, attempts), (FLEET_SPANS, spans), (FLEET_SPANS, [done])):
        for begin in range(0, len(rows), _ROWS):
            store.insert(table, rows[begin : begin + _ROWS])
