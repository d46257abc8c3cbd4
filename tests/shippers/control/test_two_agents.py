"""Two agents of one cluster, one of them killed: every event is told under one name, and once where names count."""

import signal
import subprocess
import sys
from collections import Counter
from pathlib import Path

import orjson
import pytest

from schemas import codec
from schemas.records import Progress, RawBatch
from schemas.topics import RAW
from tests.shippers.control.api_server import FakeApi, serving
from tests.shippers.control.shapes import EVENTS, event
from tests.shippers.fakes import eventually

SETTINGS = """
cluster = "pool"
reporter = "control"
start_at = "beginning"
[spool]
dir = "{folder}/spool-{name}"
[batch]
linger_ms = 10
[control]
identity = "{name}"
seat_s = 3.0
renew_s = 0.5
{seat}
[control.kubernetes]
kubeconfig = "{folder}/kubeconfig"
watch = ["events"]
"""
KUBECONFIG = {
    "current-context": "c",
    "contexts": [{"name": "c", "context": {"cluster": "c", "user": "u", "namespace": "monitoring"}}],
    "users": [{"name": "u", "user": {"token": "t"}}],
}  # fmt: skip


def begin(folder: Path, name: str, seat: str) -> "subprocess.Popen[bytes]":
    (folder / f"{name}.toml").write_text(SETTINGS.format(folder=folder, name=name, seat=seat))
    return subprocess.Popen(
        [
            sys.executable,
            "-m",
            "tests.shippers.agent_process",
            str(folder / f"{name}.toml"),
            str(folder / f"{name}.out"),
        ],
        stderr=subprocess.DEVNULL,
    )


def records(folder: Path, name: str) -> list[RawBatch | Progress]:
    path = folder / f"{name}.out"
    lines = path.read_bytes().split(b"\n")[:-1] if path.exists() else []
    return [codec.decode(RAW.name, line) for line in lines if line]


def named(folder: Path, name: str) -> list[tuple[str, str, int, str]]:
    """Lines by what their event ids are made of, beside cluster and reporter."""
    return [
        (line.source, line.generation, line.offset, line.body)
        for record in records(folder, name)
        if isinstance(record, RawBatch)
        for line in record.records
    ]


def published(fake: FakeApi, folder: Path) -> str:
    """What the seat says of positions."""
    path = folder / "seat"
    return path.read_text() if path.exists() else orjson.dumps(list(fake.leases.values())).decode()


@pytest.mark.parametrize("seat", ["", 'seat = "file"\nseat_file = "{folder}/seat"'])
def test_the_stand_by_goes_on_where_the_killed_one_stopped_and_names_nothing_twice(tmp_path: Path, seat: str) -> None:
    with serving(FakeApi()) as fake:
        server = {"name": "c", "cluster": {"server": f"http://127.0.0.1:{fake.port}"}}
        (tmp_path / "kubeconfig").write_bytes(orjson.dumps({**KUBECONFIG, "clusters": [server]}))
        for number in range(20):
            fake.put(EVENTS, event(f"before-{number}", "Evicted", f"low on memory {number}"))
        first = begin(tmp_path, "one", seat.format(folder=tmp_path))
        second = None
        try:
            assert eventually(lambda: len(named(tmp_path, "one")) == 20, "what was there")
            assert eventually(lambda: "version\\" in published(fake, tmp_path), "how far Kafka has it")
            second = begin(tmp_path, "two", seat.format(folder=tmp_path))
            for number in range(20):
                fake.put(EVENTS, event(f"during-{number}", "Evicted", f"low on disk {number}"))
            assert eventually(lambda: len(named(tmp_path, "one")) == 40, "what came then")
            assert named(tmp_path, "two") == []
            assert records(tmp_path, "two") == [], "a stand-by says nothing in the name of both"
            first.send_signal(signal.SIGKILL)
            first.wait(10)
            for number in range(20):
                fake.put(EVENTS, event(f"after-{number}", "Evicted", f"low on pids {number}"))
            every = {f"{when}-{number}" for when in ("before", "during", "after") for number in range(20)}
            assert eventually(
                lambda: {line[1] for line in named(tmp_path, "one") + named(tmp_path, "two")} == every,
                "all of it",
                15.0,
            )
        finally:
            for process in (first, second):
                if process is not None:
                    process.terminate()
                    process.wait(10)
        one, two = named(tmp_path, "one"), named(tmp_path, "two")
        assert len(set(one + two)) == 60, "a line has one name, whoever tells it"
        assert max(Counter(one).values()) == max(Counter(two).values()) == 1
        again = set(one) & set(two)
        assert len(again) <= 20, "only what was not yet safe in the seat's record is told again"
        assert not again & {line for line in one if line[1].startswith("before")}
