"""Plays a folder of logs as a fleet: one real shipper process per node, through Kafka, marked `run = replay`.

The player releases lines into work files as time passes (or all at once); a shipper tails them like any log. When all
is released an end file tells each shipper to read to the end, say so in its last progress record, and leave.
"""

import io
import os
import shutil
import signal
import subprocess
import sys
import time
import uuid
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager
from pathlib import Path
from typing import IO, Final, Literal

import msgspec
from msgspec import Struct

from pipeline.core import times
from pipeline.core.parse import kmsg_header, parse_line
from pipeline.core.stated import stated
from pipeline.flight_files import dump_lines
from pipeline.folder import FolderPlan, NodePlan, SourcePlan
from pipeline.kafka_access import access, shipper_settings
from pipeline.logfiles import lines, open_log
from pipeline.reader import empty_batch
from schemas.lines import body_of
from schemas.records import RawBatch

RESTARTS: Final = 5
TICK_S: Final = 0.05
STOP_S: Final = 10.0


class ReplayError(RuntimeError):
    """A replay that cannot go on; the text says which shipper and why."""


class Status(Struct, kw_only=True):
    """How far a replay is."""

    bytes_total: int
    bytes_released: int = 0
    shippers: int = 0
    shippers_done: int = 0


class Settings(Struct, frozen=True, kw_only=True):
    """How to play. `speed` is recorded seconds per second; None releases everything at once."""

    bootstrap: str
    work_dir: Path
    run_id: str
    speed: float | None = None
    run: Literal["replay", "drill"] = "replay"


def is_run_id(text: str) -> bool:
    """Whether a name may stand in keys and folders: letters, digits, `.`, `_` and `-`, and no dot first."""
    return text.replace(".", "").replace("_", "").replace("-", "").isalnum() and text.isascii() and text[0] != "."


def new_run_id() -> str:
    """A name for one replay."""
    return f"replay-{uuid.uuid4().hex[:8]}"


class Replay:
    """One replay of one folder."""

    def __init__(self, folder: FolderPlan, settings: Settings) -> None:
        self._folder = folder
        self._settings = settings
        self.shippers = [Shipper(folder.cluster, node, settings, number) for number, node in enumerate(folder.nodes)]
        total = sum(source.path.stat().st_size for node in folder.nodes for source in node.sources)
        self.status = Status(bytes_total=total, shippers=len(self.shippers))

    def run(self, progress: Callable[[Status], None] = lambda status: None) -> None:
        """Play to the end. Raises ReplayError; stops its shippers on every way out."""
        try:
            for shipper in self.shippers:
                shipper.start()
            self._release(progress)
            for shipper in self.shippers:
                shipper.end()
            self._wait(progress)
        finally:
            for shipper in self.shippers:
                shipper.stop()
        shutil.rmtree(self._settings.work_dir / self._settings.run_id, ignore_errors=True)

    def _release(self, progress: Callable[[Status], None]) -> None:
        if self._settings.speed is None:
            for shipper in self.shippers:
                for player in shipper.players():
                    player.release_all()
                    self.status.bytes_released += player.size
                    progress(self.status)
            return
        self._release_in_time(self._settings.speed, progress)

    def _release_in_time(self, speed: float, progress: Callable[[Status], None]) -> None:
        players = [player for shipper in self.shippers for player in shipper.players()]
        starts = [when for player in players if (when := player.first_ns()) is not None]
        start_ns, began_s = min(starts, default=0), time.monotonic()
        while any(not player.done for player in players):
            now_ns = start_ns + round((time.monotonic() - began_s) * speed * 1e9)
            for player in players:
                self.status.bytes_released += player.release(now_ns)
            for shipper in self.shippers:
                shipper.keep_alive()
            progress(self.status)
            time.sleep(TICK_S)

    def _wait(self, progress: Callable[[Status], None]) -> None:
        while True:
            for shipper in self.shippers:
                shipper.keep_alive()
            self.status.shippers_done = sum(shipper.done for shipper in self.shippers)
            progress(self.status)
            if self.status.shippers_done == len(self.shippers):
                return
            time.sleep(TICK_S)


class Shipper:
    """The shipper process of one node, started again where it dies."""

    def __init__(self, cluster: str, node: NodePlan, settings: Settings, number: int) -> None:
        self._cluster = cluster
        self._node = node
        self._settings = settings
        # A number: node names come from files and may be anything.
        self.folder = settings.work_dir / settings.run_id / f"node-{number}"
        self._process: subprocess.Popen[bytes] | None = None
        self._restarts = 0
        self.done = False

    @property
    def pid(self) -> int | None:
        """The process id, None where it does not run."""
        return self._process.pid if self._process and self._process.poll() is None else None

    def players(self) -> list["Player"]:
        """One player per source."""
        return [Player(source, self.folder / "files" / source.name, self._node) for source in self._node.sources]

    def start(self) -> None:
        """Write the settings and start the process."""
        for source in self._node.sources:
            file = self.folder / "files" / source.name
            file.parent.mkdir(parents=True, exist_ok=True)
            file.touch()
        (self.folder / "node.toml").write_text(self._toml(), encoding="utf-8")
        self._spawn()

    def _spawn(self) -> None:
        command = [sys.executable, "-m", "shippers", "run", "--config", str(self.folder / "node.toml")]
        log = (self.folder / "shipper.log").open("ab")
        with log:
            self._process = subprocess.Popen(command, stdin=subprocess.DEVNULL, stdout=log, stderr=log)

    def keep_alive(self) -> None:
        """Start again a process that was killed; give up on one that says it cannot work."""
        if self.done or self._process is None:
            return
        code = self._process.poll()
        if code is None:
            return
        if code == 0:
            self.done = True
        elif code < 0 and self._restarts < RESTARTS:
            self._restarts += 1
            self._spawn()
        else:
            text = (self.folder / "shipper.log").read_text(encoding="utf-8", errors="replace").strip()
            raise ReplayError(f"the shipper of {self._node.reporter} ended with {code}: {text[-500:]}")

    def end(self) -> None:
        """Tell the process that nothing more will come."""
        (self.folder / "end").touch()

    def stop(self) -> None:
        """End the process if it still runs."""
        if self._process is None or self._process.poll() is not None:
            return
        self._process.send_signal(signal.SIGTERM)
        try:
            self._process.wait(STOP_S)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait()

    def _toml(self) -> str:
        """The node agent's settings; strings are JSON strings, which TOML reads as they are."""
        node, quote = self._node, _quoted
        text = [
            f"cluster = {quote(self._cluster)}", f"reporter = {quote(node.reporter)}",
            f"run = {quote(self._settings.run)}",
            f"run_id = {quote(self._settings.run_id)}", 'start_at = "beginning"',
            f"end_file = {quote(str(self.folder / 'end'))}",
        ]  # fmt: skip
        if node.machine_id:
            text.append(f"machine_id = {quote(node.machine_id)}")
        text += ["[kafka]", f"bootstrap = {quote(self._settings.bootstrap)}"]
        text += [f"{name} = {quote(value)}" for name, value in shipper_settings(access()).items()]
        text += ["[spool]", f"dir = {quote(str(self.folder / 'spool'))}"]
        text += ["[clock]", "beacon = false", f"boot_id = {quote(node.boot_id)}"]
        if node.clock_record is not None:
            text.append(f"record = {quote(str(node.clock_record.absolute()))}")
        text += ["[clock.static]", *(f"{k} = {v}" for k, v in msgspec.structs.asdict(node.clock).items())]
        if node.claim is not None:
            text += ["[clock.claim]", *(f"{k} = {quote(v)}" for k, v in msgspec.structs.asdict(node.claim).items())]
        for source in node.sources:
            text += ["[[source]]", *self._source(source)]
        return "\n".join(text) + "\n"

    def _source(self, source: SourcePlan) -> Iterator[str]:
        yield f"name = {_quoted(source.name)}"
        yield f"kind = {_quoted(source.kind)}"
        yield f"type = {_quoted('kmsg' if source.kmsg else 'file')}"
        yield f"path = {_quoted(str(self.folder / 'files' / source.name))}"
        attributes = ", ".join(f"{_quoted(k)} = {_quoted(v)}" for k, v in source.attributes.items())
        yield f"attributes = {{ {attributes} }}"


def _quoted(value: object) -> str:
    return msgspec.json.encode(value).decode()


class Player:
    """Writes one recorded file into the work folder, line by line as its time comes."""

    def __init__(self, source: SourcePlan, target: Path, node: NodePlan) -> None:
        self._source = source
        self._said, _ = stated(source.attributes)
        self._target = target
        self._node = node
        self._lines = self._timed()
        self._next: tuple[int | None, bytes] | None = next(self._lines, None)
        self.name = source.name
        self.size = source.path.stat().st_size

    @property
    def done(self) -> bool:
        """Whether all lines are out."""
        return self._next is None

    def release_all(self) -> None:
        """Write the whole file."""
        with _opened(self._source) as stream, self._target.open("ab") as out:
            shutil.copyfileobj(stream, out)
        self._next = None

    def first_ns(self) -> int | None:
        """When the first line with a time was written; reads on to it and puts what it read back in front."""
        held: list[tuple[int | None, bytes]] = []
        found = None
        for item in self._rest():
            held.append(item)
            if item[0] is not None:
                found = item[0]
                break
        self._lines = _chained(held, self._lines)
        self._next = next(self._lines, None)
        return found

    def release(self, now_ns: int) -> int:
        """Write the lines whose time has come; those without a time follow the line before. Returns bytes written."""
        written = 0
        with self._target.open("ab") as out:
            while self._next is not None and (self._next[0] is None or self._next[0] <= now_ns):
                out.write(self._next[1])
                written += len(self._next[1])
                self._next = next(self._lines, None)
        return written

    def _rest(self) -> Iterator[tuple[int | None, bytes]]:
        while self._next is not None:
            yield self._next
            self._next = next(self._lines, None)

    def _timed(self) -> Iterator[tuple[int | None, bytes]]:
        batch = empty_batch("", self._node)
        with _opened(self._source) as stream:
            for _, data, _ in lines(stream):
                yield self._time(body_of(data)[0], batch), data + b"\n"

    def _time(self, text: str, batch: RawBatch) -> int | None:
        record = kmsg_header(text) if self._source.kmsg else None
        if record is not None:
            stamp_ns, dating = record.boot_us * 1000, self._said.dating
            return times.kernel_time(stamp_ns, 0, batch.reporter, batch, dating=dating).aligned_ns
        parsed = parse_line(text)
        if parsed.stamp is None:
            return None
        dating = self._said.dating
        return times.stamped(parsed.stamp, dating, dating.near_ns, batch.reporter, batch).aligned_ns


def _opened(source: SourcePlan) -> AbstractContextManager[IO[bytes]]:
    """The bytes of a file as an agent reads them: of a dump of the flight recorder the lines that are made of it."""
    if source.dump:
        return io.BytesIO("".join(f"{line}\n" for line in dump_lines(source.path, source.name)).encode())
    return open_log(source.path)


def _chained(
    held: list[tuple[int | None, bytes]], rest: Iterator[tuple[int | None, bytes]]
) -> Iterator[tuple[int | None, bytes]]:
    yield from held
    yield from rest


def work_dir() -> Path:
    """Where replays keep their work files: per user, outside the logs."""
    base = os.environ.get("XDG_STATE_HOME") or str(Path.home() / ".local" / "state")
    return Path(base) / "rootrank" / "replay"
