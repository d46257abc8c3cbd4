"""The process that asks NVML, started by the agent with its settings as the first line on standard input.

It ends with the agent: the kernel kills it then, and it sees its input end. Not for people to run.
"""

import ctypes
import os
import select
import signal
import sys
from typing import Final

import msgspec

from shippers.nvml import messages
from shippers.nvml.judge import Judge, changes
from shippers.nvml.library import Library
from shippers.nvml.machine import Machine
from shippers.nvml.messages import AnyMessage, Settings
from shippers.nvml.watch import WAIT_MS, Stop, Watch

_SET_PARENT_DEATH_SIGNAL: Final = 1


def main() -> int:
    """Until the agent is gone or NVML must be opened anew. Returns the exit code."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # of the terminal, for the agent
    ctypes.CDLL(None, use_errno=True).prctl(_SET_PARENT_DEATH_SIGNAL, signal.SIGKILL)
    settings = msgspec.json.decode(sys.stdin.buffer.readline(), type=Settings)
    machine = Machine(settings.sys_root, settings.proc_root)
    pipe = _own_pipe()
    judge = Judge(changes(), settings.memo)
    watch = Watch(settings, machine, Library, judge, lambda message: _say(pipe, message), messages.now_ns)
    try:
        watch.open()
        while not _is_orphan(0 if watch.waits else WAIT_MS):
            watch.step()
    except Stop as stop:
        return stop.code
    except BrokenPipeError:
        pass
    return messages.ORPHANED


def _own_pipe() -> int:
    """The way to the agent, for nobody else: what the library prints goes where errors go, not into a message."""
    pipe = os.dup(sys.stdout.fileno())
    os.dup2(sys.stderr.fileno(), sys.stdout.fileno())
    return pipe


def _say(pipe: int, message: AnyMessage) -> None:
    data = messages.encode(message)
    while data:
        data = data[os.write(pipe, data) :]


def _is_orphan(timeout_ms: int) -> bool:
    """Whether the agent has closed its end."""
    readable, _, _ = select.select([sys.stdin.fileno()], [], [], timeout_ms / 1000)
    return bool(readable) and not os.read(sys.stdin.fileno(), 4096)


if __name__ == "__main__":
    code = main()
    # Without the destructors of the library, which may hang as any call of it.
    sys.stdout.flush()
    os._exit(code)
