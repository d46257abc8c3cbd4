"""Kernel logs that name no machine are of the one machine that can be meant, or of nobody."""

import pytest

from pipeline.core.episodes import of_events
from pipeline.core.nameless import machines_of
from pipeline.core.placement import Facts, PlacementMap
from schemas.records import Entity, Event
from tests.strategies import event

BUS, OTHER = "0000:5e:00.0", "0000:1b:00.0"


class Ranks(PlacementMap):
    """Ranks that run where the test says."""

    def __init__(self, *ranks: Entity, world_size: int | None = None) -> None:
        super().__init__(Facts())
        self.ranks = {entity.rank or 0: entity for entity in ranks}
        self.world_size = world_size


def _xid(*, source: str = "dmesg", bus: str | None = BUS, pid: int | None = None, node: str | None = None) -> Event:
    made = event("gpu.xid", source=source, attributes={} if pid is None else {"pid": str(pid)})
    fields = {name: getattr(made, name) for name in made.__struct_fields__}
    subject = Entity(node=node, pci_bus_id=bus)
    return Event(**{**fields, "node": node or "", "subject": subject, "source_kind": "kernel"})


def _killed(pid: int) -> Event:
    made = event("host.oom.kill", source="dmesg", attributes={"pid": str(pid)})
    fields = {name: getattr(made, name) for name in made.__struct_fields__}
    return Event(**{**fields, "node": "", "subject": Entity(pid=pid), "source_kind": "kernel"})


def _rank(rank: int, node: str | None, bus: str = BUS, pid: int | None = None) -> Entity:
    return Entity(rank=rank, node=node, pci_bus_id=bus, pid=pid)


def _found(placement: PlacementMap, *events: Event) -> dict[str, str]:
    return {source: node for (source, _), node in machines_of(of_events(events, {}), placement).items()}


TWO = Ranks(_rank(0, "beta", pid=70), _rank(1, "gamma", pid=80), world_size=2)


@pytest.mark.parametrize(
    ("placement", "line", "node"),
    [
        (Ranks(_rank(0, "beta"), _rank(1, "beta", OTHER), world_size=2), _xid(), "beta"),
        (Ranks(_rank(0, "beta"), _rank(1, "beta", OTHER)), _xid(), "beta"),
        (TWO, _xid(pid=80), "gamma"),
        (TWO, _xid(pid=81), None),
        (TWO, _xid(pid=80, bus=OTHER), None),
        (TWO, _xid(), None),
        (TWO, _killed(80), "gamma"),
        (Ranks(_rank(0, "beta"), world_size=1), _killed(81), None),
        (TWO, _killed(81), None),
        (Ranks(_rank(8, "beta"), _rank(9, "beta", OTHER)), _xid(), None),
        (Ranks(_rank(0, "beta"), world_size=2), _xid(), None),
        (Ranks(_rank(0, "beta"), _rank(1, None, OTHER), world_size=2), _xid(), None),
        (Ranks(_rank(0, "beta", pid=70), _rank(1, "gamma", pid=70), world_size=2), _xid(pid=70), None),
        (Ranks(_rank(0, "beta"), world_size=1), _xid(node="delta"), None),
        (Ranks(), _xid(), None),
    ],
)
def test_a_kernel_log_is_of_the_only_machine_that_it_can_be_of(
    placement: PlacementMap, line: Event, node: str | None
) -> None:
    assert _found(placement, line) == ({} if node is None else {"dmesg": node})


def test_of_two_kernel_logs_only_the_one_that_names_a_process_of_the_job_is_known() -> None:
    one = Ranks(_rank(0, "beta", pid=70), world_size=1)
    assert _found(one, _xid(source="a"), _xid(source="b", bus=OTHER)) == {}
    assert _found(one, _xid(source="a", pid=70), _xid(source="b", bus=OTHER)) == {"a": "beta"}
