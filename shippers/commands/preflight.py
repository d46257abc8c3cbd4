"""`rootrank-shipper preflight`: would a run that starts with this environment leave evidence when it fails?

Looks at the environment and at limits, starts nothing, changes nothing, and exits 0 unless `--strict` is given.
"""

import argparse
import json
import os
import sys
import time

from shippers.preflight.checks import Finding, findings
from shippers.preflight.seen import look

_FINE, _PROBLEM = 0, 1


def add(commands: "argparse._SubParsersAction[argparse.ArgumentParser]") -> None:
    """The parser of the command."""
    text = "say whether a run that starts here would leave evidence when it fails, and what to export"
    command = commands.add_parser(
        "preflight", help=text, description=text,
        epilog='example: eval "$(rootrank-shipper preflight --env)"; exit codes: 0, with --strict 1 where one is bad',
    )  # fmt: skip
    command.add_argument("--env", action="store_true", help="print only the exports, as shell reads them")
    command.add_argument("--json", action="store_true", help="one JSON object on standard output")
    command.add_argument("--strict", action="store_true", help="exit with 1 where something is bad")
    command.add_argument(
        "--timeout-s", type=int, default=600, metavar="N",
        help="time-out of the process group, as init_process_group gets it (default: %(default)s, torch's own)",
    )  # fmt: skip
    command.add_argument("--torch", default="", metavar="VERSION", help="torch's version, where another Python has it")


def run(options: argparse.Namespace) -> int:
    """Look and print. Returns the exit code."""
    seen = look(os.environ, now_s=int(time.time()), torch=options.torch, timeout_s=options.timeout_s)
    found = findings(seen)
    if options.env:
        print(exports(found), end="")
        for folder, names in _folders(found).items():
            print(f"rootrank-shipper: {' and '.join(names)}: files into {_visible(folder)}", file=sys.stderr)
    elif options.json:
        print(json.dumps({"findings": [_as_json(each) for each in found]}, indent=2))
    else:
        print(_as_text(found))
    is_bad = any(each.state == "bad" for each in found)
    return _PROBLEM if options.strict and is_bad else _FINE


def exports(found: list[Finding]) -> str:
    """The lines to paste, in the order of the findings."""
    lines = {name: f"export {name}={_quoted(value)}\n" for each in found for name, value in each.exports}
    return "".join(lines.values())


def _folders(found: list[Finding]) -> dict[str, list[str]]:
    """Where files go by the exports, with the variables that say so."""
    folders: dict[str, list[str]] = {}
    for name, value in dict(pair for each in found for pair in each.exports if "/" in pair[1]).items():
        folders.setdefault(value.rpartition("/")[0], []).append(name)
    return folders


def _as_text(found: list[Finding]) -> str:
    lines = [f"{each.state:8}{each.name:20}{_visible(each.says)}" for each in found]
    lines += [f"fix     {each.name:20}{each.fix}" for each in found if each.fix]
    to_paste = exports(found)
    return "\n".join([*lines, *to_paste.splitlines()])


def _as_json(finding: Finding) -> dict[str, object]:
    return {
        "name": finding.name, "state": finding.state, "says": finding.says, "fix": finding.fix,
        "exports": dict(finding.exports), "source": finding.source,
    }  # fmt: skip


def _quoted(value: str) -> str:
    """A value as sh reads it back."""
    plain = value.replace("/", "").replace("_", "").replace("-", "").replace(".", "").replace("%", "")
    return value if plain.isascii() and plain.isalnum() else "'" + value.replace("'", "'\\''") + "'"


def _visible(text: str) -> str:
    return "".join(char if char.isprintable() else f"\\x{ord(char):02x}" for char in text)
