"""What the sink counts, as metrics."""

from collections.abc import Iterator

from pipeline import metrics
from pipeline.metrics import Definition
from pipeline.store.sink import SinkCounts


def read(counts: SinkCounts) -> Iterator[tuple[Definition, str, float]]:
    """(definition, label, number) of everything counted."""
    for table, rows in sorted(counts.rows.items()):
        yield metrics.STORE_ROWS, table, rows
    for record, failed in sorted(counts.unverified.items()):
        yield metrics.UNVERIFIED, record, failed
    yield metrics.DEAD_LETTERS, "store", sum(counts.unreadable.values())
