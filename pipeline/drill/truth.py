"""What really happened, beside the folder: `truth.json`. The engine never reads it."""

from collections.abc import Collection

import msgspec
from msgspec import Struct

from schemas.vocabulary import CLASSES, QUIET_CLASSES


class Who(Struct, frozen=True, kw_only=True, omit_defaults=True):
    """A culprit by every identifier that it has. `aliases` are other names of its node (a pod, a full name)."""

    node: str | None = None
    aliases: list[str] = []
    rank: int | None = None
    local_rank: int | None = None
    pids: list[int] = []
    pci_bus_id: str | None = None
    gpu_uuid: str | None = None
    serial: str | None = None
    gpu_index: int | None = None
    # One NIC by all its names: device, interface, PCI address.
    nics: list[str] = []


class Claim(Struct, frozen=True, kw_only=True, omit_defaults=True):
    """What the logs prove while they hold lines of every tag in `needs`.

    `also` are classes that the catalogue itself leaves open. `quiet`: no incident is as right as one. `silent_ok`: no
    culprit need be named, though one named must be right. `shared`: what broke is no node (a file server, a fabric);
    `culprits` are then those who may be named as hit by it.
    """

    class_: str = msgspec.field(name="class")
    also: list[str] = []
    culprits: list[Who] = []
    needs: list[str] = []
    quiet: bool = False
    silent_ok: bool = False
    shared: bool = False


class Truth(Struct, frozen=True, kw_only=True):
    """The whole truth of one folder. `claims` run from the whole story to what little is left without its proofs."""

    chain: str
    variant: str
    seed: int
    ranks: int
    gpus_per_node: int
    claims: list[Claim]
    job_id: str
    started_at_ns: int
    clocks_claimed: bool
    removed: list[str] = []
    late: list[str] = []
    tags_left: list[str] = []

    @property
    def whole(self) -> Claim:
        """What happened, with all logs."""
        return self.claims[0]

    @property
    def knowable(self) -> Claim:
        """The strongest claim that the files that are left can prove."""
        left = set(self.tags_left)
        return next((claim for claim in self.claims if left.issuperset(claim.needs)), self.claims[-1])


def check(truth: Truth) -> None:
    """Raise ValueError for a truth that no diagnosis could meet."""
    for claim in truth.claims:
        unknown = [name for name in (claim.class_, *claim.also) if name not in CLASSES]
        if unknown:
            raise ValueError(f"{truth.chain}/{truth.variant}: no such class: {unknown}")
        if claim.class_ in QUIET_CLASSES and not claim.quiet:
            raise ValueError(f"{truth.chain}/{truth.variant}: {claim.class_} is quiet")
    if truth.claims[-1].needs:
        raise ValueError(f"{truth.chain}/{truth.variant}: the last claim must need nothing")


def with_left(truth: Truth, removed: Collection[str], tags_left: Collection[str], late: Collection[str]) -> Truth:
    """The truth of a folder of which some files are gone."""
    return msgspec.structs.replace(truth, removed=sorted(removed), tags_left=sorted(tags_left), late=sorted(late))
