"""The parts of a capture. Each only reads: no signal is sent, nothing is attached to, nothing is written or reset.

`/proc/PID/stack` and `wchan` are read by the kernel without stopping the task. `py-spy dump --nonblocking` reads the
memory of a process and never pauses it; without that option it would, so it is never called without.
"""

import shutil
import socket
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Final

from msgspec import Struct

from shippers.capture.bounded import output_of
from shippers.capture.ranks import LocalRank

TOOL_S: Final = 8.0
_TAIL_BYTES: Final = 128 * 1024
_FILE_BYTES: Final = 64 * 1024
_TASKS: Final = 64
_TASK_FILES: Final = ("comm", "wchan", "stack", "syscall", "schedstat")
_PROCESS_FILES: Final = ("status", "limits", "cgroup", "io", "oom_score")
_CGROUP_FILES: Final = (
    "cpu.stat", "cpu.max", "memory.current", "memory.max", "memory.events", "memory.stat", "pids.current",
    "cpu.pressure", "memory.pressure", "io.pressure", "cgroup.freeze",
)  # fmt: skip
_NVIDIA: Final[dict[str, tuple[str, ...]]] = {
    "gpus": ("nvidia-smi", "-q"),
    "nvlink status": ("nvidia-smi", "nvlink", "--status"),
}
_LINK_COUNTERS: Final = ("nvidia-smi", "nvlink", "--errorcounters")
_RAS: Final = ("127.0.0.1", 28028)


class Part(Struct, frozen=True):
    """A named question; `ask` may hang and is asked in a thread with a deadline."""

    name: str
    ask: Callable[[], str]


def parts(
    ranks: Sequence[LocalRank], proc: Path, cgroups: Path, baseline: str = "", ras: tuple[str, int] = _RAS
) -> Iterator[Part]:
    """All questions, those first whose answers are gone soonest."""
    for each in ranks:
        yield Part(f"rank {each.rank} pid {each.pid}: tasks", lambda each=each: tasks_of(proc, each.pid))  # type: ignore[misc]
        if shutil.which("py-spy"):
            command = ("py-spy", "dump", "--nonblocking", "--pid", str(each.pid))
            yield Part(f"rank {each.rank} pid {each.pid}: Python", lambda command=command: tool(command))  # type: ignore[misc]
    yield Part("NCCL RAS", lambda: ras_status(ras))
    if shutil.which("nvidia-smi"):
        for name, asked in _NVIDIA.items():
            yield Part(name, lambda asked=asked: tool(asked))  # type: ignore[misc]
        yield Part("nvlink counters since the agent started", lambda: changed(baseline, link_counters()))
    for each in ranks:
        yield Part(f"rank {each.rank} pid {each.pid}: cgroup", lambda each=each: cgroup_of(proc, cgroups, each.pid))  # type: ignore[misc]
    if ranks and shutil.which("ss"):
        pids = {each.pid for each in ranks}
        yield Part("sockets", lambda: sockets_of(tool(("ss", "-tinpH")), pids))
    if shutil.which("dmesg"):
        yield Part("kernel log", lambda: tool(("dmesg", "--color=never")))


def link_counters() -> str:
    """The error counters of all NVLinks; empty where there is no nvidia-smi."""
    return tool(_LINK_COUNTERS) if shutil.which(_LINK_COUNTERS[0]) else ""


def changed(before: str, now: str) -> str:
    """The lines that are not as they were, each with its earlier one, under the heading that it stands below."""
    if not before:
        return f"[nothing to compare with]\n{now}"
    earlier = before.splitlines()
    said, heading = [], ""
    for number, line in enumerate(now.splitlines()):
        if not line.startswith(("\t", " ")):
            heading = line
        was = earlier[number] if number < len(earlier) else ""
        if line != was:
            said.append(f"{heading}\n  now {line.strip()}\n  was {was.strip()}")
    return "\n".join(said) or "[none has changed]"


def tool(command: Sequence[str]) -> str:
    """What a program prints: its last lines."""
    return output_of(command, TOOL_S, _TAIL_BYTES)


def tasks_of(proc: Path, pid: int) -> str:
    """Where each thread of a process stands in the kernel, and what the process may and holds."""
    said = [f"{name}:\n{_read(proc / str(pid) / name)}" for name in _PROCESS_FILES]
    tasks = sorted((proc / str(pid) / "task").iterdir(), key=lambda each: int(each.name))
    for task in tasks[:_TASKS]:
        said.append(f"thread {task.name}")
        said.extend(f"  {name}: {_read(task / name).strip()}" for name in _TASK_FILES)
    if len(tasks) > _TASKS:
        said.append(f"[{len(tasks) - _TASKS} more threads]")
    return "\n".join(said)


def cgroup_of(proc: Path, cgroups: Path, pid: int) -> str:
    """Limits and counters of the process's cgroup."""
    lines = _read(proc / str(pid) / "cgroup").splitlines()
    inner = next((line.split(":", 2)[2] for line in lines if line.startswith("0::")), None)
    if inner is None:
        return "[no cgroup v2]"
    folder = cgroups / inner.lstrip("/")
    return "\n".join(f"{name}:\n{_read(folder / name)}" for name in _CGROUP_FILES if (folder / name).exists())


def sockets_of(text: str, pids: set[int]) -> str:
    """What `ss` says of the sockets of these processes: the line that names one, and the one with its counters."""
    wanted = [f"pid={pid}," for pid in pids]
    said: list[str] = []
    is_ours = False
    for line in text.splitlines():
        if not line.startswith(("\t", " ")):
            is_ours = any(each in line for each in wanted)
        if is_ours:
            said.append(line)
    return "\n".join(said)


def ras_status(address: tuple[str, int]) -> str:
    """What NCCL's RAS service of this node says, if it answers. It listens on loopback while a job runs."""
    with socket.create_connection(address, timeout=1) as connection:
        connection.settimeout(TOOL_S)
        connection.sendall(b"verbose status\n")
        said = b""
        while len(said) < _TAIL_BYTES and (piece := connection.recv(65536)):
            said += piece
    return said.decode("utf-8", "replace")


def _read(path: Path) -> str:
    try:
        with path.open("rb") as file:
            return file.read(_FILE_BYTES).decode("utf-8", "replace")
    except OSError as error:
        return f"[{error.strerror}]"
