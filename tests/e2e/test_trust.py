"""A fleet behind TLS and SCRAM that must sign: what is forged, sent again or out of date counts only if released."""

import json
import subprocess
import sys
import time
import uuid
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from pipeline.embedded.clickhouse import ClickHouseServer
from pipeline.embedded.ports import free_port
from pipeline.store import migrations
from pipeline.store.clickhouse import Store
from pipeline.store.settings import settings_from_url
from pipeline.web.client import FeedClient
from schemas.topics import RAW
from tests.e2e.fleet import Fleet, Process
from tests.polling import until
from tests.secured_kafka import PASSWORD, USER, SecuredKafka
from tests.trust.signed import TestKey, batch, clock, write_keys

pytestmark = [pytest.mark.kafka, pytest.mark.clickhouse, pytest.mark.slow, pytest.mark.timeout(420)]

XID = "NVRM: Xid (PCI:0000:3b:00): 79, pid=1, name=python, GPU has fallen off the bus."
# The broker is shared with other tests of this process, whose agents do not sign.
OURS = "WHERE reporter IN ('n1', 'n3', 'n4')"
N1, N2 = TestKey("of-n1", "n1"), TestKey("of-n2", "n2")
N4 = TestKey("of-n4", "n4", {"valid_until": "2026-01-01T00:00:00Z"})
OPERATOR = TestKey("ops", "")


class TrustedFleet(Fleet):
    """Services that log in and require signatures; the test itself looks at the topics past the lock."""

    def __init__(self, folder: Path, broker: SecuredKafka, url: str) -> None:
        super().__init__(folder, broker.address("INTERNAL"), url, group=f"trust-{uuid.uuid4().hex[:6]}")
        self.door = broker.address("LOGIN")
        self.port = free_port()
        self.processes: list[Process] = []

    def start(self, *arguments: str) -> None:
        self.processes.append(Process(self._log(arguments[0]), *arguments, "--kafka", self.door))

    def stop(self) -> None:
        for process in self.processes:
            process.stop()

    def feed(self) -> list[str]:
        """Nodes that stand accused on the page."""
        client = FeedClient(url=f"http://127.0.0.1:{self.port}")
        return sorted(str(culprit.node) for each in client.listing({}).incidents for culprit in each.culprits)


@pytest.fixture
def secrets(tmp_path: Path, secured_kafka: SecuredKafka, monkeypatch: pytest.MonkeyPatch) -> dict[str, str]:
    password = tmp_path / "password"
    password.touch(mode=0o600)
    password.write_text(PASSWORD + "\n", encoding="utf-8")
    said = {
        "security_protocol": "SASL_SSL", "ssl_cafile": secured_kafka.ca, "sasl_mechanism": "SCRAM-SHA-512",
        "sasl_username": USER, "sasl_password_file": str(password),
    }  # fmt: skip
    for name, value in said.items():
        monkeypatch.setenv(f"KAFKA_{name.upper()}", value)
    return said


@pytest.fixture
def keys(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    folder = tmp_path / "keys"
    folder.mkdir()
    write_keys(folder / "fleet.toml", N1, N2, N4, OPERATOR)
    monkeypatch.setenv("ROOTRANK_TRUST", "require")
    monkeypatch.setenv("ROOTRANK_TRUST_KEYS", str(folder))
    return folder


@pytest.fixture
def trusted(
    tmp_path: Path,
    secured_kafka: SecuredKafka,
    mortal_clickhouse: ClickHouseServer,
    secrets: dict[str, str],
    keys: Path,
) -> Iterator[TrustedFleet]:
    url = f"{mortal_clickhouse.url}/trust_{uuid.uuid4().hex[:6]}"
    store = Store(settings_from_url(url))
    migrations.apply(store, migrations.load_migrations())
    store.close()
    fleet = TrustedFleet(tmp_path, secured_kafka, url)
    fleet.start("worker", "--group", fleet.group)
    fleet.start("store", "--clickhouse-url", url)
    fleet.start("web", "--port", str(fleet.port))
    yield fleet
    fleet.stop()


def ship(folder: Path, door: str, secrets: dict[str, str], keys: Path) -> None:
    """The real agent of n3, with a key of its own, ships a kernel log and leaves."""
    run = [sys.executable, "-m", "shippers"]
    made = subprocess.run(
        [*run, "keygen", "--out", str(folder), "--cluster", "c", "--reporter", "n3", "--json"],
        capture_output=True, text=True, check=True, timeout=60,
    )  # fmt: skip
    key = json.loads(made.stdout)
    table = "".join(f"{name} = {json.dumps(value)}\n" for name, value in key.items() if name != "key_file")
    (keys / "n3.toml").write_text(f"[[key]]\n{table}", encoding="utf-8")
    (folder / "kernel.log").write_text(f"3,1,{time.monotonic_ns() // 1000},-;{XID}\n", encoding="utf-8")
    (folder / "end").touch()
    kafka = "\n".join(f'{name} = "{value}"' for name, value in secrets.items())
    (folder / "node.toml").write_text(
        f'cluster = "c"\nreporter = "n3"\nstart_at = "beginning"\nend_file = "{folder / "end"}"\nprofile = "none"\n'
        f'[kafka]\nbootstrap = "{door}"\n{kafka}\n[spool]\ndir = "{folder / "spool"}"\n[clock]\nbeacon = false\n'
        f'[signing]\nkey_file = "{key["key_file"]}"\n'
        f'[[source]]\nname = "kmsg"\nkind = "kernel"\ntype = "kmsg"\npath = "{folder / "kernel.log"}"\n',
        encoding="utf-8",
    )
    subprocess.run([*run, "run", "--config", str(folder / "node.toml")], check=True, timeout=60)


def release(reporter: str, operator: Path) -> dict[str, Any]:
    done = subprocess.run(
        [
            sys.executable, "-m", "pipeline", "release", "--reporter", reporter, "--cluster", "c", "--json",
            "--from", "2026-01-01T00:00:00Z", "--why", "looked at the machine", "--who", "ana",
            "--key-file", str(operator), "--key-id", "ops",
        ],
        capture_output=True, text=True, check=False, timeout=120,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    told: dict[str, Any] = json.loads(done.stdout)
    return told


def test_what_is_forged_replayed_or_out_of_date_is_in_no_verdict_until_it_is_released(
    trusted: TrustedFleet, secrets: dict[str, str], keys: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    now = clock(wall_ns=time.time_ns())
    node = tmp_path / "n3"
    node.mkdir()
    ship(node, trusted.door, secrets, keys)
    trusted.send(RAW.name, b"c/n1", N1.sign(batch("fine", reporter="n1", clock=now)))
    until(lambda: trusted.sql("SELECT 1 FROM events WHERE node = 'n3'"), what="the event of n3")
    until(lambda: trusted.feed() == ["n3"], what="the incident of n3")

    forged = N2.sign(batch(XID, seq=2, reporter="n1", clock=now))
    trusted.send(RAW.name, b"c/n1", forged)
    trusted.send(RAW.name, b"c/n4", N4.sign(batch(XID, reporter="n4", clock=now)))
    (sent,) = [each for each in trusted.values(RAW.name) if b'"reporter":"n3"' in each and b'"records"' in each]
    trusted.send(RAW.name, b"c/n3", sent)

    kept = until(
        lambda: (
            (rows := trusted.sql(f"SELECT reporter, verified, Body FROM unverified {OURS} ORDER BY reporter"))[1:]
            and rows
        ),
        what="both batches among the unverified",
    )
    assert kept == [
        ("n1", "no: signed with key 'of-n2', which is of another reporter", XID),
        ("n4", "no: key of-n4 has expired on 2026-01-01 00:00:00 UTC", XID),
    ]
    gaps = f"SELECT reporter, reason, lost_lines FROM gaps {OURS} AND source = 'trust' ORDER BY reporter"
    until(lambda: len(trusted.sql(gaps)) == 2, what="the gaps that tell of it")
    assert trusted.sql(gaps) == [
        ("n1", "lines of n1 are left out: signed with key 'of-n2', which is of another reporter", 1),
        ("n3", "lines of n3 are left out: batches came again that were taken before; they are not counted twice", None),
    ]
    assert trusted.sql(f"SELECT reporter, count() FROM events {OURS} GROUP BY reporter") == [("n3", 1)]
    assert trusted.sql("SELECT DISTINCT reporter FROM raw_lines WHERE Body = '" + XID + "'") == [("n3",)]
    assert trusted.feed() == ["n3"]

    operator = OPERATOR.write(tmp_path / "ops.key")
    monkeypatch.setenv("KAFKA_BOOTSTRAP", trusted.door)
    assert release("n1", operator) | {"reasons": {}} == {"released": True, "batches": 1, "lines": 1, "reasons": {}}
    assert release("n4", operator)["lines"] == 1
    until(lambda: trusted.feed() == ["n1", "n3", "n4"], what="the incidents of all three")
    assert release("n1", operator)["lines"] == 0
    until(
        lambda: (
            trusted.sql(f"SELECT DISTINCT released_by, released_why FROM unverified {OURS}")
            == [("ana", "looked at the machine")]
        ),
        what="who released it",
    )
    assert trusted.sql(
        "SELECT reporter, ResourceAttributes['released.by'] AS who FROM raw_lines WHERE who != '' ORDER BY reporter"
    ) == [("n1", "ana"), ("n4", "ana")]
