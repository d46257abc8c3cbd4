"""Which job has which GPU, by the folder that dcgm-exporter reads (`--hpc-job-mapping-dir`).

A prolog writes it: one file per GPU, called by its index (`3`, of a MIG instance `3.1`), with one job id per line.
"""

import os
import re
import stat
from collections.abc import Sequence
from pathlib import Path
from typing import Final

import msgspec

from shippers.pieces import Moment
from shippers.probes.probe import Absent, said

NAME: Final = "job_map"
EVERY_S: Final = 5.0
MAX_FILES: Final = 256
MAX_JOBS: Final = 16
_MAX_BYTES: Final = 4096
_FILE: Final = re.compile(r"(\d{1,3})(?:\.(\d{1,3}))?")
_JOB: Final = re.compile(r"[A-Za-z0-9_][\w.:+\[\]-]{0,127}")

Jobs = dict[str, list[str]]  # by file name


class JobMap:
    """The folder, told on change."""

    name = NAME
    every_s = EVERY_S
    may_hang = True  # it may be on a network file system

    def __init__(self, folder: str) -> None:
        self._folder = Path(folder) if folder else None
        self._told: Jobs = {}

    def open(self, memo: str) -> None:
        """Take up what was told before. Raises Absent where no folder is set."""
        if self._folder is None:
            raise Absent("[nvml] job_map is not set; name the folder that dcgm-exporter has as --hpc-job-mapping-dir")
        try:
            self._told = msgspec.json.decode(memo, type=Jobs) if memo else {}
        except msgspec.DecodeError:
            self._told = {}

    def look(self, moment: Moment) -> Sequence[str]:
        """Jobs that came to a GPU, and that left it."""
        now = self._read()
        lines: list[str] = []
        for file in sorted({*now, *self._told}):
            before, here = self._told.get(file, []), now.get(file, [])
            lines.extend(_line("gpu.job_over", file, job) for job in before if job not in here)
            lines.extend(_line("gpu.job", file, job) for job in here if job not in before)
        self._told = now
        return lines

    def memo(self) -> str:
        """What was told."""
        return msgspec.json.encode(self._told).decode() if self._told else ""

    def close(self) -> None:
        """Nothing is open."""

    def _read(self) -> Jobs:
        assert self._folder is not None
        try:
            names = [name for name in os.listdir(self._folder) if _FILE.fullmatch(name)]  # noqa: PTH208 names alone
        except FileNotFoundError:
            raise Absent(f"no folder {self._folder}; a prolog makes it, and [nvml] job_map names it") from None
        found = ((name, _jobs_in(self._folder / name)) for name in sorted(names)[:MAX_FILES])
        return {name: jobs for name, jobs in found if jobs}


def _jobs_in(path: Path) -> list[str]:
    """The jobs that a file names; none where it is gone, is no file, or says something else."""
    try:
        descriptor = os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC)
    except OSError:
        return []
    try:
        if not stat.S_ISREG(os.fstat(descriptor).st_mode):
            return []
        text = os.read(descriptor, _MAX_BYTES).decode("ascii", "replace")
    except OSError:
        return []
    finally:
        os.close(descriptor)
    jobs = [line.strip() for line in text.splitlines()]
    return list(dict.fromkeys(job for job in jobs if _JOB.fullmatch(job)))[:MAX_JOBS]


def _line(thing: str, file: str, job: str) -> str:
    gpu, _, instance = file.partition(".")
    return said(thing, gpu=int(gpu), gi=int(instance) if instance else None, job=job)
