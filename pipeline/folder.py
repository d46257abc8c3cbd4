"""Looks at a folder of logs and works out what each file is: node, rank, kind, clock. Needs no manifest; an optional
`rootrank.toml` states what the files do not say (`pipeline/manifest.py`).
"""

import os
import re
import stat
from collections import Counter
from collections.abc import Iterable, Iterator, Sized
from functools import partial
from pathlib import Path
from typing import Final, NamedTuple

import msgspec
from msgspec import Struct

from pipeline.core.content_clock.lines import Seen
from pipeline.core.content_clock.solve import NOTHING, Alignment
from pipeline.core.dating import Dating, attributes_of
from pipeline.core.hosts import may_be_one
from pipeline.core.line_reader import line_reader
from pipeline.core.neighbours import Sample, infer
from pipeline.core.parse import is_kmsg_continuation, kmsg_header, parse_line
from pipeline.core.shown_times import rfc3339
from pipeline.core.stamps import DAY_NS, date_of
from pipeline.flight_files import head_of
from pipeline.folder_clocks import Heard, Listener, clocks_of, dump_marks
from pipeline.layouts import KERNEL_NAMES, Layout, host_in, is_tool, layout_of, possible_hosts, words_of
from pipeline.logfiles import UnreadableFileError, head_lines, tail_lines
from pipeline.manifest import (
    MANIFEST,
    FileFacts,
    Kind,
    Manifest,
    claim_of,
    clock_record_of,
    facts_of,
    manifest_of,
    reading_of,
)
from pipeline.objects import holds_records, is_document, object_lines
from pipeline.workers import TASK_BYTES, Workers
from schemas import signals
from schemas.clock_notes import read_record
from schemas.names import printable
from schemas.records import ClockClaim, ClockReading, Gap
from schemas.zones import zone_offset_s

SAMPLE_LINES: Final = 400
TAIL_BYTES: Final = 32 * 1024
# About as many bytes as so many lines have, and the end.
SAMPLE_BYTES: Final = 96 * 1024
TASK_FILES: Final = 256
_ZEROS: Final = re.compile(r"\0{8,}")
# Control characters but for tabs, ends of lines and colours: no text has them.
_CONTROLS: Final = bytes(set(range(32)) - set(b"\t\n\r\x1b"))
_ANY_FOLDER: Final = frozenset(("log", "logs", "output", "outputs"))
_WORD: Final = re.compile(r"[\w-]+")
# The ASCII characters that are of no such word, as spaces.
_BETWEEN: Final = {code: " " for code in range(128) if not _WORD.match(chr(code))}


class SourcePlan(Struct, frozen=True, kw_only=True):
    """One log file as one source. `name` is relative to the folder given. `objects`: it is one JSON document; `dump`:
    it is a dump of the flight recorder.
    """

    name: str
    path: Path
    kind: Kind
    kmsg: bool
    objects: bool = False
    dump: bool = False
    attributes: dict[str, str]


class NodePlan(Struct, frozen=True, kw_only=True):
    """All sources of one reporter, with its claims about clocks and where they were recorded."""

    reporter: str
    boot_id: str
    machine_id: str | None
    clock: ClockReading
    claim: ClockClaim | None
    sources: list[SourcePlan]
    clock_record: Path | None = None


class FolderPlan(Struct, frozen=True, kw_only=True):
    """What a folder is taken to be. `gaps`: files whose kind is not read. `unreadable`: what could not be opened.

    `clocks`: what the lines themselves show of how the clocks of nodes go.
    """

    cluster: str
    nodes: list[NodePlan]
    gaps: list[Gap]
    unreadable: list[Gap]
    clocks: Alignment


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
    dump: bool = False
    seen: list[Seen] = []
    # Of the words of its lines those that may be hosts by some path.
    said: set[str]


class _NotRead(Struct, frozen=True, kw_only=True):
    """A file that is not read, and why."""

    gap: Gap
    is_unreadable: bool = False


def plan(paths: Iterable[Path], *, node: str | None = None, workers: Workers | None = None) -> FolderPlan:
    """Work out the plan of files and folders. `node` names the node of files that do not say theirs.

    Raises WorkerLostError where `workers` look at the files and one of them is killed.
    """
    paths = list(paths)
    manifest, folder = manifest_of(paths)
    records = {record.absolute() for facts in manifest.nodes.values() if (record := clock_record_of(facts, folder))}
    looks: list[_Look] = []
    gaps: list[Gap] = []
    unreadable: list[Gap] = []
    files = [(name, path) for name, path in _files(paths, gaps, unreadable) if path.absolute() not in records]
    for look in _looks(files, workers):
        if isinstance(look, _Look):
            looks.append(look)
        else:
            (unreadable if look.is_unreadable else gaps).append(look.gap)
    placed = _placed(looks, manifest, node)
    datings = infer((look.times for look in looks), year=manifest.year, zone_s=zone_offset_s(manifest.time_zone))
    jobs = _Jobs.of(looks, manifest, _job_name(paths))
    nodes = _nodes(placed, manifest, folder, datings, jobs)
    clocks = _clocks(nodes, placed, datings, jobs)
    nodes = [msgspec.structs.replace(node, claim=node.claim or clocks.claims.get(node.reporter)) for node in nodes]
    gaps += _without_a_year(looks, datings)
    gaps += _without_effect(manifest, {look.name for look in looks}, {node.reporter for node in nodes})
    return FolderPlan(cluster=manifest.cluster, nodes=nodes, gaps=gaps, unreadable=unreadable, clocks=clocks)


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


def _job_name(paths: list[Path]) -> str:
    folders = [(path if path.is_dir() else path.parent).resolve() for path in paths]
    # Every incident has a folder of this name: the one around it tells them apart.
    folders = [folder.parent if folder.name.lower() in _ANY_FOLDER else folder for folder in folders]
    names = {printable(folder.name) for folder in folders}
    return "-".join(sorted(names)) or "job"


def missing_in(paths: Iterable[Path]) -> str | None:
    """The first path that cannot be looked at, and why."""
    for path in paths:
        try:
            path.stat()
        except FileNotFoundError:
            return f"{printable(str(path))}: no such file or folder"
        except OSError as error:
            return f"cannot read {_why(path, error)}"
    return None


def _why(path: Path, error: OSError) -> str:
    return str(error) if isinstance(error, UnreadableFileError) else f"{printable(str(path))}: {error.strerror}"


def _files(paths: list[Path], gaps: list[Gap], unreadable: list[Gap]) -> list[tuple[str, Path]]:
    """Every file once, with its name relative to the path given, in a fixed order. Two of one name get longer ones."""
    given: dict[Path, Path] = {}
    sizes: dict[Path, int] = {}
    for path in paths:
        for file in sorted(_below(path, gaps, unreadable)) if path.is_dir() else (path,):
            whole = file.absolute()
            given.setdefault(whole, file)
            sizes.setdefault(whole, max(1, len(file.relative_to(path).parts)))
    names: dict[Path, str] = {}
    wanted = list(sizes)
    while wanted:
        names.update((file, "/".join(file.parts[-sizes[file] :])) for file in wanted)
        count = Counter(names.values())
        wanted = [file for file, name in names.items() if count[name] > 1 and sizes[file] < len(file.parts)]
        for file in wanted:
            sizes[file] += 1
    return [(printable(name), given[file]) for file, name in names.items()]


def _below(folder: Path, gaps: list[Gap], unreadable: list[Gap]) -> Iterator[Path]:
    """The files of a folder and its folders. A link to a folder is not followed: it may lead back."""
    inside, folders = folder.resolve(), [folder]
    while folders:
        at = folders.pop()
        try:
            entries = list(os.scandir(at))
        except OSError as error:
            unreadable.append(Gap(source=printable(str(at.relative_to(folder))), reason=_why(at, error)))
            continue
        for entry in entries:
            path = at / entry.name
            if entry.is_dir(follow_symlinks=False):
                folders.append(path)
            elif not _is_folder(path):
                if entry.name != MANIFEST:
                    yield path
            elif not path.resolve().is_relative_to(inside):
                gaps.append(Gap(source=printable(str(path.relative_to(folder))), reason="a link to a folder; not read"))


def _is_folder(path: Path) -> bool:
    try:
        return stat.S_ISDIR(path.stat().st_mode)
    except OSError:
        return False


def _without_effect(manifest: Manifest, files: set[str], nodes: set[str]) -> list[Gap]:
    """Names in a manifest that nothing in the folder bears."""
    wrong = [("files", name) for name in manifest.files if name not in files]
    wrong += [("nodes", name) for name in manifest.nodes if not any(may_be_one(name, node) for node in nodes)]
    return [Gap(source=MANIFEST, reason=f'[{table}."{name}"] names nothing in this folder') for table, name in wrong]


# --- looking at one file ------------------------------------------------------------------------------------------


# A file's name, path and layout.
_File = tuple[str, Path, Layout]


def _looks(named: list[tuple[str, Path]], workers: Workers | None) -> Iterator[_Look | _NotRead]:
    """A look at every file, in order."""
    files = [(name, path, layout_of(name)) for name, path in named]
    hosts = {host for _, _, layout in files for host in possible_hosts(layout.rest)}
    sizes = [_sampled(path) for _, path, _ in files] if workers is not None and workers.count > 1 else []
    if workers is None or not workers.are_worth(sum(sizes)):
        for file in files:
            yield _look_or_why(file, hosts)
        return
    for found in workers.map(partial(_look_at, hosts), _tasks(files, sizes)):
        yield from found


def _sampled(path: Path) -> int:
    """About how much of a file is looked at."""
    try:
        return min(path.stat().st_size, SAMPLE_BYTES)
    except OSError:
        return 0


def _tasks(files: list[_File], sizes: list[int]) -> Iterator[list[_File]]:
    task, held = list[_File](), 0
    for file, size in zip(files, sizes, strict=True):
        task.append(file)
        held += size
        if held >= TASK_BYTES or len(task) >= TASK_FILES:
            yield task
            task, held = [], 0
    if task:
        yield task


def _look_at(hosts: set[str], files: list[_File]) -> list[_Look | _NotRead]:
    return [_look_or_why(file, hosts) for file in files]


def _look_or_why(file: _File, hosts: set[str]) -> _Look | _NotRead:
    name, path, layout = file
    try:
        look = _look(name, path, layout, hosts)
    except OSError as error:
        return _NotRead(gap=Gap(source=name, reason=_why(path, error)), is_unreadable=True)
    return _NotRead(gap=look) if isinstance(look, Gap) else look


def _look(name: str, path: Path, layout: Layout, hosts: set[str]) -> _Look | Gap:
    if not stat.S_ISREG(path.stat().st_mode):
        return Gap(source=name, reason="no regular file; not read")
    start = head_of(path)
    if start.is_dump:
        return _dump_look(name, path, layout, start.time_ns)
    if start.is_pickle:
        return Gap(source=name, reason="pickle, and no flight-recorder dump; not read, and never executed")
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
    parse = line_reader(signals.load()).parse
    marks = Listener()
    for line in lines:
        kmsg += kmsg_header(line) is not None or is_kmsg_continuation(line)
        parsed = marks.hear(line) or parse(line)
        if parsed.node:
            nodes[parsed.node] += 1
        times.add(parsed)
        kernel += parsed.process == "kernel" or parsed.boot_ns is not None or parsed.body.startswith("NVRM: ")
    head = set(lines)
    for line in tail_lines(path, TAIL_BYTES) if len(lines) == SAMPLE_LINES else ():
        if line not in head:
            times.add(marks.hear(line) or parse(line))
    # A folder of a job may hold kernel logs; a file of that name is the job's.
    tokens, own = words_of(name), words_of(name.rpartition("/")[2])
    is_kernel = kernel * 3 >= len(lines) or (
        bool(tokens & KERNEL_NAMES) and layout.rank is None and layout.local_rank is None and "job" not in own
    )
    return _Look(
        name=name, path=path, kind="kernel" if lines and is_kernel else "application",
        kmsg=bool(lines) and kmsg * 2 > len(lines), lines=len(lines), nodes=nodes, times=times, layout=layout,
        objects=objects, said=hosts.intersection(_words(text)), seen=marks.seen,
    )  # fmt: skip


def _dump_look(name: str, path: Path, layout: Layout, time_ns: int) -> _Look:
    """A dump of the flight recorder: its lines are made when they are read. Its name tells no host but in a layout."""
    times = Sample(name=name, written_ns=path.stat().st_mtime_ns)
    if time_ns:
        times.add(parse_line(f"{rfc3339(time_ns)} "))
    folders = layout.rest[: layout.rest.rfind("/") + 1]
    layout = msgspec.structs.replace(layout, rest=folders, local_rank=None, task=None, pid=None, pod=None)
    return _Look(
        name=name, path=path, kind="application", kmsg=False, lines=0, nodes=Counter(), times=times, layout=layout,
        objects=False, dump=True, said=set(),
    )  # fmt: skip


def _words(text: str) -> list[str]:
    return text.translate(_BETWEEN).split() if text.isascii() else _WORD.findall(text)


def _not_a_log(text: str, path: Path) -> str | None:
    """Why a file is not read as lines (yet), or None."""
    # Zeros stand where a writer had been before its file was cut, and where a machine died as it wrote.
    plain = _ZEROS.sub("", text) if "\0" in text else text
    head = (plain if plain.strip("\n") else text)[:4096]
    data = head.encode()
    odd = head.count("\ufffd") + len(data) - len(data.translate(None, _CONTROLS))
    if odd * 5 > len(head):
        return "binary file; this kind is not read yet"
    if _is_json(text, path) and not (holds_records(path) or _is_of_kubernetes(head)):
        return "JSON document; this kind is not read yet"
    if head.lstrip()[:14].lower() == "<!doctype html":  # such as the page of an earlier `--html`
        return "web page; not read"
    if head.startswith("rootrank: capture id="):
        return "capture of a node agent; it quotes what other logs say, so it is not read as one"
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
    said = set[str]().union(*(look.said for look in looks))
    placed: _Placed = {}
    for look in looks:
        stated = manifest.files.get(look.name, FileFacts())
        look.kind = stated.kind or look.kind
        node = stated.node or _node_of(look, said) or default_node or ""
        look.times.node, look.times.is_application = node, look.kind == "application"
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


def _nodes(
    placed: _Placed, manifest: Manifest, folder: Path, datings: dict[str, Dating], jobs: _Jobs
) -> list[NodePlan]:
    with_jobs = {reporter for reporter, group in placed.items() if any(x.kind == "application" for x, _ in group)}
    shared = any(_is_shared(look) for group in placed.values() for look, _ in group)
    plans = []
    for reporter, group in sorted(placed.items()):
        facts = facts_of(manifest, reporter)
        bound = [look.kind == "application" or reporter not in with_jobs for look, _ in group]
        sources = [
            _source(look, node, manifest, datings[look.name], jobs.job_of(look) if binds else None)
            for (look, node), binds in zip(group, bound, strict=True)
        ]
        applications = [look for look, _ in group if look.kind == "application"]
        if not any(look.times.is_stamped for look in applications) or (shared and _only_snapshots(applications)):
            # Whatever the node says may concern a job of which nobody knows when it ran.
            sources = [_undated(source) if source.kind == "application" else source for source in sources]
        record = clock_record_of(facts, folder)
        last = read_record(record, reporter).notes[-1:] if record is not None else []
        plans.append(
            NodePlan(
                reporter=reporter, boot_id=last[0].boot_id if last else facts.boot_id, machine_id=facts.machine_id,
                clock=last[0].clock if last else reading_of(facts), claim=claim_of(facts), sources=sources,
                clock_record=record,
            )
        )  # fmt: skip
    return plans


def _clocks(nodes: list[NodePlan], placed: _Placed, datings: dict[str, Dating], jobs: _Jobs) -> Alignment:
    """What the lines of nodes show of their clocks; nothing beside clocks that were measured: theirs is another
    timeline.
    """
    if any(node.clock_record for node in nodes):
        return NOTHING
    heard = [
        Heard(
            node=node, source=look.name, job=f"{jobs.job_of(look)}/{look.layout.attempt}", dating=datings[look.name],
            seen=look.seen,
        )
        for group in placed.values() for look, node in group if node and look.kind == "application"
    ]  # fmt: skip
    heard += dump_marks((node, look.name, look.path) for group in placed.values() for look, node in group if look.dump)
    return clocks_of(heard, {node.reporter: node.claim for node in nodes})


def _is_shared(look: _Look) -> bool:
    """Whether a job's log holds the lines of several nodes."""
    return look.kind == "application" and look.nodes is not None and len(look.nodes) > 1


def _only_snapshots(applications: list[_Look]) -> bool:
    """Whether none of the files is the log of a rank: what tools print of a node says when they ran, not the job."""
    return all(look.layout.rank is None and look.layout.local_rank is None for look in applications)


def _node_of(look: _Look, said: set[str]) -> str | None:
    """The node that the lines name, if it is one; else the one that the file's or folder's name names."""
    named = Counter({name: count for name, count in (look.nodes or {}).items() if not is_tool(name)})
    if named and named.total() * 10 >= look.lines:
        (first, count), *rest = named.most_common(2)
        if not rest or count > 9 * rest[0][1]:
            return first
        if look.kind == "application":
            return None
    return look.layout.node or host_in(look.layout.rest, said)


def _source(look: _Look, node: str, manifest: Manifest, dating: Dating, job: str | None) -> SourcePlan:
    stated, layout = manifest.files.get(look.name, FileFacts()), look.layout
    attributes = {"kind": look.kind, "node": node, **attributes_of(dating)}
    if look.kind == "application":
        rank = stated.rank if stated.rank is not None else layout.rank
        said = {
            "rank": rank, "local_rank": layout.local_rank, "task": layout.task, "pid": layout.pid, "pod": layout.pod,
        }  # fmt: skip
        attributes |= {name: str(value) for name, value in said.items() if value is not None}
    if job is not None:
        attributes["job.id"] = job
        attributes["job.attempt"] = str(manifest.attempt if layout.attempt is None else layout.attempt)
    return SourcePlan(
        name=look.name, path=look.path, kind=look.kind, kmsg=look.kmsg, objects=look.objects, dump=look.dump,
        attributes=attributes,
    )  # fmt: skip


def _undated(source: SourcePlan) -> SourcePlan:
    return msgspec.structs.replace(source, attributes={**source.attributes, "job.undated": "true"})
