"""What a check of a signature found, as an argument for the folds; which lines a reporter may not send at all."""

from collections.abc import Mapping
from typing import Final

import msgspec
from msgspec import Struct

from pipeline.core.routes import CONTROL
from pipeline.core.times import DAY_NS
from schemas.records import Gap, Progress, RawBatch, Release

# What is known of a reporter is forgotten after this much silence (`pipeline.agents.fold.Pace.forget_after_s`).
STALE_NS: Final = 7 * DAY_NS
SPEAK_FOR_THEMSELVES: Final = ("kernel", "telemetry")
SAID_AGAIN_NS: Final = 60 * 10**9
REASONS_AT_MOST: Final = 20
_BOOTS_AT_MOST: Final = 8
SENT_AGAIN: Final = "batches came again that were taken before; they are not counted twice"


class Judged(Struct, frozen=True, kw_only=True):
    """A record whose signature was looked at. Without a `doubt` it is proven to be of its reporter.

    `counts`: it is taken all the same, and the doubt only told.
    """

    record: object
    doubt: str = ""
    counts: bool = False


class LeftOut(Struct, kw_only=True):
    """Lines that do not count for one reason: how many, and how many were told of when."""

    records: int = 0
    lines: int = 0
    told_records: int = 0
    told_ns: int = 0


class Trust(Struct, kw_only=True):
    """What is known of a reporter's proven records and of those that are left out."""

    left_out: dict[str, LeftOut] = {}
    boots: dict[str, int] = {}
    released: dict[str, int] = {}


def left_out(trust: Trust, why: str, lines: int, now_ns: int, reporter: str, *, counts: bool = False) -> Gap | None:
    """Count it. The gap that tells of it: at once for a new reason, then whenever it has doubled, a minute apart."""
    if why not in trust.left_out and len(trust.left_out) >= REASONS_AT_MOST:
        why = "for more reasons than are told one by one"
    known = trust.left_out.setdefault(why, LeftOut())
    known.records += 1
    known.lines += lines
    if known.told_records and (known.records < 2 * known.told_records or now_ns - known.told_ns < SAID_AGAIN_NS):
        return None
    known.told_records, known.told_ns = known.records, now_ns
    did = "counted all the same" if counts else "left out"
    lost = None if counts or not known.lines else known.lines
    return Gap(source="trust", node=reporter, reason=f"lines of {reporter} are {did}: {why}", lost_lines=lost)


def why_old(record: object, trust: Trust, shippers: Mapping[str, int], now_ns: int) -> str:
    """Why a proven record is one that was sent before; empty where it is new. `shippers`: how far each was taken."""
    if isinstance(record, Progress):
        return replay_of(trust, record)
    if isinstance(record, RawBatch):
        known = shippers.get(record.shipper_id)
        if known is not None:
            return SENT_AGAIN if record.batch_seq <= known else ""
        return stale(record, now_ns)
    if isinstance(record, Release) and record.released_unix_nano <= trust.released.get(record.key_id or "", 0):
        return "a release that came again"
    return ""


def released(trust: Trust, release: Release) -> RawBatch:
    """The batch that a person lets count, under a name of its own and with whose word its lines have; remembered."""
    key_id, batch = release.key_id or "", release.batch
    trust.released[key_id] = release.released_unix_nano
    said = {
        source: {**batch.source_attributes.get(source, {}), "released.by": release.who}
        for source in {line.source for line in batch.records}
    }
    return msgspec.structs.replace(
        batch, run=release.run, run_id=release.run_id, cluster=release.cluster, reporter=release.reporter,
        shipper_id=f"release/{key_id}", batch_seq=release.released_unix_nano, source_attributes=said,
    )  # fmt: skip


def replay_of(trust: Trust, progress: Progress) -> str:
    """Why a proven progress record is an old one; empty where it is news, which is then remembered."""
    last = trust.boots.get(progress.boot_id)
    # Agents of a control plane take turns under one name, each on a machine of its own.
    takes_turns = any(source.kind == CONTROL for source in progress.sources)
    is_old_boot = last is not None and next(reversed(trust.boots)) != progress.boot_id and not takes_turns
    if is_old_boot or (last is not None and progress.clock.raw_ns <= last):
        return "progress that was told before came again"
    trust.boots[progress.boot_id] = progress.clock.raw_ns
    while len(trust.boots) > _BOOTS_AT_MOST:
        del trust.boots[next(iter(trust.boots))]
    return ""


def stale(batch: RawBatch, now_ns: int) -> str:
    """Why a proven batch of a shipper that is not known cannot be told from a recorded one; empty where it can."""
    if abs(now_ns - batch.clock.wall_ns) <= STALE_NS:
        return ""
    return "a batch of a shipper that is not known, whose clock is more than 7 days from the broker's"


def own_voice(batch: RawBatch) -> tuple[RawBatch, list[Gap]]:
    """The batch without what a live reporter says of another machine where it may not, and gaps for that."""
    others = {
        source: said["node"]
        for source, said in batch.source_attributes.items()
        if said.get("kind") in SPEAK_FOR_THEMSELVES and said.get("node", batch.reporter) != batch.reporter
    }
    if batch.run != "live" or not others:
        return batch, []
    kept = [line for line in batch.records if line.source not in others]
    gaps = []
    for source, node in others.items():
        lines = sum(line.source == source for line in batch.records)
        if lines:
            reason = f"{batch.reporter} speaks for {node[:80]!r} in a source that is of its own machine alone; left out"
            gaps.append(Gap(source=source, node=batch.reporter, reason=reason, lost_lines=lines))
    return msgspec.structs.replace(batch, records=kept), gaps
