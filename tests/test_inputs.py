"""Logs as they come: containers, collectors, tables and JSON documents, through the folder to events."""

import json
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path

import msgspec
import pytest

from pipeline import logfiles, worth_reading
from pipeline.core.align import NodeFold
from pipeline.core.parse import parse_line
from pipeline.folder import plan
from pipeline.objects import object_lines, too_much
from pipeline.reader import records
from schemas import signals
from schemas.documents import FOLLOW_BYTES, load_forms
from schemas.records import Event, EventBatch, RawBatch

XID = "NVRM: Xid (PCI:0000:3b:00): 79, pid=4711, name=python, GPU has fallen off the bus."
ERROR = "ValueError: shard 7 is not sorted"
TRACEBACK = f'Traceback (most recent call last):\n  File "loop.py", line 71, in step\n    raise ValueError\n{ERROR}'
DF = "Filesystem      Size  Used Avail Use% Mounted on\n/dev/nvme0n1p2  879G  879G     0 100% /scratch"
QUIET = "this line says nothing at all, nor does it carry a time; it only fills the file, as lines of logs do"


def _write(folder: Path, contents: Mapping[str, str]) -> Path:
    for name, content in contents.items():
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).write_text(content)
    return folder


def _batches(folder: Path) -> Iterator[tuple[bytes, RawBatch]]:
    return ((keyed.key, keyed.record) for keyed in records(plan([folder])) if isinstance(keyed.record, RawBatch))


def _events(folder: Path, *, size: int = 0) -> list[Event]:
    """The events of a folder; its batches cut into pieces of `size` lines."""
    folds: dict[bytes, NodeFold] = {}
    said, numbers = dict[str, Event](), dict[bytes, int]()
    for keyed in records(plan([folder])):
        fold = folds.setdefault(keyed.key, NodeFold(signals.load()))
        cut = [keyed.record]
        if size and isinstance(keyed.record, RawBatch):
            cut, lines = [], keyed.record.records
            for start in range(0, len(lines), size):
                numbers[keyed.key] = seq = numbers.get(keyed.key, 0) + 1
                cut.append(msgspec.structs.replace(keyed.record, records=lines[start : start + size], batch_seq=seq))
        for record in cut:
            for output in fold.apply(record, now_ns=0):
                if isinstance(output.record, EventBatch):
                    said |= {event.event_id: event for event in output.record.events}
            fold = folds[keyed.key] = NodeFold.restore(signals.load(), fold.snapshot()) if size else fold
    # What nobody reads is counted per batch.
    read = [event for event in said.values() if not event.name.startswith("unmatched.")]
    return sorted(read, key=lambda event: (event.source, event.offset, event.event_id))


def _names(events: list[Event]) -> list[str]:
    return [event.name for event in events]


# --- the same record in every dress -----------------------------------------------------------------------------------


def _docker(text: str) -> str:
    return json.dumps({"log": text + "\n", "stream": "stderr", "time": "2026-08-10T15:36:05.123456789Z"})


def _cri(text: str) -> str:
    return f"2026-08-10T15:36:05.123456789Z stderr F {text}"


def _journal(text: str) -> str:
    stamp = {"_HOSTNAME": "gpu01", "__REALTIME_TIMESTAMP": "1786376165000000"}
    return json.dumps({"MESSAGE": list(text.encode())} | stamp)


DRESSES: dict[str, Callable[[str], str]] = {
    "docker": _docker, "cri": _cri, "journal": _journal,
    "loki": lambda text: json.dumps({"labels": {"pod": "t-0"}, "line": text, "timestamp": "2026-08-10T15:36:05Z"}),
    "vector": lambda text: json.dumps({"message": text, "host": "gpu01", "timestamp": "2026-08-10T15:36:05Z"}),
    "elastic": lambda text: json.dumps({"_source": {"message": text, "@timestamp": "2026-08-10T15:36:05Z"}}),
    "fluentd": lambda text: json.dumps({"log": text, "kubernetes": {"pod_name": "t-0", "host": "gpu01"}}),
    "kubectl": lambda text: f"[pod/t-0/main] 2026-08-10T15:36:05.123456789Z {text}",
    "torchrun": lambda text: f"[default3]:{text}", "srun": lambda text: f"3: {text}",
    "mpirun": lambda text: f"[1,3]<stderr>:{text}", "pdsh": lambda text: f"gpu01: {text}",
    "collector": lambda text: f"[task 2026-08-10T15:36:05.123+00:00] [train] {text}",
    "syslog": lambda text: f"Aug 10 15:36:05 gpu01 python[77]: {text}",
    "windows": lambda text: f"[rank3]: {text}\r", "colours": lambda text: f"\x1b[31m{text}\x1b[0m",
    "cri and json": lambda text: _cri(json.dumps({"message": text, "level": "error"})),
    "docker and rank": lambda text: _docker(f"[default1]:[rank9]: {text}"),
}  # fmt: skip


@pytest.mark.parametrize("dress", DRESSES)
@pytest.mark.parametrize("size", [0, 1])
def test_a_traceback_is_found_in_every_dress(dress: str, size: int, tmp_path: Path) -> None:
    lines = [DRESSES[dress](line) for line in ["step 7", *TRACEBACK.split("\n"), "step 8"]]
    folder = _write(tmp_path, {"gpu01/train.log": "\n".join(lines) + "\n"})
    (event,) = [event for event in _events(folder, size=size) if event.name == "python.exception"]
    assert (event.body, event.line_no, event.node) == (ERROR, 5, "gpu01" if dress not in ("loki", "kubectl") else "t-0")
    assert (event.attributes["file"], event.attributes["line"]) == ("loop.py", "71")


@pytest.mark.parametrize("dress", ["docker", "cri", "kubectl", "torchrun", "srun", "mpirun", "pdsh", "collector"])
def test_a_table_is_found_in_every_dress(dress: str, tmp_path: Path) -> None:
    lines = [DRESSES[dress](line) for line in ["step 7", *DF.split("\n"), "step 8"]]
    folder = _write(tmp_path, {"gpu01/train.log": "\n".join(lines) + "\n"})
    (event,) = [event for event in _events(folder) if event.body.startswith("df: ")]
    assert event.line_no == 3


# --- documents --------------------------------------------------------------------------------------------------------

KNOWN = [(entry, sample) for entry in (form.entry for form in load_forms().in_order) for sample in entry.samples]


@pytest.mark.parametrize(("form", "text"), [(entry.name, sample.text) for entry, sample in KNOWN])
def test_a_document_is_the_same_in_pieces_and_as_a_whole(form: str, text: str, tmp_path: Path) -> None:
    folder = _write(tmp_path, {"gpu01/out.log": f"hello\n{text.strip()}\nhello\n"})
    whole = _events(folder)
    for size in (1, 3):
        assert _events(folder, size=size) == whole


def test_the_text_of_nvidia_smi_is_read(tmp_path: Path) -> None:
    sample = next(sample.text for entry, sample in KNOWN if entry.name == "nvidia-smi -q")
    folder = _write(tmp_path, {"gpu01/nvidia-smi-q.txt": sample.strip() + "\n"})
    found = plan([folder])
    assert found.gaps == []
    assert "nvidia-smi -q: GPU 00000000:3B:00.0: ECC Errors: Volatile: DRAM Uncorrectable: 3" in [
        event.body for event in _events(folder)
    ]


@pytest.fixture
def small_blocks(monkeypatch: pytest.MonkeyPatch) -> None:
    """Blocks of 64 KiB, so that files of some size have many."""
    for module in (logfiles, worth_reading):
        monkeypatch.setattr(module, "BLOCK_BYTES", 65_536)
    monkeypatch.setattr(worth_reading, "END_BYTES", 256)


@pytest.mark.usefixtures("small_blocks")
@pytest.mark.parametrize("before", [700, 1_300, 1_311, 5_000])
def test_a_table_far_inside_a_large_file_is_read(before: int, tmp_path: Path) -> None:
    folder = _write(tmp_path, {"gpu01/train.log": "\n".join([*[QUIET] * before, DF, *[QUIET] * 20_000])})
    kept = sum(len(batch.records) for _, batch in _batches(folder))
    (event,) = [event for event in _events(folder) if event.body.startswith("df: ")]
    assert event.line_no == before + 2
    assert kept < before + 20_000 - 10_000


@pytest.mark.usefixtures("small_blocks")
def test_a_split_line_far_inside_a_large_file_is_joined(tmp_path: Path) -> None:
    parts = [_cri("x").replace(" F x", " P Value"), _cri("Error: shard 7")]
    folder = _write(tmp_path, {"gpu01/0.log": "\n".join([*[_cri(QUIET)] * 3_000, *parts, *[_cri(QUIET)] * 3_000])})
    (event,) = _events(folder)
    assert (event.body, event.attributes["joined"]) == ("ValueError: shard 7", "true")


@pytest.mark.usefixtures("small_blocks")
def test_a_file_that_is_one_table_is_read_as_a_whole(tmp_path: Path) -> None:
    head = "index, uuid, pci.bus_id, temperature.gpu"
    row = "3, GPU-0a1b2c3d-4e5f-6071-8293-a4b5c6d7e8f9, 00000000:3B:00.0, 74"
    rows = [row] * (4 * FOLLOW_BYTES // len(row))
    folder = _write(tmp_path, {"gpu01/smi.csv": "\n".join([head, *rows])})
    assert sum(len(batch.records) for _, batch in _batches(folder)) == len(rows) + 1


# --- JSON documents ---------------------------------------------------------------------------------------------------


def _happened(number: int) -> dict[str, object]:
    return {
        "kind": "Event", "type": "Warning", "reason": "Evicted", "lastTimestamp": f"2026-08-10T15:36:0{number}Z",
        "message": f"The node was low on resource: memory. Threshold quantity: {number}Gi, available: 52Mi. ",
        "involvedObject": {"kind": "Pod", "name": f"train-{number}", "namespace": "ml"},
    }  # fmt: skip


EVENTS = [_happened(number) for number in range(3)]
LAYOUTS = {
    "a list of Kubernetes": json.dumps({"apiVersion": "v1", "items": EVENTS, "kind": "List"}),
    "a list of Kubernetes, indented": json.dumps({"apiVersion": "v1", "items": EVENTS, "kind": "List"}, indent=4),
    "an array": json.dumps(EVENTS), "an array, indented": json.dumps(EVENTS, indent=2),
    "objects behind one another": "\n".join(json.dumps(event, indent=2) for event in EVENTS),
    "lines": "\n".join(json.dumps(event) for event in EVENTS),
}  # fmt: skip


@pytest.mark.parametrize("layout", LAYOUTS)
def test_events_of_kubernetes_are_read_from_json(layout: str, tmp_path: Path) -> None:
    folder = _write(tmp_path, {"events.json": LAYOUTS[layout]})
    assert plan([folder]).gaps == []
    events = _events(folder)
    assert _names(events) == ["pod.evicted"] * 3
    text = LAYOUTS[layout].encode()
    for number, event in enumerate(events):
        assert f"OBJECT=pod/train-{number}" in event.body
        assert text[event.offset :].lstrip().startswith(b"{")
        assert event.line_no == 1 + text[: event.offset].count(b"\n")


def test_of_a_document_that_breaks_off_the_whole_objects_are_read(tmp_path: Path) -> None:
    folder = _write(tmp_path, {"events.json": json.dumps(EVENTS, indent=2)[:-40]})
    assert _names(_events(folder)) == ["pod.evicted"] * 2


def test_the_journal_as_an_array_is_read(tmp_path: Path) -> None:
    entries = [json.loads(_journal(text)) for text in ("hello", XID)]
    folder = _write(tmp_path, {"journal.json": json.dumps(entries)})
    (event,) = _events(folder)
    assert (event.name, event.node, event.subject.pci_bus_id) == ("gpu.xid", "gpu01", "0000:3b:00.0")


def test_offsets_are_in_bytes(tmp_path: Path) -> None:
    text = json.dumps([{"message": "größer"}, {"message": ERROR}], ensure_ascii=False)
    folder = _write(tmp_path, {"app.json": text})
    first, second = object_lines(folder / "app.json")
    assert text.encode()[second.offset :].startswith(b'{"message": "Val')
    assert (first.offset, first.line_no, second.line_no) == (1, 1, 1)


def test_a_document_of_too_many_objects_is_read_to_the_limit_and_said(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("pipeline.objects.MAX_OBJECTS", 2)
    folder = _write(tmp_path, {"app.json": json.dumps([{"message": ERROR}] * 3)})
    assert len(object_lines(folder / "app.json")) == 2
    assert "only" in (too_much(folder / "app.json") or "")


@pytest.mark.parametrize("odd", [b"\\ud800", b"\xff", b"\xed\xa0\x80"])
def test_a_document_with_text_that_is_no_utf8_is_read(odd: bytes, tmp_path: Path) -> None:
    text = b'\xef\xbb\xbf[{"message": "hello %s"}, {"message": "%s", "who": "%s"}]' % (odd, ERROR.encode(), odd)
    (tmp_path / "app.json").write_bytes(text)
    first, second = object_lines(tmp_path / "app.json")
    assert (first.offset, text[second.offset :][:14]) == (4, b'{"message": "V')
    assert _names(_events(tmp_path)) == ["python.exception"]


@pytest.mark.parametrize(
    ("name", "text", "reason"),
    [
        ("state.json", '{"a": 1}', "JSON document"), ("config.json", '[1, 2, {"lr": 0.1}]', "JSON document"),
        ("fr.pkl", "\x80\x04\x95" + "x" * 40, "pickle"),
    ],
)  # fmt: skip
def test_what_holds_no_lines_is_a_gap(name: str, text: str, reason: str, tmp_path: Path) -> None:
    (tmp_path / name).write_bytes(text.encode("latin-1"))
    (gap,) = plan([tmp_path]).gaps
    assert reason in gap.reason


def test_a_description_of_pods_is_read_line_by_line(tmp_path: Path) -> None:
    pod = {"apiVersion": "v1", "kind": "Pod", "status": {"containerStatuses": [{"lastState": {"terminated": {
        "exitCode": 137, "reason": "OOMKilled"}}}]}}  # fmt: skip
    folder = _write(tmp_path, {"pod.json": json.dumps(pod, indent=4)})
    assert plan([folder]).gaps == []
    assert "pod.oom_killed" in _names(_events(folder))


# --- hostile ----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "line",
    [
        "{" * 50_000, '{"log":' * 20_000, '{"a":[' * 20_000, 'level=error msg="' + "\\" * 50_000, "a=b " * 20_000,
        "[rank1]:" * 20_000, "x[rank" * 20_000, "\r" * 50_000, "#012" * 20_000, " NCCL WARN " * 10_000,
        "]<std" * 20_000, "PID " * 20_000, "GPU 00000000:" * 8_000,
    ],
    ids=lambda line: line[:12],
)  # fmt: skip
def test_a_hostile_line_parses(line: str) -> None:
    for text in (line, f"Aug 10 15:36:05 gpu01 python[7]: {line}", json.dumps({"log": line})):
        assert isinstance(parse_line(text).body, str)
