"""In-memory parts and small helpers for tests of the node agent."""

import itertools
import threading
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from schemas import codec
from schemas.records import Gap, Progress, RawBatch, RawLine
from schemas.topics import RAW
from shippers.pieces import Limit, Moment, Source
from shippers.positions import SourcePosition
from shippers.sink import Done, Pending, RecordRefusedError, SinkUnavailableError

SECOND_NS = 10**9
LARGE = Limit(lines=1000, size=512 * 1024)


def eventually(condition: Callable[[], Any], what: str, within_s: float = 20.0) -> Any:
    """The first true value of `condition`, or a failure that says what did not happen."""
    end = time.monotonic() + within_s
    while not (found := condition()):
        assert time.monotonic() < end, f"not within {within_s} s: {what}"
        time.sleep(0.01)
    return found


class FakeSink:
    """Keeps what it is given. `is_away` makes it unreachable, `refused` are contents that it never takes."""

    def __init__(self) -> None:
        self.values: list[bytes] = []
        self.is_away = False
        self.refused: set[bytes] = set()
        self._lock = threading.Lock()

    def send(self, value: bytes) -> Pending:
        if self.is_away:
            raise SinkUnavailableError("the fake is away")
        if any(part in value for part in self.refused):
            raise RecordRefusedError("the fake refuses it")
        with self._lock:
            self.values.append(value)
        return Done()

    def close(self) -> None:
        """Nothing is open."""

    def records(self) -> list[RawBatch | Progress]:
        with self._lock:
            return [codec.decode(RAW.name, value) for value in self.values]

    def batches(self) -> list[RawBatch]:
        return [record for record in self.records() if isinstance(record, RawBatch)]

    def progress(self) -> list[Progress]:
        return [record for record in self.records() if isinstance(record, Progress)]

    def bodies(self) -> list[str]:
        return [line.body for batch in self.batches() for line in batch.records]


@dataclass
class Read:
    """What passes over a source gave."""

    lines: list[RawLine] = field(default_factory=list)
    gaps: list[Gap] = field(default_factory=list)
    position: SourcePosition | None = None

    def bodies(self) -> list[str]:
        return [line.body for line in self.lines]


class Passes:
    """Looks at a source and reads it to its end; time passes by two seconds each time."""

    def __init__(self) -> None:
        self.mono_ns = 1000 * SECOND_NS
        self.numbers: Iterator[int] = itertools.count()

    def read(self, source: Source, *, ending: bool = False, limit: Limit = LARGE) -> Read:
        self.mono_ns += 2 * SECOND_NS
        return self.read_now(source, ending=ending, limit=limit)

    def read_now(self, source: Source, *, ending: bool = False, limit: Limit = LARGE) -> Read:
        moment = Moment(observed_ns=self.mono_ns, mono_ns=self.mono_ns, wall_ns=time.time_ns(), ending=ending)
        source.look(moment)
        read = Read()
        while (piece := source.read(limit, moment, self.numbers)) is not None:
            read.lines.extend(piece.lines)
            read.gaps.extend(piece.gaps)
            read.position = piece.position
        return read


def append(path: Path, text: str | bytes) -> None:
    with path.open("ab") as file:
        file.write(text if isinstance(text, bytes) else text.encode())
