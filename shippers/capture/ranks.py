"""The ranks that run on this node, by the environment of processes. Only reads; nothing is attached to."""

from pathlib import Path
from typing import Final

from msgspec import Struct

from shippers.jobs.environment import Seat, place_of, seat_of
from shippers.probes.processes import Process, environment_of, process_in, ranks_among

_PEERS: Final = 3


class LocalRank(Struct, frozen=True, kw_only=True):
    """A process that is a rank."""

    pid: int
    rank: int
    job: str = ""


def ranks_here(proc: Path) -> list[LocalRank]:
    """All of them, by rank, as the source `processes` finds them. Who may not be read is passed over."""
    pids = sorted(int(each.name) for each in proc.iterdir() if each.name.isdecimal())
    found = ranks_among(filter(None, (_with_a_rank(proc, pid) for pid in pids)))
    ranks = [LocalRank(pid=each.pid, rank=each.seat.rank or 0, job=each.seat.job) for each in found]
    return sorted(ranks, key=lambda each: (each.rank, each.job))


def chosen(ranks: list[LocalRank], silent: int | None) -> list[LocalRank]:
    """The silent rank, if it is known, and three others beside it."""
    first = [each for each in ranks if each.rank == silent]
    others = [each for each in ranks if each.rank != silent]
    if silent is not None:
        others.sort(key=lambda each: abs(each.rank - silent))
    return [*first[:1], *others[:_PEERS]] if first else others[: _PEERS + 1]


def _with_a_rank(proc: Path, pid: int) -> Process | None:
    """A process that says its rank, also where it names no job."""
    environment = environment_of(proc, pid)
    rank, _, _ = place_of(environment)
    if rank is None:
        return None
    seat = seat_of(environment) or Seat(job="", rank=rank)
    return process_in(proc, pid, seat, environment)
