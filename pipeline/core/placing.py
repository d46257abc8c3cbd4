"""The list of who runs on a node: spans that lines tell, filled in by later ones, ended, and forgotten in the end."""

from typing import Final

import msgspec

from pipeline.core.here import JobHere
from pipeline.core.source_reader import Ended
from pipeline.core.times import DAY_NS
from schemas.records import Entity, PlacementSpan

MAX_GPUS: Final = 1_024
# What ended so long ago is in ClickHouse only by what was published before; the list itself goes with every change.
KEPT_ENDED_NS: Final = DAY_NS
MAX_ENDED: Final = 256
_FILLED: Final = ("local_rank", "pid", "gpu_uuid", "pci_bus_id", "gpu_index", "owner", "scheduler")
_OF_GPU: Final = ("gpu_uuid", "pci_bus_id", "gpu_index")
# A process that uses several GPUs: no one of them is its own.
_SEVERAL: Final = Entity()


def add(spans: dict[str, PlacementSpan], node: str, span: PlacementSpan, gpus: dict[int, Entity]) -> bool:
    """Take a span that a line tells; whether the list says more now."""
    name = _name(node, span)
    known = spans.get(name)
    if known is not None and known.end_unix_nano is not None and span.start_unix_nano > known.end_unix_nano:
        spans[f"{name}\x1f{known.start_unix_nano}"] = known
        known = None
    span = _with_gpu(span, gpus)
    if known is None:
        spans[name] = span
        return True
    return _fill(spans, name, span)


def use(gpus: dict[int, Entity], spans: dict[str, PlacementSpan], node: str, pid: int, entity: Entity | None) -> bool:
    """A process of the node uses a GPU, or none any more: whether a span says more now."""
    if entity is None:
        gpus.pop(pid, None)
        return False
    known = gpus.get(pid)
    if known is None and len(gpus) >= MAX_GPUS:
        del gpus[next(iter(gpus))]
    is_one = known is None or (known != _SEVERAL and _is_one(known, entity))
    gpus[pid] = entity if is_one else _SEVERAL
    placed = False
    for name, span in list(spans.items()):
        if span.pid == pid and span.end_unix_nano is None and name.partition("\x1f")[0] == node:
            placed = _fill(spans, name, _with_gpu(span, gpus)) or placed
    return placed


def end(spans: dict[str, PlacementSpan], job: JobHere, ended: Ended) -> bool:
    """A job on a node is over, or one rank of it: whether the list says more now."""
    placed = False
    for name, span in spans.items():
        is_of = (span.job_id, span.attempt) == (job.job_id, job.attempt) and name.partition("\x1f")[0] == ended.node
        if is_of and span.end_unix_nano is None and ended.rank in (None, span.rank):
            spans[name] = msgspec.structs.replace(span, end_unix_nano=max(ended.at_ns, span.start_unix_nano))
            placed = True
    return placed


def forget(spans: dict[str, PlacementSpan], now_ns: int) -> None:
    """Drop what ended long ago, and the oldest where there is much."""
    ended = sorted((span.end_unix_nano, name) for name, span in spans.items() if span.end_unix_nano is not None)
    crowded = max(0, len(ended) - MAX_ENDED)
    for number, (end_ns, name) in enumerate(ended):
        if number < crowded or now_ns - end_ns > KEPT_ENDED_NS:
            del spans[name]


def _name(node: str, span: PlacementSpan) -> str:
    who = str(span.rank) if span.rank is not None or span.pid is None else f"pid {span.pid}"
    return "\x1f".join((node, span.job_id, str(span.attempt), who, str(span.world_size or "")))


def _fill(spans: dict[str, PlacementSpan], name: str, said: PlacementSpan) -> bool:
    known = spans[name]
    missing = {
        field: getattr(said, field)
        for field in _FILLED
        if getattr(known, field) is None and getattr(said, field) is not None
    }
    if missing and known.pid in (None, said.pid):
        spans[name] = msgspec.structs.replace(known, **missing)
        return True
    return False


def _with_gpu(span: PlacementSpan, gpus: dict[int, Entity]) -> PlacementSpan:
    gpu = gpus.get(span.pid) if span.pid is not None else None
    if gpu is None:
        return span
    missing = {f: getattr(gpu, f) for f in _OF_GPU if getattr(span, f) is None and getattr(gpu, f) is not None}
    return msgspec.structs.replace(span, **missing) if missing else span


def _is_one(a: Entity, b: Entity) -> bool:
    """Whether two lines speak of one GPU."""
    return all(getattr(a, f) in (None, getattr(b, f)) or getattr(b, f) is None for f in _OF_GPU)
