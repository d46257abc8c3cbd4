"""A bundle as an archive: a tar, compressed, the same for the same contents."""

import gzip
import hashlib
import io
import re
import tarfile
from collections import Counter
from collections.abc import Sequence
from pathlib import Path
from typing import Any, Final

import msgspec
import orjson
import zstandard
from msgspec import Struct

from pipeline import VERSION
from pipeline.bundle.contents import Contents
from pipeline.bundle.names import mapped, pseudonyms, renaming
from pipeline.bundle.redacting import Redact
from pipeline.report import render_html
from schemas.records import Incident

SUFFIXES: Final = (".tar.zst", ".tar.gz")
_REDACTED: Final = re.compile(r"\[redacted:([a-z0-9-]{1,40})")
_ABOUT: Final = {
    "README.txt": "this text",
    "manifest.json": "every other file with its size and SHA-256",
    "incident.json": "what rootrank concluded: cause, culprit, chain of lines, confidence",
    "report.html": "the same as a page that needs nothing else",
    "evidence.jsonl": "the lines that prove it, in the order of the chain",
    "raw_lines.jsonl": "these and the lines around them, as they were read",
    "versions.json": "the versions of rootrank, its rules and the calibration behind the verdict",
    "captures/": "what the node's agent took when the fault happened: stacks, GPU state, counters, sockets",
}


class Bundle(Struct, frozen=True, kw_only=True):
    """The files of an archive, the pseudonyms that were used, and how often something was redacted, by kind."""

    files: dict[str, bytes]
    names: dict[str, str]
    redacted: dict[str, int]


def bundle_of(contents: Contents, redact: Redact | None, *, anonymise: bool = False, remark: str = "") -> Bundle:
    """The files. `redact` None: nothing can be redacted, which `remark` explains. Raises NotRedactedError."""
    names = pseudonyms(contents) if anonymise else {}
    clean = _clean(contents, redact, names)
    redacted = Counter(kind for text in _texts(clean) for kind in _REDACTED.findall(text))
    incident = clean.incident
    files = {
        "incident.json": _json(msgspec.to_builtins(incident)),
        "report.html": render_html([incident], incident.gaps, [], read=clean.origin).encode(),
        "evidence.jsonl": _lines([_evidence(incident, number) for number in range(len(incident.chain))]),
        "raw_lines.jsonl": _lines([msgspec.to_builtins(line) for line in clean.lines]),
        "versions.json": _json({"rootrank": VERSION, "engine": msgspec.to_builtins(incident.engine)}),
        **{f"captures/{_file_name(name)}.txt": text.encode() for name, text in sorted(clean.captures.items())},
    }
    remarks = [*clean.remarks, *([remark] if remark else ())]
    files["README.txt"] = _readme(clean, files, redacted, names, remarks, is_redacted=redact is not None).encode()
    files["manifest.json"] = _json(
        {
            "incident_id": incident.incident_id,
            "made_by": f"rootrank {VERSION}",
            "files": {
                name: {"bytes": len(data), "sha256": hashlib.sha256(data).hexdigest()}
                for name, data in sorted(files.items())
            },
        }
    )
    return Bundle(files=files, names=names, redacted=dict(sorted(redacted.items())))


def write_archive(bundle: Bundle, path: Path, top: str) -> None:
    """The archive, whole or not at all. The suffix says how it is compressed. Raises OSError."""
    scratch = path.with_name(f".{path.name}.part")
    try:
        scratch.write_bytes(_compressed(_tar(bundle, top), path.name))
        scratch.replace(path)
    finally:
        scratch.unlink(missing_ok=True)


def _clean(contents: Contents, redact: Redact | None, names: dict[str, str]) -> Contents:
    """Redacted, then renamed: all texts, wherever they stand."""
    texts = list(dict.fromkeys(_texts(contents)))
    clean = dict(zip(texts, redact(texts), strict=True)) if redact is not None else {}
    rename = renaming(names)

    def change(text: str) -> str:
        return rename(clean.get(text, text))

    shape: Any = mapped(msgspec.to_builtins(contents), change)
    # These are words of a contract and no texts: whatever is called like a node keeps what it means.
    for key in ("incident_id", "class", "run", "verdict", "state", "severity", "interruption", "phase"):
        shape["incident"][key] = msgspec.to_builtins(contents.incident)[key]
    return msgspec.convert(shape, Contents)


def _texts(shape: Any) -> list[str]:
    """All texts in it."""
    found: list[str] = []
    mapped(msgspec.to_builtins(shape), lambda text: found.append(text) or text)  # type: ignore[func-returns-value]
    return found


def _evidence(incident: Incident, number: int) -> dict[str, Any]:
    step = incident.chain[number]
    return {"step": step.step, "role": step.role, "event": step.event, "where": step.where, "when": step.when,
            "error_ns": step.error_ns, **msgspec.to_builtins(step.evidence)}  # fmt: skip


def _readme(
    contents: Contents, files: dict[str, bytes], redacted: Counter[str], names: dict[str, str],
    remarks: Sequence[str], *, is_redacted: bool,
) -> str:  # fmt: skip
    incident = contents.incident
    there = [name for name in _ABOUT if name in files or name in ("README.txt", "manifest.json", "captures/")]
    if not contents.captures:
        there.remove("captures/")
    said = [f"  {name:18}{_ABOUT[name]}" for name in there]
    taken = ", ".join(f"{count} x {kind}" for kind, count in sorted(redacted.items())) or "nothing was found"
    secrets = f"Secrets were taken out; what stood there reads [redacted:KIND]: {taken}."
    if not is_redacted:
        secrets = "NOTHING WAS REDACTED. Read it before you send it."
    people = "Names of nodes and users are as they are."
    if names:
        people = f"Names of nodes and users are replaced ({len(names)} names); who made this keeps the list."
    return "\n".join(
        [
            f"rootrank bundle of incident {incident.incident_id} ({incident.class_})", "",
            incident.explanation or "", "", f"Taken from: {contents.origin}. Made by rootrank {VERSION}.", "",
            "What is inside", *said, "", "What was taken out", f"  {secrets}", f"  {people}",
            "  Log lines are as programs wrote them otherwise: look through them before you send them.", "",
            "What is not here", *(f"  {remark}" for remark in remarks or ["nothing is known to be missing"]), "",
        ]
    )  # fmt: skip


def _json(shape: Any) -> bytes:
    return orjson.dumps(shape, option=orjson.OPT_INDENT_2 | orjson.OPT_APPEND_NEWLINE)


def _lines(shapes: Sequence[Any]) -> bytes:
    return b"".join(orjson.dumps(shape) + b"\n" for shape in shapes)


def _file_name(name: str) -> str:
    return "".join(char if char.isalnum() or char in "-_" else "_" for char in name)[:100] or "capture"


def _tar(bundle: Bundle, top: str) -> bytes:
    data = io.BytesIO()
    with tarfile.open(fileobj=data, mode="w", format=tarfile.PAX_FORMAT) as tar:
        for name, content in sorted(bundle.files.items()):
            member = tarfile.TarInfo(f"{top}/{name}")
            member.size, member.mode = len(content), 0o644
            tar.addfile(member, io.BytesIO(content))
    return data.getvalue()


def _compressed(data: bytes, name: str) -> bytes:
    if name.endswith(".tar.zst"):
        return zstandard.ZstdCompressor(level=10).compress(data)
    return gzip.compress(data, mtime=0)
