"""Gap markers for what the spool had to drop or cannot read any more."""

from collections import Counter
from collections.abc import Iterable
from pathlib import Path

import msgspec

from schemas.codec import tag_of
from schemas.records import Gap, RawBatch


def losses_by_source(batches: Iterable[msgspec.Struct], reason: str) -> list[Gap]:
    """Per source what is lost with the batches, and how many records of each other kind; gap markers that the batches
    carried are carried on.
    """
    spans: dict[str, list[int]] = {}
    carried: list[Gap] = []
    others: Counter[str] = Counter()
    for batch in batches:
        if not isinstance(batch, RawBatch):
            others[f"records of the kind {tag_of(type(batch))}"] += 1
            continue
        carried.extend(batch.gaps)
        for line in batch.records:
            span = spans.setdefault(line.source, [0, 0, line.offset, line.offset])
            span[0] += 1
            span[1] += len(line.body)
            span[3] = line.offset
    lost = [
        Gap(source=source, reason=reason, lost_lines=lines, lost_bytes=size, from_offset=first, to_offset=last)
        for source, (lines, size, first, last) in spans.items()
    ]
    return carried + lost + [Gap(source=name, reason=reason, lost_lines=count) for name, count in others.items()]


def damage(path: Path, offset: int, lines: int | None = None) -> Gap:
    """A file of the spool that cannot be read at `offset`."""
    reason = f"{path.name} is damaged at byte {offset}; the batches that stood there are lost"
    return Gap(source="spool", reason=reason, lost_lines=lines)
