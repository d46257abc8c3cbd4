"""The journal, read by the real journalctl."""

import contextlib
import os
from pathlib import Path

import pytest

from shippers.clock import HostClock
from shippers.config import Config, JournalSettings, SpoolSettings
from shippers.gate import PASSED_LINES
from shippers.journal import JournalSource
from shippers.pieces import Moment
from shippers.reader import Reader
from shippers.waiting import Pause
from tests.shippers.fakes import SECOND_NS, Passes, eventually
from tests.shippers.journals import BEGAN_US, BOOT, Journal, now_us, read_until, source_of


@pytest.fixture
def journal(tmp_path: Path) -> Journal:
    return Journal(tmp_path / "journal")


@pytest.fixture
def passes() -> Passes:
    return Passes()


def script(tmp_path: Path, text: str) -> str:
    path = tmp_path / "journalctl"
    path.write_text(f"#!/bin/sh\n{text}\n")
    path.chmod(0o755)
    return str(path)


def stub_of(path: str, saved: object = None) -> JournalSource:
    settings = JournalSettings(journalctl=path, start_at="beginning")
    return JournalSource(Config(source=(), journal=settings), saved, boot_id=BOOT)  # type: ignore[arg-type]


def test_an_entry_is_the_line_that_syslog_would_have_written_with_the_journals_time(
    journal: Journal, passes: Passes
) -> None:
    journal.write("hello")
    with contextlib.closing(source_of(journal)) as source:
        (line,) = read_until(source, passes, 1).lines

    assert line.body == "2026-09-21T14:13:20.000900+00:00 gpu01 slurmd[77]: hello"
    assert line.time_unix_nano == (BEGAN_US + 900) * 1000
    assert line.offset == 1
    assert line.generation.endswith(".8f1c2d3e")
    assert line.attributes == {
        "journal.unit": "slurmd.service", "journal.identifier": "slurmd", "journal.pid": "77",
        "journal.priority": "6", "journal.mono_us": "5001000",
    }  # fmt: skip


def test_what_comes_later_is_read_as_it_comes_and_the_end_is_known(journal: Journal, passes: Passes) -> None:
    journal.write("one")
    with contextlib.closing(source_of(journal)) as source:
        read_until(source, passes, 1)
        progress = source.progress()
        assert (progress.state, progress.at_end, progress.kind) == ("on", True, "service")
        journal.write("two")
        assert [line.body[-3:] for line in read_until(source, passes, 1).lines] == ["two"]


def test_after_a_silence_the_next_entry_ends_the_pause(journal: Journal, passes: Passes) -> None:
    journal.write("one")
    with contextlib.closing(source_of(journal)) as source, contextlib.closing(Pause()) as pause:
        assert source.descriptor is None
        read_until(source, passes, 1)
        assert source.descriptor is not None
        assert not pause.wait(0, (source.descriptor,))
        journal.write("two")
        assert pause.wait(60, (source.descriptor,))
        assert len(read_until(source, passes, 1).lines) == 1
    assert source.descriptor is None


def test_it_goes_on_at_its_cursor_after_a_restart(journal: Journal, passes: Passes) -> None:
    journal.write("one", "two")
    with contextlib.closing(source_of(journal)) as source:
        first = read_until(source, passes, 2)
    journal.write("three")
    with contextlib.closing(source_of(journal, first.position)) as source:
        second = read_until(source, passes, 1)

    assert [line.body[-5:] for line in second.lines] == ["three"]
    assert second.gaps == []


def test_a_rotated_journal_loses_nothing(journal: Journal, passes: Passes) -> None:
    journal.write("one")
    with contextlib.closing(source_of(journal)) as source:
        first = read_until(source, passes, 1)
        journal.write("two")
        journal.rotate()
        journal.write("three")
        both = read_until(source, passes, 2)
        assert [line.body.split()[-1] for line in both.lines] == ["two", "three"]
    journal.rotate()
    journal.write("four")
    with contextlib.closing(source_of(journal, first.position)) as source:
        again = read_until(source, passes, 3)
        assert [line.body.split()[-1] for line in again.lines] == ["two", "three", "four"]
        assert again.gaps == []


def test_where_the_cursor_is_vacuumed_a_gap_says_so(journal: Journal, passes: Passes) -> None:
    journal.write("one")
    with contextlib.closing(source_of(journal)) as source:
        first = read_until(source, passes, 1)
    journal.write("lost")
    journal.vacuum()
    journal.write("three")
    with contextlib.closing(source_of(journal, first.position)) as source:
        second = read_until(source, passes, 1)

    assert [line.body.split()[-1] for line in second.lines] == ["three"]
    (gap,) = second.gaps
    assert gap.reason == "the journal was rotated or vacuumed before it was read: some entries are gone"
    assert (gap.source, gap.from_offset, gap.lost_lines) == ("journal", 1, None)


def test_lines_of_the_boot_before_are_read_and_marked(journal: Journal, passes: Passes) -> None:
    journal.write("panic", _BOOT_ID="a" * 32)
    journal.write("up again")
    with contextlib.closing(source_of(journal)) as source:
        before, after = read_until(source, passes, 2).lines

    assert before.attributes["journal.boot_id"] == "a" * 32
    assert "journal.boot_id" not in after.attributes
    assert before.generation != after.generation


def test_start_at_end_and_an_age_pass_over_what_is_older(tmp_path: Path, passes: Passes) -> None:
    journal = Journal(tmp_path / "journal", began_us=now_us() - 3600 * 1_000_000)
    journal.write("an hour old")
    journal.began_us = now_us() - 60 * 1_000_000
    journal.write("a minute old")
    with contextlib.closing(source_of(journal, start_at="15m")) as source:
        assert [line.body[-12:] for line in read_until(source, passes, 1).lines] == ["a minute old"]
    with contextlib.closing(source_of(journal, start_at="end")) as source:
        assert passes.read(source).lines == []
        journal.began_us = now_us() + 1_000_000
        journal.write("new")
        assert [line.body[-3:] for line in read_until(source, passes, 1).lines] == ["new"]


def test_kernel_entries_are_of_the_kernels_source_alone(journal: Journal, passes: Passes) -> None:
    journal.write("a service")
    journal.write(
        "NVRM: Xid (PCI:0000:5e:00): 79", _TRANSPORT="kernel", SYSLOG_IDENTIFIER="kernel", PRIORITY="3",
        SYSLOG_FACILITY="0", _SOURCE_MONOTONIC_TIMESTAMP="4711",
    )  # fmt: skip
    with (
        contextlib.closing(source_of(journal)) as services,
        contextlib.closing(source_of(journal, of="kernel")) as ring,
    ):
        assert [line.body[-9:] for line in read_until(services, passes, 1).lines] == ["a service"]
        (line,) = read_until(ring, passes, 1).lines

    assert (line.body, line.kernel_time_ns, ring.progress().kind) == (
        "NVRM: Xid (PCI:0000:5e:00): 79", 4_711_000, "kernel",
    )  # fmt: skip
    assert line.attributes["kmsg.priority"] == "3"


def test_the_kernels_entries_are_off_where_its_ring_is_read(tmp_path: Path, passes: Passes) -> None:
    ring = tmp_path / "kmsg"
    ring.touch()
    with contextlib.closing(JournalSource(Config(), None, "kernel", kmsg=ring)) as source:
        passes.read(source)
        assert (source.progress().state, source.progress().reason) == ("off", f"{ring} is read instead")


def test_of_the_units_named_all_is_read_of_others_what_may_mean_something(journal: Journal, passes: Passes) -> None:
    journal.write("whole", "also this")
    journal.write(*(f"GET /page {number}" for number in range(100)), _SYSTEMD_UNIT="web.service")
    journal.write("web.service: Main process exited, code=killed, status=9/KILL", _SYSTEMD_UNIT="web.service")
    journal.write("never", _SYSTEMD_UNIT="mail.service")
    with contextlib.closing(source_of(journal, context_lines=2, units_out=("mail",))) as source:
        lines = read_until(source, passes, 5).lines

    assert [line.body.split(": ", 1)[1] for line in lines] == [
        "whole", "also this", "GET /page 98", "GET /page 99",
        "web.service: Main process exited, code=killed, status=9/KILL",
    ]  # fmt: skip
    assert lines[2].attributes[PASSED_LINES] == "98"


def test_lines_of_a_container_are_not_those_of_the_service_that_runs_it(journal: Journal, passes: Passes) -> None:
    journal.write("chatter", _SYSTEMD_UNIT="docker.service", CONTAINER_NAME="train")
    journal.write("daemon", _SYSTEMD_UNIT="docker.service")
    with contextlib.closing(source_of(journal)) as source:
        assert [line.body.split()[-1] for line in read_until(source, passes, 1).lines] == ["daemon"]


def test_bytes_several_lines_and_over_long_messages_are_kept(journal: Journal, passes: Passes) -> None:
    journal.write(b"binary \xff\x01 end", "two\nlines", "x" * 1_100_000)
    with contextlib.closing(source_of(journal)) as source:
        binary, several, long = read_until(source, passes, 3).lines

    assert binary.body.endswith("slurmd[77]: binary \ufffd\x01 end")
    assert several.body.endswith("slurmd[77]: two\nlines")
    assert long.truncated
    assert len(long.body) < 1_049_000


def test_what_journald_dropped_is_a_gap(journal: Journal, passes: Passes) -> None:
    journal.write(
        "Suppressed 4321 messages from train.service", MESSAGE_ID="a596d6fe7bfa4994828e72309e95d61e", N_DROPPED="4321",
        _SYSTEMD_UNIT="systemd-journald.service",
    )  # fmt: skip
    with contextlib.closing(source_of(journal)) as source:
        read = read_until(source, passes, 1)

    assert [gap.lost_lines for gap in read.gaps] == [4321]


def test_a_journalctl_that_is_not_there_is_off_and_said(passes: Passes) -> None:
    source = stub_of("/nonexistent/journalctl")
    passes.read(source)

    assert source.progress().state == "off"
    assert "not installed" in (source.progress().reason or "")


def test_a_journalctl_that_ends_is_refused_with_what_it_said_and_started_again(tmp_path: Path, passes: Passes) -> None:
    count = tmp_path / "count"
    source = stub_of(script(tmp_path, f"echo x >> {count}; echo 'No journal files were opened' >&2; exit 1"))
    eventually(lambda: passes.read_now(source) and source.progress().state == "refused", "the end of journalctl")

    assert source.progress().reason == "journalctl ended (status 1): No journal files were opened"
    passes.read_now(source)
    assert count.read_text() == "x\n"
    eventually(lambda: passes.read(source) and len(count.read_text()) > 4, "another start")
    source.close()


def test_one_that_may_not_read_says_what_to_do(tmp_path: Path, passes: Passes) -> None:
    said = "No journal files were opened due to insufficient permissions."
    source = stub_of(script(tmp_path, f"echo '{said}' >&2; exit 1"))
    eventually(lambda: passes.read_now(source) and source.progress().state == "refused", "the end of journalctl")

    assert (source.progress().reason or "").endswith("Put the shipper's user into the group systemd-journal")


def test_one_that_does_not_answer_is_refused_and_holds_nobody_up(
    tmp_path: Path, journal: Journal, passes: Passes
) -> None:
    journal.write("one")
    with contextlib.closing(source_of(journal)) as source:
        position = read_until(source, passes, 1).position
    hanging = stub_of(script(tmp_path, "exec sleep 1000"), position)
    passes.read(hanging)
    passes.mono_ns += 61 * SECOND_NS
    passes.read(hanging)

    assert hanging.progress().state == "refused"
    assert "has not answered for 6" in (hanging.progress().reason or "")
    hanging.close()


def test_one_that_has_not_said_anything_yet_is_not_read_to_its_end_before_ten_seconds(
    tmp_path: Path, passes: Passes
) -> None:
    slow = stub_of(script(tmp_path, "exec sleep 1000"))
    for _ in range(4):
        passes.read(slow)
        assert not slow.progress().at_end
        assert slow.progress().read_through_unix_nano == 0
    for _ in range(3):
        passes.read(slow)
    assert slow.progress().at_end
    slow.close()


def test_one_that_is_silent_for_long_is_replaced_and_nothing_is_lost(journal: Journal, passes: Passes) -> None:
    journal.write("one")
    with contextlib.closing(source_of(journal)) as source:
        read_until(source, passes, 1)
        before = source.child_pid
        passes.mono_ns += 301 * SECOND_NS
        passes.read(source)
        assert source.child_pid != before
        journal.write("two")
        read = read_until(source, passes, 1)
        assert [line.body[-3:] for line in read.lines] == ["two"]
        assert read.gaps == []


def test_one_that_is_killed_is_started_again_where_it_was(journal: Journal, passes: Passes) -> None:
    journal.write("one")
    with contextlib.closing(source_of(journal)) as source:
        read_until(source, passes, 1)
        assert source.child_pid is not None
        os.kill(source.child_pid, 9)
        eventually(lambda: passes.read_now(source) and source.progress().state == "refused", "that it is gone")
        journal.write("two")
        passes.mono_ns += 60 * SECOND_NS
        assert [line.body[-3:] for line in read_until(source, passes, 1).lines] == ["two"]


def test_one_that_closes_its_output_and_lives_is_said_and_claims_to_have_read_nothing(
    tmp_path: Path, passes: Passes
) -> None:
    with contextlib.closing(stub_of(script(tmp_path, "exec >&-; exec sleep 60"))) as source:
        eventually(lambda: passes.read(source) and source.progress().state == "refused", "the refusal")
        progress = source.progress()
        assert progress.reason == "journalctl runs and has closed its output; is [journal] journalctl the real one?"
        assert not progress.at_end
        assert progress.read_through_unix_nano == 0
        assert source.descriptor is None


def test_what_writes_no_entries_for_ever_is_counted_and_leaves_time_for_others(tmp_path: Path) -> None:
    path = script(tmp_path, "exec yes '{no entry'")
    settings = JournalSettings(journalctl=path, start_at="beginning")
    config = Config(
        source=(), profile="none", sources={"journal": True}, journal=settings, spool=SpoolSettings(dir=str(tmp_path))
    )
    with contextlib.closing(Reader(config, HostClock("boot1"), {})) as reader:
        moment = Moment(observed_ns=1, mono_ns=1, wall_ns=1)
        gaps = eventually(lambda: [gap for batch in reader.read_pass(moment) for gap in batch.gaps], "gaps")
    assert {gap.reason for gap in gaps} == {"journalctl wrote no entry"}
    assert 0 < len(gaps) <= 128


def test_a_folder_without_a_journal_is_off_with_what_to_do_and_never_read_to_its_end(
    journal: Journal, passes: Passes
) -> None:
    with contextlib.closing(source_of(journal)) as source:
        passes.read(source)
        passes.mono_ns += SECOND_NS
        eventually(lambda: passes.read_now(source) and "no journal files" in (source.progress().reason or ""), "a word")
        for _ in range(40):  # longer than a silent one is believed, and than one is asked again
            passes.read(source)
            progress = source.progress()
            assert (progress.state, progress.at_end, progress.read_through_unix_nano) == ("off", False, 0)
        assert f"in {journal.folder}; start systemd-journald" in (progress.reason or "")
        journal.write("one")
        assert len(read_until(source, passes, 1).lines) == 1
        assert source.progress().state == "on"


def test_a_journal_without_new_entries_is_on(journal: Journal, passes: Passes) -> None:
    journal.write("old")
    with contextlib.closing(source_of(journal, start_at="end")) as source:
        passes.read(source)
        passes.mono_ns += SECOND_NS
        eventually(lambda: passes.read_now(source) and source.progress().state == "on", "that it is on")


def test_a_journal_that_is_gone_after_a_restart_is_off_and_not_refused(journal: Journal, passes: Passes) -> None:
    journal.write("one")
    with contextlib.closing(source_of(journal)) as source:
        position = read_until(source, passes, 1).position
    journal.vacuum()
    with contextlib.closing(source_of(journal, position)) as source:
        passes.read(source)
        passes.mono_ns += SECOND_NS
        eventually(lambda: passes.read_now(source) and "no journal files" in (source.progress().reason or ""), "a word")
        passes.mono_ns += 61 * SECOND_NS
        passes.read_now(source)
        assert source.progress().state == "off"
