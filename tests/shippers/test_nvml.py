"""The real process with the real nvidia-ml-py over a stub library."""

import os
import signal
import subprocess
import sys
import threading
from collections.abc import Iterator
from functools import partial
from pathlib import Path

import pytest

from schemas import codec
from schemas.records import Gpu, NodeFacts, RawLine
from schemas.topics import RAW
from shippers.agent import Agent
from shippers.config import ClockSettings, Config, SpoolSettings
from shippers.nvml.inventory import node_facts
from shippers.nvml.machine import Machine
from shippers.outbox import WIDTH
from tests.shippers.fakes import FakeSink, eventually
from tests.shippers.nvml_machine import ASLEEP, Reader, StubMachine, build

XID, DOUBLE_BIT, UNAVAILABLE = 0x8, 0x2, 0x4000


@pytest.fixture(scope="session")
def driver_root(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return build(tmp_path_factory.mktemp("driver"))


@pytest.fixture
def machine(tmp_path: Path, driver_root: Path, monkeypatch: pytest.MonkeyPatch) -> StubMachine:
    made = StubMachine(tmp_path, driver_root)
    monkeypatch.setenv("NVML_STUB", str(made.scenario))
    return made


@pytest.fixture
def reader(machine: StubMachine) -> Iterator[Reader]:
    made = Reader(machine.settings())
    yield made
    made.source.close()


def child_of(reader: Reader) -> int:
    return int(reader.until(lambda: reader.source._child, "its process").pid)


def test_a_healthy_gpu_is_told_once_by_all_its_names_and_then_nothing(machine: StubMachine, reader: Reader) -> None:
    reader.wait_for_state("on")
    (body,) = reader.wait_for("gpu.identity")
    assert body == (
        "rootrank: gpu.identity gpu=0 uuid=GPU-0a1b2c3d-0000-4000-8000-000000000000 pci=0000:10:00.0 "
        "serial=1650123456700 driver=570.86.15 library=12.570.86.15 model=NVIDIA_Stub_80GB"
    )
    reader.wait_for_look()
    assert len(reader.lines) == 1
    assert machine.opened() == ["0000:10:00.0"]


def test_an_xid_event_has_its_number_its_gpu_and_a_moment_between_two_waits(
    machine: StubMachine, reader: Reader
) -> None:
    reader.wait_for_state("on")
    before_ns = reader._clock.observed_ns()
    machine.event(1, XID, 79)
    (body,) = reader.wait_for("gpu.xid")
    assert body.endswith("serial=1650123456700 xid=79")
    line = next(line for line in reader.lines if "gpu.xid" in line.body)
    assert line.time_unix_nano is not None
    end_ns = line.time_unix_nano + int(line.attributes[WIDTH])
    assert end_ns == line.observed_time_unix_nano
    assert before_ns < end_ns <= reader._clock.observed_ns() + 10**6
    assert line.time_unix_nano < end_ns - 10**6
    assert int(line.attributes[WIDTH]) < 10 * 10**9


def test_two_events_that_wait_are_two_lines(machine: StubMachine, reader: Reader) -> None:
    machine.put("event 1", f"0 {XID} 48")
    machine.event(2, XID, 94)
    assert [body[-6:] for body in reader.wait_for("gpu.xid", 2)] == ["xid=48", "xid=94"]


def test_what_the_library_prints_spoils_no_message(machine: StubMachine, reader: Reader) -> None:
    machine.put("prints", 1)
    machine.event(1, XID, 79)
    machine.event(2, XID, 94)
    assert [body[-6:] for body in reader.wait_for("gpu.xid", 2)] == ["xid=79", "xid=94"]


def test_events_without_a_number_and_of_other_types_are_told_as_what_they_are(
    machine: StubMachine, reader: Reader
) -> None:
    for seq, (kind, code) in enumerate(((XID, 0), (XID, 999), (DOUBLE_BIT, 3), (UNAVAILABLE, 0), (0x100000, 7)), 1):
        machine.event(seq, kind, code)
    said = [body.partition("kind=")[2] for body in reader.wait_for("gpu.event", 5)]
    assert said == [
        "xid code=0", "xid code=999", "ecc_double code=3", "gpu_unavailable code=0", "1048576 code=7",
    ]  # fmt: skip
    assert reader.bodies("gpu.xid") == []


def test_a_lost_gpu_is_said_once_and_the_others_are_still_read(
    tmp_path: Path, driver_root: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    machine = StubMachine(tmp_path / "two", driver_root, gpus=2)
    monkeypatch.setenv("NVML_STUB", str(machine.scenario))
    reader = Reader(machine.settings())
    reader.wait_for_state("on")
    machine.say(gpu1_code=15)
    (body,) = reader.wait_for("gpu.lost")
    assert "pci=0000:11:00.0" in body
    assert body.endswith("code=15 reason=gpu_is_lost")
    machine.event(1, XID, 31)
    assert "pci=0000:10:00.0" in reader.wait_for("gpu.xid")[0]
    machine.field(4, 0)
    reader.wait_for_look()
    assert len(reader.bodies("gpu.lost")) == 1
    assert reader.state()[0] == "on"
    reader.source.close()


def test_where_a_lost_gpu_spoils_the_wait_it_is_said_and_the_others_are_opened_anew(
    tmp_path: Path, driver_root: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    machine = StubMachine(tmp_path / "two", driver_root, gpus=2)
    monkeypatch.setenv("NVML_STUB", str(machine.scenario))
    reader = Reader(machine.settings())
    reader.wait_for_state("on")
    reader.wait_for_look()
    machine.say(gpu1_code=15, wait=15)
    assert "uuid=GPU-0a1b2c3d" in reader.wait_for("gpu.lost")[0]
    reader.wait_for_state("refused", "GPU is lost")
    machine.say(wait=None)
    reader.look(later_s=6)
    assert "1 GPUs; not asked: 0000:11:00.0" in reader.wait_for_state("on")
    machine.event(1, XID, 31)
    assert "pci=0000:10:00.0" in reader.wait_for("gpu.xid")[0]
    assert len(reader.bodies("gpu.lost")) == 1
    reader.source.close()


def test_a_gpu_that_wants_a_reset_is_let_go_so_that_it_can_be(machine: StubMachine, reader: Reader) -> None:
    reader.wait_for_state("on")
    machine.say(gpu0_code=16)
    assert reader.wait_for("gpu.unreadable")[0].endswith("code=16 reason=gpu_requires_restart")
    reader.wait_for_state("refused", "let go")
    reader.until(lambda: reader.source._child is None, "no process")
    machine.say(gpu0_code=None)
    reader.look(later_s=61)
    reader.wait_for_state("on")
    assert reader.wait_for("gpu.over")[0].endswith("what=gpu.unreadable")
    assert len(reader.bodies("gpu.identity")) == 1


def test_a_call_that_hangs_holds_nobody_up_is_named_and_ended(machine: StubMachine, reader: Reader) -> None:
    reader.wait_for_state("on")
    pid = child_of(reader)
    machine.say(gpu0_hang=1)
    reader.until(lambda: "asking" in reader.source._doing, "that it asks")
    reader.look(later_s=6)
    state, reason = reader.source.progress().state, reader.source.progress().reason or ""
    assert (state, reason) == ("refused", reason)
    assert "NVML has not answered for 6 s (asking GPU 0000:10:00.0)" in reason
    reader.wait_for_state("refused", "it was ended; next try in 5 s")
    with pytest.raises(ProcessLookupError):
        os.kill(pid, 0)
    machine.say(gpu0_hang=None)
    reader.look(later_s=12)
    reader.wait_for_state("on")


def test_pauses_grow_while_it_crashes_and_the_signal_is_named(machine: StubMachine, reader: Reader) -> None:
    machine.say(crash=1)
    reason = reader.wait_for_state("refused", "SIGSEGV")
    assert reason == "its process was ended by SIGSEGV (asking GPU 0000:10:00.0); next try in 5 s"
    reader.look(later_s=6)
    assert reader.wait_for_state("refused", "next try in 10 s")
    assert len(reader.bodies("gpu.identity")) == 2  # it died before it could say what it had told


def test_a_driver_that_was_loaded_again_is_opened_anew(machine: StubMachine, reader: Reader) -> None:
    reader.wait_for_state("on")
    first = child_of(reader)
    machine.say(closed=1)
    assert "opened anew" in reader.wait_for_state("refused", "next try")
    machine.say(closed=None, driver="575.51.03")
    reader.look(later_s=6)
    reader.wait_for_state("on")
    assert child_of(reader) != first
    assert "driver=575.51.03" in reader.wait_for("gpu.identity", 2)[1]


def test_a_library_of_another_version_is_told_once_with_the_version_of_the_driver(
    machine: StubMachine, reader: Reader
) -> None:
    machine.say(init=18)
    (body,) = reader.wait_for("gpu.driver_mismatch")
    assert body == "rootrank: gpu.driver_mismatch code=18 driver=570.86.15"
    reader.wait_for_state("refused", "next try in 5 s")
    reader.look(later_s=6)
    reader.wait_for_state("refused", "next try in 10 s")
    assert len(reader.bodies("gpu.driver_mismatch")) == 1


def test_what_is_not_supported_is_left_out_and_the_rest_is_read(machine: StubMachine, reader: Reader) -> None:
    for name in ("MarginTemperature", "GpuFabricInfoV", "ComputeRunningProcesses_v3", "UtilizationRates", "Serial"):
        machine.put(f"unsupported nvmlDeviceGet{name}", "")
    machine.put("unsupported nvmlDeviceGetMarginTemperature\nunsupported nvmlDeviceGetSerial\n#", "")
    machine.field(144, 1)
    assert "serial=" not in reader.wait_for("gpu.row_remap_pending")[0]


def test_a_remap_that_waits_and_one_that_failed_are_told_and_when_they_are_over(
    machine: StubMachine, reader: Reader
) -> None:
    machine.field(144, 0)
    machine.field(145, 0)
    reader.wait_for_state("on")
    reader.wait_for_look()
    machine.field(144, 1)
    assert reader.wait_for("gpu.row_remap_pending")[0].endswith("pending=1")
    machine.field(145, 1)
    assert reader.wait_for("gpu.row_remap_failure")[0].endswith("failure=1")
    machine.field(144, 0)
    assert "what=gpu.row_remap_pending" in reader.wait_for("gpu.over")[0]


def test_errors_of_links_are_told_by_link(machine: StubMachine, reader: Reader) -> None:
    machine.field(91, 4)
    machine.field(214, 0, link=3)
    reader.wait_for_state("on")
    reader.wait_for_look()
    position = reader.position
    machine.field(214, 2, link=3)
    reader.source.close()
    again = Reader(machine.settings(), position)
    body = again.wait_for("gpu.nvlink_errors")[0]
    again.source.close()
    assert body.endswith("link=3 errors=2 added=2 metric=recovery_failed")


def test_memory_of_a_dead_process_is_told_after_a_second_look(machine: StubMachine, reader: Reader) -> None:
    machine.put_process(4711)
    machine.put("0.process 4711", 2048)
    machine.put_process(4713, "Z")
    machine.put("0.process 4713", 512)
    machine.put("0.process 4712", 70100)
    machine.say()
    dead = reader.wait_for("gpu.memory_dead", 2)
    assert sorted(body.partition("pid=")[2] for body in dead) == [
        "4712 memory_mib=70100 state=gone", "4713 memory_mib=512 state=zombie",
    ]  # fmt: skip
    assert [body.partition("pid=")[2] for body in reader.bodies("gpu.process ")] == ["4711 memory_mib=2048"]
    machine.put("0.process 4712", None)
    machine.say()
    assert reader.wait_for("gpu.process_gone")[0].endswith("pid=4712 state=dead")


def test_a_gpu_that_sleeps_is_never_opened(tmp_path: Path, driver_root: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    machine = StubMachine(tmp_path / "three", driver_root, gpus=3)
    monkeypatch.setenv("NVML_STUB", str(machine.scenario))
    machine.put_gpu(0, status="suspended")
    machine.put_gpu(2, uuid=ASLEEP)
    reader = Reader(machine.settings())
    reason = reader.wait_for_state("on")
    assert "0000:10:00.0: runtime power management has it suspended" in reason
    assert "0000:12:00.0: the driver has not initialised it" in reason
    assert machine.opened() == ["0000:11:00.0"]
    machine.put_gpu(2)
    reader.wait_for("gpu.identity", 2)
    assert machine.opened() == ["0000:11:00.0", "0000:12:00.0"]
    reader.source.close()


def test_where_all_sleep_no_process_is_started(machine: StubMachine, reader: Reader) -> None:
    machine.put_gpu(0, uuid=ASLEEP)
    assert "all 1 GPUs are asleep and left so" in reader.wait_for_state("off", "asleep")
    assert reader.source._child is None
    assert machine.opened() == []


def test_gpus_that_only_nvml_keeps_awake_are_let_go(machine: StubMachine, reader: Reader) -> None:
    machine.say(gpu0_persistence=0)
    reader.wait_for_state("off", "NVML is let go so that they may sleep")
    reader.until(lambda: reader.source._child is None, "no process")


def test_a_machine_without_gpus_or_without_a_driver_says_so(machine: StubMachine, reader: Reader) -> None:
    (machine.sys / "module/nvidia/version").unlink()
    assert reader.state() == ("off", "no NVIDIA driver is loaded")
    (machine.sys / "bus/pci/devices/0000:10:00.0/vendor").write_text("0x8086\n")
    reader.look(later_s=2)
    assert reader.source.progress().reason == f"no NVIDIA GPU under {machine.sys}/bus/pci/devices"


def test_a_driver_root_without_the_library_names_where_it_was_looked_for(machine: StubMachine, tmp_path: Path) -> None:
    machine.driver_root = tmp_path / "empty"
    reader = Reader(machine.settings())
    reason = reader.wait_for_state("off", "set [nvml] driver_root")
    assert f"no libnvidia-ml.so.1 under {tmp_path / 'empty'}" in reason
    reader.source.close()


def test_its_process_ends_with_the_agent(machine: StubMachine, reader: Reader) -> None:
    reader.wait_for_state("on")
    pid = child_of(reader)
    child = reader.source._child
    assert child is not None
    assert child.stdin is not None
    child.stdin.close()
    assert eventually(lambda: child.poll() is not None and str(pid), "its end") == str(pid)
    assert child.returncode == 0


_AGENT = """
import sys
from pathlib import Path
from shippers.config import NvmlSettings
from tests.shippers.nvml_machine import Reader
root, sys_root, proc_root = sys.argv[1:]
reader = Reader(NvmlSettings(driver_root=root, sys_root=sys_root, proc_root=proc_root, interval_s=1, deadline_s=60))
reader.until(lambda: "asking" in reader.source._doing, "that it asks")
print(reader.source._child.pid, flush=True)
reader.until(lambda: False, "being killed")
"""


def test_a_process_that_hangs_dies_with_an_agent_that_is_killed(machine: StubMachine) -> None:
    machine.say(gpu0_hang=1)
    command = [sys.executable, "-c", _AGENT, str(machine.driver_root), str(machine.sys), str(machine.proc)]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as agent:
        assert agent.stdout is not None
        pid = int(agent.stdout.readline())
        agent.kill()
    eventually(lambda: Machine().process(pid) != "here", "its end")


def test_an_interrupt_of_the_terminal_is_for_the_agent_alone(machine: StubMachine, reader: Reader) -> None:
    reader.wait_for_state("on")
    os.kill(child_of(reader), signal.SIGINT)
    machine.event(1, XID, 79)
    assert reader.wait_for("gpu.xid")


def test_lines_say_when_as_far_as_it_is_known(machine: StubMachine, reader: Reader) -> None:
    machine.field(144, 1)
    reader.wait_for("gpu.row_remap_pending")
    at_first: RawLine = next(line for line in reader.lines if "remap_pending" in line.body)
    assert at_first.time_unix_nano is None
    machine.field(144, 0)
    reader.wait_for("gpu.over")
    later = next(line for line in reader.lines if "gpu.over" in line.body)
    assert later.time_unix_nano is not None
    assert later.observed_time_unix_nano - later.time_unix_nano == int(later.attributes[WIDTH])


def test_the_inventory_is_a_record_of_the_node_that_the_codec_takes(machine: StubMachine, reader: Reader) -> None:
    reader.wait_for_state("on")
    assert reader.source.inventory is not None
    config = Config(cluster="c", reporter="node-7", run_id="live", machine_id="m1")
    facts = node_facts(config, "boot", reader.source.inventory, 17)
    assert facts.gpus == [
        Gpu(
            pci_bus_id="0000:10:00.0", index=0, uuid="GPU-0a1b2c3d-0000-4000-8000-000000000000",
            serial="1650123456700", model="NVIDIA Stub 80GB",
        )
    ]  # fmt: skip
    assert facts.versions == {"driver": "570.86.15", "nvml": "12.570.86.15"}
    assert codec.decode(RAW.name, codec.encode(facts)) == facts


def test_what_nvml_tells_goes_through_the_agents_spool_with_its_kind_and_its_moment(
    machine: StubMachine, tmp_path: Path
) -> None:
    config = Config(
        cluster="c", reporter="node-7", run_id="live", profile="none", sources={"nvml": True}, source=(),
        spool=SpoolSettings(dir=str(tmp_path / "spool")), nvml=machine.settings(), clock=ClockSettings(beacon=False),
    )  # fmt: skip
    sink = FakeSink()
    agent = Agent(config, sink)
    work = threading.Thread(target=agent.run)
    work.start()
    eventually(lambda: any("gpu.identity" in body for body in sink.bodies()), "its GPUs")
    machine.event(1, XID, 79)
    eventually(lambda: any("gpu.xid" in body for body in sink.bodies()), "the Xid")
    agent.request_stop()
    work.join(20)
    assert {batch.source_attributes["nvml"]["kind"] for batch in sink.batches() if batch.records} == {"telemetry"}
    (facts,) = (record for record in map(partial(codec.decode, RAW.name), sink.values) if isinstance(record, NodeFacts))
    assert (facts.reporter, [gpu.pci_bus_id for gpu in facts.gpus]) == ("node-7", ["0000:10:00.0"])
    (line,) = (line for batch in sink.batches() for line in batch.records if "gpu.xid" in line.body)
    assert line.time_unix_nano is not None
    assert line.time_unix_nano < line.observed_time_unix_nano


@pytest.mark.slow
def test_a_gpu_that_is_slowed_down_for_long_and_one_with_too_few_lanes_under_load_are_told(
    machine: StubMachine, reader: Reader
) -> None:
    machine.say(gpu0_clock_reasons=0x48, gpu0_temperature=92, gpu0_margin=-1, gpu0_width=8, gpu0_utilization=97)
    assert reader.wait_for("gpu.clocks_reduced")[0].endswith(
        "clock_reasons=0x48 temperature_celsius=92 margin_celsius=-1 sm_clock_mhz=1980 utilization_percent=97 "
        "power_watts=120"
    )
    assert "margin_celsius=-1" in reader.wait_for("gpu.hot")[0]
    assert reader.wait_for("gpu.pcie_below_max")[0].endswith(
        "lanes_missing=8 width=8 width_max=16 utilization_percent=97"
    )
