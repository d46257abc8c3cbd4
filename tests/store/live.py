"""A folder of logs as if it had been read live: what every stage said of it, stored as the sink stores it."""

from collections.abc import Callable, Iterable
from pathlib import Path

import msgspec

from pipeline.core.causes import RuleSet
from pipeline.core.outputs import Output
from pipeline.engine import Engine
from pipeline.folder import plan
from pipeline.reader import node_records
from pipeline.store.clickhouse import Store
from schemas.records import Annotation, Progress, RawBatch
from schemas.topics import key_of
from tests.store.conftest import put

NS = 1_000_000_000

Alter = Callable[[msgspec.Struct], msgspec.Struct | None]


class Recorder(Engine):
    """The engine; it remembers every record that goes over a topic."""

    def __init__(self, rules: RuleSet | None = None) -> None:
        super().__init__(rules)
        self.said: list[msgspec.Struct] = []

    def _step(self, message: Output, now_ns: int) -> Iterable[Output]:
        self.said.append(message.record)
        return super()._step(message, now_ns)


def as_read_live(batch: RawBatch, read_ns: int) -> RawBatch:
    """The batch as a node agent sends it that reads its lines at a time (unix ns)."""
    records = [msgspec.structs.replace(x, observed_time_unix_nano=read_ns + x.seq) for x in batch.records]
    clock = batch.clock if batch.clock.wall_ns else msgspec.structs.replace(batch.clock, wall_ns=read_ns)
    return msgspec.structs.replace(batch, records=records, clock=clock)


def store_live(
    store: Store, folder: Path, read_ns: int, *, as_stored: Alter = lambda record: record,
    first: Iterable[Annotation] = (),
) -> None:  # fmt: skip
    """Read a folder at a time (unix ns) and store what all stages say, as `as_stored` makes it; None is not stored.

    `first`: what jobs sent by themselves before.
    """
    planned, engine, ends = plan([folder]), Recorder(), []
    for mark in first:
        engine.feed(key_of("live", "live", mark.cluster, mark.reporter), mark, now_ns=mark.start_unix_nano)
    for node in planned.nodes:
        for keyed in node_records(planned.cluster, node, "live", "live"):
            if isinstance(keyed.record, RawBatch):
                engine.feed(keyed.key, as_read_live(keyed.record, read_ns), now_ns=read_ns)
            elif isinstance(keyed.record, Progress):
                ends.append((keyed.key, keyed.record))
    for key, end in ends:
        wall = msgspec.structs.replace(end.clock, wall_ns=end.clock.wall_ns or read_ns)
        engine.feed(key, msgspec.structs.replace(end, clock=wall), now_ns=read_ns)
    stored = [record for record in map(as_stored, engine.said) if record is not None]
    put(store, *stored, timestamp_ms=read_ns // 1_000_000)
