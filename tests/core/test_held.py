"""Memory that a process holds which is no longer there, and ports that nobody missed."""

import msgspec
import pytest

from pipeline.core.chains import Resolved
from pipeline.core.derived import derive
from pipeline.core.episodes import of_events
from pipeline.core.placement import Facts, PlacementMap
from pipeline.rules import load_rules
from schemas.records import Event
from tests.strategies import SECOND, T0, event, waited

COALESCING = load_rules().coalescing
BUS = "0000:5e:00.0"


def _derived(*events: Event) -> dict[str, Resolved]:
    items = [Resolved(episode=e, subject=e.subject) for e in of_events(events, COALESCING)]
    return {item.episode.name: item for item in derive(items, [], PlacementMap(Facts()), None)}


def _row(process: str, *, mib: str = "70100", bus: str = BUS, node: str = "beta") -> Event:
    return event("gpu.memory_process", node=node, source="smi", offset=3, bus=bus, role="context",
                 attributes={"pid": "655", "process": process, "memory_mib": mib})  # fmt: skip


def _oom(body: str = "", **said: str) -> Event:
    made = event("cuda.oom", node="beta", source="rank1", offset=9, rank=1, bus=BUS, role="cause",
                 attributes={"total_gib": "79.11", "free_mib": "4.00", **said})  # fmt: skip
    return msgspec.structs.replace(made, body=body)


OOM = _oom(allocated_gib="8.20", unallocated_mib="310.00")


@pytest.mark.parametrize(
    ("row", "held"),
    [
        (_row("[Not Found]"), True),
        (_row("python3"), False),
        (_row("[Not Found]", mib="600"), False),
        (_row("[Not Found]", bus="0000:1b:00.0"), False),
        (_row("[Not Found]", node="alpha"), False),
    ],
)
def test_much_memory_of_a_process_that_is_gone_on_the_gpu_that_ran_out_of_it(row: Event, held: bool) -> None:
    found = _derived(row, OOM).get("gpu.memory_held")
    assert (found is not None) == held
    assert found is None or (found.subject.rank, found.subject.pid) == (1, None)


@pytest.mark.parametrize(
    ("said", "held"),
    [
        # In a container the row is the rank itself: it allocated nearly all that is used.
        ({"allocated_gib": "77.10", "unallocated_mib": "6.10"}, False),
        ({"reserved_gib": "78.00"}, False),
        ({"process_gib": "30.50", "allocated_gib": "28.00"}, True),
        # Nobody says how much of it is its own.
        ({}, False),
    ],
)
def test_what_a_rank_accounts_for_itself_is_held_by_no_other(said: dict[str, str], held: bool) -> None:
    assert ("gpu.memory_held" in _derived(_row("[Not Found]"), _oom(**said))) == held


@pytest.mark.parametrize(
    ("node", "bus", "held"), [("beta", BUS, True), ("alpha", BUS, False), ("beta", "0000:1b:00.0", False)]
)
def test_a_number_of_a_process_names_it_on_one_machine_only(node: str, bus: str, held: bool) -> None:
    told = _oom("Process 655 has 68.46 GiB memory in use.", allocated_gib="8.20")
    assert ("gpu.memory_held" in _derived(_row("[Not Found]", node=node, bus=bus), told)) == held


def test_without_a_rank_that_missed_it_memory_is_nobodys_trouble() -> None:
    assert "gpu.memory_held" not in _derived(_row("[Not Found]"))


def _port(nic: str) -> Event:
    return event("nic.link.down", node="beta", source="kern", nic=nic, role="cause", at_ns=T0)


def test_a_port_that_nobody_missed_is_left_out() -> None:
    assert "nic.link.down" not in _derived(_port("ens6np0"))
    assert "nic.link.down" in _derived(_port("ens6np0"), waited(0, "alpha", at_ns=T0 + 600 * SECOND))


@pytest.mark.parametrize(
    ("down_s", "again_s", "broken", "kept"),
    [
        (4, None, False, False),
        (4, None, True, True),
        (9, None, False, True),
        (4, 40, False, True),
    ],
)
@pytest.mark.parametrize("kind", [("nic.link.down", "nic.link.up"), ("ib.port.down", "ib.port.up")])
def test_a_port_that_was_back_before_a_transport_gives_up_broke_nothing_by_itself(
    down_s: int, again_s: int | None, broken: bool, kept: bool, kind: tuple[str, str]
) -> None:
    down, up = kind
    lines = [(down, 0), (up, down_s), *([(down, again_s)] if again_s else [])]
    events = [
        event(name, node="beta", source="kern", offset=at_s, nic="mlx5_4", role="cause", at_ns=T0 + at_s * SECOND)
        for name, at_s in lines
    ]
    closed = event("nccl.ib.completion", node="alpha", source="rank0", rank=0, at_ns=T0 + 3 * SECOND)
    found = _derived(*events, waited(0, "alpha"), *([closed] if broken else []))
    assert (down in found) == kept


@pytest.mark.parametrize(
    ("nic", "layer"), [("ens6np0", "ethernet"), ("bond0", "ethernet"), ("ib3", None), ("mlx5_3", None)]
)
def test_an_ethernet_port_is_known_by_its_name(nic: str, layer: str | None) -> None:
    found = _derived(_port(nic), waited(0, "alpha"))["nic.link.down"]
    assert found.episode.attributes.get("layer") == layer


def _cpu(at_s: int, periods: int, throttled: int) -> Event:
    said = {"nr_periods": str(periods), "nr_throttled": str(throttled)}
    at_ns = T0 + at_s * SECOND
    return event("host.cpu_throttle", node="beta", source="cpu", offset=at_s, at_ns=at_ns, role="intermediate",
                 attributes=said)  # fmt: skip


@pytest.mark.parametrize(
    ("lines", "kept"),
    [
        ([(0, 1_000, 900)], True),
        ([(0, 1_000, 30)], False),
        ([(0, 100_000, 100), (30, 100_300, 300)], True),
        ([(0, 1_000, 900), (30, 9_000, 910)], False),
    ],
)
def test_a_quota_counts_by_what_was_added(lines: list[tuple[int, int, int]], kept: bool) -> None:
    assert ("host.cpu_throttle" in _derived(*(_cpu(*line) for line in lines))) == kept
