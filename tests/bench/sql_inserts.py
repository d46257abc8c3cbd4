"""How many rows a second the sink writes: records to rows to a block over HTTP, as the worker does it."""

import time
from collections.abc import Iterator
from typing import Final

from msgspec.structs import replace

from pipeline.store.buffer import Buffer
from pipeline.store.clickhouse import Store
from pipeline.store.rows import Delivery, rows_of
from pipeline.store.tables import TABLES
from tests.store import seed

ROWS: Final = 200_000
A_BATCH: Final = 500
A_BLOCK: Final = 20_000


def insert_rates(store: Store) -> Iterator[str]:
    """Rows to print: events with their jobs, and raw lines, in blocks of the sink's size."""
    events = [seed.event_batch([seed.event(first + i) for i in range(A_BATCH)]) for first in range(0, ROWS, A_BATCH)]
    lines = [replace(seed.batch(lines=A_BATCH, first=first), batch_seq=first) for first in range(0, ROWS, A_BATCH)]
    for what, records in (("events with their jobs", events), ("raw lines", lines)):
        began = time.monotonic()
        written = 0
        buffer = Buffer(max_rows=A_BLOCK, max_bytes=1 << 30, max_age_s=1e9)
        for number, record in enumerate(records):
            delivery = Delivery(timestamp_ms=1_772_359_300_000, offset=number)
            buffer.add(("any", 0), number, rows_of(record, delivery), size=0, now_s=0)
            if buffer.due(0) or number == len(records) - 1:
                block = buffer.take()
                for table in TABLES:
                    if rows := block.rows.get(table.name):
                        store.insert(table, rows)
                        written += len(rows)
        spent = time.monotonic() - began
        yield f"the sink's inserts, {what}: {written / spent:,.0f} rows/s ({ROWS / spent:,.0f} records/s)"
