"""Captures on real processes: what they hold, what bounds them, and that nobody is stopped by one."""

import os
import subprocess
import sys
import threading
import time
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import msgspec
import pytest

from pipeline.core.align import NodeFold
from schemas import signals
from shippers.agent import Agent
from shippers.capture.bounded import MAX_HANGING, Steps
from shippers.capture.capture import Capture
from shippers.capture.kept import keep
from shippers.capture.ranks import LocalRank, chosen, ranks_here
from shippers.capture.redacting import redacting
from shippers.capture.snapshots import Part, cgroup_of, changed, parts, ras_status, sockets_of
from shippers.capture.triggers import Fatal, Marks, Trigger
from shippers.config import CaptureSettings, ClockSettings, Config, ConfigError, SourceSettings, SpoolSettings, load
from shippers.pieces import Moment
from tests.shippers.fakes import FakeSink, append, eventually

XID = "NVRM: Xid (PCI:0000:5e:00): 79, pid=4321, name=python, GPU has fallen off the bus."
KMSG = f"4,1,1000000,-;{XID}"
GPU = Trigger(kind="gpu", key="xid79", why="Xid 79")
NOW = Moment(observed_ns=0, mono_ns=0, wall_ns=0)


class Rank:
    """A real process that counts, as a rank that trains."""

    def __init__(self, folder: Path, rank: int) -> None:
        self.beats = folder / f"beats{rank}"
        program = (
            "import sys, time, pathlib\n"
            "path = pathlib.Path(sys.argv[1])\n"
            "with path.open('w') as file:\n"
            "    while True:\n"
            "        file.write('x'); file.flush(); time.sleep(0.005)\n"
        )
        self.process = subprocess.Popen(
            [sys.executable, "-c", program, str(self.beats)],
            env={**os.environ, "RANK": str(rank), "WORLD_SIZE": "4", "SLURM_JOB_ID": "48211"},
        )

    @property
    def count(self) -> int:
        return self.beats.stat().st_size if self.beats.exists() else 0

    def stop(self) -> None:
        self.process.kill()
        self.process.wait()


@pytest.fixture
def ranks(tmp_path: Path) -> Iterator[list[Rank]]:
    started = [Rank(tmp_path, rank) for rank in range(4)]
    eventually(lambda: all(each.count for each in started), "all ranks count")
    yield started
    for each in started:
        each.stop()


def capture(tmp_path: Path, parts_of: Any = None, **settings: Any) -> Capture:
    return Capture(
        CaptureSettings(**settings), tmp_path / "captures", redacting(Config()), proc=proc_of(tmp_path),
        parts_of=parts_of,
    )  # fmt: skip


def proc_of(tmp_path: Path) -> Path:
    """A folder without processes, where a test brings none."""
    empty = tmp_path / "proc"
    empty.mkdir(exist_ok=True)
    return empty


def fixed(*said: tuple[str, str]) -> Any:
    def parts_of(ranks: Sequence[LocalRank]) -> Iterator[Part]:
        yield from (Part(name, lambda text=text: text) for name, text in said)  # type: ignore[misc]

    return parts_of


def taken(probe: Capture, *triggers: Trigger) -> list[str]:
    probe.triggers.extend(triggers)
    return list(probe.look(NOW))


# --- what begins one --------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("body", "key"),
    [
        (XID, "xid79"),
        ("NVRM: Xid (PCI:0000:5e:00): 48, pid=1, name=x, An uncorrectable double bit error", "xid48"),
        ("NVRM: GPU at PCI:0000:5e:00: GPU has fallen off the bus.", "GPU has fallen off the bus"),
        ("rootrank: gpu.xid gpu=3 pci=0000:5d:00.0 serial=1650000000123 xid=79", "xid79"),
        ("rootrank: gpu.xid gpu=3 xid=31", None),
        ("NVRM: Xid (PCI:0000:5e:00): 31, MMU fault", None),
        ("NVRM: Xid (PCI:0000:5e:00): 790, unknown", None),
        ("NVRM: Xid (PCI:0000:5e:00): , torn", None),
        ("Xid", None),
        ("eth0: link up", None),
    ],
)
def test_fatal_lines_begin_a_capture(body: str, key: str | None) -> None:
    trigger = Fatal().trigger(body)
    assert (trigger.key if trigger else None) == key


def test_a_file_of_marks_that_grew_and_then_stands_still_begins_one_once(tmp_path: Path) -> None:
    old, silent, busy = (tmp_path / name for name in ("rank0.log", "train_rank5.log", "rank6.log"))
    for each in (old, silent, busy):
        append(each, "step 1\n")
    marks = Marks(f"{tmp_path}/*rank*.log", 300)
    assert marks.look(0) is None
    append(silent, "step 2\n")
    append(busy, "step 2\n")
    assert marks.look(10) is None
    append(busy, "step 3\n")
    assert marks.look(200) is None

    first = marks.look(311)
    assert first is not None
    assert (first.kind, first.rank, first.why) == ("silent", 5, "train_rank5.log has not grown for 301 s")
    assert marks.look(320) is None
    append(silent, "step 3\n")
    append(busy, "step 4\n")
    assert marks.look(330) is None
    assert marks.look(700) is not None


def test_a_job_that_ended_keeps_no_other_from_being_told(tmp_path: Path) -> None:
    over, later, beside, gone = (tmp_path / f"job{job}_rank{job}.log" for job in range(4))
    paths = (over, later, beside, gone)
    marks = Marks(f"{tmp_path}/*.log", 300)
    for text, now_s in (("1\n", 0), ("2\n", 10)):
        for path in paths:
            append(path, text)
        assert marks.look(now_s) is None
    gone.unlink()
    for path in (later, beside):
        append(path, "3\n")
    assert marks.look(300) is None
    first = marks.look(311)
    assert first is not None
    assert first.rank == 0
    append(later, "4\n")
    assert marks.look(600) is None
    append(beside, "4\n")
    assert marks.look(601) is None

    second = marks.look(900)
    assert second is not None
    assert second.rank == 1
    assert marks.look(901) is None, "another rank of the same standstill"


# --- what it holds ----------------------------------------------------------------------------------------------------


def test_it_holds_the_silent_rank_and_three_peers_and_none_of_them_is_stopped(
    tmp_path: Path, ranks: list[Rank]
) -> None:
    pids = {each.process.pid for each in ranks}
    proc = tmp_path / "proc"
    proc.mkdir()
    for pid in pids:
        (proc / str(pid)).symlink_to(f"/proc/{pid}")
    probe = Capture(CaptureSettings(), tmp_path / "captures", redacting(Config()), proc=proc)
    seen: set[str] = set()
    over = threading.Event()
    watching = threading.Thread(target=watch_states, args=(pids, seen, over))
    watching.start()
    before = [each.count for each in ranks]
    lines = taken(probe, Trigger(kind="silent", key="r2", why="rank2.log has not grown for 300 s", rank=2))
    over.set()
    watching.join()

    eventually(lambda: all(each.count > was for each, was in zip(ranks, before, strict=True)), "all count on")
    assert all(each.process.poll() is None for each in ranks)
    assert not seen & {"T", "t", "traced"}, seen
    head = lines[0]
    assert " trigger=silent job=48211 rank=2 " in head
    text = "\n".join(lines[1:])
    assert text.index(f"rank 2 pid {ranks[2].process.pid}: tasks") < text.index("rank 0 pid")
    assert all(f"pid {each.process.pid}: tasks" in text for each in ranks)
    assert "wchan: " in text
    assert "voluntary_ctxt_switches" in text
    assert f"rank 2 pid {ranks[2].process.pid}: cgroup" in text


def watch_states(pids: set[int], seen: set[str], over: threading.Event) -> None:
    """The states of all tasks while a capture is taken; `traced` where somebody is attached."""
    while not over.is_set():
        for pid in pids:
            status = dict(
                line.split(":\t", 1) for line in Path(f"/proc/{pid}/status").read_text().splitlines() if ":\t" in line
            )
            seen.add(status["State"][0])
            if status["TracerPid"].strip() != "0":
                seen.add("traced")
        over.wait(0.002)


def test_nothing_in_the_code_of_captures_can_stop_a_process() -> None:
    folder = Path(__file__).parents[3] / "shippers" / "capture"
    text = "".join(each.read_text(encoding="utf-8") for each in folder.glob("*.py"))

    for word in ("os.kill", "SIGSTOP", "SIGCONT", "PTRACE", "send_signal", "killpg", "gdb", 'cgroup.freeze", "w'):
        assert word not in text, word
    assert text.count('"py-spy", "dump"') == text.count('"py-spy", "dump", "--nonblocking"') == 1


def test_py_spy_is_asked_without_blocking(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, ranks: list[Rank]) -> None:
    tool = tmp_path / "bin" / "py-spy"
    tool.parent.mkdir()
    tool.write_text('#!/bin/sh\necho "asked: $*"\n')
    tool.chmod(0o755)
    monkeypatch.setenv("PATH", f"{tool.parent}:{os.environ['PATH']}")
    (part, *_) = [
        each for each in parts(ranks_of(ranks), Path("/proc"), Path("/sys/fs/cgroup")) if "Python" in each.name
    ]

    assert part.ask() == f"asked: dump --nonblocking --pid {ranks[0].process.pid}\n"


def ranks_of(ranks: list[Rank]) -> list[LocalRank]:
    pids = {each.process.pid for each in ranks}
    return [each for each in ranks_here(Path("/proc")) if each.pid in pids]


def test_ranks_are_found_by_their_environment(ranks: list[Rank]) -> None:
    assert [(each.rank, each.job, each.pid) for each in ranks_of(ranks)] == [
        (number, "48211", each.process.pid) for number, each in enumerate(ranks)
    ]


def test_a_shell_that_starts_a_rank_is_not_asked_in_its_place(tmp_path: Path) -> None:
    torchrun, mpi = "RANK=3\0WORLD_SIZE=4\0", "PMI_RANK=5\0PMI_SIZE=8\0"
    for pid, parent, command, said in ((10, 1, "bash", torchrun), (11, 10, "python", torchrun), (12, 1, "x", mpi)):
        (tmp_path / str(pid)).mkdir()
        (tmp_path / str(pid) / "environ").write_text(said)
        stat = f"{pid} ({command}) S {parent} {'0 ' * 17}{pid} 0\n"
        (tmp_path / str(pid) / "stat").write_text(stat)

    assert [(each.pid, each.rank, each.job) for each in ranks_here(tmp_path)] == [(11, 3, ""), (12, 5, "")]


def test_the_silent_rank_comes_first_and_the_nearest_ones_after_it() -> None:
    ranks = [LocalRank(pid=100 + number, rank=number) for number in range(8)]

    assert [each.rank for each in chosen(ranks, 5)] == [5, 4, 6, 3]
    assert [each.rank for each in chosen(ranks, None)] == [0, 1, 2, 3]
    assert [each.rank for each in chosen(ranks, 77)] == [7, 6, 5, 4]


def test_sockets_are_those_of_the_ranks() -> None:
    ours = 'ESTAB 0 0 a:1 b:2 users:(("python",pid=41,fd=3))\n\t cubic rtt:0.1'
    other = 'ESTAB 0 0 c:1 d:2 users:(("x",pid=410,fd=3))\n\t x'

    assert sockets_of(f"{ours}\n{other}\n", {41}) == ours


def test_link_counters_are_told_against_those_at_the_start() -> None:
    before = "GPU 0: H200\n\t Link 0: Replay Errors: 0\n\t Link 1: Replay Errors: 3\n"
    now = "GPU 0: H200\n\t Link 0: Replay Errors: 0\n\t Link 1: Replay Errors: 71\n"

    assert changed(before, now) == "GPU 0: H200\n  now Link 1: Replay Errors: 71\n  was Link 1: Replay Errors: 3"
    assert changed(before, before) == "[none has changed]"


def test_the_cgroup_of_a_rank_says_its_limits_and_counters(tmp_path: Path) -> None:
    (tmp_path / "proc" / "7").mkdir(parents=True)
    (tmp_path / "proc" / "7" / "cgroup").write_text("0::/kubepods/pod1\n")
    (tmp_path / "cgroup" / "kubepods" / "pod1").mkdir(parents=True)
    (tmp_path / "cgroup" / "kubepods" / "pod1" / "memory.events").write_text("oom_kill 1\n")

    assert cgroup_of(tmp_path / "proc", tmp_path / "cgroup", 7) == "memory.events:\noom_kill 1\n"
    (tmp_path / "proc" / "7" / "cgroup").write_text("5:memory:/slurm\n")
    assert cgroup_of(tmp_path / "proc", tmp_path / "cgroup", 7) == "[no cgroup v2]"


def test_ras_is_asked_where_its_port_answers() -> None:
    import socket

    with socket.socket() as listening:
        listening.bind(("127.0.0.1", 0))
        listening.listen(1)
        asked: list[bytes] = []

        def answer() -> None:
            connection, _ = listening.accept()
            with connection:
                asked.append(connection.recv(100))
                connection.sendall(b"NCCL version 2.28.3\nJob summary\n")

        thread = threading.Thread(target=answer)
        thread.start()
        said = ras_status(listening.getsockname())
        thread.join()

    assert said == "NCCL version 2.28.3\nJob summary\n"
    assert asked == [b"verbose status\n"]


# --- what bounds it ---------------------------------------------------------------------------------------------------


def test_one_cause_begins_one_capture_and_an_hour_has_so_many(tmp_path: Path) -> None:
    probe = capture(tmp_path, fixed(("a", "b")), per_hour=2)
    others = [Trigger(kind="gpu", key=f"xid{number}", why="x") for number in (48, 94, 95)]

    assert taken(probe, GPU)[0].startswith("rootrank: capture id=")
    assert taken(probe, GPU) == []
    assert taken(probe, others[0])
    assert taken(probe, others[1], others[2]) == []
    assert len(list((tmp_path / "captures").glob("*.txt"))) == 2


def test_what_was_passed_over_is_counted_in_the_next_one(tmp_path: Path) -> None:
    probe = capture(tmp_path, fixed(("a", "b")), per_hour=1)
    taken(probe, GPU)
    taken(probe, Trigger(kind="gpu", key="other", why="x"))
    probe._taken.clear()

    assert " passed_over=1 " in taken(probe, Trigger(kind="gpu", key="third", why="x"))[0]


def test_a_question_that_hangs_is_left_and_the_others_are_asked(tmp_path: Path) -> None:
    hold = threading.Event()

    def parts_of(ranks: Sequence[LocalRank]) -> Iterator[Part]:
        yield Part("hangs", lambda: str(hold.wait(60)))
        yield Part("answers", lambda: "at once")

    began_s = time.monotonic()
    lines = taken(capture(tmp_path, parts_of, timeout_s=1), GPU)
    hold.set()

    assert time.monotonic() - began_s < 8
    assert any("[did not answer within 1 s]" in line for line in lines)
    assert any("no time or room was left" in line or "at once" in line for line in lines)


def test_while_too_many_questions_hang_none_is_asked() -> None:
    hold = threading.Event()
    steps = Steps()
    for _ in range(MAX_HANGING):
        steps.run(lambda: str(hold.wait(60)), 0.01)

    assert "still hang" in steps.run(lambda: "fine", 5)
    hold.set()
    eventually(lambda: steps.run(lambda: "fine", 5) == "fine", "they came back")


def test_what_fails_says_why() -> None:
    assert "No such file" in Steps().run(lambda: Path("/nonexistent/x").read_text(), 5)


def test_size_and_lines_are_bounded_and_what_is_left_out_is_said(tmp_path: Path) -> None:
    probe = capture(tmp_path, fixed(("long", "x\n" * 100_000), ("after", "y")), max_bytes=4096, max_lines=100)
    lines = taken(probe, GPU)

    assert len(lines) == 102
    assert "more lines on the node" in lines[-1]
    (file,) = (tmp_path / "captures").glob("*.txt")
    assert len(file.read_text(encoding="utf-8").splitlines()) > 2000
    assert "no time or room was left for it" in file.read_text(encoding="utf-8")
    assert file.stat().st_mode & 0o077 == 0


def test_the_oldest_captures_go_first(tmp_path: Path) -> None:
    for number in range(5):
        path = keep(tmp_path, f"{number}.txt", "x" * 1000, 3000)
        os.utime(path, ns=(number * 10**9, number * 10**9))

    assert sorted(each.name for each in tmp_path.iterdir()) == ["2.txt", "3.txt", "4.txt"]


def test_with_ship_off_only_the_line_that_tells_of_it_is_sent(tmp_path: Path) -> None:
    (head,) = taken(capture(tmp_path, fixed(("a", "b")), ship=False), GPU)

    assert f"file={tmp_path}/captures/" in head


@pytest.mark.parametrize(
    "table", ["per_hour = -1", "timeout_s = 0", "max_bytes = 1", 'marks = "relative/*.log"', "silent_s = 0"]
)
def test_bounds_that_are_none_are_refused(tmp_path: Path, table: str) -> None:
    path = tmp_path / "node.toml"
    path.write_text(f"[capture]\n{table}\n", encoding="utf-8")

    with pytest.raises(ConfigError, match=r"capture\."):
        load(path, {})


# --- in the agent -----------------------------------------------------------------------------------------------------


@pytest.fixture
def config(tmp_path: Path) -> Config:
    (tmp_path / "kernel.kmsg").touch()
    (tmp_path / "rank0.log").touch()
    return Config(
        reporter="n", profile="none", sources={"capture": True}, start_at="beginning",
        spool=SpoolSettings(dir=str(tmp_path / "spool")), clock=ClockSettings(beacon=False),
        source=(
            SourceSettings(name="kmsg", kind="kernel", type="kmsg", path=str(tmp_path / "kernel.kmsg")),
            SourceSettings(name="rank0.log", path=str(tmp_path / "rank0.log")),
        ),
    )  # fmt: skip


class Running:
    def __init__(self, config: Config) -> None:
        self.sink = FakeSink()
        self.agent = Agent(config, self.sink, lambda text: None)
        self._thread = threading.Thread(target=self.agent.run)
        self._thread.start()

    def captures(self) -> list[str]:
        return [body for body in self.sink.bodies() if body.startswith("rootrank: capture id=")]

    def stop(self) -> None:
        self.agent.request_stop()
        self._thread.join(30)
        assert not self._thread.is_alive()


def test_a_fatal_line_of_the_kernel_begins_a_capture_and_one_of_a_program_does_not(
    config: Config, tmp_path: Path
) -> None:
    running = Running(config)
    try:
        append(tmp_path / "rank0.log", f"{XID}\n")
        eventually(lambda: XID in running.sink.bodies(), "the program's line")
        append(tmp_path / "rank0.log", "step 2\n")
        eventually(lambda: "step 2" in running.sink.bodies(), "a later line")
        assert running.captures() == []
        append(tmp_path / "kernel.kmsg", f"{KMSG}\n")
        eventually(running.captures, "a capture", within_s=60)
    finally:
        running.stop()

    assert len(running.captures()) == 1
    assert events_of(running.sink) == ["agent.capture", "gpu.xid"]


def events_of(sink: FakeSink) -> list[str]:
    """What align makes of all that the agent sent: quotes of kernel lines are no events."""
    fold = NodeFold(signals.load())
    outputs = [output for record in sink.batches() for output in fold.apply(record, now_ns=record.clock.wall_ns)]
    shapes = [msgspec.to_builtins(output.record) for output in outputs]
    names = {event["name"] for shape in shapes for event in shape.get("events", ()) if event["source"] != "rank0.log"}
    return sorted(names)


def test_it_is_off_unless_it_is_asked_for(config: Config, tmp_path: Path) -> None:
    running = Running(msgspec.structs.replace(config, sources={}, profile="full"))
    try:
        append(tmp_path / "kernel.kmsg", f"{KMSG}\n")
        eventually(lambda: any("79" in body for body in running.sink.bodies()), "the line")
        append(tmp_path / "rank0.log", "step 2\n")
        eventually(lambda: "step 2" in running.sink.bodies(), "a later line")
    finally:
        running.stop()

    assert running.captures() == []
    assert not (tmp_path / "spool" / "captures").exists()
