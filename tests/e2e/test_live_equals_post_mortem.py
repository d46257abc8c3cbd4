"""The live path and `diagnose` say the same of the same lines."""

from pathlib import Path

import msgspec
import pytest

from pipeline.diagnose import diagnose
from pipeline.drill.generate import Options, incident, write
from pipeline.engine import Engine
from pipeline.folder import plan
from pipeline.reader import node_records
from schemas.codec import encode
from schemas.topics import key_of
from tests.e2e.fleet import Fleet, Playing, as_cluster, contents, expected, line_count
from tests.test_content_clocks import skewed

pytestmark = [pytest.mark.kafka, pytest.mark.clickhouse, pytest.mark.slow]


def test_a_replay_through_real_shippers_gives_the_incident_of_the_post_mortem(
    fleet: Fleet, demo: Path, tmp_path: Path
) -> None:
    """Shippers, Kafka, Faust, join: the final incident is the post-mortem's, byte for byte."""
    folder = as_cluster(demo, tmp_path / "equal", "equal")

    Playing(fleet, folder).wait_done()

    fleet.wait_final("equal", expected(folder))
    fleet.assert_lines_once("equal", line_count(folder))
    fleet.assert_revisions_once("equal")


def test_recorded_clocks_are_used_by_both(fleet: Fleet, tmp_path: Path) -> None:
    """Wall clocks that are off and stepped by seconds, undone by the record of each node's clocks."""
    write(incident(Options(seed=41, chain="C10", ranks=16, beacons=True, skew_s=5.0)), tmp_path / "made")
    folder = as_cluster(tmp_path / "made" / "logs", tmp_path / "recorded", "recorded")

    Playing(fleet, folder).wait_done()

    fleet.wait_final("recorded", expected(folder))


def test_clocks_that_the_lines_align_are_so_in_a_replay_too(fleet: Fleet, tmp_path: Path) -> None:
    """What the plan of the folder says of clocks travels with the batches of the shippers."""
    folder = as_cluster(skewed(tmp_path / "skewed"), tmp_path / "clocks", "clocks")

    Playing(fleet, folder).wait_done()

    fleet.wait_final("clocks", expected(folder))
    assert {edge.order for edge in diagnose([folder]).incidents[0].edges} == {"certain"}


@pytest.mark.parametrize("order", ["first node first", "last node first", "nodes in turn"])
def test_the_order_of_arrival_does_not_matter(fleet: Fleet, demo: Path, tmp_path: Path, order: str) -> None:
    """Whoever's lines arrive first, the incident is the same."""
    cluster = order.replace(" ", "-")
    folder = as_cluster(demo, tmp_path / cluster, cluster)
    planned = plan([folder])
    streams = [list(node_records(cluster, node, "replay", cluster)) for node in planned.nodes]
    if order == "first node first":
        messages = [keyed for stream in streams for keyed in stream]
    elif order == "last node first":
        messages = [keyed for stream in reversed(streams) for keyed in stream]
    else:
        longest = max(map(len, streams))
        messages = [stream[i] for i in range(longest) for stream in streams if i < len(stream)]

    for keyed in messages:
        fleet.send("raw", keyed.key, encode(keyed.record))

    fleet.wait_final(cluster, expected(folder))


def test_a_withdrawn_verdict_is_in_neither(fleet: Fleet, tmp_path: Path) -> None:
    """A node's fault is first an incident of the node; once the job explains it, only the job's incident stands."""
    folder = tmp_path / "withdrawn"
    folder.mkdir()
    (folder / "rootrank.toml").write_text('cluster = "withdrawn"\njob_id = "7"\nyear = 2026\n')
    (folder / "n1.kern.log").write_text(
        "2026-03-04T05:06:07.100000+00:00 n1 kernel: NVRM: Xid (PCI:0000:5e:00): 79, GPU has fallen off the bus.\n"
    )
    (folder / "n1.rank0.log").write_text(
        "n1:80:82 [0] NCCL INFO comm 0x55 rank 0 nranks 1 cudaDev 0 nvmlDev 0 busId 5e000 commId 0x7 - Init COMPLETE\n"
        "[rank0]: [2026-03-04 05:06:09] step 5\n"
        "[rank0]: RuntimeError: CUDA error: unspecified launch failure\n"
    )
    planned = plan([folder])
    records = [keyed for node in planned.nodes for keyed in node_records("withdrawn", node, "replay", "withdrawn")]
    kernel_first = sorted(records, key=lambda keyed: b"n1.rank0" in encode(keyed.record))
    numbered = [_renumbered(keyed.record, seq) for seq, keyed in enumerate(kernel_first, 1)]

    for record in numbered:
        fleet.send("raw", key_of("replay", "withdrawn", "withdrawn", "n1"), encode(record))

    fleet.wait_final("withdrawn", expected(folder))
    states = {i.state for i in fleet.revisions("withdrawn")}
    assert "superseded" in states
    assert len(diagnose([folder]).incidents) == 1


def _renumbered(record: msgspec.Struct, seq: int) -> msgspec.Struct:
    """The record with a batch number that fits the order in which it is sent."""
    if hasattr(record, "batch_seq"):
        return msgspec.structs.replace(record, batch_seq=seq)
    return record


def test_the_engine_alone_agrees_with_itself_when_batches_are_split(demo: Path) -> None:
    """One line a batch or a thousand: the incident is the same."""
    planned = plan([demo])
    whole, split = Engine(), Engine()
    for node in planned.nodes:
        seq = 0
        for keyed in node_records(planned.cluster, node, "post_mortem", ""):
            whole.feed(keyed.key, keyed.record)
            lines = getattr(keyed.record, "records", None)
            if lines is None:
                split.feed(keyed.key, keyed.record)
                continue
            for line in lines:
                seq += 1
                split.feed(keyed.key, msgspec.structs.replace(keyed.record, records=[line], batch_seq=seq))

    assert contents(split.incidents()) == contents(whole.incidents())
