"""`rootrank-shipper check`: what would be read, whether Kafka answers, and what is wrong; with a self-test if asked."""

import argparse
import os
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Final

import msgspec
import orjson

from shippers.builtin import check_switches
from shippers.config import ENV_PREFIX, Config, ConfigError, load

if TYPE_CHECKING:
    from shippers.self_test import SelfTest

FINE, PROBLEM, USAGE, UNREACHABLE = range(4)
_STORE_URL: Final = "http://127.0.0.1:8123/rootrank"


def add(commands: "argparse._SubParsersAction[argparse.ArgumentParser]") -> None:
    """Add the parser."""
    text = "say what would be read, whether Kafka answers, and what is wrong"
    command = commands.add_parser(
        "check", help=text, description=f"{text}. Changes nothing, but with --self-test sends one marked line.",
        epilog="example: rootrank-shipper check --config node.toml --self-test; exit codes: 0 fine, 1 a problem or the "
        "marked line did not arrive, 2 usage or settings, 3 Kafka is not reached",
    )  # fmt: skip
    command.add_argument("--config", type=Path, required=True, metavar="FILE", help="settings (TOML)")
    command.add_argument("--json", action="store_true", help="one JSON object on standard output, with every file")
    test = command.add_argument_group("self-test")
    test.add_argument(
        "--self-test", action="store_true",
        help="send one marked line through spool, Kafka and worker to ClickHouse, and wait for it",
    )  # fmt: skip
    test.add_argument("--wait-s", type=float, default=30.0, metavar="S", help="for at most so long (default 30)")
    test.add_argument(
        "--clickhouse-url", default=os.environ.get("CLICKHOUSE_URL", _STORE_URL), metavar="URL",
        help=f"default: CLICKHOUSE_URL, else {_STORE_URL}",
    )  # fmt: skip
    test.add_argument(
        "--clickhouse-user", default=os.environ.get("CLICKHOUSE_READER_USER", ""), metavar="USER",
        help="ask as this user; default: CLICKHOUSE_READER_USER, else the user in the URL",
    )  # fmt: skip
    test.add_argument(
        "--clickhouse-password-file", type=Path, metavar="FILE",
        default=os.environ.get("CLICKHOUSE_READER_PASSWORD_FILE") or os.environ.get("CLICKHOUSE_PASSWORD_FILE"),
        help="file with the password; default: CLICKHOUSE_READER_PASSWORD_FILE, else CLICKHOUSE_PASSWORD_FILE",
    )  # fmt: skip


def run(options: argparse.Namespace) -> int:
    """Look, test if asked, and print. Returns the exit code."""
    from shippers import check
    from shippers.check_text import check_lines

    config = load(options.config)
    check_switches(config)
    test = _self_test(config, options) if options.self_test else None
    report = check.inspect(config)
    if options.json:
        shape = {**msgspec.to_builtins(report), "self_test": msgspec.to_builtins(test)}
        sys.stdout.buffer.write(orjson.dumps(shape, option=orjson.OPT_INDENT_2) + b"\n")
    else:
        print("\n".join(check_lines(report, _settings_text(options.config, os.environ), test)))
    if not report.kafka.answers:
        return UNREACHABLE
    return PROBLEM if report.problems or (test is not None and not test.passed) else FINE


def _settings_text(path: Path, environment: Mapping[str, str]) -> str:
    """The file, and what of the environment overrides it."""
    return " ".join([str(path), *(f"+ {name}" for name in sorted(environment) if name.startswith(ENV_PREFIX))])


def _self_test(config: Config, options: argparse.Namespace) -> "SelfTest":
    """Raises ConfigError where no line can be marked or ClickHouse is not named."""
    from shippers.clickhouse import ClickHouseError, from_url
    from shippers.self_test import SelfTestRun

    if config.run != "live" or config.clock.static is not None:
        raise ConfigError("--self-test marks a line of a live node; these settings send recorded lines")
    try:
        password_file = Path(options.clickhouse_password_file) if options.clickhouse_password_file else None
        store = from_url(options.clickhouse_url, options.clickhouse_user, password_file)
    except ClickHouseError as error:
        raise ConfigError(str(error)) from None
    return SelfTestRun(config, store, options.wait_s).run()
