"""Errors of a window as the table of propagation takes them."""

from collections.abc import Sequence
from typing import Any, Final

from pipeline.core.fleet.propagation import Propagation, Sighting, propagation
from pipeline.core.fleet.records import Defect
from pipeline.fleet.load import Window
from pipeline.store.clickhouse import Store
from pipeline.store.sqlfiles import statement
from schemas.records import Event, Printer

WITHIN_NS: Final = 5_000_000_000
# Identical errors of one unit within so long are one (as in the published tables).
APART_S: Final = 5
MOST: Final = 200_000


def load_propagation(store: Store, window: Window) -> tuple[list[Propagation], list[Defect]]:
    """What is followed by what within 5 s; a defect where there are more errors than are read. Raises StoreError.

    Errors are those that are stored now: unlike days they are not kept as they were known at a moment.
    """
    given = {**window.parameters, "apart_s": APART_S, "most": MOST + 1}
    rows = store.rows(statement("sightings", "fleet"), given)
    cut = [_cut(window)] if len(rows) > MOST else []
    return propagation([_sighting(row) for row in rows[:MOST]], WITHIN_NS), cut


def _cut(window: Window) -> Defect:
    return Defect(
        kind="errors_not_read", cluster=window.cluster, unit="",
        detail=f"more than {MOST:,} errors: what follows what is of the first ones; ask for fewer days",
    )  # fmt: skip


def _sighting(row: Sequence[Any]) -> Sighting:
    (
        event_id, name, xid, node, source, generation, offset, clock_id, raw_ns, at_ns, lo_ns, hi_ns, u99_ns, epoch,
        broker, quality, unit, jobs,
    ) = row  # fmt: skip
    event = Event(
        event_id=event_id, name=name, node=node, source=source, generation=generation, offset=offset, body="",
        clock_id=clock_id, raw_ns=raw_ns, aligned_time_unix_nano=at_ns, lo_unix_nano=lo_ns, hi_unix_nano=hi_ns,
        u99_ns=u99_ns, clock_epoch=epoch, reference_broker=broker, quality=quality, printer=Printer(node=node),
    )  # fmt: skip
    return Sighting(
        kind=f"Xid {xid}" if xid else name, unit=unit, node=node, event=event, groups=tuple(job for job in jobs if job)
    )
