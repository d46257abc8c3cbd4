"""The sample in README is what the command prints."""

from pathlib import Path

from pipeline.diagnose import diagnose
from pipeline.report import render_diagnosis

ROOT = Path(__file__).parents[1]
LEFT_OUT = " ..."


def test_the_sample_is_what_the_command_prints_but_for_what_is_left_out() -> None:
    _, _, after = (ROOT / "README.md").read_text(encoding="utf-8").partition("What it says (`rootrank diagnose")
    sample = after.split("```")[1].strip("\n").splitlines()
    found = diagnose([ROOT / "pipeline" / "demo" / "fell_off_bus"])
    printed = render_diagnosis(found.incidents, found.gaps, [], width=80).splitlines()
    parts: list[list[str]] = [[]]
    for line in sample:
        if line == LEFT_OUT:
            parts.append([])
        else:
            parts[-1].append(line)
    at = 0
    for part in parts:
        starts = [n for n in range(at, len(printed) - len(part) + 1) if printed[n : n + len(part)] == part]
        assert starts, "\n".join(part)
        at = starts[0] + len(part)
    assert len(parts) > 2
