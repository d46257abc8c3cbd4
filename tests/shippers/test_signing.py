"""The agent signs what it ships, the same to the byte however often; its key is made and looked after."""

import json
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import msgspec
import pytest

from pipeline.core.trust import Judged
from pipeline.trust.judge import Judge, TrustSettings
from schemas.codec import decode
from schemas.signing import detach
from schemas.topics import RAW
from shippers.clickhouse import ClickHouse
from shippers.clock import make_clock
from shippers.config import (
    BatchSettings,
    ClockSettings,
    Config,
    ConfigError,
    KafkaSettings,
    SigningSettings,
    SourceSettings,
    SpoolSettings,
)
from shippers.reader import Batch, Reader
from shippers.self_test import SelfTestRun
from shippers.signing import load_signer, make_key
from shippers.spool import Spool
from tests.shippers.fakes import FakeSink, append, eventually
from tests.shippers.test_agent import running
from tests.shippers.test_kill import ENVIRONMENT

Run = Callable[..., "subprocess.CompletedProcess[str]"]


@pytest.fixture
def shipper() -> Run:
    def run(*arguments: str | Path) -> "subprocess.CompletedProcess[str]":
        return subprocess.run(
            [sys.executable, "-m", "shippers", *map(str, arguments)],
            env=ENVIRONMENT, capture_output=True, text=True, timeout=60, check=False,
        )  # fmt: skip

    return run


@pytest.fixture
def key(tmp_path: Path, shipper: Run) -> dict[str, Any]:
    done = shipper("keygen", "--out", tmp_path / "keys", "--cluster", "c", "--reporter", "n1", "--json")
    assert done.returncode == 0, done.stderr
    told: dict[str, Any] = json.loads(done.stdout)
    return told


@pytest.fixture
def config(tmp_path: Path, key: dict[str, Any]) -> Config:
    return Config(
        cluster="c", reporter="n1", run_id="live", start_at="beginning", profile="none",
        batch=BatchSettings(linger_ms=5), spool=SpoolSettings(dir=str(tmp_path / "spool"), max_bytes=64 * 2**20),
        clock=ClockSettings(beacon=False), signing=SigningSettings(key_file=key["key_file"]),
        source=(SourceSettings(name="rank0.log", path=str(tmp_path / "rank0.log")),),
    )  # fmt: skip


@pytest.fixture
def judge(tmp_path: Path, key: dict[str, Any]) -> Judge:
    table = "".join(f"{name} = {json.dumps(value)}\n" for name, value in key.items() if name != "key_file")
    (tmp_path / "keys.toml").write_text(f"[[key]]\n{table}", encoding="utf-8")
    return Judge(TrustSettings(policy="require", keys=tmp_path / "keys.toml"))


def doubts(judge: Judge, sink: FakeSink) -> set[str]:
    found = [judge.examine(decode(RAW.name, value), value, 10**18) for value in sink.values]
    return {each.doubt for each in found if isinstance(each, Judged)}


def test_all_that_an_agent_ships_is_proven_by_the_key_that_keygen_told_of(
    config: Config, judge: Judge, tmp_path: Path
) -> None:
    sink = FakeSink()
    append(tmp_path / "rank0.log", "one\ntwo\n")
    with running(config, sink):
        eventually(lambda: sink.bodies() == ["one", "two"] and sink.progress(), "two lines and progress")
    assert doubts(judge, sink) == {""}


def test_what_is_sent_again_is_the_same_to_the_byte(config: Config, tmp_path: Path) -> None:
    first, second = FakeSink(), FakeSink()
    first.is_away = True
    append(tmp_path / "rank0.log", "one\n")
    with running(config, first) as run:
        eventually(lambda: run.agent._spool.backlog_bytes, "a batch in the spool")
    (spooled,) = (tmp_path / "spool").glob("*.spool")
    kept = spooled.read_bytes()
    with running(config, second):
        eventually(lambda: second.bodies() == ["one"], "the line")
    assert second.values[0] in kept


def test_a_key_is_for_its_owner_alone_and_none_is_written_over(tmp_path: Path, shipper: Run) -> None:
    done = shipper("keygen", "--out", tmp_path / "keys", "--key-id", "n1-2026")
    path = tmp_path / "keys" / "n1-2026.key"
    assert done.returncode == 0
    assert path.stat().st_mode & 0o777 == 0o600
    secret = "".join(path.read_text(encoding="ascii").splitlines()[1:-1])
    assert secret not in done.stdout
    assert "key id:      n1-2026" in done.stdout
    assert "[[key]]" in done.stdout

    again = shipper("keygen", "--out", tmp_path / "keys", "--key-id", "n1-2026")
    assert again.returncode == 2
    assert "is there already and is kept" in again.stderr
    assert shipper("keygen", "--out", tmp_path / "keys", "--key-id", "../up").returncode == 2


@pytest.mark.parametrize(
    ("content", "says"),
    [(None, "cannot be read (No such file or directory)"), ("no key", "is no private Ed25519 key in PEM")],
)
def test_a_key_that_cannot_be_used_is_said_with_what_to_do_and_without_what_it_holds(
    tmp_path: Path, content: str | None, says: str
) -> None:
    path = tmp_path / "node.key"
    if content is not None:
        path.write_text(content, encoding="utf-8")
    with pytest.raises(ConfigError) as caught:
        load_signer(SigningSettings(key_file=str(path)))
    assert says in str(caught.value)
    assert "rootrank-shipper keygen" in str(caught.value)
    assert "no key" not in str(caught.value)


def test_check_warns_of_a_key_that_everybody_can_read(config: Config, key: dict[str, Any]) -> None:
    from shippers.check import inspect
    from shippers.problems import Problem

    assert not [each for each in inspect(config).problems if "key_file" in each.what]
    Path(key["key_file"]).chmod(0o644)
    what = f"[signing] key_file {key['key_file']} can be read by every user of this machine"
    assert Problem(what=what, do="chmod 600 it") in inspect(config).problems


def test_without_a_key_nothing_is_signed(config: Config) -> None:
    unsigned = msgspec.structs.replace(config, signing=SigningSettings())
    assert load_signer(unsigned.signing) is None
    record = decode(RAW.name, Reader(unsigned, make_clock(unsigned), {}).encode(Batch(), "s", 1))
    assert (record.key_id, record.signature) == (None, None)


def test_the_self_test_signs_its_line_as_the_agent_does(tmp_path: Path) -> None:
    key_file, key_id, _ = make_key(tmp_path / "keys")
    config = Config(
        cluster="c", reporter="n", profile="none", kafka=KafkaSettings(bootstrap="127.0.0.1:1"),
        spool=SpoolSettings(dir=str(tmp_path / "spool")), signing=SigningSettings(key_file=str(key_file)),
    )  # fmt: skip
    store = ClickHouse(scheme="http", host="127.0.0.1", port=1, database="d", user="u", password="")
    SelfTestRun(config, store, 0.1).run()
    spool = Spool(tmp_path / "spool", config.spool.max_bytes)
    entry = spool.take(0)
    spool.close()

    assert entry is not None
    assert detach(entry.payload) is not None
    assert decode(RAW.name, entry.payload).key_id == key_id
