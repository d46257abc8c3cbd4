"""Writes `docs/signals.md`: every signal of the release. Run `python -m pipeline.rulebook.reference`."""

from pathlib import Path
from typing import Final

from schemas import signals
from schemas.signal_files import Signal, SignalFile
from schemas.xid import meanings

DOCUMENT: Final = Path(__file__).parents[2] / "docs" / "signals.md"
_HEAD: Final = """# Signals

Every line that rootrank reads as an event, by emitter. Made by `python -m pipeline.rulebook.reference` from
`schemas/signals/*.toml`; `rootrank rules show ID` prints one in full, with its examples. A role says what a line of
this kind usually is (cause, intermediate, symptom, context, noise); noise is recognised so that nothing else claims it.
Attributes carry their unit where they have one. Status: stable where the text was read in the emitter's source, its
documentation or real logs; experimental where it was inferred; deprecated where no supported release prints it.
"""


def reference() -> str:
    """The whole document."""
    known = signals.load()
    count = len(known.signals)
    parts = [_HEAD, f"{count} signals of {len({s.event for s in known.signals})} events in {len(known.files)} files.\n"]
    for name, file in sorted(known.files.items(), key=lambda pair: (pair[1].order, pair[0])):
        parts.append(_file(name, file))
    return "\n".join([*parts, _xids()])


def _xids() -> str:
    """What every Xid number means, with the vendor's action."""
    rows = [
        f"| {number} | {_text(m.name)} | {_text(m.meaning)} | {m.severity} | {m.action} | {m.app_fault} | {m.role} |"
        for number, m in meanings().items()
    ]
    head = [
        "## Xid numbers\n", "Action: the vendor's. Application: whether it is the first suspect.\n",
        "| Xid | symbol | meaning | severity | action | application | role |", "|---|---|---|---|---|---|---|",
    ]  # fmt: skip
    return "\n".join([*head, *rows, ""])


def _file(name: str, file: SignalFile) -> str:
    rows = [
        f"## {name}\n", f"{file.emitter}. Checked against: {file.checked_against}.\n",
        "References: " + ", ".join(_text(reference) for reference in file.references) + "\n",
        "| signal | event | role | severity | label | scope | attributes | versions | status |",
        "|---|---|---|---|---|---|---|---|---|",
        *(_row(signal) for signal in file.signal), "",
    ]  # fmt: skip
    return "\n".join(rows)


def _row(signal: Signal) -> str:
    attributes = [f"`{n}`" + (f" {kind}" if kind not in ("text", "lower") else "") for n, kind in signal.kinds.items()]
    attributes += [f"`{name}`" for name in signal.sets]
    cells = [
        f"`{signal.id}`", f"`{signal.event}`", signal.role, signal.severity, signal.label, signal.scope,
        ", ".join(attributes), signal.versions, signal.status,
    ]  # fmt: skip
    return "| " + " | ".join(_text(cell) for cell in cells) + " |"


def _text(cell: str) -> str:
    return cell.replace("|", "\\|").replace("\n", " ")


if __name__ == "__main__":
    DOCUMENT.write_text(reference(), encoding="utf-8")
