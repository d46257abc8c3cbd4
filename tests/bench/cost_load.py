"""Lines of all kinds of sources at a steady rate, each with a number by which it is known where it arrives."""

import os
import re
import struct
import subprocess
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from schemas.records import RawLine
from tests.noise import lines
from tests.shippers.journals import BOOT, REMOTE

TICK_S: Final = 0.05
RANKS: Final = 4
_POOL: Final = 20_000
_NUMBER: Final = re.compile(r" n=([a-z]+[0-9]*):(\d+)$|^.* rank=(\d+) step=(\d+)")
# Of 100 lines so many; the rest is written by the ranks.
_MIX: Final = {"slurm": 6, "kernel": 6, "journal": 20, "marks": 1}


@dataclass(slots=True)
class Stream:
    """One place that lines are written to; all numbers below `count` were written."""

    name: str
    per_s: float
    shape: Callable[[int, str], bytes]
    fd: int
    count: int = 0


class Load:
    """Writes until it is stopped. `written` can be asked at any time."""

    def __init__(self, folder: Path, kind: str, per_s: float) -> None:
        """`kind`: idle, file (one file) or mix (all kinds of sources)."""
        self._pool = list(lines(_POOL))
        self._remote: subprocess.Popen[bytes] | None = None
        self._stopping = threading.Event()
        self._thread = threading.Thread(target=self._run, name="load", daemon=True)
        for name in ("logs", "journal", "told/jobs", "told/marks"):
            (folder / name).mkdir(parents=True)
        self.streams: list[Stream] = []
        if kind == "file":
            self._add("rank0", per_s, folder / "logs/rank0.log", self._plain)
        elif kind == "mix":
            self._add_mix(folder, per_s)

    def _add_mix(self, folder: Path, per_s: float) -> None:
        share = {name: per_s * part / 100 for name, part in _MIX.items()}
        each = (per_s - sum(share.values())) / RANKS
        for number in range(RANKS):
            self._add(f"rank{number}", each, folder / f"logs/rank{number}.log", self._plain)
        self._add("slurm", share["slurm"], folder / "slurmd.txt", self._plain)
        self._add("kernel", share["kernel"], folder / "kmsg.txt", self._kernel)
        self._add("marks", share["marks"], folder / "told/marks/rank3", _mark)
        self._remote = subprocess.Popen(
            [REMOTE, f"--output={folder / 'journal/system.journal'}", "--split-mode=none", "-"],
            stdin=subprocess.PIPE, stderr=subprocess.DEVNULL,
        )  # fmt: skip
        assert self._remote.stdin is not None
        fd = self._remote.stdin.fileno()
        self.streams.append(Stream("journal", share["journal"], self._entry, fd))

    def _add(self, name: str, per_s: float, path: Path, shape: Callable[[int, str], bytes]) -> None:
        fd = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_APPEND | os.O_CLOEXEC, 0o644)
        self.streams.append(Stream(name, per_s, shape, fd))

    def written(self) -> int:
        """How many lines of all streams."""
        return sum(stream.count for stream in self.streams)

    def start(self) -> None:
        """Begin to write."""
        self._thread.start()

    def stop(self) -> None:
        """Write no more."""
        self._stopping.set()
        self._thread.join(20)
        if self._remote is not None and self._remote.stdin is not None:
            self._remote.stdin.close()
            self._remote.wait(20)

    def _run(self) -> None:
        began_s = time.monotonic()
        while not self._stopping.wait(TICK_S):
            for stream in self.streams:
                due = int((time.monotonic() - began_s) * stream.per_s) - stream.count
                data = b"".join(stream.shape(stream.count + number, stream.name) for number in range(due))
                while data:
                    data = data[os.write(stream.fd, data) :]
                stream.count += due

    def _text(self, number: int, name: str) -> str:
        return f"{self._pool[(number * 7 + hash(name)) % _POOL]} n={name}:{number}"

    def _plain(self, number: int, name: str) -> bytes:
        return self._text(number, name).encode() + b"\n"

    def _kernel(self, number: int, name: str) -> bytes:
        return f"6,{number + 1},{time.monotonic_ns() // 1000},-;{self._text(number, name)}\n".encode()

    def _entry(self, number: int, name: str) -> bytes:
        now_us = time.time_ns() // 1000
        fields = {
            "__REALTIME_TIMESTAMP": now_us, "__MONOTONIC_TIMESTAMP": time.monotonic_ns() // 1000,
            "_BOOT_ID": BOOT.replace("-", ""), "_HOSTNAME": "gpu01", "PRIORITY": 6, "_TRANSPORT": "syslog",
            "SYSLOG_IDENTIFIER": "slurmd", "_PID": 77, "_COMM": "slurmd", "_SYSTEMD_UNIT": "slurmd.service",
            "_SOURCE_REALTIME_TIMESTAMP": now_us - 100,
        }  # fmt: skip
        text = self._text(number, name).encode()
        said = b"".join(f"{key}={value}\n".encode() for key, value in fields.items())
        return b"".join((said, b"MESSAGE\n", struct.pack("<Q", len(text)), text, b"\n\n"))


def _mark(number: int, name: str) -> bytes:
    return f"rootrank: job.mark job=7 attempt=0 rank=3 step={number} phase=train\n".encode()


def number_of(line: RawLine) -> tuple[str, int] | None:
    """By which stream a line was written, under which number; None of lines that the load did not write."""
    found = _NUMBER.search(line.body)
    if found is None:
        return None
    return (found[1], int(found[2])) if found[1] else ("marks", int(found[4]))
