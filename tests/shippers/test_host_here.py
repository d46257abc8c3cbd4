"""The probes against the machine that the tests run on: what is there is read, what is not is said with the reason."""

import itertools
import os
import signal
import subprocess
import sys
import time
import uuid
from collections.abc import Iterator
from functools import partial
from pathlib import Path

import pytest

from shippers.builtin import BUILT_IN, is_on, make
from shippers.config import Config
from shippers.pieces import Moment
from shippers.probed import ProbedSource
from shippers.probes import cgroups
from shippers.probes.host_sources import HOST
from shippers.probes.mounts import Mounts
from shippers.probes.tasks import Tasks
from shippers.probes.throttling import Throttling
from shippers.probes.tree import Tree
from tests.shippers.fakes import LARGE, eventually

NAMES = [row[0] for row in HOST]
# Of every Linux machine that has /proc and a network of its own.
ALWAYS = {"memory", "tcp", "mounts", "descriptors", "tasks"}


def now(later_s: float = 0.0) -> Moment:
    return Moment(
        observed_ns=time.time_ns(), mono_ns=time.monotonic_ns() + int(later_s * 1e9), wall_ns=time.time_ns()
    )  # fmt: skip


def has_looked(source: ProbedSource, times: int) -> bool:
    return source.spent.looks >= times


@pytest.mark.parametrize("name", NAMES)
def test_a_source_reads_this_machine_or_says_what_it_looked_for(name: str) -> None:
    row = next(each for each in BUILT_IN if each.name == name)
    source = row.make(Config(), None)
    assert isinstance(source, ProbedSource)
    told: list[str] = []
    for look in range(3):
        source.look(now(look * max(31.0, source.every_s)))
        eventually(partial(has_looked, source, look + 1), "a look")
        piece = source.read(LARGE, now(), itertools.count())
        told += [line.body for line in piece.lines] if piece else []
    progress = source.progress()
    source.close()
    assert progress.kind == "telemetry"
    if progress.state == "on":
        assert progress.reason is None
        assert len(told) < 20, "a firehose"
    else:
        assert len(progress.reason or "") > 10
        assert name not in ALWAYS, progress.reason


def test_profiles_hold_what_they_should() -> None:
    on = {profile: {each.name for each in BUILT_IN if is_on(each, Config(profile=profile))} & {*NAMES}
          for profile in ("none", "minimal", "gpu", "full")}  # fmt: skip
    assert on["none"] == set()
    assert on["full"] == {*NAMES}
    assert on["full"] - on["gpu"] == {"nvme", "descriptors", "tasks", "sel", "ras"}
    made = make(Config(profile="none", sources={"pressure": True}), {})
    assert [source.name for source in made] == ["pressure"]


@pytest.fixture
def tight_cgroup() -> Iterator[Path | None]:
    """A cgroup of this machine with a tenth of a processor; None where none may be made."""
    where = cgroups.hierarchy(Tree(), "cpu")
    if where is None:
        yield None
        return
    folder = Path(where.base) / f"rootrank-test-{uuid.uuid4().hex[:8]}"
    try:
        folder.mkdir()
        if where.is_v2:
            (folder / "cpu.max").write_text("10000 100000")
        else:
            (folder / "cpu.cfs_quota_us").write_text("10000")
    except OSError:
        yield None
        return
    yield folder
    eventually(lambda: not (folder / "cgroup.procs").read_text().strip(), "the cgroup is empty")
    folder.rmdir()


def test_a_process_that_is_held_back_here_is_told(tight_cgroup: Path | None) -> None:
    probe = Throttling()
    probe.open("")
    probe.look(now())
    if tight_cgroup is None:
        assert not os.access(cgroups.ROOT, os.W_OK) or os.geteuid() != 0 or not Path(cgroups.ROOT).is_mount()
        return
    busy = subprocess.Popen([sys.executable, "-c", "while True: pass"])
    try:
        (tight_cgroup / "cgroup.procs").write_text(str(busy.pid))
        later_s = itertools.count(130, 130)
        lines = eventually(
            lambda: [line for line in probe.look(now(next(later_s))) if tight_cgroup.name in line], "it is told"
        )
    finally:
        busy.kill()
        busy.wait()
    assert lines[0].startswith(f"rootrank: cpu.throttle state=began cgroup=/{tight_cgroup.name} throttled_percent=")
    assert f"pid={busy.pid}" in lines[0]


def test_a_process_that_waits_in_the_kernel_here_is_told() -> None:
    # A process that has called vfork cannot be woken until its child has started something or ended.
    waits = subprocess.Popen(
        [sys.executable, "-c", "import ctypes\nlibc = ctypes.CDLL(None)\nlibc.vfork() or libc.pause()"],
        start_new_session=True,
    )
    try:
        stat = Path(f"/proc/{waits.pid}/stat")
        eventually(lambda: stat.read_text().rpartition(") ")[2].startswith("D"), "it waits")
        probe = Tasks()
        probe.open("")
        told = [line for later_s in (0, 30, 60, 90) for line in probe.look(now(later_s)) if f"pid={waits.pid} " in line]
    finally:
        os.killpg(waits.pid, signal.SIGKILL)
        waits.wait()
    assert len(told) == 1
    assert told[0].startswith("rootrank: task.blocked process=python")


def test_the_mounts_here_leave_no_threads_behind() -> None:
    probe = Mounts()
    probe.open("")
    for later_s in range(0, 150, 15):
        assert probe.look(now(later_s)) == []
