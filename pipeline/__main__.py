"""`rootrank`: one command line, each command imported only when it is called."""

import contextlib
import errno
import io
import os
import sys
import traceback
from collections.abc import Callable
from dataclasses import dataclass
from importlib import import_module
from pathlib import Path
from typing import Any, Final

import typer

from pipeline import VERSION
from schemas.kafka_access import AccessError

LOOK, OPERATE, DEVELOP = "Look", "Operate", "Develop"
USAGE: Final = 2
UNREACHABLE: Final = 3
INTERNAL_ERROR: Final = 4
# What the file that the output goes to may answer.
_FULL: Final = frozenset((errno.ENOSPC, errno.EDQUOT, errno.EFBIG, errno.EIO))


@dataclass(frozen=True, kw_only=True)
class Command:
    """Where a command lives, what its one line of help says, and the extra that brings what it imports. `prepare`: the
    function of its module that is given the arguments before they are parsed.
    """

    name: str
    module: str
    function: str
    panel: str
    help: str
    extra: str = ""
    prepare: str = ""


COMMANDS: Final[tuple[Command, ...]] = (
    Command(
        name="diagnose", module="pipeline.commands.diagnose", function="diagnose", panel=LOOK, prepare="with_page_name",
        help="Find the root cause in a folder of logs. Needs no Kafka and no ClickHouse.",
    ),
    Command(
        name="placement", module="pipeline.commands.placement", function="placement", panel=LOOK,
        help="Show which rank ran where in a folder of logs, with the line behind each entry.",
    ),
    Command(
        name="flight", module="pipeline.commands.flight", function="flight", panel=LOOK,
        help="Compare dumps of PyTorch's flight recorder: which ranks stopped, and at which collective.",
    ),
    Command(
        name="incidents", module="pipeline.incidents", function="incidents", panel=LOOK, extra="web",
        help="Show or follow the incidents of a running feed.",
    ),
    Command(
        name="verdict", module="pipeline.commands.verdict", function="verdict", panel=LOOK,
        help="Say what a launcher should do with a failed job: restart, without which nodes, or not.",
    ),
    Command(
        name="why", module="pipeline.commands.why", function="why", panel=LOOK,
        help="Say what is known of a job, also of one that ended without an incident.",
    ),
    Command(
        name="bundle", module="pipeline.commands.bundle", function="bundle", panel=LOOK,
        help="Write one redacted archive of an incident for the vendor.",
    ),
    Command(
        name="clocks", module="pipeline.commands.clocks", function="clocks", panel=LOOK,
        help="Show how far each node's clock is off, how sure that is, and which are unusable.",
    ),
    Command(
        name="mtbf", module="pipeline.fleet.mtbf_command", function="mtbf", panel=LOOK, extra="pipeline,analytics",
        help="Report how often the fleet fails: rates, MTBF, survival, repairs, jobs, lemons, costs.",
    ),
    Command(
        name="correct", module="pipeline.fleet.correct_command", function="correct", panel=OPERATE, extra="pipeline",
        help="Say what an incident was, where the engine is wrong; rates follow it.",
    ),
    Command(
        name="sql", module="pipeline.store.commands", function="sql", panel=LOOK, extra="pipeline",
        help="Ask ClickHouse, read only.",
    ),
    Command(
        name="query", module="pipeline.store.commands", function="query", panel=LOOK, extra="pipeline",
        help="Run a named query.",
    ),
    Command(
        name="tables", module="pipeline.store.described_command", function="tables", panel=LOOK,
        help="Say what the tables and their columns mean.",
    ),
    Command(
        name="rules", module="pipeline.commands.rules", function="app", panel=LOOK,
        help="Show, test and explain signals and cause rules; list lines that nobody reads.",
    ),
    Command(
        name="up", module="pipeline.commands.up", function="up", panel=OPERATE, extra="pipeline,web,embedded",
        help="Bring up everything on this machine: Kafka, ClickHouse, worker, store, feed.",
    ),
    Command(
        name="worker", module="pipeline.commands.services", function="worker", panel=OPERATE, extra="pipeline",
        help="Run the Faust stages align, detect and join.",
    ),
    Command(
        name="store", module="pipeline.commands.services", function="store", panel=OPERATE, extra="pipeline",
        help="Fill ClickHouse from Kafka.",
    ),
    Command(
        name="web", module="pipeline.commands.services", function="web", panel=OPERATE, extra="pipeline,web",
        help="Serve the incident feed.",
    ),
    Command(
        name="import", module="pipeline.fleet.import_command", function="import_file", panel=OPERATE, extra="pipeline",
        help="Import inventory, drains, repairs and jobs: from Slurm, Kubernetes or a CSV.",
    ),
    Command(
        name="migrate", module="pipeline.store.commands", function="migrate", panel=OPERATE, extra="pipeline",
        help="Bring the ClickHouse tables up to date.",
    ),
    Command(
        name="release", module="pipeline.commands.release", function="release", panel=OPERATE, extra="pipeline,signing",
        help="Let lines count that were left out because their signature failed its check.",
    ),
    Command(
        name="rollup", module="pipeline.fleet.rollup_command", function="rollup", panel=OPERATE, extra="pipeline",
        help="Build the days that fleet rates are made of.",
    ),
    Command(
        name="rebuild", module="pipeline.fleet.rebuild_command", function="rebuild", panel=OPERATE, extra="pipeline",
        help="Read stored raw lines again with today's signals and rules, compare, and put in place.",
    ),
    Command(
        name="replay", module="pipeline.commands.replay", function="replay", panel=DEVELOP, extra="pipeline,shipper",
        help="Play a folder of logs as a fleet, through real shippers and Kafka.",
    ),
    Command(
        name="drill", module="pipeline.commands.drill", function="drill", panel=DEVELOP,
        help="Make incidents of an invented fleet whose truth is known, and score the diagnosis.",
    ),
)  # fmt: skip


def build(called: str) -> typer.Typer:
    """The application, with the called command imported and the others as names with a line of help."""
    app = typer.Typer(
        name="rootrank", no_args_is_help=True, pretty_exceptions_enable=False, rich_markup_mode=None,
        help="Finds the rank, node or link that broke a distributed training run, and proves it.",
        epilog="Start with: rootrank diagnose FOLDER. Exit codes: 0 fine, 1 incident or problem found, 2 usage, "
        "3 something cannot be read or reached, 4 internal error.",
    )  # fmt: skip
    for command in COMMANDS:
        run = _load(command) if command.name == called else _stub(command)
        if isinstance(run, typer.Typer):
            app.add_typer(run, name=command.name, rich_help_panel=command.panel)
            continue
        text = None if command.name == called and run.__doc__ else command.help
        app.command(command.name, help=text, short_help=command.help, rich_help_panel=command.panel)(run)
    app.callback()(_top)
    return app


def _say_version(wanted: bool) -> None:
    if wanted:
        typer.echo(f"rootrank {VERSION}")
        raise typer.Exit


def _top(
    version: bool = typer.Option(
        False, "--version", is_eager=True, callback=_say_version, help="Print the version and exit."
    ),
) -> None:
    """Take the options that stand before a command."""


def _load(command: Command) -> Callable[..., Any] | typer.Typer:
    function: Callable[..., Any] | typer.Typer = getattr(import_module(command.module), command.function)
    return function


def _is_of_an_extra(error: Exception) -> bool:
    """Say what to install where the called command lacks a package that an extra brings."""
    command = _command(sys.argv[1:])
    if not isinstance(error, ModuleNotFoundError) or command is None or not command.extra:
        return False
    if (error.name or "").split(".")[0] in ("pipeline", "schemas", "shippers"):
        return False
    extra = "signing" if (error.name or "").split(".")[0] == "cryptography" else command.extra
    sys.stderr.write(
        f"rootrank: `{command.name}` needs the package {error.name}; install it with "
        f"`pip install 'rootrank[{extra}]'`, in a checkout with `pip install '.[{extra}]'`\n"
    )
    return True


def _stub(command: Command) -> Callable[[], None]:
    def run() -> None:
        raise AssertionError(f"{command.name} was not loaded")

    return run


def _called(arguments: list[str]) -> str:
    return next((a for a in arguments if not a.startswith("-")), "")


def _prepared(arguments: list[str]) -> list[str]:
    command = _command(arguments)
    if command is None or not command.prepare:
        return arguments
    prepared: list[str] = getattr(import_module(command.module), command.prepare)(arguments)
    return prepared


def _command(arguments: list[str]) -> Command | None:
    called = _called(arguments)
    return next((command for command in COMMANDS if command.name == called), None)


def _is_of_rules(error: Exception) -> bool:
    """Say so where a site's own signals or causes are wrong."""
    from pipeline.report.words import visible
    from pipeline.rules import RuleFileError
    from schemas.matching import SignalFileError

    if not isinstance(error, SignalFileError | RuleFileError):
        return False
    sys.stderr.write(f"rootrank: {visible(str(error))}; `rootrank rules test` checks your files\n")
    return True


def _open_streams() -> None:
    """What the caller closed is nothing to read and swallows what is written; no text is too rich for a stream."""
    for name, mode in (("stdin", "r"), ("stdout", "w"), ("stderr", "w")):
        if getattr(sys, name) is None:
            setattr(sys, name, Path(os.devnull).open(mode, encoding="utf-8"))  # noqa: SIM115 - open until the end
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, io.TextIOWrapper):
            stream.reconfigure(errors="backslashreplace")


def _drop_output() -> None:
    """Nobody takes what is left to write: without this the interpreter tries it again as it ends."""
    with contextlib.suppress(OSError, ValueError):
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())


def _run() -> None:
    try:
        build(_called(sys.argv[1:]))(_prepared(sys.argv[1:]))
    finally:
        try:
            sys.stdout.flush()
        except BrokenPipeError:
            _drop_output()


def main() -> None:
    """Entry point. A crash is exit code 4 with its traceback, never a finding."""
    _open_streams()
    try:
        _run()
    except SystemExit:
        raise
    except BrokenPipeError:
        _drop_output()
        raise SystemExit(0) from None
    except Exception as error:
        if _is_of_an_extra(error):
            raise SystemExit(UNREACHABLE) from None
        if _is_of_rules(error):
            raise SystemExit(USAGE) from None
        if isinstance(error, AccessError):
            sys.stderr.write(f"rootrank: {error}\n")
            raise SystemExit(USAGE) from None
        if isinstance(error, OSError) and error.errno in _FULL and error.filename is None:
            _drop_output()
            sys.stderr.write(f"rootrank: cannot write the output: {error.strerror}\n")
            raise SystemExit(UNREACHABLE) from None
        traceback.print_exc()
        sys.stderr.write("rootrank: internal error; please report the lines above\n")
        raise SystemExit(INTERNAL_ERROR) from None


if __name__ == "__main__":
    main()
