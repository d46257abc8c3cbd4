"""A minute of what `make soak-agent` does for half an hour."""

from pathlib import Path

import pytest

from tests.bench.agent_chaos import Seen, measure, sum_of
from tests.bench.chaos_writers import Writer


@pytest.mark.kafka
@pytest.mark.slow
@pytest.mark.timeout(600)
def test_every_line_arrives_once_or_is_counted(tmp_path: Path) -> None:
    sums, notes = measure(tmp_path, seconds=60, files=4, seed=3)

    assert not [problem for each in sums for problem in each.problems], notes
    assert all(each.once > 0 for each in sums)


def seen(writer: Writer, counts: list[int], *, counted: int = 0, unknown: int = 0) -> Seen:
    found = Seen(lines={writer.name: bytearray(counts)})
    found.counted[writer.name], found.unknown[writer.name] = counted, unknown
    return found


def test_the_sum_tells_what_does_not_add_up(tmp_path: Path) -> None:
    writer = Writer(tmp_path / "w.log", 1, 10)
    writer.write(4)
    writer.rotate("rename")
    writer.write(2)
    writer.rotate("delete")
    cases = {
        "adds up": seen(writer, [1] * 6),
        "counted": seen(writer, [1, 0, 1, 1, 1, 1], counted=1),
        "deleted": seen(writer, [1, 1, 1, 1, 0, 0]),
        "arrived more than once": seen(writer, [1, 2, 1, 1, 1, 1]),
        "in no marker": seen(writer, [1, 0, 1, 1, 1, 1]),
        "lines that arrived": seen(writer, [1] * 6, counted=2),
        "lost without a marker": seen(writer, [1, 1, 1, 1, 1, 0]),
    }
    told = {name: "; ".join(sum_of(writer, each).problems) for name, each in cases.items()}

    assert [told.pop(name) for name in ("adds up", "counted", "deleted")] == ["", "", ""]
    assert not [name for name, problem in told.items() if name not in problem]
