"""Bad input is a value with an address: it is found in SQL, and its neighbours are processed."""

import time
from pathlib import Path

import msgspec
import pytest

from pipeline.embedded.kafka import KafkaBroker
from schemas.codec import encode
from schemas.records import ClockReading, Progress, RawBatch, RawLine, SourceProgress
from schemas.topics import key_of
from tests.e2e.fleet import Fleet, Playing, as_cluster, expected
from tests.polling import until

pytestmark = [pytest.mark.kafka, pytest.mark.clickhouse, pytest.mark.slow]

XID = "NVRM: Xid (PCI:0000:5e:00): 79, GPU has fallen off the bus."
SECOND_NS = 1_000_000_000
YEAR_2099_NS = 4_070_908_800 * SECOND_NS
YEAR_1970_NS = 86_400 * SECOND_NS


def batch(cluster: str, *lines: str, seq: int = 1, wall_ns: int | None = None, shipper: str = "s1") -> RawBatch:
    """A live batch of kernel lines as a shipper would send it."""
    wall_ns = time.time_ns() if wall_ns is None else wall_ns
    return RawBatch(
        run="live",
        run_id="live",
        cluster=cluster,
        reporter="n1",
        boot_id="b1",
        shipper_id=shipper,
        batch_seq=seq,
        clock=ClockReading(raw_ns=0, mono_ns=100 * SECOND_NS, boottime_ns=0, wall_ns=wall_ns),
        records=[
            RawLine(
                seq=seq * 100 + number, source="kmsg", generation="g", offset=seq * 100 + number, body=line,
                kernel_time_ns=99 * SECOND_NS + number, observed_time_unix_nano=wall_ns,
            )
            for number, line in enumerate(lines)
        ],
        source_attributes={"kmsg": {"kind": "kernel"}},
    )  # fmt: skip


def progress(cluster: str, wall_ns: int) -> Progress:
    """A live progress record that claims to have read through `wall_ns`."""
    return Progress(
        run="live", run_id="live", cluster=cluster, reporter="n1", boot_id="b1", shipper_id="s1", last_batch_seq=1,
        clock=ClockReading(raw_ns=0, mono_ns=0, boottime_ns=0, wall_ns=wall_ns),
        sources=[SourceProgress(source="kmsg", state="on", kind="kernel", read_through_unix_nano=wall_ns)],
    )  # fmt: skip


@pytest.mark.parametrize(
    ("name", "value", "reason"),
    [
        ("garbage", b"\xff\x00\xfenot a record", "not JSON"),
        ("truncated", encode(batch("cut", XID))[:-40], "not JSON"),
        ("version", encode(batch("future", XID)).replace(b'"v":1', b'"v":99'), "unknown version 99"),
        ("shape", b'{"record":"raw_batch","v":1,"run":7}', "raw_batch"),
    ],
)
def test_a_message_that_is_no_record_is_a_dead_letter_with_its_address(
    fleet: Fleet, name: str, value: bytes, reason: str
) -> None:
    cluster = f"bad-{name}"
    key = key_of("live", "live", cluster, "n1")

    fleet.send("raw", key, value, encode(batch(cluster, XID)))

    until(lambda: [i for i in fleet.revisions(cluster) if i.xid == 79], what="the neighbour's incident")
    statement = (
        "SELECT topic, partition, offset, reason FROM dead_letters "
        f"WHERE key = '{cluster}/n1' AND reason LIKE '%{reason}%'"
    )
    rows = until(lambda: fleet.sql(statement), what="the dead letter in SQL")
    assert len(rows) == 1
    assert rows[0][0] == "raw"


def test_a_line_of_ten_megabytes_and_invalid_utf8_are_kept(fleet: Fleet, demo: Path, tmp_path: Path) -> None:
    folder = as_cluster(demo, tmp_path / "monstrous", "monstrous")
    log = folder / "gpu-101" / "rank0.log"
    log.write_bytes(b"x" * 10_000_000 + b"\n" + b"caf\xe9 \xff\xfe\n" + log.read_bytes())

    Playing(fleet, folder).wait_done()

    fleet.wait_final("monstrous", expected(folder))
    statement = (
        "SELECT truncated, length(Body) > 1000000, line_no FROM raw_lines "
        "WHERE cluster = 'monstrous' AND reporter = 'gpu-101' AND source = 'gpu-101/rank0.log' AND line_no <= 2 "
        "ORDER BY line_no"
    )
    rows = until(lambda: (found := fleet.sql(statement)) and len(found) == 2 and found, what="both lines in SQL")
    assert rows == [(True, True, 1), (False, False, 2)]
    text = fleet.sql(
        "SELECT Body FROM raw_lines WHERE cluster = 'monstrous' AND source = 'gpu-101/rank0.log' AND line_no = 2"
    )
    assert text == [("caf\ufffd \ufffd\ufffd",)]


@pytest.mark.parametrize(
    ("year", "wall_ns", "how"), [("2099", YEAR_2099_NS, "ahead"), ("1970", YEAR_1970_NS, "behind")]
)
def test_a_node_clock_that_cannot_be_right_is_reported_and_not_believed(
    fleet: Fleet, year: str, wall_ns: int, how: str
) -> None:
    cluster = f"clock-{year}"
    key = key_of("live", "live", cluster, "n1")

    fleet.send("raw", key, encode(batch(cluster, XID, wall_ns=wall_ns)), encode(progress(cluster, wall_ns)))

    incident = until(lambda: fleet.revisions(cluster), what="an incident in spite of the clock")[-1]
    assert incident.xid == 79
    assert incident.started_at is None
    statement = (
        "SELECT quality, lo_time <= hi_time, abs(dateDiff('second', hi_time, now64(9))) < 600 "
        f"FROM events WHERE cluster = '{cluster}'"
    )
    rows = until(lambda: fleet.sql(statement), what="the event in SQL")
    assert rows == [("none", 1, 1)]
    gaps = until(lambda: fleet.sql(f"SELECT reason FROM gaps WHERE cluster = '{cluster}'"), what="the gap in SQL")
    assert any("clock" in reason and how in reason for (reason,) in gaps)
    passed = [r for r in fleet.records("events") if type(r).__name__ == "NodeProgress" and r.cluster == cluster]
    assert passed
    assert all(r.through_unix_nano == 0 for r in passed)
    assert {i.verdict for i in fleet.revisions(cluster)} == {"provisional"}


def test_two_shippers_under_one_name_are_a_named_conflict(fleet: Fleet) -> None:
    cluster = "twins"
    key = key_of("live", "live", cluster, "n1")
    first, second = batch(cluster, XID), batch(cluster, "usb 1-1: new device", seq=7, shipper="s2")
    again = msgspec.structs.replace(first, batch_seq=2, records=[])

    fleet.send("raw", key, encode(first), encode(second), encode(again))

    statement = f"SELECT reason FROM gaps WHERE cluster = '{cluster}'"
    rows = until(lambda: [r for r in fleet.sql(statement) if "conflict" in r[0]], what="the conflict in SQL")
    assert "s1" in rows[0][0]
    assert "s2" in rows[0][0]
    assert fleet.sql(f"SELECT count() FROM raw_lines WHERE cluster = '{cluster}'") == [(2,)]


def test_an_unreachable_kafka_is_waited_for_and_said_once(
    fleet: Fleet, demo: Path, tmp_path: Path, mortal_broker: KafkaBroker
) -> None:
    """Worker and store start while the broker is away; they say so once, and work when it is there."""
    for process in (fleet.workers.pop(), fleet.stores.pop()):
        process.stop()
    mortal_broker.stop()
    worker, store = fleet.add_worker(), fleet.add_store()
    said = "does not answer"
    until(lambda: said in worker.log.read_text() and said in store.log.read_text(), what="both say that they wait")
    folder = as_cluster(demo, tmp_path / "patient", "patient")
    play = Playing(fleet, folder)

    mortal_broker.start()

    play.wait_done()
    fleet.wait_final("patient", expected(folder))
    for process in (worker, store):
        assert process.log.read_text().count(said) == 1
