"""Where the files of launchers and schedulers lie says node, rank, job and attempt, without a manifest."""

import json
from pathlib import Path

import pytest

from pipeline.core.align import NodeFold
from pipeline.core.stated import stated
from pipeline.folder import FolderPlan, SourcePlan, plan
from pipeline.layouts import Layout, layout_of
from pipeline.reader import records
from schemas import signals
from schemas.records import Event, EventBatch

ERROR = "RuntimeError: CUDA error: unspecified launch failure\n"
UID = "0a1b2c3d-4e5f-6071-8293-a4b5c6d7e8f9"
WORKER = "0a1b2c3d4e5f60718293a4b5c6d7e8f90a1b2c3d4e5f60718293a4b5"

PATHS: list[tuple[str, dict[str, object]]] = [
    ("slurm-424242.out", {"job_id": "424242"}),
    ("slurm-424242.err.gz", {"job_id": "424242"}),
    ("slurm-424242_7.out", {"job_id": "424242_7"}),
    ("job.424242.3.out", {"job_id": "424242", "task": 3}),
    ("job-424242.log", {"job_id": "424242"}),
    ("train-424242-gpu01-3.out", {"rank": None, "job_id": "424242", "node": "gpu01", "task": 3}),
    ("llm-big-424242-gpu-a-17-12.err", {"job_id": "424242", "node": "gpu-a-17", "task": 12}),
    ("424242.gpu01.3.log", {"job_id": "424242", "node": "gpu01", "task": 3}),
    ("424242-gpu01.out", {"job_id": "424242", "node": "gpu01", "task": None}),
    ("logs/424242_0/train.log", {"job_id": "424242_0"}),
    ("424242/424242_3_log.err", {"job_id": "424242", "task": 3}),
    ("none_k3j2h1ab/attempt_0/3/stderr.log", {"attempt": 0, "local_rank": 3, "rank": None, "rest": ""}),
    ("gpu01/r7_k3j2h1ab/attempt_2/11/stdout.log", {"attempt": 2, "local_rank": 11, "rest": "gpu01/"}),
    ("attempt_0/3/error.json", {"attempt": 0, "local_rank": 3}),
    ("gpu01/attempt_1/rank3.log", {"attempt": 1, "rank": 3}),
    (f"var/log/pods/ml_train-worker-0_{UID}/pytorch/0.log", {"pod": "train-worker-0", "job_id": None}),
    (f"gpu01/pods/ml_train-worker-0_{UID}/pytorch/2.log", {"pod": "train-worker-0", "rest": "gpu01/"}),
    (f"containers/train-worker-0_ml_pytorch-{'0a' * 32}.log", {"pod": "train-worker-0"}),
    ("train-worker-0.log", {"pod": "train-worker-0"}),
    ("llm-7b-master-0.txt", {"pod": "llm-7b-master-0"}),
    ("out/1/rank.3/stderr", {"rank": 3}),
    ("rank.12/stdout", {"rank": 12}),
    ("nccl.gpu01.4711.log", {"node": "gpu01", "pid": 4711}),
    ("nccl-debug.gpu-a-17.4711.txt", {"node": "gpu-a-17", "pid": 4711}),
    (f"session_2026-08-10_15-36-05_1_2/logs/worker-{WORKER}-01000000-4711.out", {"pid": 4711}),
    (f"worker-{WORKER}-ffffffff-4711.err", {"pid": 4711}),
    ("session_latest/logs/raylet.out", {"pid": None, "job_id": None}),
    ("nemo_log_globalrank-3_localrank-1.txt", {"rank": 3, "local_rank": 1}),
    ("log_rank_3.txt", {"rank": 3}),
    ("local_rank2.log", {"rank": None, "local_rank": 2}),
    ("global_rank12_local_rank4.log", {"rank": 12, "local_rank": 4}),
    # Names that only look like a layout.
    ("train.log", {"job_id": None, "node": None, "task": None}),
    ("gx-0417.torchrun.out", {"job_id": None, "node": None, "rest": "gx-0417.torchrun.out"}),
    ("kern.log", {"job_id": None, "node": None, "pod": None}),
    ("2026/08/10/train.log", {"job_id": None}),
    ("2026-08-10/train.log", {"job_id": None}),
    ("20260810/train.log", {"job_id": None}),
    ("424242-node-3.out", {"job_id": "424242", "node": "node-3", "task": None}),
    ("step-4500.log", {"job_id": None, "task": None}),
    ("worker-3.log", {"pod": None, "rank": None}),
]


@pytest.mark.parametrize(("name", "says"), PATHS, ids=[name for name, _ in PATHS])
def test_a_path_says_whose_log_it_is(name: str, says: dict[str, object]) -> None:
    layout = layout_of(name)
    assert {field: getattr(layout, field) for field in says} == says


def _write(folder: Path, *names: str, text: str = ERROR) -> Path:
    for name in names:
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).write_text(text)
    return folder


def _sources(found: FolderPlan) -> dict[str, SourcePlan]:
    return {source.name: source for node in found.nodes for source in node.sources}


LOGS = [(name.removesuffix(".gz"), says) for name, says in PATHS if not name.endswith(".json")]


@pytest.mark.parametrize(("name", "says"), LOGS, ids=[name for name, _ in LOGS])
def test_what_a_path_says_is_an_attribute_of_its_source(name: str, says: dict[str, object], tmp_path: Path) -> None:
    attributes = _sources(plan([_write(tmp_path, name)]))[name].attributes
    if "kern" not in name:
        for field in ("rank", "local_rank", "task", "pid", "pod"):
            value = getattr(layout_of(name), field)
            assert attributes.get(field) == (None if value is None else str(value))
        assert attributes["job.id"] == (says.get("job_id") or tmp_path.name)
    assert stated(attributes)[1] == []


def test_the_files_of_one_job_are_one_job(tmp_path: Path) -> None:
    _write(tmp_path, "slurm-424242.out", "gpu01/rank0.log", "gpu02/kern.log")
    sources = _sources(plan([tmp_path]))
    assert {source.attributes["job.id"] for source in sources.values()} == {"424242"}


def test_the_files_of_two_jobs_are_two_jobs(tmp_path: Path) -> None:
    _write(tmp_path, "slurm-424242.out", "slurm-424243.out", "gpu02/kern.log")
    sources = _sources(plan([tmp_path]))
    assert sources["slurm-424242.out"].attributes["job.id"] == "424242"
    assert sources["slurm-424243.out"].attributes["job.id"] == "424243"
    assert "job.id" not in sources["gpu02/kern.log"].attributes


def test_a_manifest_says_more_than_a_path(tmp_path: Path) -> None:
    _write(tmp_path, "slurm-424242.out", "slurm-424243.out")
    (tmp_path / "rootrank.toml").write_text('job_id = "9"\n')
    assert {s.attributes["job.id"] for s in _sources(plan([tmp_path])).values()} == {"9"}


def test_the_folders_of_torchrun_give_local_rank_and_attempt(tmp_path: Path) -> None:
    run = _write(tmp_path, *(f"gpu01/r_k3j2h1ab/attempt_{a}/{n}/stderr.log" for a in (0, 1) for n in (0, 1)))
    found = plan([run])
    assert [node.reporter for node in found.nodes] == ["gpu01"]
    said = {(s.attributes["job.attempt"], s.attributes["local_rank"]) for s in _sources(found).values()}
    assert said == {("0", "0"), ("0", "1"), ("1", "0"), ("1", "1")}
    assert not any("rank" in source.attributes for source in _sources(found).values())


@pytest.mark.parametrize(
    ("name", "node"),
    [
        ("train-424242-gpu01-3.out", "gpu01"), ("nccl.gpu01.4711.log", "gpu01"),
        ("gpu01/r_k3j2h1ab/attempt_0/3/stderr.log", "gpu01"), ("gpu01/out/1/rank.3/stderr", "gpu01"),
        (f"gpu01/var/log/pods/ml_train-worker-0_{UID}/pytorch/0.log", "gpu01"),
        ("gpu01/session_latest/logs/raylet.out", "gpu01"), ("attempt_0/3/stderr.log", ""), ("1/rank.3/stderr", ""),
        (f"var/log/pods/ml_train-worker-0_{UID}/pytorch/0.log", ""), ("slurm-424242.out", ""),
        ("424242/424242_3_log.err", ""), ("train-worker-0.log", ""),
        ("2026-11-03/rank_3.log", ""), ("20261103-041500/train.log", ""), ("checkpoints/train.log", ""),
        (f"containers/{'0f3a' * 16}/train.log", ""), ("slurm-gpu01/slurmd.log", "gpu01"),
    ],
)  # fmt: skip
def test_the_node_is_the_one_that_the_layout_or_a_folder_above_it_names(name: str, node: str, tmp_path: Path) -> None:
    (source,) = _sources(plan([_write(tmp_path, name)])).values()
    assert source.attributes["node"] == node


def _events(folder: Path) -> list[Event]:
    fold = NodeFold(signals.load())
    outputs = [output for keyed in records(plan([folder])) for output in fold.apply(keyed.record, now_ns=0)]
    return [event for output in outputs if isinstance(output.record, EventBatch) for event in output.record.events]


def test_the_printer_of_a_line_is_known_by_its_path(tmp_path: Path) -> None:
    (event,) = _events(_write(tmp_path, "gpu01/r_k3j2h1ab/attempt_0/5/stderr.log"))
    assert (event.node, event.subject.local_rank, event.printer.local_rank) == ("gpu01", 5, 5)


def test_a_prefix_says_more_than_a_path(tmp_path: Path) -> None:
    _write(tmp_path, "gpu01/r_k3j2h1ab/attempt_0/5/stderr.log", text=f"[default3]:[rank11]: {ERROR}")
    (event,) = _events(tmp_path)
    assert (event.subject.rank, event.subject.local_rank) == (11, 3)


def test_the_error_file_of_torchrun_is_read(tmp_path: Path) -> None:
    callstack = 'Traceback (most recent call last):\n  File "a.py", line 7, in f\nValueError: shard 7'
    extra = {"py_callstack": callstack, "timestamp": "1786347365"}
    text = json.dumps({"message": {"message": "ValueError: shard 7", "extraInfo": extra}})
    _write(tmp_path, "gpu01/r_k3j2h1ab/attempt_0/5/error.json", text=text)
    found = plan([tmp_path])
    (source,) = _sources(found).values()
    assert (source.objects, source.attributes["local_rank"], found.gaps) == (True, "5", [])
    (event,) = [event for event in _events(tmp_path) if event.name == "python.exception"]
    assert (event.subject.local_rank, event.attributes["file"], event.raw_ns) == (5, "a.py", 1786347365 * 10**9)


def test_a_layout_without_anything_says_nothing() -> None:
    assert layout_of("notes.txt") == Layout(rest="notes.txt")
