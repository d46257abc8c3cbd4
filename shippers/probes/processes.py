"""The ranks that run on this node, by the environments of its processes: when one starts and when it has ended.

Of an environment only the names in `shippers.jobs.environment` are looked at. A process that may not be read (of
another user, where the agent is not root) is passed over and counted in the reason that `check` shows.
"""

import itertools
import os
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from datetime import UTC, datetime
from pathlib import Path
from typing import Final

import msgspec
from msgspec import Struct

from shippers.jobs.environment import NAMES, Seat, seat_of
from shippers.jobs.told import rank_line
from shippers.pieces import Moment
from shippers.probes.probe import Refused, said

NAME: Final = "processes"
_ENVIRONMENT_BYTES: Final = 256 * 1024
_MOST_TOLD: Final = 1_024
_AGAIN_EACH: Final = 30
_POD: Final = re.compile(r"pod([0-9a-f]{8}(?:[-_][0-9a-f]{4}){3}[-_][0-9a-f]{12})")
# As slurmstepd makes them (cgroup/v1: /slurm/uid_1000/job_7/..., cgroup/v2: .../slurmstepd.scope/job_7/...). In what
# systemd gives to users (user.slice) everybody makes groups called as they like.
_SLURM_JOB: Final = re.compile(
    r"^(?!.*user\.slice).*?(?:/slurm[^/\n]*/uid_\d+|slurmstepd\.scope)/job_(\d{1,10})(?:/|$)", re.MULTILINE
)
# Parts of a heterogeneous job have numbers of their own, which follow that of the first one.
_MOST_PARTS: Final = 128
_MOST_DIGITS: Final = 10
_RUN_IDS: Final = ("torchrun", "pmix")  # schedulers of seats whose job is only what a launcher calls its run
_Key = tuple[str, int, int | None]  # a seat: job, attempt, rank
# What only starts another program, which is the rank.
_STARTERS: Final = frozenset(
    (
        "sh", "bash", "dash", "zsh", "ksh", "env", "nice", "ionice", "numactl", "taskset", "time", "timeout", "stdbuf",
        "tini", "dumb-init", "catatonit", "apptainer", "singularity", "starter-suid", "enroot", "srun", "nsys",
        "strace", "sudo", "su", "setpriv", "unshare", "bwrap", "slurmstepd", "torchrun", "mpirun", "orterun", "prterun",
    )
)  # fmt: skip


class Told(Struct, frozen=True, array_like=True):
    """A rank that was told: by pid and start, what its line said of the job."""

    started_ticks: int
    job: str
    attempt: int
    rank: int
    is_proved: bool = True  # releases before did not note it; what they told stays


class Process(Struct, frozen=True, kw_only=True):
    """What is known of one process that names a job and a rank.

    An environment is what the user likes; the cgroup is the scheduler's: `is_proved` says that both name one job.
    """

    pid: int
    parent: int
    started_ticks: int
    command: str
    seat: Seat
    pod_uid: str = ""
    is_proved: bool = False


class Processes:
    """A probe of /proc."""

    name = NAME
    may_hang = True  # the environment of a process whose memory map is locked makes its reader wait

    def __init__(self, every_s: float = 10.0, proc: Path = Path("/proc")) -> None:
        self.every_s = every_s
        self._proc = proc
        self._told: dict[int, Told] = {}
        self._passed_over: dict[int, int] = {}  # pid: looks since it was first seen without a rank
        self._candidates: dict[int, Process] = {}
        self._looks = 0
        self._boot_wall_s = 0.0
        self._ticks = os.sysconf("SC_CLK_TCK")

    def open(self, memo: str) -> None:
        """Take up what was told before."""
        self._told = _told_of(memo)
        self._boot_wall_s = self._booted_at_s()

    def look(self, moment: Moment) -> Sequence[str]:
        """Ranks that are new, and ranks that are gone."""
        pids = {int(name) for name in os.listdir(self._proc) if name.isdecimal()}  # noqa: PTH208 (names, not paths)
        lines = [self._gone(pid) for pid in list(self._told) if not self._is_same(pid, pids)]
        self._looks += 1
        # One in thirty is looked at again: it may have become another program, or its number another process's.
        turn = self._looks % _AGAIN_EACH
        self._passed_over = {p: n for p, n in self._passed_over.items() if p in pids and p % _AGAIN_EACH != turn}
        self._candidates = {pid: each for pid, each in self._candidates.items() if pid in pids}
        taken = self._taken()
        for pid in sorted(pids - self._told.keys()):
            known = self._candidates.get(pid)
            if known is None or not _is_taken(known, taken):
                self._see(pid)
        room = max(0, _MOST_TOLD - len(self._told))
        for process in itertools.islice(list(self._ranks()), room):
            lines += [*self._unseated(process), self._new(process)]
        return lines

    def memo(self) -> str:
        """What was told."""
        return msgspec.json.encode(self._told).decode() if self._told else ""

    def close(self) -> None:
        """Nothing stays open."""

    # --- one process ----------------------------------------------------------------------------------------------

    def _see(self, pid: int) -> None:
        """Look at a process that is new, and once more: between fork and exec it shows its parent's environment."""
        looks = self._passed_over.get(pid, 0)
        if looks >= 2 and pid not in self._candidates:
            return
        self._passed_over[pid] = looks + 1
        found = read_process(self._proc, pid)
        if found is not None and found.seat.rank is not None:
            self._candidates[pid] = found
        else:
            self._candidates.pop(pid, None)

    def _ranks(self) -> Iterator[Process]:
        """Ranks that were not told, of what has settled."""
        settled = (each for each in self._candidates.values() if self._passed_over.get(each.pid, 0) >= 2)
        taken = self._taken()
        return (process for process in ranks_among(settled) if not _is_taken(process, taken))

    def _taken(self) -> dict[_Key, bool]:
        """The seats whose ranks were told and run, and whether the scheduler vouches for those."""
        return {(told.job, told.attempt, told.rank): told.is_proved for told in self._told.values()}

    def _unseated(self, process: Process) -> list[str]:
        """The end of whoever was told to have the seat, and only copied the names of a process that has come since."""
        key = _key(process)
        return [self._gone(pid) for pid, told in [*self._told.items()] if (told.job, told.attempt, told.rank) == key]

    def _new(self, process: Process) -> str:
        seat = process.seat
        self._told[process.pid] = Told(process.started_ticks, seat.job, seat.attempt, seat.rank or 0, process.is_proved)
        self._candidates.pop(process.pid, None)
        line = rank_line(
            {
                "job": seat.job, "attempt": seat.attempt, "rank": seat.rank, "local_rank": seat.local_rank,
                "world": seat.world, "pid": process.pid, "visible": seat.visible, "scheduler": seat.scheduler,
                "pod": seat.pod or process.pod_uid,
            }
        )  # fmt: skip
        return f"{self._started_at(process.started_ticks)} {line}"

    def _gone(self, pid: int) -> str:
        told = self._told.pop(pid)
        self._passed_over.pop(pid, None)
        return said("job.rank_end", job=told.job, attempt=told.attempt, rank=told.rank, pid=pid)

    def _is_same(self, pid: int, pids: set[int]) -> bool:
        """Whether a process that was told still runs: not another one under its number."""
        if pid not in pids:
            return False
        found = _stat(self._proc, pid)
        return found is not None and found[2] == self._told[pid].started_ticks and found[3] not in "ZX"

    def _booted_at_s(self) -> float:
        try:
            lines = (self._proc / "stat").read_text(encoding="ascii", errors="replace").splitlines()
        except OSError as error:
            raise Refused(f"{self._proc}: {error.strerror}") from None
        booted = next((line.split()[1] for line in lines if line.startswith("btime ")), "")
        if not booted.isdecimal():
            raise Refused(f"{self._proc}/stat does not say when the machine was started")
        return float(booted)

    def _started_at(self, ticks: int) -> str:
        at = datetime.fromtimestamp(self._boot_wall_s + ticks / self._ticks, UTC)
        # The kernel tells the start of the machine in whole seconds.
        return at.strftime("%Y-%m-%dT%H:%M:%SZ")


def _told_of(memo: str) -> dict[int, Told]:
    """What was told before; nothing where another release wrote it in another way: then it is told again."""
    try:
        return msgspec.json.decode(memo, type=dict[int, Told]) if memo else {}
    except msgspec.DecodeError:
        return {}


def ranks_among(processes: Iterable[Process]) -> Iterator[Process]:
    """Of the processes that share a seat the one that is the rank: the first below those that only start it.

    Where the scheduler vouches for some of them, the others only copied the names.
    """
    by_seat: dict[_Key, list[Process]] = {}
    for process in processes:
        by_seat.setdefault(_key(process), []).append(process)
    for _, seated in sorted(by_seat.items(), key=lambda item: (item[0][0], item[0][1], item[0][2] or 0)):
        programs = [each for each in seated if each.command not in _STARTERS]
        own = [each for each in programs if each.is_proved] or programs
        pids = {each.pid for each in own}
        top = [each for each in own if each.parent not in pids]
        if top:
            yield min(top, key=lambda each: (each.started_ticks, each.pid))


def read_process(proc: Path, pid: int) -> Process | None:
    """What a process says of its job; None where it says nothing, is gone, may not be read, or names another job than
    the one that Slurm put it in.
    """
    environment = environment_of(proc, pid)
    seat = seat_of(environment)
    return None if seat is None else process_in(proc, pid, seat, environment)


def process_in(proc: Path, pid: int, seat: Seat, environment: Mapping[str, str]) -> Process | None:
    """The process that has a seat; None where it is gone, or is not in the Slurm job that it names."""
    found = _stat(proc, pid)
    if found is None:
        return None
    command, parent, ticks, _ = found
    groups = _cgroup(proc, pid)
    found_job = _SLURM_JOB.search(groups)
    kept_in = found_job.group(1) if found_job else ""
    if kept_in and seat.scheduler in _RUN_IDS and seat.job.isdecimal():
        seat = seat._replace(job=kept_in, scheduler="slurm")  # a number that a launcher drew, and that reads as a job's
    if kept_in and not _may_be_of(seat.job, kept_in, environment):
        return None
    pod = _POD.search(groups)
    return Process(
        pid=pid, parent=parent, started_ticks=ticks, command=command, seat=seat,
        pod_uid=pod.group(1).replace("_", "-") if pod else "", is_proved=kept_in != "" and kept_in == seat.job,
    )  # fmt: skip


def _may_be_of(job: str, kept_in: str, environment: Mapping[str, str]) -> bool:
    """Whether what Slurm keeps in one job may belong to `job`: the same, a part of it, or none of Slurm's."""
    if not job.isdecimal() or len(job) > _MOST_DIGITS:
        return True
    is_in_parts = environment.get("SLURM_HET_JOB_ID") == job
    return 0 <= int(kept_in) - int(job) < (_MOST_PARTS if is_in_parts else 1)


def environment_of(proc: Path, pid: int) -> dict[str, str]:
    """The known names of a process's environment; nothing where it may not be read."""
    try:
        with (proc / str(pid) / "environ").open("rb", buffering=0) as file:
            data = file.read(_ENVIRONMENT_BYTES) or b""
    except OSError:
        return {}
    found: dict[str, str] = {}
    for entry in data.split(b"\0"):
        name, equals, value = entry.partition(b"=")
        if equals and len(name) < 40 and (text := name.decode("ascii", "replace")) in NAMES:
            found[text] = value.decode("utf-8", "replace")
    return found


def _cgroup(proc: Path, pid: int) -> str:
    """The paths of the cgroups that a process is in; empty where they may not be read."""
    try:
        return (proc / str(pid) / "cgroup").read_text(encoding="utf-8", errors="replace")
    except OSError:
        return ""


def _stat(proc: Path, pid: int) -> tuple[str, int, int, str] | None:
    """Command, parent, start in ticks after boot, and state."""
    try:
        text = (proc / str(pid) / "stat").read_text(encoding="utf-8", errors="replace")
    except OSError:
        return None
    head, _, rest = text.rpartition(")")
    fields = rest.split()
    if len(fields) < 20:
        return None
    return head.partition("(")[2], int(fields[1]), int(fields[19]), fields[0]


def _key(process: Process) -> _Key:
    return process.seat.job, process.seat.attempt, process.seat.rank


def _is_taken(process: Process, taken: Mapping[_Key, bool]) -> bool:
    """Whether somebody has the seat: by the scheduler's word, or where it vouches for this one neither."""
    key = _key(process)
    return key in taken and (taken[key] or not process.is_proved)
