"""`rootrank release` refuses in words that say what to do; what it does is in tests/e2e/test_trust.py."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

from tests.trust.signed import TestKey, write_keys

ROOT = Path(__file__).parents[2]
OPERATOR = TestKey("ops", "")


def release(*words: str) -> "subprocess.CompletedProcess[str]":
    return subprocess.run(
        [sys.executable, "-m", "pipeline", "release", "--reporter", "n1", "--kafka", "127.0.0.1:1", *words],
        env={**os.environ, "PYTHONPATH": str(ROOT)}, capture_output=True, text=True, timeout=60, check=False,
    )  # fmt: skip


@pytest.mark.parametrize(
    ("words", "code", "says"),
    [
        (("--from", "2026-03-01",), 2, "give --key-file and --why, or --dry-run"),
        (("--from", "noon", "--dry-run"), 2, "'noon' is no time"),
        (("--from", "2026-03-01", "--key-file", "{folder}/keys.toml", "--why", "w"), 2, "is no private Ed25519 key"),
        (("--from", "2026-03-01", "--key-file", "{folder}/gone", "--why", "w"), 2, "gone cannot be read"),
        (("--from", "2026-03-01", "--dry-run"), 3, "Kafka at 127.0.0.1:1: nothing listens there"),
    ],
    ids=["no key", "no time", "no private key", "no file", "no Kafka"],
)  # fmt: skip
def test_what_cannot_be_done_is_said(tmp_path: Path, words: tuple[str, ...], code: int, says: str) -> None:
    keys = write_keys(tmp_path / "keys.toml", OPERATOR)
    done = release("--trust-keys", str(keys), *(word.format(folder=tmp_path) for word in words))
    assert done.returncode == code, done.stderr
    assert says in " ".join(done.stderr.replace("│", " ").split())


def test_keys_that_are_not_there_are_named(tmp_path: Path) -> None:
    done = release("--trust-keys", str(tmp_path / "gone.toml"), "--from", "2026-03-01", "--dry-run")
    assert done.returncode == 2
    assert "correct --trust-keys" in done.stderr
