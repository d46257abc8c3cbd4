"""`rootrank-shipper`: run the node agent, check what it would do, or print what it would send.

Exit codes: 0 fine, 1 `check` found a problem, 2 usage or settings, 3 something cannot be read or reached, 4 our fault.
"""

import argparse
import contextlib
import logging
import os
import resource
import signal
import sys
import threading
import traceback
from collections.abc import Callable, Sequence
from pathlib import Path
from types import FrameType
from typing import TYPE_CHECKING, Final, Protocol

import msgspec
import orjson

from schemas.topics import CLOCK_BEACON
from shippers.builtin import check_switches
from shippers.claim import SpoolRefusedError
from shippers.clock import make_clock
from shippers.config import Config, ConfigError, load, parse_start_at
from shippers.reader import Reader
from shippers.saying import say

if TYPE_CHECKING:
    from shippers.check import ClockState, Report

FINE, PROBLEM, USAGE, UNREACHABLE, INTERNAL = range(5)


class Command(Protocol):
    """A file of `shippers.commands`."""

    def add(self, commands: "argparse._SubParsersAction[argparse.ArgumentParser]") -> None:
        """Add the parser of the command, with an example."""

    def run(self, options: argparse.Namespace) -> int:
        """Do it. Returns the exit code."""


# By name. What a command needs beyond the standard library it imports in `run`.
COMMANDS: Final[dict[str, Command]] = {}


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
        if options.command == "check":
            return _check(config, as_json=options.json)
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
            f"`{options.command}` needs the package {error.name}; install it with `pip install 'rootrank[shipper]'`, "
            "in a checkout with `pip install '.[shipper]'`"
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


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="rootrank-shipper",
        description="Ships log files and the kernel log of this node to rootrank.",
        epilog="example: rootrank-shipper check --config node.toml; exit codes: 0 fine, 1 check found a problem, "
        "2 usage or settings, 3 cannot be read or reached, 4 internal error",
    )
    commands = parser.add_subparsers(dest="command", required=True)
    helps = {
        "run": "ship until SIGTERM, or until a recorded run has ended",
        "check": "say what would be read, whether Kafka answers, and what is wrong",
        "print": "print raw batches as JSON lines; touches neither the spool nor Kafka",
    }
    examples = {
        "run": "rootrank-shipper run --config node.toml",
        "check": "rootrank-shipper check --config node.toml --json",
        "print": "rootrank-shipper print --config node.toml --once --start-at beginning",
    }
    for name, text in helps.items():
        command = commands.add_parser(name, help=text, description=text, epilog=f"example: {examples[name]}")
        command.add_argument("--config", type=Path, required=True, metavar="FILE", help="settings (TOML)")
        if name == "check":
            command.add_argument("--json", action="store_true", help="one JSON object on standard output")
        if name == "print":
            command.add_argument("--once", action="store_true", help="stop at the end of all sources")
            command.add_argument("--start-at", metavar="WHERE", help='"end", "beginning" or an age such as "15m"')
    for each in COMMANDS.values():
        each.add(commands)
    return parser


# What imports the Kafka client is imported when it is used: a plain install lacks it, and help needs none.


def _run(config: Config) -> int:
    from shippers.agent import Agent

    _raise_file_limit()
    agent = Agent(config)
    _on_signals(agent.request_stop)
    agent.run()
    return FINE


def _check(config: Config, *, as_json: bool) -> int:
    from shippers import check

    report = check.inspect(config)
    if as_json:
        sys.stdout.buffer.write(orjson.dumps(msgspec.to_builtins(report), option=orjson.OPT_INDENT_2) + b"\n")
    else:
        print(_as_text(report))
    if not report.kafka.answers:
        return UNREACHABLE
    return PROBLEM if report.problems else FINE


def _print(config: Config, options: argparse.Namespace) -> int:
    from shippers.sink import StdoutSink

    _raise_file_limit()
    if options.start_at:
        parse_start_at(options.start_at)
        sources = tuple(msgspec.structs.replace(each, start_at=options.start_at) for each in config.source)
        config = msgspec.structs.replace(config, source=sources)
    clock = make_clock(config)
    reader = Reader(config, clock, {})
    sink = StdoutSink()
    stopping = threading.Event()
    _on_signals(stopping.set)
    seq = 0
    while not stopping.is_set():
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
            stopping.wait(config.batch.linger_ms / 1000)
    refused = [each for each in reader.source_progress() if each.state == "refused"]
    for each in refused:
        say(f"source {each.source} is refused: {each.reason}")
    reader.close()
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


def _as_text(report: "Report") -> str:
    kafka = report.kafka
    lines = [
        f"node      {report.cluster}/{report.reporter}  machine {report.machine_id or 'unknown'}  run {report.run}",
        f"kafka     {kafka.bootstrap}  {'answers' if kafka.answers else 'does not answer'}",
        f"clock     {_clock_text(report)}",
        f"reading   {_reading_text(report.clock)}",
        f"beacons   {_beacon_text(report)}",
        f"spool     {report.spool_dir}",
    ]
    for each in report.sources:
        reason = f"  {each.reason}" if each.reason else f"  {each.backlog_bytes} bytes to read"
        lines.append(f"source    {each.state:8}{each.kind:12}{_visible(each.source)}{reason}")
    lines.extend(f"problem   {_visible(problem)}" for problem in report.problems)
    return "\n".join(lines)


def _clock_text(report: "Report") -> str:
    clock = report.clock
    if clock.is_static:
        return "recorded"
    synchronised = {True: "synchronised", False: "not synchronised", None: "state unknown"}[clock.is_synchronised]
    server = f" (stratum {clock.stratum}, {_visible(clock.server or '')})" if clock.stratum else ""
    bound = "no bound of its error is known"
    if clock.bound_ns is not None:
        bound = f"wrong by at most {clock.bound_ns / 1e6:.3f} ms, says {clock.source}{server}"
    measured = "; beacons measure it" if report.kafka.measures_clocks else ""
    return f"{synchronised}; {bound}{measured}"


def _reading_text(clock: "ClockState") -> str:
    """How long it takes to read the clocks, and how far a container's are from the host's."""
    offsets = ", ".join(f"{name} {offset / 1e9:+.3f} s" for name, offset in clock.namespace_offset_ns.items())
    moved = f"; offsets of this container's time namespace are taken off ({offsets})" if offsets else ""
    return f"all clocks within {clock.reading.width_ns / 1e3:.1f} us{moved}"


def _beacon_text(report: "Report") -> str:
    kafka = report.kafka
    if not report.sends_beacons:
        return "off"
    if kafka.beacon_brokers is None:
        return "NOT sent: no topic" if CLOCK_BEACON.name in kafka.missing_topics else "not known"
    brokers = f"{kafka.beacon_brokers} broker{'' if kafka.beacon_brokers == 1 else 's'}"
    if not kafka.measures_clocks:
        return f"NOT stamped by {brokers} ({kafka.beacon_timestamp_type})"
    return f"stamped by {brokers} ({kafka.beacon_timestamp_type or 'Kafka does not say by which clock'})"


def _visible(text: str) -> str:
    """Text without control characters: file names are made by others."""
    return "".join(char if char.isprintable() else f"\\x{ord(char):02x}" for char in text)


if __name__ == "__main__":
    sys.exit(main())
