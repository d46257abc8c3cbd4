"""`rootrank-shipper redact`: lines as they would leave this node, without secrets."""

import argparse
import sys
from collections.abc import Callable, Iterable
from pathlib import Path

import orjson

from shippers.capture.redacting import redacting
from shippers.config import Config, load
from shippers.redact_open import Memory
from shippers.saying import say

FINE, USAGE = 0, 2


def add(commands: "argparse._SubParsersAction[argparse.ArgumentParser]") -> None:
    """Add the parser."""
    text = "print standard input as it would leave this node: without secrets"
    command = commands.add_parser(
        "redact", help=text, description=text,
        epilog="example: rootrank-shipper redact < rank0.log | diff rank0.log -; exit codes: 0 fine, 2 usage",
    )  # fmt: skip
    command.add_argument("--config", type=Path, metavar="FILE", help="settings (TOML) with patterns of your own")
    command.add_argument("--json-lines", action="store_true", help="each line is a JSON text, and so is each answer")


def run(options: argparse.Namespace) -> int:
    """Redact line by line. Returns the exit code."""
    config = load(options.config) if options.config else Config(reporter="-")
    redact = redacting(config, None if options.json_lines else Memory())
    try:
        sys.stdout.buffer.writelines(_redacted(sys.stdin.buffer, redact, as_json=options.json_lines))
        sys.stdout.buffer.flush()
    except (ValueError, TypeError) as error:
        say(f"standard input is not one JSON text a line: {error}")
        return USAGE
    return FINE


def _redacted(lines: Iterable[bytes], redact: Callable[[str], str], *, as_json: bool) -> Iterable[bytes]:
    for line in lines:
        if as_json:
            yield orjson.dumps(redact(orjson.loads(line))) + b"\n"
        else:
            yield (redact(line.decode("utf-8", "backslashreplace").rstrip("\n")) + "\n").encode("utf-8", "replace")
