import os
import resource
import shutil
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from schemas import codec
from schemas.records import ClockReading, Gap, RawBatch, RawLine
from shippers.claim import SpoolLockedError
from shippers.positions import Position, Positions, SourcePosition
from shippers.segment import Entry
from shippers.spool import Spool, SpoolFullError

MIB = 1024 * 1024
CLOCK = ClockReading(raw_ns=1, mono_ns=2, boottime_ns=3, wall_ns=4)


def payload(seq: int, body: str = "x", gaps: list[Gap] | None = None) -> bytes:
    line = RawLine(seq=seq, source="s", generation="g", offset=seq * 10, body=body)
    return codec.encode(
        RawBatch(
            run="live",
            run_id="live",
            cluster="c",
            reporter="n",
            boot_id="b",
            shipper_id="i",
            batch_seq=seq,
            clock=CLOCK,
            records=[line],
            gaps=gaps or [],
        )
    )


def positions(offset: int, source: str = "s") -> Positions:
    return {source: SourcePosition(path="/p", generations=(Position(generation="g", offset=offset),))}


def put(spool: Spool, body: str = "x") -> int:
    seq = spool.last_seq + 1
    spool.append(payload(seq, body), positions(seq), 1, seq + 1)
    return seq


def taken(spool: Spool) -> list[Entry]:
    entries: list[Entry] = []
    while (entry := spool.take(0)) is not None:
        entries.append(entry)
    return entries


def offset_of(spool: Spool, source: str = "s") -> int | None:
    position = spool.positions.get(source)
    return position.generations[0].offset if position else None


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    return tmp_path / "spool"


@pytest.fixture
def spool(folder: Path) -> Iterator[Spool]:
    opened = Spool(folder, 64 * MIB)
    yield opened
    opened.close()


def test_a_batch_can_be_taken_only_after_it_is_on_disk(spool: Spool) -> None:
    put(spool)
    assert spool.take(0) is None
    spool.sync()

    assert [entry.batch_seq for entry in taken(spool)] == [1]


def test_batches_come_back_in_order_with_their_bytes(spool: Spool) -> None:
    for _ in range(5):
        put(spool)
    spool.sync()
    entries = taken(spool)

    assert [entry.batch_seq for entry in entries] == [1, 2, 3, 4, 5]
    assert entries[2].payload == payload(3)


def test_what_is_not_acknowledged_is_sent_again_after_a_restart_under_the_same_numbers(folder: Path) -> None:
    first = Spool(folder, 64 * MIB)
    for _ in range(4):
        put(first)
    first.sync()
    for entry in taken(first)[:2]:
        first.acknowledge(entry)
    first.close()
    second = Spool(folder, 64 * MIB)

    assert [entry.batch_seq for entry in taken(second)] == [3, 4]
    assert second.shipper_id == first.shipper_id
    assert offset_of(second) == 4
    assert put(second) == 5
    second.close()


def test_positions_alone_are_kept_and_never_sent(folder: Path) -> None:
    first = Spool(folder, 64 * MIB)
    first.append(b"", positions(77), 0, 0)
    first.sync()
    assert first.take(0) is None
    first.close()
    second = Spool(folder, 64 * MIB)

    assert offset_of(second) == 77
    assert put(second) == 1
    second.close()


def test_a_source_that_is_gone_is_forgotten(folder: Path) -> None:
    first = Spool(folder, 64 * MIB)
    first.append(b"", {**positions(1, "a"), **positions(2, "b")}, 0, 0)
    first.append(b"", {"a": None}, 0, 0)
    first.sync()
    first.close()
    second = Spool(folder, 64 * MIB)

    assert set(second.positions) == {"b"}
    second.close()


def test_positions_of_idle_sources_survive_when_old_segments_are_removed(folder: Path) -> None:
    first = Spool(folder, 64 * MIB, segment_bytes=1000)
    first.append(b"", positions(5, "idle"), 0, 0)
    for _ in range(30):
        put(first)
        first.sync()
        for entry in taken(first):
            first.acknowledge(entry)
    segments = list(folder.glob("*.spool"))
    first.close()
    second = Spool(folder, 64 * MIB)

    assert len(segments) <= 2
    assert offset_of(second, "idle") == 5
    assert second.backlog_bytes == 0
    second.close()


def test_a_spool_cut_at_any_byte_gives_back_its_whole_records_and_goes_on(tmp_path: Path) -> None:
    model = tmp_path / "model"
    spool = Spool(model, 64 * MIB)
    ends = [0]
    segment = model / "000000000001.spool"
    for number in range(1, 4):
        spool.append(b"batch", positions(number), 1, number)
        spool.sync()
        ends.append(segment.stat().st_size)
    spool.close()
    for size in range(ends[-1] + 1):
        cut = tmp_path / "cut"
        shutil.copytree(model, cut)
        os.truncate(cut / segment.name, size)
        opened = Spool(cut, 64 * MIB)
        whole = sum(end <= size for end in ends[1:])
        assert [entry.batch_seq for entry in taken(opened)] == list(range(1, whole + 1)), size
        assert offset_of(opened) == (whole or None)
        opened.append(b"next", positions(9), 1, 9)
        opened.sync()
        assert [entry.batch_seq for entry in taken(opened)] == [whole + 1]
        opened.close()
        shutil.rmtree(cut)


def test_a_changed_byte_anywhere_is_never_taken_for_a_batch(tmp_path: Path) -> None:
    model = tmp_path / "model"
    spool = Spool(model, 64 * MIB)
    good = [payload(seq) for seq in (1, 2)]
    for _ in good:
        put(spool)
    spool.sync()
    spool.close()
    segment = model / "000000000001.spool"
    data = segment.read_bytes()
    for index in range(0, len(data), 3):
        damaged = bytearray(data)
        damaged[index] ^= 0x40
        segment.write_bytes(damaged)
        opened = Spool(model, 64 * MIB)
        assert [entry.payload for entry in taken(opened)] in ([], good[:1], good[1:])
        opened.close()


def test_a_damaged_segment_in_the_middle_leaves_a_gap_and_its_neighbours(folder: Path) -> None:
    spool = Spool(folder, 64 * MIB, segment_bytes=400)
    for _ in range(6):
        put(spool)
        spool.sync()
    spool.close()
    segments = sorted(folder.glob("*.spool"))
    data = bytearray(segments[1].read_bytes())
    data[-5] ^= 0xFF
    segments[1].write_bytes(data)
    opened = Spool(folder, 64 * MIB)
    numbers = [entry.batch_seq for entry in taken(opened)]
    gaps = opened.take_found_gaps()
    opened.close()

    assert numbers[0] == 1
    assert numbers[-1] == 6
    assert len(numbers) < 6
    assert [segments[1].name in gap.reason for gap in gaps] == [True]


def test_the_oldest_batches_are_dropped_when_the_spool_is_full_and_the_gap_says_how_many(folder: Path) -> None:
    spool = Spool(folder, 80_000)
    gaps: list[Gap] = []
    for _ in range(100):
        gaps += spool.make_room(3000)
        put(spool, "y" * 2000)
        spool.sync()
    size = sum(path.stat().st_size for path in folder.glob("*.spool"))
    entries = taken(spool)
    spool.close()

    assert size <= 80_000
    assert entries[-1].batch_seq == 100
    assert sum(gap.lost_lines or 0 for gap in gaps) == 100 - len(entries)
    assert all(gap.source == "s" and "full" in gap.reason for gap in gaps)
    assert entries[0].batch_seq == 1  # nobody knows whether Kafka has the first one: it is never given up
    assert gaps[-1].to_offset == (entries[1].batch_seq - 1) * 10


def test_gap_markers_in_dropped_batches_are_carried_on(folder: Path) -> None:
    spool = Spool(folder, 16_000)
    old = Gap(source="kmsg", reason="overrun", lost_lines=9)
    put(spool)
    spool.append(payload(2, gaps=[old]), positions(2), 1, 2)
    spool.sync()
    gaps: list[Gap] = []
    for _ in range(20):
        gaps += spool.make_room(2000)
        put(spool, "y" * 1500)
        spool.sync()
    spool.close()

    assert gaps.count(old) == 1


def test_nothing_is_dropped_before_its_gap_marker_is_on_disk(folder: Path) -> None:
    spool = Spool(folder, 16_000)
    while not spool.make_room(2000):
        put(spool, "y" * 1500)
        spool.sync()
    before = sum(path.stat().st_size for path in folder.glob("*.spool"))
    nothing = spool.take(0)
    put(spool, "the marker goes with this one")
    spool.sync()
    after = sum(path.stat().st_size for path in folder.glob("*.spool"))
    first = taken(spool)[0].batch_seq
    spool.close()

    assert nothing is None
    assert after < before
    assert first == 1


def test_a_second_shipper_on_one_spool_is_refused_and_told_who_has_it(spool: Spool, folder: Path) -> None:
    with pytest.raises(SpoolLockedError, match=f"process {os.getpid()} ships"):
        Spool(folder, 64 * MIB)


def test_a_dead_shipper_leaves_no_lock(folder: Path) -> None:
    code = (
        "import os, signal, sys; from pathlib import Path; from shippers.spool import Spool;"
        "Spool(Path(sys.argv[1]), 1 << 26); os.kill(os.getpid(), signal.SIGKILL)"
    )
    dead = subprocess.run([sys.executable, "-c", code, str(folder)], check=False)
    spool = Spool(folder, 64 * MIB)

    assert dead.returncode == -signal.SIGKILL
    spool.close()


def test_two_spools_have_two_shipper_ids(tmp_path: Path) -> None:
    first, second = Spool(tmp_path / "a", 64 * MIB), Spool(tmp_path / "b", 64 * MIB)
    ids = {first.shipper_id, second.shipper_id}
    first.close()
    second.close()

    assert len(ids) == 2


def test_a_full_disk_takes_back_what_is_not_synced_and_goes_on_when_there_is_room(folder: Path) -> None:
    spool = Spool(folder, 64 * MIB)
    put(spool)
    spool.sync()
    soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    put(spool)
    resource.setrlimit(resource.RLIMIT_FSIZE, (8192, hard))
    try:
        with pytest.raises(SpoolFullError):
            put(spool, "z" * 20_000)
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))
    assert (spool.last_seq, offset_of(spool)) == (1, 1)
    assert [put(spool), put(spool, "z" * 20_000)] == [2, 3]
    spool.sync()
    numbers = [entry.batch_seq for entry in taken(spool)]
    spool.close()
    again = Spool(folder, 64 * MIB)

    assert numbers == [1, 2, 3]
    assert [entry.batch_seq for entry in taken(again)] == [1, 2, 3]
    again.close()
