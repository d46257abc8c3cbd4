"""What environment dumps say: variables that one process printed, put together, as claims about it.

A dump of several processes through one pipe is used only where its variables come in one and the same order again and
again: lines of two processes that mix cannot look like that. `HOSTNAME` inside a Slurm job is of the host that
submitted it and is not used; a number of a node is a rank only where a line says how many ranks there are.
"""

from collections.abc import Iterable, Mapping
from typing import Final

import msgspec
from msgspec import Struct

from pipeline.core.facts import DERIVED, SOURCE, STATED, Claim, Place, Variable, number, world_number
from pipeline.core.hosts import expand_hosts

_NODE_NAMES: Final = ("SLURMD_NODENAME", "NODE_NAME", "K8S_NODE_NAME", "MY_NODE_NAME")
_NODE_LISTS: Final = ("SLURM_JOB_NODELIST", "SLURM_NODELIST", "SLURM_STEP_NODELIST")
_RANKS: Final = ("RANK", "GLOBAL_RANK", "OMPI_COMM_WORLD_RANK", "MV2_COMM_WORLD_RANK", "PMI_RANK", "PMIX_RANK")
MAX_DEVICES: Final = 64


class Dump(Struct, kw_only=True):
    """The variables of one process, with who printed them, when and where."""

    values: dict[str, str]
    claim: Claim
    at: dict[str, str]

    @property
    def of_a_worker(self) -> bool:
        """Whether a rank printed it, and not the launcher or the shell of a node."""
        names = ("LOCAL_RANK", "OMPI_COMM_WORLD_LOCAL_RANK", "MPI_LOCALRANKID")
        return self.claim.place.rank is not None or any(name in self.values for name in names)

    @property
    def world(self) -> int | None:
        """How many ranks it says there are."""
        names = ("WORLD_SIZE", "OMPI_COMM_WORLD_SIZE", "PMI_SIZE")
        return next((n for name in names if (n := world_number(self.values.get(name))) is not None), None)

    @property
    def devices(self) -> list[str]:
        """What CUDA_VISIBLE_DEVICES lists: GPU numbers or UUIDs; empty where it is not set or lists parts of GPUs."""
        listed = [part.strip() for part in self.values.get("CUDA_VISIBLE_DEVICES", "").split(",")[:MAX_DEVICES]]
        known = [part for part in listed if number(part) is not None or part.startswith("GPU-")]
        return known if len(known) == len(listed) else []

    @property
    def listed(self) -> list[str]:
        """All nodes of the job, where it says them."""
        return expand_hosts(next((self.values[name] for name in _NODE_LISTS if name in self.values), ""))

    def host(self) -> tuple[str | None, int]:
        """The node, and how far to trust it."""
        name = next((self.values[name] for name in _NODE_NAMES if name in self.values), None)
        if name is None and not any(variable.startswith("SLURM") for variable in self.values):
            name = self.values.get("HOSTNAME")
        if name is not None:
            return name, STATED
        hosts, at = self.listed, self._number("SLURM_NODEID")
        if at is not None and at < len(hosts):
            return hosts[at], DERIVED
        return self.claim.place.host, self.claim.trust

    def claims(self, world: int | None) -> Iterable[Claim]:
        """What it says of its process. `world`: the number of ranks, where it is known."""
        if self.world is not None and self.world != world:
            return
        host, trust = self.host()
        rank, how = self._rank(world)
        local = self._number("LOCAL_RANK", "OMPI_COMM_WORLD_LOCAL_RANK", "MPI_LOCALRANKID")
        if local is None and rank is not None and rank == self._number("SLURM_PROCID"):
            local = self._number("SLURM_LOCALID")
        printed = self.claim.place
        telling = (*_RANKS, "SLURM_PROCID", "LOCAL_RANK")
        where = next((self.at[name] for name in telling if name in self.at), self.claim.where)
        place = msgspec.structs.replace(
            printed, host=host, rank=printed.rank if rank is None else rank,
            local_rank=printed.local_rank if local is None else local,
        )  # fmt: skip
        said = msgspec.structs.replace(self.claim, place=place, trust=max(how, trust), where=where)
        yield said
        if place.rank is not None and place.local_rank is not None:
            yield msgspec.structs.replace(said, place=Place(rank=place.rank, local_rank=place.local_rank), trust=how)

    def _rank(self, world: int | None) -> tuple[int | None, int]:
        rank = self._number(*_RANKS)
        # Without its size in the same dump a number may be of the node.
        if rank is not None and (self.world is not None or self.of_a_worker):
            return rank, STATED
        task, tasks = self._number("SLURM_PROCID"), self._number("SLURM_NTASKS")
        if task is not None and tasks is not None and tasks == world:
            return task, STATED
        node, each = self._number("GROUP_RANK", "NODE_RANK", "PET_NODE_RANK"), self._number("LOCAL_WORLD_SIZE")
        local = self._number("LOCAL_RANK")
        if node is not None and each is not None and local is not None and local < each:
            return node * each + local, DERIVED
        return None, STATED

    def _number(self, *names: str) -> int | None:
        return next((n for name in names if (n := number(self.values.get(name))) is not None), None)


def dumps_of(variables: Mapping[str, Variable]) -> list[Dump]:
    """The dumps among the lines, in a fixed order."""
    by_writer: dict[str, list[Variable]] = {}
    for variable in variables.values():
        by_writer.setdefault(variable.writer, []).append(variable)
    dumps: list[Dump] = []
    for writer in sorted(by_writer):
        lines = sorted(by_writer[writer], key=lambda v: (v.offset, v.name))
        dumps.extend(_dump(part) for part in _parts(lines))
    return dumps


def _parts(lines: list[Variable]) -> list[list[Variable]]:
    """The lines of one writer, cut where a variable comes again; nothing where the parts do not look alike."""
    parts: list[list[Variable]] = []
    names: set[str] = set()
    for line in lines:
        if not parts or line.name in names:
            parts.append([])
            names = set()
        parts[-1].append(line)
        names.add(line.name)
    return _alike(parts) if len(parts) > 1 else parts


def _alike(parts: list[list[Variable]]) -> list[list[Variable]]:
    """The parts, where all have the same names in the same order; the last may be cut, the first have a head."""
    names = [[line.name for line in part] for part in parts]
    order = names[0] if len(parts) == 2 and names[0][: len(names[1])] == names[1] else names[1]
    head, first = parts[0][: -len(order)], parts[0][-len(order) :]
    whole = [names[0][-len(order) :], *names[1:-1]]
    if any(part != order for part in whole) or names[-1] != order[: len(names[-1])]:
        return []
    return [head, first, *parts[1:]] if head else parts


def _dump(lines: list[Variable]) -> Dump:
    first = lines[0].claim
    span = first.span.copy()
    for line in lines[1:]:
        span.take(line.claim.span)
    claim = Claim(place=first.place, trust=first.trust, span=span, first=first.first, where=first.where)
    values = {line.name: line.value for line in lines}
    return Dump(values=values, claim=claim, at={line.name: line.claim.where for line in lines})


def sizes_of(dumps: Iterable[Dump]) -> dict[int, Claim]:
    """The numbers of ranks that dumps state. What the shell of a node says may count nodes."""
    sizes: dict[int, Claim] = {}
    for dump in dumps:
        if dump.world is None:
            continue
        where = dump.at.get("WORLD_SIZE") or dump.at.get("OMPI_COMM_WORLD_SIZE") or dump.claim.where
        trust = STATED if dump.of_a_worker else SOURCE
        claim = Claim(place=Place(), trust=trust, span=dump.claim.span.copy(), first=dump.claim.first, where=where)
        known = sizes.get(dump.world)
        if known is None:
            sizes[dump.world] = claim
        else:
            known.take(claim)
    return sizes
