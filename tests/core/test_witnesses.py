"""One fault that the kernel and NVML tell is one episode, by bounds and never by arrival."""

import random
from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from pipeline.core.episodes import Episode, of_events
from pipeline.core.facts import Facts
from pipeline.core.placement import PlacementMap
from pipeline.core.witnesses import joined
from pipeline.engine import Engine
from pipeline.rules import load_rules
from schemas.records import ClockReading, Entity, Event, RawBatch
from tests.strategies import SECOND, T0, XID_79, event, kernel, raw_batch, raw_lines, raw_progress

BUS = "0000:5e:00.0"
UUID = "GPU-0a1b2c3d-4e5f-6071-8293-a4b5c6d7e8f9"
HOW = load_rules().coalescing


def by_kernel(at_s: float, *, xid: str = "119", bus: str = BUS, node: str = "alpha", bound_s: float = 0) -> Event:
    made = event(
        "gpu.xid", at_ns=T0 + int(at_s * SECOND), node=node, source="kmsg", offset=int(at_s * 1000), bus=bus,
        resolution_ns=1000, bound_ns=int(bound_s * SECOND), role="cause", attributes={"xid": xid},
    )  # fmt: skip
    return msgspec.structs.replace(made, source_kind="kernel")


def by_nvml(
    at_s: float, width_s: float = 1, *, xid: str = "119", bus: str | None = BUS, node: str = "alpha", bound_s: float = 0
) -> Event:
    made = event(
        "gpu.xid", at_ns=T0 + int(at_s * SECOND), node=node, source="nvml", offset=int(at_s * 1000), bus=bus,
        resolution_ns=int(width_s * SECOND), bound_ns=int(bound_s * SECOND), role="cause", attributes={"xid": xid},
    )  # fmt: skip
    subject = Entity(node=node, pci_bus_id=bus, gpu_uuid=UUID, gpu_index=3, serial="1650000000123")
    return msgspec.structs.replace(made, source_kind="telemetry", subject=subject)


def faults(*events: Event, facts: Facts | None = None) -> list[Episode]:
    known = facts or Facts()
    return joined(of_events(events, HOW), PlacementMap(known), HOW)


def test_an_xid_that_both_tell_is_one_episode_with_both_as_witnesses() -> None:
    (fault,) = faults(by_kernel(10.4), by_nvml(10))
    assert fault.first.source == "kmsg"
    assert fault.count == 1
    assert fault.event_ids == sorted((by_kernel(10.4).event_id, by_nvml(10).event_id))
    assert fault.start_ns == T0 + int(10.4 * SECOND)


@pytest.mark.parametrize("at_s", [9.5, 11.5, 400])
def test_the_same_code_at_clearly_another_time_is_another_fault(at_s: float) -> None:
    assert len(faults(by_kernel(at_s), by_nvml(10))) == 2


def test_another_code_another_gpu_and_another_node_are_other_faults() -> None:
    assert len(faults(by_kernel(10.4, xid="79"), by_nvml(10))) == 2
    assert len(faults(by_kernel(10.4, bus="0000:5f:00.0"), by_nvml(10))) == 2
    assert len(faults(by_kernel(10.4, node="beta"), by_nvml(10))) == 2


def test_where_no_clock_is_sharp_what_may_be_one_is_one() -> None:
    other_clock = msgspec.structs.replace(by_kernel(13, bound_s=5), clock_id="alpha/boot/kernel")
    assert len(faults(other_clock, by_nvml(10, bound_s=5))) == 1
    far = msgspec.structs.replace(by_kernel(30, bound_s=5), clock_id="alpha/boot/kernel")
    assert len(faults(far, by_nvml(10, bound_s=5))) == 2


def test_what_nvml_repeats_counts_once_and_what_it_saw_alone_counts_too() -> None:
    (fault,) = faults(by_kernel(10.4), by_kernel(40.4), by_nvml(10), by_nvml(40))
    assert fault.count == 2
    (more,) = faults(by_kernel(10.4), by_nvml(10), by_nvml(40), by_nvml(70))
    assert more.count == 3
    assert more.end_ns == T0 + 70 * SECOND


def test_nvml_in_the_middle_of_a_storm_of_the_kernel_is_of_it() -> None:
    storm = [msgspec.structs.replace(by_kernel(second, xid="45"), role="symptom") for second in range(30)]
    lines = [*storm, msgspec.structs.replace(by_nvml(12.2, 0.1, xid="45"), role="symptom")]
    (fault,) = faults(*lines)
    assert fault.count == 30


def test_a_gpu_that_one_names_by_uuid_alone_is_found_by_what_lines_say_of_both_names() -> None:
    identity = msgspec.structs.replace(
        event("gpu.uuid", at_ns=T0, node="alpha"), subject=Entity(node="alpha", pci_bus_id=BUS, gpu_uuid=UUID)
    )
    facts = Facts()
    facts.learn(identity)
    nameless = msgspec.structs.replace(by_nvml(10), subject=Entity(node="alpha", gpu_uuid=UUID))
    assert len(faults(by_kernel(10.4), nameless, facts=facts)) == 1
    assert len(faults(by_kernel(10.4), nameless)) == 2


def test_what_has_one_witness_stays_as_it_is() -> None:
    alone = of_events([by_kernel(10), by_kernel(20, xid="79")], HOW)
    assert joined(alone, PlacementMap(Facts()), HOW) is alone
    assert [fault.count for fault in faults(by_nvml(10))] == [1]


@st.composite
def tellings(draw: st.DrawFn) -> list[Event]:
    """Xids of two GPUs and codes, told by either."""
    number = draw(st.integers(1, 10))
    made = []
    for offset in range(number):
        at_s, xid = draw(st.integers(0, 3000)), draw(st.sampled_from(["119", "79"]))
        bus = draw(st.sampled_from([BUS, "0000:5f:00.0"]))
        if draw(st.booleans()):
            one = by_kernel(at_s, xid=xid, bus=bus, bound_s=draw(st.integers(0, 3)))
        else:
            one = by_nvml(at_s, draw(st.integers(0, 12)), xid=xid, bus=bus, bound_s=draw(st.integers(0, 3)))
        made.append(msgspec.structs.replace(one, offset=offset, event_id=str(offset)))
    return made


def _said(episodes: list[Episode]) -> str:
    return msgspec.json.encode(episodes).decode()


@given(tellings(), st.randoms(use_true_random=False))
def test_any_order_of_arrival_gives_the_same_faults(events: list[Event], dice: random.Random) -> None:
    mixed = list(events)
    dice.shuffle(mixed)
    assert _said(faults(*mixed)) == _said(faults(*events))


@given(tellings())
def test_no_witness_is_lost(events: list[Event]) -> None:
    named = {name for fault in faults(*events) for name in fault.event_ids}
    assert named == {one.event_id for one in events}


@given(st.integers(0, 60_000), st.integers(0, 60_000), st.integers(0, 12_000), st.booleans())
def test_two_are_one_exactly_where_their_bounds_overlap(
    kernel_ms: int, nvml_ms: int, width_ms: int, is_kernel_first: bool
) -> None:
    pair = [by_kernel(kernel_ms / 1000), by_nvml(nvml_ms / 1000, width_ms / 1000)]
    overlap = pair[0].raw_ns <= pair[1].raw_ns + pair[1].resolution_ns and (  # type: ignore[operator]
        pair[1].raw_ns <= pair[0].raw_ns + pair[0].resolution_ns  # type: ignore[operator]
    )
    assert len(faults(*(pair if is_kernel_first else reversed(pair)))) == (1 if overlap else 2)


def _batch(seq: int, source: str, attributes: dict[str, str], body: str, at_ns: int, width_ns: int = 0) -> RawBatch:
    (line,) = raw_lines(source, [body], first=seq, time_ns=at_ns)
    if width_ns:
        line = msgspec.structs.replace(line, attributes={"time.width_ns": str(width_ns)})
    clock = ClockReading(raw_ns=1, mono_ns=1, boottime_ns=1, wall_ns=T0 + 60 * SECOND)
    return raw_batch("beta", seq, [line], attributes={source: attributes}, clock=clock)


@pytest.mark.parametrize("order", [(0, 1), (1, 0)])
def test_from_lines_to_the_incident_it_is_one_fault_in_either_order(order: tuple[int, int]) -> None:
    told = f"rootrank: gpu.xid gpu=3 uuid={UUID} pci={BUS} serial=1650000000123 xid=79"
    both: list[Any] = [
        ("kmsg", kernel("beta"), XID_79, T0, 0), ("nvml", {"kind": "telemetry"}, told, T0 - SECOND // 2, SECOND),
    ]  # fmt: skip
    engine = Engine()
    for seq, number in enumerate(order, 1):
        engine.feed(b"test/beta", _batch(seq, *both[number]))
    engine.feed(b"test/beta", raw_progress("beta", through_ns=T0 + 3600 * SECOND, ended=True))
    (incident,) = engine.incidents()
    assert incident.class_ == "hardware/gpu_xid_79"
    (culprit,) = incident.culprits
    assert (culprit.pci_bus_id, culprit.gpu_uuid) == (BUS, UUID)
    assert [(step.event, step.count, step.evidence.source) for step in incident.chain] == [("gpu.xid", 1, "kmsg")]
