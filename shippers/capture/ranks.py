"""The ranks that run on this node, by the environment of processes. Only reads; nothing is attached to."""

from pathlib import Path
from typing import Final

from msgspec import Struct

_JOBS: Final = ("SLURM_JOB_ID", "TORCHELASTIC_RUN_ID", "PBS_JOBID", "LSB_JOBID", "JOB_ID")
_ENVIRONMENT_BYTES: Final = 256 * 1024
_PEERS: Final = 3


class LocalRank(Struct, frozen=True, kw_only=True):
    """A process that is a rank."""

    pid: int
    rank: int
    job: str = ""


def ranks_here(proc: Path) -> list[LocalRank]:
    """All of them, by rank; of several processes of one rank the first. Who may not be read is passed over."""
    found: dict[tuple[str, int], LocalRank] = {}
    for folder in sorted((each for each in proc.iterdir() if each.name.isdecimal()), key=lambda each: int(each.name)):
        rank = _rank_of(folder)
        if rank is not None:
            found.setdefault((rank.job, rank.rank), rank)
    return sorted(found.values(), key=lambda each: (each.rank, each.job))


def chosen(ranks: list[LocalRank], silent: int | None) -> list[LocalRank]:
    """The silent rank, if it is known, and three others beside it."""
    first = [each for each in ranks if each.rank == silent]
    others = [each for each in ranks if each.rank != silent]
    if silent is not None:
        others.sort(key=lambda each: abs(each.rank - silent))
    return [*first[:1], *others[:_PEERS]] if first else others[: _PEERS + 1]


def _rank_of(folder: Path) -> LocalRank | None:
    try:
        with (folder / "environ").open("rb") as file:
            data = file.read(_ENVIRONMENT_BYTES)
    except OSError:
        return None
    if b"RANK=" not in data:
        return None
    pairs = (part.partition(b"=") for part in data.split(b"\0"))
    values = {name.decode("utf-8", "replace"): value.decode("utf-8", "replace") for name, _, value in pairs}
    number = values.get("RANK", "")
    if not number.isdecimal() or len(number) > 7 or "WORLD_SIZE" not in values:
        return None
    job = next((values[name] for name in _JOBS if values.get(name)), "")
    return LocalRank(pid=int(folder.name), rank=int(number), job=job)
