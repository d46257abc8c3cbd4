"""What the node agent tells of a GPU leads to the same conclusions as what tools print."""

import msgspec
import pytest

from pipeline.core.facts import Facts
from pipeline.core.placement import PlacementMap
from pipeline.engine import Engine
from schemas.records import ClockReading, Incident
from tests.lines.reading import events_of
from tests.strategies import SECOND, T0, event, raw_batch, raw_lines, raw_progress

NAMES = "gpu=3 uuid=GPU-0a1b2c3d-4e5f-6071-8293-a4b5c6d7e8f9 pci=0000:5e:00.0 serial=1650000000123"
CLOCK = ClockReading(raw_ns=1, mono_ns=1, boottime_ns=1, wall_ns=T0 + 7200 * SECOND)


def incidents(*told: tuple[int, str], kind: str = "telemetry") -> list[Incident]:
    """Of lines that were told at so many seconds."""
    engine = Engine()
    for seq, (at_s, text) in enumerate(told, 1):
        (line,) = raw_lines("nvml", [f"rootrank: {text}"], first=seq, time_ns=T0 + at_s * SECOND)
        line = msgspec.structs.replace(line, attributes={"time.width_ns": str(10 * SECOND)})
        engine.feed(b"test/beta", raw_batch("beta", seq, [line], attributes={"nvml": {"kind": kind}}, clock=CLOCK))
    engine.feed(b"test/beta", raw_progress("beta", through_ns=T0 + 7200 * SECOND, ended=True))
    return engine.incidents()


@pytest.mark.parametrize(
    ("text", "class_"),
    [
        (f"gpu.lost {NAMES} code=15 reason=gpu_is_lost", "hardware/gpu_xid_79"),
        (f"gpu.xid {NAMES} xid=79", "hardware/gpu_xid_79"),
        (f"gpu.row_remap_failure {NAMES} failure=1", "hardware/gpu_row_remap_failure"),
        (f"gpu.clocks_reduced {NAMES} clock_reasons=0x48 temperature_celsius=92", "hardware/thermal"),
        (f"gpu.clocks_reduced {NAMES} clock_reasons=0x80 temperature_celsius=60", "hardware/power"),
        ("gpu.driver_mismatch code=18 driver=570.86.15", "software/driver_mismatch"),
    ],
)
def test_a_fault_is_concluded_from_what_nvml_tells_alone(text: str, class_: str) -> None:
    assert [incident.class_ for incident in incidents((0, text))] == [class_]


def test_the_same_words_in_a_log_that_anybody_may_write_conclude_nothing() -> None:
    assert incidents((0, f"gpu.xid {NAMES} xid=79"), kind="service") == []


@pytest.mark.parametrize(("lasted_s", "count"), [(20, 0), (400, 1)])
def test_heat_that_the_agent_says_was_short_is_ordinary(lasted_s: int, count: int) -> None:
    hot = f"gpu.clocks_reduced {NAMES} clock_reasons=0x40 temperature_celsius=91"
    over = f"gpu.over {NAMES} what=gpu.clocks_reduced lasted_s={lasted_s}"
    assert len(incidents((0, hot), (lasted_s, over))) == count


@pytest.mark.parametrize(
    "text",
    [
        f"gpu.identity {NAMES} driver=570.86.15 library=12.570.86.15 model=NVIDIA_H100_80GB_HBM3",
        f"gpu.process {NAMES} pid=4711 memory_mib=70000",
        f"gpu.event {NAMES} kind=xid code=0",
        f"gpu.recovery_action {NAMES} action=none before=gpu_reset",
        f"gpu.fabric_state {NAMES} state=completed before=in_progress",
        f"gpu.power_limit {NAMES} below_default_watts=100 power_limit_watts=600",
    ],
)
def test_what_is_ordinary_concludes_nothing(text: str) -> None:
    assert incidents((0, text)) == []


def test_a_process_that_nvml_sees_on_a_gpu_gives_its_rank_the_gpu() -> None:
    (use,) = (one for one in events_of(f"rootrank: gpu.process {NAMES} pid=800 memory_mib=70000", "telemetry", "beta"))
    facts = Facts()
    facts.learn(use)
    facts.learn(event("placement.stated", node="beta", source="prolog", rank=5, pid=800, attributes={"rank": "5"}))
    rank = PlacementMap(facts).ranks[5]
    assert (rank.node, rank.pci_bus_id, rank.gpu_index) == ("beta", "0000:5e:00.0", 3)
    assert rank.gpu_uuid == "GPU-0a1b2c3d-4e5f-6071-8293-a4b5c6d7e8f9"
