"""Tasks that sleep in the kernel and cannot be woken, for long: they wait for a store or a driver.

Only files of `/proc` are read that do not take the lock of the process's memory, which a hung task may hold.
"""

from dataclasses import dataclass
from functools import lru_cache

from shippers.probes.counted import HostProbe
from shippers.probes.thresholds import thresholds

_KERNEL_THREAD = 0x00200000  # PF_KTHREAD
_UNINTERRUPTIBLE = "D"


@dataclass(frozen=True, slots=True, kw_only=True)
class Task:
    """What `/proc/PID/stat` says. `spent` is the processor time so far: it has run since when that grew."""

    pid: str
    process: str
    state: str
    flags: int
    spent: int
    started: str


def task(text: str) -> Task | None:
    """One line of `stat`; the name is in brackets and may hold any character."""
    head, _, rest = text.rpartition(")")
    pid, _, name = head.partition(" (")
    fields = rest.split()
    if len(fields) < 20 or not pid.isdecimal():
        return None
    return Task(
        pid=pid, process=name, state=fields[0], flags=int(fields[6]), spent=int(fields[11]) + int(fields[12]),
        started=fields[19],
    )  # fmt: skip


@lru_cache(maxsize=512)
def waits_in(function: str) -> str | None:
    """What a task waits for that sleeps in this function of the kernel."""
    for what, beginnings in thresholds().waits_in.items():
        if function.startswith(tuple(beginnings)):
            return what
    return None


class Tasks(HostProbe):
    """`stat` of every process, and of every thread of those that train."""

    name = "tasks"
    may_hang = True

    def __init__(self, root: str = "/") -> None:
        super().__init__(root)
        self._blocked: dict[str, tuple[int, float]] = {}  # by task and start: processor time, since when
        self._told: dict[str, Task] = {}

    def measure(self) -> None:
        """Who has slept since the last looks."""
        limits = thresholds().limits
        asleep = {f"{each.pid} {each.started}": each for each in self._asleep()}
        blocked = {key: self._since(key, each) for key, each in asleep.items()}
        self._blocked = blocked
        for key, (_, since_s) in sorted(blocked.items(), key=lambda item: item[1][1]):
            is_long = self.now_s - since_s >= limits["blocked_s"]
            if not is_long or key in self._told or len(self._told) >= limits["tasks_told"]:
                continue
            self._told[key] = asleep[key]
            self._tell_blocked(asleep[key], self.now_s - since_s)
        for key in [key for key in self._told if key not in blocked]:
            over = self._told.pop(key)
            self.tell("task.runs", pid=over.pid, process=over.process)

    def _since(self, key: str, now: Task) -> tuple[int, float]:
        spent, since_s = self._blocked.get(key, (now.spent, self.now_s))
        return (spent, since_s) if spent == now.spent else (now.spent, self.now_s)

    def _asleep(self) -> list[Task]:
        training = tuple(thresholds().names["training"])
        found: list[Task] = []
        for pid in self.tree.names("/proc"):
            if not pid.isdecimal():
                continue
            main = task(self.tree.text(f"/proc/{pid}/stat") or "")
            if main is None or main.flags & _KERNEL_THREAD:
                continue
            if main.state == _UNINTERRUPTIBLE:
                found.append(main)
            if main.process.startswith(training):
                threads = (name for name in self.tree.names(f"/proc/{pid}/task") if name != pid)
                others = (task(self.tree.text(f"/proc/{pid}/task/{name}/stat") or "") for name in threads)
                found.extend(each for each in others if each and each.state == _UNINTERRUPTIBLE)
        return found

    def _tell_blocked(self, blocked: Task, seconds: float) -> None:
        function = self._function(blocked.pid)
        self.tell("task.blocked", process=blocked.process, pid=blocked.pid, seconds=f"{seconds:.0f}", function=function,
                  blocked_in=(waits_in(function) or "").replace(" ", "_") or None if function else None)  # fmt: skip

    def _function(self, pid: str) -> str | None:
        """The first function of its stack that says something; else the one that it sleeps in."""
        frames = (self.tree.text(f"/proc/{pid}/stack") or "").splitlines()
        stack = [frame.partition("] ")[2].partition("+")[0] for frame in frames]
        named = next((function for function in stack if waits_in(function)), None)
        return named or (self.tree.text(f"/proc/{pid}/wchan") or "").strip("\0\n 0") or None
