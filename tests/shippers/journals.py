"""Journals for tests: written by systemd-journal-remote from the export format, read by the real journalctl."""

import shutil
import struct
import subprocess
import time
from pathlib import Path
from typing import Any

from shippers.config import Config, JournalSettings
from shippers.journal import JournalSource
from tests.shippers.fakes import Passes, Read, eventually

REMOTE = "/lib/systemd/systemd-journal-remote"
BOOT = "8f1c2d3e-4f50-6172-8394-a5b6c7d8e9f0"
BEGAN_US = 1_790_000_000_000_000


class Journal:
    """A folder with one journal file, to which entries are added."""

    def __init__(self, folder: Path, began_us: int = BEGAN_US) -> None:
        self.folder = folder
        self.file = folder / "system.journal"
        self.count = 0
        self.began_us = began_us
        folder.mkdir(parents=True, exist_ok=True)

    def write(self, *messages: str | bytes, **fields: str) -> None:
        """Add entries of a service, a millisecond apart."""
        said = {"_TRANSPORT": "syslog", "SYSLOG_IDENTIFIER": "slurmd", "_PID": "77", "_SYSTEMD_UNIT": "slurmd.service"}
        self.add([{**said, **fields, "MESSAGE": message} for message in messages])

    def add(self, entries: list[dict[str, Any]]) -> None:
        exported = b"".join(self._exported(entry) for entry in entries)
        subprocess.run(
            [REMOTE, f"--output={self.file}", "--split-mode=none", "-"], input=exported, check=True, capture_output=True
        )

    def vacuum(self) -> None:
        """The oldest files are deleted; what comes next is in another one, and its numbers go on."""
        self.file.unlink()

    def rotate(self) -> None:
        """The file gets the name of an archived one."""
        self.file.rename(self.folder / f"system@{self.count:032x}-{self.count:016x}-{self.count:016x}.journal")

    def _exported(self, entry: dict[str, Any]) -> bytes:
        self.count += 1
        realtime_us = self.began_us + self.count * 1000
        fields = {
            "__REALTIME_TIMESTAMP": str(realtime_us), "__MONOTONIC_TIMESTAMP": str(5_000_000 + self.count * 1000),
            "_BOOT_ID": BOOT.replace("-", ""), "_HOSTNAME": "gpu01", "PRIORITY": "6",
            "_SOURCE_REALTIME_TIMESTAMP": str(realtime_us - 100), **entry,
        }  # fmt: skip
        out = b""
        for key, value in fields.items():
            data = value if isinstance(value, bytes) else value.encode()
            if all(byte >= 0x20 for byte in data):
                out += key.encode() + b"=" + data + b"\n"
            else:
                out += key.encode() + b"\n" + struct.pack("<Q", len(data)) + data + b"\n"
        return out + b"\n"


def now_us() -> int:
    return time.time_ns() // 1000


def source_of(journal: Journal, saved: Any = None, of: Any = "services", **settings: Any) -> JournalSource:
    settings = {"start_at": "beginning", **settings}
    config = Config(source=(), journal=JournalSettings(directory=str(journal.folder), **settings))
    return JournalSource(config, saved, of, boot_id=BOOT)


def read_until(source: JournalSource, passes: Passes, count: int, what: str = "the entries") -> Read:
    """Passes until so many lines are there, and one more."""
    every = Read()

    def is_there() -> bool:
        _add(every, passes.read_now(source))
        return len(every.lines) >= count

    eventually(is_there, what)
    _add(every, passes.read(source))
    return every


def _add(every: Read, read: Read) -> None:
    every.lines += read.lines
    every.gaps += read.gaps
    every.position = read.position or every.position


def journalctl() -> str:
    found = shutil.which("journalctl")
    assert found, "journalctl is missing; `make need-test` says how to get it"
    return found
