"""`rootrank-shipper`: run the node agent, check what it would do, or print what it would send.

Exit codes: 0 fine, 1 `check` found a problem, 2 usage or settings, 3 something cannot be read or reached, 4 our fault.
"""

import argparse
import contextlib
import faulthandler
import logging
import os
import resource
import signal
import sys
import traceback
from collections.abc import Callable, Sequence
from pathlib import Path
from types import FrameType
from typing import Final, NoReturn, Protocol

import msgspec

from schemas.kafka_access import too_open
from shippers.builtin import check_switches, switched_on
from shippers.claim import SpoolRefusedError
from shippers.clock import make_clock
from shippers.commands import annotate, check, cost, keygen, preflight, redact, validate
from shippers.config import Config, ConfigError, access_of, load, parse_start_at
from shippers.reader import Reader
from shippers.saying import say
from shippers.signing import readable_by_all
from shippers.waiting import Pause

FINE, _, USAGE, UNREACHABLE, INTERNAL = range(5)


class Command(Protocol):
    """A file of `shippers.commands`."""

    def add(self, commands: "argparse._SubParsersAction[argparse.ArgumentParser]") -> None:
        """Add the parser of the command, with an example."""

    def run(self, options: argparse.Namespace) -> int:
        """Do it. Returns the exit code."""


# By name. What a command needs beyond the standard library it imports in `run`.
COMMANDS: Final[dict[str, Command]] = {
    "check": check, "validate": validate, "annotate": annotate, "preflight": preflight, "cost": cost, "redact": redact,
    "keygen": keygen,
}  # fmt: skip


def main(arguments: Sequence[str] | None = None) -> int:
    """The command. Returns the exit code."""
    options = _parser().parse_args(arguments)
    # The client library reports each retry; we say once that Kafka is away, and once that it is back.
    logging.basicConfig(stream=sys.stderr, format="%(name)s: %(message)s", level=logging.CRITICAL)
    try:
        if options.command in COMMANDS:
            return COMMANDS[options.command].run(options)
        config = load(options.config)
        check_switches(config)
        if options.command == "run":
            return _run(config)
        return _print(config, options)
    except ConfigError as error:
        say(str(error))
        return USAGE
    except SpoolRefusedError as error:
        say(str(error))
        return UNREACHABLE
    except ModuleNotFoundError as error:
        if (error.name or "").split(".")[0] in ("shippers", "schemas"):
            raise
        say(
            f"`{options.command}` needs the package {error.name}; install it with "
            f"`pip install 'rootrank[{_extra(error)}]'`, "
            f"in a checkout with `pip install '.[{_extra(error)}]'`"
        )
        return UNREACHABLE
    except BrokenPipeError:
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return FINE
    except OSError as error:
        say(f"{error.filename or 'input or output'}: {error.strerror}")
        return UNREACHABLE
    except Exception:
        traceback.print_exc()
        say("this is a fault of rootrank-shipper; please report it with the lines above")
        return INTERNAL


def _extra(error: ModuleNotFoundError) -> str:
    """The extra that brings what is missing."""
    return "signing" if (error.name or "").split(".")[0] == "cryptography" else "shipper"


class _Version(argparse.Action):
    """Looks the version up only when it is asked for: `annotate` must start fast."""

    def __call__(self, parser: argparse.ArgumentParser, *_: object) -> NoReturn:
        from importlib.metadata import version

        print(f"rootrank-shipper {version('rootrank')}")
        parser.exit(FINE)


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="rootrank-shipper",
        description="Ships log files and the kernel log of this node to rootrank.",
        epilog="example: rootrank-shipper check --config node.toml; exit codes: 0 fine, 1 check found a problem, "
        "2 usage or settings, 3 cannot be read or reached, 4 internal error",
    )
    parser.add_argument("--version", action=_Version, nargs=0, help="print the version and end")
    commands = parser.add_subparsers(dest="command", required=True)
    helps = {
        "run": "ship until SIGTERM, or until a recorded run has ended",
        "print": "print raw batches as JSON lines; touches neither the spool nor Kafka",
    }
    examples = {
        "run": "rootrank-shipper run --config node.toml",
        "print": "rootrank-shipper print --config node.toml --once --start-at beginning",
    }
    for name, text in helps.items():
        command = commands.add_parser(name, help=text, description=text, epilog=f"example: {examples[name]}")
        command.add_argument("--config", type=Path, required=True, metavar="FILE", help="settings (TOML)")
        if name == "print":
            command.add_argument("--once", action="store_true", help="stop at the end of all sources")
            command.add_argument("--start-at", metavar="WHERE", help='"end", "beginning" or an age such as "15m"')
    for each in COMMANDS.values():
        each.add(commands)
    return parser


# What imports the Kafka client is imported when it is used: a plain install lacks it, and help needs none.


def _run(config: Config) -> int:
    from shippers.agent import Agent, look_seldom_for_cycles
    from shippers.notify import notifier

    for warning in too_open(access_of(config.kafka)) + readable_by_all(config.signing):
        say(warning)
    _raise_file_limit()
    if sys.__stderr__ is not None:
        faulthandler.enable(sys.__stderr__)  # what every thread was at when the watchdog of systemd ends one that hangs
    agent = Agent(config, notifier=notifier())
    _on_signals(agent.request_stop)
    look_seldom_for_cycles()
    say(_begins(config))
    if agent.run():
        say("stopped; all was sent")  # the agent itself says what waits
    return FINE


def _begins(config: Config) -> str:
    """Who ships what to where, in a line."""
    many = len(config.source) + sum(1 for _ in switched_on(config))
    what = "the control plane" if config.control is not None else f"{many} source{'' if many == 1 else 's'}"
    who = f"{config.reporter} of cluster {config.cluster}"
    return f"ships as {who} to Kafka at {config.kafka.bootstrap}; spool {config.spool.dir}; {what}"


def _print(config: Config, options: argparse.Namespace) -> int:
    from shippers.sink import StdoutSink

    _raise_file_limit()
    if options.start_at:
        parse_start_at(options.start_at)
        sources = tuple(msgspec.structs.replace(each, start_at=options.start_at) for each in config.source)
        config = msgspec.structs.replace(config, source=sources, start_at=options.start_at)
    if config.control is not None:  # looks on, and takes the seat from nobody
        config = msgspec.structs.replace(config, control=msgspec.structs.replace(config.control, seat="none"))
    clock = make_clock(config)
    reader = Reader(config, clock, {})
    sink = StdoutSink()
    pause = Pause()
    _on_signals(pause.end)
    seq = 0
    while not pause.has_ended:
        moment = clock.moment(ending=options.once)
        is_idle = True
        for batch in reader.read_pass(moment):
            is_idle = False
            if batch.is_worth_sending():
                seq += 1
                sink.send(reader.encode(batch, "print", seq))
        if is_idle:
            if options.once:
                break
            pause.wait(config.batch.linger_ms / 1000)
    refused = [each for each in reader.source_progress() if each.state == "refused"]
    for each in refused:
        say(f"source {each.source} is refused: {each.reason}")
    reader.close()
    pause.close()
    return UNREACHABLE if refused else FINE


def _on_signals(stop: Callable[[], None]) -> None:
    def handle(number: int, frame: FrameType | None) -> None:
        stop()
        signal.signal(number, signal.SIG_DFL)  # the second one ends at once

    signal.signal(signal.SIGTERM, handle)
    signal.signal(signal.SIGINT, handle)


def _raise_file_limit() -> None:
    """Each file that is read stays open, so that a rotated or deleted one can be read to its end."""
    _, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    with contextlib.suppress(ValueError, OSError):
        resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))


if __name__ == "__main__":
    sys.exit(main())
