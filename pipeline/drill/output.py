"""Writes a story as a folder of logs, with its manifest; may leave files out, cut them short, or hold them back."""

from collections import defaultdict
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from random import Random
from typing import Final

from pipeline.drill.clocks import zone_text
from pipeline.drill.layout import Layout
from pipeline.drill.prefixes import day, rebooted, utc
from pipeline.drill.story import Line, Story

MANIFEST: Final = "rootrank.toml"
_CUT_SHARE: Final = 0.02


@dataclass(frozen=True)
class Written:
    """One line of a file: when it was truly written, and what it proves."""

    true_ns: int
    text: str
    tag: str | None


def files_of(story: Story, layout: Layout) -> dict[str, list[Written]]:
    """Every file, its lines in the order in which they were written."""
    by_path: dict[str, list[tuple[Line, str]]] = defaultdict(list)
    for stream, lines in story.lines.items():
        for target in layout.targets(stream):
            ordered = sorted(lines, key=lambda line: (line.true_ns, line.order))
            for line in ordered:
                if line.true_ns < target.since_ns:
                    continue
                for part in line.text.split("\n"):
                    by_path[target.path].append((line, target.render(line.true_ns, part)))
    return {
        path: [
            Written(line.true_ns, text, line.tag)
            for line, text in sorted(lines, key=lambda pair: (pair[0].true_ns, pair[0].order))
        ]
        for path, lines in sorted(by_path.items())
    }


def left_out(r: Random, paths: Iterable[str], share: float) -> set[str]:
    """Which files are gone; one at least stays."""
    known = sorted(paths)
    return set(r.sample(known, min(round(share * len(known)), len(known) - 1)))


def cut(r: Random, files: Mapping[str, list[Written]]) -> dict[str, list[Written]]:
    """Now and then a file ends before its time, in the middle of a line."""
    if r.random() > 0.1 or not files:
        return dict(files)
    path = r.choice(sorted(files))
    lines = files[path]
    keep = max(1, round(len(lines) * r.uniform(0.6, 1.0)))
    kept = lines[:keep]
    last = kept[-1]
    kept[-1] = Written(last.true_ns, last.text[: max(1, round(len(last.text) * r.uniform(0.3, 0.9)))], None)
    return {**files, path: kept}


def tags_of(files: Mapping[str, list[Written]]) -> set[str]:
    """What the files that are there prove."""
    return {line.tag for lines in files.values() for line in lines if line.tag is not None}


def manifest(
    r: Random, layout: Layout, paths: Iterable[str], begin_ns: int, end_ns: int, *, live: bool = False,
    recorded: bool = False,
) -> str:  # fmt: skip
    """What a careful person would state beside the logs: the job, zone, clocks and how far they may be wrong.

    A shipper of a live drill always states a reading of its node's clocks. Where clocks are `recorded`, nothing is
    claimed of them.
    """
    fleet = layout.fleet
    lines = [f'cluster = "{fleet.cluster}"', f'job_id = "{fleet.job.job_id}"']
    if fleet.zone_s or r.random() < 0.5:
        lines.append(f'time_zone = "{zone_text(fleet.zone_s)}"')
    years = {day(node.clock, t)[:4] for node in fleet.nodes for t in (begin_ns, end_ns)}
    if len(years) == 1:
        lines.append(f"year = {years.pop()}")
    needs_reading = live or {layout.kernel, layout.again} & {"dmesg", "kmsg"}
    for node in (*fleet.nodes, *fleet.others):
        facts = []
        if fleet.claimed:
            claim = node.clock.claim(r, begin_ns, end_ns)
            facts += [f"clock_offset_s = {claim.offset_s:.6f}", f"clock_bound_s = {claim.bound_s:.6f}"]
        if recorded:
            facts = [f'boot_id = "{node.boot_id}"', f'clock_record = "{record_path(node.name)}"']
        if needs_reading:
            boot_ns = layout.reboots.get(node.name)
            clock = node.clock if boot_ns is None else rebooted(node.clock, boot_ns)
            up_s = clock.kernel_ns(end_ns) / 1e9
            facts += [f'wall_time = "{utc(node.clock, end_ns, 6)}"', f"uptime_s = {up_s:.6f}"]
        if facts:
            lines += ["", f'[nodes."{node.name}"]', *facts]
    if layout.job_file in paths and not fleet.shared_log:
        # The batch script runs on the first node.
        lines += ["", f'[files."{layout.job_file}"]', f'node = "{fleet.nodes[0].name}"']
    return "\n".join(lines) + "\n"


def record_path(node: str) -> str:
    """Where the record of a node's clocks lies in the folder."""
    return f"clocks/{node}.jsonl"


def write(
    folder: Path, files: Mapping[str, list[Written]], manifest_text: str, clocks: Mapping[str, list[str]]
) -> None:
    """Write the folder."""
    folder.mkdir(parents=True, exist_ok=True)
    (folder / MANIFEST).write_text(manifest_text, encoding="utf-8")
    for path, texts in [*((path, [line.text for line in lines]) for path, lines in files.items()), *clocks.items()]:
        target = folder / path
        target.parent.mkdir(parents=True, exist_ok=True)
        with target.open("w", encoding="utf-8") as out:
            out.writelines(f"{text}\n" for text in texts)
