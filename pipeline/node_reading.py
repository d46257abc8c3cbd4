"""Reads the files of nodes into what align makes of them: in this process, or in several where there is much.

What a node's lines say of others is told to them when all are read, whoever reads them, so that one process and many
give the same. Only logs without a node of their own, which tell of many nodes, are read and told first.
"""

from collections import deque
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import Future
from functools import partial
from typing import Final, NamedTuple

import msgspec
from msgspec import Struct

from pipeline.core.align import NodeFold, NodeState
from pipeline.core.outputs import Output
from pipeline.folder import FolderPlan, NodePlan
from pipeline.reader import OnRead, node_records
from pipeline.workers import AHEAD, TASK_BYTES, Workers, result_of
from schemas import signals
from schemas.records import EventBatch, Gap, NodeProgress, Placement, Progress, RawBatch
from schemas.topics import CLOCK_SEGMENTS, key_of

# Larger nodes are read here, batch by batch: what is made of them at once might not fit into memory.
SMALL_BYTES: Final = 8 * TASK_BYTES
# A compressed byte may stand for so many.
PRESSED: Final = 20
_PRESSED_NAMES: Final = (".gz", ".xz", ".zst")


class Part(NamedTuple):
    """What was made of some lines of one node. The last part of a node has its fold and closing progress."""

    key: bytes
    outputs: list[Output]
    gaps: list[Gap]
    fold: NodeFold | None = None
    progress: Progress | None = None


# What others said of a node before it is read.
Told = Callable[[bytes], list[Placement]]


class _Sent(Struct, frozen=True, array_like=True):
    topic: str
    key: bytes
    record: EventBatch | NodeProgress | Placement


class _Read(Struct, frozen=True, array_like=True):
    """One node as another process read it."""

    key: bytes
    sent: list[_Sent]
    gaps: list[Gap]
    state: NodeState
    progress: Progress
    sizes: list[tuple[str, int]]


class _Task(NamedTuple):
    cluster: str
    nodes: list[tuple[NodePlan, list[Placement]]]


def parts(plan: FolderPlan, told: Told, workers: Workers, on_read: OnRead | None = None) -> Iterator[Part]:
    """What is made of all nodes, in a fixed order."""
    shared = [node for node in plan.nodes if node.reporter.startswith("file:")]
    own = [node for node in plan.nodes if not node.reporter.startswith("file:")]
    for node in shared:
        yield from _here(plan.cluster, node, [], on_read)
    before = {node.reporter: told(_key(plan.cluster, node)) for node in own}
    sizes = {node.reporter: _size(node) for node in own}
    if not workers.are_worth(sum(size for size in sizes.values() if size <= SMALL_BYTES)):
        for node in own:
            yield from _here(plan.cluster, node, before[node.reporter], on_read)
        return
    yield from _elsewhere(plan.cluster, _groups(own, sizes), before, workers, on_read)


def _key(cluster: str, node: NodePlan) -> bytes:
    return key_of("post_mortem", "", cluster, node.reporter)


def _size(node: NodePlan) -> int:
    """About how many bytes the files of a node have."""
    total = 0
    for source in node.sources:
        try:
            size = source.path.stat().st_size
        except OSError:
            continue
        total += size * PRESSED if source.path.name.endswith(_PRESSED_NAMES) else size
    return total


def _groups(nodes: Iterable[NodePlan], sizes: dict[str, int]) -> Iterator[list[NodePlan]]:
    """Nodes that one task reads; a large one by itself."""
    group: list[NodePlan] = []
    held = 0
    for node in nodes:
        size = sizes[node.reporter]
        if group and held + size > TASK_BYTES:
            yield group
            group, held = [], 0
        group.append(node)
        held += size
    if group:
        yield group


def _here(cluster: str, node: NodePlan, said: Iterable[Placement], on_read: OnRead | None) -> Iterator[Part]:
    fold, key = NodeFold(signals.load()), _key(cluster, node)
    for placement in said:
        yield Part(key, list(fold.apply(placement, now_ns=0)), [])
    for keyed in node_records(cluster, node, "post_mortem", "", on_read):
        if isinstance(keyed.record, Progress):
            yield Part(key, [], [], fold, keyed.record)
        elif isinstance(keyed.record, RawBatch):
            # What is measured of clocks has done its work in the fold; nobody keeps it here.
            outputs = [o for o in fold.apply(keyed.record, now_ns=0) if o.topic != CLOCK_SEGMENTS.name]
            yield Part(key, outputs, keyed.record.gaps)


def _elsewhere(
    cluster: str, groups: Iterator[list[NodePlan]], before: dict[str, list[Placement]], workers: Workers,
    on_read: OnRead | None,
) -> Iterator[Part]:  # fmt: skip
    """Let others read some groups ahead; take what they read in order, and read large nodes here in between."""
    ahead: deque[Future[bytes] | NodePlan] = deque()
    for group in groups:
        if len(group) == 1 and _size(group[0]) > SMALL_BYTES:
            ahead.append(group[0])
        else:
            task = _Task(cluster, [(node, before[node.reporter]) for node in group])
            ahead.append(workers.ask(_read_group, task))
        if len(ahead) > AHEAD * workers.count:
            yield from _next(cluster, ahead.popleft(), before, on_read)
    while ahead:
        yield from _next(cluster, ahead.popleft(), before, on_read)


def _next(
    cluster: str, one: Future[bytes] | NodePlan, before: dict[str, list[Placement]], on_read: OnRead | None
) -> Iterator[Part]:
    if isinstance(one, NodePlan):
        yield from _here(cluster, one, before[one.reporter], on_read)
        return
    known = signals.load()
    for read in _DECODER.decode(result_of(one)):
        if on_read is not None:
            for source, size in read.sizes:
                on_read(source, size)
        outputs = [Output(topic=sent.topic, key=sent.key, record=sent.record) for sent in read.sent]
        yield Part(read.key, outputs, read.gaps, NodeFold(known, read.state), read.progress)


_ENCODER: Final = msgspec.msgpack.Encoder()
_DECODER: Final = msgspec.msgpack.Decoder(list[_Read])


def _read_group(task: _Task) -> bytes:
    """Read nodes for another process."""
    return _ENCODER.encode([_read_node(task.cluster, node, said) for node, said in task.nodes])


def _read_node(cluster: str, node: NodePlan, said: list[Placement]) -> _Read:
    sizes: list[tuple[str, int]] = []
    sent: list[_Sent] = []
    gaps: list[Gap] = []
    for part in _here(cluster, node, said, partial(_note, sizes)):
        sent += [_Sent(output.topic, output.key, output.record) for output in part.outputs]  # type: ignore[arg-type]
        gaps += part.gaps
        if part.fold is not None and part.progress is not None:
            return _Read(part.key, sent, gaps, part.fold.state, part.progress, sizes)
    raise AssertionError(f"{node.reporter} has no end")


def _note(sizes: list[tuple[str, int]], source: str, size_bytes: int) -> None:
    sizes.append((source, size_bytes))
