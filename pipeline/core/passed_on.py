"""How far a node was read, as its jobs hear it, and which of them are told of it again."""

from collections.abc import Iterable
from typing import Final
from zlib import crc32

import msgspec

from pipeline.core import times
from pipeline.core.clocks.node import NodeClock
from pipeline.core.here import JobHere
from pipeline.core.measured import read_through
from pipeline.core.outputs import Output
from schemas import topics
from schemas.records import NodeProgress, PlacementSpan, Progress, SourceProgress
from schemas.vocabulary import SourceState

# How far a node was read is known every second. A job of thousands of nodes is told of so many of them in a second, and
# of each after so long at most (broker time), but for what changes more than that.
TOLD_IN_A_SECOND: Final = 100
TELL_AT_LEAST_NS: Final = 10 * times.SECOND_NS


def passed_on(
    progress: Progress, clock: NodeClock | None, clock_fault: str, now_ns: int, *, is_of_node: bool
) -> NodeProgress:
    """What jobs hear of a progress record. `is_of_node`: the reporter tells of its own machine."""
    return NodeProgress(
        run=progress.run, run_id=progress.run_id, cluster=progress.cluster, reporter=progress.reporter, job_key="",
        node=progress.reporter if is_of_node else "",
        # A source's claimed time never moves a watermark when its clock cannot be right.
        through_unix_nano=0 if clock_fault else read_through(progress, clock), as_of_unix_nano=now_ns,
        excluded=f"the clock {clock_fault}" if clock_fault else "",
        ended=progress.ended, kinds=_kinds(progress.sources),
        sources=sorted(s.source for s in progress.sources if s.state == "on"),
    )  # fmt: skip


def says_the_same(a: NodeProgress | None, b: NodeProgress) -> bool:
    """Whether two differ in nothing but their times."""
    return a is not None and _but_for_time(a) == _but_for_time(b)


def is_due(job: JobHere, of_node: Iterable[PlacementSpan], reporter: str, now_ns: int) -> bool:
    """Whether a job is told again how far the node was read. Each node of a large job has its own moment."""
    spans = [s for s in of_node if (s.job_id, s.attempt) == (job.job_id, job.attempt)]
    world = max((span.world_size or 0 for span in spans), default=0)
    nodes = world // max(1, len({span.rank for span in spans if span.rank is not None}))
    pause_ns = min(nodes * times.SECOND_NS // TOLD_IN_A_SECOND, TELL_AT_LEAST_NS)
    if pause_ns <= times.SECOND_NS:
        return True
    shift_ns = crc32(reporter.encode()) * times.SECOND_NS % pause_ns
    # Another moment, not a later one: the clock of the next broker may be behind.
    return (now_ns + shift_ns) // pause_ns != (job.passed_ns + shift_ns) // pause_ns


def to_each(record: NodeProgress, wanted: Iterable[str]) -> list[Output]:
    """The record for every key."""
    return [
        Output(topic=topics.EVENTS.name, key=key.encode(), record=msgspec.structs.replace(record, job_key=key))
        for key in wanted
    ]


def _but_for_time(record: NodeProgress) -> NodeProgress:
    return msgspec.structs.replace(record, through_unix_nano=0, as_of_unix_nano=0)


def _kinds(sources: list[SourceProgress]) -> dict[str, SourceState]:
    """Per source kind: on where any source of it is on."""
    kinds: dict[str, SourceState] = {}
    for source in sources:
        if source.state == "on" or source.kind not in kinds:
            kinds[source.kind] = source.state
    return dict(sorted(kinds.items()))
