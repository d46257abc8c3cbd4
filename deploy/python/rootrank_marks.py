"""Marks of a training program for rootrank: copy this file, or put its folder on PYTHONPATH. No dependencies.

    from rootrank_marks import checkpoint, phase, rank, step

    rank(3)                             # only where no launcher sets RANK (mp.spawn)
    step(1200)                          # after each step
    phase("evaluation")                 # init, compile, evaluation, checkpoint_load, train, shutdown
    checkpoint("start", step=1200)      # and checkpoint("end", step=1200)

A call puts a line into a short queue and returns; a thread writes it into the folder that the node's agent watches. No
call waits for a disk and none raises: without the folder, on a full disk or with a value that fits nothing, the mark is
lost and training goes on. Steps are told at most once a second (`EVERY_S`).
"""

import atexit
import os
import re
import stat
import threading
import time
from collections import deque

EVERY_S = 1.0
_WAITS = 1_000
_FLAGS = os.O_WRONLY | os.O_APPEND | os.O_CREAT | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC
_JOBS = ("SLURM_HET_JOB_ID", "SLURM_JOB_ID", "ROOTRANK_JOB_ID", "TORCHELASTIC_RUN_ID", "PMIX_NAMESPACE")
_RANKS = (
    ("RANK", "LOCAL_RANK", "WORLD_SIZE"),
    ("OMPI_COMM_WORLD_RANK", "OMPI_COMM_WORLD_LOCAL_RANK", "OMPI_COMM_WORLD_SIZE"),
    ("SLURM_PROCID", "SLURM_LOCALID", "SLURM_NTASKS"),
)


def step(number, phase="train"):
    """A step is done."""
    try:
        now = time.monotonic()
        if now - _state.told_s >= EVERY_S:
            _state.told_s = now
            _put(step=number, phase=phase)
    except Exception:  # noqa: S110 (never into training)
        pass


def phase(name, step=None):
    """What the program does from now on: a phase may take long, a step may not."""
    _put(step=step, phase=name)


def checkpoint(what, step=None):
    """A checkpoint is begun ("start") or written ("end")."""
    _put(step=step, checkpoint=what)


def rank(number):
    """The rank of this process, where no launcher says it."""
    _state.rank = number


def flush(seconds=0.5):
    """Wait until all is written, so long at most; called at exit."""
    end = time.monotonic() + seconds
    while _state.waiting and time.monotonic() < end:
        _state.wake.set()
        time.sleep(0.002)


class _State:
    """What one process knows; a child of a fork begins anew."""

    def __init__(self):
        self.waiting = deque(maxlen=_WAITS)
        self.wake = threading.Event()
        self.writer = None
        self.told_s = float("-inf")
        self.rank = None


def _put(**values):
    try:
        _state.waiting.append((time.time_ns(), values))
        if _state.writer is None:
            _state.writer = threading.Thread(target=_write, args=(_state,), name="rootrank-marks", daemon=True)
            _state.writer.start()
        _state.wake.set()
    except Exception:  # noqa: S110 (never into training)
        pass


def _write(state):
    """Write what waits, for ever. A line that cannot be written is lost."""
    environment = os.environ
    job = next((v for n in _JOBS if (v := environment.get(n)) and (n, v) != ("TORCHELASTIC_RUN_ID", "none")), "")
    attempt = environment.get("SLURM_RESTART_COUNT") or environment.get("ROOTRANK_ATTEMPT") or "0"
    ranks = (tuple(environment.get(name, "") for name in names) for names in _RANKS)
    number, local_rank, world = next((found for found in ranks if found[0] and found[2]), ("", "", ""))
    folder = environment.get("ROOTRANK_JOBS_DIR", "/var/spool/rootrank") + "/marks/"
    name = re.sub(r"[^\w.-]", "_", f"marks-{os.geteuid()}-{job}-{os.getpid()}")[:200]
    own = {"job": job, "attempt": attempt}
    process = {"local_rank": local_rank, "world": world, "pid": os.getpid(), "pid_space": _pid_space()}
    told = not world or number == environment.get("SLURM_PROCID")  # of tasks the task prolog tells
    while True:
        state.wake.wait()
        state.wake.clear()
        while state.waiting:
            at_ns, values = state.waiting[0]
            try:
                own["rank"] = number if state.rank is None else state.rank
                text = _line(at_ns, "job.mark", {**own, **values})
                if not told:
                    text, told = _line(at_ns, "job.rank", {**own, **process}) + text, True
                _append(folder + name, text)
            except Exception:  # noqa: S110 (lost)
                pass
            state.waiting.popleft()


def _line(at_ns, thing, values):
    at = time.strftime("%Y-%m-%dT%H:%M:%S", time.gmtime(at_ns // 10**9))
    words = ((key, re.sub(r"[^\w.:@+-]", "_", str(value)[:128])) for key, value in values.items() if value is not None)
    said = " ".join(f"{key}={value}" for key, value in words if value)
    return f"{at}.{at_ns % 10**9:09d}Z rootrank: {thing} {said}\n"


def _append(path, text):
    fd = os.open(path, _FLAGS, 0o644)
    try:
        status = os.fstat(fd)
        if stat.S_ISREG(status.st_mode) and status.st_uid == os.geteuid():
            os.write(fd, text.encode("ascii", "replace"))
    finally:
        os.close(fd)


def _pid_space():
    try:
        return os.readlink("/proc/self/ns/pid").strip("pid:[]")  # noqa: PTH115
    except OSError:
        return "none"


def _begin_anew():
    global _state
    _state = _State()


_state = _State()
if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_begin_anew)
atexit.register(flush)
