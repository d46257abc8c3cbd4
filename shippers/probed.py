"""A probe as a source: looked at when it is due, its lines numbered as those of a file are."""

import resource
import threading
import time
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Final

from schemas.records import SourceProgress
from schemas.vocabulary import SourceState
from shippers.outbox import KIND, Outbox
from shippers.pieces import Limit, Moment, Piece
from shippers.positions import SourcePosition
from shippers.probes.probe import Absent, Probe, Refused

_RETRY_NS: Final = 30 * 10**9
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
        self._outbox = Outbox(self.name, saved)
        self._lock = threading.Lock()
        self._state: SourceState = "off"
        self._reason: str | None = "not looked at yet"
        self._is_open = False
        self._due_mono_ns = 0
        self._through_ns = 0
        self._taken_through_ns = 0  # until then all that was told is taken, too
        self._looking: threading.Thread | None = None
        self._since_mono_ns = 0
        self.spent = Spent()

    @property
    def every_s(self) -> float:
        """How often it is looked at."""
        return self._probe.every_s

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
        if self._outbox.is_quiet:
            return None  # asked without the lock: what comes later is read later
        with self._lock:
            piece = self._outbox.take(limit, numbers)
            if not self._outbox.waits:
                self._taken_through_ns = self._through_ns
            return piece

    def progress(self) -> SourceProgress:
        """Whether it can be looked at, and until when it was."""
        with self._lock:
            return SourceProgress(
                source=self.name, state=self._state, kind=KIND, reason=self._reason,
                read_through_unix_nano=self._taken_through_ns, at_end=self._state == "on" and not self._outbox.waits,
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
                self._probe.open(self._outbox.memo)
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
            # It came after the look before, where there was one, and before the end of this one.
            until_ns = moment.observed_ns + time.monotonic_ns() - began_ns
            since_ns = self._through_ns if 0 < self._through_ns <= until_ns else None
            with self._lock:
                for body in told:
                    self._outbox.put(body, since_ns, until_ns)
                self._outbox.memo = self._probe.memo()
                self._state, self._reason, self._through_ns = "on", None, moment.observed_ns
                if not self._outbox.waits:
                    self._taken_through_ns = self._through_ns

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


def _cpu_s(*, with_programs: bool) -> float:
    """Processor time of this thread so far; with that of programs which this process waited for."""
    programs = 0.0
    if with_programs:
        used = resource.getrusage(resource.RUSAGE_CHILDREN)
        programs = used.ru_utime + used.ru_stime
    return time.thread_time() + programs
