"""The bench of the agent's cost tells what is missing and doubled, and whether memory grows."""

from pathlib import Path

import pytest

from schemas.records import ClockReading, RawBatch, RawLine
from tests.bench.agent_cost import Seen, slope
from tests.bench.cost_load import Load, number_of


def _batch(*bodies: str) -> RawBatch:
    lines = [RawLine(seq=n, source="s", generation="g", offset=n, body=body) for n, body in enumerate(bodies)]
    return RawBatch(
        run="live", run_id="r", cluster="c", reporter="n", boot_id="b", shipper_id="i", batch_seq=1,
        clock=ClockReading(raw_ns=0, mono_ns=0, boottime_ns=0, wall_ns=0), records=lines,
    )  # fmt: skip


def test_each_kind_of_line_is_known_by_its_number() -> None:
    marks = "rootrank: job.mark job=7 attempt=0 rank=3 step=12 phase=train"
    known = [number_of(line) for line in _batch("a n=x:1 n=rank2:7", marks, "a n=rank2:7 b").records]

    assert known == [("rank2", 7), ("marks", 12), None]


def test_missing_and_doubled_lines_are_told(tmp_path: Path) -> None:
    load = Load(tmp_path, "file", 1)
    load.streams[0].count = 4
    seen = Seen()
    seen.take(_batch(*(f"a n=rank0:{number}" for number in (0, 1, 1, 2))))

    assert seen.problems(load.streams) == ["rank0: 1 missing, 1 doubled or never written"]

    seen.take(_batch("a n=rank0:3"))
    load.streams[0].count = 3
    assert seen.problems(load.streams) == ["rank0: 0 missing, 2 doubled or never written"]


def test_growth_is_that_of_the_last_half() -> None:
    assert slope([(0, 10), (60, 90), (120, 50), (180, 51)]) == pytest.approx(60)
    assert slope([(0, 10), (60, 90), (120, 50), (180, 50)]) == pytest.approx(0)
