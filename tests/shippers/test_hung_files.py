"""The agent while a real file system hangs in the kernel: FUSE, whose server answers nothing."""

import os
import signal
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path

import msgspec
import pytest

from shippers.agent import STOP_S
from shippers.check import far_spool_problems
from shippers.config import BatchSettings, ClockSettings, Config, JobsSettings, SourceSettings, SpoolSettings
from tests.shippers.fakes import FakeSink, append, eventually
from tests.shippers.fuse import FuseFolder, fuse_folder
from tests.shippers.test_agent import running

pytestmark = pytest.mark.fuse
ROOT = Path(__file__).parents[2]


class Node:
    """A node with a local file and a folder that may hang: it is written in `backing` and read in `far`."""

    def __init__(self, folder: Path, fuse: FuseFolder | None = None) -> None:
        self.folder, self.backing, self.far = folder, folder / "backing", folder / "far"
        self.local = folder / "local.log"
        self.fuse = fuse

    def config(self, *, name: str = "rank0.log", **changes: object) -> Config:
        config = Config(
            cluster="c", reporter="n1", run_id="live", profile="none", start_at="beginning",
            batch=BatchSettings(linger_ms=5), clock=ClockSettings(beacon=False),
            spool=SpoolSettings(dir=str(self.folder / "spool"), max_bytes=64 * 2**20),
            source=(
                SourceSettings(name="far", path=str(self.far / name)),
                SourceSettings(name="local", path=str(self.local)),
            ),
        )  # fmt: skip
        return msgspec.structs.replace(config, **changes)


@pytest.fixture
def node(tmp_path: Path) -> Iterator[Node]:
    (tmp_path / "backing").mkdir()
    (tmp_path / "far").mkdir()
    with fuse_folder(tmp_path / "backing", tmp_path / "far") as fuse:
        yield Node(tmp_path, fuse)


def hang(node: Node) -> None:
    """From here on it hangs, and the agent with it as far as it ever will."""
    assert node.fuse is not None
    node.fuse.hang()
    assert node.fuse.held.wait(10), "the agent looks at it"


def states(sink: FakeSink) -> dict[str, tuple[str, str | None]]:
    told = sink.progress()
    return {each.source: (each.state, each.reason) for each in told[-1].sources} if told else {}


def is_refused(sink: FakeSink, source: str) -> bool:
    state, reason = states(sink).get(source, ("", None))
    return state == "refused" and (reason or "").startswith("has not answered for ")


@pytest.mark.slow
@pytest.mark.parametrize("name", ["rank0.log", "*.log", "**/rank*.log"])
def test_a_file_system_that_hangs_holds_up_its_source_alone(node: Node, name: str) -> None:
    log, sink = node.backing / "rank0.log", FakeSink()
    append(log, "far 0\n")
    append(node.local, "local 0\n")
    with running(node.config(name=name), sink):
        eventually(lambda: len(sink.bodies()) == 2, "both are read")
        hang(node)
        append(log, "far 1\n")
        log.rename(log.with_suffix(".log.1"))  # rotated meanwhile
        append(log, "far 2\n")
        written_s = time.monotonic()
        append(node.local, "local 1\n")
        eventually(lambda: "local 1" in sink.bodies(), "others go on", within_s=5)
        assert time.monotonic() - written_s < 2
        eventually(lambda: any(is_refused(sink, each) for each in states(sink)), "it is said", within_s=30)
        assert states(sink)["local"] == ("on", None)
        assert node.fuse is not None
        node.fuse.answer()
        eventually(lambda: "far 2" in sink.bodies(), "it is read on")
        eventually(lambda: {state for state, _ in states(sink).values()} == {"on"}, "it is well again")

    assert [each for each in sink.bodies() if each.startswith("far")] == ["far 0", "far 1", "far 2"]
    assert [batch.gaps for batch in sink.batches() if batch.gaps] == []


def test_one_that_hangs_from_the_start_on_is_said_and_read_later(node: Node) -> None:
    append(node.backing / "rank0.log", "far 0\n")
    append(node.local, "local 0\n")
    sink = FakeSink()
    assert node.fuse is not None
    node.fuse.hang()
    with running(node.config(), sink):
        eventually(lambda: sink.bodies() == ["local 0"], "others are read")
        eventually(lambda: is_refused(sink, "far"), "it is said")
        node.fuse.answer()
        eventually(lambda: sink.bodies() == ["local 0", "far 0"], "it is read")


def test_an_agent_that_is_started_while_it_hangs_goes_on_where_it_was(node: Node) -> None:
    log, sinks = node.backing / "rank0.log", [FakeSink(), FakeSink(), FakeSink()]
    append(log, "far 0\n")
    assert node.fuse is not None
    with running(node.config(), sinks[0]):
        eventually(lambda: sinks[0].bodies() == ["far 0"], "it is read")
        hang(node)
        append(log, "far 1\n")
    with running(node.config(), sinks[1]):
        eventually(lambda: is_refused(sinks[1], "far"), "it is said")
    node.fuse.answer()
    with running(node.config(), sinks[2]):
        eventually(lambda: sinks[2].bodies(), "it is read on")

    assert [sink.bodies() for sink in sinks] == [["far 0"], [], ["far 1"]]


def test_one_that_is_mounted_later_and_one_behind_a_link_hold_up_nobody_either(tmp_path: Path) -> None:
    node, sink = Node(tmp_path), FakeSink()
    for each in (node.backing, node.far, tmp_path / "links"):
        each.mkdir()
    (tmp_path / "links" / "rank1.log").symlink_to(node.far / "rank1.log")
    for number in (0, 1):
        append(node.backing / f"rank{number}.log", f"far {number}\n")
    links = SourceSettings(name="links", path=str(tmp_path / "links" / "*.log"))
    config = node.config()
    with running(msgspec.structs.replace(config, source=(*config.source, links)), sink), ExitStack() as mounted:
        eventually(lambda: states(sink).get("local"), "the first pass")
        node.fuse = mounted.enter_context(fuse_folder(node.backing, node.far))
        eventually(lambda: sorted(sink.bodies()) == ["far 0", "far 1"], "both are read")
        eventually(lambda: sum(each.name.startswith("files ") for each in threading.enumerate()) == 2, "apart")
        hang(node)
        append(node.local, "local 0\n")
        eventually(lambda: "local 0" in sink.bodies(), "others go on", within_s=5)
        node.fuse.answer()


def test_the_folder_of_jobs_may_hang(node: Node) -> None:
    for part in ("jobs", "marks"):
        (node.backing / part).mkdir()
    sink = FakeSink()
    config = node.config(jobs=JobsSettings(dir=str(node.far)), sources={"jobs": True})
    with running(config, sink):
        eventually(lambda: states(sink).get("jobs") == ("on", None), "it is read")
        hang(node)
        append(node.local, "local 0\n")
        eventually(lambda: "local 0" in sink.bodies(), "others go on", within_s=5)
        assert node.fuse is not None
        node.fuse.answer()


def test_a_program_that_is_started_meanwhile_is_not_held_up_by_files_that_it_inherits(tmp_path: Path) -> None:
    node, sink = Node(tmp_path), FakeSink()
    node.backing.mkdir()
    node.far.mkdir()
    append(node.backing / "rank0.log", "far 0\n")
    with fuse_folder(node.backing, node.far, flushes=True) as node.fuse, running(node.config(), sink):
        eventually(lambda: sink.bodies() == ["far 0"], "it is read")
        hang(node)
        assert subprocess.run(["true"], timeout=10, check=False).returncode == 0
        assert node.fuse is not None
        node.fuse.answer()


def test_check_warns_of_a_spool_that_may_hang(node: Node) -> None:
    assert far_spool_problems(node.config()) == []
    far = far_spool_problems(node.config(spool=SpoolSettings(dir=str(node.far / "spool"))))
    assert [each.do for each in far] == ["set [spool] dir to a folder on a local disk"]


def start(node: Node, **environment: str) -> subprocess.Popen[bytes]:
    """The command, with a Kafka that is away."""
    settings = node.folder / "node.toml"
    settings.write_text(
        f"""
cluster = "c"
reporter = "n1"
profile = "none"
[clock]
beacon = false
[kafka]
bootstrap = "127.0.0.1:1"
[spool]
dir = "{node.folder / "spool"}"
[[source]]
path = "{node.far / "rank0.log"}"
""",
        encoding="utf-8",
    )
    return subprocess.Popen(
        [sys.executable, "-m", "shippers", "run", "--config", str(settings)], stderr=subprocess.PIPE,
        env={**os.environ, "PYTHONPATH": str(ROOT), **environment},
    )  # fmt: skip


def test_the_watchdog_hears_of_passes_meanwhile_and_sigterm_ends_it_in_time(node: Node) -> None:
    append(node.backing / "rank0.log", "far 0\n")
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as systemd:
        systemd.bind(str(node.folder / "notify"))
        systemd.settimeout(20)
        agent = start(node, NOTIFY_SOCKET=str(node.folder / "notify"), WATCHDOG_USEC="400000")
        assert b"READY=1" in systemd.recv(4096)
        hang(node)
        end_s = time.monotonic() + 3
        beats = 0
        while time.monotonic() < end_s:
            beats += b"WATCHDOG=1" in systemd.recv(4096)
        assert beats >= 10
        stopped_s = time.monotonic()
        agent.send_signal(signal.SIGTERM)
        _, said = agent.communicate(timeout=20)

    assert time.monotonic() - stopped_s < STOP_S + 2
    assert (agent.returncode, b"Traceback" in said) == (0, False), said


def test_what_hangs_is_said_when_the_watchdog_ends_the_agent(node: Node) -> None:
    append(node.backing / "rank0.log", "far 0\n")
    agent = start(node)
    hang(node)
    agent.send_signal(signal.SIGABRT)  # as systemd does it
    _, said = agent.communicate(timeout=20)

    assert agent.returncode == -signal.SIGABRT
    assert b"in read_pass" in said or b"in _pass" in said, said
    assert b"in _answer_to" in said, said
