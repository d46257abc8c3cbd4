"""Plays the stories of cause rules through the whole core."""

from collections.abc import Iterator
from typing import Final

from pipeline.core.causes import Case, Rule
from pipeline.engine import Engine
from schemas.records import ClockReading, Incident, Progress, RawBatch, RawLine, SourceProgress
from schemas.topics import key_of

CLUSTER: Final = "story"
NO_CLOCK: Final = ClockReading(raw_ns=0, mono_ns=0, boottime_ns=0, wall_ns=0)


def main_incident(case: Case) -> Incident | None:
    """What the pipeline makes of a story: the incident of its job, else the first one."""
    engine = Engine()
    for key, record in _records(case):
        engine.feed(key, record)
    found = [*engine.incidents(), *engine.notes()]
    return next((i for i in found if i.jobs), found[0] if found else None)


def story_problem(rule: Rule, case: Case) -> str:
    """How a story of a rule ends otherwise than it says; empty where it ends as it should."""
    incident = main_incident(case)
    concluded = incident.class_ if incident is not None else ""
    if case.concludes and concluded != case.concludes:
        return f"concludes {concluded or 'nothing'}, wanted {case.concludes}"
    if not case.concludes and concluded == rule.class_:
        return f"concludes {concluded}, and should not"
    return ""


def _records(case: Case) -> Iterator[tuple[bytes, RawBatch | Progress]]:
    """A story as its nodes' shippers would send it: one batch a source, then the progress that says "to the end"."""
    sources: dict[str, dict[str, list[dict[str, str]]]] = {}
    for line in case.lines:
        sources.setdefault(line["node"], {}).setdefault(line["source"], []).append(line)
    for node, of_node in sorted(sources.items()):
        key = key_of("post_mortem", "", CLUSTER, node)
        said: list[SourceProgress] = []
        for seq, (source, lines) in enumerate(sorted(of_node.items()), 1):
            kind = lines[0].get("kind", "application")
            attributes = {"kind": kind, "node": node, "time.year": "2026", "time.zone": "+00:00", "job.id": "4711"}
            said.append(SourceProgress(source=source, state="on", kind=kind, at_end=True, attributes=attributes))
            yield key, _batch(node, source, seq, [line["line"] for line in lines], attributes)
        yield key, Progress(
            run="post_mortem", run_id="", cluster=CLUSTER, reporter=node, boot_id="", shipper_id="post-mortem",
            last_batch_seq=len(of_node), clock=NO_CLOCK, sources=said, ended=True,
        )  # fmt: skip


def _batch(node: str, source: str, seq: int, lines: list[str], attributes: dict[str, str]) -> RawBatch:
    return RawBatch(
        run="post_mortem", run_id="", cluster=CLUSTER, reporter=node, boot_id="", shipper_id="post-mortem",
        batch_seq=seq, clock=NO_CLOCK, source_attributes={source: attributes},
        records=[
            RawLine(seq=n, source=source, generation="0", offset=n * 1_000, line_no=n, body=line)
            for n, line in enumerate(lines, 1)
        ],
    )  # fmt: skip
