"""The ClickHouse engine in its own process, started and watched from here."""

import sys
import time
import urllib.error
import urllib.request
from pathlib import Path

from pipeline.embedded.datadir import private_folder
from pipeline.embedded.errors import PartFailedError
from pipeline.embedded.part import Part
from pipeline.embedded.ports import LOOPBACK, accepts_connections, choose_port, read_last_port
from pipeline.embedded.processes import POLL_S

PORT_TRIES = 3


class ClickHouseServer:
    """One engine process on one folder. A restart of the same object keeps its port, so clients reconnect."""

    def __init__(self, data_dir: Path, port: int | None = None, passwords: Path | None = None) -> None:
        self._dir = data_dir.absolute() / "clickhouse"
        self._asked_port = port
        self._passwords = passwords
        self._port: int | None = None
        self._part = Part(
            name="the ClickHouse engine", pid_file=self._dir / "engine.pid", log_file=self._dir / "engine.log"
        )

    @property
    def pid(self) -> int | None:
        """The engine's process id, or None when it does not run."""
        return self._part.pid

    @property
    def running(self) -> bool:
        """Tell whether the engine's process is alive."""
        return self._part.pid is not None

    @property
    def port(self) -> int:
        """The port it listens on; known once the engine was started."""
        if self._port is None:
            raise PartFailedError("the ClickHouse engine was not started yet, so it has no address")
        return self._port

    @property
    def url(self) -> str:
        """The address clients use, "http://127.0.0.1:PORT"."""
        return f"http://{LOOPBACK}:{self.port}"

    def start(self, timeout_s: float = 60.0) -> str:
        """Start the engine, wait until it answers, and return its URL.

        Raises:
            EmbeddedError: the port is taken, the folder is held, chdb is not installed, or the engine died.

        """
        if self.pid is not None:
            return self.url
        private_folder(self._dir)
        self._part.end_stale()
        for tries_left in reversed(range(PORT_TRIES)):
            try:
                return self._start_once(timeout_s)
            except PartFailedError:
                if not tries_left or self._asked_port or "already in use" not in self._part.log_tail():
                    raise
        raise AssertionError("unreachable: the last try returns or raises")

    def stop(self) -> None:
        """Stop the engine cleanly; the data stay for the next start."""
        self._part.stop()

    def kill(self) -> None:
        """Kill -9 the engine, as a crash would."""
        self._part.kill()

    def _start_once(self, timeout_s: float) -> str:
        last_used = self._port or read_last_port(self._dir / "port")
        self._port = choose_port(name="the ClickHouse engine", asked=self._asked_port, last_used=last_used)
        command = [sys.executable, "-m", "pipeline.embedded.clickhouse", "--data", str(self._dir)]
        command += ["--port", str(self._port)]
        command += ["--passwords", str(self._passwords.absolute())] if self._passwords else []
        self._part.start(command)
        deadline = time.monotonic() + timeout_s
        while time.monotonic() < deadline:
            self._part.require_running()
            if accepts_connections(self._port) and self._answers():
                (self._dir / "port").write_text(str(self._port), encoding="ascii")
                return self.url
            time.sleep(POLL_S)
        raise self._part.give_up(timeout_s)

    def _answers(self) -> bool:
        try:
            with urllib.request.urlopen(f"{self.url}/ping", timeout=5) as response:  # noqa: S310 - a loopback address
                return bool(response.status == 200)
        except (urllib.error.URLError, OSError):
            return False
