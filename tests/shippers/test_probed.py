import itertools
import threading
from collections.abc import Sequence

import pytest

from shippers.outbox import WIDTH
from shippers.pieces import Limit, Moment, Piece
from shippers.positions import SourcePosition
from shippers.probed import ProbedSource
from shippers.probes.probe import Absent, said
from tests.shippers.fakes import LARGE, SECOND_NS, eventually


class Counter:
    """A probe over a list of what it tells, look by look."""

    name = "counter"
    every_s = 5.0

    def __init__(self, told: list[list[str]], *, may_hang: bool = False, hold: threading.Event | None = None) -> None:
        self.may_hang = may_hang
        self.told = told
        self.hold = hold
        self.opened_with: list[str] = []
        self.is_absent = False
        self.fails = False

    def open(self, memo: str) -> None:
        self.opened_with.append(memo)

    def look(self, moment: Moment) -> Sequence[str]:
        if self.fails:
            raise ValueError("no number: x")
        if self.is_absent:
            raise Absent("no counter here")
        if self.hold is not None:
            self.hold.wait(20)
        return self.told.pop(0) if self.told else []

    def memo(self) -> str:
        return str(len(self.told))

    def close(self) -> None:
        """Nothing is open."""


def at(second: float) -> Moment:
    ns = int(second * SECOND_NS)
    return Moment(observed_ns=ns, mono_ns=ns, wall_ns=ns)


def bodies(piece: Piece | None) -> list[str]:
    return [line.body for line in piece.lines] if piece else []


def read(source: ProbedSource, second: float) -> Piece | None:
    return source.read(LARGE, at(second), itertools.count(1))


def test_a_probe_is_looked_at_when_it_is_due_and_its_lines_have_the_time_of_the_look() -> None:
    source = ProbedSource(Counter([["a", "b"], ["c"]]))
    source.look(at(100))
    piece = read(source, 100)
    assert bodies(piece) == ["a", "b"]
    assert piece is not None
    assert [line.offset for line in piece.lines] == [1, 2]
    assert all(0 <= line.observed_time_unix_nano - 100 * SECOND_NS < SECOND_NS for line in piece.lines)
    source.look(at(104))
    assert read(source, 104) is None
    source.look(at(105))
    assert bodies(read(source, 105)) == ["c"]


def test_what_a_look_tells_happened_since_the_look_before() -> None:
    source = ProbedSource(Counter([["first"], ["second"]]))
    source.look(at(100))
    first = read(source, 100)
    source.look(at(105))
    second = read(source, 105)
    assert first is not None
    assert second is not None
    assert first.lines[0].time_unix_nano is None
    line = second.lines[0]
    assert line.time_unix_nano == 100 * SECOND_NS
    assert 5 * SECOND_NS <= int(line.attributes[WIDTH]) < 6 * SECOND_NS
    assert line.time_unix_nano + int(line.attributes[WIDTH]) == line.observed_time_unix_nano


def test_what_is_known_of_lines_that_still_wait_is_not_saved() -> None:
    source = ProbedSource(Counter([["a", "b"]]))
    source.look(at(100))
    first = source.read(Limit(lines=1, size=1000), at(100), itertools.count(1))
    second = source.read(Limit(lines=1, size=1000), at(100), itertools.count(2))
    memos = [piece.position.generations[0].memo for piece in (first, second) if piece and piece.position]
    assert memos == ["", "0"]


def test_what_was_told_last_is_saved_and_given_back_after_a_restart() -> None:
    source = ProbedSource(Counter([["a"], ["b"]]))
    source.look(at(100))
    piece = read(source, 100)
    assert piece is not None
    again = Counter([["c"]])
    ProbedSource(again, piece.position).look(at(200))
    assert again.opened_with == ["1"]


def test_what_is_not_there_is_off_with_the_reason_and_looked_for_again() -> None:
    probe = Counter([["a"]])
    probe.is_absent = True
    source = ProbedSource(probe)
    source.look(at(100))
    assert (source.progress().state, source.progress().reason) == ("off", "no counter here")
    probe.is_absent = False
    source.look(at(129))
    assert source.progress().state == "off"
    source.look(at(130))
    assert source.progress().state == "on"
    assert bodies(read(source, 130)) == ["a"]


def test_a_probe_that_hangs_holds_nobody_up_and_is_said_to_hang() -> None:
    hold = threading.Event()
    source = ProbedSource(Counter([["late"]], may_hang=True, hold=hold))
    source.look(at(100))
    source.look(at(140))
    assert read(source, 140) is None
    assert (source.progress().state, source.progress().reason) == ("refused", "has not answered for 40 s")
    hold.set()
    assert eventually(lambda: bodies(read(source, 141)), "the late line") == ["late"]
    assert source.progress().state == "on"


def test_a_restart_makes_another_generation() -> None:
    positions: list[SourcePosition | None] = []
    for _ in range(2):
        source = ProbedSource(Counter([["a"]]))
        source.look(at(100))
        piece = read(source, 100)
        assert piece is not None
        positions.append(piece.position)
    assert positions[0] != positions[1]


def test_values_of_a_line_have_no_blanks_and_what_is_none_is_left_out() -> None:
    assert said("gpu.clocks", gpu=3, reason="HW slowdown\n", uuid=None, name="") == (
        "rootrank: gpu.clocks gpu=3 reason=HW_slowdown name=-"
    )


@pytest.mark.parametrize("may_hang", [False, True])
def test_a_probe_that_fails_as_nobody_foresaw_is_refused_and_looked_at_again(may_hang: bool) -> None:
    probe = Counter([["a"]], may_hang=may_hang)
    probe.fails = True
    source = ProbedSource(probe)
    source.look(at(100))
    eventually(lambda: source.progress().state == "refused", "it is said")
    assert "ValueError: no number: x" in (source.progress().reason or "")
    probe.fails = False
    source.look(at(200))
    eventually(lambda: source.progress().state == "on", "it is looked at again")
    assert bodies(read(source, 200)) == ["a"]


def test_nothing_is_claimed_to_be_read_before_what_was_told_is_taken() -> None:
    source = ProbedSource(Counter([["a"], []]))
    source.look(at(100))
    assert source.progress().read_through_unix_nano == 0
    assert not source.progress().at_end
    read(source, 100)
    assert source.progress().read_through_unix_nano == 100 * SECOND_NS
    source.look(at(105))
    assert source.progress().read_through_unix_nano == 105 * SECOND_NS
