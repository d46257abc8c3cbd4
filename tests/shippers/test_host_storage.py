"""Mounts and disks of a recorded node: what is full, what does not answer, what became read-only, what disks say."""

import os
import threading
from pathlib import Path

import pytest

from shippers.probes.mountinfo import Mount, mounts
from shippers.probes.mounts import Mounts
from shippers.probes.nvme import Health, Nvme, health
from shippers.probes.probe import Absent, Refused
from shippers.probes.space import SpaceLeft, see, space
from shippers.probes.thresholds import thresholds
from tests.shippers.fakes import eventually
from tests.shippers.host import Node, events_of, node

__all__ = ["node"]
MOUNTINFO = "/proc/self/mountinfo"
SMARTCTL = (
    '{"nvme_smart_health_information_log": {"critical_warning": 12, "available_spare": 100, '
    '"percentage_used": 41, "media_errors": 7}}'
)
NVME_CLI_1 = '{"critical_warning": 0, "avail_spare": 100, "percent_used": 3, "media_errors": "0"}'
NVME_CLI_2 = (
    '{"critical_warning": {"value": 4, "available_spare": 0}, "avail_spare": 90, "percent_used": 99, "media_errors": 0}'
)


class Server:
    """statvfs of a file system whose servers stop answering where `stop` is a part of its path."""

    def __init__(self) -> None:
        self.stop = ""
        self.error: OSError | None = None
        self.answers = threading.Event()
        self.asked: list[str] = []

    def statvfs(self, path: str) -> os.statvfs_result:
        self.asked.append(path)
        if self.stop and path.endswith(self.stop):
            self.answers.wait(20)
        if self.error is not None:
            raise self.error
        return filled(40)


def filled(percent: int, inodes_percent: int = 1) -> os.statvfs_result:
    return os.statvfs_result(
        (4096, 4096, 1000, 1000 - 10 * percent, 1000 - 10 * percent, 1000, 1000 - 10 * inodes_percent, 0, 0, 255)
    )


def of(node: Node, server: Server) -> Mounts:
    probe = Mounts(str(node.root), server.statvfs)
    probe.open("")
    return probe


def looked(node: Node, probe: Mounts, server: Server, count: int) -> list[str]:
    """A look after all file systems were asked so often."""
    eventually(lambda: len(server.asked) >= count, "asked")
    eventually(lambda: all(thread.name[:7] != "statvfs" for thread in threading.enumerate()), "answered")
    return node.look(probe)


def test_a_mount_is_known_by_what_its_source_says() -> None:
    found = {
        mount.path: mount
        for mount in mounts((Path(__file__).parent / "trees/gpu_node/proc/self/mountinfo").read_text())
    }
    assert (found["/data"].server, found["/lus"].server, found["/"].server) == ("store3", "10.0.0.7@o2ib", None)
    assert [path for path, mount in found.items() if mount.is_network] == ["/data", "/lus", "/mnt/with blank"]
    assert [path for path, mount in found.items() if mount.is_local] == ["/", "/scratch"]
    assert sum(mount.is_shared_memory for mount in found.values()) == 2


def test_an_nfs_server_that_does_not_answer_is_told_once_others_are_asked_on_and_its_return_is_told(node: Node) -> None:
    server = Server()
    probe = of(node, server)
    assert node.look(probe) == []
    server.stop = "/data"
    assert looked(node, probe, server, 3) == []
    eventually(lambda: len(server.asked) >= 6, "asked again")
    lines = node.look(probe)
    assert lines == [
        "rootrank: nfs.stalled server=store3 fstype=nfs4 path=/data filesystem=store3:/export/data seconds=15 "
        "mode=still_trying"
    ]
    event = events_of(lines)[0]
    assert (event.name, event.role, event.attributes["server"]) == ("nfs.stall", "cause", "store3")
    assert events_of(lines, "application") == []
    for _ in range(5):
        assert node.look(probe) == []
    assert sum(path.endswith("/data") for path in server.asked) == 2, "a thread for each look"
    assert sum(path.endswith("/lus") for path in server.asked) > 3
    server.answers.set()
    server.stop = ""
    eventually(lambda: not any(thread.name == "statvfs /data" for thread in threading.enumerate()), "answered")
    over = node.look(probe)
    assert [event.name for event in events_of(over)] == ["nfs.ok"]


def test_a_stale_handle_is_told_once(node: Node) -> None:
    server = Server()
    probe = of(node, server)
    node.look(probe)
    looked(node, probe, server, 3)
    server.error = OSError(116, "Stale file handle")
    looked(node, probe, server, 6)
    lines = looked(node, probe, server, 9)
    assert "error=Stale_file_handle" in " ".join(lines)
    assert {event.name for event in events_of(lines)} == {"nfs.failed", "fs.failed"}
    assert looked(node, probe, server, 12) == []


def test_a_network_file_system_that_goes_is_told_once_an_hour(node: Node) -> None:
    server = Server()
    probe = of(node, server)
    node.look(probe)
    text = (node.root / MOUNTINFO.lstrip("/")).read_text()
    without = "".join(line for line in text.splitlines(keepends=True) if "store3" not in line)
    told = []
    for turn in range(10):
        node.set(MOUNTINFO, text if turn % 2 else without)
        told += looked(node, probe, server, 1)
    assert [event.attributes["to"] for event in events_of(told)] == ["unmounted", "mounted"]


def test_a_file_system_that_becomes_read_only(node: Node) -> None:
    server = Server()
    probe = of(node, server)
    node.look(probe)
    node.replace(
        MOUNTINFO, "/scratch rw,relatime - xfs /dev/nvme1n1p1 rw", "/scratch rw,relatime - xfs /dev/nvme1n1p1 ro"
    )
    lines = node.look(probe)
    assert lines == ["rootrank: fs.mode to=read_only fstype=xfs device=nvme1n1p1 path=/scratch"]
    assert events_of(lines)[0].name == "fs.readonly"
    node.replace(MOUNTINFO, "nvme1n1p1 ro", "nvme1n1p1 rw")
    assert [event.name for event in events_of(node.look(probe))] == ["fs.writable"]


def test_another_file_system_under_the_number_of_one_that_went_became_no_other(node: Node) -> None:
    probe = of(node, Server())
    node.look(probe)
    node.replace(MOUNTINFO, "/dev/nvme1n1p1 rw", "/dev/sdb1 ro")
    assert not [line for line in node.look(probe) if "fs.mode" in line]


def test_mounts_that_come_and_go_while_their_server_is_away_leave_a_bounded_number_of_threads(node: Node) -> None:
    server = Server()
    server.stop = "/data"
    probe = of(node, server)
    text = (node.root / MOUNTINFO.lstrip("/")).read_text()
    data = next(line for line in text.splitlines(keepends=True) if "store3" in line)
    number = data.split()[2]
    most = int(thresholds().limits["mounts_asked"])
    for turn in range(most + 10):
        node.set(MOUNTINFO, data.replace(number, f"0:{1000 + turn}"))
        node.look(probe)
    try:
        assert sum(thread.name == "statvfs /data" for thread in threading.enumerate()) == most
    finally:
        server.answers.set()


@pytest.mark.parametrize(
    ("mount", "percent", "inodes", "names"),
    [
        ("ext4 /scratch", 80, 1, []),
        ("ext4 /scratch", 92, 1, ["host.fs"]),
        ("ext4 /scratch", 99, 1, ["host.fs_full", "host.fs"]),
        ("ext4 /scratch", 10, 100, ["host.fs_full", "host.fs"]),
        ("tmpfs /dev/shm", 100, 1, ["host.shm_full", "host.shm"]),
        ("tmpfs /run/x/shm", 91, 1, ["host.shm"]),
    ],
)
def test_how_full_a_file_system_is(mount: str, percent: int, inodes: int, names: list[str], node: Node) -> None:
    kind, path = mount.split()
    probe = node.opened(SpaceLeft)
    see(
        probe,
        Mount(path=path, fstype=kind, source="x", device="1:1", is_read_only=False),
        space(filled(percent, inodes)),
    )
    lines = [*probe._lines]
    assert [event.name for event in events_of(lines)] == names
    assert [event.name for event in events_of(lines, "application")] == []


def test_what_smartctl_and_both_nvme_tools_print_is_understood() -> None:
    assert health(SMARTCTL) == Health(critical_warning=12, percentage_used=41, available_spare=100, media_errors=7)
    assert health(NVME_CLI_1) == Health(critical_warning=0, percentage_used=3, available_spare=100, media_errors=0)
    assert health(NVME_CLI_2) == Health(critical_warning=4, percentage_used=99, available_spare=90, media_errors=0)
    assert [health(text) for text in ("", "[]", "{}", '{"critical_warning": "x"}')] == [None] * 4
    assert (
        Health(critical_warning=12, percentage_used=0, available_spare=0, media_errors=0).warnings
        == "reliability,read_only"
    )


def test_a_disk_that_warns_is_told_once_and_one_that_is_not_local_is_not_asked(node: Node) -> None:
    probe = Nvme(str(node.root))
    told = health(SMARTCTL)
    probe.see("nvme0", told)
    lines = [*probe._lines]
    assert lines == [
        "rootrank: disk.smart state=began device=nvme0 serial=S4X7NF0M warning=reliability,read_only media_errors=7 "
        "used_percent=41 spare_percent=100"
    ]
    assert events_of(lines)[0].name == "disk.smart"
    probe.see("nvme0", told)
    assert probe._lines == lines
    assert not probe._is_local("nvme1")
    with pytest.raises(Refused, match="no health log"):
        probe.see("nvme0", None)
    with pytest.raises(Absent, match=r"NVMe|smartctl"):
        Nvme(str(node.root / "data")).measure()
