"""Who a process id belongs to, read from /proc so that a reused id is never mistaken for ours."""

import os
import signal
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import orjson

POLL_S = 0.02


@dataclass(frozen=True, kw_only=True)
class ProcessIdentity:
    """One process, exactly: its id and its start time in clock ticks since boot."""

    pid: int
    started_ticks: int


def identify(pid: int) -> ProcessIdentity | None:
    """Return the identity of a living process, or None when there is none.

    A zombie counts only while threads of it still run: until they end it holds its ports and locks.
    """
    try:
        stat = Path(f"/proc/{pid}/stat").read_text(encoding="utf-8", errors="replace")
    except OSError:
        return None
    fields = stat.rpartition(")")[2].split()  # the command name before it may hold spaces and parentheses
    state, threads, started_ticks = fields[0], int(fields[17]), int(fields[19])
    if state in {"Z", "X"} and threads <= 1:
        return None
    return ProcessIdentity(pid=pid, started_ticks=started_ticks)


def command_line(pid: int) -> str:
    """Return the command line of a process, or an empty text when it is gone or hidden."""
    try:
        raw = Path(f"/proc/{pid}/cmdline").read_bytes()
    except OSError:
        return ""
    return " ".join(raw.decode("utf-8", errors="replace").split("\0")).strip()


def is_running(identity: ProcessIdentity) -> bool:
    """Tell whether exactly this process (not a later one with its id) still runs."""
    return identify(identity.pid) == identity


def wait_until(condition: Callable[[], bool], *, timeout_s: float) -> bool:
    """Poll until the condition holds; False when the time ran out."""
    deadline = time.monotonic() + timeout_s
    while not condition():
        if time.monotonic() > deadline:
            return False
        time.sleep(POLL_S)
    return True


def end_process(identity: ProcessIdentity, *, grace_s: float) -> None:
    """Ask a process to end, and kill it after the grace time; a process that is gone is fine."""
    for signal_number, patience_s in ((signal.SIGTERM, grace_s), (signal.SIGKILL, 10.0)):
        if not is_running(identity):
            return
        try:
            os.kill(identity.pid, signal_number)
        except ProcessLookupError:
            return
        wait_until(lambda: not is_running(identity), timeout_s=patience_s)


@dataclass(frozen=True, kw_only=True)
class PidRecord:
    """What a pid file says: the part's process and the process that started it."""

    part: ProcessIdentity
    owner: ProcessIdentity


def write_pid_file(path: Path, record: PidRecord) -> None:
    """Write the record in one step, so that a kill in the middle leaves the old file or the new one."""
    temporary = path.with_suffix(".tmp")
    temporary.write_bytes(orjson.dumps(record))
    temporary.replace(path)


def read_pid_file(path: Path) -> PidRecord | None:
    """Return the record, or None when there is no file or it cannot be read as one."""
    try:
        content = orjson.loads(path.read_bytes())
        return PidRecord(part=ProcessIdentity(**content["part"]), owner=ProcessIdentity(**content["owner"]))
    except (OSError, ValueError, KeyError, TypeError):
        return None
