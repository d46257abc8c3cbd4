"""Slurm, asked now and then: how jobs ended, which nodes are down or drained and by whom, what is reserved.

`squeue` and `scontrol` print what is kept: a job that ended stays for MinJobAge (300 s), so a poll every few seconds
misses none. Times are asked for in UTC. Names of jobs, which users choose, are not asked for.
"""

import calendar
import os
import shutil
import subprocess
import time
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Final, Protocol

import msgspec
from msgspec import Struct

from schemas.vocabulary import SourceState
from shippers.control.settings import SlurmSettings
from shippers.control.told import Line, Outlet
from shippers.pieces import Told as Record

MAX_BYTES: Final = 64 * 1024 * 1024
_SHOWN: Final = 200
_RETRY_S: Final = 30.0


class SlurmError(Exception):
    """Slurm did not answer. The text says why."""


class SlurmAbsentError(SlurmError):
    """There is no Slurm on this host."""


Ask = Callable[[str, tuple[str, ...]], str]


class Commands:
    """Runs Slurm's programs with a deadline, without a shell."""

    def __init__(self, settings: SlurmSettings) -> None:
        self._folder = Path(settings.scontrol).parent if "/" in settings.scontrol else None
        self._timeout_s = settings.timeout_s
        # The rest of the environment stays away: Slurm reads dozens of variables that change what it prints.
        self._environment = {"TZ": "UTC", "LC_ALL": "C", "PATH": os.environ.get("PATH", "/usr/bin")}
        if settings.conf:
            self._environment["SLURM_CONF"] = settings.conf
        elif "SLURM_CONF" in os.environ:
            self._environment["SLURM_CONF"] = os.environ["SLURM_CONF"]

    def ask(self, program: str, arguments: tuple[str, ...]) -> str:
        """What a program prints. Raises SlurmError."""
        path = str(self._folder / program) if self._folder else shutil.which(program, path=self._environment["PATH"])
        if path is None:
            raise SlurmAbsentError(
                f"{program} is not on PATH; install Slurm's client programs or set [control.slurm] scontrol"
            )
        try:
            done = subprocess.run(
                [path, *arguments], env=self._environment, stdin=subprocess.DEVNULL, capture_output=True,
                timeout=self._timeout_s, check=False,
            )  # fmt: skip
        except subprocess.TimeoutExpired:
            raise SlurmError(f"{program} has not answered for {self._timeout_s:g} s") from None
        except OSError as error:
            raise SlurmError(f"{path}: {error.strerror}") from None
        if done.returncode != 0:
            said = " ".join(done.stderr.decode("utf-8", "replace").split())[-_SHOWN:]
            raise SlurmError(f"{program} {' '.join(arguments[:3])} failed ({done.returncode}): {said}")
        return done.stdout[:MAX_BYTES].decode("utf-8", "replace")


class Look(Protocol):
    """One kind of thing that is asked for, and what was told of it."""

    def look(self, ask: Ask, told: dict[str, str], since_ns: int, now_ns: int) -> Iterator[Line | Record]:
        """What has changed. `told` is what was told by name, and is brought up to date. `since_ns`: what is older is
        not told at first sight.
        """


class _Memory(Struct, omit_defaults=True):
    told: dict[str, str] = {}


class SlurmWatcher:
    """Polls one kind of thing."""

    def __init__(
        self, name: str, look: Look, ask: Ask, *, every_s: float, age_ns: int | None,
        now_ns: Callable[[], int] = time.time_ns,
    ) -> None:  # fmt: skip
        self.name = name
        self._look = look
        self._ask = ask
        self._every_s = every_s
        self._age_ns = age_ns
        self._now_ns = now_ns

    def probe(self) -> tuple[SourceState, str | None]:
        """Whether it answers."""
        try:
            list(self._look.look(self._ask, {}, 0, self._now_ns()))
        except SlurmAbsentError as error:
            return "off", str(error)
        except SlurmError as error:
            return "refused", str(error)
        return "on", None

    def run(self, position: str, outlet: Outlet) -> None:
        """Ask until told to stop."""
        told, since_ns = _decoded(position), 0
        if told is None:
            told, since_ns = {}, self._now_ns() - self._age_ns if self._age_ns is not None else 0
        before: dict[str, str] | None = None
        while not outlet.stopping.is_set():
            now_ns, pause_s = self._now_ns(), self._every_s
            now_told = dict(told)  # what is found before a look fails is not told, so it must be found again
            try:
                found = list(self._look.look(self._ask, now_told, since_ns, now_ns))
            except SlurmAbsentError as error:
                outlet.stand("off", str(error))
                pause_s = _RETRY_S
            except SlurmError as error:
                outlet.stand("refused", str(error))
            else:
                told = now_told
                outlet.stand("on", None, now_ns)
                if found or told != before:
                    lines = [each for each in found if isinstance(each, Line)]
                    records = [each for each in found if not isinstance(each, Line)]
                    outlet.put(lines, msgspec.json.encode(_Memory(told=told)).decode(), records=records)
                    before = told
            outlet.stopping.wait(pause_s)


def _decoded(position: str) -> dict[str, str] | None:
    try:
        return msgspec.json.decode(position, type=_Memory).told if position else None
    except msgspec.DecodeError:
        return None


def slurm_ns(text: str) -> int:
    """A time as Slurm prints it in UTC (`2026-03-04T05:06:07`), in ns; 0 for `Unknown`, `N/A`, `NONE`."""
    try:
        at = time.strptime(text, "%Y-%m-%dT%H:%M:%S")
    except ValueError:
        return 0
    return calendar.timegm(at) * 10**9


def fields_of(line: str, wanted: Mapping[str, str]) -> dict[str, str]:
    """Values of a line of `scontrol -o`: `wanted` names each key and what ends its value (empty: the line does)."""
    found = {}
    for key, following in wanted.items():
        _, mark, rest = f" {line}".partition(f" {key}=")
        if mark:
            found[key] = (rest.partition(following)[0] if following else rest).strip()
    return found
