"""Of a large file the lines that can mean something are read, and what comes out is the same."""

import io
import random
from pathlib import Path

import pytest

from pipeline import logfiles, worth_reading
from pipeline.diagnose import diagnose
from schemas import selecting, signals

CORPUS = Path(__file__).parent / "corpus"
SELECTOR = selecting.selector(signals.load())
INFO = "gpu01:4711:4890 [3] NCCL INFO Channel 00/0 : 0[0] -> 1[1] via P2P/CUMEM"
XID = "NVRM: Xid (PCI:0000:5e:00): 79, GPU has fallen off the bus."


@pytest.fixture
def small_blocks(monkeypatch: pytest.MonkeyPatch) -> None:
    """Blocks of 2 KiB, so that small files have many."""
    for module in (logfiles, worth_reading):
        monkeypatch.setattr(module, "BLOCK_BYTES", 2_048)
    monkeypatch.setattr(worth_reading, "END_BYTES", 256)


def read(data: bytes) -> list[worth_reading.ReadLine]:
    return list(worth_reading.worth_reading(io.BytesIO(data), SELECTOR))


def test_a_small_file_is_read_whole() -> None:
    data = b"\n".join([INFO.encode()] * 100)
    assert [line.number for line in read(data)] == list(range(1, 101))


@pytest.mark.usefixtures("small_blocks")
def test_numbers_and_offsets_are_those_of_the_file() -> None:
    chance = random.Random(7)
    lines = [chance.choice([INFO, XID, "", "05:06:07 stamped", "x" * 3_000]) for _ in range(2_000)]
    data = "\n".join(lines).encode()
    kept = read(data)
    assert len(kept) < len(lines)
    for line in kept:
        assert line.data.decode() == lines[line.number - 1]
        assert data[line.offset : line.offset + len(line.data)] == line.data
    assert [line.number for line in kept] == sorted({line.number for line in kept})
    assert {number for number, text in enumerate(lines, 1) if text == XID} <= {line.number for line in kept}


@pytest.mark.usefixtures("small_blocks")
def test_of_lines_that_say_nothing_the_first_block_and_the_end_are_read() -> None:
    data = b"".join(b"%06d nothing to say\n" % number for number in range(1_000))
    offsets = [line.offset for line in read(data)]
    first = data.rfind(b"\n", 0, 2_048) + 1
    last = data.rfind(b"\n", 0, len(data) - 256) + 1
    assert offsets == [*range(0, first, 22), *range(last, len(data), 22)]


@pytest.mark.usefixtures("small_blocks")
def test_a_line_without_a_stamp_brings_the_last_one_that_has_one() -> None:
    lines = [INFO] * 200 + ["[2026-03-04 05:06:07] step"] + [INFO] * 20 + [XID] + [INFO] * 200
    kept = [line.data.decode() for line in read("\n".join(lines).encode()) if 100 < line.number < 300]
    assert kept == ["[2026-03-04 05:06:07] step", XID]


@pytest.mark.usefixtures("small_blocks")
def test_the_last_line_that_has_a_stamp_may_stand_in_the_block_before() -> None:
    quiet = ["nothing to say, and no time"] * 60
    for shift in range(80):
        lines = [INFO] * (200 + shift) + ["[2026-03-04 05:06:07] warming up", *quiet, XID] + [INFO] * 200
        kept = [line.data.decode() for line in read("\n".join(lines).encode()) if 100 < line.number < 400]
        assert kept == ["[2026-03-04 05:06:07] warming up", XID]


@pytest.mark.usefixtures("small_blocks")
def test_what_is_looked_at_adds_up_to_the_file() -> None:
    looked: list[int] = []
    data = b"\n".join([INFO.encode()] * 500)
    list(worth_reading.worth_reading(io.BytesIO(data), SELECTOR, looked.append))
    assert sum(looked) == len(data)


@pytest.mark.parametrize("case", sorted(path.name for path in CORPUS.iterdir() if path.is_dir()))
def test_noise_of_many_blocks_around_an_incident_changes_nothing(
    case: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Every file of the case gets thousands of lines of noise between its own; the verdict is that of the case."""
    quiet = "this line says nothing at all, nor does it carry a time; it is long enough to fill a block soon"
    for path in sorted((CORPUS / case / "logs").rglob("*")):
        target = tmp_path / case / path.relative_to(CORPUS / case / "logs")
        if path.is_dir():
            target.mkdir(parents=True, exist_ok=True)
        else:
            target.parent.mkdir(parents=True, exist_ok=True)
            head, *rest = path.read_bytes().splitlines(keepends=True)
            noise = (quiet + "\n").encode() * 40
            whole = path.suffix in (".toml", ".gz", ".xz", ".zst", ".json", ".kmsg")
            target.write_bytes(path.read_bytes() if whole else b"".join([head, *(noise + line for line in rest)]))
    expected = diagnose([tmp_path / case])
    for module in (logfiles, worth_reading):
        monkeypatch.setattr(module, "BLOCK_BYTES", 4_096)
    found = diagnose([tmp_path / case])
    assert [(i.class_, i.culprits) for i in found.incidents] == [(i.class_, i.culprits) for i in expected.incidents]
    assert [i.chain for i in found.incidents] == [i.chain for i in expected.incidents]
