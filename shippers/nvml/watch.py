"""The work of the process: open what is awake, wait for events, ask at the stated interval, say what has changed."""

from collections.abc import Callable
from typing import Final, NoReturn, Protocol

from msgspec import Struct, field

from shippers.nvml.holders import Holders
from shippers.nvml.judge import OVER, SECOND_NS, Judge
from shippers.nvml.library import CLOSED, LOST, MISMATCH, RESET_REQUIRED, Gpu, GpuEvent, NvmlError
from shippers.nvml.machine import Machine
from shippers.nvml.messages import (
    AT_REST,
    LET_GO,
    REOPEN,
    Alive,
    AnyMessage,
    Failed,
    Opened,
    Read,
    Settings,
    Told,
    Value,
)

WAIT_MS: Final = 1000  # so long may the moment of an event be uncertain
LINKS_EVERY_S: Final = 60.0
SCAN_EVERY_S: Final = 60.0  # for GPUs that came to the bus
IDLE_LOOKS: Final = 3
UNKNOWN_XID: Final = 999  # NVML: an Xid of which it does not know the number
_UNREADABLE_LOOKS: Final = 2
_MAX_EVENTS: Final = 256  # taken in a row before the GPUs are asked
_LIBRARY: Final = "library"  # of what is no GPU's
_RESETS: Final = ("gpu_reset", "node_reboot", "drain_and_reset")


class Nvml(Protocol):
    """The open library."""

    def versions(self) -> tuple[str, str]:
        """Of the driver and of the library."""

    def open_gpu(self, address: str) -> Gpu | None:
        """One GPU by its address."""

    def listen(self, gpu: Gpu) -> bool:
        """Ask for the events of a GPU."""

    @property
    def listens(self) -> bool:
        """Whether there is anything to wait for."""

    def wait(self, timeout_ms: int) -> GpuEvent | None:
        """The next event."""


class _Open(Struct, kw_only=True):
    """A GPU and what is known of it."""

    gpu: Gpu
    holders: Holders = field(default_factory=Holders)
    read_ns: int | None = None
    links_due_ns: int = 0
    is_lost: bool = False
    unreadable: int = 0
    is_used: bool = True


class Stop(Exception):
    """The process ends, with that code."""

    def __init__(self, code: int) -> None:
        super().__init__(code)
        self.code = code


class Watch:
    """All GPUs of a machine, from opening NVML to the end of the process."""

    def __init__(
        self, settings: Settings, machine: Machine, open_library: Callable[[str], Nvml], judge: Judge,
        say: Callable[[AnyMessage], None], now_ns: Callable[[], int],
    ) -> None:  # fmt: skip
        self._settings = settings
        self._machine = machine
        self._open_library = open_library
        self._judge = judge
        self._say = say
        self._now_ns = now_ns
        self._gpus: dict[str, _Open] = {}
        self._refused: set[str] = set()
        self._memo = settings.memo
        self._due_ns = 0
        self._waited_ns = 0
        self._idle_looks = 0
        self._skipped: list[str] = []
        self._asleep: set[str] = set()
        self._scan_due_ns = 0

    def open(self) -> None:
        """Open the library and the GPUs that are awake. Raises Stop."""
        self._say(Alive(doing="opening NVML"))
        try:
            self._nvml = self._open_library(self._settings.driver_root)
            self._waited_ns = self._now_ns()
            self._open_gpus()
        except OSError as error:
            self._stop(REOPEN, str(error), is_absent=True)
        except NvmlError as error:
            self._fail_to_open(error)
        if not self._gpus:
            self._stop(REOPEN, f"no GPU can be asked ({'; '.join(self._skipped)})")

    def step(self, timeout_ms: int = WAIT_MS) -> None:
        """Wait for events for so long, then ask the GPUs where that is due. Raises Stop."""
        self._say(Alive(doing="waiting for events"))
        try:
            self._take_events(timeout_ms)
            if self._now_ns() >= self._due_ns:
                self._due_ns = self._now_ns() + int(self._settings.interval_s * SECOND_NS)
                self._look()
        except NvmlError as error:
            self._stop(REOPEN, f"NVML does not go on ({error}), as after the driver was unloaded; it is opened anew")

    @property
    def waits(self) -> bool:
        """Whether `step` waits by itself."""
        return self._nvml.listens

    def _stop(self, code: int, reason: str, *, is_absent: bool = False) -> NoReturn:
        self._say(Failed(reason=reason, is_absent=is_absent, memo=self._judge.memo()))
        raise Stop(code)

    def _fail_to_open(self, error: NvmlError) -> NoReturn:
        if error.code != MISMATCH:
            self._stop(REOPEN, f"NVML cannot be opened: {error}", is_absent=error.code in CLOSED)
        driver = self._machine.driver_version()
        if self._judge.is_news(_LIBRARY, "mismatch", driver or "unknown"):
            values: dict[str, Value] = {"code": error.code, **({"driver": driver} if driver else {})}
            self._tell("gpu.driver_mismatch", values, None)
        why = "the library and the loaded driver are of different versions; reload the driver or restart the node"
        self._stop(REOPEN, f"{error}: {why}")

    def _tell(self, thing: str, values: dict[str, Value], since_ns: int | None) -> None:
        self._say(Told(thing=thing, values=values, since_ns=since_ns, until_ns=self._now_ns()))

    def _open_gpus(self) -> None:
        """Open what is awake and not open yet, and say who they are."""
        self._skipped, self._asleep = [], set()
        self._scan_due_ns = self._now_ns() + int(SCAN_EVERY_S * SECOND_NS)
        for found in self._machine.gpus():
            address = found.address
            if address in self._gpus:
                continue
            if found.asleep:
                self._skipped.append(f"{address}: {found.asleep}")
                self._asleep.add(address)
            elif address in self._refused:
                self._skipped.append(f"{address}: not given to this process, or does not answer")
            else:
                self._open_gpu(address)
        driver, library = self._nvml.versions()
        gpus = [one.gpu.identity() for one in self._gpus.values()]
        self._say(Opened(gpus=gpus, driver=driver, library=library, skipped=self._skipped))

    def _open_gpu(self, address: str) -> None:
        self._say(Alive(doing=f"opening GPU {address}"))
        try:
            gpu = self._nvml.open_gpu(address)
            if gpu is not None:
                self._nvml.listen(gpu)
        except NvmlError as error:
            if error.code in CLOSED:
                raise
            self._tell_unanswered(address, {"pci": address}, error, None)
            self._skipped.append(f"{address}: {error}")
            self._refused.add(address)
            return
        if gpu is None:
            self._skipped.append(f"{address}: not given to this process")
            self._refused.add(address)
            return
        self._gpus[address] = _Open(gpu=gpu)
        driver, library = self._nvml.versions()
        values: dict[str, Value] = {**gpu.names(), "driver": driver, "library": library}
        values |= {name: value for name, value in (("model", gpu.model), ("mig", int(gpu.has_mig))) if value}
        if self._judge.is_news(address, "identity", " ".join(map(str, values.values()))):
            self._tell("gpu.identity", values, None)

    def _take_events(self, timeout_ms: int) -> None:
        """All events that wait. What comes now happened since the wait before the last one began."""
        for _ in range(_MAX_EVENTS if self._nvml.listens else 0):
            began_ns = self._now_ns()
            try:
                event = self._nvml.wait(timeout_ms)
            except NvmlError as error:
                if error.code in (LOST, RESET_REQUIRED):
                    self._look()  # says which one it is; nobody can wait for the others together with it
                raise
            if event is None:
                self._waited_ns = began_ns
                return
            self._tell_event(event)
            timeout_ms = 0

    def _tell_event(self, event: GpuEvent) -> None:
        values: dict[str, Value] = {} if event.gpu is None else event.gpu.names()
        instances = {"gi": event.gpu_instance, "ci": event.compute_instance}
        values |= {name: value for name, value in instances.items() if value is not None}
        if event.kind == "xid" and event.code not in (0, UNKNOWN_XID):
            self._tell("gpu.xid", {**values, "xid": event.code}, self._waited_ns)
        else:
            self._tell("gpu.event", {**values, "kind": event.kind, "code": event.code}, self._waited_ns)

    def _look(self) -> None:
        """Ask every GPU once."""
        has_woken = any(not self._machine.why_asleep(address) for address in self._asleep)
        if has_woken or self._now_ns() >= self._scan_due_ns:
            self._open_gpus()
        wants_reset = False
        for one in self._gpus.values():
            if not one.is_lost:
                wants_reset |= self._look_at(one)
        memo = self._judge.memo()
        is_news, self._memo = memo != self._memo, memo
        self._say(Read(memo=memo if is_news else None))
        if wants_reset:
            self._stop(LET_GO, "a GPU is to be reset: NVML is let go for that, and asked once a minute")
        if all(one.is_lost for one in self._gpus.values()):
            self._stop(LET_GO, "all GPUs are lost")
        self._rest_if_idle()

    def _look_at(self, one: _Open) -> bool:
        """Ask one GPU. Whether NVML must be let go so that it can be reset."""
        gpu, began_ns = one.gpu, self._now_ns()
        self._say(Alive(doing=f"asking GPU {gpu.address}"))
        with_links = began_ns >= one.links_due_ns
        try:
            readings = gpu.read(with_links=with_links)
            listed = gpu.processes()
        except NvmlError as error:
            return self._not_answered(one, error)
        if with_links:
            one.links_due_ns = began_ns + int(LINKS_EVERY_S * SECOND_NS)
        since_ns, one.read_ns, one.unreadable = one.read_ns, began_ns, 0
        one.is_used = bool(listed) or gpu.is_persistent or not self._machine.tells_sleep()
        state_of = self._machine.process if self._settings.sees_all_pids else None
        told = [*self._judge.take(gpu.uuid or gpu.address, readings, began_ns), *one.holders.take(listed, state_of)]
        if self._judge.is_news(gpu.address, "answer", ""):
            told.append((OVER, {"what": "gpu.unreadable"}))
        for thing, values in told:
            self._tell(thing, {**gpu.names(), **values}, since_ns)
        return readings.get("recovery_action") in _RESETS and not listed

    def _not_answered(self, one: _Open, error: NvmlError) -> bool:
        if error.code in CLOSED:
            raise error
        one.unreadable += 1
        one.is_lost = error.code == LOST
        if one.is_lost or error.code == RESET_REQUIRED or one.unreadable == _UNREADABLE_LOOKS:
            self._tell_unanswered(one.gpu.address, one.gpu.names(), error, one.read_ns)
        return error.code == RESET_REQUIRED

    def _tell_unanswered(self, address: str, names: dict[str, Value], error: NvmlError, since_ns: int | None) -> None:
        if not self._judge.is_news(address, "answer", str(error.code)):
            return
        thing = "gpu.lost" if error.code == LOST else "gpu.unreadable"
        reason = "_".join(str(error).lower().split())
        self._tell(thing, {**names, "code": error.code, "reason": reason}, since_ns)

    def _rest_if_idle(self) -> None:
        """Where persistence mode is off and no process is on any GPU, NVML alone keeps them awake: let them sleep."""
        self._idle_looks = 0 if any(one.is_used for one in self._gpus.values()) else self._idle_looks + 1
        if self._idle_looks >= IDLE_LOOKS:
            reason = "no process uses a GPU and persistence mode is off: NVML is let go so that they may sleep"
            self._stop(AT_REST, reason, is_absent=True)
