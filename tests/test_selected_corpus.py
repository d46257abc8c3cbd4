"""What a node agent ships of chatty sources leads to the same conclusions as all of their lines."""

import shutil
from pathlib import Path

import pytest

from pipeline.diagnose import diagnose
from schemas.lines import body_of
from schemas.records import RawLine
from schemas.selecting import Watch
from schemas.signals import Worth, load
from shippers.config import Passing
from shippers.gate import Gate
from tests.corpus_cases import CASES, CORPUS, unmet

# One line of context is less than anybody would set, and of a file the first line alone less than its beginning.
CHATTER = [b"reading shard %d of many" % number for number in range(100)]
WATCH = Watch(load())
SELECTED = Passing(select="significant", context_lines=1, max_lines_per_s=0, max_bytes_per_s=0)


@pytest.mark.parametrize("case", CASES)
def test_of_selected_lines_the_same_is_concluded(case: str, tmp_path: Path) -> None:
    shutil.copytree(CORPUS / case / "logs", tmp_path / "logs")
    for path in sorted((tmp_path / "logs").rglob("*")):
        if path.is_file() and path.name != "rootrank.toml":
            select(path)

    assert unmet(case, diagnose([tmp_path / "logs"])) == []


def worth(raw: bytes) -> Worth:
    return WATCH.worth(body_of(raw)[0])


def select(path: Path) -> tuple[int, int]:
    """Leave in a text file what goes on of it and of chatter behind its first line; how many lines that was and is."""
    data = path.read_bytes()
    raws = data.split(b"\n")
    if b"\0" in data or data[:2] in (b"\x1f\x8b", b"\x80\x02"):
        return 0, 0
    last = raws.pop()
    raws += [last] if last else []
    if len(raws) > 1 and raws[0][:1] not in b"{[" and raws[1][:1].isdigit() and worth(raws[0]) < Worth.HEAD:
        raws[1:1] = CHATTER
    lines = [
        (RawLine(seq=0, source="", generation="", offset=number, body=body_of(raw)[0]), len(raw) + 1)
        for number, raw in enumerate(raws)
    ]
    gate = Gate(SELECTED)
    kept = gate.take(lines, 0, whole=[not number for number in range(len(lines))]).lines + gate.quiet(0, is_over=True)
    path.write_bytes(b"".join(raws[line.offset] + b"\n" for line in kept))
    return len(raws), len(kept)
