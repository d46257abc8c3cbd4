"""Who lines of one source speak of, and who printed them: what lines and prefixes say, then what their source is."""

from typing import Final

import msgspec

from pipeline.core.hosts import may_be_one
from pipeline.core.parse import ParsedLine
from schemas.records import Entity, Printer, RawBatch

# Prefixes of so many kinds are remembered; the lines of one writer differ in what stands behind them.
MAX_REMEMBERED: Final = 1_024


class Speakers:
    """Of one source: its reporter, its node and the rank that its attributes state."""

    def __init__(self, batch: RawBatch, node: str, rank: int | None) -> None:
        self._reporter = batch.reporter
        self._machine_id = batch.machine_id
        self._node = node
        self._rank = rank
        self._known: dict[tuple[object, ...], tuple[Entity, Printer]] = {}

    def of(self, parsed: ParsedLine, said: Entity) -> tuple[Entity, Printer]:
        """Subject and printer of a line; `said` is what its body says of the subject."""
        key = (
            said, parsed.node, parsed.pod, parsed.rank, parsed.local_rank, parsed.pid, parsed.cuda_dev, parsed.task,
            parsed.pg, parsed.pg_rank,
        )  # fmt: skip
        known = self._known.get(key)
        if known is None:
            if len(self._known) >= MAX_REMEMBERED:
                self._known.clear()
            known = self._known[key] = self._subject(parsed, said), self._printer(parsed)
        return known

    def _subject(self, parsed: ParsedLine, said: Entity) -> Entity:
        """Who the line speaks of: what it says itself, then what its prefixes say, then what its source is."""
        rank = _first(parsed.rank, _rank_in_world(parsed))
        if said.rank is not None and rank is not None and said.rank != rank:
            # The line speaks of another rank than its printer's; nothing else of the printer holds for that one.
            return said
        node = said.node or parsed.node or parsed.pod or self._node or None
        own = node is not None and may_be_one(node, self._reporter)
        return msgspec.structs.replace(
            said,
            node=node,
            machine_id=said.machine_id or (self._machine_id if own else None),
            rank=_first(said.rank, rank, self._rank),
            local_rank=_first(said.local_rank, parsed.local_rank),
            pid=_first(said.pid, parsed.pid),
        )

    def _printer(self, parsed: ParsedLine) -> Printer:
        """Who printed the line: what its prefixes say, else what its source is."""
        rank = _first(parsed.rank, _rank_in_world(parsed))
        node = parsed.node or (None if parsed.pod else self._node) or None
        return Printer(
            node=node, pod=parsed.pod, rank=_first(rank, self._rank), local_rank=parsed.local_rank,
            pid=parsed.pid, cuda_dev=parsed.cuda_dev, task=parsed.task, process_group=parsed.pg,
            group_rank=parsed.pg_rank, node_of_source=node is not None and parsed.node is None,
            rank_of_source=rank is None and self._rank is not None,
        )  # fmt: skip


def _rank_in_world(parsed: ParsedLine) -> int | None:
    """The rank inside torch's default group, which is the rank of the job."""
    group = parsed.pg or ""
    return parsed.pg_rank if group == "0" or group.endswith("(default_pg)") else None


def _first(*values: int | None) -> int | None:
    return next((value for value in values if value is not None), None)
