"""NVML as a source: a process of its own, watched by a deadline, ended and started again with growing pauses."""

import os
import subprocess
import sys
from collections.abc import Callable, Iterator, Sequence
from typing import Final

import msgspec

from schemas.records import NodeFacts, SourceProgress
from schemas.vocabulary import SourceState
from shippers import pieces
from shippers.config import NvmlSettings
from shippers.nvml import messages
from shippers.nvml.machine import Machine, name_of_signal
from shippers.nvml.messages import Alive, Failed, Opened, Read, Settings, Told
from shippers.outbox import KIND, Outbox
from shippers.pieces import Limit, Moment, Piece
from shippers.positions import SourcePosition
from shippers.probes.probe import said

NAME: Final = "nvml"
COMMAND: Final = (sys.executable, "-m", "shippers.nvml")
_SECOND_NS: Final = 10**9
_PAUSES_S: Final = (5, 10, 30, 60, 300)
_REST_S: Final = 60
_STEADY_NS: Final = 120 * _SECOND_NS  # so long must it go well before the pauses begin anew
_LOOK_EVERY_NS: Final = 200_000_000  # passes come more often than is worth a look
_READ_BYTES: Final = 256 * 1024
# Between the clocks of a pass and those of the process: both are read one after the other.
_READING_NS: Final = 1_000_000


class NvmlSource:
    """All that NVML says of this machine's GPUs.

    `inventory`: those that were opened last, with all their names; `looks`: how often all were asked. `facts` makes a
    record of an inventory and the wall time at which it was read (ns), which is sent when it changes.
    """

    def __init__(
        self, settings: NvmlSettings, saved: SourcePosition | None = None, command: Sequence[str] = COMMAND,
        facts: Callable[[Opened, int], NodeFacts] | None = None,
    ) -> None:  # fmt: skip
        self.name = NAME
        self._settings = settings
        self._command = list(command)
        self._machine = Machine(settings.sys_root, settings.proc_root)
        self._outbox = Outbox(NAME, saved)
        self._state: SourceState = "off"
        self._reason: str | None = "not looked at yet"
        self._through_ns = 0
        self._child: subprocess.Popen[bytes] | None = None
        self._rest = b""
        self._doing = "starting"
        self._heard_ns = self._started_ns = self._due_ns = 0
        self._ended_ns = self._looked_ns = 0
        self._failures = 0
        self.inventory: Opened | None = None
        self._facts = facts
        self._told_inventory: Opened | None = None
        self.looks = 0

    @property
    def attributes(self) -> dict[str, str]:
        """What holds for all its lines."""
        return {"kind": KIND}

    def look(self, moment: Moment) -> None:
        """Take what the process has said; start it, or end it where it does not answer. Never waits."""
        if 0 <= moment.mono_ns - self._looked_ns < _LOOK_EVERY_NS:
            return
        self._looked_ns = moment.mono_ns
        if self._child is None:
            if moment.mono_ns >= self._due_ns:
                self._start(moment)
            return
        if self._ended_ns:
            self._bury(moment)
            return
        self._hear(moment)
        code = self._child.poll()
        if code is not None:
            while self._hear(moment):
                """All that it said before it ended."""
            self._has_ended(moment, code)
        elif moment.mono_ns - self._heard_ns > self._settings.deadline_s * _SECOND_NS:
            self._kill(moment)

    def read(self, limit: Limit, moment: Moment, numbers: Iterator[int]) -> Piece | None:
        """The lines that wait."""
        return self._outbox.take(limit, numbers, self._changed_facts(moment))

    def _changed_facts(self, moment: Moment) -> list[pieces.Told]:
        """The record of the inventory, where it is another than the one told last."""
        if self._facts is None or self.inventory is None or self.inventory == self._told_inventory:
            return []
        self._told_inventory = self.inventory
        return [self._facts(self.inventory, moment.observed_ns)]

    def progress(self) -> SourceProgress:
        """Whether the GPUs can be asked, and until when they were."""
        return SourceProgress(
            source=self.name, state=self._state, kind=KIND, reason=self._reason,
            read_through_unix_nano=self._through_ns, at_end=self._state == "on" and not self._outbox.waits,
            attributes=self.attributes,
        )  # fmt: skip

    def close(self) -> None:
        """End the process; one that hangs in the driver is left to the kernel."""
        child, self._child = self._child, None
        if child is None:
            return
        child.kill()
        _close_pipes(child)
        try:
            child.wait(timeout=1)
        except subprocess.TimeoutExpired:
            child.returncode = -9  # nobody waits for it any more

    def _start(self, moment: Moment) -> None:
        """Start the process, where there is a GPU that may be asked."""
        gpus = self._machine.gpus()
        reason = ""
        if not gpus:
            reason = f"no NVIDIA GPU under {self._settings.sys_root}/bus/pci/devices"
        elif not self._machine.driver_version():
            reason = "no NVIDIA driver is loaded"
        elif all(gpu.asleep for gpu in gpus):
            reason = f"all {len(gpus)} GPUs are asleep and left so ({gpus[0].asleep})"
        if reason:
            self._state, self._reason = "off", reason
            self._due_ns = moment.mono_ns + (self._settings.interval_s if gpus else _REST_S) * _SECOND_NS
            return
        try:
            child = subprocess.Popen(self._command, stdin=subprocess.PIPE, stdout=subprocess.PIPE)
        except OSError as error:
            self._pause(moment, f"its process cannot be started: {error.strerror}")
            return
        settings = Settings(
            driver_root=self._settings.driver_root, sys_root=self._settings.sys_root,
            proc_root=self._settings.proc_root, interval_s=self._settings.interval_s,
            sees_all_pids=self._machine.sees_all_pids(), memo=self._outbox.memo,
        )  # fmt: skip
        assert child.stdin is not None
        assert child.stdout is not None
        os.set_blocking(child.stdin.fileno(), False)
        os.set_blocking(child.stdout.fileno(), False)
        self._child, self._rest, self._doing = child, b"", "starting"
        self._heard_ns = self._started_ns = moment.mono_ns
        try:
            os.write(child.stdin.fileno(), messages.encode(settings))
        except OSError:
            return  # it has ended already, which is seen next time

    def _hear(self, moment: Moment) -> bool:
        """Take what was said. False where nothing more will be."""
        assert self._child is not None
        assert self._child.stdout is not None
        try:
            data = os.read(self._child.stdout.fileno(), _READ_BYTES)
        except BlockingIOError:
            return self._child.returncode is None
        except OSError:
            return False
        *lines, self._rest = (self._rest + data).split(b"\n")
        for line in lines:
            self._take(line, moment)
        if data:
            self._heard_ns = moment.mono_ns
        return bool(data)

    def _take(self, line: bytes, moment: Moment) -> None:
        try:
            message = messages.decode(line)
        except msgspec.DecodeError:
            return  # printed by the library
        match message:
            case Alive():
                self._doing = message.doing
                # All events until now were taken; what is asked for at an interval says itself when it was.
                self._through_ns = moment.observed_ns
            case Opened():
                skipped = f"; not asked: {'; '.join(message.skipped)}" if message.skipped else ""
                self._state, self._reason = "on", f"{len(message.gpus)} GPUs{skipped}" if skipped else None
                self.inventory = message
            case Read():
                self.looks += 1
                self._outbox.memo = self._outbox.memo if message.memo is None else message.memo
                if moment.mono_ns - self._started_ns > _STEADY_NS:
                    self._failures = 0
            case Failed():
                self._state, self._reason = ("off" if message.is_absent else "refused"), message.reason
                self._outbox.memo = self._outbox.memo if message.memo is None else message.memo
            case Told():
                since_ns = None if message.since_ns is None else _wall_ns(message.since_ns, moment) - _READING_NS
                until_ns = _wall_ns(message.until_ns, moment) + _READING_NS
                body = said(message.thing, **message.values)
                self._outbox.put(body, since_ns, until_ns)

    def _kill(self, moment: Moment) -> None:
        """It does not answer: end it, without waiting for that."""
        assert self._child is not None
        silent_s = (moment.mono_ns - self._heard_ns) / _SECOND_NS
        self._state, self._reason = "refused", f"NVML has not answered for {silent_s:.0f} s ({self._doing})"
        self._child.kill()
        self._ended_ns = moment.mono_ns

    def _bury(self, moment: Moment) -> None:
        """Look whether a process that was killed is gone: one that hangs inside the driver cannot be ended."""
        assert self._child is not None
        if self._child.poll() is None:
            hung_s = (moment.mono_ns - self._heard_ns) / _SECOND_NS
            self._reason = f"a call hangs in the driver for {hung_s:.0f} s ({self._doing}, process {self._child.pid})"
            return
        self._forget()
        self._pause(moment, f"{self._reason}; it was ended")

    def _has_ended(self, moment: Moment, code: int) -> None:
        self._forget()
        if code in (messages.AT_REST, messages.LET_GO):
            self._failures = 0
            self._due_ns = moment.mono_ns + _REST_S * _SECOND_NS
        elif code == messages.REOPEN:
            self._pause(moment, self._reason or "NVML is opened anew", keeps_state=True)
        elif code < 0:
            self._pause(moment, f"its process was ended by {name_of_signal(-code)} ({self._doing})")
        else:
            self._pause(moment, f"its process ended with code {code} ({self._doing}); it has printed why")

    def _pause(self, moment: Moment, reason: str, *, keeps_state: bool = False) -> None:
        pause_s = _PAUSES_S[min(self._failures, len(_PAUSES_S) - 1)]
        self._failures += 1
        self._due_ns = moment.mono_ns + pause_s * _SECOND_NS
        self._state = self._state if keeps_state and self._state != "on" else "refused"
        self._reason = f"{reason}; next try in {pause_s} s"

    def _forget(self) -> None:
        assert self._child is not None
        _close_pipes(self._child)
        self._child = None
        self._ended_ns = 0


def _wall_ns(mono_ns: int, moment: Moment) -> int:
    """A moment of the monotonic clock on the wall clock, as both are now."""
    return moment.observed_ns + mono_ns - moment.mono_ns


def _close_pipes(child: "subprocess.Popen[bytes]") -> None:
    for pipe in (child.stdin, child.stdout):
        if pipe is not None:
            pipe.close()
