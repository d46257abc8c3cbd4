"""Files that are read by a thread of their own, held up where the test wants it."""

import itertools
import threading
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from schemas.records import RawLine
from shippers.apart import Apart
from shippers.config import SourceSettings, StartAt
from shippers.fileset import FileSet
from shippers.pieces import Limit, Moment, Piece
from shippers.positions import SourcePosition
from tests.shippers.fakes import SECOND_NS, append, eventually

Saved = dict[str, SourcePosition | None]


class Held(FileSet):
    """Files whose looks wait while `goes` is not set, as in the kernel."""

    goes: threading.Event
    waits: threading.Event

    def look(self, moment: Moment) -> None:
        if not self.goes.is_set():
            self.waits.set()
            self.goes.wait()
            self.waits.clear()
        super().look(moment)


class Passes:
    """Passes over the files of a pattern, a second apart, that may hang."""

    def __init__(self, pattern: Path, saved: Saved | None = None, limit: Limit | None = None) -> None:
        self.saved = saved if saved is not None else {}
        self.files = Held(SourceSettings(path=str(pattern)), StartAt(), self.saved)
        self.files.goes, self.files.waits = threading.Event(), threading.Event()
        self.files.goes.set()
        self.may_hang = True
        self.apart = Apart(self.files, lambda moment: self.may_hang, limit or Limit(lines=1000, size=512 * 1024))
        self.numbers = itertools.count(100)
        self.mono_ns = 1000 * SECOND_NS

    def __call__(self, pieces: int = 1000, after_s: int = 1) -> list[RawLine]:
        self.mono_ns += after_s * SECOND_NS
        moment = Moment(observed_ns=self.mono_ns, mono_ns=self.mono_ns, wall_ns=time.time_ns())
        self.apart.look(moment)
        self.saved.update(dict.fromkeys(self.apart.take_gone()))
        lines: list[RawLine] = []
        for source in list(self.apart.due(moment)):
            for piece in itertools.islice(self._pieces(source, moment), pieces):
                self.saved[piece.source] = piece.position
                lines.extend(piece.lines)
        return lines

    def _pieces(self, source: object, moment: Moment) -> Iterator[Piece]:
        while (piece := source.read(Limit(lines=1000, size=2**20), moment, self.numbers)) is not None:  # type: ignore[attr-defined]
            yield piece

    def until(self, count: int, pieces: int = 1000) -> list[RawLine]:
        """Lines of as many passes as it takes."""
        found: list[RawLine] = []

        def has_all() -> bool:
            found.extend(self(pieces))
            return len(found) >= count

        eventually(has_all, f"{count} lines")
        return found

    def states(self) -> list[tuple[str, str | None, bool]]:
        return [(each.state, each.reason, each.at_end) for each in self.apart.progress()]


@pytest.fixture
def log(tmp_path: Path) -> Path:
    path = tmp_path / "logs" / "rank0.log"
    path.parent.mkdir()
    append(path, "one\ntwo\n")
    return path


def bodies(lines: list[RawLine]) -> list[str]:
    return [line.body for line in lines]


def test_what_the_thread_reads_comes_numbered_in_order_with_the_time_it_was_taken(log: Path) -> None:
    passes = Passes(log)
    lines = passes.until(2)

    assert [(each.body, each.seq) for each in lines] == [("one", 100), ("two", 101)]
    assert {each.observed_time_unix_nano for each in lines} == {passes.mono_ns}
    passes.apart.close()


def test_files_that_hang_hold_up_nobody_and_say_for_how_long(log: Path) -> None:
    passes = Passes(log)
    passes.until(2)
    passes.files.goes.clear()
    append(log, "three\n")
    eventually(lambda: passes() or passes.files.waits.is_set(), "the thread hangs")
    began_s = time.monotonic()
    assert [passes() for _ in range(30)] == [[]] * 30
    assert time.monotonic() - began_s < 1
    state, reason, at_end = passes.states()[0]
    assert (state, at_end) == ("refused", False)
    assert reason is not None
    assert reason.startswith("has not answered for 3")

    passes.files.goes.set()
    assert bodies(passes.until(1)) == ["three"]
    eventually(lambda: passes() or passes.states() == [("on", None, True)], "it is well again")
    passes.apart.close()


def test_there_is_one_thread_however_long_it_hangs(log: Path) -> None:
    passes = Passes(log)
    passes.files.goes.clear()
    for _ in range(50):
        passes()
    named = [each for each in threading.enumerate() if each.name == f"files {log}"]
    assert len(named) == 1
    assert passes.states()[0][0] == "refused"

    passes.files.goes.set()
    passes.apart.close()
    eventually(lambda: not named[0].is_alive(), "the thread ends")


def test_closing_waits_for_nobody(log: Path) -> None:
    passes = Passes(log)
    passes.files.goes.clear()
    eventually(lambda: passes() or passes.files.waits.is_set(), "the thread hangs")
    began_s = time.monotonic()
    passes.apart.close()

    assert time.monotonic() - began_s < 0.1
    passes.files.goes.set()


def test_what_was_read_and_not_taken_comes_after_a_restart_once(log: Path) -> None:
    append(log, "".join(f"line {number}\n" for number in range(98)))
    found: list[str] = []
    saved: Saved = {}
    for _ in range(5):
        passes = Passes(log, saved, Limit(lines=7, size=512 * 1024))
        found += bodies(passes.until(1, pieces=2))
        passes.apart.close()
    assert 10 <= len(found) < 100
    passes = Passes(log, saved)
    found += bodies(passes.until(100 - len(found)))
    passes.apart.close()

    assert found == ["one", "two", *(f"line {number}" for number in range(98))]


def test_files_that_begin_to_hang_are_handed_over_where_they_were_read(log: Path) -> None:
    passes = Passes(log)
    passes.may_hang = False
    assert bodies(passes()) == ["one", "two"]
    append(log, "three\n")
    passes.may_hang = True

    assert bodies(passes.until(1)) == ["three"]
    passes.apart.close()


def test_a_position_from_before_the_start_is_not_forgotten(log: Path) -> None:
    first = Passes(log)
    first.until(2)
    first.apart.close()
    append(log, "three\n")
    again = Passes(log, dict(first.saved))

    assert bodies(again.until(1)) == ["three"]
    again.apart.close()


def test_a_file_that_is_gone_is_forgotten_and_not_the_one_that_took_its_name(log: Path) -> None:
    passes = Passes(log.parent / "*.log")
    passes.until(2)
    log.unlink()
    eventually(lambda: passes(after_s=6) or passes.saved == {"rank0.log": None}, "it is forgotten")
    append(log, "new\n")

    assert bodies(passes.until(1)) == ["new"]
    assert passes.saved["rank0.log"] is not None
    passes.apart.close()


def test_a_fault_in_the_thread_is_raised_where_the_lines_are_taken(log: Path) -> None:
    class Faulty(Held):
        def take_gone(self) -> list[str]:
            raise ZeroDivisionError

    passes = Passes(log)
    passes.files.__class__ = Faulty
    with pytest.raises(ZeroDivisionError):
        eventually(lambda: passes(), "never")
    passes.apart.close()
