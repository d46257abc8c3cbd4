"""Child processes that cannot outlive this one, not even when it is killed -9."""

import os
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path

from pipeline.embedded import tether

MAX_LOG_BYTES = 10_000_000
STOP_GRACE_S = 15.0


def start_child(command: list[str], log_file: Path, *, env: Mapping[str, str] | None = None) -> subprocess.Popen[bytes]:
    """Start a command with its output appended to a log file, tied to the calling thread: it dies when that ends.

    The process gets a session of its own, so that Ctrl-C reaches only us and we decide in which order children stop.
    """
    if log_file.exists() and log_file.stat().st_size > MAX_LOG_BYTES:
        log_file.replace(log_file.with_suffix(".log.1"))
    tethered = [sys.executable, "-I", "-S", tether.__file__, str(os.getpid()), *command]
    with log_file.open("ab") as log:
        return subprocess.Popen(
            tethered, stdin=subprocess.DEVNULL, stdout=log, stderr=log, env=env, start_new_session=True
        )


def stop_child(process: subprocess.Popen[bytes], *, grace_s: float = STOP_GRACE_S) -> None:
    """End a child: SIGTERM, then SIGKILL after the grace time. One that is gone is fine."""
    process.terminate()
    try:
        process.wait(timeout=grace_s)
    except subprocess.TimeoutExpired:
        process.kill()
        process.wait()
