import itertools
import time
from collections.abc import Mapping
from pathlib import Path

import pytest

from shippers.config import SourceSettings, StartAt
from shippers.fileset import FileSet
from shippers.pieces import Moment
from shippers.positions import SourcePosition
from tests.shippers.fakes import LARGE, SECOND_NS, append

Bodies = dict[str, list[str]]
BEGINNING = StartAt()


class Looks:
    """Passes over a file set, two seconds apart."""

    def __init__(self) -> None:
        self.mono_ns = 1000 * SECOND_NS
        self.saved: dict[str, SourcePosition | None] = {}

    def read(self, files: FileSet) -> Bodies:
        self.mono_ns += 2 * SECOND_NS
        moment = Moment(observed_ns=0, mono_ns=self.mono_ns, wall_ns=time.time_ns())
        files.look(moment)
        self.saved.update(dict.fromkeys(files.take_gone()))
        found: Bodies = {}
        for tail in list(files.tails.values()):
            while (piece := tail.read(LARGE, moment, itertools.count())) is not None:
                self.saved[piece.source] = piece.position
                if piece.lines:
                    found.setdefault(piece.source, []).extend(line.body for line in piece.lines)
        return found


def files_of(
    pattern: Path,
    name: str = "",
    start_at: StartAt = BEGINNING,
    saved: Mapping[str, SourcePosition | None] | None = None,
) -> FileSet:
    return FileSet(SourceSettings(name=name, path=str(pattern)), start_at, saved or {})


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    folder = tmp_path / "logs"
    folder.mkdir()
    return folder


def test_a_single_path_is_called_by_its_name_or_its_path(folder: Path) -> None:
    append(folder / "a.log", "one\n")

    assert Looks().read(files_of(folder / "a.log", "train")) == {"train": ["one"]}
    assert Looks().read(files_of(folder / "a.log")) == {str(folder / "a.log"): ["one"]}


def test_files_of_a_glob_are_called_by_their_path_below_the_fixed_part(folder: Path) -> None:
    (folder / "node1").mkdir()
    append(folder / "node1" / "a.log", "one\n")
    append(folder / "b.log", "two\n")

    assert Looks().read(files_of(folder / "**" / "*.log", "job")) == {"job/node1/a.log": ["one"], "job/b.log": ["two"]}


def test_files_that_come_later_are_read_from_their_beginning(folder: Path) -> None:
    append(folder / "a.log", "old\n")
    files, looks = files_of(folder / "*.log", start_at=StartAt(at_end=True)), Looks()
    assert looks.read(files) == {}
    append(folder / "b.log", "new\n")

    assert looks.read(files) == {"b.log": ["new"]}


def test_a_rotated_file_that_the_glob_matches_is_not_read_twice_not_even_after_a_restart(folder: Path) -> None:
    append(folder / "a.log", "one\n")
    files, looks = files_of(folder / "*"), Looks()
    found = [looks.read(files)]
    append(folder / "a.log", "two\n")
    (folder / "a.log").rename(folder / "a.log.1")
    append(folder / "a.log", "three\n")
    found += [looks.read(files) for _ in range(40)]
    files.close()
    found.append(looks.read(files_of(folder / "*", saved=looks.saved)))

    assert [each for each in found if each] == [{"a.log": ["one"]}, {"a.log": ["two", "three"]}]


def test_a_file_that_takes_the_inode_of_a_deleted_one_is_another_file(folder: Path) -> None:
    files, looks = files_of(folder / "*.log"), Looks()
    for number in range(20):
        path = folder / f"job{number}.log"
        append(path, f"line of {number}\n")
        assert looks.read(files) == {path.name: [f"line of {number}"]}
        path.unlink()
        for _ in range(5):
            assert looks.read(files) == {}


def test_a_file_that_is_gone_for_good_is_forgotten(folder: Path) -> None:
    append(folder / "a.log", "one\n")
    files, looks = files_of(folder / "*.log"), Looks()
    looks.read(files)
    (folder / "a.log").unlink()
    for _ in range(6):
        looks.read(files)

    assert looks.saved == {"a.log": None}
    assert [(each.state, each.reason) for each in files.progress()] == [("off", f"no file matches {folder / '*.log'}")]


def test_of_many_files_idle_ones_are_looked_at_less_often_and_lose_nothing(folder: Path) -> None:
    paths = [folder / f"rank{number:04}.log" for number in range(1500)]
    for path in paths:
        append(path, "one\n")
    files, looks = files_of(folder / "*.log"), Looks()
    assert len(looks.read(files)) == 1500
    for _ in range(4):
        assert looks.read(files) == {}
    written_ns = looks.mono_ns
    append(paths[7], "two\n")
    found: Bodies = {}
    while not found:
        found = looks.read(files)
        assert looks.mono_ns - written_ns < 8 * SECOND_NS

    assert found == {"rank0007.log": ["two"]}
    files.close()


def test_links_that_lead_round_are_gone_through_once(folder: Path) -> None:
    (folder / "run").mkdir()
    append(folder / "run" / "a.log", "one\n")
    for name in ("x", "y"):  # each way through both of them is another path: more than anybody can list
        (folder / name).symlink_to(".")
        (folder / "run" / name).symlink_to("..")

    assert Looks().read(files_of(folder / "**" / "*.log", "t")) == {"t/run/a.log": ["one"]}


def test_a_link_to_a_folder_that_a_wildcard_names_is_gone_through(folder: Path) -> None:
    (folder / "run-1").mkdir()
    append(folder / "run-1" / "a.log", "one\n")
    (folder / "latest").symlink_to("run-1")

    assert list(Looks().read(files_of(folder / "late*" / "*.log", "t")).values()) == [["one"]]
