"""What becomes of a file, in every order, and what else may lie where one was."""

import errno
import itertools
import os
import socket
from collections.abc import Callable
from pathlib import Path

import pytest

from schemas.records import Gap
from shippers.clock import HostClock
from shippers.config import Config, SourceSettings, StartAt
from shippers.generation import is_followed
from shippers.reader import Reader
from shippers.tail import Tail
from tests.shippers.fakes import SECOND_NS, Passes, append

STORM = {"max_lines_per_s": 1000, "max_bytes_per_s": 0, "burst_s": 1}


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "rank0.log"


def tail_of(path: Path, **settings: object) -> Tail:
    return Tail(path.name, path, SourceSettings(path=str(path), **settings), StartAt(), None)  # type: ignore[arg-type]


class Log:
    """A log that is written and rotated."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.written: list[str] = []

    def write(self) -> None:
        text = f"line {len(self.written)}"
        self.written.append(text)
        append(self.path, f"{text}\n")

    def rename(self) -> None:
        self._shift()
        self.path.rename(self._numbered(1))

    def copytruncate(self) -> None:
        self._shift()
        self._numbered(1).write_bytes(self.path.read_bytes())
        os.truncate(self.path, 0)

    def delete(self) -> None:
        self.path.unlink()

    def _numbered(self, number: int) -> Path:
        return self.path.with_name(f"{self.path.name}.{number}")

    def _shift(self) -> None:
        for number in (3, 2, 1):
            if self._numbered(number).exists():
                self._numbered(number).rename(self._numbered(number + 1))


WAYS: dict[str, Callable[[Log], None]] = {"rename": Log.rename, "copytruncate": Log.copytruncate, "delete": Log.delete}


@pytest.mark.parametrize("order", list(itertools.product(WAYS, repeat=3)), ids="-".join)
def test_rotations_in_any_order_lose_nothing_where_each_is_seen(path: Path, order: tuple[str, ...]) -> None:
    log, tail, passes = Log(path), tail_of(path), Passes()
    lines, gaps = list[str](), list[Gap]()

    def see() -> None:
        read = passes.read(tail)
        lines.extend(read.bodies())
        gaps.extend(read.gaps)

    for way in order:
        log.write()
        see()
        log.write()
        WAYS[way](log)
        log.write()
        see()
    see()

    assert sorted(lines) == sorted(log.written)
    # Between the copy and the truncation nobody can see what is written: that is said, and nothing else.
    assert len(gaps) <= order.count("copytruncate")
    assert all("after it was copied" in gap.reason for gap in gaps)


@pytest.mark.parametrize("order", list(itertools.product(("rename", "copytruncate"), repeat=3)), ids="-".join)
def test_rotations_between_two_looks_lose_nothing_or_say_so(path: Path, order: tuple[str, ...]) -> None:
    log, tail, passes = Log(path), tail_of(path), Passes()
    log.write()
    lines = passes.read(tail).bodies()
    for way in order:
        log.write()
        WAYS[way](log)
        log.write()
    read = passes.read(tail)
    lines += read.bodies() + passes.read(tail).bodies()

    assert len(lines) == len(set(lines))
    assert sorted(lines) == sorted(log.written) or read.gaps


def something_else(path: Path, kind: str) -> object:
    if kind == "fifo":
        os.mkfifo(path)
    elif kind == "socket":
        listening = socket.socket(socket.AF_UNIX)
        listening.bind(str(path))
        return listening
    elif kind == "folder":
        path.mkdir()
    else:
        path.symlink_to("/dev/zero")
    return None


@pytest.mark.parametrize("kind", ["fifo", "socket", "folder", "device"])
def test_what_is_no_file_is_refused_and_holds_nobody_up_until_a_file_is_there(path: Path, kind: str) -> None:
    append(path, "one\n")
    tail, passes = tail_of(path), Passes()
    assert passes.read(tail).bodies() == ["one"]
    path.unlink()
    kept = something_else(path, kind)
    assert passes.read(tail).bodies() == []
    assert tail.progress().state == "refused"
    assert tail.progress().reason == f"{path}: not a regular file"
    path.rmdir() if kind == "folder" else path.unlink()
    append(path, "two\n")

    assert passes.read(tail).bodies() == ["two"]
    assert tail.progress().state == "on"
    assert kept is None or isinstance(kept, socket.socket)
    if isinstance(kept, socket.socket):
        kept.close()


def test_a_permission_that_is_taken_is_said_and_what_was_open_is_read_on(
    path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    append(path, "one\n")
    tail, passes = tail_of(path), Passes()
    assert passes.read(tail).bodies() == ["one"]
    append(path, "two\n")
    path.rename(path.with_name("rank0.log.1"))
    append(path, "three\n")

    def refuse(*arguments: object, **named: object) -> int:
        raise PermissionError(errno.EACCES, os.strerror(errno.EACCES))

    with monkeypatch.context() as taken:  # root may read everything
        taken.setattr(os, "open", refuse)
        assert passes.read(tail).bodies() == ["two"]
        assert tail.progress().state == "refused"
        assert "not permitted" in (tail.progress().reason or "")

    assert passes.read(tail).bodies() == ["three"]
    assert tail.progress().state == "on"


@pytest.mark.parametrize("number", [errno.ESTALE, errno.EIO])
def test_a_handle_that_went_stale_is_said_and_the_file_opened_again_where_it_was(
    path: Path, monkeypatch: pytest.MonkeyPatch, number: int
) -> None:
    append(path, "one\n")
    tail, passes = tail_of(path), Passes()
    assert passes.read(tail).bodies() == ["one"]
    append(path, "two\n")
    bad = {each.fd for each in tail.open_files()}
    real_pread, real_fstat = os.pread, os.fstat

    def pread(fd: int, size: int, offset: int) -> bytes:
        if fd in bad:
            raise OSError(number, os.strerror(number))
        return real_pread(fd, size, offset)

    def fstat(fd: int) -> os.stat_result:
        if fd in bad:
            raise OSError(number, os.strerror(number))
        return real_fstat(fd)

    real_close = os.close

    def close(fd: int) -> None:
        bad.discard(fd)
        real_close(fd)

    monkeypatch.setattr(os, "close", close)
    monkeypatch.setattr(os, "pread", pread)
    monkeypatch.setattr(os, "fstat", fstat)
    first = passes.read(tail)
    later = [passes.read(tail) for _ in range(3)]

    assert [body for read in (first, *later) for body in read.bodies()] == ["two"]
    assert [gap for read in (first, *later) for gap in read.gaps] == []
    assert tail.progress().state == "on"


def test_a_file_system_that_fails_for_a_while_is_waited_for(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    append(path, "one\n")
    tail, passes = tail_of(path), Passes()
    assert passes.read(tail).bodies() == ["one"]
    append(path, "two\n")

    def fail(*arguments: object, **named: object) -> None:
        raise OSError(errno.EIO, os.strerror(errno.EIO))

    with monkeypatch.context() as broken:
        for name in ("pread", "fstat", "open", "stat"):
            broken.setattr(os, name, fail)
        for _ in range(3):
            assert passes.read(tail).bodies() == []
        assert tail.progress().state == "refused"
        assert "Input/output error" in (tail.progress().reason or "")
    assert [body for _ in range(3) for body in passes.read(tail).bodies()] == ["two"]
    assert tail.progress().state == "on"


def test_a_file_that_may_not_be_read_after_a_restart_is_waited_for_and_not_begun_anew(
    path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    append(path, "one\n")
    first = Passes().read(tail_of(path))
    append(path, "two\n")
    again, passes = Tail(path.name, path, SourceSettings(path=str(path)), StartAt(), first.position), Passes()

    def refuse(*arguments: object, **named: object) -> int:
        raise PermissionError(errno.EACCES, os.strerror(errno.EACCES))

    with monkeypatch.context() as taken:
        taken.setattr(os, "open", refuse)
        assert passes.read(again).bodies() == []
        assert again.progress().state == "refused"
    read = passes.read(again)

    assert read.bodies() == ["two"]
    assert read.gaps == []


def test_a_clock_that_jumps_changes_nothing_of_what_is_read(path: Path) -> None:
    append(path, "one\n")
    tail, passes = tail_of(path), Passes()
    assert passes.read(tail).bodies() == ["one"]
    for stamp in (0, 2**33, 10**9):
        append(path, f"{stamp}\n")
        os.utime(path, (stamp, stamp))
        assert passes.read(tail).bodies() == [str(stamp)]


# --- storms -----------------------------------------------------------------------------------------------------------


def test_what_lies_there_at_first_sight_is_read_whole_whatever_the_rate(path: Path) -> None:
    append(path, "".join(f"line {number}\n" for number in range(20_000)))
    read = Passes().read(tail_of(path, **STORM))

    assert len(read.lines) == 20_000
    assert read.gaps == []


def test_a_storm_is_shed_with_exact_counts_and_the_cause_gets_through(path: Path) -> None:
    append(path, "first\n")
    tail, passes = tail_of(path, **STORM), Passes()
    passes.read(tail)
    storm = [f"peer {number} went away" for number in range(30_000)]
    storm[20_000] = "NVRM: Xid (PCI:0000:5e:00): 79, GPU has fallen off the bus."
    append(path, "".join(f"{line}\n" for line in storm))
    read = passes.read(tail)

    assert storm[20_000] in read.bodies()
    assert len(read.lines) == 1001
    assert sum(gap.lost_lines or 0 for gap in read.gaps) == 30_000 - 1001
    kept = sum(len(line.body) + 1 for line in read.lines)
    assert sum(gap.lost_bytes or 0 for gap in read.gaps) == sum(len(line) + 1 for line in storm) - kept
    passes.mono_ns += 10 * SECOND_NS
    append(path, "after\n")
    assert passes.read(tail).bodies() == ["after"]


def test_a_file_that_grows_faster_than_it_can_be_read_is_counted_in_steps_and_its_end_is_read(path: Path) -> None:
    append(path, "first\n")
    tail, passes = tail_of(path, **STORM), Passes()
    passes.read(tail)
    line = "x" * 999 + "\n"
    append(path, line * 60_000)
    append(path, "RuntimeError: CUDA error: an illegal memory access was encountered\n")
    lines, lost_lines, lost_bytes = 0, 0, 0
    bodies, reasons = list[str](), list[str]()
    for _ in range(4):
        read = passes.read(tail)
        reasons += [gap.reason for gap in read.gaps]
        bodies += read.bodies()
        lines += len(read.lines)
        lost_lines += sum(gap.lost_lines or 0 for gap in read.gaps)
        lost_bytes += sum(gap.lost_bytes or 0 for gap in read.gaps)

    assert lines + lost_lines == 60_001
    assert lost_bytes + sum(len(body) + 1 for body in bodies) == path.stat().st_size - len("first\n")
    assert any("grew faster" in reason for reason in reasons)
    assert bodies[-1].startswith("RuntimeError")


def test_of_the_kernels_log_nothing_is_shed(path: Path) -> None:
    append(path, "first\n")
    tail, passes = tail_of(path, kind="kernel", **STORM), Passes()
    passes.read(tail)
    append(path, "again\n" * 5000)

    assert len(passes.read(tail).lines) == 5000


def test_a_selected_file_gives_its_beginning_whole_and_goes_on_exactly_after_a_restart(path: Path) -> None:
    settings = {"select": "significant", "context_lines": 2}
    beginning = "".join(f"{number:08} hello\n" for number in range(64 * 1024 // 15 + 1))
    append(path, beginning)
    passes, tail = Passes(), tail_of(path, **settings)
    assert len(passes.read(tail).lines) == beginning.count("\n")
    append(path, "chatter\n" * 100)
    first = passes.read(tail)
    assert first.lines == []
    again = Tail(path.name, path, SourceSettings(path=str(path), **settings), StartAt(), first.position)  # type: ignore[arg-type]
    append(path, "chatter\n" * 10 + "CUDA error: out of memory\n")
    lines = passes.read(again).lines

    assert [line.body for line in lines] == ["chatter", "chatter", "CUDA error: out of memory"]
    assert lines[0].attributes == {"passed.lines": "108", "passed.bytes": str(108 * 8)}


def test_one_pass_takes_a_bounded_part_of_what_is_passed_over_and_the_kernels_log_has_its_turn(tmp_path: Path) -> None:
    chatter, kernel = tmp_path / "chatter.log", tmp_path / "kernel.log"
    append(chatter, "step by step nothing of interest is told here\n" * 200_000)
    append(kernel, "a line of the kernel's\n")
    sources = (
        SourceSettings(path=str(chatter), select="significant", start_at="beginning", max_bytes_per_s=0),
        SourceSettings(path=str(kernel), kind="kernel", start_at="beginning"),
    )
    reader = Reader(Config(source=sources, profile="none"), HostClock(), {})
    batches = list(reader.read_pass(HostClock().moment()))

    assert sum(batch.size + batch.passed_over for batch in batches) < 2 * 1024 * 1024
    assert "a line of the kernel's" in [line.body for batch in batches for line in batch.lines]
    read = sum(batch.size + batch.passed_over for batch in batches)
    while batches:
        batches = list(reader.read_pass(HostClock().moment()))
        read += sum(batch.size + batch.passed_over for batch in batches)
    assert read >= chatter.stat().st_size
    reader.close()


@pytest.mark.parametrize(
    ("link_owner", "file_owner", "own", "followed"),
    [(1000, 0, 0, False), (1000, 1001, 990, False), (1000, 1000, 0, True), (0, 1001, 990, True), (990, 0, 990, True)],
)
def test_a_link_of_a_user_leads_to_no_file_of_another_one(
    link_owner: int, file_owner: int, own: int, followed: bool
) -> None:
    assert is_followed(link_owner, file_owner, own) is followed


def test_a_link_of_its_own_user_is_followed(path: Path) -> None:
    append(path.with_name("real"), "one\n")
    path.symlink_to("real")
    assert Passes().read(tail_of(path)).bodies() == ["one"]
