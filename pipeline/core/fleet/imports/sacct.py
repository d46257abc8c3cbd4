r"""Job attempts from `sacct --parsable2` (or `-p`) with a head line.

    sacct -a -D -X -P -S 2026-03-01 -E 2026-04-01 \
        --format=JobID,JobIDRaw,User,Submit,Eligible,Start,End,ElapsedRaw,State,NodeList,AllocTRES,Restarts

Job steps are left out. Stamps are the cluster's local time. In the hour that comes twice when clocks are put back,
ElapsedRaw says which is meant; where it cannot, the earlier one is taken and the line is named. A job that still runs
keeps its nodes busy up to the last stamp of the file. Each node is taken as installed from its first job to its last
(`action` = `seen`), which any inventory overrules.
"""

from collections import Counter, defaultdict
from collections.abc import Mapping
from datetime import UTC, tzinfo
from typing import Final

from msgspec import Struct
from msgspec.structs import replace

from pipeline.core.fleet.attempts import busy_spans, distinct
from pipeline.core.fleet.defects import when
from pipeline.core.fleet.imports.told import ImportFormatError, Told, instants, is_skipped, numbered
from pipeline.core.fleet.installed import SEEN
from pipeline.core.fleet.records import AttemptEnd, Defect, FleetSpan, JobAttempt
from pipeline.core.hosts import expand_hosts

NEEDED: Final = ("jobid", "start", "end", "state", "nodelist")
_ENDS: Final[Mapping[str, AttemptEnd]] = {
    "RUNNING": "running", "SUSPENDED": "running", "COMPLETING": "running", "RESIZING": "running",
    "COMPLETED": "completed", "FAILED": "failed", "OUT_OF_MEMORY": "failed", "NODE_FAIL": "node_failure",
    "BOOT_FAIL": "node_failure", "CANCELLED": "cancelled", "REVOKED": "cancelled", "PREEMPTED": "preempted",
    "TIMEOUT": "timed_out", "DEADLINE": "timed_out", "REQUEUED": "unknown",
}  # fmt: skip
_NOT_STARTED: Final = frozenset({"", "Unknown", "None", "N/A"})
_NO_NODES: Final = frozenset({"", "None assigned", "None", "N/A"})
_SECOND: Final = 10**9


class _Line(Struct, frozen=True):
    number: int
    values: Mapping[str, str]


class _Place(Struct, frozen=True):
    cluster: str
    source: str
    zone: tzinfo
    counts_gpus: bool


def parse_sacct(text: str, *, cluster: str, source: str, zone: tzinfo = UTC) -> Told:
    """Attempts, and the spans of nodes that follow from them. Raises ImportFormatError without a usable head line."""
    # Not splitlines: a name may hold what Unicode takes for the end of a line.
    head, *body = (line.removesuffix("\r") for line in text.split("\n"))
    names = [name.strip().lower() for name in head.removesuffix("|").split("|")]
    if missing := [name for name in NEEDED if name not in names]:
        raise ImportFormatError(
            f"the first line must be sacct's head with JobID, Start, End, State and NodeList, divided by `|`; "
            f"{', '.join(missing)} is not there. Take it with: sacct -a -D -X --parsable2 --format=JobID,JobIDRaw,User,"
            f"Submit,Eligible,Start,End,ElapsedRaw,State,NodeList,AllocTRES,Restarts"
        )
    lines, defects, skipped = _lines(names, body, cluster, source)
    counts_gpus = any("gres/gpu" in line.values.get("alloctres", "") for line in lines)
    place = _Place(cluster, source, zone, counts_gpus)
    attempts: list[JobAttempt] = []
    for line in lines:
        attempt, doubts = _attempt(line, place)
        defects.extend(doubts)
        if attempt is not None:
            attempts.append(attempt)
        elif not doubts:
            skipped["jobs that never started"] += 1
    restarts = {line.number: line.values.get("restarts", "") for line in lines}
    counted, twice = distinct(_numbered_attempts(attempts, restarts))
    return Told(
        attempts=counted,
        spans=numbered(_spans(counted, place, _last_ns(lines, zone))),
        defects=[*defects, *twice],
        skipped=dict(skipped),
    )


def _lines(
    names: list[str], body: list[str], cluster: str, source: str
) -> tuple[list[_Line], list[Defect], Counter[str]]:
    lines: list[_Line] = []
    defects: list[Defect] = []
    skipped: Counter[str] = Counter()
    for number, row in enumerate(body, 2):
        if not row.strip():
            continue
        values = row.split("|")
        if len(values) == len(names) + 1 and not values[-1]:
            values.pop()
        if len(values) != len(names):
            text = f"{len(values)} values for {len(names)} columns; not read"
            defects.append(Defect(
                kind="unreadable_line", cluster=cluster, unit="", detail=text, source=source, row=number,
            ))  # fmt: skip
        elif "." in values[names.index("jobid")]:
            skipped["job steps"] += 1
        else:
            stripped = (value.strip() for value in values)
            lines.append(_Line(number, dict(zip(names, stripped, strict=True))))
    return lines, defects, skipped


def _attempt(line: _Line, place: _Place) -> tuple[JobAttempt | None, list[Defect]]:
    """The attempt of a line, None where it says nothing usable, and what is doubtful of it."""
    values = line.values
    state = values["state"].split(" ")[0].rstrip("+").upper()
    if values["start"] in _NOT_STARTED or state == "PENDING":
        return None, []

    def named(kind: str, text: str) -> Defect:
        unit = f"job {values['jobid']}"
        return Defect(
            kind=kind, cluster=place.cluster, unit=unit, detail=text, source=place.source, row=line.number
        )  # fmt: skip

    end = _ENDS.get(state)
    if end is None:
        return None, [named("bad_value", f"state {values['state']!r} is not known; not read")]
    nodes = [] if values["nodelist"] in _NO_NODES else expand_hosts(values["nodelist"])
    if not nodes:
        return None, [named("no_node", f"it started, but {values['nodelist']!r} is no list of nodes; not read")]
    times, doubts = _times(values, place.zone)
    if times is None:
        return None, [named(*doubt) for doubt in doubts]
    from_ns, to_ns = times
    waited = instants(values.get("eligible", "") or values.get("submit", ""), place.zone)
    return JobAttempt(
        cluster=place.cluster, job_id=values.get("jobidraw") or values["jobid"], attempt=0, nodes=tuple(nodes),
        gpus=_gpus(values, place.counts_gpus), from_ns=from_ns, to_ns=to_ns, end=end,
        queued_ns=max(from_ns - waited[0], 0) if waited else None, owner=values.get("user", ""),
        source=place.source, row=line.number,
    ), [named(*doubt) for doubt in doubts]  # fmt: skip


def _times(values: Mapping[str, str], zone: tzinfo) -> tuple[tuple[int, int | None] | None, list[tuple[str, str]]]:
    """Start and end, and what is doubtful of them as kind and text."""
    starts, ends = instants(values["start"], zone), instants(values["end"], zone)
    if not starts or (not ends and values["end"] not in _NOT_STARTED):
        return None, [
            ("bad_time", f"start {values['start']!r}, end {values['end']!r}: no time in 2000 to 2099; not read")
        ]
    doubts = [
        ("no_such_local_time", f"{values[name]} is in the hour that clocks skip there; taken as if they had not")
        for name, told in (("start", starts), ("end", ends))
        if told and not values[name].isdigit() and is_skipped(values[name], zone)
    ]
    pairs: list[tuple[int, int | None]] = [(a, b) for a in starts for b in ends if b >= a]
    pairs = pairs if ends else [(a, None) for a in starts]
    if not pairs:
        said = f"from {when(starts[0])} to {when(ends[0])}"
        return None, [("inverted_span", f"{said} ends before it begins; not counted")]
    elapsed = values.get("elapsedraw", "")
    if elapsed.isascii() and elapsed.isdigit() and len(elapsed) < 12:
        off = {pair: abs(pair[1] - pair[0] - int(elapsed) * _SECOND) for pair in pairs if pair[1] is not None}
        pairs = [pair for pair in pairs if off.get(pair, 0) == min(off.values(), default=0)]
    if len(pairs) > 1:
        text = f"{values['start']} to {values['end']} came twice, as clocks were put back; the earlier one is taken"
        doubts.append(("ambiguous_time", text))
    return pairs[0], doubts


def _gpus(values: Mapping[str, str], counts_gpus: bool) -> int | None:
    """GPUs of all nodes together; none for a job without any where others of the file have some."""
    parts = [part.partition("=") for part in values.get("alloctres", "").split(",")]
    told = {name: int(count) for name, _, count in parts if count.isascii() and count.isdigit() and len(count) < 9}
    if "gres/gpu" in told:
        return told["gres/gpu"]
    typed = [count for name, count in told.items() if name.startswith("gres/gpu:")]
    if typed:
        return sum(typed)
    return 0 if counts_gpus and told else _old_gpus(values)


def _old_gpus(values: Mapping[str, str]) -> int | None:
    """From AllocGRES (before Slurm 20.11), which counts those of one node: `gpu:8`, `gpu:h100:4`."""
    told = [part.rpartition(":")[2] for part in values.get("allocgres", "").split(",") if part.startswith("gpu:")]
    per_node = [int(count) for count in told if _is_count(count)]
    nodes = values.get("nnodes", "")
    return sum(per_node) * int(nodes) if per_node and _is_count(nodes) else None


def _is_count(text: str) -> bool:
    return text.isascii() and text.isdigit() and len(text) < 9


def _numbered_attempts(attempts: list[JobAttempt], restarts: Mapping[int, str]) -> list[JobAttempt]:
    """Attempts by the order of their starts, or by Restarts where that tells the lines of a job apart."""
    by_job: dict[str, list[JobAttempt]] = defaultdict(list)
    for attempt in sorted(attempts, key=lambda a: (a.from_ns, a.row)):
        by_job[attempt.job_id].append(attempt)
    found: list[JobAttempt] = []
    for runs in by_job.values():
        starts = sorted({run.from_ns for run in runs})
        told = [restarts[run.row] for run in runs]
        by_restarts = len(set(told)) == len(starts) and all(t.isascii() and t.isdigit() and len(t) < 9 for t in told)
        for run, text in zip(runs, told, strict=True):
            found.append(replace(run, attempt=int(text) if by_restarts else starts.index(run.from_ns)))
    return found


def _last_ns(lines: list[_Line], zone: tzinfo) -> int:
    """The last time that any line tells: about when sacct was called, on a cluster that works."""
    told = (line.values.get(name, "") for line in lines for name in ("submit", "start", "end"))
    return max((at_ns for text in told for at_ns in instants(text, zone)), default=0)


def _spans(attempts: list[JobAttempt], place: _Place, last_ns: int) -> list[FleetSpan]:
    busy = [span for attempt in attempts for span in busy_spans(attempt, last_ns)]
    seen: dict[str, tuple[int, int]] = {}
    for span in busy:
        begin, end = seen.get(span.unit, (span.from_ns, span.from_ns))
        seen[span.unit] = min(begin, span.from_ns), max(end, span.to_ns or span.from_ns)
    return [
        *(
            FleetSpan(
                cluster=place.cluster, unit_kind="node", unit=node, kind="installed", from_ns=begin, to_ns=end,
                action=SEEN, source=place.source,
            )
            for node, (begin, end) in sorted(seen.items())
        ),
        *busy,
    ]  # fmt: skip
