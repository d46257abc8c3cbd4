"""`rootrank bundle`: what is in the archive, and what is not."""

import hashlib
import io
import json
import shutil
import subprocess
import sys
import tarfile
from collections.abc import Sequence
from importlib.resources import files
from pathlib import Path
from typing import Any

import msgspec
import pytest
import zstandard

from pipeline.bundle.archive import bundle_of, write_archive
from pipeline.bundle.contents import Contents, Line, captures_in
from pipeline.bundle.from_folder import NoSuchIncidentError, contents_of_folder
from pipeline.bundle.names import renaming
from schemas.records import Incident

CAPTURE = "5f0c2ab19d3e4871"
INCIDENT = "637c815d078a052b"
XID = "NVRM: Xid (PCI:0000:5e:00): 79, GPU has fallen off the bus."
SECRET = "hunter2-of-rank5"


def redact(texts: Sequence[str]) -> list[str]:
    """A redactor that knows one secret."""
    return [text.replace(SECRET, "[redacted:password]") for text in texts]


@pytest.fixture
def logs(tmp_path: Path) -> Path:
    """The bundled incident, with a secret and a home folder beside its evidence, and a capture that was collected."""
    folder = tmp_path / "logs"
    shutil.copytree(str(files("pipeline").joinpath("demo", "fell_off_bus")), folder)
    kernel = folder / "gpu-102" / "kernel.kmsg"
    lines = kernel.read_text(encoding="utf-8").splitlines(keepends=True)
    lines.append(f"6,9999,90000000,-;login of /home/ada with password {SECRET} on gpu-102\n")
    kernel.write_text("".join(lines), encoding="utf-8")
    (folder / "gpu-102" / "captures").mkdir()
    (folder / "gpu-102" / "captures" / "5f0c2ab19d3e4871.txt").write_text(
        f"rootrank: capture id={CAPTURE} trigger=gpu\n"
        f"rootrank: capture.text id={CAPTURE} n=1 | gpu: Xid 79\n"
        f"rootrank: capture.text id={CAPTURE} n=2 | {XID} {SECRET} gpu-102\n",
        encoding="utf-8",
    )
    return folder


@pytest.fixture
def contents(logs: Path) -> Contents:
    return contents_of_folder(logs, INCIDENT[:6], 20)


def unpacked(path: Path) -> dict[str, bytes]:
    data = path.read_bytes()
    if path.name.endswith(".zst"):
        data = zstandard.ZstdDecompressor().decompressobj().decompress(data)
    with tarfile.open(fileobj=io.BytesIO(data), mode="r:*") as tar:
        found = {member.name: tar.extractfile(member) for member in tar.getmembers()}
        return {name: file.read() for name, file in found.items() if file is not None}


@pytest.mark.parametrize("name", ["case.tar.zst", "case.tar.gz"])
def test_the_archive_holds_the_verdict_its_proof_the_lines_around_and_captures(
    contents: Contents, tmp_path: Path, name: str
) -> None:
    write_archive(bundle_of(contents, redact), tmp_path / name, f"rootrank-{INCIDENT}")
    found = {path.removeprefix(f"rootrank-{INCIDENT}/"): data for path, data in unpacked(tmp_path / name).items()}

    assert sorted(found) == [
        "README.txt", "captures/5f0c2ab19d3e4871.txt", "evidence.jsonl",
        "incident.json", "manifest.json", "raw_lines.jsonl", "report.html", "versions.json",
    ]  # fmt: skip
    incident = msgspec.json.decode(found["incident.json"], type=Incident)
    assert (incident.incident_id, incident.class_) == (INCIDENT, "hardware/gpu_xid_79")
    evidence = [json.loads(line) for line in found["evidence.jsonl"].splitlines()]
    assert [each["step"] for each in evidence] == [step.step for step in contents.incident.chain]
    assert any(XID in each["text"] for each in evidence)
    assert b"<html" in found["report.html"]
    assert b"gpu: Xid 79" in found["captures/5f0c2ab19d3e4871.txt"]
    assert list(tmp_path.glob(".*.part")) == []


def test_the_manifest_names_every_other_file_with_its_checksum(contents: Contents) -> None:
    made = bundle_of(contents, redact).files
    manifest = json.loads(made["manifest.json"])

    assert set(manifest["files"]) == set(made) - {"manifest.json"}
    for name, said in manifest["files"].items():
        assert said == {"bytes": len(made[name]), "sha256": hashlib.sha256(made[name]).hexdigest()}


def test_raw_lines_are_those_around_evidence_and_no_others(contents: Contents) -> None:
    places: dict[str, list[int]] = {}
    for step in contents.incident.chain:
        places.setdefault(step.evidence.source, []).append(step.evidence.line_no or 0)

    assert contents.lines
    for line in contents.lines:
        assert any(abs((line.line_no or 0) - number) <= 20 for number in places[line.source]), line
    for source, numbers in places.items():
        assert set(numbers) <= {line.line_no for line in contents.lines if line.source == source}


def test_a_secret_is_nowhere_and_what_was_taken_out_is_counted(contents: Contents) -> None:
    assert any(SECRET in line.text for line in contents.lines)
    made = bundle_of(contents, redact)

    assert all(SECRET.encode() not in data for data in made.files.values())
    assert made.redacted == {"password": 2}
    assert "Secrets were taken out; what stood there reads [redacted:KIND]: 2 x password." in readme(made.files)


def readme(made: dict[str, bytes]) -> str:
    return made["README.txt"].decode()


def test_without_redaction_the_readme_says_so(contents: Contents) -> None:
    said = readme(bundle_of(contents, None, remark="redaction: no patterns here").files)

    assert "NOTHING WAS REDACTED" in said
    assert "redaction: no patterns here" in said


def test_names_of_nodes_and_users_are_replaced_everywhere(contents: Contents) -> None:
    made = bundle_of(contents, redact, anonymise=True)

    assert made.names == {"gpu-101": "node-1", "gpu-102": "node-2", "ada": "user-1"}
    for name, data in made.files.items():
        for word in (b"gpu-101", b"gpu-102", b"/home/ada"):
            assert word not in data, (name, word)
    incident = msgspec.json.decode(made.files["incident.json"], type=Incident)
    assert incident.culprits[0].node == "node-2"
    assert (incident.class_, incident.action.kind) == (contents.incident.class_, contents.incident.action.kind)
    assert "Names of nodes and users are replaced (3 names)" in readme(made.files)


def test_only_whole_names_are_replaced_the_longest_first() -> None:
    rename = renaming({"gpu-1": "node-1", "gpu-10": "node-2", "gpu-1.example": "node-3"})

    assert rename("gpu-1 gpu-10 gpu-100 gpu-1.example xgpu-1 gpu-1/kern.log gpu-1:") == (
        "node-1 node-2 gpu-100 node-3 xgpu-1 node-1/kern.log node-1:"
    )


def test_the_same_contents_give_the_same_archive(contents: Contents, tmp_path: Path) -> None:
    for name in ("a.tar.zst", "b.tar.zst"):
        write_archive(bundle_of(contents, redact), tmp_path / name, "top")

    assert (tmp_path / "a.tar.zst").read_bytes() == (tmp_path / "b.tar.zst").read_bytes()


def test_captures_are_put_together_from_the_lines_that_carried_them() -> None:
    found = captures_in(
        [
            "rootrank: capture id=5f0c2ab19d3e4871 trigger=gpu parts=2",
            "rootrank: capture.text id=5f0c2ab19d3e4871 n=1 | === about",
            "rootrank: capture.text id=5f0c2ab19d3e4871 n=2 | a | b",
            "rootrank: capture.text id=../../etc n=1 | x",
            "step 1",
        ]
    )

    assert found == {
        "5f0c2ab19d3e4871": "rootrank: capture id=5f0c2ab19d3e4871 trigger=gpu parts=2\n=== about\na | b\n"
    }


def test_a_name_of_a_capture_leads_nowhere(contents: Contents) -> None:
    made = bundle_of(msgspec.structs.replace(contents, captures={"../../x": "y"}), redact)

    assert [name for name in made.files if name.startswith("captures/")] == ["captures/______x.txt"]


def test_an_incident_that_is_not_there_is_named_with_those_that_are(logs: Path) -> None:
    with pytest.raises(NoSuchIncidentError, match=f"there are: {INCIDENT}"):
        contents_of_folder(logs, "ffff", 20)


def test_evidence_that_points_out_of_the_folder_is_not_followed(contents: Contents, tmp_path: Path) -> None:
    from pipeline.bundle.from_folder import _around

    remarks: list[str] = []
    (tmp_path / "outside").write_text("x\n", encoding="utf-8")
    assert list(_around(tmp_path / "logs", ("../outside", [1]), 5, remarks)) == []
    assert remarks == ["../outside is not in the folder"]
    assert Line(node="", source="a", text="b") not in contents.lines


def command(*arguments: str | Path) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-m", "pipeline", "bundle", *map(str, arguments)], capture_output=True, text=True, check=False
    )


def test_the_command_writes_it_once_and_says_what(logs: Path, tmp_path: Path) -> None:
    out = tmp_path / "case.tar.zst"
    answer = command(INCIDENT, "--folder", logs, "--out", out, "--anonymise", "--force", "--json")
    assert answer.returncode == 0, answer.stderr
    said: Any = json.loads(answer.stdout)
    again = command(INCIDENT, "--folder", logs, "--out", out)

    assert said["written"] == [str(out), f"{out}.names.json"]
    assert said["bytes"] == out.stat().st_size
    assert said["captures"] == ["5f0c2ab19d3e4871"]
    names = Path(f"{out}.names.json")
    assert names.stat().st_mode & 0o077 == 0
    assert json.loads(names.read_text(encoding="utf-8"))["gpu-102"] == "node-2"
    assert (again.returncode, "--force replaces it" in again.stderr) == (2, True)


@pytest.mark.parametrize(
    ("arguments", "code", "said"),
    [
        (("x", "--out", "case.zip"), 2, "must end in .tar.zst or .tar.gz"),
        (("x", "--out", "case.tar.gz", "--folder", "/nonexistent"), 3, "/nonexistent is no folder"),
        (("x", "--out", "case.tar.gz", "--clickhouse-url", "http://127.0.0.1:1/rootrank"), 3, "does not answer"),
    ],
)
def test_mistakes_are_sentences(arguments: tuple[str, ...], code: int, said: str) -> None:
    answer = command(*arguments)

    assert (answer.returncode, said in answer.stderr) == (code, True), answer.stderr
    assert "Traceback" not in answer.stderr
