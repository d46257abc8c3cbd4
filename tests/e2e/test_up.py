"""`rootrank up` as a person uses it: start, look, replay, ask, stop; and what it survives."""

import json
import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from playwright.sync_api import sync_playwright

from tests.polling import until

pytestmark = [pytest.mark.kafka, pytest.mark.clickhouse, pytest.mark.slow]

CHROMIUM = ["--no-sandbox", "--disable-gpu", "--disable-background-networking", "--disable-component-update"]


class Up:
    """A running `rootrank up`."""

    def __init__(self, data: Path, jars: Path, *arguments: str) -> None:
        self.data = data
        self._said = data.parent / f"{data.name}.said"
        self._out = self._said.open("wb")
        environment = {k: v for k, v in os.environ.items() if k not in ("KAFKA_BOOTSTRAP", "CLICKHOUSE_URL")}
        command = [sys.executable, "-m", "pipeline", "up", "--data", str(data), "--kafka-jars", str(jars), *arguments]
        self.process = subprocess.Popen(command, stdout=self._out, stderr=subprocess.STDOUT, env=environment)

    def said(self) -> str:
        """Everything it printed so far."""
        return self._said.read_text(encoding="utf-8")

    def wait_ready(self) -> dict[str, str]:
        """The addresses, as environment variables for the other commands."""
        until(lambda: "export KAFKA_BOOTSTRAP" in self.said() or self.process.poll() is not None, timeout_s=90)
        (line,) = [line for line in self.said().splitlines() if line.strip().startswith("export ")]
        return dict(pair.split("=", 1) for pair in line.split()[1:])

    def descendants(self) -> list[int]:
        """Process ids of everything it started."""
        listed = subprocess.run(["ps", "-eo", "pid,args"], capture_output=True, text=True, check=True).stdout
        rows = (line.split(None, 1) for line in listed.splitlines()[1:])
        return [int(pid) for pid, args in rows if str(self.data) in args and int(pid) != self.process.pid]

    def stop(self) -> int:
        """Ctrl-C and the exit code."""
        if self.process.poll() is None:
            self.process.send_signal(signal.SIGINT)
        code = self.process.wait(60)
        self._out.close()
        return code


@pytest.fixture
def up(tmp_path: Path, kafka_jars: Path) -> Iterator[Up]:
    running = Up(tmp_path / "data", kafka_jars)
    yield running
    running.stop()


def rootrank(environment: dict[str, str], *arguments: str) -> subprocess.CompletedProcess[str]:
    """One command of the command line, against the running stack."""
    return subprocess.run(
        [sys.executable, "-m", "pipeline", *arguments], capture_output=True, text=True, check=False,
        env={**os.environ, **environment},
    )  # fmt: skip


@pytest.mark.browser
def test_a_replayed_incident_is_on_the_page_in_sql_and_as_json(up: Up, demo: Path, tmp_path: Path) -> None:
    environment = up.wait_ready()

    played = rootrank(environment, "replay", str(demo), "--as-fast-as-possible")

    assert played.returncode == 0, played.stderr
    listing = until(lambda: _settled(environment), what="a settled incident in the feed")
    culprit = listing["culprits"][0]
    assert (culprit["node"], culprit["pci_bus_id"], culprit["rank"]) == ("gpu-102", "0000:5e:00.0", 5)
    live = rootrank(environment, "incidents")
    assert "--run replay" in live.stderr
    in_sql = until(lambda: _rows(environment, "SELECT class, run FROM incidents"), what="the incident in SQL")
    assert in_sql == [{"class": "hardware/gpu_xid_79", "run": "replay"}]
    assert rootrank(environment, "sql", "DROP TABLE incidents").returncode in (2, 3)
    chain = rootrank(environment, "query", "chain", "--param", f"incident={listing['incident_id']}")
    assert "fallen off the bus" in chain.stdout
    _assert_on_page(environment["ROOTRANK_URL"], tmp_path)


def _rows(environment: dict[str, str], statement: str) -> list[dict[str, object]]:
    answer = rootrank(environment, "sql", statement, "--json")
    rows: list[dict[str, object]] = json.loads(answer.stdout) if answer.returncode == 0 else []
    return rows


def _settled(environment: dict[str, str]) -> dict[str, list[dict[str, object]]]:
    answer = rootrank(environment, "incidents", "--run", "replay", "--json")
    found = json.loads(answer.stdout)["incidents"] if answer.returncode == 0 else []
    settled = [incident for incident in found if incident["verdict"] == "settled"]
    return settled[0] if settled else {}


def _assert_on_page(url: str, folder: Path) -> None:
    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path="/usr/bin/chromium", args=CHROMIUM)
        page = browser.new_page()
        page.goto(url)
        assert page.get_by_role("link", name="replay").first.is_visible()
        page.goto(f"{url}/?run=replay")
        text = page.inner_text("body")
        page.screenshot(path=os.environ.get("ROOTRANK_SCREENSHOTS", str(folder)) + "/up-replay.png")
        browser.close()
    for said in ("GPU fell off the bus", "gpu-102", "rank 5", "Drain"):
        assert said in text


def test_a_second_up_on_the_same_folder_is_refused_by_name(up: Up, kafka_jars: Path) -> None:
    up.wait_ready()

    second = subprocess.run(
        [sys.executable, "-m", "pipeline", "up", "--data", str(up.data), "--kafka-jars", str(kafka_jars)],
        capture_output=True, text=True, check=False,
    )  # fmt: skip

    assert second.returncode == 3
    assert str(up.process.pid) in second.stderr
    assert up.stop() == 0
    until(lambda: not up.descendants(), timeout_s=20, what="nothing left behind")


def test_up_survives_its_own_kill(up: Up, tmp_path: Path, kafka_jars: Path) -> None:
    up.wait_ready()
    up.process.kill()
    up.process.wait()
    until(lambda: not up.descendants(), timeout_s=20, what="no orphans")

    again = Up(up.data, kafka_jars)
    try:
        environment = again.wait_ready()
        assert rootrank(environment, "query", "incidents", "--json").returncode == 0
    finally:
        assert again.stop() == 0


def test_a_missing_java_says_what_to_install(tmp_path: Path, kafka_jars: Path) -> None:
    data = tmp_path / "data"
    command = [sys.executable, "-m", "pipeline", "up", "--data", str(data), "--kafka-jars", str(kafka_jars)]
    without_java = {**os.environ, "PATH": str(tmp_path), "JAVA_HOME": ""}

    answer = subprocess.run(command, capture_output=True, text=True, env=without_java, check=False)

    assert answer.returncode == 3
    assert "JDK" in answer.stderr or "openjdk" in answer.stderr
    assert "Traceback" not in answer.stderr
