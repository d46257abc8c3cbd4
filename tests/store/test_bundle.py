"""A bundle from the real store: the lines of the blamed node, and what its agent captured."""

from collections.abc import Sequence
from datetime import UTC, datetime
from importlib.resources import files
from pathlib import Path

import msgspec
import pytest

from pipeline.bundle.archive import bundle_of
from pipeline.bundle.from_folder import NoSuchIncidentError
from pipeline.bundle.from_store import contents_of_store
from pipeline.store.clickhouse import Store
from schemas.records import ClockReading, RawBatch, RawLine
from tests.store.conftest import put
from tests.store.live import store_live

pytestmark = pytest.mark.clickhouse

READ_NS = int(datetime(2026, 3, 11, 10, 31, 42, tzinfo=UTC).timestamp() * 1e9)
HEAD = "rootrank: capture id=5f0c2ab19d3e4871 trigger=gpu parts=2 bytes=9 took_ms=1 file=/x why=Xid_79"


def captured(cluster: str, reporter: str, *bodies: str) -> RawBatch:
    lines = [
        RawLine(seq=number, source="capture", generation="g", offset=number, body=body, observed_time_unix_nano=READ_NS)
        for number, body in enumerate(bodies, 1)
    ]
    clock = ClockReading(raw_ns=1, mono_ns=1, boottime_ns=1, wall_ns=READ_NS)
    return RawBatch(
        run="live", run_id="live", cluster=cluster, reporter=reporter, boot_id="b", shipper_id="s", batch_seq=9,
        clock=clock, records=lines,
    )  # fmt: skip


@pytest.fixture
def incident_id(store: Store) -> str:
    store_live(store, Path(str(files("pipeline").joinpath("demo", "fell_off_bus"))), READ_NS)
    ((found, cluster),) = store.rows("SELECT incident_id, cluster FROM incidents")
    text = "rootrank: capture.text id=5f0c2ab19d3e4871 n=1 | === about"
    put(store, captured(str(cluster), "gpu-102", HEAD, text))
    put(store, captured(str(cluster), "gpu-101", HEAD.replace("5f0c", "aaaa")))
    return str(found)


def as_it_is(texts: Sequence[str]) -> list[str]:
    return list(texts)


def test_lines_of_the_blamed_node_and_its_captures_are_in_it(store: Store, incident_id: str) -> None:
    contents = contents_of_store(store, incident_id, "live", around=3, minutes=5)
    made = bundle_of(contents, as_it_is)

    assert contents.incident.incident_id == incident_id
    ((lines,),) = store.rows("SELECT count() FROM raw_lines WHERE reporter = 'gpu-102' AND source != 'capture'")
    assert sum(line.node == "gpu-102" for line in contents.lines) == lines
    assert {line.node for line in contents.lines} == {"gpu-101", "gpu-102"}
    assert contents.captures == {"5f0c2ab19d3e4871": f"{HEAD}\n=== about\n"}
    assert made.files["captures/5f0c2ab19d3e4871.txt"] == f"{HEAD}\n=== about\n".encode()
    texts = {line.text for line in contents.lines}
    assert all(step.evidence.text in texts or step.evidence.line_no for step in contents.incident.chain)


def test_lines_around_evidence_are_found_without_times_too(store: Store, incident_id: str) -> None:
    contents = contents_of_store(store, incident_id, "live", around=1, minutes=0)
    wanted = {
        (step.evidence.source, step.evidence.line_no) for step in contents.incident.chain if step.evidence.line_no
    }
    found = {(name, line.line_no) for line in contents.lines for name in (line.source, f"{line.node}/{line.source}")}

    assert wanted <= found
    assert msgspec.to_builtins(contents.incident)["incident_id"] == incident_id


def test_an_unknown_incident_is_said(store: Store) -> None:
    with pytest.raises(NoSuchIncidentError, match="the store has no incident ffff of run live"):
        contents_of_store(store, "ffff", "live", around=1, minutes=1)
