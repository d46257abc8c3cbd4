"""The optional `rootrank.toml` in a folder of logs: what the files do not say.

All of it may be left out:

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
    clock_record = "gpu01/clock.jsonl"   # readings and beacons of its agent (pipeline.clock_record)

    [files."gpu01/rank3.log"]
    node = "gpu01"
    rank = 3
    kind = "application"       # or kernel, service
"""

import calendar
import os
import tomllib
from datetime import UTC, datetime
from pathlib import Path
from typing import Final, Literal

import msgspec
from msgspec import Struct

from pipeline.core.hosts import may_be_one
from schemas.names import printable
from schemas.records import ClockClaim, ClockReading
from schemas.zones import zone_offset_s

MANIFEST: Final = "rootrank.toml"
SECOND_NS: Final = 1_000_000_000
# What fits the records' integers: a clock that starts at 1970 is off by half of this.
MAX_SECONDS: Final = 4e9
YEARS: Final = range(1970, 2262)
COUNTS: Final = range(2**31)

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
    clock_record: str = ""


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


def manifest_of(paths: list[Path]) -> tuple[Manifest, Path]:
    """What the folder or the folder of the files states, and that folder. Raises ManifestError."""
    for path in paths:
        file = path / MANIFEST if path.is_dir() else path.parent / MANIFEST
        if os.path.lexists(file):
            return _read_manifest(file), file.parent
    return Manifest(), Path()


def _read_manifest(file: Path) -> Manifest:
    name = printable(str(file))
    try:
        if not file.is_file():
            raise ManifestError(f"{name}: no regular file; move it away, or write the manifest there")
        manifest = msgspec.convert(tomllib.loads(file.read_text(encoding="utf-8")), Manifest)
    except (tomllib.TOMLDecodeError, msgspec.ValidationError, UnicodeDecodeError, OSError) as error:
        raise ManifestError(f"{name}: {error}") from None
    if wrong := _wrong_value(manifest):
        raise ManifestError(f"{name}: {wrong}")
    return manifest


def facts_of(manifest: Manifest, reporter: str) -> NodeFacts:
    """What is said of a machine, under this name or, where one of the two has no domain, the short one."""
    if reporter in manifest.nodes:
        return manifest.nodes[reporter]
    same = [name for name in manifest.nodes if may_be_one(name, reporter)]
    return manifest.nodes[same[0]] if len(same) == 1 else NodeFacts()


def clock_record_of(facts: NodeFacts, folder: Path) -> Path | None:
    """The file with what was recorded of the node's clocks."""
    return folder / facts.clock_record if facts.clock_record else None


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
    record = Path(facts.clock_record)
    if record.is_absolute() or ".." in record.parts:
        return f"nodes.{name}.clock_record {facts.clock_record!r}: write a path inside the folder"
    if facts.wall_time is not None and not _is_moment(facts.wall_time):
        return f"nodes.{name}.wall_time {facts.wall_time!r}: write an RFC 3339 time"
    return None


def _is_moment(text: str) -> bool:
    try:
        return datetime.fromisoformat(text).year in YEARS
    except ValueError:
        return False


def claim_of(facts: NodeFacts) -> ClockClaim | None:
    """The claim about the clock of a node."""
    if facts.clock_offset_s is None:
        return None
    return ClockClaim(
        offset_ns=round(facts.clock_offset_s * 1e9), bound_ns=round(facts.clock_bound_s * 1e9), by=MANIFEST
    )


def reading_of(facts: NodeFacts) -> ClockReading:
    """A reading that places the kernel's boot clock; all zero where nothing is known of it."""
    if facts.wall_time is None:
        return ClockReading(raw_ns=0, mono_ns=0, boottime_ns=0, wall_ns=0)
    wall = datetime.fromisoformat(facts.wall_time)
    wall = wall if wall.tzinfo else wall.replace(tzinfo=UTC)
    up_ns = round(facts.uptime_s * 1e9)
    wall_ns = calendar.timegm(wall.utctimetuple()) * SECOND_NS + wall.microsecond * 1000
    return ClockReading(raw_ns=up_ns, mono_ns=up_ns, boottime_ns=up_ns, wall_ns=wall_ns)
