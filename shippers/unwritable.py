"""The last wall before the wire: what cannot be written as JSON becomes a marker, and its neighbours go on."""

from collections import Counter
from typing import Final

import msgspec

from schemas import codec
from schemas.records import Gap, Progress, RawBatch, SourceProgress

_WHY: Final = "it cannot be written as JSON and was left out"
_ERRORS: Final = (TypeError, ValueError, OverflowError)  # lone surrogates, numbers beyond 64 bits


def encode_batch(batch: RawBatch) -> bytes:
    """The batch for the wire; lines that cannot be written are replaced by gap markers."""
    try:
        return codec.encode(batch)
    except _ERRORS:
        return codec.encode(_writable(batch))


def encode_progress(progress: Progress) -> bytes:
    """The record for the wire; sources that cannot be written are said to be refused."""
    try:
        return codec.encode(progress)
    except _ERRORS:
        sources = [each if _is_writable(each) else _refused(each) for each in progress.sources]
        return codec.encode(msgspec.structs.replace(progress, sources=sources))


def _writable(batch: RawBatch) -> RawBatch:
    lines = [line for line in batch.records if _is_writable(line)]
    lost = Counter(_clean(line.source) for line in batch.records if not _is_writable(line))
    gaps = [each if _is_writable(each) else Gap(source=_clean(each.source), reason=_WHY) for each in batch.gaps]
    gaps.extend(Gap(source=name, reason=_WHY, lost_lines=count) for name, count in lost.items())
    named = {line.source for line in lines}
    said = {name: values for name, values in batch.source_attributes.items() if name in named}
    return msgspec.structs.replace(batch, records=lines, gaps=gaps, source_attributes=said)


def _refused(source: SourceProgress) -> SourceProgress:
    return SourceProgress(
        source=_clean(source.source), state="refused", kind=source.kind, reason="its name or state cannot be written"
    )


def _is_writable(part: msgspec.Struct) -> bool:
    try:
        codec.encode(part)
    except _ERRORS:
        return False
    return True


def _clean(text: str) -> str:
    return text.encode("utf-8", "backslashreplace").decode()
