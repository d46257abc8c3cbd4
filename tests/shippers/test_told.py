"""Records that are no lines go through the spool as lines do."""

from collections.abc import Iterator
from pathlib import Path

from schemas import codec
from schemas.records import RawBatch, RawLine, SourceProgress, Topology
from schemas.topics import RAW
from shippers.clock import HostClock
from shippers.config import Config, SpoolSettings
from shippers.losses import losses_by_source
from shippers.pieces import Limit, Moment, Piece
from shippers.positions import Position, SourcePosition
from shippers.reader import Reader
from shippers.spool import Spool
from shippers.writer import SpoolWriter


def topology(node: str) -> Topology:
    return Topology(
        run="live", run_id="live", cluster="pool", reporter="control", node=node, source="topology.conf",
        start_unix_nano=5, leaf_switch="leaf1",
    )  # fmt: skip


class Teller:
    """A source that tells where two nodes hang, and one line."""

    name = "teller"

    def __init__(self, saved: SourcePosition | None = None) -> None:
        self.attributes = {"kind": "control"}
        self._done = saved is not None

    def look(self, moment: Moment) -> None:
        """Nothing changes."""

    def read(self, limit: Limit, moment: Moment, numbers: Iterator[int]) -> Piece | None:
        if self._done:
            return None
        self._done = True
        line = RawLine(seq=next(numbers), source=self.name, generation="g", offset=1, body="told")
        position = SourcePosition(generations=(Position(generation="g", offset=1),))
        return Piece(
            source=self.name, position=position, lines=[line], size=4, records=[topology("gpu1"), topology("gpu2")]
        )

    def progress(self) -> SourceProgress:
        return SourceProgress(source=self.name, state="on")

    def close(self) -> None:
        """Nothing is open."""


def config(folder: Path) -> Config:
    return Config(
        cluster="pool", reporter="control", source=(), profile="none", sources={"self_test": True},
        spool=SpoolSettings(dir=str(folder)),
    )  # fmt: skip


def spooled(folder: Path) -> list[object]:
    """One pass over the teller, in the place of the only source, into a spool; and all that is taken from it."""
    spool = Spool(folder, 64 * 1024 * 1024)
    try:
        reader = Reader(config(folder), HostClock(), spool.positions, spool.next_line_seq)
        reader.wrap(lambda source: Teller(spool.positions.get("teller")))
        writer = SpoolWriter(spool, reader, lambda text: None)
        for batch in reader.read_pass(HostClock().moment()):
            writer.put(batch)
        assert writer.flush()
        taken = []
        while (entry := spool.take(0)) is not None:
            taken.append(codec.decode(RAW.name, entry.payload))
        return taken
    finally:
        spool.close()


def test_records_go_ahead_of_the_lines_of_their_piece_and_survive_a_restart(tmp_path: Path) -> None:
    for _ in range(2):  # the second process takes what nobody acknowledged, and reads nothing again
        first, second, batch = spooled(tmp_path)
        assert [first, second] == [topology("gpu1"), topology("gpu2")]
        assert isinstance(batch, RawBatch)
        assert [line.body for line in batch.records] == ["told"]


def test_records_that_are_dropped_with_a_full_spool_are_counted_by_kind() -> None:
    gaps = losses_by_source([topology("gpu1"), topology("gpu2")], "full")
    assert [(gap.source, gap.reason, gap.lost_lines) for gap in gaps] == [("records of the kind topology", "full", 2)]
