"""A line of the journal means what the same line of a syslog file means."""

import contextlib
import itertools
from pathlib import Path

import pytest

from pipeline.core.align import NodeFold
from schemas import signals
from schemas.records import Event, EventBatch, RawLine
from schemas.topics import EVENTS
from shippers.journal_entry import Entry, line_of
from tests.shippers.fakes import Passes
from tests.shippers.journals import BOOT, Journal, read_until, source_of
from tests.strategies import T0, kernel, raw_batch

SIGNALS = signals.load()
SERVICE = {"kind": "service", "node": "gpu01", "job.id": "7001"}
TRACEBACK = """Traceback (most recent call last):
  File "/srv/train/fit.py", line 12, in <module>
    main()
  File "/srv/train/fit.py", line 8, in main
    raise ValueError("no such shard")
ValueError: no such shard"""


def entry(message: str, identifier: str = "slurmd", pid: str = "77", **said: object) -> Entry:
    fields = {
        "cursor": "s=1;i=1;b=2;m=4c4b40;t=1;x=1", "sequence": 1, "generation": "1.2", "realtime_us": T0 // 1000,
        "sent_us": T0 // 1000, "kernel_us": None, "host": "gpu01", "identifier": identifier, "pid": pid,
        "unit": "", "transport": "syslog", "priority": "3", "facility": "0", "message": message.encode(),
        "boot_id": BOOT.replace("-", ""), "machine_id": "", "container": "",
    }  # fmt: skip
    return Entry(**{**fields, **said})  # type: ignore[arg-type]


def events(lines: list[RawLine], attributes: dict[str, str] | None = None) -> list[Event]:
    batch = raw_batch("gpu01", 1, lines, attributes={"journal": attributes or SERVICE})
    outputs = NodeFold(SIGNALS).apply(batch, now_ns=T0)
    return [
        event
        for output in outputs
        if output.topic == EVENTS.name and isinstance(output.record, EventBatch)
        for event in output.record.events
    ]


def told(found: list[Event]) -> list[tuple[object, ...]]:
    return [(e.name, e.body, e.subject, e.printer, e.severity, e.attributes, e.aligned_time_unix_nano) for e in found]


def of_file(messages: list[str], tag: str) -> list[RawLine]:
    return [
        RawLine(
            seq=n,
            source="journal",
            generation="1.2",
            offset=n,
            body=f"2026-03-04T05:06:07.000000+00:00 gpu01 {tag}: {m}",
        )
        for n, m in enumerate(messages)
    ]


@pytest.mark.parametrize(
    ("tag", "messages"),
    [
        ("slurmd[77]", ["error: Job 4242 exceeded memory limit, being killed"]),
        ("systemd[1]", ["train.service: A process of this unit has been killed by the OOM killer."]),
        ("systemd[1]", ["nvidia-fabricmanager.service: Main process exited, code=dumped, status=11/SEGV"]),
        ("nv-fabricmanager[900]", ["detected NVSwitch fatal error 20034 on NVSwitch pci bus id 00000000:85:00.0"]),
        ("containerd[901]", ["time=\"2026-03-04T05:06:07Z\" level=error msg=\"failed to create shim task\""]),
        ("python[123]", TRACEBACK.split("\n")),
        ("unknown-agent[5]", ["NVRM: Xid (PCI:0000:5e:00): 79, GPU has fallen off the bus."]),
    ],
)  # fmt: skip
def test_a_line_of_a_service_means_what_it_means_in_a_file(tag: str, messages: list[str]) -> None:
    identifier, _, pid = tag.rstrip("]").partition("[")
    lines = [
        line_of(entry(message, identifier, pid, sequence=number), "journal", T0, 10_000, BOOT)
        for number, message in enumerate(messages)
    ]

    assert [line.body for line in lines] == [line.body for line in of_file(messages, tag)]
    assert told(events(lines)) == told(events(of_file(messages, tag)))


def test_a_traceback_in_one_message_is_the_exception_with_its_place() -> None:
    whole = events([line_of(entry(TRACEBACK, "python", "123"), "journal", T0, 10_000, BOOT)])
    apart = events(of_file(TRACEBACK.split("\n"), "python[123]"))

    assert [(e.name, e.body, e.attributes, e.subject) for e in whole] == [
        (e.name, e.body, e.attributes, e.subject) for e in apart
    ]
    assert whole[-1].attributes["line"] == "8"


def test_a_kernel_entry_is_the_record_of_the_ring(tmp_path: Path) -> None:
    xid = "NVRM: Xid (PCI:0000:5e:00): 79, GPU has fallen off the bus."
    journal = Journal(tmp_path / "journal")
    journal.write(xid, _TRANSPORT="kernel", SYSLOG_IDENTIFIER="kernel", _SOURCE_MONOTONIC_TIMESTAMP="4711000")
    with contextlib.closing(source_of(journal, of="kernel")) as source:
        (line,) = read_until(source, Passes(), 1).lines
    ring = RawLine(seq=0, source="journal", generation="b", offset=9, body=xid, kernel_time_ns=4_711_000_000)

    (found,), (wanted,) = events([line], kernel("gpu01")), events([ring], kernel("gpu01"))
    assert (found.name, found.subject, found.attributes) == (wanted.name, wanted.subject, wanted.attributes)
    assert found.kernel == wanted.kernel


def test_each_line_of_the_lines_under_test_means_the_same_from_the_journal() -> None:
    examples = list(itertools.islice((e.line for s in SIGNALS.signals for e in s.matches if s.label), 600))
    different = []
    for example in examples:
        if "\n" in example or example != example.strip():
            continue
        mine = events([line_of(entry(example), "journal", T0, 10_000, BOOT)])
        theirs = events(of_file([example], "slurmd[77]"))
        if [e.name for e in mine] != [e.name for e in theirs]:
            different.append(example)

    assert different == []
