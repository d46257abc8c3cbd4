"""A few more processes that read files for this one. What they give back comes in the order in which it was asked."""

import gc
import multiprocessing
import os
import signal
import sys
import threading
from collections import deque
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import Future, ProcessPoolExecutor
from concurrent.futures.process import BrokenProcessPool
from multiprocessing.connection import wait
from typing import Final, Self, TypeVar

Task = TypeVar("Task")
Result = TypeVar("Result")

MAX_PROCESSES: Final = 8
# Starting processes costs about as much as reading so many bytes.
WORTH_BYTES: Final = 16 * 1024 * 1024
# So much of files is asked for at once.
TASK_BYTES: Final = 1024 * 1024
# So many results wait for this process at most, for each process: that bounds memory.
AHEAD: Final = 3


# Reading makes hundreds of thousands of things that hold values only, and next to no cycles: looking for them after
# every 700 new things costs a tenth of the time.
GC_EVERY: Final = 50_000


def look_seldom_for_cycles() -> None:
    """For a process that reads logs and ends."""
    gc.set_threshold(GC_EVERY, 20, 20)


class WorkerLostError(RuntimeError):
    """A process was killed as it read."""


def cores() -> int:
    """How many processors this process may use."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


class Workers:
    """So many processes, started once something is worth it; with one or none everything is done here."""

    def __init__(self, processes: int | None = None, *, worth_bytes: int = WORTH_BYTES, method: str = "") -> None:
        self.count = min(cores(), MAX_PROCESSES) if processes is None else processes
        self._worth_bytes, self._method = worth_bytes, method
        self._pool: ProcessPoolExecutor | None = None

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        if self._pool is not None:
            # What nobody wants any more is not begun; what is being read, at most TASK_BYTES a process, is waited for.
            # The pool's thread, left to itself, may be caught by the end of the interpreter, which prints a traceback.
            self._pool.shutdown(wait=True, cancel_futures=True)
            self._pool = None

    def are_worth(self, size_bytes: int) -> bool:
        """Whether so many bytes are read faster by several processes."""
        return self.count > 1 and size_bytes >= self._worth_bytes

    def ask(self, function: Callable[[Task], Result], task: Task) -> "Future[Result]":
        """Let one of the processes work."""
        try:
            return self._started().submit(function, task)
        except BrokenProcessPool as error:
            raise _lost() from error

    def map(self, function: Callable[[Task], Result], tasks: Iterable[Task]) -> Iterator[Result]:
        """What the function makes of each task, in order; only a few tasks ahead."""
        waiting: deque[Future[Result]] = deque()
        for task in tasks:
            waiting.append(self.ask(function, task))
            if len(waiting) > AHEAD * self.count:
                yield result_of(waiting.popleft())
        while waiting:
            yield result_of(waiting.popleft())

    def _started(self) -> ProcessPoolExecutor:
        if self._pool is None:
            context = multiprocessing.get_context(self._method or _method())
            self._pool = ProcessPoolExecutor(self.count, mp_context=context, initializer=_begin)
        return self._pool


def result_of(future: "Future[Result]") -> Result:
    """The result of a task, once it is there."""
    try:
        return future.result()
    except BrokenProcessPool as error:
        raise _lost() from error


def _lost() -> WorkerLostError:
    return WorkerLostError(
        "a process that read logs was killed, by a person or because memory ran out; --processes 1 needs the least"
    )


def _method() -> str:
    """A copy of this process has read all tables already; with threads beside it a copy may hang."""
    return "fork" if sys.platform == "linux" and threading.active_count() == 1 else "spawn"


def _begin() -> None:
    """An interrupt is for the process that asked; no process lives longer than that one."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    look_seldom_for_cycles()
    threading.Thread(target=_follow_parent, daemon=True).start()


def _follow_parent() -> None:
    parent = multiprocessing.parent_process()
    if parent is not None:
        wait([parent.sentinel])
        os._exit(1)
