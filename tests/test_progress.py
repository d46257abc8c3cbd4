"""Long reading says how far it is, on a terminal and nowhere else."""

import io

import pytest

from pipeline import progress
from pipeline.progress import ReadingProgress


class Terminal(io.StringIO):
    """A stream that somebody watches."""

    def isatty(self) -> bool:
        return True


@pytest.fixture(autouse=True)
def _each_time(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(progress, "EVERY_S", -1.0)


def test_a_terminal_sees_files_bytes_and_the_end() -> None:
    out = Terminal()
    reading = ReadingProgress(3, out)
    reading.read("a.log", 2_500_000)
    reading.read("b.log", 1_500_000_000)
    reading.concluding()
    assert "reading file 1 of 3, 2 MB" in out.getvalue()
    assert "reading file 2 of 3, 1.5 GB" in out.getvalue()
    assert "working out" in out.getvalue()
    reading.done()
    assert out.getvalue().endswith("\r\x1b[K")


def test_a_pipe_sees_nothing() -> None:
    out = io.StringIO()
    reading = ReadingProgress(1, out)
    reading.read("a.log", 5_000_000)
    reading.concluding()
    reading.done()
    assert out.getvalue() == ""
