"""Who of several agents is the active one: whoever has the seat, a record that all of them can read and write.

The holder renews it. Whoever sees it unchanged for `seat_s` of its own monotonic clock takes it, so that no two clocks
are ever compared. The holder writes into it how far Kafka has what it read: the next one goes on from there. An agent
that could not renew stops reading after two thirds of `seat_s`, before another one may begin.
"""

import threading
import time
from collections.abc import Callable
from typing import Final, Protocol

import msgspec
from msgspec import Struct

from schemas.records import SourceProgress
from shippers.saying import say

_ACTIVE_SHARE: Final = 2 / 3
# What a Lease can carry in its annotations is 256 KiB; a position beyond this is left out, its source lists again.
MAX_POSITION_CHARACTERS: Final = 60_000


class SeatError(Exception):
    """The seat cannot be read or written now. The text says why and what to do."""


class SeatTakenError(Exception):
    """Another agent wrote the seat since it was read."""


class Held(Struct, frozen=True, kw_only=True):
    """What the seat says. `version` is the store's; it changes with every write. `holder` is empty where it is free."""

    holder: str = ""
    version: str = ""
    positions: dict[str, str] = {}
    changes: int = 0


class SeatStore(Protocol):
    """Where the seat is."""

    def read(self) -> Held:
        """What it says now. Raises SeatError."""

    def write(self, held: Held) -> None:
        """Put it, if it is still of the version that `held` has. Raises SeatError, SeatTakenError."""


class Seat:
    """The seat as one agent sees it. `start` begins to look after it in a thread."""

    def __init__(
        self, store: SeatStore, identity: str, *, seat_s: float, renew_s: float,
        tell: Callable[[str], None] = say, clock: Callable[[], float] = time.monotonic,
    ) -> None:  # fmt: skip
        self.identity = identity
        self._store = store
        self._seat_s = seat_s
        self._renew_s = renew_s
        self._tell = tell
        self._clock = clock
        self._lock = threading.Lock()
        self._positions: dict[str, str] = {}
        self._handed: dict[str, str] = {}
        self._was_mine = False
        self._seen = Held()
        self._seen_s = float("-inf")
        self._until_s = float("-inf")
        self._term = 0
        self._problem = ""
        self._stopping = threading.Event()
        self._thread: threading.Thread | None = None

    @property
    def term(self) -> int:
        """0 while another one is active; else a number that grows each time that this agent becomes the active one."""
        with self._lock:
            return self._term if self._clock() < self._until_s else 0

    @property
    def why_not(self) -> str:
        """Why this agent is not the active one."""
        with self._lock:
            if self._problem:
                return self._problem
            return f"stand-by: {self._seen.holder or 'nobody'} is active"

    def handed(self, source: str) -> str | None:
        """How far Kafka has what was read of a source, as the last one active wrote it; None where nobody did."""
        with self._lock:
            return self._handed.get(source)

    @property
    def was_mine(self) -> bool:
        """Whether this agent was the last one before: what it knows itself is newer than what it wrote."""
        with self._lock:
            return self._was_mine

    def publish(self, source: str, position: str) -> None:
        """How far a source is read and safe in Kafka: written with the next renewal."""
        with self._lock:
            if len(position) <= MAX_POSITION_CHARACTERS:
                self._positions[source] = position
            else:
                self._positions.pop(source, None)

    def probe(self) -> SourceProgress:
        """Whether the seat can be read, and who has it."""
        try:
            held = self._store.read()
        except SeatError as error:
            return SourceProgress(source="seat", state="refused", kind="control", reason=str(error))
        return SourceProgress(source="seat", state="on", kind="control", reason=f"{held.holder or 'nobody'} has it")

    def start(self) -> None:
        """Look after the seat from now on."""
        if self._thread is None:
            self._thread = threading.Thread(target=self._run, name="seat", daemon=True)
            self._thread.start()

    def close(self) -> None:
        """Give the seat back, so that another one need not wait."""
        self._stopping.set()
        if self._thread is not None:
            self._thread.join(2)
        if self.term:
            with self._lock:
                free = msgspec.structs.replace(self._seen, holder="", positions=dict(self._positions))
                self._until_s = float("-inf")
            try:
                self._store.write(free)
            except (SeatError, SeatTakenError) as error:
                self._tell(f"the seat was not given back ({error}); another agent takes it in {self._seat_s:.0f} s")

    def look(self) -> None:
        """Read the seat once, and renew or take it where that may be."""
        began_s = self._clock()
        try:
            held = self._store.read()
            if held.version != self._seen.version or self._seen_s == float("-inf"):
                with self._lock:
                    self._seen, self._seen_s = held, began_s
            if held.holder == self.identity or not held.holder or began_s - self._seen_s >= self._seat_s:
                self._take(held, began_s)
            else:
                self._lose()
            self._problem = ""
        except SeatTakenError:
            self._lose()
        except SeatError as error:
            if not self._problem:
                self._tell(str(error))
            self._problem = str(error)

    def _take(self, held: Held, began_s: float) -> None:
        with self._lock:
            was_mine, is_active = held.holder == self.identity, began_s < self._until_s
            positions = {**held.positions, **self._positions} if is_active else dict(held.positions)
            changes = held.changes + (not is_active)
        mine = Held(holder=self.identity, version=held.version, positions=positions, changes=changes)
        self._store.write(mine)
        again = self._store.read()
        with self._lock:
            if not is_active:
                self._term += 1
                self._was_mine, self._handed = was_mine, dict(held.positions)
                self._positions = dict(held.positions)
            self._seen, self._seen_s = again, began_s
            self._until_s = began_s + self._seat_s * _ACTIVE_SHARE if again.holder == self.identity else float("-inf")
        if not is_active:
            self._tell(
                f"{self.identity} reads the control plane" + ("" if was_mine else f" after {held.holder or 'nobody'}")
            )

    def _lose(self) -> None:
        with self._lock:
            was_active, self._until_s = self._clock() < self._until_s, float("-inf")
        if was_active:
            self._tell(f"{self.identity} is stand-by: another agent has the seat")

    def _run(self) -> None:
        while not self._stopping.is_set():
            self.look()
            self._stopping.wait(self._renew_s)


class Duty(Protocol):
    """What sources ask of the seat."""

    @property
    def term(self) -> int:
        """0 while another one is active."""

    @property
    def why_not(self) -> str:
        """Why this agent is not the active one."""

    @property
    def was_mine(self) -> bool:
        """Whether this agent was the last one before."""

    def handed(self, source: str) -> str | None:
        """How far the last one had read a source."""

    def publish(self, source: str, position: str) -> None:
        """How far a source is read and safe."""

    def start(self) -> None:
        """Look after the seat from now on."""

    def close(self) -> None:
        """Give the seat back."""


class OnlyOne:
    """The seat where there is one agent only."""

    term = 1
    why_not = ""
    was_mine = True

    def handed(self, source: str) -> str | None:
        """Nobody was before."""
        return None

    def publish(self, source: str, position: str) -> None:
        """Nobody comes after."""

    def start(self) -> None:
        """Nothing."""

    def close(self) -> None:
        """Nothing."""
