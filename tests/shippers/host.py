"""A recorded node whose counters a test moves, and looks at it."""

import shutil
from pathlib import Path
from typing import Final

import pytest

from pipeline.core.align import NodeFold
from schemas import signals
from schemas.records import ClockReading, Event, EventBatch, RawBatch, RawLine
from shippers.pieces import Moment
from shippers.probes.counted import HostProbe
from tests.shippers.fakes import SECOND_NS

TREE: Final = Path(__file__).parent / "trees" / "gpu_node"
SIGNALS = signals.load()
NODE: Final = "gpu17"
BEGAN_S: Final = 1_786_350_000
READ_S: Final = BEGAN_S + 86_400


class Node:
    """A copy of the recorded tree; time passes by what a probe says it looks every."""

    def __init__(self, root: Path) -> None:
        self.root = root / "node"
        shutil.copytree(TREE, self.root)
        self.now_s = 1000.0

    def set(self, path: str, content: object) -> None:
        """What a file holds from now on."""
        file = self.root / path.lstrip("/")
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(f"{content}\n")

    def gain(self, path: str, by: int) -> None:
        """A counter that grew."""
        self.set(path, int((self.root / path.lstrip("/")).read_text()) + by)

    def replace(self, path: str, old: str, new: str) -> None:
        """Another text in a file."""
        file = self.root / path.lstrip("/")
        text = file.read_text()
        assert old in text
        file.write_text(text.replace(old, new))

    def look(self, probe: HostProbe, after_s: float | None = None) -> list[str]:
        """The lines of the next look."""
        self.now_s += probe.every_s if after_s is None else after_s
        ns = int(self.now_s * SECOND_NS)
        return list(probe.look(Moment(observed_ns=ns, mono_ns=ns, wall_ns=BEGAN_S * SECOND_NS + ns)))

    def opened(self, make: type[HostProbe], memo: str = "") -> HostProbe:
        """A probe of this node that has looked once and told nothing."""
        probe = make(str(self.root))
        probe.open(memo)
        assert self.look(probe) == []
        return probe


@pytest.fixture
def node(tmp_path: Path) -> Node:
    return Node(tmp_path)


def events_of(lines: list[str], kind: str = "telemetry") -> list[Event]:
    """What the pipeline makes of lines that the agent of NODE told a second apart."""
    records = [
        RawLine(
            seq=number, source="probe", generation="a", offset=number + 1, body=body,
            observed_time_unix_nano=(READ_S + number) * SECOND_NS,
        )
        for number, body in enumerate(lines)
    ]  # fmt: skip
    clock = ClockReading(raw_ns=1, mono_ns=1, boottime_ns=1, wall_ns=(READ_S + len(lines)) * SECOND_NS)
    batch = RawBatch(
        run="live", run_id="live", cluster="c", reporter=NODE, boot_id="b", shipper_id="s", batch_seq=1, clock=clock,
        records=records, source_attributes={"probe": {"kind": kind}},
    )  # fmt: skip
    outputs = NodeFold(SIGNALS).apply(batch, now_ns=READ_S * SECOND_NS)
    found = [event for output in outputs if isinstance(output.record, EventBatch) for event in output.record.events]
    return sorted(found, key=lambda event: event.offset)
