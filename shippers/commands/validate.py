"""`rootrank-shipper validate`: whether the agent could start with these settings, asking nobody over the network."""

import argparse
import os
import time
from pathlib import Path

from schemas.small_file import read_small
from shippers.builtin import check_switches, switched_on
from shippers.config import Config, ConfigError, load
from shippers.redact import redactor_for
from shippers.saying import say
from shippers.signing import cannot_sign
from shippers.spool_format import later_format

FINE, PROBLEM = 0, 1
_SECRETS = ("ssl_cafile", "ssl_certfile", "ssl_keyfile", "ssl_password_file", "sasl_password_file")


def add(commands: "argparse._SubParsersAction[argparse.ArgumentParser]") -> None:
    """Add the parser."""
    text = "say whether the agent can start with these settings; asks nobody over the network"
    command = commands.add_parser(
        "validate", help=text, description=f"{text}. The systemd units run it before each start.",
        epilog="example: rootrank-shipper validate --config node.toml; exit codes: 0 it can start, 1 it cannot, 2 the "
        "settings are wrong",
    )  # fmt: skip
    command.add_argument("--config", type=Path, required=True, metavar="FILE", help="settings (TOML)")


def run(options: argparse.Namespace) -> int:
    """Look, and print. Returns the exit code."""
    config = load(options.config)
    check_switches(config)
    problems = [*_files(config), *cannot_sign(config.signing), *_unusable(config), *_spool(Path(config.spool.dir))]
    for problem in problems:
        say(f"{options.config}: {problem}")
    if not problems:
        print(f"{options.config}: the agent can start with these settings")
    return PROBLEM if problems else FINE


def _files(config: Config) -> list[str]:
    """Files that the login to Kafka needs and that are not there, empty or not to be read."""
    problems = []
    for key in _SECRETS:
        path = getattr(config.kafka, key)
        if not path:
            continue
        try:
            if not read_small(Path(path)).strip():
                problems.append(f"[kafka] {key}: {path} is empty")
        except OSError as error:
            problems.append(f"[kafka] {key}: {path} cannot be read: {error.strerror}")
    return problems


def _unusable(config: Config) -> list[str]:
    """Files of keys that the start refuses: those of fingerprints, and of who may ask for captures."""
    problems = []
    try:
        redactor_for(config.redact)
    except ConfigError as error:
        problems.append(str(error))
    if config.capture.request_keys and any(each.name == "capture" for each in switched_on(config)):
        from shippers.capture.requests import verifier

        try:
            verifier(config.capture.request_keys)
        except ConfigError as error:
            problems.append(str(error))
    return problems


def _spool(folder: Path) -> list[str]:
    """Whether batches can be written. Makes the folder, as the start would."""
    probe = folder / f".rootrank-validate-{os.getpid()}-{time.monotonic_ns()}"
    try:
        folder.mkdir(parents=True, exist_ok=True)
        probe.touch(exist_ok=False)
        probe.unlink()
    except OSError as error:
        return [
            f"[spool] dir {folder} cannot be written: {error.strerror}; give it to the agent's user or name another"
        ]
    later = later_format(folder)
    return [] if later is None else [later]
