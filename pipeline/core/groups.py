"""Communicators and process groups: who is in them, under which rank.

NCCL's `commId` is the same on all ranks of a communicator; its pointer and its parent's pointer are local to a process.
A split communicator has no id since NCCL 2.23: it is named by its parent's id and its color. A rank inside a group is
a rank of the job only where the group is the whole job.
"""

from collections.abc import Iterable

from msgspec import Struct

from pipeline.core.facts import Claim, Seat


class Member(Struct, frozen=True, kw_only=True):
    """One member of a group: its rank in the job, its process, and the line that says so."""

    rank: int | None
    host: str | None
    pid: int | None
    where: str


class Group(Struct, kw_only=True):
    """A communicator (`comm`, `split`) or a group of torch (`pg`), with its members by their rank inside."""

    kind: str
    name: str
    description: str = ""
    size: int = 0
    members: dict[int, Member]

    @property
    def ranks(self) -> list[int]:
        """The ranks of the job in it, as far as they are known."""
        return sorted({m.rank for m in self.members.values() if m.rank is not None})


class Sitting(Struct, frozen=True, kw_only=True):
    """A claim of a seat, with one name per host and the rank of the job where it is known."""

    seat: Seat
    host: str | None
    pid: int | None
    rank: int | None
    claim: Claim


def names_of(sittings: Iterable[Sitting]) -> dict[tuple[str | None, int | None, str], str]:
    """The id behind each pointer of each process."""
    ids: dict[tuple[str | None, int | None, str], set[str]] = {}
    for one in sittings:
        if one.seat.pointer and one.seat.id:
            ids.setdefault((one.host, one.pid, one.seat.pointer), set()).add(one.seat.id)
    return {pointer: next(iter(found)) for pointer, found in ids.items() if len(found) == 1}


def name_of(seat: Seat, host: str | None, pid: int | None, ids: dict[tuple[str | None, int | None, str], str]) -> str:
    """The name of a group that is the same for all its members; empty where the lines do not give one."""
    known = seat.id or ids.get((host, pid, seat.pointer), "")
    if known or seat.kind != "split":
        return known
    parent = ids.get((host, pid, seat.parent), "")
    return f"{parent}/{seat.color}/{seat.size}" if parent else ""


def groups_of(sittings: Iterable[Sitting]) -> list[Group]:
    """The groups with a name, in a fixed order. A group in which two processes have one rank is left out."""
    sittings = list(sittings)
    ids = names_of(sittings)
    groups: dict[tuple[str, str], Group] = {}
    torn: set[tuple[str, str]] = set()
    for one in sorted(sittings, key=lambda s: (s.claim.first, s.claim.where, s.seat.rank)):
        seat = one.seat
        name = name_of(seat, one.host, one.pid, ids)
        description = ""
        if seat.kind == "pg":
            name, _, description = seat.id.partition("\x1f")
        if not name:
            continue
        key = (seat.kind, name)
        group = groups.setdefault(
            key, Group(kind=seat.kind, name=name, description=description, size=seat.size, members={})
        )
        group.description = group.description or description
        member = Member(rank=one.rank, host=one.host, pid=one.pid, where=one.claim.where)
        known = group.members.get(seat.rank)
        if known is None:
            group.members[seat.rank] = member
        elif differ(known.rank, member.rank) or (seat.kind != "pg" and _two_processes(known, member)):
            torn.add(key)
        elif known.rank is None or known.host is None:
            group.members[seat.rank] = _merged(known, member)
    return [groups[key] for key in sorted(groups) if key not in torn]


def _merged(known: Member, other: Member) -> Member:
    return Member(
        rank=known.rank if known.rank is not None else other.rank,
        host=known.host or other.host, pid=known.pid if known.pid is not None else other.pid, where=known.where,
    )  # fmt: skip


def _two_processes(a: Member, b: Member) -> bool:
    return differ(a.host, b.host) or differ(a.pid, b.pid)


def differ(a: object, b: object) -> bool:
    """Whether both are known and not the same."""
    return a is not None and b is not None and a != b
