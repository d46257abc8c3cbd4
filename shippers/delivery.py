"""The thread that takes batches from the spool, sends them one after another, and sends progress behind them."""

import threading
import time
from collections import deque
from collections.abc import Callable
from typing import Final

import msgspec

from schemas import codec
from schemas.records import Gap, Progress
from schemas.topics import RAW
from shippers.clock import Clock
from shippers.losses import losses_by_source
from shippers.saying import say
from shippers.segment import Entry
from shippers.signing import Signer
from shippers.sink import RecordRefusedError, Sink, SinkUnavailableError
from shippers.spool import Spool
from shippers.unwritable import encode_progress

PROGRESS_EVERY_S: Final = 0.9
SAY_AFTER_S: Final = 3.0
_BACKOFF_S: Final = (0.1, 0.2, 0.5, 1.0, 2.0, 5.0)
_OFFERS_KEPT: Final = 8
_SLICE_S: Final = 0.1


class Delivery:
    """Sends what is in the spool. A sink that is away is waited for, said once, and said once when it is back.

    Progress is offered together with the batches that it covers and sent only after they are acknowledged; while
    they are not, the last covered one is sent again, so that the node is not taken for dead.
    """

    def __init__(
        self, spool: Spool, sink: Sink, clock: Clock, tell: Callable[[str], None] = say, signer: Signer | None = None
    ) -> None:
        self._spool = spool
        self._sink = sink
        self._clock = clock
        self._tell = tell
        self._signer = signer
        self._offers: deque[Progress] = deque()
        self._covered: Progress | None = None
        self._lost: list[Gap] = []
        self._taken_at_seq = 0
        self._lock = threading.Lock()
        self._stopping = threading.Event()
        self._deadline_s = float("inf")
        self._sent_progress_s = float("-inf")
        self.is_away = False
        self.is_finished = threading.Event()
        self.failure: BaseException | None = None
        self._thread = threading.Thread(target=self._run, name="delivery", daemon=True)

    def start(self) -> None:
        """Begin."""
        self._thread.start()

    def offer(self, progress: Progress) -> None:
        """A progress record to be sent when the batches up to its `last_batch_seq` are."""
        with self._lock:
            self._offers.append(progress)
            if len(self._offers) > _OFFERS_KEPT:
                del self._offers[_OFFERS_KEPT // 2]

    def forget(self) -> None:
        """What was offered is no longer this agent's to say."""
        with self._lock:
            self._offers.clear()
            self._covered = None

    def take_lost(self) -> list[Gap]:
        """Gap markers for batches that the sink refused, to be put into the next batch. Each is given once."""
        with self._lock:
            if self._lost:
                self._taken_at_seq = self._spool.durable_seq
            lost, self._lost = self._lost, []
        return lost

    def stop(self, timeout_s: float) -> bool:
        """Send what is left, then the last progress, for at most `timeout_s`. Whether all was sent."""
        self._deadline_s = time.monotonic() + timeout_s
        self._stopping.set()
        self._spool.wake()
        self._thread.join(timeout_s + 2)
        return self.is_finished.is_set()

    def _run(self) -> None:
        try:
            self._deliver_all()
        except BaseException as error:  # looked at by the thread that reads
            self.failure = error
        finally:
            self._sink.close()

    def _deliver_all(self) -> None:
        while not self._is_late():
            entry = self._spool.take(0 if self._stopping.is_set() else self._idle_s())
            if entry is not None:
                self._deliver(entry)
            is_last = entry is None and self._stopping.is_set()
            if (is_last or self._is_progress_due()) and self._send_progress() and is_last:
                self.is_finished.set()
                return

    def _deliver(self, entry: Entry) -> None:
        try:
            if self._send(entry.payload):
                self._spool.acknowledge(entry)
        except RecordRefusedError as refusal:
            self._give_up(entry, str(refusal))

    def _send(self, value: bytes) -> bool:
        """Send until it is safe. False if the time to stop has come before."""
        attempt = 0
        while not self._is_late():
            began_s = time.monotonic()
            try:
                pending = self._sink.send(value)
                while not pending.wait(_SLICE_S):
                    if self._is_late():
                        return False
                    if time.monotonic() - began_s > SAY_AFTER_S:
                        self._say_away("Kafka does not acknowledge")
                self._say_back()
                return True
            except SinkUnavailableError as error:
                self._say_away(str(error))
                self._pause(_BACKOFF_S[min(attempt, len(_BACKOFF_S) - 1)])
                attempt += 1
        return False

    def _pause(self, seconds: float) -> None:
        until_s = min(time.monotonic() + seconds, self._deadline_s)
        while (left_s := min(until_s, self._deadline_s) - time.monotonic()) > 0:
            time.sleep(min(left_s, _SLICE_S))

    def _say_away(self, text: str) -> None:
        if not self.is_away:
            self.is_away = True
            self._tell(f"{text}; batches are kept in the spool until it answers")

    def _say_back(self) -> None:
        if self.is_away:
            self.is_away = False
            self._tell("Kafka answers again; sending what was kept")

    def _give_up(self, entry: Entry, reason: str) -> None:
        """Replace a batch that is refused for ever by gap markers, and wait until those are on disk."""
        self._tell(f"batch {entry.batch_seq} is refused and given up: {reason}")
        lost = losses_by_source([codec.decode(RAW.name, entry.payload)], f"Kafka refused the batch: {reason}")
        with self._lock:
            self._lost.extend(lost)
        while not (is_told := self._is_lost_told()) and not self._is_late():
            time.sleep(_SLICE_S / 10)
        if is_told:
            self._spool.acknowledge(entry)

    def _is_lost_told(self) -> bool:
        """Whether the gap markers were taken, and what they were put into is on disk."""
        with self._lock:
            return not self._lost and self._spool.durable_seq > self._taken_at_seq

    def _idle_s(self) -> float:
        """How long to wait for a batch: until progress is due."""
        due_s = self._sent_progress_s + PROGRESS_EVERY_S - time.monotonic()
        return max(due_s, _SLICE_S / 10) if due_s > 0 else _SLICE_S

    def _is_progress_due(self) -> bool:
        return time.monotonic() - self._sent_progress_s >= PROGRESS_EVERY_S

    def _send_progress(self) -> bool:
        """Send the newest progress that is covered. Whether nothing that was offered is left."""
        acked = self._spool.acked_seq
        with self._lock:
            if self._covered is None and self._offers:
                self._covered = _nothing_read(self._offers[0])
            while self._offers and self._offers[0].last_batch_seq <= acked:
                self._covered = self._offers.popleft()
            is_all = not self._offers
        if self._covered is None:
            return is_all
        now = msgspec.structs.replace(
            self._covered, clock=self._clock.read(), clock_claim=self._clock.claim(), last_batch_seq=acked,
            spool_backlog_bytes=self._spool.backlog_bytes, key_id=self._signer.key_id if self._signer else None,
        )  # fmt: skip
        self._sent_progress_s = time.monotonic()
        try:
            data = encode_progress(now)
            sent = self._send(self._signer.signed(data) if self._signer else data)
        except RecordRefusedError as refusal:
            self._tell(f"a progress record is refused: {refusal}")
            return is_all
        return sent and is_all

    def _is_late(self) -> bool:
        return time.monotonic() >= self._deadline_s


def _nothing_read(progress: Progress) -> Progress:
    """The same, before any of the batches it covers is known to have arrived."""
    sources = [msgspec.structs.replace(source, read_through_unix_nano=0, at_end=False) for source in progress.sources]
    return msgspec.structs.replace(progress, sources=sources, ended=False)
