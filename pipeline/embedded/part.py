"""A part that runs as its own process: started, watched, stopped, and recognised after a crash of ours."""

import os
import subprocess
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path

from pipeline.embedded.children import STOP_GRACE_S, start_child, stop_child
from pipeline.embedded.errors import FolderHeldError, PartFailedError
from pipeline.embedded.processes import (
    PidRecord,
    command_line,
    end_process,
    identify,
    is_running,
    read_pid_file,
    write_pid_file,
)

LOG_TAIL_BYTES = 4000


@dataclass(kw_only=True)
class Part:
    """One process of the embedded stack. Start it from a thread that lives as long as the process shall."""

    name: str
    pid_file: Path
    log_file: Path
    stop_grace_s: float = STOP_GRACE_S
    _process: subprocess.Popen[bytes] | None = field(default=None, init=False)

    @property
    def pid(self) -> int | None:
        """The id of the process, or None when it does not run."""
        return self._process.pid if self._process is not None and self._process.poll() is None else None

    def end_stale(self) -> None:
        """End the process an earlier, dead owner left behind; refuse when that owner is alive.

        Raises:
            FolderHeldError: another living process runs this part on the same folder.

        """
        record = read_pid_file(self.pid_file)
        if record is None or not is_running(record.part):
            return
        if is_running(record.owner):
            raise FolderHeldError(
                f"{self.name} of {self.pid_file.parent} is run by process {record.owner.pid} "
                f"({command_line(record.owner.pid)}); stop that one first or choose another data folder"
            )
        end_process(record.part, grace_s=self.stop_grace_s)

    def start(self, command: list[str], *, env: Mapping[str, str] | None = None) -> None:
        """Start the command, its output in the log file, tied to this process so that it cannot outlive it."""
        self.end_stale()
        self._process = start_child(command, self.log_file, env=env)
        part, owner = identify(self._process.pid), identify(os.getpid())
        if part is not None and owner is not None:
            write_pid_file(self.pid_file, PidRecord(part=part, owner=owner))

    def stop(self) -> None:
        """End the process: SIGTERM, then SIGKILL after the grace time. Not running is fine."""
        if self._process is None:
            return
        stop_child(self._process, grace_s=self.stop_grace_s)
        self._forget()

    def kill(self) -> None:
        """Kill -9 the process and leave everything else as a crash would (the pid file stays)."""
        if self._process is not None:
            self._process.kill()
            self._process.wait()
            self._process = None

    def _forget(self) -> None:
        self._process = None
        self.pid_file.unlink(missing_ok=True)

    def log_tail(self) -> str:
        """The last lines of the log, for an error message."""
        try:
            with self.log_file.open("rb") as log:
                log.seek(max(0, log.seek(0, os.SEEK_END) - LOG_TAIL_BYTES))
                return log.read().decode("utf-8", errors="replace").strip()
        except OSError:
            return "(no log)"

    def require_running(self) -> None:
        """Raise PartFailedError with the end of the log when the process is gone."""
        if self._process is None:
            raise PartFailedError(f"{self.name} was not started")
        status = self._process.poll()
        if status is not None:
            self._forget()
            raise PartFailedError(
                f"{self.name} ended with status {status}; the end of {self.log_file}:\n{self.log_tail()}"
            )

    def give_up(self, timeout_s: float) -> PartFailedError:
        """Stop a process that did not get ready, and return the error to raise."""
        tail = self.log_tail()
        self.stop()
        return PartFailedError(
            f"{self.name} did not answer within {timeout_s:.0f} s; the end of {self.log_file}:\n{tail}"
        )
