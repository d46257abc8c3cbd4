"""Reading stored lines again: node by node through align, job by job through detect, then join.

Nothing larger than a day of a node or the events of a job is held; what lies between is kept in the tables of the
rebuild, as topics keep it for the live workers.
"""

from collections.abc import Callable, Iterable, Iterator, Mapping
from datetime import date
from typing import Any, Final

import msgspec
import orjson
from msgspec import Struct, field

from pipeline import VERSION
from pipeline.core.align import NodeFold
from pipeline.core.causes import RuleSet
from pipeline.core.investigation import Investigation
from pipeline.core.join import Join
from pipeline.core.outputs import Output
from pipeline.fleet.rebuild_raw import (
    FOLDER,
    Reporter,
    Sent,
    annotations,
    as_measured,
    batches,
    clocks_of,
    end_of,
    measured_times,
)
from pipeline.store import tables
from pipeline.store.clickhouse import Store
from pipeline.store.rows import Delivery, rows_of
from pipeline.store.sqlfiles import statement
from pipeline.store.tables import Table
from schemas import topics
from schemas.codec import decode, encode
from schemas.records import EventBatch, Incident, Placement, Progress, Verdict
from schemas.signals import SignalSet

MAX_ROWS: Final = 20_000
STAGED: Final[dict[str, Table]] = {
    table.name: msgspec.structs.replace(table, name=f"rebuild_{table.name}")
    for table in (tables.EVENTS, tables.EVENT_JOBS, tables.INCIDENTS, tables.CHAIN_STEPS, tables.CULPRITS)
}
_BATCHES: Final = Table(name="rebuild_batches", columns=("job_key", "is_end", "place", "record"))
_FOLDS: Final = Table(name="rebuild_folds", columns=("reporter_key", "snapshot"))


class Staging:
    """Rows on their way into the tables of the rebuild. `version` is that of all its rows."""

    def __init__(self, store: Store, delivery: Delivery) -> None:
        self._store = store
        self._delivery = delivery
        self._rows: dict[str, list[tuple[Any, ...]]] = {}
        self._tables = {table.name: table for table in (*STAGED.values(), _BATCHES, _FOLDS)}
        self._place = 0

    def keep(self, record: EventBatch | Incident) -> None:
        """The rows of a record that the store would keep of it."""
        for table, row in rows_of(record, self._delivery):
            if table.name in STAGED:
                self._add(STAGED[table.name], row)

    def pass_on(self, output: Output) -> None:
        """Keep a record for the job that it concerns."""
        is_end = not isinstance(output.record, EventBatch)
        self._place += 1
        self._add(_BATCHES, (output.key.decode(), is_end, self._place, encode(output.record).decode()))

    def park(self, who: Reporter, fold: NodeFold) -> None:
        """Keep what is known of a reporter."""
        self._add(_FOLDS, (who.key.decode(), fold.snapshot().decode()))

    def flush(self) -> None:
        """Write what is at hand."""
        for name, rows in self._rows.items():
            self._store.insert(self._tables[name], rows)
        self._rows.clear()

    def _add(self, table: Table, row: tuple[Any, ...]) -> None:
        rows = self._rows.setdefault(table.name, [])
        rows.append(row)
        if len(rows) >= MAX_ROWS:
            self.flush()


class _Open(Struct, kw_only=True):
    """A reporter of which all lines were read, but not what others say of it later."""

    who: Reporter
    last: Sent
    end: Progress


class Reading(Struct, kw_only=True):
    """What is known while reporters are read: what others said of those that are still to come, and who is open."""

    told: dict[bytes, list[Placement]] = field(default_factory=dict)
    opened: list[_Open] = field(default_factory=list)
    lines: int = 0


def read_reporter(
    store: Store, staging: Staging, signals: SignalSet, who: Reporter, window: Mapping[str, Any], reading: Reading,
    days: Iterable[date],
) -> None:  # fmt: skip
    """Read the lines of one reporter into events for jobs; it stays open for what others say of it."""
    fold, clocks = NodeFold(signals), clocks_of(store, who, window)
    for placement in reading.told.pop(who.key, []):
        _take(fold.apply(placement, now_ns=0), staging, reading, {}, 0)
    last: Sent | None = None
    seen: dict[str, dict[str, str]] = {}
    known: dict[str, dict[str, Any]] = {}
    for day in days:
        # What is sent late to a job may be of the day before.
        today = measured_times(store, who, day)
        known, before = {**known, **today}, today
        for mark in annotations(store, who, day):
            _take(fold.apply(mark, now_ns=mark.start_unix_nano), staging, reading, known, 0)
        for sent in batches(store, who, day, clocks, last.batch.batch_seq + 1 if last else 1):
            _take(fold.apply(sent.batch, now_ns=sent.arrived_ns), staging, reading, known, sent.batch_seq)
            seen.update(sent.batch.source_attributes)
            reading.lines += len(sent.batch.records)
            last = sent
        known = before
    if last is not None:
        reading.opened.append(_Open(who=who, last=last, end=end_of(store, who, last, seen)))
        staging.park(who, fold)


def close_reporters(store: Store, staging: Staging, signals: SignalSet, reading: Reading) -> None:
    """Tell every reporter what others said of it, then that no more comes."""
    staging.flush()
    for opened in reading.opened:
        parameters = {"reporter_key": opened.who.key.decode()}
        fold = NodeFold.restore(signals, store.rows(statement("fold", FOLDER), parameters)[0][0].encode())
        for placement in reading.told.pop(opened.who.key, []):
            _take(fold.apply(placement, now_ns=opened.last.arrived_ns), staging, reading, {}, opened.last.batch_seq)
        _take(fold.apply(opened.end, now_ns=opened.last.arrived_ns), staging, reading, {}, opened.last.batch_seq)
    staging.flush()


def _take(
    outputs: Iterable[Output], staging: Staging, reading: Reading, known: Mapping[str, dict[str, Any]], batch_seq: int
) -> None:
    """Pass on what a fold gave; events where they were measured to be, and stored under their own batch's number."""
    for output in outputs:
        record = output.record
        if output.topic == topics.RAW.name and isinstance(record, Placement):
            reading.told.setdefault(output.key, []).append(record)
        elif output.topic == topics.EVENTS.name:
            if isinstance(record, EventBatch):
                events = [as_measured(event, known) for event in record.events]
                record = msgspec.structs.replace(record, events=events)
                staging.keep(msgspec.structs.replace(record, batch_seq=batch_seq or record.batch_seq))
            staging.pass_on(msgspec.structs.replace(output, record=record))


def conclude(store: Store, rules: RuleSet, said: Callable[[int, int], None]) -> dict[str, Incident]:
    """The incidents of all jobs and nodes, by id. `said` hears how many jobs of how many are done."""
    job_keys = [row[0] for row in store.rows(statement("job_keys", FOLDER))]
    join, found = Join(), dict[str, Incident]()
    for number, job_key in enumerate(job_keys, 1):
        for verdict in _verdicts(store, rules, job_key):
            for output in join.apply(verdict, now_ns=0):
                if isinstance(output.record, Incident):
                    found[output.record.incident_id] = output.record
        said(number, len(job_keys))
    return found


def _verdicts(store: Store, rules: RuleSet, job_key: str) -> Iterator[Verdict]:
    """What an investigation says at the end of its records."""
    investigation = Investigation.new(rules, VERSION, job_key)
    last: dict[str, Verdict] = {}
    for block in store.blocks(statement("batches", FOLDER), {"job_key": job_key}):
        for _, record in block:
            for output in investigation.apply(decode(topics.EVENTS.name, record.encode()), now_ns=0):
                if isinstance(output.record, Verdict):
                    last[output.record.verdict_id] = output.record
    yield from (verdict for verdict in last.values() if not verdict.withdrawn)


def incident_of(text: str) -> Incident:
    """An incident from the JSON that is stored of it."""
    return msgspec.convert(orjson.loads(text), Incident)
