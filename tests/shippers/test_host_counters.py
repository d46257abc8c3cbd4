"""Counters of a recorded node: what moves is told once, and its line becomes an event of the right thing."""

import random
from pathlib import Path

import pytest

from shippers.probes.counted import HostProbe
from shippers.probes.edac import Edac
from shippers.probes.heat import Heat
from shippers.probes.infiniband import InfiniBand
from shippers.probes.interfaces import Interfaces
from shippers.probes.memory import Memory
from shippers.probes.numa import Numa
from shippers.probes.pressure import Pressure
from shippers.probes.probe import Absent
from shippers.probes.tcp import Tcp
from shippers.probes.throttling import Throttling
from tests.shippers.host import NODE, Node, events_of, node

__all__ = ["node"]
IB = "/sys/class/infiniband/mlx5_1/ports/1"
NET = "/sys/class/net/ens3np0"
POD = "/sys/fs/cgroup/kubepods.slice/pod7.slice"
DIMM = "/sys/devices/system/edac/mc/mc0/dimm1"


@pytest.mark.parametrize("make", [Edac, Heat, InfiniBand, Interfaces, Memory, Numa, Pressure, Tcp, Throttling])
def test_a_quiet_node_tells_nothing_and_a_machine_without_says_so(
    make: type[HostProbe], node: Node, tmp_path: Path
) -> None:
    probe = node.opened(make)
    assert [node.look(probe) for _ in range(5)] == [[]] * 5
    with pytest.raises(Absent, match=r"\w"):
        node.look(make(str(tmp_path / "empty")))


def test_a_container_that_is_held_back_by_its_quota(node: Node) -> None:
    probe = node.opened(Throttling)
    node.set(f"{POD}/main.scope/cpu.stat", "usage_usec 1\nnr_periods 1300\nnr_throttled 160\nthrottled_usec 5270000")
    lines = node.look(probe)
    assert lines == [
        "rootrank: cpu.throttle state=began cgroup=/kubepods.slice/pod7.slice/main.scope throttled_percent=50 "
        "periods=300 throttled=150 throttled_us=5200000 seconds=30 pid=4711"
    ]
    event = events_of(lines)[0]
    assert (event.name, event.node, event.subject.pid) == ("host.cpu_throttle", NODE, 4711)
    assert events_of(lines, "application") == []


def test_cgroups_of_the_first_version_are_read_as_well(node: Node) -> None:
    (node.root / "sys/fs/cgroup/cgroup.controllers").unlink()
    group = "/sys/fs/cgroup/cpu,cpuacct/slurm/job_7"
    node.set("/sys/fs/cgroup/cpu,cpuacct/cgroup.procs", "1")
    node.set(f"{group}/cpu.cfs_quota_us", 400000)
    node.set(f"{group}/cpu.stat", "nr_periods 100\nnr_throttled 0\nthrottled_time 0")
    probe = node.opened(Throttling)
    node.set(f"{group}/cpu.stat", "nr_periods 400\nnr_throttled 120\nthrottled_time 5200000000")
    assert (
        "cgroup=/slurm/job_7 throttled_percent=40 periods=300 throttled=120 throttled_us=5200000" in node.look(probe)[0]
    )


def test_an_oom_kill_is_of_the_cgroup_whose_limit_or_whose_parents_limit_was_reached(node: Node) -> None:
    probe = node.opened(Memory)
    node.replace("/proc/vmstat", "oom_kill 0", "oom_kill 1")
    node.replace(f"{POD}/memory.events.local", "oom 0", "oom 1")
    node.replace(f"{POD}/main.scope/memory.events.local", "oom_kill 0", "oom_kill 1")
    lines = node.look(probe)
    assert lines == [
        "rootrank: memory.oom_kill state=began kind=memcg cgroup=/kubepods.slice/pod7.slice/main.scope oom_kill=1 "
        "pid=4711"
    ]
    assert events_of(lines)[0].name == "host.oom.counter"


def test_a_kill_without_a_limit_is_the_machines(node: Node) -> None:
    probe = node.opened(Memory)
    node.replace("/proc/vmstat", "oom_kill 0", "oom_kill 2")
    node.replace(f"{POD}/main.scope/memory.events.local", "oom_kill 0", "oom_kill 2")
    lines = node.look(probe)
    assert lines == ["rootrank: memory.oom_kill state=began kind=machine oom_kill=2"]
    assert events_of(lines)[0].name == "host.oom.machine"


def test_a_kill_while_the_agent_was_down_is_told_after_its_start(node: Node) -> None:
    node.replace("/proc/vmstat", "oom_kill 0", "oom_kill 3")
    memo = node.opened(Memory).memo()
    node.replace("/proc/vmstat", "oom_kill 3", "oom_kill 4")
    again = Memory(str(node.root))
    again.open(memo)
    assert node.look(again) == ["rootrank: memory.oom_kill state=began kind=machine oom_kill=1"]


def test_pressure_begins_and_is_over(node: Node) -> None:
    probe = node.opened(Pressure)
    node.set("/proc/pressure/io", "full avg10=71.20 avg60=53.10 avg300=12.01 total=912345678")
    lines = node.look(probe)
    assert [event.attributes["resource"] for event in events_of(lines)] == ["io"]
    assert events_of(lines)[0].label == "resource/fs_contention"
    assert node.look(probe) == []
    node.set("/proc/pressure/io", "full avg10=0.00 avg60=0.10 avg300=2.01 total=912345678")
    assert node.look(probe) == []
    assert "state=over" in node.look(probe, 601)[0]


def test_retransmits_are_told_as_a_share_and_only_where_much_was_sent(node: Node) -> None:
    probe = node.opened(Tcp)
    node.replace("/proc/net/snmp", "900000 450", "900500 650")  # four in ten of next to nothing
    assert node.look(probe) == []
    node.replace("/proc/net/snmp", "900500 650", "950500 2650")
    lines = node.look(probe)
    assert "percent=4.00 retrans_segs=2650 out_segs=950500 lost_retransmit=7" in lines[0]
    assert (events_of(lines)[0].name, events_of(lines)[0].severity) == ("host.tcp_counters", "warning")


def test_connections_that_nobody_accepts(node: Node) -> None:
    probe = node.opened(Tcp)
    node.replace("/proc/net/netstat", "TcpExt: 0 2 2 7", "TcpExt: 0 62 62 7")
    lines = node.look(probe)
    assert lines == ["rootrank: tcp.listen state=began gained=60 listen_overflows=62 listen_drops=62"]
    assert events_of(lines)[0].name == "host.listen_counters"


def test_a_port_that_goes_down_and_comes_back_slower(node: Node) -> None:
    probe = node.opened(InfiniBand)
    node.set(f"{IB}/state", "1: DOWN")
    node.set(f"{IB}/phys_state", "2: Polling")
    node.gain(f"{IB}/counters/link_downed", 1)
    down = node.look(probe)
    assert down == [
        "rootrank: ib.port nic=mlx5_1 port=1 to=down was=active phys_state=polling rate_gbps=400 link_downed=2"
    ]
    event = events_of(down)[0]
    assert (event.name, event.role, event.subject.nic, event.node) == ("ib.port.down", "cause", "mlx5_1", NODE)
    node.set(f"{IB}/state", "4: ACTIVE")
    node.set(f"{IB}/phys_state", "5: LinkUp")
    node.set(f"{IB}/rate", "200 Gb/sec (2X NDR)")
    up = node.look(probe)
    assert [event.name for event in events_of(up)] == ["ib.port.up", "ib.port.rate"]
    assert node.look(probe) == []


def test_a_port_that_was_down_between_two_looks_is_told_by_its_counter(node: Node) -> None:
    probe = node.opened(InfiniBand)
    node.gain(f"{IB}/counters/link_downed", 1)
    lines = node.look(probe)
    assert "to=down what=flapped" in lines[0]
    assert events_of(lines)[0].name == "ib.port.down"


def test_a_port_that_is_down_by_design_is_not_told(node: Node) -> None:
    node.set(f"{IB}/state", "1: DOWN")
    probe = node.opened(InfiniBand)
    assert node.look(probe) == []


def test_a_port_that_went_down_while_the_agent_was_down_is_told(node: Node) -> None:
    memo = node.opened(InfiniBand).memo()
    node.set(f"{IB}/state", "1: DOWN")
    again = InfiniBand(str(node.root))
    again.open(memo)
    assert "to=down was=active" in node.look(again)[0]


def test_counters_of_a_port_are_told_together_when_one_gains(node: Node) -> None:
    probe = node.opened(InfiniBand)
    node.gain(f"{IB}/counters/symbol_error", 5)
    assert node.look(probe) == []
    node.gain(f"{IB}/counters/symbol_error", 37)
    lines = node.look(probe)
    event = events_of(lines)[0]
    assert (event.name, event.subject.nic) == ("ib.counters", "mlx5_1")
    assert event.attributes["counter"] == "symbol_error"
    assert (event.attributes["gained"], event.attributes["symbol_error"]) == ("37", "42")
    assert event.attributes["port_xmit_discards"] == "12"
    node.gain(f"{IB}/counters/symbol_error", 37)
    assert node.look(probe) == []


def test_an_interface_that_loses_its_link_is_told_and_one_that_is_taken_down_is_context(node: Node) -> None:
    probe = node.opened(Interfaces)
    node.set(f"{NET}/operstate", "down")
    node.set("/sys/class/net/ibp26s0/flags", "0x1002")
    events = events_of(node.look(probe))
    assert [(event.name, event.subject.nic, event.role) for event in events] == [
        ("nic.link.down", "ens3np0", "cause"), ("nic.link.off", "ibp26s0", "context"),
    ]  # fmt: skip
    node.set(f"{NET}/operstate", "up")
    assert [event.name for event in events_of(node.look(probe))] == ["nic.link.up"]
    node.gain(f"{NET}/carrier_down_count", 1)
    assert "what=flapped" in node.look(probe)[0]
    node.set("/sys/class/net/ibp26s0/flags", "0x1003")
    node.look(probe)
    node.set("/sys/class/net/ibp26s0/operstate", "lowerlayerdown")
    assert events_of(node.look(probe))[0].label == "network/ib_link"


def test_checksum_errors_of_an_interface(node: Node) -> None:
    probe = node.opened(Interfaces)
    node.gain(f"{NET}/statistics/rx_crc_errors", 37)
    event = events_of(node.look(probe))[0]
    assert (event.name, event.subject.nic, event.attributes["rx_crc_errors_phy"]) == ("nic.counters", "ens3np0", "37")


def test_memory_that_lost_data_names_its_module_and_a_few_corrected_errors_are_silent(node: Node) -> None:
    probe = node.opened(Edac)
    node.gain(f"{DIMM}/dimm_ce_count", 4)
    node.gain("/sys/devices/system/edac/mc/mc0/ce_count", 4)
    assert node.look(probe) == []
    node.gain(f"{DIMM}/dimm_ue_count", 1)
    node.gain("/sys/devices/system/edac/mc/mc0/ue_count", 1)
    event = events_of(node.look(probe))[0]
    assert (event.name, event.severity, event.attributes["kind"]) == ("host.edac", "fatal", "UE")
    assert event.attributes["dimm"] == "CPU_SrcID#0_MC#0_Chan#1_DIMM#0"


def test_a_processor_that_is_throttled_for_heat_and_cools_down(node: Node) -> None:
    probe = node.opened(Heat)
    for cpu in (2, 3):
        node.gain(f"/sys/devices/system/cpu/cpu{cpu}/thermal_throttle/package_throttle_count", 40)
    event = events_of(node.look(probe))[0]
    assert (event.name, event.attributes["level"], event.attributes["package"]) == (
        "host.cpu_throttled",
        "package",
        "1",
    )
    assert node.look(probe) == []
    assert events_of(node.look(probe, 601))[0].name == "host.cpu_normal"


def test_memory_that_another_numa_node_gave(node: Node) -> None:
    probe = node.opened(Numa)
    stat = "/sys/devices/system/node/node1/numastat"
    node.replace(stat, "numa_miss 1000", "numa_miss 9001000")
    lines = node.look(probe)
    assert lines == ["rootrank: numa.miss state=began numa_node=1 pages_per_s=150000 share_percent=100"]


def test_what_was_told_is_not_told_again_after_a_restart(node: Node) -> None:
    probe = node.opened(Pressure)
    node.set("/proc/pressure/memory", "full avg10=71.20 avg60=53.10 avg300=12.01 total=912345678")
    assert len(node.look(probe)) == 1
    again = Pressure(str(node.root))
    again.open(probe.memo())
    assert node.look(again) == []


def test_a_memo_that_is_damaged_is_as_none() -> None:
    probe = Pressure()
    probe.open('{"told": 7')
    assert probe.memo() == ""


def test_a_noisy_healthy_day_of_a_node_tells_a_handful_of_lines(node: Node) -> None:
    dice = random.Random(8)
    probes = [
        node.opened(make) for make in (Edac, Heat, InfiniBand, Interfaces, Memory, Numa, Pressure, Tcp, Throttling)
    ]
    sent = again = periods = throttled = 0
    told: list[str] = []
    for _ in range(480):
        segments = dice.randrange(50_000)
        sent, again = sent + segments, again + dice.randrange(30 + segments // 200)
        periods, throttled = periods + 1800, throttled + dice.randrange(300)
        node.set("/proc/net/snmp", f"Tcp: OutSegs RetransSegs\nTcp: {900_000 + sent} {450 + again}")
        node.set(f"{POD}/main.scope/cpu.stat", f"nr_periods {1000 + periods}\nnr_throttled {10 + throttled}")
        node.set("/proc/pressure/cpu", f"some avg10=95.00 avg60={dice.uniform(5, 85):.2f} avg300=30.00 total=1")
        node.set("/proc/pressure/io", f"full avg10=60.00 avg60={dice.uniform(0, 35):.2f} avg300=3.00 total=1")
        if dice.random() < 0.05:
            for path in (f"{IB}/counters/symbol_error", f"{DIMM}/dimm_ce_count", f"{NET}/statistics/rx_crc_errors"):
                node.gain(path, 1)
            node.gain(f"{IB}/hw_counters/out_of_sequence", 400)
            node.gain("/sys/devices/system/cpu/cpu0/thermal_throttle/core_throttle_count", 3)
        told += [line for probe in probes for line in node.look(probe, 20)]
    assert len(told) <= 5, told
