"""The units are what systemd takes, and the hardened one is tight by systemd's own measure."""

import shutil
import subprocess
from pathlib import Path
from typing import Any

import pytest

from shippers.__main__ import main

FOLDER = Path(__file__).parents[1] / "deploy" / "systemd"
UNITS = sorted(FOLDER.glob("*.service"))
HARDENED = FOLDER / "rootrank-shipper-hardened.service"
INSTALLED = "/usr/bin/rootrank-shipper"


def analyze(*arguments: str | Path) -> subprocess.CompletedProcess[str]:
    found = shutil.which("systemd-analyze")
    assert found, "install systemd (Debian: apt-get install systemd) to check the units"
    return subprocess.run([found, *map(str, arguments)], capture_output=True, text=True, check=False)


@pytest.fixture
def installed(tmp_path: Path) -> list[Path]:
    """The units with a program that is there in place of the installed one, each with its drop-ins."""
    paths = []
    for unit in UNITS:
        path = tmp_path / unit.name
        path.write_text(unit.read_text(encoding="utf-8").replace(INSTALLED, "/bin/true"), encoding="utf-8")
        shutil.copytree(FOLDER / "drop-ins", tmp_path / f"{unit.name}.d")
        paths.append(path)
    return paths


def parsed(unit: Path) -> dict[str, list[str]]:
    """Values by `Section.Key`, in order."""
    found: dict[str, list[str]] = {}
    section = ""
    for line in unit.read_text(encoding="utf-8").splitlines():
        if line.startswith("["):
            section = line.strip("[]")
        elif line and not line.startswith("#"):
            key, _, value = line.partition("=")
            found.setdefault(f"{section}.{key}", []).append(value)
    return found


def test_there_are_a_plain_and_a_hardened_unit() -> None:
    assert [unit.name for unit in UNITS] == ["rootrank-shipper-hardened.service", "rootrank-shipper.service"]


def test_systemd_takes_the_units_with_their_drop_ins_and_warns_of_nothing(installed: list[Path]) -> None:
    answer = analyze("verify", "--man=no", *installed)

    assert (answer.returncode, answer.stderr, answer.stdout) == (0, "", "")


def test_a_mistake_in_a_unit_is_found(installed: list[Path]) -> None:
    text = installed[0].read_text(encoding="utf-8").replace("WatchdogSec=", "WatchdogSecs=")
    installed[0].write_text(text, encoding="utf-8")

    assert "WatchdogSecs" in analyze("verify", "--man=no", *installed).stderr


def exposure(unit: Path) -> float:
    answer = analyze("security", "--offline=true", "--no-pager", unit)
    (line,) = [line for line in answer.stdout.splitlines() if "Overall exposure level" in line]
    return float(line.split(":")[1].split()[0])


def test_the_hardened_unit_exposes_little(installed: list[Path]) -> None:
    hardened, plain = installed

    assert exposure(hardened) <= 2.5
    assert exposure(plain) > 8


@pytest.mark.parametrize("unit", UNITS, ids=lambda unit: unit.stem)
def test_both_are_validated_before_start_watched_and_bounded(unit: Path) -> None:
    said = parsed(unit)

    assert said["Service.Type"] == ["notify"]
    assert said["Service.ExecStartPre"] == [f"{INSTALLED} validate --config /etc/rootrank/shipper.toml"]
    assert said["Service.ExecStart"] == [f"{INSTALLED} run --config /etc/rootrank/shipper.toml"]
    assert int(said["Service.WatchdogSec"][0]) >= 30
    assert said["Service.StateDirectory"] == ["rootrank-shipper"]
    for key in ("CPUQuota", "MemoryMax", "OOMScoreAdjust", "Restart", "LimitNOFILE"):
        assert f"Service.{key}" in said
    assert "Unit.StartLimitBurst" in said
    # Reloading is not supported: a unit without ExecReload refuses `systemctl reload` instead of ending the agent.
    assert "Service.ExecReload" not in said


def test_the_hardened_unit_holds_one_capability_and_never_listens() -> None:
    said = parsed(HARDENED)

    assert said["Service.CapabilityBoundingSet"] == ["CAP_SYSLOG"]
    assert said["Service.NoNewPrivileges"] == ["yes"]
    assert said["Service.ProtectSystem"] == ["strict"]
    assert said["Service.SocketBindDeny"] == ["any"]
    assert "/dev/kmsg r" in said["Service.DeviceAllow"]
    assert "Service.ProtectKernelLogs" not in said
    assert said["Service.SystemCallFilter"] == ["@system-service", "~@privileged"]


def test_the_user_of_the_hardened_unit_is_made_as_sysusers_understands_it(tmp_path: Path) -> None:
    program = shutil.which("systemd-sysusers")
    assert program, "install systemd to check sysusers.d"
    (tmp_path / "etc").mkdir()
    answer = subprocess.run(
        [program, f"--root={tmp_path}", str(FOLDER / "sysusers.conf")], capture_output=True, text=True, check=False
    )
    assert answer.returncode == 0, answer.stderr
    assert "rootrank-shipper:" in (tmp_path / "etc" / "passwd").read_text(encoding="utf-8")
    groups = members_of_groups(tmp_path / "etc" / "group")
    assert [name for name, members in groups.items() if "rootrank-shipper" in members] == ["adm", "systemd-journal"]


def members_of_groups(path: Path) -> dict[str, list[str]]:
    rows = (line.split(":") for line in path.read_text(encoding="utf-8").splitlines())
    return {row[0]: row[3].split(",") for row in sorted(rows)}


def test_tmpfiles_understands_its_file(tmp_path: Path) -> None:
    program = shutil.which("systemd-tmpfiles")
    assert program, "install systemd to check tmpfiles.d"
    (tmp_path / "etc").mkdir()
    answer = subprocess.run(
        [program, "--create", f"--root={tmp_path}", str(FOLDER / "tmpfiles.conf")],
        capture_output=True, text=True, check=False,
    )  # fmt: skip
    assert answer.returncode == 0, answer.stderr
    assert (tmp_path / "etc" / "rootrank").is_dir()


def settings(tmp_path: Path, more: str = "") -> Path:
    path = tmp_path / "shipper.toml"
    path.write_text(f'reporter = "n"\n[spool]\ndir = "{tmp_path / "spool"}"\n{more}', encoding="utf-8")
    return path


@pytest.mark.parametrize(
    ("more", "code", "said"),
    [
        ("", 0, "can start with these settings"),
        ('[kafka]\nbootstrap = "nobody.invalid:9092"\n', 0, "can start with these settings"),
        ("[clocks]\n", 2, "unknown key clocks; did you mean clock?"),
        ('[kafka]\nsecurity_protocol = "SASL_SSL"\nsasl_mechanism = "PLAIN"\nsasl_username = "u"\n'
         'sasl_password_file = "/nonexistent"\n', 1, "sasl_password_file: /nonexistent cannot be read"),
        ('[kafka]\nsecurity_protocol = "SASL_SSL"\nsasl_mechanism = "PLAIN"\n', 2,
         "sasl_username or sasl_password_file is not; set both"),
        ("[sources]\nself_tset = true\n", 2, "did you mean self_test?"),
        ('[signing]\nkey_file = "/nonexistent"\n', 1, "key_file /nonexistent cannot be read"),
    ],
)  # fmt: skip
def test_what_runs_before_the_start_asks_nobody_and_finds_mistakes(
    tmp_path: Path, more: str, code: int, said: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["validate", "--config", str(settings(tmp_path, more))]) == code
    answer: Any = capsys.readouterr()
    assert said in answer.out + answer.err


def test_a_spool_folder_that_is_a_file_is_found_before_the_start(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "spool").touch()

    assert main(["validate", "--config", str(settings(tmp_path))]) == 1
    assert "cannot be written" in capsys.readouterr().err
