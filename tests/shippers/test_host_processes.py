"""Processes, sockets, the BMC and NCCL RAS: by recorded trees and by what the real programs print."""

import socket
import threading
from collections.abc import Iterator
from contextlib import contextmanager

import pytest

from shippers.probes.descriptors import Descriptors
from shippers.probes.probe import Absent, Refused
from shippers.probes.ras import Ras, problems
from shippers.probes.sel import EventLog, entries, stamp
from shippers.probes.sockets import Sockets, sockets
from shippers.probes.tasks import Tasks, task, waits_in
from tests.shippers.fakes import SECOND_NS
from tests.shippers.host import BEGAN_S, Node, events_of, node

__all__ = ["node"]
ASLEEP = "4713 (pt_data_worker) D 1 4711 4711 0 -1 4194304 1 0 0 0 {spent} 7 0 0 20 0 1 0 9001 1000 100"
THREAD = "/proc/4711/task/4713/stat"
SS = """\
0      0                10.0.0.4:40512        10.0.0.7:29500
\t cubic wscale:7,7 rto:204 rtt:0.5/0.2 mss:8948 cwnd:10 bytes_retrans:812 segs_out:991 retrans:0/{first} lost:0
0      0      [::ffff:10.0.0.4]:40514 [::ffff:10.0.0.7]:29500
\t cubic wscale:7,7 rto:1632 backoff:3 rtt:0.5/0.2 cwnd:1 retrans:1/{second} lost:1
0      0             127.0.0.1:9092       127.0.0.1:51234
\t cubic wscale:7,7 rto:201 rtt:0.1/0.05 cwnd:10 segs_out:71
"""
SEL = """\
   1 | 05/12/2026 | 14:20:33 UTC | Power Supply PS1 Status | Presence detected | Asserted
   2 | 05/12/26 | 02:25:00 PM UTC | Power Supply PS1 Status | Power Supply AC lost | Asserted
   3 | Pre-Init  |0000000033| Fan FAN3 | Lower Critical going low  | Asserted
"""
RAS = """\
NCCL version 2.28.9+cuda12.9 compiled with CUDA 12.9
CUDA runtime version 12090, driver version 13000

Job summary
===========

  Nodes  Processes         GPUs  Processes     GPUs
(total)   per node  per process    (total)  (total)
      4          8            1         32       32

Communicators... (2.05s)
=============

Group     Comms     Nodes     Ranks     Ranks     Ranks    Status  Errors
    #  in group  per comm  per node  per comm  in group
    0         1         4       7-8        32        32   RUNNING  INCOMPLETE

Errors
======

DEAD
  1 job process is considered dead (unreachable via the RAS network)
  Process 4711 on node gpu17 managing GPU 5

#0-0 (000000000cf264af) INCOMPLETE
  Missing communicator data from 1 rank
  Rank 21 -- GPU 5 managed by process 4711 on node gpu17

#0-0 (000000000cf264af) ERROR
  Asynchronous error on 1 rank
  Rank 7 reported Unhandled system error -- GPU 7 managed by process 4700 on node gpu16

Warnings
========

#0-0 (000000000cf264af) MISMATCH
  Communicator ranks have different AllReduce operation counts
  Rank 3 has launched up to operation 6649 -- GPU 3 managed by process 4703 on node gpu16
"""
HEALTHY = RAS[: RAS.index("DEAD")] + "\nWarnings\n========\n\n"


# --- hung tasks ---


def test_a_thread_that_sleeps_for_long_is_told_once_with_what_it_waits_for_and_its_return(node: Node) -> None:
    probe = node.opened(Tasks)
    node.set(THREAD, ASLEEP.format(spent=100))
    assert [node.look(probe), node.look(probe, 50)] == [[], []]
    lines = node.look(probe, 10)
    assert lines == [
        "rootrank: task.blocked process=pt_data_worker pid=4713 seconds=60 function=rpc_wait_bit_killable "
        "blocked_in=nfs"
    ]
    event = events_of(lines)[0]
    assert (event.name, event.subject.pid, event.label) == ("host.hung_task", 4713, "storage/nfs_stall")
    assert events_of(lines, "application") == []
    assert node.look(probe) == []
    node.replace(THREAD, " D ", " S ")
    assert [event.name for event in events_of(node.look(probe))] == ["host.hung_task.over"]


def test_a_task_that_sleeps_again_and_again_but_runs_in_between_is_not_hung(node: Node) -> None:
    probe = node.opened(Tasks)
    for turn in range(10):
        node.set(THREAD, ASLEEP.format(spent=100 + turn))
        assert node.look(probe) == []


def test_a_line_of_stat_is_read_whatever_the_name() -> None:
    odd = task("77 (a) D 1 (x) R 1 2 3 0 -1 4194304 1 0 0 0 5 7 0 0 20 0 1 0 900 1000 100")
    assert odd is not None
    assert (odd.pid, odd.process, odd.state, odd.spent) == ("77", "a) D 1 (x", "R", 12)
    assert (task(""), task("77 (a) D")) == (None, None)
    assert (waits_in("ptlrpc_queue_wait"), waits_in("gpfs_f_fsync"), waits_in("do_sys_poll")) == (
        "lustre", "file system", None,
    )  # fmt: skip


def test_what_a_file_system_holds_up_is_told_as_the_rules_know_it(node: Node) -> None:
    probe = node.opened(Tasks)
    node.set(THREAD, ASLEEP.format(spent=100))
    node.set("/proc/4713/stack", "[<0>] gpfs_f_fsync+0x11d/0x390 [mmfslinux]")
    lines = [line for _ in range(3) for line in node.look(probe)]
    assert events_of(lines)[0].attributes["blocked_in"] == "file system"


# --- open files ---


def test_a_process_near_its_limit_of_open_files(node: Node) -> None:
    probe = node.opened(Descriptors)
    for number in range(950):
        node.set(f"/proc/4711/fd/{number}", "")
    (node.root / "proc/4711/limits").write_text(
        "Max open files            1000                 524288               files\n"
    )
    lines = node.look(probe)
    assert "of=process pid=4711 process=python" in lines[0]
    event = events_of(lines)[0]
    assert (event.name, event.subject.pid) == ("host.files", 4711)
    assert node.look(probe) == []


def test_a_machine_near_its_limit_of_open_files(node: Node) -> None:
    probe = node.opened(Descriptors)
    node.set("/proc/sys/fs/file-nr", "900 0 1000")
    assert node.look(probe) == ["rootrank: files.open state=began of=machine open=900 limit=1000 use_percent=90"]


# --- sockets ---


def test_what_ss_prints_is_added_up_by_peer(node: Node) -> None:
    found = sockets(SS.format(first=12, second=700))
    assert [(each.peer_address, each.retrans_total, each.rto_ms) for each in found] == [
        ("10.0.0.7", 12, 204), ("10.0.0.7", 700, 1632),
    ]  # fmt: skip
    probe = node.opened(Sockets)
    assert isinstance(probe, Sockets)
    probe.tell_of(found)
    probe.tell_of(sockets(SS.format(first=30, second=1000)))
    lines = [*probe._lines]
    assert lines == [
        "rootrank: tcp.socket state=began peer=10.0.0.7 gained=318 sockets=2 retrans_total=1030 rto_ms=1632"
    ]
    assert events_of(lines)[0].name == "host.tcp_socket"


# --- the BMC's log ---


class Bmc:
    """`ipmitool sel` over a text; its clock says that it is half past two."""

    def __init__(self, text: str) -> None:
        self.text = text
        self.asked: list[tuple[str, ...]] = []

    def __call__(self, *arguments: str) -> str:
        self.asked.append(arguments)
        if arguments == ("time", "get"):
            return "05/12/2026 14:30:00\n"
        lines = self.text.splitlines(keepends=True)
        return "".join(lines[-int(arguments[-1]) :] if arguments[-1].isdecimal() else lines)


def test_times_of_the_bmc_in_all_its_shapes() -> None:
    assert [entry.at.isoformat() if entry.at else None for entry in entries(SEL)] == [
        "2026-05-12T14:20:33+00:00", "2026-05-12T14:25:00+00:00", None,
    ]  # fmt: skip
    assert stamp("13/45/2026 99:00:00") is None


def test_new_entries_are_told_behind_the_hosts_time_and_read_as_those_of_ipmitool(node: Node) -> None:
    first, *rest = SEL.splitlines(keepends=True)
    bmc = Bmc(first)
    probe = EventLog(str(node.root), bmc)
    probe.open("")
    assert node.look(probe) == []
    bmc.text = first + rest[0]
    lines = node.look(probe)
    # By the BMC's own clock the entry is five minutes old; so it is by ours.
    assert len(lines) == 1
    assert lines[0].endswith("Z rootrank: bmc.sel record=2 | Power Supply PS1 Status | Power Supply AC lost | Asserted")
    event = events_of(lines)[0]
    assert (event.name, event.attributes["way"], event.attributes["sensor"]) == (
        "bmc.power", "asserted", "Power Supply PS1 Status",
    )  # fmt: skip
    assert event.aligned_time_unix_nano == int(BEGAN_S + node.now_s - 5 * 60) * SECOND_NS
    assert node.look(probe) == []


def test_after_a_restart_the_log_goes_on_where_it_was_and_a_cleared_one_is_all_new(node: Node) -> None:
    bmc = Bmc(SEL)
    probe = EventLog(str(node.root), bmc)
    probe.open("")
    node.look(probe)
    bmc.text = SEL + "   4 | 05/12/2026 | 14:40:00 UTC | Watchdog2 OS Watchdog | Hard reset | Asserted\n"
    again = EventLog(str(node.root), bmc)
    again.open(probe.memo())
    assert [event.name for event in events_of(node.look(again))] == ["bmc.watchdog"]
    bmc.text = "   1 | 05/12/2026 | 15:00:00 UTC | Memory DIMM3 | Uncorrectable ECC | Asserted\n"
    assert [event.name for event in events_of(node.look(again))] == ["bmc.hardware"]


def test_of_a_flood_of_entries_the_last_are_told_and_the_rest_counted(node: Node) -> None:
    line = "{:4x} | 05/12/2026 | 14:20:33 UTC | Memory DIMM3 | Correctable ECC | Asserted\n"
    bmc = Bmc(line.format(1))
    probe = EventLog(str(node.root), bmc)
    probe.open("")
    node.look(probe)
    bmc.text = "".join(line.format(number) for number in range(1, 502))
    lines = node.look(probe)
    assert lines[0] == "rootrank: bmc.sel_left_out entries=300"
    assert len(lines) == 201


def test_a_machine_without_a_bmc_says_so(node: Node) -> None:
    with pytest.raises(Absent, match=r"ipmitool|/dev/ipmi0"):
        node.look(EventLog(str(node.root)))


# --- NCCL RAS ---


@contextmanager
def ras_server(answer: str, greeting: bytes = b"SERVER PROTOCOL 2\n") -> Iterator[int]:
    """NCCL's side of the text protocol, for as many clients as come."""
    listening = socket.create_server(("127.0.0.1", 0))

    def serve() -> None:
        while True:
            try:
                client, _ = listening.accept()
            except OSError:
                return
            with client, client.makefile("rwb") as stream:
                for said, told in ((b"CLIENT PROTOCOL", greeting), (b"TIMEOUT", b"OK\n"), (b"STATUS", answer.encode())):
                    if not stream.readline().startswith(said):
                        break
                    stream.write(told)
                    stream.flush()

    thread = threading.Thread(target=serve, daemon=True)
    thread.start()
    yield listening.getsockname()[1]
    listening.shutdown(socket.SHUT_RDWR)
    listening.close()
    thread.join(5)


def test_an_answer_of_ras_names_who_is_dead_who_is_missing_and_who_failed() -> None:
    assert problems(HEALTHY) == {}
    assert list(problems(RAS)) == [
        "dead ", "dead gpu17 4711", "incomplete 000000000cf264af", "incomplete 000000000cf264af 21",
        "error 000000000cf264af 7",
    ]  # fmt: skip


def test_ras_is_asked_over_its_port_and_tells_changes(node: Node) -> None:
    with ras_server(RAS) as port:
        probe = Ras(str(node.root), port)
        probe.open("")
        lines = node.look(probe)
        assert node.look(probe) == []
    assert "rootrank: nccl.ras state=began what=dead pid=4711 node=gpu17 gpus=5" in lines
    events = {event.name: event for event in events_of(lines)}
    assert (events["nccl.ras.process"].subject.pid, events["nccl.ras.process"].subject.node) == (4711, "gpu17")
    assert {event.attributes.get("rank") for event in events_of(lines)} == {None, "7", "21"}
    with ras_server(HEALTHY) as port:
        probe._port = port
        assert {event.name for event in events_of(node.look(probe))} == {"nccl.ras.over"}


def test_what_is_missing_in_one_answer_only_is_not_told(node: Node) -> None:
    answers = [RAS, HEALTHY]
    probe = Ras(str(node.root), ask=lambda: answers.pop(0))
    probe.open("")
    assert node.look(probe) == []


def test_no_job_is_absent_and_another_service_on_the_port_is_refused(node: Node) -> None:
    with socket.create_server(("127.0.0.1", 0)) as listening:
        free = listening.getsockname()[1]
    with pytest.raises(Absent, match="no job with NCCL"):
        node.look(Ras(str(node.root), free))
    with ras_server(RAS, b"HTTP/1.1 400 Bad Request\n") as port, pytest.raises(Refused, match="is not NCCL RAS"):
        node.look(Ras(str(node.root), port))
