"""Dumps of the flight recorder as files: known by content, diagnosed with logs beside them, shown by a command."""

import gzip
import json
import os
import pickle
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from pipeline.diagnose import diagnose
from pipeline.flight_files import head_of, states_in
from pipeline.folder import plan
from pipeline.layouts import layout_of
from pipeline.logfiles import UnreadableFileError
from pipeline.reader import node_records
from pipeline.replay import Player
from schemas.records import RawBatch
from tests.core.test_pickles import Evaluated, Shell
from tests.dumps import VERSIONS, Call, Job, even, one_behind, world

OF_TORCH = Path(__file__).parent / "dumps_of_torch"
XID = "2026-03-04T05:06:05.1+00:00 box2 kernel: [   91.5] NVRM: Xid (PCI:0000:5e:00): 79, GPU has fallen off the bus."
INIT = "box2:{pid}:{pid} [0] NCCL INFO comm 0x55{rank} rank {rank} nranks 4 cudaDev 0 nvmlDev 0 busId {bus}000 commId 0x7a - Init COMPLETE"  # noqa: E501


def _run(*arguments: str | Path) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "pipeline", *map(str, arguments)]
    return subprocess.run(command, capture_output=True, text=True, check=False, timeout=120)


# --- recognising ------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("form", ["pickle", "json"])
@pytest.mark.parametrize("version", VERSIONS)
@pytest.mark.parametrize("name", ["nccl_trace_rank_2", "any_2.pkl", "x_2.txt", "d2.json", "y_2.bin.gz"])
def test_a_dump_is_known_by_its_content_whatever_its_name(version: str, form: str, name: str, tmp_path: Path) -> None:
    said = even(4).dump(2, version, form)
    data = pickle.dumps(said, 2) if form == "pickle" else json.dumps(said, indent=1).encode()
    path = tmp_path / name
    path.write_bytes(gzip.compress(data) if name.endswith(".gz") else data)
    assert head_of(path).is_dump
    (state,) = states_in(path, name)
    assert (state.rank, state.version) == (2, version)
    assert plan([tmp_path]).gaps == []


@pytest.mark.parametrize(
    ("name", "data", "reason"),
    [
        ("model.pkl", pickle.dumps({"weights": [1, 2]}), "pickle, and no flight-recorder dump"),
        ("old.pkl", pickle.dumps({"weights": [1, 2]}, 0), "pickle, and no flight-recorder dump"),
        ("shell.pkl", pickle.dumps(Shell()), "pickle, and no flight-recorder dump"),
        ("app.json", b'{"pg_config": {"host": "db"}, "listen_port": 80}', "JSON document"),
        ("har.json", b'{"log": {"version": "1.2", "entries": []}}', "JSON document"),
    ],
)  # fmt: skip
def test_what_only_looks_like_a_dump_is_a_gap(name: str, data: bytes, reason: str, tmp_path: Path) -> None:
    (tmp_path / name).write_bytes(data)
    (gap,) = plan([tmp_path]).gaps
    assert reason in gap.reason


def test_a_log_that_speaks_of_dumps_stays_a_log(tmp_path: Path) -> None:
    (tmp_path / "rank0.log").write_text('(dumping pg_config and version to "entries")\n' * 3)
    (source,) = (source for node in plan([tmp_path]).nodes for source in node.sources)
    assert not source.dump


@pytest.mark.parametrize(
    ("path", "node", "rank"),
    [
        ("nccl_trace_rank_3", None, 3), ("box7/nccl_trace_rank_12", "box7", 12), ("nccl_trace_rank_14", None, 14),
        ("fr-dumps/nccl_trace_rank_6", None, 6), ("flight_recorder/traces/nccl_trace_rank_6", None, 6),
        ("nccl_trace_rank_box-07_5", "box-07", 5), ("comm_lib_trace_rank_11.json", None, 11),
    ],
)  # fmt: skip
def test_the_names_that_pytorch_gives_tell_rank_and_host(
    path: str, node: str | None, rank: int, tmp_path: Path
) -> None:
    file = tmp_path / path
    file.parent.mkdir(parents=True, exist_ok=True)
    file.write_bytes(pickle.dumps(even(16).dump(0)))
    assert layout_of(path).rank == rank
    (state,) = states_in(file, path)
    assert state.rank == rank
    (source,) = (source for node in plan([tmp_path]).nodes for source in node.sources)
    assert source.attributes["node"] == (node or "")


# --- diagnosing -------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("form", ["pickle", "json"])
@pytest.mark.parametrize("version", VERSIONS)
def test_the_rank_that_stopped_is_the_culprit(version: str, form: str, tmp_path: Path) -> None:
    (incident,) = diagnose([one_behind(rank=2).write(tmp_path, version, form)]).incidents
    assert incident.class_ == "unknown/silent_rank"
    assert [culprit.rank for culprit in incident.culprits] == [2]
    assert "Rank 2 never entered" in incident.explanation
    assert incident.chain[0].evidence.source == "nccl_trace_rank_2"
    assert [step.ranks for step in incident.chain if step.event == "flight.waiting"] == [[0, 1, 3]]


def test_two_ranks_that_stopped_are_both_culprits_with_their_group(tmp_path: Path) -> None:
    job = even(8, pending=1)
    job.calls[3] = job.calls[6] = job.calls[3][:3]
    (incident,) = diagnose([job.write(tmp_path)]).incidents
    assert [(c.rank, c.process_group) for c in incident.culprits] == [(3, "0 (default_pg)"), (6, "0 (default_pg)")]
    assert incident.blast_radius.ranks == 8
    assert incident.blast_radius.silent_ranks == [3, 6]
    assert incident.blast_radius.reporting_ranks == 6


def test_a_mismatch_is_a_mismatch(tmp_path: Path) -> None:
    waits = [Call("0"), Call("0", done=False)]
    calls = {0: waits, 1: waits, 2: [Call("0"), Call("0", "broadcast", done=False)], 3: waits}
    (incident,) = diagnose([Job(world(4), calls).write(tmp_path)]).incidents
    assert incident.class_ == "software/collective_mismatch"
    assert [culprit.rank for culprit in incident.culprits] == [2]
    assert "broadcast" in incident.chain[0].evidence.text
    assert "all_reduce" in incident.chain[0].evidence.text


def test_a_missing_dump_names_its_rank(tmp_path: Path) -> None:
    (incident,) = diagnose([even(8, pending=1).write(tmp_path, ranks=[0, 1, 2, 3, 4, 6, 7])]).incidents
    assert (incident.class_, [culprit.rank for culprit in incident.culprits]) == ("unknown/silent_rank", [5])


def test_a_rank_that_says_that_it_waited_is_not_guilty_for_a_dump_that_is_missing(tmp_path: Path) -> None:
    even(4, pending=1).write(tmp_path, ranks=[0, 1, 2])
    (tmp_path / "rank3.log").write_text(
        "[rank3]:[E305 07:11:20.500000000 ProcessGroupNCCL.cpp:632] [PG ID 0 PG GUID 0(default_pg) Rank 3] Watchdog "
        "caught collective operation timeout: WorkNCCL(SeqNum=2, OpType=ALLREDUCE, NumelIn=6, NumelOut=6, "
        "Timeout(ms)=480000) ran for 480021 milliseconds before timing out.\n"
    )
    (incident,) = diagnose([tmp_path]).incidents
    assert (incident.class_, incident.culprits) == ("unknown/collective_timeout", [])


def test_a_mismatch_is_told_without_the_dump_of_one_of_the_others(tmp_path: Path) -> None:
    waits = [Call("0"), Call("0", done=False)]
    calls = {0: waits, 1: waits, 2: [Call("0"), Call("0", "broadcast", done=False)], 3: waits}
    (incident,) = diagnose([Job(world(4), calls).write(tmp_path, ranks=[1, 2, 3])]).incidents
    assert (incident.class_, [c.rank for c in incident.culprits]) == ("software/collective_mismatch", [2])


def test_a_stall_without_a_rank_that_lags_names_nobody(tmp_path: Path) -> None:
    (incident,) = diagnose([even(4, pending=1).write(tmp_path)]).incidents
    assert (incident.class_, incident.culprits) == ("unknown/collective_timeout", [])
    assert "All 4 ranks" in incident.explanation


def test_few_that_wait_for_many_name_nobody(tmp_path: Path) -> None:
    job = even(8)
    job.calls[5] = [*job.calls[5], Call("0", done=False)]
    (incident,) = diagnose([job.write(tmp_path)]).incidents
    assert (incident.class_, incident.culprits) == ("unknown/collective_timeout", [])


def test_dumps_that_agree_are_no_incident(tmp_path: Path) -> None:
    found = diagnose([even(4).write(tmp_path)])
    assert (found.incidents, found.gaps, found.unreadable) == ([], [], [])


def test_dumps_of_a_job_that_goes_on_are_no_incident(tmp_path: Path) -> None:
    one_behind().write(tmp_path)
    for path in tmp_path.iterdir():
        # Written while what is pending was a second old.
        os.utime(path, ns=(0, 1_772_600_768 * 10**9))
    assert diagnose([tmp_path]).incidents == []


def _write_logs(folder: Path, buses: list[str]) -> None:
    """Where each rank runs, and a kernel log that loses the GPU 5e."""
    for rank, bus in enumerate(buses):
        (folder / f"rank{rank}.log").write_text(INIT.format(pid=800 + rank, rank=rank, bus=bus) + "\n")
    (folder / "kernel-box2.log").write_text(XID + "\n")


def test_the_kernel_log_of_the_rank_that_stopped_gives_the_cause(tmp_path: Path) -> None:
    one_behind(rank=2).write(tmp_path)
    _write_logs(tmp_path, ["1b", "2b", "5e", "3b"])
    incident = diagnose([tmp_path]).incidents[0]
    assert incident.class_ == "hardware/gpu_xid_79"
    assert [culprit.rank for culprit in incident.culprits] == [2]
    assert {"flight.behind", "flight.waiting"} <= {step.event for step in incident.chain}


def test_a_fault_on_a_rank_that_waits_for_another_is_not_its_cause(tmp_path: Path) -> None:
    one_behind(rank=2).write(tmp_path)
    _write_logs(tmp_path, ["5e", "1b", "2b", "3b"])
    incident = diagnose([tmp_path]).incidents[0]
    assert (incident.class_, [culprit.rank for culprit in incident.culprits]) == ("unknown/silent_rank", [2])


@pytest.mark.parametrize(
    ("folder", "class_", "rank"),
    [
        ("2.9.1-gloo-behind", "unknown/silent_rank", 2), ("2.15.0-gloo-behind", "unknown/silent_rank", 2),
        ("2.9.1-gloo-mismatch", "software/collective_mismatch", 1),
    ],
)  # fmt: skip
@pytest.mark.parametrize("form", ["nccl_trace_rank_*", "*.json"])
def test_what_pytorch_itself_wrote_is_understood(
    folder: str, class_: str, rank: int, form: str, tmp_path: Path
) -> None:
    paths = sorted((OF_TORCH / folder).glob(form)) or sorted((OF_TORCH / folder).glob("nccl*"))
    for path in paths:
        # The time of a checkout is not that of the dump.
        (tmp_path / path.name).write_bytes(path.read_bytes())
        os.utime(tmp_path / path.name, ns=(0, 2 * 10**18))
    (incident,) = diagnose([tmp_path]).incidents
    assert (incident.class_, [culprit.rank for culprit in incident.culprits]) == (class_, [rank])


@pytest.mark.parametrize("at_once", [True, False])
def test_a_replay_writes_the_lines_that_diagnose_reads(at_once: bool, tmp_path: Path) -> None:
    (node,) = plan([one_behind().write(tmp_path / "box1", ranks=[0])]).nodes
    (batch,) = (k.record for k in node_records("local", node, "post_mortem", "") if isinstance(k.record, RawBatch))
    target = tmp_path / "played"
    player = Player(node.sources[0], target, node)
    if at_once:
        player.release_all()
    else:
        player.release(2**62)
    played = target.read_bytes()
    assert played.decode().splitlines() == [line.body for line in batch.records]
    assert [played[line.offset :].decode().splitlines()[0] for line in batch.records] == [
        line.body for line in batch.records
    ]


# --- hostile ----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("value", [Shell(), Evaluated()])
def test_a_dump_that_asks_for_code_is_named_and_not_executed(value: Any, tmp_path: Path) -> None:
    dump = one_behind().dump(0)
    dump["entries"][0]["frames"] = value
    (tmp_path / "nccl_trace_rank_0").write_bytes(pickle.dumps(dump, 2))
    (gap,) = diagnose([tmp_path]).unreadable
    assert "nccl_trace_rank_0: flight-recorder dump: pickle, byte" in gap.reason
    assert "never executed" in gap.reason


def test_a_dump_that_is_cut_short_leaves_the_others(tmp_path: Path) -> None:
    one_behind(size=8, rank=2).write(tmp_path)
    path = tmp_path / "nccl_trace_rank_7"
    path.write_bytes(path.read_bytes()[:-40])
    found = diagnose([tmp_path])
    assert [culprit.rank for culprit in found.incidents[0].culprits] == [2]
    assert ["ends too early" in gap.reason or "announced" in gap.reason for gap in found.unreadable] == [True]


def test_a_dump_without_a_rank_says_so(tmp_path: Path) -> None:
    (tmp_path / "trace.pkl").write_bytes(pickle.dumps(even(4).dump(0)))
    (gap,) = diagnose([tmp_path]).unreadable
    assert "its rank is neither in it nor at the end of its name" in gap.reason


@settings(max_examples=60, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(data=st.data())
def test_a_damaged_dump_is_read_or_named(tmp_path: Path, data: st.DataObject) -> None:
    form = data.draw(st.sampled_from(["pickle", "json"]))
    said = one_behind().dump(0, "2.9", form)
    whole = bytearray(pickle.dumps(said, 2) if form == "pickle" else json.dumps(said).encode())
    for _ in range(data.draw(st.integers(1, 5))):
        whole[data.draw(st.integers(0, len(whole) - 1))] = data.draw(st.integers(0, 255))
    path = tmp_path / "trace_0"
    path.write_bytes(bytes(whole))
    try:
        states_in(path, path.name)
    except UnreadableFileError:
        return
    diagnose([path])


# --- the command ------------------------------------------------------------------------------------------------------


def test_the_command_shows_who_stopped_and_each_group(tmp_path: Path) -> None:
    done = _run("flight", one_behind(size=8, rank=2).write(tmp_path))
    assert (done.returncode, done.stderr) == (1, "")
    assert "STOPPED   Rank 2 never entered all_reduce number 4" in done.stdout
    row = next(line for line in done.stdout.splitlines() if line.startswith("0 (default_pg)"))
    assert [cell.strip() for cell in row.split("  ") if cell.strip()] == [
        "0 (default_pg)",
        "all_reduce number 4",
        "0, 1, 3-7",
        "2",
    ]


def test_the_command_says_the_same_as_json(tmp_path: Path) -> None:
    done = _run("flight", one_behind(size=8, rank=2).write(tmp_path), "--json")
    said = json.loads(done.stdout)
    assert said["stopped"] == [{
        "ranks": "2", "where": "before", "process_group": "0", "description": "default_pg", "members": "0-7",
        "number": 4, "operation": "all_reduce", "nothing_pending": True, "waiting": "0, 1, 3-7",
    }]  # fmt: skip
    assert (said["ranks"], said["world_size"], said["missing"]) == ("0-7", 8, "")


def test_the_command_is_quiet_where_nothing_is_stuck(tmp_path: Path) -> None:
    done = _run("flight", even(4).write(tmp_path))
    assert done.returncode == 0
    assert "No rank is behind another one." in done.stdout


def test_the_command_folds_many_ranks(tmp_path: Path) -> None:
    done = _run("flight", one_behind(size=300, rank=7).write(tmp_path))
    assert "0-6, 8-299" in done.stdout
    assert max(map(len, done.stdout.splitlines())) < 400


def test_the_command_says_what_it_cannot_read(tmp_path: Path) -> None:
    empty = _run("flight", tmp_path)
    assert (empty.returncode, empty.stdout) == (3, "")
    assert "TORCH_NCCL_DUMP_ON_TIMEOUT" in empty.stderr
    assert _run("flight", tmp_path / "nothing").returncode == 3
    one_behind().write(tmp_path)
    (tmp_path / "nccl_trace_rank_1").write_bytes(pickle.dumps({"pg_config": {}, "version": Shell()}, 2))
    some = _run("flight", tmp_path)
    assert some.returncode == 3
    assert "GLOBAL asks for more" in some.stderr
    assert "Rank 2 never entered" in some.stdout


def test_names_from_a_dump_cannot_steer_a_terminal(tmp_path: Path) -> None:
    nasty = "x\x1b[2J\x07"
    job = Job({nasty: (nasty, [0, 1, 2])}, {0: [Call(nasty, done=False)], 1: [Call(nasty, done=False)], 2: []})
    done = _run("flight", job.write(tmp_path, ranks=[0, 1, 2]))
    assert "x?[2J?" in done.stdout
    assert "\x1b" not in done.stdout
