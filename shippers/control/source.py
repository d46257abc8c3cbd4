"""A control plane as a source of the agent: read by a thread of its own while this agent is the active one."""

import threading
from collections.abc import Iterator
from typing import Final, Protocol

from schemas.records import RawLine, SourceProgress
from schemas.vocabulary import SourceState
from shippers.control.seat import Duty
from shippers.control.told import Line, Outlet
from shippers.pieces import Limit, Moment, Piece
from shippers.positions import Position, SourcePosition

KIND: Final = "control"
_STOP_S: Final = 1.0
_AGAIN_NS: Final = 30 * 10**9  # a watcher that failed by a fault of ours is started again, not at once


class Watcher(Protocol):
    """Asks a control plane for one kind of thing."""

    name: str

    def probe(self) -> tuple[SourceState, str | None]:
        """Ask once, tell nothing: how it would stand, and why."""

    def run(self, position: str, outlet: Outlet) -> None:
        """Tell what changes since `position` (empty: at first sight) until `outlet.stopping` is set."""


class ControlSource:
    """One watcher. It begins where the last active agent got to, and stops when another one is active."""

    def __init__(self, watcher: Watcher, duty: Duty, saved: SourcePosition | None = None) -> None:
        self.name = watcher.name
        self._watcher = watcher
        self._duty = duty
        self._position = saved.generations[0].memo if saved and saved.generations else ""
        self._term = 0
        self._again_mono_ns = 0
        self._outlet = Outlet(self.name)
        self._thread: threading.Thread | None = None

    @property
    def attributes(self) -> dict[str, str]:
        """What holds for all its lines: they speak of others, by a clock that is not this host's."""
        return {"kind": KIND, "node": ""}

    def look(self, moment: Moment) -> None:
        """Begin where this agent has become the active one, stop where it no longer is."""
        term = self._duty.term
        has_died = self._thread is not None and not self._thread.is_alive()
        if term == self._term and not (has_died and moment.mono_ns >= self._again_mono_ns):
            return
        self._again_mono_ns = moment.mono_ns + _AGAIN_NS
        self._stop(0)
        self._term = term
        if not term:
            return
        handed = self._duty.handed(self.name)
        if handed is not None and not (self._duty.was_mine and self._position):
            self._position = handed
        self._outlet = Outlet(self.name)
        self._thread = threading.Thread(
            target=self._watcher.run, args=(self._position, self._outlet), name=self.name, daemon=True
        )
        self._thread.start()

    def read(self, limit: Limit, moment: Moment, numbers: Iterator[int]) -> Piece | None:
        """What was told. Nothing of it while another agent is the active one."""
        if not self._term or self._duty.term != self._term:
            return None
        steps = self._outlet.take(limit.lines)
        if not steps:
            return None
        self._position = steps[-1].position
        lines = [self._line(line, next(numbers)) for step in steps for line in step.lines]
        return Piece(
            source=self.name, lines=lines, gaps=[gap for step in steps for gap in step.gaps],
            records=[record for step in steps for record in step.records], size=sum(len(line.body) for line in lines),
            position=SourcePosition(generations=(Position(generation=KIND, memo=self._position),)),
        )  # fmt: skip

    def progress(self) -> SourceProgress:
        """How it stands, and until when the control plane was heard."""
        is_active = bool(self._term) and self._duty.term == self._term
        outlet = self._outlet
        return SourceProgress(
            source=self.name, kind=KIND, attributes=self.attributes, read_through_unix_nano=outlet.through_ns,
            state=outlet.state if is_active else "off", reason=outlet.reason if is_active else self._duty.why_not,
            at_end=is_active and outlet.state == "on" and outlet.is_empty(),
        )  # fmt: skip

    def probe(self) -> SourceProgress:
        """How it would stand, if this agent were active."""
        state, reason = self._watcher.probe()
        return SourceProgress(source=self.name, kind=KIND, attributes=self.attributes, state=state, reason=reason)

    def close(self) -> None:
        """Stop asking."""
        self._stop(_STOP_S)

    def _stop(self, wait_s: float) -> None:
        self._outlet.stopping.set()
        if self._thread is not None:
            self._thread.join(wait_s)
            self._thread = None

    def _line(self, line: Line, seq: int) -> RawLine:
        # Observed by the control plane: whoever reads it, and when, is no part of the line.
        return RawLine(
            seq=seq, source=self.name, generation=line.generation, offset=line.offset, body=line.body,
            observed_time_unix_nano=line.at_ns, attributes=line.attributes,
        )  # fmt: skip
