"""A record of clocks in a folder of somebody else: whatever it is, it is read to an end or said to be no record."""

import os
from pathlib import Path

import pytest

from schemas.clock_notes import LONGEST, read_record

NOTE = b'{"boot_id":"b","clock":{"raw_ns":%d,"mono_ns":1,"boottime_ns":1,"wall_ns":2}}\n'
BROKEN = {
    "deep": b'{"boot_id":"b","more":' + b"[" * 200_000 + b"]" * 200_000 + b"}\n",
    "a number of forty digits": NOTE % 10**40,
    "below 64 bits": NOTE % -(2**63),
    "a line that does not end": b" " * (LONGEST + 1) + NOTE % 1,
    "no text": b'{"boot_id":"\xff"}\n',
    "empty lines": b"\n\n",
    "another type": b'{"boot_id":1}\n',
}


@pytest.mark.parametrize("name", sorted(BROKEN))
def test_what_is_no_note_is_said_and_what_stood_before_it_counts(name: str, tmp_path: Path) -> None:
    file = tmp_path / "clock.jsonl"
    file.write_bytes(NOTE % 1 + BROKEN[name] + NOTE % 2)

    record = read_record(file, "n1")

    assert [note.clock.raw_ns for note in record.notes] == [1]
    assert "clock.jsonl:2: no note of clocks" in record.gaps[0].reason


def test_a_pipe_or_a_device_is_not_waited_for(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "pipe")
    (tmp_path / "zeros").symlink_to("/dev/zero")
    for path in (tmp_path / "pipe", tmp_path / "zeros", tmp_path, tmp_path / "a\0b", tmp_path / "none"):
        record = read_record(path, "n1")
        assert record.notes == []
        assert "without it times of n1" in record.gaps[0].reason
