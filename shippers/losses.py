"""Gap markers for what the spool had to drop or cannot read any more."""

from collections.abc import Iterable
from pathlib import Path

from schemas.records import Gap, RawBatch


def losses_by_source(batches: Iterable[RawBatch], reason: str) -> list[Gap]:
    """Per source what is lost with the batches; gap markers that they carried are carried on."""
    spans: dict[str, list[int]] = {}
    carried: list[Gap] = []
    for batch in batches:
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
    return carried + lost


def damage(path: Path, offset: int, lines: int | None = None) -> Gap:
    """A file of the spool that cannot be read at `offset`."""
    reason = f"{path.name} is damaged at byte {offset}; the batches that stood there are lost"
    return Gap(source="spool", reason=reason, lost_lines=lines)
