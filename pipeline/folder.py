"""Looks at a folder of logs and works out what each file is: node, rank, kind, clock. Needs no manifest.

An optional `rootrank.toml` in the folder states what the files do not say:

    cluster = "alpha"          # default "local"
    job_id = "4711"            # default: the folder is one job, named after it
    time_zone = "+02:00"       # of stamps without a zone; default UTC
    year = 2026                # of stamps without a year; default: the year other stamps show

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
from collections.abc import Iterable, Iterator
from datetime import UTC, datetime
from pathlib import Path
from typing import Final, Literal

import msgspec
from msgspec import Struct

from pipeline.core.parse import is_kmsg, is_kmsg_continuation, parse_line
from pipeline.core.stamps import date_of
from pipeline.core.times import zone_offset_s
from pipeline.logfiles import UnreadableFileError, head_lines
from schemas.names import printable
from schemas.records import ClockClaim, ClockReading, Gap

MANIFEST: Final = "rootrank.toml"
SAMPLE_LINES: Final = 400
SECOND_NS: Final = 1_000_000_000
# What fits the records' integers: a clock that starts at 1970 is off by half of this.
MAX_SECONDS: Final = 4e9
YEARS: Final = range(1970, 2262)
COUNTS: Final = range(2**31)
# Words of file names that say what a file is, not whose it is.
_NOT_NAMES: Final = frozenset(
    (
        "log", "logs", "txt", "out", "err", "stdout", "stderr", "kern", "kernel", "dmesg", "syslog", "messages",
        "journal", "job", "slurm", "train", "training", "console", "output", "rank", "gz", "xz", "zst", "nccl", "debug",
        "alerts", "talos", "fabricmanager", "fm", "agent", "kmsg", "json", "node", "worker", "retry", "torchrun",
        "launcher", "trainer", "core", "empty", "elastic", "main", "nohup", "run", "script", "system", "host",
    )
)  # fmt: skip
_KERNEL_NAMES: Final = frozenset(("kern", "kernel", "dmesg", "syslog", "messages", "kmsg", "journal"))
# Numbers, ranks, attempts and parts of a path are no hosts; a short GPU number is one only where a line says so.
_NOT_A_HOST: Final = re.compile(r"(?:(?:attempt|rank|part|restart|default|local|epoch|step|train|job)[_-]?)?\d*")
_WORD: Final = re.compile(r"[\w-]+")
_GPU_NUMBER: Final = re.compile(r"gpu[_-]?\d")
_ATTEMPT_NAME: Final = re.compile(r"(?:^|/)attempt[_-](\d{1,4})(?=/)")
_RANK_NAME: Final = re.compile(r"(?:^|[._/-])rank[_-]?(\d{1,6})(?=[._/-]|$)")

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
    time_zone: str = "+00:00"
    year: int | None = None
    nodes: dict[str, NodeFacts] = {}
    files: dict[str, FileFacts] = {}


class SourcePlan(Struct, frozen=True, kw_only=True):
    """One log file as one source. `name` is relative to the folder given."""

    name: str
    path: Path
    kind: Kind
    kmsg: bool
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
    years: Counter[int]
    yearless: bool
    rank: int | None
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
    years: Counter[int] = Counter()
    for look in looks:
        years.update(look.years)
    year = manifest.year or (min(years, key=lambda y: (-years[y], y)) if years else None)
    nodes = _nodes(looks, manifest, year, node, _job_name(paths))
    gaps += _without_a_year(looks) if year is None else []
    gaps += _without_effect(manifest, {look.name for look in looks}, {node.reporter for node in nodes})
    return FolderPlan(cluster=manifest.cluster, nodes=nodes, gaps=gaps, unreadable=unreadable)


def _without_a_year(looks: list[_Look]) -> list[Gap]:
    """Stamps that no year can be given to: said once, because all times of these files are unknown by it."""
    names = [look.name for look in looks if look.yearless]
    if not names:
        return []
    more = f" (and of {len(names) - 1} more)" if len(names) > 1 else ""
    reason = f"times{more} not known: the stamps leave out the year and no file here shows it; write `year = YYYY` into"
    return [Gap(source=names[0], reason=f"{reason} {MANIFEST} beside the logs")]


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
    if zone_offset_s(manifest.time_zone) is None:
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
    nodes: Counter[str] = Counter()
    years: Counter[int] = Counter()
    yearless = False
    kernel = kmsg = 0
    for line in lines:
        kmsg += is_kmsg(line) is not None or is_kmsg_continuation(line)
        parsed = parse_line(line)
        if parsed.node:
            nodes[parsed.node] += 1
        yearless = yearless or (parsed.stamp is not None and not parsed.stamp.has_year)
        if parsed.stamp and parsed.stamp.has_year:
            years[date_of(parsed.stamp.ns // (86_400 * SECOND_NS))[0]] += 1
        kernel += parsed.process == "kernel" or parsed.boot_ns is not None or parsed.body.startswith("NVRM: ")
    tokens = set(re.split(r"[._/-]", name.lower()))
    rank = _RANK_NAME.search(name.lower())
    is_kernel = kernel * 3 >= len(lines) or (bool(tokens & _KERNEL_NAMES) and not rank and "job" not in tokens)
    return _Look(
        name=name, path=path, kind="kernel" if lines and is_kernel else "application",
        kmsg=bool(lines) and kmsg * 2 > len(lines), lines=len(lines), nodes=nodes, years=years,
        yearless=yearless, rank=int(rank[1]) if rank else None, text=text,
    )  # fmt: skip


def _not_a_log(text: str, path: Path) -> str | None:
    """Why a file is not read as lines (yet), or None."""
    head = text[:4096]
    odd = sum(character == "\ufffd" or (character < " " and character not in "\t\n\r\x1b") for character in head)
    if odd * 5 > len(head):
        return "binary file; this kind is not read yet"
    if head.lstrip().startswith("{") and ('"pg_config"' in text or '"entries"' in text) and path.suffix == ".json":
        return "flight-recorder dump; this kind is not read yet"
    if path.suffix == ".json" and head.lstrip().startswith(("{", "[")) and "\n{" not in head.strip():
        return "JSON document; this kind is not read yet"
    if "NVSMI LOG" in head or "Attached GPUs" in head:
        return "nvidia-smi -q text; this kind is not read yet"
    if head.startswith(("\x80\x02", "\x80\x03", "\x80\x04", "\ufffd\x02", "\ufffd\x04")):
        return "pickle; this kind is not read yet, and never executed"
    return None


# --- from looks to nodes ------------------------------------------------------------------------------------------


def _nodes(
    looks: list[_Look], manifest: Manifest, year: int | None, default_node: str | None, job_name: str
) -> list[NodePlan]:
    said = {word for look in looks for word in _WORD.findall(look.text)}
    placed: dict[str, list[tuple[_Look, str]]] = {}
    for look in looks:
        stated = manifest.files.get(look.name, FileFacts())
        node = stated.node or _node_of(look, said) or default_node or ""
        placed.setdefault(node or f"file:{look.name}", []).append((look, node))
    with_jobs = {reporter for reporter, group in placed.items() if any(x.kind == "application" for x, _ in group)}
    plans = []
    for reporter, group in sorted(placed.items()):
        facts = manifest.nodes.get(reporter, NodeFacts())
        sources = [
            _source(look, node, manifest, year, job_name, binds=look.kind == "application" or reporter not in with_jobs)
            for look, node in group
        ]
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
    return _name_in_path(look.name, said)


def _name_in_path(name: str, said: set[str]) -> str | None:
    """A host name in a path: one that some line mentions, else a folder that reads like one, else such a file name."""
    *folders, file = name.split("/")
    pieces = [*(candidates for folder in reversed(folders) for candidates in (_candidates(folder),))]
    own = [_candidates(piece) for piece in file.split(".")]
    for candidates in (*own, *pieces):
        for candidate in candidates:
            if candidate in said and _reads_like_host(candidate):
                return candidate
    for candidates in pieces:
        if candidates and not _only_if_said(candidates[0]):
            return candidates[0]
    is_kernel = bool(set(re.split(r"[._-]", file.lower())) & _KERNEL_NAMES)
    for candidates in own:
        if candidates and (is_kernel or _reads_like_host(candidates[0])) and not _only_if_said(candidates[0]):
            return candidates[0]
    return None


def _reads_like_host(name: str) -> bool:
    """Whether a word by itself may be a host: it has a number or parts."""
    return "-" in name or any(character.isdigit() for character in name)


def _only_if_said(name: str) -> bool:
    return bool(_GPU_NUMBER.fullmatch(name.lower()))


def _candidates(piece: str) -> list[str]:
    """Host names that a piece of a path may hold, the barest first."""
    if _NOT_A_HOST.fullmatch(piece.lower()):
        return []
    words = re.split(r"[-_]", piece)
    kept = words
    while kept and (kept[0].lower() in _NOT_NAMES or kept[0].lower().startswith("torchelastic")):
        kept = kept[1:]
    while kept and kept[-1].lower() in _NOT_NAMES:
        kept = kept[:-1]
    bare = piece[piece.find("-".join(kept)) :][: len("-".join(kept))] if kept else ""
    if not bare or _NOT_A_HOST.fullmatch(bare.lower()):
        return [piece] if len(words) > 1 and kept and words[0].lower() == "node" else []
    if words[0].lower() == "node" and len(bare) < 3:
        return [piece]
    return [bare] if bare == piece else [bare, piece]


def _source(look: _Look, node: str, manifest: Manifest, year: int | None, job_name: str, *, binds: bool) -> SourcePlan:
    stated = manifest.files.get(look.name, FileFacts())
    kind: Kind = stated.kind or look.kind
    attributes = {"kind": kind, "node": node, "time.zone": manifest.time_zone}
    if year is not None:
        attributes["time.year"] = str(year)
    rank = stated.rank if stated.rank is not None else look.rank
    if rank is not None and kind == "application":
        attributes["rank"] = str(rank)
    if binds:
        attributes["job.id"] = manifest.job_id or job_name
        attempt = _ATTEMPT_NAME.search(look.name)
        attributes["job.attempt"] = attempt[1] if attempt else str(manifest.attempt)
    return SourcePlan(name=look.name, path=look.path, kind=kind, kmsg=look.kmsg, attributes=attributes)


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
