"""Who ran where, from what lines say."""

from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from pipeline.core.placement import Facts, PlacementMap
from schemas.records import Entity, Event
from tests.strategies import event, placed

EVENTS = [
    placed(0, "alpha", bus="0000:1b:00.0"),
    placed(1, "beta", bus="0000:5e:00.0"),
    event("cuda.error", node="beta", source="rank1", rank=1, pid=801),
    event("elastic.rank_failed", node="beta", rank=1, pid=801),
]


def _map(*events: Event) -> PlacementMap:
    facts = Facts()
    for one in events:
        facts.learn(one)
    return PlacementMap(facts)


@given(st.permutations(EVENTS))
def test_the_order_of_lines_does_not_matter(events: list[Event]) -> None:
    assert _map(*events).ranks == _map(*EVENTS).ranks


def test_a_gpu_resolves_to_the_rank_that_runs_on_it() -> None:
    resolved = _map(*EVENTS).resolve(Entity(node="beta", pci_bus_id="0000:5e:00.0"))
    assert (resolved.rank, resolved.pid) == (1, 801)


def test_the_same_bus_id_on_another_node_is_another_gpu() -> None:
    assert _map(*EVENTS).resolve(Entity(node="alpha", pci_bus_id="0000:5e:00.0")).rank is None


def test_a_pid_resolves_on_its_own_node_only() -> None:
    assert _map(*EVENTS).resolve(Entity(node="beta", pid=801)).rank == 1
    assert _map(*EVENTS).resolve(Entity(node="alpha", pid=801)).rank is None


def test_what_a_line_says_itself_is_never_overwritten() -> None:
    resolved = _map(*EVENTS).resolve(Entity(node="beta", rank=1, pid=999))
    assert resolved.pid == 999
    assert resolved.pci_bus_id == "0000:5e:00.0"


def test_a_rank_that_contradicts_the_node_of_the_line_adds_nothing() -> None:
    resolved = _map(*EVENTS).resolve(Entity(node="alpha", rank=1))
    assert resolved == Entity(node="alpha", rank=1)


def test_the_world_is_the_largest_communicator_and_ranks_of_small_ones_are_not_global() -> None:
    tensor_parallel = [placed(0, "alpha", world=2), placed(1, "beta", world=2, bus="0000:5e:00.0")]
    world = [placed(r, "alpha" if r < 2 else "beta", world=4, bus=f"0000:{r:02x}:00.0") for r in range(4)]
    placement = _map(*tensor_parallel, *world)
    assert placement.world_size == 4
    assert sorted(placement.ranks) == [0, 1, 2, 3]
    assert placement.ranks[1].node == "alpha"


def test_two_ranks_on_one_gpu_resolve_to_neither() -> None:
    shared = [placed(0, "alpha", bus="0000:1b:00.0"), placed(1, "alpha", bus="0000:1b:00.0")]
    assert _map(*shared).resolve(Entity(node="alpha", pci_bus_id="0000:1b:00.0")).rank is None


def test_uuid_and_serial_are_joined_by_bus_id() -> None:
    said = event("gpu.uuid", node="beta", bus="0000:5e:00.0")
    uuid = Event(**{**_fields(said), "subject": Entity(node="beta", pci_bus_id="0000:5e:00.0", gpu_uuid="GPU-1")})
    resolved = _map(*EVENTS, uuid).resolve(Entity(node="beta", rank=1))
    assert resolved.gpu_uuid == "GPU-1"


def _fields(one: Event) -> dict[str, Any]:
    return {name: getattr(one, name) for name in one.__struct_fields__}
