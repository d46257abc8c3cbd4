"""The node agent at work: read, spool, deliver, until told to stop or until a recorded run has ended."""

import gc
import os
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any, Final

import msgspec

from schemas.clock_notes import read_record
from schemas.records import ClockSample, Progress, SourceProgress
from schemas.topics import key_of
from shippers import claim
from shippers.beacon import Beacons
from shippers.clock import Clock, make_clock
from shippers.config import Config
from shippers.delivery import PROGRESS_EVERY_S, Delivery
from shippers.kmsg_marks import KmsgMarks
from shippers.notify import Notifier
from shippers.pieces import Moment
from shippers.reader import Batch, Reader
from shippers.saying import say
from shippers.signing import load_signer
from shippers.sink import KafkaSink, Sink
from shippers.spool import Spool
from shippers.waiting import Pace, Pause
from shippers.writer import SpoolWriter

STOP_S: Final = 3.0
_AWAY_STOP_S: Final = 0.5  # while Kafka is away: what is in the spool is safe
SAMPLES_EVERY_S: Final = 5.0  # how long clock samples wait for a batch with lines
_FULL_RETRY_S: Final = 1.0
_GC_EVERY: Final = 20_000
_SLEEP_S: Final = 0.1


class Agent:
    """One node's agent on one spool."""

    def __init__(
        self, config: Config, sink: Sink | None = None, tell: Callable[[str], None] = say, clock: Clock | None = None,
        notifier: Notifier | None = None,
    ) -> None:  # fmt: skip
        """Open the spool. Without `clock` it is the one that the settings ask for.

        Raises SpoolLockedError, ConfigError, OSError.
        """
        self._config = config
        self._tell = tell
        self._clock = clock or make_clock(config)
        self._marks = KmsgMarks(self._clock, tell) if config.clock.kmsg_marker and not config.clock.static else None
        signer = load_signer(config.signing)
        self._spool = Spool(
            Path(config.spool.dir), config.spool.max_bytes, max_age_s=3600 * config.spool.max_age_h,
            is_kept=lambda source: self._reader.drops_newest(source), signer=signer,
        )  # fmt: skip
        claim.redaction_key(Path(config.spool.dir))
        self._reader = Reader(
            config, self._clock, self._spool.positions, self._spool.next_line_seq, self._marks, signer,
            may_hang=config.clock.static is None and not config.end_file,
        )  # fmt: skip
        self._control = self._reader.control
        self._writer = SpoolWriter(self._spool, self._reader, tell)
        sink = sink or KafkaSink(config.kafka, key_of(config.run, config.run_id, config.cluster, config.reporter))
        self._delivery = Delivery(self._spool, sink, self._clock, tell, signer)
        self._beacons: Beacons | None = None
        if config.clock.beacon and config.clock.static is None:
            self._beacons = Beacons(config, self._clock, self._spool.shipper_id, tell)
        self._notifier = notifier or Notifier()
        self._last_progress: Progress | None = None
        self._pause = Pause()
        self._samples_sent_s = self._progress_offered_s = float("-inf")
        self._pace = Pace(config.batch.linger_ms / 1000, time.monotonic())

    def wrap_sources(self, around: Callable[[Any], Any]) -> None:
        """Put something around every source; before `run`."""
        self._reader.wrap(around)

    def source_progress(self) -> list[SourceProgress]:
        """How far all sources are read."""
        return self._reader.source_progress()

    def request_stop(self) -> None:
        """End soon; safe in a signal handler."""
        self._pause.end()

    def run(self) -> bool:
        """Work until told to stop, or until the end file exists and all is read. Whether all was delivered."""
        self._delivery.start()
        if self._control is not None:
            self._control.start()
        if self._beacons is not None:
            self._beacons.start()
        try:
            self._put_record()
            has_ended = False
            while not self._pause.has_ended and not has_ended:
                has_ended = self._pass()
                self._notifier.beat(self._status)
                if self._delivery.failure is not None:
                    raise self._delivery.failure
            return self._finish(has_ended=has_ended)
        finally:
            self._reader.close()
            self._note_control()
            if self._control is not None:
                self._control.close()
            self._spool.close()
            self._pause.close()

    def _put_record(self) -> None:
        """What was recorded of the clocks before, ahead of all lines; once."""
        path = self._config.clock.record
        if not path or self._spool.durable_seq:
            return
        recorded = read_record(Path(path), self._config.reporter)
        following = self._reader.next_line_seq
        for number, note in enumerate(recorded.notes, 1):
            self._writer.put(Batch(note=note, lines=note.lines(number), samples=note.samples, next_line_seq=following))
        if recorded.gaps:
            self._writer.put(Batch(gaps=recorded.gaps, next_line_seq=following))

    def _pass(self) -> bool:
        """Read what is new once. Whether a recorded run has been read to its end."""
        if not self._writer.flush():
            self._offer_progress()
            self._pause.wait(_FULL_RETRY_S)
            return False
        moment = self._moment()
        read_bytes = 0
        is_idle, has_lines = True, False
        for batch in self._reader.read_pass(moment):
            is_idle = False
            has_lines |= bool(batch.lines or batch.gaps)
            read_bytes += batch.size + batch.passed_over
            self._writer.put(self._with_extras(batch))
        self._put_extras()
        if self._marks is not None:
            self._marks.mark_if_due()  # the next pass reads it: the first one may pass over all that is in the ring
        is_written = self._writer.flush()
        self._note_control()
        self._offer_progress()
        if moment.ending:
            return is_idle and is_written
        if read_bytes < self._config.batch.bytes:
            self._linger(has_lines=has_lines)
        return False

    @property
    def _speaks(self) -> bool:
        """Whether progress is this agent's to send: of several that read one control plane, the active one's."""
        return self._control is None or self._control.is_active

    def _note_control(self) -> None:
        if self._control is not None:
            self._control.note(self._spool.positions, self._spool.durable_seq, self._spool.acked_seq)

    def _linger(self, *, has_lines: bool) -> None:
        """Until the next pass."""
        pause_s = self._pace.after_pass(time.monotonic(), has_lines=has_lines)
        if pause_s <= _SLEEP_S:
            time.sleep(pause_s)  # a stop is seen soon enough
            return
        is_woken = self._pause.wait(pause_s, self._reader.descriptors(with_journal=self._pace.hears_journal))
        self._pace.was_woken = is_woken
        if is_woken and not self._pause.has_ended:
            time.sleep(self._config.batch.linger_ms / 1000)  # lines seldom come alone, and each pass has its price

    def _moment(self) -> Moment:
        # Looked for before the pass: all that was written before the end file was made is then read.
        end_file = self._config.end_file
        is_ending = bool(end_file) and os.path.exists(end_file)  # noqa: PTH110 (a path object costs ten times as much)
        return self._clock.moment(ending=is_ending)

    def _status(self) -> str:
        """For `systemctl status`."""
        if self._writer.full_reason is not None:
            return self._writer.full_reason
        away = "Kafka does not answer, " if self._delivery.is_away else ""
        return f"{away}{self._spool.backlog_bytes:,} bytes wait in the spool"

    def _finish(self, *, has_ended: bool) -> bool:
        self._notifier.stopping()
        if self._beacons is not None:
            self._beacons.stop()
        self._put_extras(is_last=True)
        if self._writer.flush() and self._speaks:
            progress = self._reader.progress(self._spool.shipper_id, self._spool.durable_seq)
            if has_ended:
                self._wait_for_delivery()
                progress = msgspec.structs.replace(progress, last_batch_seq=self._spool.durable_seq)
            self._delivery.offer(msgspec.structs.replace(progress, ended=has_ended))
        is_done = self._delivery.stop(_AWAY_STOP_S if self._delivery.is_away else STOP_S)
        if self._delivery.failure is not None:
            raise self._delivery.failure
        if not is_done:
            self._tell(f"stopped with {self._spool.backlog_bytes} bytes in the spool; the next start sends them")
        return is_done

    def _wait_for_delivery(self) -> None:
        """A recorded run ends when Kafka has all of it, however long that takes."""
        while self._spool.acked_seq < self._spool.durable_seq and not self._pause.has_ended:
            self._put_extras()
            self._writer.flush()
            self._notifier.beat(self._status)
            self._pause.wait(0.02)
            if self._delivery.failure is not None:
                return

    def _with_extras(self, batch: Batch) -> Batch:
        """The batch with gap markers and clock samples that wait."""
        if batch.is_worth_sending():
            batch.gaps.extend(self._spool.take_found_gaps())
            batch.gaps.extend(self._delivery.take_lost())
            batch.samples.extend(self._take_samples())
        return batch

    def _put_extras(self, *, is_last: bool = False) -> None:
        """Gap markers, and clock samples that no lines came with for seconds, in a batch of their own."""
        gaps = self._spool.take_found_gaps() + self._delivery.take_lost()
        is_due = is_last or time.monotonic() - self._samples_sent_s >= SAMPLES_EVERY_S
        samples = self._take_samples() if gaps or is_due else []
        if gaps or samples:
            self._writer.put(Batch(gaps=gaps, samples=samples, next_line_seq=self._reader.next_line_seq))

    def _take_samples(self) -> list[ClockSample]:
        samples = self._beacons.take_samples() if self._beacons is not None else []
        if samples:
            self._samples_sent_s = time.monotonic()
        return samples

    def _offer_progress(self) -> None:
        now_s = time.monotonic()
        if not self._speaks:
            self._delivery.forget()
            return
        if now_s - self._progress_offered_s < PROGRESS_EVERY_S / 2:
            return
        self._progress_offered_s = now_s
        if self._writer.full_reason is None:
            progress = self._reader.progress(self._spool.shipper_id, self._spool.durable_seq)
            self._last_progress = progress
        elif self._last_progress is not None:
            progress = _paused(self._last_progress, self._writer.full_reason)
        else:
            return
        self._delivery.offer(progress)


def look_seldom_for_cycles() -> None:
    """For a process that is an agent: lines and batches hold values only, and new cycles are few."""
    gc.freeze()
    gc.set_threshold(_GC_EVERY, 20, 20)


def _paused(progress: Progress, reason: str) -> Progress:
    """The same, with all that was being read now off."""
    sources = [
        msgspec.structs.replace(source, state="off", reason=reason, at_end=False) if source.state == "on" else source
        for source in progress.sources
    ]
    return msgspec.structs.replace(progress, sources=sources)
