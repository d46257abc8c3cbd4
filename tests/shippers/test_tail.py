import itertools
import os
import shutil
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from shippers.config import SourceSettings, StartAt
from shippers.pieces import Limit, Moment
from shippers.positions import SourcePosition
from shippers.rotation import is_rotated_name
from shippers.tail import Tail
from tests.shippers.fakes import Passes, Read, append

BEGINNING, END = StartAt(), StartAt(at_end=True)


def tail_of(
    path: Path, start_at: StartAt = BEGINNING, saved: SourcePosition | None = None, max_line_bytes: int = 1024 * 1024
) -> Tail:
    return Tail(path.name, path, SourceSettings(path=str(path), max_line_bytes=max_line_bytes), start_at, saved)


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "rank0.log"


def test_lines_carry_offset_number_and_generation_of_their_file(path: Path) -> None:
    append(path, "one\ntwo\r\n\nlast\n")
    lines = Passes().read(tail_of(path)).lines

    assert [(line.body, line.offset, line.line_no) for line in lines] == [
        ("one", 0, 1),
        ("two", 4, 2),
        ("", 9, 3),
        ("last", 10, 4),
    ]
    assert len({line.generation for line in lines}) == 1
    assert [line.seq for line in lines] == [0, 1, 2, 3]


def test_a_line_was_written_before_the_time_at_which_it_is_said_to_be_observed(path: Path) -> None:
    append(path, "one\n")
    tail, written = tail_of(path), [0]

    def observe() -> int:
        return max(written) + 1

    moment = Moment(observed_ns=5, mono_ns=5, wall_ns=5, observe=observe)
    tail.look(moment)
    append(path, "two\n")  # after the pass has begun
    written.append(77)
    piece = tail.read(Limit(lines=10, size=1000), moment, itertools.count())
    assert piece is not None
    assert [(line.body, line.observed_time_unix_nano) for line in piece.lines] == [("one", 78), ("two", 78)]


def test_a_line_without_newline_waits_until_it_is_complete(path: Path) -> None:
    append(path, "one\ntor")
    tail, passes = tail_of(path), Passes()

    assert passes.read(tail).bodies() == ["one"]
    assert passes.read(tail).bodies() == []
    assert tail.progress().at_end
    assert tail.progress().backlog_bytes == 3
    append(path, "n\n")
    assert passes.read(tail).bodies() == ["torn"]


def test_a_torn_line_is_shipped_when_nothing_more_can_come(path: Path) -> None:
    append(path, "one\ntorn")
    tail, passes = tail_of(path), Passes()

    assert passes.read(tail, ending=True).bodies() == ["one", "torn"]
    assert passes.read(tail, ending=True).bodies() == []


def test_an_over_long_line_is_cut_with_a_mark_and_the_next_has_the_right_offset(path: Path) -> None:
    append(path, b"a\n" + b"x" * 10_000_000 + b"\nb\n")
    lines = Passes().read(tail_of(path)).lines

    assert [(len(line.body), line.truncated, line.offset, line.line_no) for line in lines] == [
        (1, False, 0, 1),
        (1024 * 1024, True, 2, 2),
        (1, False, 10_000_003, 3),
    ]


def test_the_rest_of_an_over_long_line_stays_skipped_after_a_restart(path: Path) -> None:
    append(path, b"x" * 1000)
    first = Passes().read(tail_of(path, max_line_bytes=256))
    append(path, b"y" * 500 + b"\nnext\n")
    second = Passes().read(tail_of(path, saved=first.position, max_line_bytes=256))

    assert [line.truncated for line in first.lines] == [True]
    assert [(line.body, line.offset) for line in second.lines] == [("next", 1501)]


def test_bytes_that_are_not_utf8_are_replaced_and_nothing_is_dropped(path: Path) -> None:
    append(path, b"ok \xff\xfe end\nnext\n")

    assert Passes().read(tail_of(path)).bodies() == ["ok �� end", "next"]


def test_the_hole_that_a_truncation_leaves_before_a_writer_is_passed_over(path: Path) -> None:
    with path.open("wb") as file:
        file.seek(5_000_000)
        file.write(b"after\nmore\n")
    lines = Passes().read(tail_of(path)).lines

    assert [(line.body, line.offset) for line in lines] == [("after", 5_000_000), ("more", 5_000_006)]


def test_nul_bytes_before_a_line_never_change_its_address_whatever_is_read_at_once(path: Path) -> None:
    append(path, b"a\n\0\0\0b\nc\n")
    whole = Passes().read(tail_of(path)).lines
    single = Passes().read(tail_of(path), limit=Limit(lines=1, size=4096)).lines

    assert [(line.body, line.offset) for line in whole] == [("a", 0), ("b", 5), ("c", 7)]
    assert [(line.body, line.offset) for line in single] == [("a", 0), ("b", 5), ("c", 7)]


def test_start_at_end_ships_only_what_comes_later_and_whole_lines_of_it(path: Path) -> None:
    append(path, "old\nhalf")
    tail, passes = tail_of(path, END), Passes()
    assert passes.read(tail).bodies() == []
    append(path, " line\nnew\n")
    read = passes.read(tail)

    assert read.bodies() == ["half line", "new"]
    assert read.lines[0].line_no is None


def test_an_age_bound_passes_over_files_that_were_not_written_since(path: Path, tmp_path: Path) -> None:
    append(path, "old\n")
    os.utime(path, (1_000_000_000, 1_000_000_000))
    young = tmp_path / "young.log"
    append(young, "young\n")
    bound = StartAt(age_ns=15 * 60 * 10**9)

    assert Passes().read(tail_of(path, bound)).bodies() == []
    assert Passes().read(tail_of(young, bound)).bodies() == ["young"]


def test_a_file_that_is_made_later_is_read_from_its_beginning(path: Path) -> None:
    tail, passes = tail_of(path, END), Passes()
    assert passes.read(tail).bodies() == []
    assert tail.progress().state == "off"
    append(path, "first\n")

    assert passes.read(tail).bodies() == ["first"]
    assert tail.progress().state == "on"


def test_a_rotated_file_is_finished_and_the_new_one_read(path: Path) -> None:
    append(path, "one\n")
    tail, passes = tail_of(path), Passes()
    passes.read(tail)
    append(path, "two\n")
    path.rename(path.with_name("rank0.log.1"))
    append(path, "three\n")
    first = passes.read(tail)
    append(path.with_name("rank0.log.1"), "late\n")
    second = passes.read(tail)

    assert first.bodies() == ["two", "three"]
    assert len({line.generation for line in first.lines}) == 2
    assert second.bodies() == ["late"]


def test_a_file_that_came_and_went_between_two_looks_is_read_too(path: Path) -> None:
    append(path, "one\n")
    tail, passes = tail_of(path), Passes()
    passes.read(tail)
    path.rename(path.with_name("rank0.log.2"))
    append(path, "two\n")
    path.rename(path.with_name("rank0.log.1"))
    append(path, "three\n")

    assert passes.read(tail).bodies() == ["two", "three"]


def test_rotated_files_of_before_the_first_sight_are_not_read(path: Path) -> None:
    append(path.with_name("rank0.log.1"), "ancient\n")
    append(path, "one\n")
    tail, passes = tail_of(path), Passes()
    passes.read(tail)
    path.with_name("rank0.log.1").rename(path.with_name("rank0.log.2"))
    path.rename(path.with_name("rank0.log.1"))
    append(path, "two\n")

    assert passes.read(tail).bodies() == ["two"]


def test_a_rotation_while_the_shipper_is_down_loses_nothing(path: Path) -> None:
    append(path, "one\n")
    saved = Passes().read(tail_of(path)).position
    append(path, "two\n")
    path.rename(path.with_name("rank0.log.2"))
    append(path, "three\n")
    path.rename(path.with_name("rank0.log.1"))
    append(path, "four\n")
    read = Passes().read(tail_of(path, saved=saved))

    assert read.bodies() == ["two", "three", "four"]
    assert read.gaps == []


def test_copytruncate_is_a_new_generation_and_the_rest_is_read_from_the_copy(path: Path) -> None:
    append(path, "one\n")
    tail, passes = tail_of(path), Passes()
    generation = passes.read(tail).lines[0].generation
    append(path, "two\n")
    shutil.copy(path, path.with_name("rank0.log.1"))
    os.truncate(path, 0)
    append(path, "three is longer than all before\n")
    read = passes.read(tail)

    assert read.bodies() == ["two", "three is longer than all before"]
    assert read.lines[0].generation == generation != read.lines[1].generation
    # What was written after the copy and before the truncation is nowhere, and nobody knows whether there was any.
    assert [("after it was copied" in gap.reason, gap.lost_lines, gap.from_offset) for gap in read.gaps] == [
        (True, None, 8)
    ]


def test_a_file_that_was_copied_and_then_deleted_while_the_shipper_was_down_is_read_on_in_the_copy(path: Path) -> None:
    append(path, "one\n")
    passes = Passes()
    before = passes.read(tail_of(path))
    append(path, "two\n")
    shutil.copy(path, path.with_name("rank0.log.1"))
    path.unlink()
    append(path, "three\n")
    read = passes.read(tail_of(path, saved=before.position))

    assert read.bodies() == ["two", "three"]
    assert [("a copy is read" in gap.reason, gap.lost_lines) for gap in read.gaps] == [(True, None)]


def test_a_truncation_without_a_copy_leaves_a_gap_that_names_the_offset(path: Path) -> None:
    append(path, "one\n")
    tail, passes = tail_of(path), Passes()
    passes.read(tail)
    os.truncate(path, 0)
    append(path, "1\n")
    read = passes.read(tail)

    assert read.bodies() == ["1"]
    assert [(gap.source, gap.from_offset) for gap in read.gaps] == [("rank0.log", 4)]


def test_a_deleted_file_is_read_to_its_end(path: Path) -> None:
    append(path, "one\n")
    tail, passes = tail_of(path), Passes()
    passes.read(tail)
    append(path, "two\ntorn")
    path.unlink()

    assert passes.read(tail).bodies() == ["two"]
    rest = [body for _ in range(5) for body in passes.read(tail).bodies()]
    assert rest == ["torn"]
    assert tail.is_gone


def test_another_file_with_the_same_inode_is_read_from_its_beginning(path: Path) -> None:
    append(path, "one of before\n")
    saved = Passes().read(tail_of(path)).position
    path.write_text("two of after, longer\n")  # same inode, other content
    read = Passes().read(tail_of(path, saved=saved))

    assert read.bodies() == ["two of after, longer"]
    assert len(read.gaps) == 1


def test_a_file_that_may_not_be_read_is_refused_with_a_reason(tmp_path: Path) -> None:
    folder = tmp_path / "folder.log"
    folder.mkdir()
    tail = tail_of(folder)
    Passes().read(tail)

    assert tail.progress().state == "refused"
    assert "not a regular file" in (tail.progress().reason or "")


@pytest.mark.parametrize("name", ["a.log.1", "a.log-20260101", "a.log.2026-01-01T10:00", "a.log.old", "a.log.1.gz"])
def test_names_that_rotation_gives_are_known(name: str) -> None:
    assert is_rotated_name(name, "a.log")


@pytest.mark.parametrize("name", ["a.log", "a.log.errors", "a.logger", "b.log.1", "a.log1"])
def test_other_names_are_other_files(name: str) -> None:
    assert not is_rotated_name(name, "a.log")


class World:
    """A log file, its writer and its shipper, driven step by step."""

    def __init__(self, folder: Path) -> None:
        self.path = folder / "app.log"
        self.path.touch()
        self.written: list[str] = []
        self.torn = ""
        self.passes = Passes()
        self.tail = tail_of(self.path)
        self.shipped = Read()
        self.pending = Read()
        self.read()
        self.sync()

    def line(self) -> None:
        text = self.torn + f"rest {len(self.written)}"
        append(self.path, text.removeprefix(self.torn) + "\n")
        self.written.append(text)
        self.torn = ""

    def tear(self) -> None:
        part = f"torn {len(self.written)} "
        append(self.path, part)
        self.torn += part

    def rotate(self) -> None:
        self._shift()
        self.path.rename(self.path.with_name("app.log.1"))
        self.path.touch()
        self._forget_torn()

    def copytruncate(self) -> None:
        self._shift()
        shutil.copy(self.path, self.path.with_name("app.log.1"))
        os.truncate(self.path, 0)
        self._forget_torn()

    def read(self) -> None:
        self.pending = self._merged(self.pending, self.passes.read(self.tail, limit=Limit(lines=3, size=4096)))

    def read_at_once(self) -> None:
        self.pending = self._merged(self.pending, self.passes.read_now(self.tail))

    def sync(self) -> None:
        self.shipped = self._merged(self.shipped, self.pending)
        self.pending = Read()

    def kill(self) -> None:
        self.pending = Read()
        self.tail.close()
        self.tail = tail_of(self.path, saved=self.shipped.position)

    def finish(self) -> None:
        for _ in range(2):
            self.pending = self._merged(self.pending, self.passes.read(self.tail, ending=True))
        self.sync()
        self.tail.close()

    def _shift(self) -> None:
        for number in range(30, 0, -1):
            older = self.path.with_name(f"app.log.{number}")
            if older.exists():
                older.rename(self.path.with_name(f"app.log.{number + 1}"))

    def _forget_torn(self) -> None:
        if self.torn:
            self.written.append(self.torn)
        self.torn = ""

    @staticmethod
    def _merged(first: Read, second: Read) -> Read:
        return Read(first.lines + second.lines, first.gaps + second.gaps, second.position or first.position)


STEPS = ["line", "line", "line", "tear", "rotate", "copytruncate", "read", "read_at_once", "sync", "kill"]


@settings(max_examples=300, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(steps=st.lists(st.sampled_from(STEPS), max_size=25))
def test_each_line_is_shipped_once_and_in_order_whatever_happens(
    steps: list[str], tmp_path_factory: pytest.TempPathFactory
) -> None:
    world = World(tmp_path_factory.mktemp("world"))
    for step in steps:
        getattr(world, step)()
    world._forget_torn()
    world.finish()

    assert sorted(world.shipped.bodies()) == sorted(world.written)
    by_generation: dict[str, list[int]] = {}
    for line in world.shipped.lines:
        by_generation.setdefault(line.generation, []).append(line.offset)
    assert all(offsets == sorted(set(offsets)) for offsets in by_generation.values())
    assert [gap for gap in world.shipped.gaps if "after it was copied" not in gap.reason] == []
