"""Reads lines as the pipeline does: one source of one node through Align; gives the events in order."""

import tomllib
from pathlib import Path
from typing import Final

import msgspec
from msgspec import Struct

from pipeline.core.align import NodeFold
from schemas import signals
from schemas.records import ClockReading, Event, EventBatch, RawBatch, RawLine

FOLDER: Final = Path(__file__).parent
NODE: Final = "reader-1"
READ_NS: Final = 1_786_350_000_000_000_000  # 2026-08-10: a year for stamps that have none


class Line(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """One entry of a corpus file: a line (or the lines of one record) and what is to be read from it.

    `catalogue` names the shape. `event` is None where nothing is to be an event of severity warning or above.
    `attributes` and `subject` must be among those of the event. `unread` says why a shape is not recognised.
    """

    catalogue: str
    text: str
    kind: str = "application"
    event: str | None = None
    label: str | None = None
    role: str | None = None
    attributes: dict[str, str] = {}
    subject: dict[str, str | int] = {}
    unread: str = ""


class _File(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    line: list[Line]


def corpus() -> list[Line]:
    """The entries of all files."""
    files = sorted(FOLDER.glob("*.toml"))
    return [line for f in files for line in msgspec.convert(tomllib.loads(f.read_text("utf-8")), _File).line]


def events_of(text: str, kind: str = "application", node: str = NODE) -> list[Event]:
    """The events of a text of one or several lines, in the order in which they are said."""
    lines = [
        RawLine(seq=number, source="file.log", generation="0", offset=number, line_no=number, body=body)
        for number, body in enumerate(text.strip("\n").split("\n"), 1)
    ]
    batch = RawBatch(
        run="post_mortem", run_id="", cluster="local", reporter=node, machine_id=None, boot_id="",
        shipper_id="reading", batch_seq=1, clock=ClockReading(raw_ns=0, mono_ns=0, boottime_ns=0, wall_ns=0),
        records=lines,
        source_attributes={"file.log": {"kind": kind, "node": node, "job.id": "j1", "time.year": "2026"}},
    )  # fmt: skip
    outputs = NodeFold(signals.load()).apply(batch, now_ns=READ_NS)
    said = [event for output in outputs if isinstance(output.record, EventBatch) for event in output.record.events]
    return sorted(said, key=lambda event: event.offset)
