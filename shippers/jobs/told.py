"""Lines that scripts and programs write into the watched folder: `STAMP rootrank: THING key=value …`.

Everybody on the node may write there, so a line is read word by word and written anew: only these things, only these
keys, only values of these shapes. What is anything else never leaves the node.
"""

import re
from datetime import datetime
from typing import Final

from msgspec import Struct

from shippers.jobs.environment import is_step_of_tasks, listed, number, tasks_are_ranks

MAX_LINE_BYTES: Final = 4_096
_FUTURE_NS: Final = 1_000_000_000
_PAST_NS: Final = 8 * 86_400 * 1_000_000_000

_JOB: Final = re.compile(r"[A-Za-z0-9][\w.:@+-]{0,127}", re.ASCII)
_NAME: Final = re.compile(r"[\w.@+-]{1,128}", re.ASCII)
_LIST: Final = re.compile(r"[\w.@,:/+-]{1,400}", re.ASCII)
_NUMBER: Final = re.compile(r"\d{1,15}", re.ASCII)
_WORD: Final = re.compile(r"[a-z_]{1,20}")
_EXIT: Final = re.compile(r"\d{1,10}(?::\d{1,3})?")
_STAMP: Final = re.compile(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d(?:\.\d{1,9})?Z")

# In the order in which they are written; the signals of `agent_jobs.toml` read them in that order.
_KEYS: Final[dict[str, dict[str, re.Pattern[str]]]] = {
    "job.start": {
        "job": _JOB, "attempt": _NUMBER, "scheduler": _WORD, "user": _NAME, "partition": _NAME, "nodes": _NUMBER,
        "gpus": _LIST, "array": _NAME, "component": _JOB,
    },
    "job.end": {"job": _JOB, "attempt": _NUMBER, "scheduler": _WORD, "exit": _EXIT},
    "job.rank": {
        "job": _JOB, "attempt": _NUMBER, "rank": _NUMBER, "local_rank": _NUMBER, "world": _NUMBER, "pid": _NUMBER,
        "visible": _LIST, "scheduler": _WORD, "user": _NAME, "pod": _NAME,
    },
    "job.mark": {
        "job": _JOB, "attempt": _NUMBER, "rank": _NUMBER, "step": _NUMBER, "phase": _WORD, "checkpoint": _WORD,
    },
}  # fmt: skip
# What everybody may say; the other things only root (or the agent itself) may.
OF_USERS: Final = frozenset(("job.rank", "job.task", "job.mark"))
_TASK: Final = ("job", "attempt", "task", "local_task", "tasks", "nodes", "gpus", "visible", "pid", "het", "step")


class Said(Struct, frozen=True, kw_only=True):
    """A line that may be shipped: of which job it is, and the whole of it. `uid` is the job's owner, where told."""

    thing: str
    job: str
    body: str
    uid: int | None = None


def read(line: str, now_ns: int, pid_space: str = "") -> Said | None:
    """What a line says, written anew; None where it is none of these. `pid_space`: the agent's own."""
    stamp, _, rest = line.partition(" ") if line[:1].isdecimal() else ("", "", line)
    head, _, text = rest.partition(" ")
    if head != "rootrank:" or len(line) > MAX_LINE_BYTES:
        return None
    thing, *words = text.split(" ")
    values = dict(word.partition("=")[::2] for word in words)
    if thing == "job.task":
        thing, values = "job.rank", _of_task(values)
    keys = _KEYS.get(thing)
    if keys is None or not _JOB.fullmatch(values.get("job", "")):
        return None
    if values.get("pid_space", pid_space) != pid_space:
        values.pop("pid", None)  # of a container: here it is another process
    kept = {key: values[key] for key, shape in keys.items() if shape.fullmatch(values.get(key, ""))}
    said = " ".join((f"rootrank: {thing}", *(f"{key}={value}" for key, value in kept.items())))
    body = f"{stamp} {said}" if _is_near(stamp, now_ns) else said
    return Said(thing=thing, job=kept["job"], body=body, uid=number(values.get("uid")))


def rank_line(values: dict[str, object]) -> str:
    """A line `rootrank: job.rank …` of what is known; None is left out, and so is what does not fit."""
    said = {key: str(value) for key, value in values.items() if value is not None and value != ""}
    kept = [f"{key}={said[key]}" for key, shape in _KEYS["job.rank"].items() if shape.fullmatch(said.get(key, ""))]
    return " ".join(("rootrank: job.rank", *kept))


def _of_task(values: dict[str, str]) -> dict[str, str]:
    """A task of a Slurm step, as a rank where it is one."""
    said = {key: values[key] for key in _TASK if values.get(key)}
    said["scheduler"], said["user"] = "slurm", values.get("user", "")
    said["job"] = said.get("het") or said.get("job", "")
    tasks, nodes = number(said.get("tasks")), number(said.get("nodes"))
    if is_step_of_tasks(said.get("step", "")) and tasks_are_ranks(tasks, nodes, said.get("gpus", "")):
        said |= {"rank": said.get("task", ""), "local_rank": said.get("local_task", ""), "world": said.get("tasks", "")}
    said["visible"] = said.get("visible") or ",".join(listed(said.get("gpus", "")))
    return said


def _is_near(stamp: str, now_ns: int) -> bool:
    """Whether a stamp may be of when the line was written: the future is none, and neither is last year."""
    if not _STAMP.fullmatch(stamp):
        return False
    try:
        at_ns = int(datetime.fromisoformat(stamp[:19] + "+00:00").timestamp()) * 1_000_000_000
    except ValueError:
        return False
    return -_PAST_NS <= at_ns - now_ns <= _FUTURE_NS
