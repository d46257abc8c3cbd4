"""A probe as a source: looked at when it is due, its lines numbered as those of a file are."""

import resource
import threading
import time
import uuid
from collections import deque
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Final

from schemas.records import Gap, RawLine, SourceProgress
from schemas.vocabulary import SourceState
from shippers.pieces import Limit, Moment, Piece
from shippers.positions import Position, SourcePosition
from shippers.probes.probe import Absent, Probe, Refused

KIND: Final = "telemetry"
WIDTH: Final = "time.width_ns"  # attribute of a line: it happened within so long after `time_unix_nano`
_RETRY_NS: Final = 30 * 10**9
_KEPT_LINES: Final = 10_000  # of a probe that tells more than is read
_SLOW_S: Final = 10.0


@dataclass(slots=True)
class Spent:
    """What looking at a probe has cost: processor time (programs that it starts with it), time, and lines told."""

    looks: int = 0
    cpu_s: float = 0.0
    wall_s: float = 0.0
    told: int = 0


class ProbedSource:
    """One probe. A generation is one life of the agent, an offset the number of a line in it."""

    def __init__(self, probe: Probe, saved: SourcePosition | None = None) -> None:
        self.name = probe.name
        self._probe = probe
        self._memo = saved.generations[0].memo if saved and saved.generations else ""
        self._saved_memo = self._memo
        self._generation = uuid.uuid4().hex[:12]
        self._offset = 0
        self._lock = threading.Lock()
        self._waiting: deque[tuple[tuple[int, int], str]] = deque()
        self._dropped = 0
        self._state: SourceState = "off"
        self._reason: str | None = "not looked at yet"
        self._is_open = False
        self._due_mono_ns = 0
        self._through_ns = 0
        self._looking: threading.Thread | None = None
        self._since_mono_ns = 0
        self.spent = Spent()

    @property
    def every_s(self) -> float:
        """How often it is looked at."""
        return self._probe.every_s

    @property
    def is_quiet(self) -> bool:
        """Whether `read` would give nothing now; asked without the lock, as what comes later is read later."""
        return not self._waiting and not self._dropped and self._memo == self._saved_memo

    @property
    def attributes(self) -> dict[str, str]:
        """What holds for all its lines."""
        return {"kind": KIND}

    def look(self, moment: Moment) -> None:
        """Look at what is due; where that may hang, by a thread of its own that nobody waits for."""
        if self._looking is not None and self._looking.is_alive():
            self._say_slow(moment)
            return
        if moment.mono_ns < self._due_mono_ns:
            return
        self._due_mono_ns = moment.mono_ns + int(self._probe.every_s * 1e9)
        if not self._probe.may_hang:
            self._look(moment)
            return
        self._since_mono_ns = moment.mono_ns
        self._looking = threading.Thread(target=self._look, args=(moment,), name=self.name, daemon=True)
        self._looking.start()

    def read(self, limit: Limit, moment: Moment, numbers: Iterator[int]) -> Piece | None:
        """The lines that wait."""
        with self._lock:
            taken = [self._waiting.popleft() for _ in range(min(limit.lines, len(self._waiting)))]
            dropped, self._dropped = self._dropped, 0
            # While lines wait, what is known of them must not be saved: a kill would lose them.
            memo = self._saved_memo if self._waiting else self._memo
        if not taken and not dropped and memo == self._saved_memo:
            return None
        self._saved_memo = memo
        lines = [self._line(body, span, next(numbers)) for span, body in taken]
        gaps = [Gap(source=self.name, reason="told more than was read", lost_lines=dropped)] if dropped else []
        position = Position(generation=self._generation, offset=self._offset, memo=memo)
        return Piece(
            source=self.name, position=SourcePosition(generations=(position,)), lines=lines, gaps=gaps,
            size=sum(len(line.body) for line in lines),
        )  # fmt: skip

    def progress(self) -> SourceProgress:
        """Whether it can be looked at, and until when it was."""
        with self._lock:
            return SourceProgress(
                source=self.name, state=self._state, kind=KIND, reason=self._reason,
                read_through_unix_nano=self._through_ns, at_end=self._state == "on" and not self._waiting,
                attributes=self.attributes,
            )  # fmt: skip

    def close(self) -> None:
        """Close the probe, unless it hangs."""
        if self._is_open and (self._looking is None or not self._looking.is_alive()):
            self._is_open = False
            self._probe.close()

    def _look(self, moment: Moment) -> None:
        began = time.perf_counter(), _cpu_s(with_programs=self._probe.may_hang)
        try:
            self._look_once(moment)
        finally:
            self.spent.looks += 1
            self.spent.wall_s += time.perf_counter() - began[0]
            self.spent.cpu_s += _cpu_s(with_programs=self._probe.may_hang) - began[1]

    def _look_once(self, moment: Moment) -> None:
        began_ns = time.monotonic_ns()
        try:
            if not self._is_open:
                self._probe.open(self._memo)
                self._is_open = True
            told = self._probe.look(moment)
        except Absent as error:
            self._end_look(moment, "off", str(error))
        except Refused as error:
            self._end_look(moment, "refused", str(error))
        except OSError as error:
            self._end_look(moment, "refused", f"{error.filename or self.name}: {error.strerror or error}")
        except Exception as error:  # what a machine says in a way that nobody foresaw stops one source, not the agent
            self._end_look(moment, "refused", f"failed, which is to be reported: {type(error).__name__}: {error}")
        else:
            self.spent.told += len(told)
            span = (self._through_ns, moment.observed_ns + time.monotonic_ns() - began_ns)
            with self._lock:
                self._waiting.extend((span, body) for body in told)
                while len(self._waiting) > _KEPT_LINES:
                    self._waiting.popleft()
                    self._dropped += 1
                self._memo = self._probe.memo()
                self._state, self._reason, self._through_ns = "on", None, moment.observed_ns

    def _end_look(self, moment: Moment, state: SourceState, reason: str) -> None:
        """It cannot be looked at now: close it, and try again in half a minute."""
        with self._lock:
            self._state, self._reason = state, reason
        self._due_mono_ns = moment.mono_ns + _RETRY_NS
        if self._is_open:
            self._is_open = False
            self._probe.close()

    def _say_slow(self, moment: Moment) -> None:
        slow_s = (moment.mono_ns - self._since_mono_ns) / 1e9
        if slow_s > max(_SLOW_S, 3 * self._probe.every_s):
            with self._lock:
                self._state, self._reason = "refused", f"has not answered for {slow_s:.0f} s"

    def _line(self, body: str, span: tuple[int, int], seq: int) -> RawLine:
        """What a line tells came after the look before, where there was one, and before the end of its own."""
        self._offset += 1
        since_ns, until_ns = span
        is_bounded = 0 < since_ns <= until_ns
        return RawLine(
            seq=seq, source=self.name, generation=self._generation, offset=self._offset, body=body,
            observed_time_unix_nano=until_ns, time_unix_nano=since_ns if is_bounded else None,
            attributes={WIDTH: str(until_ns - since_ns)} if is_bounded else {},
        )  # fmt: skip


def _cpu_s(*, with_programs: bool) -> float:
    """Processor time of this thread so far; with that of programs which this process waited for."""
    programs = 0.0
    if with_programs:
        used = resource.getrusage(resource.RUSAGE_CHILDREN)
        programs = used.ru_utime + used.ru_stime
    return time.thread_time() + programs
