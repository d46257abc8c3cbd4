"""Reads a planned folder into the records that shippers would send of it."""

from collections.abc import Callable, Iterator
from functools import cache, partial

import msgspec
from msgspec import Struct

from pipeline.core.parse import is_kmsg_continuation, kmsg_header
from pipeline.flight_files import dump_lines
from pipeline.folder import FolderPlan, NodePlan, SourcePlan
from pipeline.logfiles import UnreadableFileError, open_log
from pipeline.objects import object_lines, too_much
from pipeline.worth_reading import worth_reading
from schemas import signals
from schemas.clock_notes import ATTRIBUTES, ClockNote, read_record
from schemas.clock_notes import SOURCE as CLOCKS
from schemas.lines import MAX_LINE_BYTES, body_of
from schemas.records import Gap, Progress, RawBatch, RawLine, SourceProgress
from schemas.selecting import Selector, selector
from schemas.topics import key_of
from schemas.vocabulary import Run

# Hears how many (decompressed) bytes of a source were just looked at.
OnRead = Callable[[str, int], None]

BATCH_LINES = 1_000
SHIPPER = "post-mortem"


class Keyed(Struct, frozen=True, kw_only=True):
    """A record of the raw topic with its key."""

    key: bytes
    record: Struct


def records(
    plan: FolderPlan, *, run: Run = "post_mortem", run_id: str = "", on_read: OnRead | None = None
) -> Iterator[Keyed]:
    """All batches of all nodes, then the closing progress of each: the verdict is worked out once, at the end.

    `on_read` hears of the reading as it goes on.
    """
    ends = []
    for node in plan.nodes:
        for keyed in node_records(plan.cluster, node, run, run_id, on_read):
            if isinstance(keyed.record, Progress):
                ends.append(keyed)
            else:
                yield keyed
    yield from ends


def node_records(cluster: str, node: NodePlan, run: Run, run_id: str, on_read: OnRead | None = None) -> Iterator[Keyed]:
    """The batches of one node, then the progress that says "read to the end"."""
    key, seq, broken = key_of(run, run_id, cluster, node.reporter), 0, {}
    if node.clock_record is not None:
        recorded = read_record(node.clock_record, node.reporter)
        for seq, note in enumerate(recorded.notes, 1):
            yield Keyed(key=key, record=_clock_batch(cluster, node, note, seq, run, run_id))
        if recorded.gaps:
            seq += 1
            gone = msgspec.structs.replace(empty_batch(cluster, node), run=run, run_id=run_id, batch_seq=seq)
            yield Keyed(key=key, record=msgspec.structs.replace(gone, gaps=recorded.gaps))
    # Applications first: what they say of their job decides where the node's own lines go.
    for source in sorted(node.sources, key=lambda source: source.kind != "application"):
        batch: list[RawLine] = []
        try:
            for line in _source_lines(source, on_read):
                batch.append(line)
                if len(batch) == BATCH_LINES:
                    seq += 1
                    yield Keyed(key=key, record=_batch(cluster, node, source, batch, seq, run, run_id))
                    batch = []
        except UnreadableFileError as error:
            broken[source.name] = str(error)
        if batch or source.name in broken:
            seq += 1
            gaps = [Gap(source=source.name, reason=broken[source.name])] if source.name in broken else []
            yield Keyed(key=key, record=_batch(cluster, node, source, batch, seq, run, run_id, gaps))
    yield Keyed(key=key, record=_progress(cluster, node, seq, run, run_id, broken))


def _clock_batch(cluster: str, node: NodePlan, note: ClockNote, seq: int, run: Run, run_id: str) -> RawBatch:
    lines = note.lines(seq)
    return RawBatch(
        run=run, run_id=run_id, cluster=cluster, reporter=node.reporter, machine_id=node.machine_id,
        boot_id=note.boot_id, shipper_id=SHIPPER, batch_seq=seq, clock=note.clock, clock_samples=note.samples,
        records=lines, source_attributes={CLOCKS: ATTRIBUTES} if lines else {},
    )  # fmt: skip


def empty_batch(cluster: str, node: NodePlan) -> RawBatch:
    """A batch of a node without lines: its names, clock and claim."""
    return RawBatch(
        run="post_mortem", run_id="", cluster=cluster, reporter=node.reporter, machine_id=node.machine_id,
        boot_id=node.boot_id, shipper_id=SHIPPER, batch_seq=0, clock=node.clock, clock_claim=node.claim,
    )  # fmt: skip


def _source_lines(source: SourcePlan, on_read: OnRead | None) -> Iterator[RawLine]:
    if source.objects:
        for number, (line_no, offset, text) in enumerate(object_lines(source.path), 1):
            yield RawLine(
                seq=number, source=source.name, generation="0", offset=offset, line_no=line_no,
                body=text[:MAX_LINE_BYTES], truncated=len(text) > MAX_LINE_BYTES,
            )  # fmt: skip
        if (said := too_much(source.path)) is not None:
            raise UnreadableFileError(said)
        return
    if source.dump:
        yield from _dump_lines(source, on_read)
        return
    with open_log(source.path) as stream:
        after_block = partial(on_read, source.name) if on_read is not None else None
        for number, offset, data in worth_reading(stream, _selector(), after_block):
            body, truncated = body_of(data)
            header = kmsg_header(body) if source.kmsg else None
            if source.kmsg and header is None and is_kmsg_continuation(body):
                continue
            if header is None:
                yield RawLine(
                    seq=number, source=source.name, generation="0", offset=offset, line_no=number, body=body,
                    truncated=truncated,
                )  # fmt: skip
            else:
                yield RawLine(
                    seq=number, source=source.name, generation="0", offset=header.sequence, line_no=number,
                    body=body.partition(";")[2], kernel_time_ns=header.boot_us * 1000, truncated=truncated,
                )  # fmt: skip


def _dump_lines(source: SourcePlan, on_read: OnRead | None) -> Iterator[RawLine]:
    """What a dump of the flight recorder says, as lines. They are counted as if they were a file."""
    try:
        lines, size = dump_lines(source.path, source.name), source.path.stat().st_size
    except FileNotFoundError as error:
        raise UnreadableFileError(f"{source.name}: {error.strerror}") from error
    offset = 0
    for number, body in enumerate(lines, 1):
        yield RawLine(seq=number, source=source.name, generation="0", offset=offset, line_no=number, body=body)
        offset += len(body.encode()) + 1
    if on_read is not None:
        on_read(source.name, size)


@cache
def _selector() -> Selector:
    return selector(signals.load())


def _batch(
    cluster: str, node: NodePlan, source: SourcePlan, batch: list[RawLine], seq: int, run: Run, run_id: str,
    gaps: list[Gap] | None = None,
) -> RawBatch:  # fmt: skip
    return RawBatch(
        run=run, run_id=run_id, cluster=cluster, reporter=node.reporter, machine_id=node.machine_id,
        boot_id=node.boot_id, shipper_id=SHIPPER, batch_seq=seq, clock=node.clock, clock_claim=node.claim,
        records=batch, source_attributes={source.name: source.attributes}, gaps=gaps or [],
    )  # fmt: skip


def _progress(cluster: str, node: NodePlan, seq: int, run: Run, run_id: str, broken: dict[str, str]) -> Progress:
    return Progress(
        run=run, run_id=run_id, cluster=cluster, reporter=node.reporter, machine_id=node.machine_id,
        boot_id=node.boot_id, shipper_id=SHIPPER, last_batch_seq=seq, clock=node.clock, clock_claim=node.claim,
        sources=[
            SourceProgress(
                source=s.name, state="refused" if s.name in broken else "on", kind=s.kind, at_end=True,
                reason=broken.get(s.name), attributes=s.attributes,
            )
            for s in node.sources
        ],
        ended=True,
    )  # fmt: skip
