"""Reads log texts through Align into facts, so that tests of placement start from lines as they stand in files."""

from collections.abc import Mapping

from pipeline.core.align import NodeFold
from pipeline.core.placement import Facts, PlacementMap
from schemas import signals
from schemas.records import ClockReading, Event, EventBatch, RawBatch, RawLine

READ_NS = 1_786_350_000_000_000_000


def events_of(files: Mapping[str, str], *, node: str = "", kind: str = "application") -> list[Event]:
    """The events of files by name; a name `gpu01/…` is of that node, any other of `node`."""
    events: list[Event] = []
    for name, text in files.items():
        owner = name.split("/")[0] if "/" in name else node
        lines = [
            RawLine(seq=number, source=name, generation="0", offset=number, line_no=number, body=body)
            for number, body in enumerate(text.strip("\n").split("\n"), 1)
        ]
        attributes = {"kind": "kernel" if "kern" in name else kind, "node": owner, "job.id": "9", "time.year": "2026"}
        batch = RawBatch(
            run="post_mortem", run_id="", cluster="c", reporter=owner or "files", boot_id="", shipper_id="s",
            batch_seq=1, clock=ClockReading(raw_ns=0, mono_ns=0, boottime_ns=0, wall_ns=0), records=lines,
            source_attributes={name: attributes},
        )  # fmt: skip
        outputs = NodeFold(signals.load()).apply(batch, now_ns=READ_NS)
        events += [event for o in outputs if isinstance(o.record, EventBatch) for event in o.record.events]
    return list({event.event_id: event for event in events}.values())


def facts_of(events: list[Event]) -> Facts:
    """What the events say."""
    facts = Facts()
    for event in events:
        facts.learn(event)
    return facts


def map_of(files: Mapping[str, str], *, node: str = "") -> PlacementMap:
    """The map of files."""
    return PlacementMap(facts_of(events_of(files, node=node)))


def lines(*texts: str) -> str:
    """One text of several lines."""
    return "\n".join(texts)
