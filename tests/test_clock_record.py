"""A folder that carries what was recorded of its nodes' clocks: lines are placed by it, a broken record is said."""

from pathlib import Path

import pytest

from pipeline.core.align import NodeFold
from pipeline.drill.generate import Incident, Options, incident, write
from pipeline.folder import plan
from pipeline.manifest import ManifestError
from pipeline.reader import node_records
from schemas import signals
from schemas.records import Event, EventBatch

# A stamp in the text of a line may be of a moment before the line itself was printed.
PRINTED_NS = 2_000_000_000


def read(folder: Path) -> tuple[list[Event], list[str]]:
    """The events of a folder, and the reasons of its gaps."""
    found: dict[str, Event] = {}
    gaps: list[str] = []
    planned = plan([folder / "logs"])
    for node in planned.nodes:
        fold = NodeFold(signals.load())
        for keyed in node_records(planned.cluster, node, "post_mortem", ""):
            for output in fold.apply(keyed.record, now_ns=0):
                if isinstance(output.record, EventBatch):
                    found.update((event.event_id, event) for event in output.record.events)
                    gaps += [gap.reason for gap in output.record.gaps]
    return list(found.values()), gaps


def off_ns(made: Incident, event: Event) -> tuple[int, int] | None:
    """Bounds minus the true time of a line, where the event is measured."""
    lines = made.files.get(event.source)
    if lines is None or event.line_no is None or event.line_no > len(lines) or event.reference_broker is None:
        return None
    true_ns = lines[event.line_no - 1].true_ns
    return event.lo_unix_nano - true_ns, event.hi_unix_nano - true_ns


@pytest.mark.parametrize("seed", [21, 34, 55])
def test_clocks_that_are_off_and_stepped_by_seconds_are_undone(tmp_path: Path, seed: int) -> None:
    made = incident(Options(seed=seed, ranks=16, beacons=True, skew_s=5.0))
    assert any(node.clock.steps for node in made.story.fleet.nodes) or seed != 55
    write(made, tmp_path)
    offs = [off for event in read(tmp_path)[0] if (off := off_ns(made, event)) is not None]
    assert len(offs) > 10
    assert all(lo <= 0 and hi >= -PRINTED_NS for lo, hi in offs)
    widths = sorted(hi - lo for lo, hi in offs)
    assert widths[len(widths) // 2] < 1_100_000_000


def test_the_record_is_no_log_and_a_broken_one_is_said(tmp_path: Path) -> None:
    write(incident(Options(seed=21, ranks=8, beacons=True)), tmp_path)
    planned = plan([tmp_path / "logs"])
    record = next(node.clock_record for node in planned.nodes if node.clock_record is not None)
    assert not [gap for gap in planned.gaps if gap.source.startswith("clocks/")]
    assert not [source.name for node in planned.nodes for source in node.sources if "clocks/" in source.name]
    text = record.read_text(encoding="utf-8").splitlines()
    record.write_text("\n".join([*text[:5], '{"boot_id": 7}', *text[5:]]), encoding="utf-8")
    assert any(f"{record.name}:6: no note of clocks" in reason for reason in read(tmp_path)[1])


def test_a_record_outside_the_folder_is_refused(tmp_path: Path) -> None:
    (tmp_path / "rootrank.toml").write_text('[nodes.n1]\nclock_record = "../clock.jsonl"\n', encoding="utf-8")
    with pytest.raises(ManifestError, match="inside the folder"):
        plan([tmp_path])


def test_a_record_that_is_not_there_is_said(tmp_path: Path) -> None:
    write(incident(Options(seed=21, ranks=8, beacons=True)), tmp_path)
    for record in (tmp_path / "logs" / "clocks").iterdir():
        record.unlink()
    events, gaps = read(tmp_path)
    assert all(event.reference_broker is None for event in events)
    assert any("No such file" in reason for reason in gaps)
