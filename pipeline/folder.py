"""Looks at a folder of logs and works out what each file is: node, rank, kind, clock. Needs no manifest.

An optional `rootrank.toml` in the folder states what the files do not say:

    cluster = "alpha"          # default "local"
    job_id = "4711"            # default: the folder is one job, named after it
    time_zone = "+02:00"       # of stamps without a zone; default: what stamps beside them show, else UTC
    year = 2026                # of stamps without a year; default: what stamps beside them show

    [nodes.gpu01]
    clock_offset_s = -7.25     # reference time minus this node's wall clock
    clock_bound_s = 0.02
    wall_time = "2026-03-04T01:00:00Z"   # what the node's wall clock showed …
    uptime_s = 0.0                       # … at this kernel stamp; places bare kernel stamps
    machine_id = "…"

    [files."gpu01/rank3.log"]
    node = "gpu01"
    rank = 3
    kind = "application"       # or kernel, service
"""

import calendar
import re
import tomllib
from collections import Counter
from collections.abc import Iterable, Iterator, Sized
from datetime import UTC, datetime
from pathlib import Path
from typing import Final, Literal, NamedTuple

import msgspec
from msgspec import Struct

from pipeline.core.dating import Dating, attributes_of
from pipeline.core.neighbours import Sample, infer
from pipeline.core.parse import is_kmsg, is_kmsg_continuation, parse_line
from pipeline.core.stamps import DAY_NS, date_of, zone_offset_s
from pipeline.layouts import KERNEL_NAMES, Layout, host_in, layout_of, words_of
from pipeline.logfiles import UnreadableFileError, head_lines, tail_lines
from pipeline.objects import holds_records, is_document, object_lines
from schemas.names import printable
from schemas.records import ClockClaim, ClockReading, Gap

MANIFEST: Final = "rootrank.toml"
SAMPLE_LINES: Final = 400
TAIL_BYTES: Final = 32 * 1024
SECOND_NS: Final = 1_000_000_000
# What fits the records' integers: a clock that starts at 1970 is off by half of this.
MAX_SECONDS: Final = 4e9
YEARS: Final = range(1970, 2262)
COUNTS: Final = range(2**31)
_WORD: Final = re.compile(r"[\w-]+")

Kind = Literal["kernel", "application", "service"]


class ManifestError(ValueError):
    """A rootrank.toml that cannot be used; the text names file and key."""


class NodeFacts(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """What a manifest says of a node."""

    clock_offset_s: float | None = None
    clock_bound_s: float = 0.0
    wall_time: str | None = None
    uptime_s: float = 0.0
    boot_id: str = ""
    machine_id: str | None = None


class FileFacts(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """What a manifest says of a file."""

    node: str | None = None
    rank: int | None = None
    kind: Kind | None = None


class Manifest(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """The optional rootrank.toml of a folder."""

    cluster: str = "local"
    job_id: str | None = None
    attempt: int = 0
    time_zone: str | None = None
    year: int | None = None
    nodes: dict[str, NodeFacts] = {}
    files: dict[str, FileFacts] = {}


class SourcePlan(Struct, frozen=True, kw_only=True):
    """One log file as one source. `name` is relative to the folder given. `objects`: it is one JSON document."""

    name: str
    path: Path
    kind: Kind
    kmsg: bool
    objects: bool = False
    attributes: dict[str, str]


class NodePlan(Struct, frozen=True, kw_only=True):
    """All sources of one reporter, with its claims about clocks."""

    reporter: str
    boot_id: str
    machine_id: str | None
    clock: ClockReading
    claim: ClockClaim | None
    sources: list[SourcePlan]


class FolderPlan(Struct, frozen=True, kw_only=True):
    """What a folder is taken to be. `gaps`: files whose kind is not read. `unreadable`: what could not be opened."""

    cluster: str
    nodes: list[NodePlan]
    gaps: list[Gap]
    unreadable: list[Gap]


class _Look(Struct, kw_only=True):
    """What a sample of one file shows."""

    name: str
    path: Path
    kind: Kind
    kmsg: bool
    lines: int
    nodes: Counter[str]
    times: Sample
    layout: Layout
    objects: bool
    text: str


def plan(paths: Iterable[Path], *, node: str | None = None) -> FolderPlan:
    """Work out the plan of files and folders. `node` names the node of files that do not say theirs."""
    paths = list(paths)
    manifest = _manifest(paths)
    looks, gaps, unreadable = [], [], []
    for name, path in _files(paths):
        try:
            look = _look(name, path)
        except UnreadableFileError as error:
            unreadable.append(Gap(source=name, reason=str(error)))
            continue
        if isinstance(look, Gap):
            gaps.append(look)
        else:
            looks.append(look)
    placed = _placed(looks, manifest, node)
    datings = infer((look.times for look in looks), year=manifest.year, zone_s=zone_offset_s(manifest.time_zone))
    nodes = _nodes(placed, manifest, datings, _Jobs.of(looks, manifest, _job_name(paths)))
    gaps += _without_a_year(looks, datings)
    gaps += _without_effect(manifest, {look.name for look in looks}, {node.reporter for node in nodes})
    return FolderPlan(cluster=manifest.cluster, nodes=nodes, gaps=gaps, unreadable=unreadable)


def _without_a_year(looks: list[_Look], datings: dict[str, Dating]) -> list[Gap]:
    """Stamps whose year or day no line shows: said once, because all times of these files hang on it."""
    if any(look.times.days for look in looks):
        return []
    names = [look.name for look in looks if look.times.yearless or look.times.dateless]
    unknown = [name for name in names if datings[name].year is None and datings[name].near_ns is None]
    if unknown:
        reason = f"times{_and_more(unknown)} not known: the stamps leave out the year and no file here shows it; write"
        return [Gap(source=unknown[0], reason=f"{reason} `year = YYYY` into {MANIFEST} beside the logs")]
    guessed = [(name, near_ns) for name in names if (near_ns := datings[name].near_ns) is not None]
    if not guessed:
        return []
    year, month, day = date_of(guessed[0][1] // DAY_NS)
    reason = f"no line shows the year of the times{_and_more(guessed)}; by when the file was last written they begin on"
    way_out = f"if that is wrong, write `year = YYYY` into {MANIFEST} beside the logs"
    return [Gap(source=guessed[0][0], reason=f"{reason} {year}-{month:02}-{day:02}; {way_out}")]


def _and_more(names: Sized) -> str:
    return f" (and of {len(names) - 1} more)" if len(names) > 1 else ""


def _manifest(paths: list[Path]) -> Manifest:
    for path in paths:
        file = path / MANIFEST if path.is_dir() else path.parent / MANIFEST
        if file.is_symlink() or file.exists():
            return _read_manifest(file)
    return Manifest()


def _read_manifest(file: Path) -> Manifest:
    name = printable(str(file))
    if not file.is_file():
        raise ManifestError(f"{name}: no regular file; move it away, or write the manifest there")
    try:
        manifest = msgspec.convert(tomllib.loads(file.read_text(encoding="utf-8")), Manifest)
    except (tomllib.TOMLDecodeError, msgspec.ValidationError, UnicodeDecodeError, OSError) as error:
        raise ManifestError(f"{name}: {error}") from None
    if wrong := _wrong_value(manifest):
        raise ManifestError(f"{name}: {wrong}")
    return manifest


def _wrong_value(manifest: Manifest) -> str | None:
    """The first value that cannot be true, by its key, and what to write."""
    if manifest.time_zone is not None and zone_offset_s(manifest.time_zone) is None:
        return f"time_zone {manifest.time_zone!r}: write it as +02:00"
    if manifest.year is not None and manifest.year not in YEARS:
        return f"year {manifest.year}: write one of {YEARS[0]} to {YEARS[-1]}"
    if manifest.attempt not in COUNTS:
        return f"attempt {manifest.attempt}: write a number of 0 or more"
    for name, facts in manifest.files.items():
        if facts.rank is not None and facts.rank not in COUNTS:
            return f'files."{name}".rank {facts.rank}: write a number of 0 or more'
    return next((wrong for name, node in manifest.nodes.items() if (wrong := _wrong_node_value(name, node))), None)


def _wrong_node_value(name: str, facts: NodeFacts) -> str | None:
    # A comparison with a NaN is never true.
    if facts.clock_offset_s is not None and not abs(facts.clock_offset_s) <= MAX_SECONDS:
        return f"nodes.{name}.clock_offset_s {facts.clock_offset_s}: write seconds, reference minus this clock"
    if not 0 <= facts.clock_bound_s <= MAX_SECONDS:
        return f"nodes.{name}.clock_bound_s {facts.clock_bound_s}: write seconds of 0 or more"
    if not 0 <= facts.uptime_s <= MAX_SECONDS:
        return f"nodes.{name}.uptime_s {facts.uptime_s}: write seconds of 0 or more"
    if facts.wall_time is not None and not _is_moment(facts.wall_time):
        return f"nodes.{name}.wall_time {facts.wall_time!r}: write an RFC 3339 time"
    return None


def _is_moment(text: str) -> bool:
    try:
        return datetime.fromisoformat(text).year in YEARS
    except ValueError:
        return False


def _job_name(paths: list[Path]) -> str:
    names = {printable((path if path.is_dir() else path.parent).resolve().name) for path in paths}
    return "-".join(sorted(names)) or "job"


def _files(paths: list[Path]) -> Iterator[tuple[str, Path]]:
    """Every file with its name relative to the path given, in a fixed order. Single files of one name keep apart."""
    single = Counter(path.name for path in paths if not path.is_dir())
    for path in paths:
        if path.is_dir():
            for file in sorted(p for p in path.rglob("*") if not p.is_dir() and p.name != MANIFEST):
                yield printable(str(file.relative_to(path))), file
        elif single[path.name] > 1:
            yield printable("/".join(path.resolve().parts[-2:])), path
        else:
            yield printable(path.name), path


def _without_effect(manifest: Manifest, files: set[str], nodes: set[str]) -> list[Gap]:
    """Names in a manifest that nothing in the folder bears."""
    wrong = [("files", name) for name in manifest.files if name not in files]
    wrong += [("nodes", name) for name in manifest.nodes if name not in nodes]
    return [Gap(source=MANIFEST, reason=f'[{table}."{name}"] names nothing in this folder') for table, name in wrong]


# --- looking at one file ------------------------------------------------------------------------------------------


def _look(name: str, path: Path) -> _Look | Gap:
    if path.exists() and not path.is_file():
        return Gap(source=name, reason="no regular file; not read")
    lines = head_lines(path, SAMPLE_LINES)
    text = "\n".join(lines)
    reason = _not_a_log(text, path)
    if reason:
        return Gap(source=name, reason=reason)
    objects = _is_json(text, path) and holds_records(path)
    if objects:
        lines = [line.text for line in object_lines(path)[:SAMPLE_LINES]]
        text = "\n".join(lines)
    nodes: Counter[str] = Counter()
    times = Sample(name=name, written_ns=path.stat().st_mtime_ns)
    kernel = kmsg = 0
    for line in lines:
        kmsg += is_kmsg(line) is not None or is_kmsg_continuation(line)
        parsed = parse_line(line)
        if parsed.node:
            nodes[parsed.node] += 1
        times.add(parsed)
        kernel += parsed.process == "kernel" or parsed.boot_ns is not None or parsed.body.startswith("NVRM: ")
    head = set(lines)
    for line in tail_lines(path, TAIL_BYTES) if len(lines) == SAMPLE_LINES else ():
        if line not in head:
            times.add(parse_line(line))
    layout, tokens = layout_of(name), words_of(name)
    is_kernel = kernel * 3 >= len(lines) or (
        bool(tokens & KERNEL_NAMES) and layout.rank is None and layout.local_rank is None and "job" not in tokens
    )
    return _Look(
        name=name, path=path, kind="kernel" if lines and is_kernel else "application",
        kmsg=bool(lines) and kmsg * 2 > len(lines), lines=len(lines), nodes=nodes, times=times, layout=layout,
        objects=objects, text=text,
    )  # fmt: skip


def _not_a_log(text: str, path: Path) -> str | None:
    """Why a file is not read as lines (yet), or None."""
    head = text[:4096]
    odd = sum(character == "\ufffd" or (character < " " and character not in "\t\n\r\x1b") for character in head)
    if odd * 5 > len(head):
        return "binary file; this kind is not read yet"
    if head.lstrip().startswith("{") and ('"pg_config"' in text or '"entries"' in text) and path.suffix == ".json":
        return "flight-recorder dump; this kind is not read yet"
    if _is_json(text, path) and not (holds_records(path) or _is_of_kubernetes(head)):
        return "JSON document; this kind is not read yet"
    if head.startswith(("\x80\x02", "\x80\x03", "\x80\x04", "\ufffd\x02", "\ufffd\x04")):
        return "pickle; this kind is not read yet, and never executed"
    return None


def _is_json(text: str, path: Path) -> bool:
    return path.suffix == ".json" and is_document(text)


def _is_of_kubernetes(head: str) -> bool:
    """Whether a document describes objects of Kubernetes: each of its lines stands for itself."""
    return '"apiVersion"' in head and "\n" in head.strip()


# --- from looks to nodes ------------------------------------------------------------------------------------------


_Placed = dict[str, list[tuple[_Look, str]]]


def _placed(looks: list[_Look], manifest: Manifest, default_node: str | None) -> _Placed:
    """The files of each reporter, each with its node (empty where it is of many, or of none that is known)."""
    said = {word for look in looks for word in _WORD.findall(look.text)}
    placed: _Placed = {}
    for look in looks:
        stated = manifest.files.get(look.name, FileFacts())
        node = stated.node or _node_of(look, said) or default_node or ""
        look.times.node, look.times.is_application = node, (stated.kind or look.kind) == "application"
        placed.setdefault(node or f"file:{look.name}", []).append((look, node))
    return placed


class _Jobs(NamedTuple):
    """The job that files are of: the one that some names say, else the folder's. Of several each file has its own."""

    only: str | None
    default: str

    @classmethod
    def of(cls, looks: list[_Look], manifest: Manifest, folder: str) -> "_Jobs":
        said = {look.layout.job_id for look in looks if look.kind == "application" and look.layout.job_id}
        default = manifest.job_id or (next(iter(said)) if len(said) == 1 else folder)
        return cls(only=default if manifest.job_id or len(said) < 2 else None, default=default)

    def job_of(self, look: _Look) -> str | None:
        if self.only is None and look.kind != "application":
            return None
        return self.only or look.layout.job_id or self.default


def _nodes(placed: _Placed, manifest: Manifest, datings: dict[str, Dating], jobs: _Jobs) -> list[NodePlan]:
    with_jobs = {reporter for reporter, group in placed.items() if any(x.kind == "application" for x, _ in group)}
    plans = []
    for reporter, group in sorted(placed.items()):
        facts = manifest.nodes.get(reporter, NodeFacts())
        bound = [look.kind == "application" or reporter not in with_jobs for look, _ in group]
        sources = [
            _source(look, node, manifest, datings[look.name], jobs.job_of(look) if binds else None)
            for (look, node), binds in zip(group, bound, strict=True)
        ]
        applications = [look for look, _ in group if look.kind == "application"]
        if not any(look.times.tells_a_time for look in applications):
            # Whatever the node says may concern a job of which nobody knows when it ran.
            sources = [_undated(source) if source.kind == "application" else source for source in sources]
        plans.append(
            NodePlan(
                reporter=reporter, boot_id=facts.boot_id, machine_id=facts.machine_id, clock=_reading(facts),
                claim=_claim(facts), sources=sources,
            )
        )  # fmt: skip
    return plans


def _node_of(look: _Look, said: set[str]) -> str | None:
    """The node that the lines name, if it is one; else the one that the file's or folder's name names."""
    if look.nodes and look.nodes.total() * 10 >= look.lines:
        (first, count), *rest = look.nodes.most_common(2)
        if not rest or count > 9 * rest[0][1]:
            return first
        if look.kind == "application":
            return None
    return look.layout.node or host_in(look.layout.rest, said)


def _source(look: _Look, node: str, manifest: Manifest, dating: Dating, job: str | None) -> SourcePlan:
    stated, layout = manifest.files.get(look.name, FileFacts()), look.layout
    kind: Kind = stated.kind or look.kind
    attributes = {"kind": kind, "node": node, **attributes_of(dating)}
    if kind == "application":
        rank = stated.rank if stated.rank is not None else layout.rank
        said = {
            "rank": rank, "local_rank": layout.local_rank, "task": layout.task, "pid": layout.pid, "pod": layout.pod,
        }  # fmt: skip
        attributes |= {name: str(value) for name, value in said.items() if value is not None}
    if job is not None:
        attributes["job.id"] = job
        attributes["job.attempt"] = str(manifest.attempt if layout.attempt is None else layout.attempt)
    return SourcePlan(
        name=look.name, path=look.path, kind=kind, kmsg=look.kmsg, objects=look.objects, attributes=attributes
    )


def _undated(source: SourcePlan) -> SourcePlan:
    return msgspec.structs.replace(source, attributes={**source.attributes, "job.undated": "true"})


def _claim(facts: NodeFacts) -> ClockClaim | None:
    if facts.clock_offset_s is None:
        return None
    return ClockClaim(
        offset_ns=round(facts.clock_offset_s * 1e9), bound_ns=round(facts.clock_bound_s * 1e9), by=MANIFEST
    )


def _reading(facts: NodeFacts) -> ClockReading:
    """A reading that places the kernel's boot clock; all zero where nothing is known of it."""
    if facts.wall_time is None:
        return ClockReading(raw_ns=0, mono_ns=0, boottime_ns=0, wall_ns=0)
    wall = datetime.fromisoformat(facts.wall_time)
    wall = wall if wall.tzinfo else wall.replace(tzinfo=UTC)
    up_ns = round(facts.uptime_s * 1e9)
    wall_ns = calendar.timegm(wall.utctimetuple()) * SECOND_NS + wall.microsecond * 1000
    return ClockReading(raw_ns=up_ns, mono_ns=up_ns, boottime_ns=up_ns, wall_ns=wall_ns)
