"""Makes dumps as each version of PyTorch writes them: a small model of ranks that enqueue operations in groups."""

import json
import pickle
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from pipeline.core.flight.dump import dumps_of_json, own_rank
from pipeline.core.flight.state import RankState, lines_of, read_state, state_of

# 2026-03-04T05:06:07Z.
T0_NS = 1_772_600_767 * 10**9
VERSIONS = ["", "1.1", "1.4", "1.5", "2.0", "2.2", "2.3", "2.4", "2.7", "2.9", "2.10"]

FRAMES = [
    {"name": "all_reduce", "filename": "/opt/lib/torch/distributed/distributed_c10d.py", "line": 2700},
    {"name": "step", "filename": "/app/fit.py", "line": 77},
]


@dataclass
class Call:
    """One operation: `done` on the device, `started` where timing is on. `name` is what PyTorch calls it."""

    group: str
    name: str = "all_reduce"
    done: bool = True
    started: bool | None = None
    size: int = 512
    dtype: str = "Float"
    seq: int | None = None
    hidden: bool = False


@dataclass
class Job:
    """Process groups by name: description and ranks. `calls` are those of each rank, in order."""

    groups: dict[str, tuple[str, list[int]]]
    calls: dict[int, list[Call]] = field(default_factory=dict)
    backend: str = "nccl"
    only_active: bool = False

    def dump(self, rank: int, version: str = "2.9", form: str = "pickle") -> Any:
        """The dump of a rank as plain values."""
        mine = {name: group for name, group in self.groups.items() if rank in group[1]}
        ids = {name: number for number, name in enumerate(mine)}
        entries, numbers = self._entries(rank, ids, version, form)
        if version == "":
            return entries
        dump: dict[str, Any] = {"version": version}
        if _at(version) >= (1, 3):
            dump["pg_config"] = {_key(version, ids, name): _config(version, name, *mine[name]) for name in mine}
        if _at(version) >= (2, 4):
            write = str if form == "json" else int
            dump["pg_status"] = {
                str(ids[name]): {
                    "last_enqueued_collective": write(enqueued), "last_started_collective": write(started),
                    "last_completed_collective": write(completed),
                }
                for name, (enqueued, started, completed) in numbers.items()
            }  # fmt: skip
            dump["comm_lib_version" if _at(version) >= (2, 10) else "nccl_version"] = "2.27.3"
        if entries or form == "pickle":
            dump["entries"] = entries
        return dump

    def _entries(
        self, rank: int, ids: dict[str, int], version: str, form: str
    ) -> tuple[list[dict[str, Any]], dict[str, tuple[int, int, int]]]:
        entries: list[dict[str, Any]] = []
        numbers: dict[str, tuple[int, int, int]] = {}
        counts: dict[tuple[str, bool], int] = {}
        for record, call in enumerate(self.calls.get(rank, [])):
            is_p2p = call.name.startswith(("send", "recv"))
            counted = counts.get((call.group, is_p2p), 0) + 1
            number = call.seq if call.seq is not None else counted
            counts[call.group, is_p2p] = number
            _, started, completed = numbers.get(call.group, (-1, -1, -1))
            begun = call.done if call.started is None else call.started
            numbers[call.group] = (number, number if call.started else started, number if call.done else completed)
            if call.hidden or (self.only_active and call.done):
                continue
            collectives = counts.get((call.group, False), 0)
            seqs = (collectives, number) if is_p2p else (number, counts.get((call.group, True), 0))
            entry = _entry(self, call, record, ids[call.group], seqs, version)
            entries.append(_in_form(entry, begun=begun, done=call.done, form=form, version=version))
        return entries, numbers

    def states(self, ranks: list[int] | None = None, version: str = "2.9") -> list[RankState]:
        """Where the ranks stand, by way of the lines that are made of their dumps."""
        made = []
        for rank in self.calls if ranks is None else ranks:
            (dump,) = dumps_of_json(json.dumps(self.dump(rank, version, "json")).encode())
            for line in lines_of(state_of(dump, own_rank(dump, f"trace_{rank}") or rank), ""):
                state = read_state(line.partition(", state ")[2])
                assert state is not None
                made.append(state)
        return made

    def write(self, folder: Path, version: str = "2.9", form: str = "pickle", ranks: list[int] | None = None) -> Path:
        """One file a rank, named as PyTorch names it."""
        folder.mkdir(parents=True, exist_ok=True)
        for rank in self.calls if ranks is None else ranks:
            said = self.dump(rank, version, form)
            data = pickle.dumps(said, 2) if form == "pickle" else json.dumps(said).encode()
            (folder / f"nccl_trace_rank_{rank}").write_bytes(data)
        return folder


def _entry(
    job: Job, call: Call, record: int, pg_id: int, seqs: tuple[int, int], version: str
) -> dict[str, Any]:  # fmt: skip
    state = "completed" if call.done else "started" if call.started else "scheduled"
    entry: dict[str, Any] = {
        "pg_id": pg_id, "profiling_name": f"{job.backend}:{call.name}", "input_sizes": [[call.size, 2]],
        "output_sizes": [[call.size, 2]], "state": state, "retired": call.done, "record_id": record,
    }  # fmt: skip
    if _at(version) < (2, 0):
        entry["seq_id"] = seqs[0]
        if _at(version) >= (1, 5):
            entry["process_group"] = call.group
        if _at(version) < (1, 4):
            del entry["record_id"]
        return entry
    entry |= {
        "process_group": (call.group, job.groups[call.group][0]), "collective_seq_id": seqs[0], "p2p_seq_id": seqs[1],
        "op_id": record + 1, "input_dtypes": [call.dtype], "output_dtypes": [call.dtype],
        "is_p2p": call.name.startswith(("send", "recv")),
    }  # fmt: skip
    return entry | ({"timeout_ms": 600_000} if _at(version) >= (2, 3) else {})


def _in_form(entry: dict[str, Any], *, begun: bool, done: bool, form: str, version: str) -> dict[str, Any]:
    """With times and frames: the JSON form has no frames, and 0 for a time that is not known."""
    at_ns, unknown = T0_NS + entry.get("record_id", 0) * 1_000_000, 0 if form == "json" else None
    if version == "":
        return entry | {"time_created_us": at_ns // 1000}
    entry |= {
        "time_created_ns": at_ns, "time_discovered_started_ns": at_ns + 10 if begun else unknown,
        "time_discovered_completed_ns": at_ns + 20 if done else unknown,
    }  # fmt: skip
    return entry if form == "json" else {"frames": FRAMES, **entry}


def _at(version: str) -> tuple[int, ...]:
    return tuple(int(part) for part in version.split(".") if part)


def _key(version: str, ids: dict[str, int], name: str) -> Any:
    return name if _at(version) >= (1, 5) else ids[name]


def _config(version: str, name: str, desc: str, ranks: list[int]) -> Any:
    if _at(version) < (2, 0):
        return ranks if _at(version) < (1, 5) else str(ranks)
    return {"name": name, "desc": desc, "ranks": str(ranks)}


# --- jobs of which the tests tell -------------------------------------------------------------------------------------


def world(size: int) -> dict[str, tuple[str, list[int]]]:
    """The default group alone."""
    return {"0": ("default_pg", list(range(size)))}


def even(size: int, done: int = 3, pending: int = 0) -> Job:
    """All ranks at the same place."""
    calls = [Call("0") for _ in range(done)] + [Call("0", done=False) for _ in range(pending)]
    return Job(world(size), {rank: list(calls) for rank in range(size)})


def one_behind(size: int = 4, rank: int = 2) -> Job:
    """All wait in the fourth collective, which one rank never entered."""
    job = even(size, pending=1)
    job.calls[rank] = job.calls[rank][:3]
    return job
