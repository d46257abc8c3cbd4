import json
import os
import signal
import socket
import subprocess
import sys
from importlib.metadata import version
from pathlib import Path

import pytest

from schemas import codec
from schemas.records import RawBatch
from schemas.topics import RAW
from shippers.__main__ import main
from tests.shippers.fakes import append, eventually

ROOT = Path(__file__).parents[2]


@pytest.fixture
def config(tmp_path: Path) -> Path:
    append(tmp_path / "rank0.log", "one\ntwo\n")
    path = tmp_path / "node.toml"
    path.write_text(
        f"""
reporter = "n1"
profile = "none"
[kafka]
bootstrap = "127.0.0.1:1"
[spool]
dir = "{tmp_path / "spool"}"
[[source]]
name = "rank0.log"
path = "{tmp_path / "rank0.log"}"
[[source]]
name = "absent\\u001b"
path = "{tmp_path / "absent.log"}"
""",
        encoding="utf-8",
    )
    return path


@pytest.fixture(autouse=True)
def signals_as_they_were() -> object:
    before = {number: signal.getsignal(number) for number in (signal.SIGTERM, signal.SIGINT)}
    yield
    for number, handler in before.items():
        signal.signal(number, handler)


def shipper(*arguments: str | Path) -> subprocess.Popen[bytes]:
    return subprocess.Popen(
        [sys.executable, "-m", "shippers", *map(str, arguments)], cwd=ROOT, stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE, stderr=subprocess.PIPE, env={**os.environ, "PYTHONPATH": str(ROOT)},
    )  # fmt: skip


def test_print_once_writes_raw_batches_and_touches_no_spool(
    config: Path, tmp_path: Path, capfdbinary: pytest.CaptureFixture[bytes]
) -> None:
    assert main(["print", "--once", "--config", str(config)]) == 0
    batches = [codec.decode(RAW.name, line) for line in capfdbinary.readouterr().out.splitlines()]

    assert [isinstance(each, RawBatch) for each in batches] == [True]
    assert [line.body for line in batches[0].records] == ["one", "two"]
    assert not (tmp_path / "spool").exists()


def test_print_can_start_elsewhere(config: Path, capfdbinary: pytest.CaptureFixture[bytes]) -> None:
    assert main(["print", "--once", "--start-at", "end", "--config", str(config)]) == 0
    assert capfdbinary.readouterr().out == b""


def test_print_ends_quietly_when_nobody_reads(config: Path) -> None:
    process = shipper("print", "--config", config)
    assert process.stdout is not None
    process.stdout.read(10)
    process.stdout.close()
    append(config.parent / "rank0.log", "three\n")
    process.stdout = None
    _, errors = process.communicate(timeout=20)

    assert (process.returncode, errors) == (0, b"")


def test_check_says_what_is_wrong_and_that_kafka_is_not_reached(
    config: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["check", "--config", str(config)]) == 3
    text = capsys.readouterr().out

    assert "127.0.0.1:1 does not answer" in text
    assert "absent.log: does not exist" in text
    assert "\x1b" not in text
    assert not (tmp_path / "spool").exists()


def test_a_broker_that_hangs_is_told_from_none(config: Path) -> None:
    with socket.socket() as hanging:
        hanging.bind(("127.0.0.1", 0))
        hanging.listen(8)  # the kernel accepts and nobody answers, as of a process that is stopped
        text = config.read_text(encoding="utf-8")
        config.write_text(text.replace(':1"', f':{hanging.getsockname()[1]}"'), encoding="utf-8")
        out, _ = shipper("check", "--config", config).communicate(timeout=60)

    assert b"something listens there and does not answer as Kafka does" in out
    assert b"nothing listens" not in out


def test_check_as_json_is_one_object(config: Path, capfdbinary: pytest.CaptureFixture[bytes]) -> None:
    assert main(["check", "--json", "--config", str(config)]) == 3
    report = json.loads(capfdbinary.readouterr().out)

    assert ("rank0.log", "on") in [(each["source"], each["state"]) for each in report["sources"]]
    assert report["kafka"]["answers"] is False
    assert report["problems"]


def test_a_mistake_in_the_settings_is_a_usage_error(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = tmp_path / "node.toml"
    path.write_text("clutser = 'x'", encoding="utf-8")

    assert main(["run", "--config", str(path)]) == 2
    assert "unknown key clutser; did you mean cluster?" in capsys.readouterr().err
    assert main(["run", "--config", str(tmp_path / "none.toml")]) == 2


@pytest.mark.parametrize("command", ["run", "check", "print"])
def test_a_package_that_is_not_installed_is_a_sentence_and_exit_3(
    config: Path, command: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    for name in [name for name in sys.modules if name.split(".")[0] == "kafka"]:
        monkeypatch.delitem(sys.modules, name)
    for name in ("shippers.agent", "shippers.check", "shippers.sink", "shippers.delivery", "shippers.beacon"):
        monkeypatch.delitem(sys.modules, name, raising=False)
        monkeypatch.delattr(f"shippers.{name.partition('.')[2]}", raising=False)
    monkeypatch.setitem(sys.modules, "kafka", None)

    assert main([command, "--config", str(config)]) == 3
    assert "pip install '.[shipper]'" in capsys.readouterr().err


def test_it_says_its_version(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as stop:
        main(["--version"])
    assert stop.value.code == 0
    assert capsys.readouterr().out == f"rootrank-shipper {version('rootrank')}\n"


def test_check_says_what_of_the_environment_overrides_the_file(
    config: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("ROOTRANK_SHIPPER__CLUSTER", "elsewhere")
    main(["check", "--config", str(config)])
    said = " ".join(capsys.readouterr().out.split())
    assert f"Settings {config} + ROOTRANK_SHIPPER__CLUSTER; profile" in said


def test_no_command_is_a_usage_error() -> None:
    with pytest.raises(SystemExit) as stop:
        main([])
    assert stop.value.code == 2


def test_a_second_shipper_on_the_spool_is_refused_and_a_signal_stops_the_first_at_once(
    config: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    first = shipper("run", "--config", config)
    eventually(lambda: list((tmp_path / "spool").glob("*.spool")), "the first has the spool")
    refused = main(["run", "--config", str(config)])
    said = capsys.readouterr().err
    first.send_signal(signal.SIGTERM)
    _, errors = first.communicate(timeout=5)

    assert refused == 3
    assert f"process {first.pid} ships from this spool" in said
    assert first.returncode == 0
    begins, *_, ends = errors.decode().splitlines()
    where = f"to Kafka at 127.0.0.1:1; spool {tmp_path / 'spool'}; 2 sources"
    assert begins == f"rootrank-shipper: ships as n1 of cluster default {where}"
    assert "bytes in the spool; the next start sends them" in ends
    assert b"all was sent" not in errors


SECRET_FILES = {
    "ssl_cafile": '[kafka]\nsecurity_protocol = "SSL"\nssl_cafile = "FILE"',
    "sasl_password_file": '[kafka]\nsecurity_protocol = "SASL_PLAINTEXT"\nsasl_mechanism = "PLAIN"\n'
    'sasl_username = "u"\nsasl_password_file = "FILE"',
    "fingerprint_key_file": '[redact]\nfingerprint = true\nfingerprint_key_file = "FILE"',
    "request_keys": '[sources]\ncapture = true\n[capture]\nrequest_keys = ["FILE"]',
    "key_file": '[signing]\nkey_file = "FILE"',
}


@pytest.mark.parametrize("setting", SECRET_FILES)
@pytest.mark.parametrize("kind", ["missing", "folder", "zero"])
def test_validate_refuses_what_is_no_file_of_a_key(
    tmp_path: Path, setting: str, kind: str, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "folder").mkdir()
    (tmp_path / "zero").symlink_to("/dev/zero")
    settings = tmp_path / "node.toml"
    said = SECRET_FILES[setting].replace("FILE", str(tmp_path / kind))
    settings.write_text(f'source = []\nprofile = "none"\n{said}\n[spool]\ndir = "{tmp_path}/spool"\n')
    assert main(["validate", "--config", str(settings)]) == 1
    (line,) = capsys.readouterr().err.splitlines()
    assert setting in line
    assert f"{tmp_path / kind} cannot be read" in line


def test_a_file_in_place_of_the_spool_folder_is_said_with_what_to_do(
    config: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "spool").touch()
    assert main(["run", "--config", str(config)]) == 3
    (line,) = capsys.readouterr().err.splitlines()
    assert line.endswith("spool cannot be made: a file is in its place; give it to the agent's user or name another")
