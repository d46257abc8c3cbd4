"""`rootrank drill`."""

import sys
import time
import uuid
from collections.abc import Callable
from pathlib import Path
from typing import Annotated, Final

import msgspec
import typer

from pipeline.commands.services import DEFAULT_BOOTSTRAP, Bootstrap
from pipeline.drill import scoring
from pipeline.drill.generate import MAX_RANKS, MIN_RANKS, Options, folder_name, incident, names, write
from pipeline.drill.registry import chains
from pipeline.drill.scoring import Score
from pipeline.incidents import DEFAULT_URL
from pipeline.near import near
from pipeline.replay import ReplayError, work_dir
from pipeline.report.words import counted, listed, visible
from pipeline.web.client import FeedClient, FeedRefusedError, FeedUnreachableError
from schemas.topics import RAW

FOUND: Final = 1
USAGE: Final = 2
UNREADABLE: Final = 3
LIVE_RANKS: Final = 16


def drill(
    *,
    out: Annotated[Path | None, typer.Option(help="Write incidents to FOLDER/0001-c10-…/{logs,truth.json}.")] = None,
    score: Annotated[Path | None, typer.Option(help="Diagnose the drills in a folder and compare.")] = None,
    chain: Annotated[str, typer.Option(help="Only this chain (see --list); default: all, by chance.")] = "",
    seed: Annotated[int, typer.Option(help="First seed; the same seed gives the same incident.", min=0)] = 1,
    count: Annotated[int, typer.Option(help="How many, each with the next seed.", min=1, max=100_000)] = 1,
    ranks: Annotated[int, typer.Option(help=f"{MIN_RANKS} to {MAX_RANKS}; default: by chance, mostly few.")] = 0,
    gpus_per_node: Annotated[int, typer.Option(help="8 or 4; default: by chance.")] = 0,
    live: Annotated[bool, typer.Option("--live", help="Play one through the running installation.")] = False,
    kafka: Bootstrap = DEFAULT_BOOTSTRAP,
    url: Annotated[str, typer.Option(envvar="ROOTRANK_URL", help="With --live: the feed.")] = DEFAULT_URL,
    wait_s: Annotated[float, typer.Option(help="With --live: how long to wait for the incident.", min=1)] = 60.0,
    beacons: Annotated[bool, typer.Option("--beacons", help="Record clock beacons; claim nothing of clocks.")] = False,
    skew_s: Annotated[
        float, typer.Option(help="With --beacons: how far wall clocks are off, and stepped.", min=0)
    ] = 0.0,
    remove_files: Annotated[float, typer.Option(help="Share of the log files to leave out.", min=0, max=0.95)] = 0.0,
    listed: Annotated[bool, typer.Option("--list", help="List the chains.")] = False,
    as_json: Annotated[bool, typer.Option("--json", help="With --score or --list: print JSON.")] = False,
) -> None:
    """Make incidents of an invented fleet whose truth is known, and score the diagnosis against it.

    Nodes are named drill-…; nothing in the logs is of a real machine. truth.json is not read by the diagnosis.

    --beacons records the clocks of every node beside the logs instead of claiming how far they are off; with --skew-s 5
    wall clocks are off by up to 5 s, and half of them are stepped by as much in the middle of the incident.

    --live plays one drill through real shippers and Kafka, marked run = drill, and says when it was in the feed or
    where it got lost.

    Exit code 0: done, and what was scored or played is right; 1: it is not; 2: usage; 3: something cannot be read,
    written or reached.

    \b
    Examples:
      rootrank drill --out d --chain C10
      rootrank drill --out d --count 100 --remove-files 0.3
      rootrank drill --out d --count 100 --beacons --skew-s 5
      rootrank drill --score d
      rootrank drill --live --chain C10
    """  # noqa: D301 - \b keeps the lines of an example apart
    _check(chain, ranks, gpus_per_node)
    if skew_s and not beacons:
        _fail("--skew-s needs --beacons: without them nobody could know how far clocks are off", USAGE)
    if listed:
        _list(as_json)
    elif score is not None:
        _score(score, as_json)
    elif live:
        _live(
            Options(seed=seed, chain=chain, ranks=ranks or LIVE_RANKS, gpus_per_node=gpus_per_node or 8),
            kafka,
            url,
            wait_s,
            as_json,
        )
    elif out is not None:
        options = Options(
            seed=seed, chain=chain, ranks=ranks, gpus_per_node=gpus_per_node, remove_share=remove_files,
            beacons=beacons, skew_s=skew_s,
        )  # fmt: skip
        _make(out, options, count)
    else:
        _fail("say what to do: --out FOLDER, --score FOLDER, --live or --list", USAGE)


def _fail(text: str, code: int) -> None:
    typer.echo(f"rootrank: {visible(text)}", err=True)
    raise typer.Exit(code)


def _check(chain: str, ranks: int, gpus_per_node: int) -> None:
    if chain and chain not in names():
        _fail(f"no chain {chain!r}: {_meant(chain)} `rootrank drill --list` tells what each is", USAGE)
    if gpus_per_node not in (0, 4, 8):
        _fail(f"--gpus-per-node {gpus_per_node}: use 8 or 4", USAGE)
    if ranks and (not MIN_RANKS <= ranks <= MAX_RANKS or ranks % 8):
        _fail(f"--ranks {ranks}: use a multiple of 8 from {MIN_RANKS} to {MAX_RANKS}", USAGE)


def _meant(chain: str) -> str:
    """A hint for who named a variant of a chain or misspelled one of them, else all chains."""
    of = {one.variant: name for name, told in chains().items() for one in told}
    if chain in of:
        return f"it is a variant of {of[chain]}, use --chain {of[chain]}; the seed chooses the variant."
    same = [name for name in names() if name.lower() == chain.lower()]
    # Of numbers every one is like every other.
    like = [*same, *near(chain, (name for name in names() if not name[1:].isdigit()))]
    like += [f"{of[variant]} (variant {variant})" for variant in near(chain, of)]
    return f"did you mean {listed(like)}?" if like else f"use one of {', '.join(names())}."


def _list(as_json: bool) -> None:
    known = {name: [(one.variant, (one.tell.__doc__ or "").strip()) for one in told] for name, told in chains().items()}
    if as_json:
        sys.stdout.write(msgspec.json.encode({name: dict(told) for name, told in known.items()}).decode() + "\n")
        return
    for name, told in known.items():
        for variant, text in told:
            typer.echo(f"{name:<7} {variant:<18} {text}")
    typer.echo(f"{'C33':<7} {'(any of these)':<18} Every clock is seconds off, and claimed to be: order must not flip.")


def _make(out: Path, options: Options, count: int) -> None:
    if out.is_dir() and any(out.iterdir()):
        _fail(f"{out} is not empty: name a new folder", USAGE)
    show = _progress("made", count)
    try:
        for number in range(1, count + 1):
            made = incident(msgspec.structs.replace(options, seed=options.seed + number - 1))
            write(made, out / folder_name(number, made.truth))
            show(number)
    except OSError as error:
        _fail(f"cannot write to {out}: {error.strerror}", UNREADABLE)
    typer.echo(
        f"made {counted(count, 'drill')} in {visible(str(out))}; "
        f"score them with `rootrank drill --score {visible(str(out))}`",
        err=True,
    )


def _live(options: Options, kafka: str, url: str, wait_s: float, as_json: bool) -> None:
    try:
        from pipeline.commands.kafka_watch import lasting_problem
        from pipeline.drill.live import LiveDrill, LiveError
    except ModuleNotFoundError as error:
        _fail(
            f"--live needs the package {error.name}; install it with `pip install 'rootrank[pipeline,shipper]'`",
            UNREADABLE,
        )
        return
    feed = FeedClient(url=url)
    try:
        feed.listing({"run": "drill", "limit": "1"})
    except (FeedUnreachableError, FeedRefusedError) as error:
        _fail(f"no feed answers at {url} ({error}). Start one with `rootrank up`, or give --url.", UNREADABLE)
    if problem := lasting_problem(kafka, RAW.name):
        _fail(problem, UNREADABLE)
    made = incident(msgspec.structs.replace(options, end_ns=time.time_ns()))
    run_id = f"drill-{uuid.uuid4().hex[:8]}"
    played = LiveDrill(made, bootstrap=kafka, feed=feed, work_dir=work_dir(), run_id=run_id)
    try:
        outcome = played.run(lambda text: typer.echo(text, err=True), wait_s=wait_s)
    except (LiveError, ReplayError) as error:
        _fail(str(error), UNREADABLE)
        return
    except KeyboardInterrupt:
        _fail("drill stopped", UNREADABLE)
        return
    if as_json:
        sys.stdout.write(
            msgspec.json.encode(
                {**msgspec.to_builtins(outcome), "right": outcome.right, "sentence": outcome.sentence}
            ).decode()
            + "\n"
        )
    else:
        typer.echo(visible(f"{outcome.chain} {outcome.variant}, seed {outcome.seed}: {outcome.sentence}"))
    raise typer.Exit(0 if outcome.right else FOUND)


def _score(root: Path, as_json: bool) -> None:
    try:
        found = scoring.folders(root)
    except scoring.FolderError as error:
        _fail(str(error), UNREADABLE)
        return
    scores = scoring.score_all(found, _progress("diagnosed", len(found)))
    if as_json:
        sys.stdout.write(msgspec.json.encode({"folders": scores, "table": scoring.summary(scores)}).decode() + "\n")
    else:
        _print(scores)
    raise typer.Exit(0 if all(one.right for one in scores) else FOUND)


def _print(scores: list[Score]) -> None:
    rows = [scoring.HEAD, *scoring.table(scores)]
    widths = [max(len(row[column]) for row in rows) for column in range(len(scoring.HEAD))]
    for row in rows:
        typer.echo(
            "  ".join(
                cell.ljust(width) if not i else cell.rjust(width)
                for i, (cell, width) in enumerate(zip(row, widths, strict=True))
            )
        )
    wrong = [one for one in scores if not one.right]
    if wrong:
        typer.echo("")
    for one in wrong:
        typer.echo(visible(f"{one.folder} (seed {one.seed}, {one.ranks} ranks): {one.problem}"))


def _progress(verb: str, count: int) -> Callable[[int], None]:
    """A line that is rewritten where somebody watches."""
    watched = sys.stderr.isatty()

    def show(number: int) -> None:
        if watched:
            sys.stderr.write(f"\r{verb} {number} of {count}" + ("\n" if number == count else ""))
            sys.stderr.flush()

    return show
