"""`rootrank diagnose`: the same core over a folder of logs, after the fact, without Kafka."""

from collections.abc import Iterable
from pathlib import Path
from typing import Any

import msgspec
from msgspec import Struct

from pipeline.core.causes import RuleSet
from pipeline.engine import Engine
from pipeline.folder import FolderPlan, plan
from pipeline.folder_clocks import WallClock, wall_clock_of
from pipeline.node_reading import parts
from pipeline.notes import Note
from pipeline.progress import ReadingProgress
from pipeline.workers import Workers
from schemas.records import Gap, Incident, Progress


class Diagnosis(Struct, frozen=True, kw_only=True):
    """Everything `rootrank diagnose` has to say of its input. `clocks`: what was recorded of those of nodes."""

    incidents: list[Incident]
    notes: list[Note]
    gaps: list[Gap]
    unreadable: list[Gap]
    clocks: list[WallClock] = []

    def shape(self) -> dict[str, Any]:
        """The JSON object of `--json`."""
        gaps = [msgspec.to_builtins(gap) for gap in (*self.gaps, *self.unreadable)]
        return {
            "incidents": [_untagged(msgspec.to_builtins(incident)) for incident in self.incidents],
            "notes": [msgspec.to_builtins(note) for note in self.notes],
            "gaps": gaps,
        }


def diagnose(paths: Iterable[Path], *, node: str | None = None, rules: RuleSet | None = None) -> Diagnosis:
    """Read files and folders and conclude. Raises ManifestError for a rootrank.toml that cannot be used."""
    with Workers(1) as alone:
        return diagnose_plan(plan(paths, node=node), alone, rules=rules)


def diagnose_plan(
    folder: FolderPlan, workers: Workers, progress: ReadingProgress | None = None, *, rules: RuleSet | None = None
) -> Diagnosis:
    """Conclude over a folder whose files are already worked out. Raises WorkerLostError.

    All lines come before the closing progress of any node: the verdict is worked out once, at the end.
    """
    engine, broken, ends = Engine(rules), list[Gap](), list[tuple[bytes, Progress]]()
    recorded = {node.reporter for node in folder.nodes if node.clock_record is not None}
    clocks: list[WallClock] = []
    for part in parts(folder, engine.told, workers, progress.read if progress is not None else None):
        broken += part.gaps
        engine.take(part.outputs)
        if part.fold is not None and part.progress is not None:
            engine.adopt(part.key, part.fold)
            ends.append((part.key, part.progress))
            if part.progress.reporter in recorded and part.fold.state.clock.is_measured:
                clocks.append(wall_clock_of(part.progress.reporter, part.fold.state.clock))
    if progress is not None:
        progress.concluding()
    engine.deliver()
    for key, end in ends:
        engine.feed(key, end)
    return Diagnosis(
        incidents=engine.incidents(), notes=_notes(engine.notes()), gaps=folder.gaps,
        unreadable=[*folder.unreadable, *broken], clocks=clocks,
    )  # fmt: skip


def _notes(endings: Iterable[Incident]) -> list[Note]:
    """The notes, each once: a line of a node may be noted for every job that runs there."""
    notes: dict[tuple[object, ...], Note] = {}
    for note in map(_note, endings):
        notes.setdefault((note.class_, note.source, note.line_no, note.text), note)
    return list(notes.values())


def _note(incident: Incident) -> Note:
    first = next((step for step in incident.chain if step.role != "context"), incident.chain[0])
    return Note(
        class_=incident.class_, why=incident.explanation, source=first.evidence.source,
        line_no=first.evidence.line_no, text=first.evidence.text,
    )  # fmt: skip


def _untagged(shape: dict[str, Any]) -> dict[str, Any]:
    shape.pop("record", None)
    return shape
