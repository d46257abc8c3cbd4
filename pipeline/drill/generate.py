"""From a seed to an incident: the same seed and options give the same folder, byte for byte."""

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from random import Random
from typing import Final

import msgspec

from pipeline.drill import output
from pipeline.drill.beacons import Skew, records
from pipeline.drill.fleet import new_fleet
from pipeline.drill.layout import new_layout
from pipeline.drill.opening import distract, noise
from pipeline.drill.output import Written
from pipeline.drill.registry import Chain, chains
from pipeline.drill.story import BIG, Story
from pipeline.drill.truth import Claim, Truth, check, with_left

TRUTH: Final = "truth.json"
LOGS: Final = "logs"
SKEWED: Final = "C33"
MIN_RANKS: Final = 8
_AROUND_NS: Final = 30_000_000_000
_COLLECTED_AFTER_NS: Final = 60_000_000_000
MAX_RANKS: Final = 16_384
_SIZES: Final = (
    (8, 4),
    (16, 6),
    (32, 6),
    (64, 5),
    (128, 3),
    (256, 2),
    (1024, 0.35),
    (2048, 0.12),
    (4096, 0.06),
    (16_384, 0.012),
)


class Options(msgspec.Struct, frozen=True, kw_only=True):
    """What to make. Zero ranks and an empty chain: the seed chooses. `end_ns`: when the story is over, for a live
    drill; else it is told of some day of the past. `brief_above`: of more ranks than these each says less. `beacons`:
    the clocks of nodes are recorded, nothing is claimed of them, and wall clocks are off by up to `skew_s` and stepped
    by as much in the middle.
    """

    seed: int
    chain: str = ""
    ranks: int = 0
    gpus_per_node: int = 0
    remove_share: float = 0.0
    end_ns: int | None = None
    brief_above: int = BIG
    beacons: bool = False
    skew_s: float = 0.0


@dataclass(frozen=True)
class Incident:
    """One made incident; `files` are those that are left, `clocks_s` the true spans of all stamps by file."""

    truth: Truth
    files: dict[str, list[Written]]
    manifest: str
    story: Story
    clocks: dict[str, list[str]]


def incident(options: Options) -> Incident:
    """Make one."""
    made = _tell(options, None)
    if options.end_ns is not None:
        # The dice fall alike whenever the story begins, so it lasts as long.
        made = _tell(options, options.end_ns - made.end_ns + made.story.fleet.begin_ns)
    if options.beacons:
        skew = Skew(options.seed, options.skew_s, _middle(made))
        made = _tell(options, made.story.fleet.begin_ns, skew)
    return _collect(options, made)


@dataclass(frozen=True)
class _Telling:
    """A story that was told. `begin_ns` and `end_ns` are the true times of its first line and of its collection."""

    r: Random
    chain: Chain
    skewed: bool
    story: Story
    claims: list[Claim]
    begin_ns: int
    end_ns: int


def _middle(told: _Telling) -> tuple[int, int]:
    """The true times between which the incident happens: of the lines that prove it, and half a minute around."""
    lines = [line for lines in told.story.lines.values() for line in lines]
    times = [line.true_ns for line in lines if line.tag is not None] or [line.true_ns for line in lines]
    return min(times) - _AROUND_NS, max(times) + _AROUND_NS


def _tell(options: Options, begin_ns: int | None, skew: Skew | None = None) -> _Telling:
    r = Random(f"drill/{options.seed}")
    chain, skewed = _choose(r, options.chain)
    per_node = options.gpus_per_node or r.choice((8, 8, 8, 4))
    ranks = options.ranks or r.choices([size for size, _ in _SIZES], [weight for _, weight in _SIZES])[0]
    fleet = new_fleet(
        r, chain.wants, ranks, per_node, skewed=skewed, begin_ns=begin_ns,
        falsified=None if skew is None else skew.falsified,
    )  # fmt: skip
    story = Story(r, fleet, brief_above=options.brief_above)
    told = chain.tell(story)
    distract(story, quiet=chain.quiet, spare=told.spare)
    noise(story)
    times = [line.true_ns for lines in story.lines.values() for line in lines]
    return _Telling(r, chain, skewed, story, told.claims, min(times), max(times) + _COLLECTED_AFTER_NS)


def _collect(options: Options, told: _Telling) -> Incident:
    """Lay the story out as files, and lose some of them where that is wanted."""
    r, story, chain = told.r, told.story, told.chain
    fleet = story.fleet
    layout = new_layout(r, fleet, told.end_ns, {name: story.ns(t) for name, t in story.reboots.items()})
    files = output.cut(r, output.files_of(story, layout))
    removed = output.left_out(r, files, options.remove_share)
    kept = {path: lines for path, lines in files.items() if path not in removed}
    truth = Truth(
        chain=SKEWED if told.skewed else chain.chain, variant=f"{chain.chain}/{chain.variant}" if told.skewed else
        chain.variant, seed=options.seed, ranks=len(fleet.ranks), gpus_per_node=len(fleet.nodes[0].gpus),
        claims=told.claims, job_id=fleet.job.job_id, started_at_ns=told.begin_ns,
        clocks_claimed=fleet.claimed and not options.beacons,
    )  # fmt: skip
    check(truth)
    late = sorted(r.sample(sorted(kept), len(kept) // 4)) if r.random() < 0.3 else []
    manifest = output.manifest(
        r, layout, files, told.begin_ns, told.end_ns, live=options.end_ns is not None, recorded=options.beacons
    )
    clocks = _clocks(options, told, layout.reboots) if options.beacons else {}
    return Incident(with_left(truth, removed, output.tags_of(kept), late), kept, manifest, story, clocks)


def _clocks(options: Options, told: _Telling, reboots: Mapping[str, int]) -> dict[str, list[str]]:
    story = told.story
    dead = {name: story.ns(t) for name, t in story.dead.items()}
    made = records(options.seed, story.fleet, told.begin_ns, told.end_ns, reboots, dead)
    return {output.record_path(name): lines for name, lines in made}


def _choose(r: Random, wanted: str) -> tuple[Chain, bool]:
    """A story of the chain, or of any; C33 lays skewed clocks over another one."""
    known = chains()
    name = wanted or r.choice([*known, SKEWED])
    if name == SKEWED:
        stories = [one for told in known.values() for one in told if not one.quiet]
        return r.choice(stories), True
    return r.choice(known[name]), False


def names() -> list[str]:
    """Every chain that can be asked for."""
    return [*(name for name in chains() if name[0] == "C"), SKEWED, *(name for name in chains() if name[0] != "C")]


def write(made: Incident, folder: Path) -> None:
    """Write FOLDER/logs and FOLDER/truth.json."""
    output.write(folder / LOGS, made.files, made.manifest, made.clocks)
    (folder / TRUTH).write_bytes(msgspec.json.format(msgspec.json.encode(made.truth), indent=1) + b"\n")


def folder_name(number: int, truth: Truth) -> str:
    """`0007-c10-port_error`."""
    variant = truth.variant.replace("/", "-")
    return f"{number:04d}-{truth.chain.lower()}-{variant}"
