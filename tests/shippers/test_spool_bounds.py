"""What a full, old or damaged spool gives up, what stays, and that nothing is counted twice however it ends."""

import base64
import os
import resource
import shutil
import time
from collections.abc import Iterator
from pathlib import Path

import msgspec
import pytest
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PublicKey

from schemas import codec
from schemas.records import ClockReading, Gap, Progress, RawBatch, RawLine, Topology
from schemas.signing import detach, to_sign
from schemas.topics import RAW
from shippers import segment
from shippers.claim import SpoolFormatError
from shippers.clock import HostClock
from shippers.delivery import PROGRESS_EVERY_S, Delivery
from shippers.positions import Position, Positions, SourcePosition
from shippers.segment import Entry
from shippers.signing import make_key, signer_of
from shippers.spool import Spool, SpoolFullError
from tests.shippers.fakes import SECOND_NS, FakeSink, eventually

CLOCK = ClockReading(raw_ns=1, mono_ns=2, boottime_ns=3, wall_ns=4)
HANGS = Topology(run="live", run_id="live", cluster="c", reporter="n", source="s", node="n", start_unix_nano=1)
KEPT = Path(__file__).with_name("data") / "spool-format-1"


def batch(seq: int, sources: tuple[str, ...], pad: int = 1000, gaps: list[Gap] | None = None) -> bytes:
    records = [
        RawLine(seq=10 * seq + at, source=source, generation="g", offset=seq, body=f"{seq} {'y' * pad}")
        for at, source in enumerate(sources)
    ]
    return codec.encode(
        RawBatch(
            run="live", run_id="live", cluster="c", reporter="n", boot_id="b", shipper_id="i", batch_seq=seq,
            clock=CLOCK, records=records, gaps=gaps or [],
        )
    )  # fmt: skip


def at(offset: int) -> Positions:
    return {"s": SourcePosition(path="/p", generations=(Position(generation="g", offset=offset),))}


def put(spool: Spool, *sources: str, pad: int = 1000) -> list[Gap]:
    """A batch with a line of each source, with the room that it needs made first."""
    gaps = spool.make_room(len(sources) * pad + 500)
    seq = spool.last_seq + 1
    spool.append(batch(seq, sources, pad, gaps), at(seq), len(sources), 10 * seq + len(sources))
    return gaps


def taken(spool: Spool) -> list[Entry]:
    return list(iter(lambda: spool.take(0), None))


def lines_in(entries: list[Entry]) -> list[tuple[str, int]]:
    batches = (codec.decode(RAW.name, entry.payload) for entry in entries)
    return [(line.source, line.offset) for each in batches if isinstance(each, RawBatch) for line in each.records]


def gaps_in(entries: list[Entry]) -> list[Gap]:
    batches = (codec.decode(RAW.name, entry.payload) for entry in entries)
    return [gap for each in batches if isinstance(each, RawBatch) for gap in each.gaps]


def counted(entries: list[Entry], source: str) -> int:
    return sum(gap.lost_lines or 0 for gap in gaps_in(entries) if gap.source == source)


class Hours:
    """A boot clock that is moved by hand."""

    def __init__(self) -> None:
        self.now_ns = 1000 * 3600 * SECOND_NS

    def __call__(self) -> int:
        return self.now_ns

    def pass_by(self, hours: float) -> None:
        self.now_ns += int(hours * 3600 * SECOND_NS)


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    return tmp_path / "spool"


@pytest.fixture
def storm(folder: Path) -> Iterator[Spool]:
    """A spool that keeps the first lines of `storm`, and can hold forty batches."""
    spool = Spool(folder, 80_000, is_kept=lambda source: source == "storm")
    yield spool
    spool.close()


# --- full -----------------------------------------------------------------------------------------------------------


def test_what_stays_of_a_signed_batch_is_signed_anew(folder: Path, tmp_path: Path) -> None:
    path, key_id, public = make_key(tmp_path / "keys")
    key = Ed25519PublicKey.from_public_bytes(base64.b64decode(public))
    spool = Spool(folder, 80_000, is_kept=lambda source: source == "storm", signer=signer_of(path))
    for sources in (*[("storm", "other")] * 10, *[("other",)] * 200):
        spool.make_room(len(sources) * 1000 + 500)
        seq = spool.last_seq + 1
        data = codec.encode(msgspec.structs.replace(codec.decode(RAW.name, batch(seq, sources)), key_id=key_id))
        spool.append(signer_of(path).signed(data), at(seq), len(sources), 10 * seq + len(sources))
        spool.sync()
    found = taken(spool)
    spool.close()

    assert sum(lines_in([entry]) == [("storm", entry.batch_seq)] for entry in found) == 9, "all but the head"
    for entry in found:
        parts = detach(entry.payload)
        assert parts is not None
        key.verify(parts[1], to_sign(parts[0]))


def test_a_record_that_is_no_lines_and_is_refused_is_counted(storm: Spool) -> None:
    sink = FakeSink()
    sink.refused.add(b"topology")
    storm.append(codec.encode(HANGS), {}, 0, 0)
    storm.sync()
    delivery = Delivery(storm, sink, HostClock(), lambda text: None)
    delivery.start()
    lost = eventually(delivery.take_lost, "the gap marker")
    put(storm, "other")
    storm.sync()
    eventually(lambda: storm.acked_seq == 2, "the neighbour")

    assert delivery.stop(5)
    assert delivery.failure is None
    assert [(gap.source, gap.lost_lines) for gap in lost] == [("records of the kind topology", 1)]


def test_what_is_no_longer_this_agents_to_say_is_not_said_again(storm: Spool) -> None:
    sink = FakeSink()
    delivery = Delivery(storm, sink, HostClock(), lambda text: None)
    progress = Progress(
        run="live", run_id="live", cluster="c", reporter="control", boot_id="b", shipper_id="s", last_batch_seq=0,
        clock=HostClock().read(), sources=[],
    )  # fmt: skip
    delivery.offer(progress)
    delivery.start()
    eventually(lambda: len(sink.progress()) >= 2, "the same once more")
    delivery.forget()
    put(storm, "other")
    storm.sync()
    eventually(lambda: storm.acked_seq == 1, "what it was doing is done")
    said, began_s = len(sink.progress()), time.monotonic()
    eventually(lambda: time.monotonic() - began_s > 2 * PROGRESS_EVERY_S, "the next ones would be due")
    assert delivery.stop(5)
    assert len(sink.progress()) == said


def test_a_refused_batch_is_given_up_once_what_was_taken_of_it_is_on_disk(storm: Spool) -> None:
    sink = FakeSink()
    sink.refused.add(b"topology")
    storm.append(codec.encode(HANGS), {}, 0, 0)
    storm.sync()
    told = list[str]()
    delivery = Delivery(storm, sink, HostClock(), told.append)
    delivery.start()
    eventually(lambda: told, "the refusal")
    put(storm, "other")
    storm.sync()  # without the gap markers, which wait
    assert storm.acked_seq == 0
    assert eventually(delivery.take_lost, "the gap marker")
    assert storm.acked_seq == 0
    put(storm, "other")
    storm.sync()
    eventually(lambda: storm.acked_seq >= 1, "it is given up")
    assert delivery.stop(5)


def test_records_that_are_no_lines_go_with_the_oldest_and_are_counted(storm: Spool) -> None:
    for _ in range(10):
        put(storm, "storm", "other")
        storm.append(codec.encode(HANGS), {}, 0, storm.next_line_seq)
        storm.sync()
    for _ in range(200):
        put(storm, "other")
        storm.sync()
    found = taken(storm)

    left = sum(isinstance(codec.decode(RAW.name, entry.payload), Topology) for entry in found)
    assert left + counted(found, "records of the kind topology") == 10
    assert left < 10
    assert [offset for source, offset in lines_in(found) if source == "storm"] == [2 * at - 1 for at in range(1, 11)]


def test_lines_of_a_source_that_drops_its_newest_stay_when_the_oldest_go(storm: Spool, folder: Path) -> None:
    for _ in range(10):
        put(storm, "storm", "other")
        storm.sync()
    for _ in range(200):
        put(storm, "other")
        storm.sync()
    found = taken(storm)
    lines = lines_in(found)

    assert [offset for source, offset in lines if source == "storm"] == list(range(1, 11))
    assert [entry.batch_seq for entry in found] == sorted(entry.batch_seq for entry in found)
    assert counted(found, "other") == 210 - sum(source == "other" for source, _ in lines)
    assert counted(found, "storm") == 0
    assert sum(path.stat().st_size for path in folder.glob("*.spool")) <= 100_000


def test_the_batch_that_may_have_arrived_is_never_given_up(folder: Path) -> None:
    spool = Spool(folder, 80_000)
    put(spool, "s")
    put(spool, "s")
    spool.sync()
    first = spool.take(0)
    assert first is not None
    spool.acknowledge(first)
    in_flight = spool.take(0)
    for _ in range(200):
        put(spool, "s")
        spool.sync()
    left = taken(spool)
    spool.close()
    again = Spool(folder, 80_000)
    after = taken(again)
    again.close()

    assert in_flight is not None
    assert in_flight.batch_seq == 2
    assert 1 + len(lines_in([in_flight, *left])) + counted(left, "s") == 202
    assert [entry.batch_seq for entry in after] == [2, *(entry.batch_seq for entry in left)]


def test_a_kill_between_the_markers_and_the_dropping_counts_no_line_twice(folder: Path, tmp_path: Path) -> None:
    spool = Spool(folder, 80_000, is_kept=lambda source: source == "storm")
    while not (gaps := spool.make_room(1500)):
        put(spool, "storm" if spool.last_seq % 7 == 0 else "s")
        spool.sync()
    before = {path.name: path.read_bytes() for path in folder.glob("*.spool")}
    seq = spool.last_seq + 1
    spool.append(batch(seq, ("s",), gaps=gaps), at(seq), 1, 10 * seq + 1)
    spool.sync()
    spool.close()
    killed = tmp_path / "killed"
    shutil.copytree(folder, killed)
    for name, data in before.items():  # as if it had ended before the files were touched
        if not (killed / name).exists() or (killed / name).stat().st_size < len(data):
            (killed / name).write_bytes(data)
    opened = [Spool(each, 80_000) for each in (folder, killed)]
    found = [taken(each) for each in opened]
    for each in opened:
        each.close()

    assert lines_in(found[0]) == lines_in(found[1])
    assert len(lines_in(found[1])) + counted(found[1], "s") == seq
    assert counted(found[1], "s") > 0


def test_a_start_on_a_full_disk_delivers_what_is_there_and_says_that_it_is_full(folder: Path) -> None:
    spool = Spool(folder, 80_000)
    put(spool, "s")
    spool.sync()
    spool.close()
    soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (1, hard))
    try:
        opened = Spool(folder, 80_000)
        found = taken(opened)
        opened.acknowledge(found[0])
        with pytest.raises(SpoolFullError):
            put(opened, "s")
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))
    opened.close()

    assert [entry.batch_seq for entry in found] == [1]
    assert opened.acked_seq == 1


# --- old ------------------------------------------------------------------------------------------------------------


def test_what_is_too_old_is_dropped_and_counted_whatever_its_policy(folder: Path) -> None:
    hours = Hours()
    spool = Spool(folder, 800_000, 4000, max_age_s=10 * 3600, is_kept=lambda source: True, now_ns=hours)
    for _ in range(12):
        put(spool, "s")
        spool.sync()
    hours.pass_by(11)
    assert spool.has_old()
    for _ in range(2):  # the file that was written last goes when another one follows it
        put(spool, "s")
        spool.sync()
    found = taken(spool)
    spool.close()

    assert counted(found, "s") == 14 - len(lines_in(found)) > 0
    assert "older than 10 h" in gaps_in(found)[0].reason
    assert not spool.has_old()


def test_the_age_of_files_is_known_after_a_restart_and_a_clock_that_was_not_set_drops_nothing(folder: Path) -> None:
    spool = Spool(folder, 800_000, 4000)
    for _ in range(12):
        put(spool, "s")
        spool.sync()
    spool.close()
    paths = sorted(folder.glob("*.spool"))
    for path, mtime_s in zip(paths, (1, 10**6, *[4 * 10**9] * len(paths)), strict=False):
        status = path.stat()
        os.utime(path, ns=(status.st_atime_ns, mtime_s * SECOND_NS))
    hours = Hours()
    opened = Spool(folder, 800_000, 4000, max_age_s=3600, now_ns=hours)
    was_old = opened.has_old()
    hours.pass_by(2)
    is_old = opened.has_old()
    opened.close()

    assert (was_old, is_old) == (False, True)


# --- damaged --------------------------------------------------------------------------------------------------------


def test_damage_costs_only_the_record_it_hits_and_is_counted(folder: Path) -> None:
    spool = Spool(folder, 800_000)
    for _ in range(5):
        put(spool, "a", "b", "c")
    spool.sync()
    spool.close()
    path = next(iter(folder.glob("*.spool")))
    data = bytearray(path.read_bytes())
    data[data.index(b"3 yyy") + 200] ^= 1
    path.write_bytes(data)
    opened = Spool(folder, 800_000)
    found = taken(opened)
    gaps = opened.take_found_gaps()
    opened.close()

    assert [entry.batch_seq for entry in found] == [1, 2, 4, 5]
    assert "damaged" in gaps[0].reason
    # The numbers of lines go on by ten a batch here: between the records are 13 - 10 more than the three.
    assert gaps[0].lost_lines == 10 * 4 - (10 * 2 + 3) - 0


def test_damage_that_comes_while_it_is_open_is_passed_over(folder: Path) -> None:
    spool = Spool(folder, 800_000)
    for _ in range(5):
        put(spool, "s")
    spool.sync()
    path = next(iter(folder.glob("*.spool")))
    data = bytearray(path.read_bytes())
    data[data.index(b"2 yyy") + 200] ^= 1
    data[data.index(b"5 yyy") + 200] ^= 1
    with path.open("r+b") as file:
        file.write(data)
    found = taken(spool)
    put(spool, "s")
    spool.sync()
    found += taken(spool)
    gaps = spool.take_found_gaps()
    spool.close()

    assert [entry.batch_seq for entry in found] == [1, 3, 4, 6]
    assert len(gaps) == 2


def test_a_tail_of_any_bytes_is_cut_off_and_the_records_before_it_stay(folder: Path, tmp_path: Path) -> None:
    spool = Spool(folder, 800_000)
    for _ in range(2):
        put(spool, "s", pad=20)
    spool.sync()
    spool.close()
    name = next(iter(folder.glob("*.spool"))).name
    whole = (folder / name).read_bytes()
    record = whole[len(whole) // 2 :]
    for tail in (b"\0" * 100, b"RRS1", b"RRS1" * 30, record[:-1], record[:45], os.urandom(200), b"RRS0" + record[4:]):
        cut = tmp_path / "cut"
        shutil.copytree(folder, cut)
        (cut / name).write_bytes(whole + tail)
        opened = Spool(cut, 800_000)
        put(opened, "s", pad=20)
        opened.sync()
        assert [entry.batch_seq for entry in taken(opened)] == [1, 2, 3], tail
        assert opened.take_found_gaps() == []
        opened.close()
        shutil.rmtree(cut)


# --- other versions -------------------------------------------------------------------------------------------------


def test_a_spool_of_the_first_format_is_read_as_it_was_written(folder: Path) -> None:
    shutil.copytree(KEPT, folder)
    spool = Spool(folder, 800_000)
    found = taken(spool)
    put(spool, "s")
    spool.sync()
    position = spool.positions["s"]
    spool.close()

    assert [entry.batch_seq for entry in found] == [1, 2, 3]
    assert lines_in(found) == [("s", 1), ("s", 2), ("s", 3)]
    assert position is not None
    assert position.generations[0].offset == 4


def test_today_the_first_format_is_written_so_that_an_earlier_version_can_go_on(folder: Path) -> None:
    spool = Spool(folder, 800_000)
    put(spool, "s")
    spool.sync()
    spool.close()
    data = next(iter(folder.glob("*.spool"))).read_bytes()

    assert data[:4] == b"RRS1"
    assert segment.HEADER_BYTES == 36


def test_what_a_later_version_wrote_is_refused_and_not_touched(folder: Path) -> None:
    shutil.copytree(KEPT, folder)
    path = next(iter(folder.glob("*.spool")))
    later = b"RRS2" + path.read_bytes()[4:]
    path.write_bytes(later)
    with pytest.raises(SpoolFormatError, match=r"later rootrank-shipper \(spool format 2\); run that version"):
        Spool(folder, 800_000)

    assert path.read_bytes() == later
    path.write_bytes(b"RRS1" + later[4:])
    Spool(folder, 800_000).close()
