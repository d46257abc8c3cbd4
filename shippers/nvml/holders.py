"""Which processes hold memory of which GPU, told on change, and those that are dead and hold it still."""

from collections.abc import Callable, Iterator, Sequence
from typing import Final

from shippers.nvml.judge import Line
from shippers.nvml.library import Process
from shippers.nvml.machine import ProcessState
from shippers.nvml.messages import Value

DEAD_LOOKS: Final = 2  # a process that has just ended gives its memory back within a moment
MAX_PROCESSES: Final = 256  # of one GPU


class Holders:
    """The processes of one GPU."""

    def __init__(self) -> None:
        self._here: dict[int, int | None] = {}
        self._dead: dict[int, int] = {}

    def take(self, listed: Sequence[Process], state_of: Callable[[int], ProcessState] | None) -> Iterator[Line]:
        """What is new. `state_of` is None where the processes of the host cannot be seen."""
        now = {process.pid: process for process in listed[:MAX_PROCESSES]}
        for pid, process in now.items():
            state = "here" if state_of is None else state_of(pid)
            if state == "here":
                self._dead.pop(pid, None)
                if pid not in self._here:
                    yield "gpu.process", _said(process)
            else:
                looks = self._dead[pid] = self._dead.get(pid, 0) + 1
                if looks == DEAD_LOOKS:
                    yield "gpu.memory_dead", {**_said(process), "state": state}
            self._here[pid] = process.memory_mib
        for pid in [pid for pid in self._here if pid not in now]:
            del self._here[pid]
            was_dead = self._dead.pop(pid, 0) >= DEAD_LOOKS
            yield "gpu.process_gone", {"pid": pid, **({"state": "dead"} if was_dead else {})}


def _said(process: Process) -> dict[str, Value]:
    values: dict[str, Value] = {"pid": process.pid}
    if process.memory_mib is not None:
        values["memory_mib"] = process.memory_mib
    if process.gpu_instance is not None:
        values["gi"] = process.gpu_instance
    return values
