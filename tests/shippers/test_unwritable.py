from schemas import codec
from schemas.records import ClockReading, Gap, Progress, RawBatch, RawLine, SourceProgress
from schemas.topics import RAW
from shippers import positions
from shippers.positions import SourcePosition
from shippers.unwritable import encode_batch, encode_progress

CLOCK = ClockReading(raw_ns=1, mono_ns=2, boottime_ns=3, wall_ns=4)


def line(source: str, offset: int, body: str) -> RawLine:
    return RawLine(seq=0, source=source, generation="g", offset=offset, body=body)


def test_lines_that_cannot_be_written_become_gaps_and_their_neighbours_arrive() -> None:
    batch = RawBatch(
        run="live", run_id="live", cluster="c", reporter="n", boot_id="b", shipper_id="s", batch_seq=1, clock=CLOCK,
        records=[line("a", 0, "one"), line("a", 2**70, "two"), line("a", 1, "th\udcffree"), line("b\udcff", 2, "four")],
        source_attributes={"a": {"rank": "0"}, "b\udcff": {}},
        gaps=[Gap(source="a", reason="fine"), Gap(source="b\udcff", reason="not fine")],
    )  # fmt: skip
    found = codec.decode(RAW.name, encode_batch(batch))

    assert [each.body for each in found.records] == ["one"]
    assert found.source_attributes == {"a": {"rank": "0"}}
    assert [(each.source, each.lost_lines) for each in found.gaps] == [
        ("a", None),
        ("b\\udcff", None),
        ("a", 2),
        ("b\\udcff", 1),
    ]


def test_a_source_that_cannot_be_written_is_said_to_be_refused() -> None:
    sources = [SourceProgress(source=name, state="on", kind="kernel") for name in ("a", "b\udcff")]
    progress = Progress(
        run="live", run_id="live", cluster="c", reporter="n", boot_id="b", shipper_id="s", last_batch_seq=1,
        clock=CLOCK, sources=sources,
    )  # fmt: skip
    found = codec.decode(RAW.name, encode_progress(progress))

    assert [(each.source, each.state) for each in found.sources] == [("a", "on"), ("b\\udcff", "refused")]


def test_a_position_that_cannot_be_written_leaves_the_others_alone() -> None:
    known: positions.Positions = {"a": SourcePosition(path="/a"), "b": SourcePosition(path="/b\udcff"), "c": None}

    assert positions.decode(positions.encode(known)) == {"a": SourcePosition(path="/a"), "c": None}
