"""Who ran where, from what lines say."""

from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from pipeline.core.facts import MAX_WORLD
from pipeline.core.placement import Facts, PlacementMap, is_whole
from schemas.records import Entity, Event, Printer
from tests.strategies import SECOND, T0, event, placed

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


@pytest.mark.parametrize(("size", "world"), [(MAX_WORLD, MAX_WORLD), (MAX_WORLD + 1, None)])
def test_no_job_has_more_ranks_than_any_job(size: int, world: int | None) -> None:
    said = event("placement.stated", node="alpha", rank=0, role="context", attributes={"world_size": str(size)})
    assert _map(said).world_size == world
    assert _map(placed(0, "alpha", world=size)).world_size == world


def test_ranks_are_whole_where_each_number_is_there() -> None:
    assert is_whole({2, 0, 1}, 3)
    assert not is_whole({0, 1, 3}, 3)
    assert not is_whole({0, 1}, 3)
    assert not is_whole({1, 2, 3}, 3)
    # Not compared number by number, which would never end.
    assert not is_whole({0, 1}, 10**15)


@pytest.mark.parametrize(
    ("ranks", "attributes", "node"),
    [
        (("alpha", "beta"), {"step": "0"}, None), (("alpha", None), {"step": "0"}, None),
        (("alpha", "alpha"), {"step": "0"}, "alpha"), (("alpha", "beta"), {"step": "batch"}, "alpha"),
        (("alpha", "beta"), {"host": "alpha"}, "alpha"),
    ],
)  # fmt: skip
def test_what_a_step_daemon_says_is_of_the_node_of_its_file_only_where_the_job_has_no_other(
    ranks: tuple[str | None, ...], attributes: dict[str, str], node: str | None
) -> None:
    """srun puts what the daemons of all nodes say into one file. The batch step is where that is."""
    said = event("slurm.oom", node="alpha", source="slurm.out", attributes=attributes)
    said = msgspec.structs.replace(
        said, printer=Printer(node="alpha", node_of_source=True), body="error: Detected 1 oom_kill event"
    )
    known = [placed(rank, on, world=2) for rank, on in enumerate(ranks) if on]
    through_srun = msgspec.structs.replace(said, prefix="slurmstepd: ")
    assert _map(*known).subject(through_srun).node == node
    # The daemon's own log is of its node.
    own = msgspec.structs.replace(said, prefix="[2026-03-04T05:06:07.100] [4711.0] ")
    assert _map(*known).subject(own).node == "alpha"


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


# --- a rank that moves --------------------------------------------------------------------------------------------

# Each is one place at which a process of the rank lived: no two of them share anything.
HOMES = [
    Entity(node=node, pci_bus_id=bus, pid=pid, gpu_uuid=uuid, local_rank=local)
    for node, bus, pid, uuid, local in (
        ("alpha", "0000:9a:00.0", 10_000, "GPU-a", 4),
        ("beta", "0000:1a:00.0", 9_999, "GPU-b", 0),
        ("gamma", "0000:5e:00.0", 20_000, "GPU-c", 2),
    )
]


def _init_at(home: Entity, at_s: int | None, *, hidden: tuple[str, ...] = ()) -> Event:
    """The INIT line of rank 5 of 8 at one of its places, without the identifiers that are `hidden`."""
    at_ns = None if at_s is None else T0 + at_s * SECOND
    said = event("nccl.init", at_ns=at_ns, rank=5, attributes={"nranks": "8", "rank": "5"})
    subject = msgspec.structs.replace(home, rank=5, **dict.fromkeys(hidden))
    return msgspec.structs.replace(said, subject=subject, node=home.node or "")


def _is_at(found: Entity, home: Entity) -> bool:
    names = ("node", "pci_bus_id", "pid", "gpu_uuid", "local_rank")
    return all(getattr(found, name) in (None, getattr(home, name)) for name in names)


@pytest.mark.parametrize("backwards", [False, True])
@pytest.mark.parametrize(
    ("at_s", "home"), [(-50, 0), (0, 0), (50, 0), (100, 1), (150, 1), (900, 2), (10_000, 2), (None, 2)]
)
def test_a_rank_is_where_it_last_began_before_the_line(at_s: int | None, home: int, backwards: bool) -> None:
    moves = [_init_at(one, start_s) for one, start_s in zip(HOMES, (0, 100, 200), strict=True)]
    placement = _map(*(reversed(moves) if backwards else moves))
    found = placement.resolve(Entity(rank=5), None if at_s is None else T0 + at_s * SECOND)
    assert found == msgspec.structs.replace(HOMES[home], rank=5)
    assert placement.ranks[5] == msgspec.structs.replace(HOMES[2], rank=5)


def test_a_line_of_the_old_place_gets_nothing_of_the_new_one() -> None:
    placement = _map(_init_at(HOMES[0], 0), _init_at(HOMES[1], 100))
    found = placement.resolve(Entity(node="alpha", rank=5), T0 + 150 * SECOND)
    assert found == msgspec.structs.replace(HOMES[0], rank=5)


@given(
    lives=st.lists(
        st.tuples(
            st.sampled_from(HOMES),
            st.one_of(st.none(), st.integers(0, 500)),
            st.lists(st.sampled_from(("pci_bus_id", "pid", "gpu_uuid", "local_rank")), unique=True),
        ),
        min_size=1, max_size=8,
    ),
    at_s=st.one_of(st.none(), st.integers(-10, 600)),
    known=st.sampled_from(("rank", "gpu_uuid", "pid")),
)  # fmt: skip
def test_no_rank_resolves_to_a_mixture_of_two_places(
    lives: list[tuple[Entity, int | None, list[str]]], at_s: int | None, known: str
) -> None:
    placement = _map(*(_init_at(home, start_s, hidden=tuple(hidden)) for home, start_s, hidden in lives))
    assert any(_is_at(placement.ranks[5], home) for home in HOMES)
    at_ns = None if at_s is None else T0 + at_s * SECOND
    asked = [Entity(rank=5)]
    if known != "rank":
        asked = [Entity(node=home.node, **{known: getattr(home, known)}) for home in HOMES]
    for entity in asked:
        assert any(_is_at(placement.resolve(entity, at_ns), home) for home in HOMES)


def test_two_processes_of_one_rank_on_one_node_are_not_mixed() -> None:
    again = msgspec.structs.replace(HOMES[0], pci_bus_id="0000:43:00.0", pid=10_001, gpu_uuid="GPU-d", local_rank=3)
    placement = _map(_init_at(HOMES[0], 0), _init_at(again, 100))
    assert placement.resolve(Entity(rank=5), T0 + 50 * SECOND).pid == 10_000
    assert placement.resolve(Entity(rank=5), T0 + 150 * SECOND) == msgspec.structs.replace(again, rank=5)


def test_a_late_line_of_an_old_process_gets_nothing_of_the_process_after_it() -> None:
    again = msgspec.structs.replace(HOMES[0], pci_bus_id="0000:43:00.0", pid=10_001, gpu_uuid="GPU-d", local_rank=3)
    placement = _map(_init_at(HOMES[0], 0), _init_at(again, 100))
    found = placement.resolve(Entity(node="alpha", pid=10_000), T0 + 150 * SECOND)
    assert found == msgspec.structs.replace(HOMES[0], rank=5)


@given(st.permutations([(2, 0), (0, 10), (0, 60), (1, 100)]))
def test_a_place_that_is_said_again_counts_from_the_first_time(said: list[tuple[int, int]]) -> None:
    placement = _map(*(_init_at(HOMES[home], at_s) for home, at_s in said))
    assert placement.resolve(Entity(rank=5), T0 + 5 * SECOND).node == "gamma"
    assert placement.resolve(Entity(rank=5), T0 + 30 * SECOND).node == "alpha"
    assert placement.resolve(Entity(rank=5), T0 + 130 * SECOND).node == "beta"
