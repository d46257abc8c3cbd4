"""The clocks of one node on the reference timeline: from stamps of its wall clock and its kernel log to certain bounds.

Wall clock -> raw clock by the history of both, kernel log -> raw clock by its own relation, raw clock -> a broker's
clock by the beacons. The reference is the broker with the lowest id that the node has measured.
"""

from collections.abc import Iterable, Iterator
from typing import Final

from msgspec import Struct, field

from pipeline.core.clocks.history import History, Span
from pipeline.core.clocks.relation import Relation
from pipeline.core.clocks.track import USELESS_NS, Offset, Segment, Track
from schemas.records import TIME_MAX_NS, TIME_MIN_NS, ClockReading, ClockSample
from schemas.vocabulary import Quality

# Lines of one file are written in their order but for what several writers hold back.
ORDER_NS: Final = 2_000_000_000
# CLOCK_BOOTTIME counts a suspend, CLOCK_MONOTONIC does not. Readings are that far apart at most.
SUSPEND_NS: Final = 5_000_000
# A raw clock beyond 9 years of uptime is none: what is worked out from it must fit into 64 bits.
RAW_MAX_NS: Final = 2**58
# Clocks of one host are read together, within this.
WIDEST_NS: Final = 10_000_000_000
# An agent measures the leaders of three partitions, which move to other brokers.
TRACKS: Final = 12
# No host starts again sooner; clocks of brokers are set back by less.
REBOOT_NS: Final = 10_000_000_000
# Boots of which lines may still come.
BOOTS: Final = 2
READ_MARKS: Final = 16
# Lines that come hours late (a spool, an old log at first sight) are placed by segments that are so far apart.
KEEP_EVERY_NS: Final = 600_000_000_000
KEPT_SEGMENTS: Final = 24
_WORST: Final[dict[Quality, int]] = {"good": 0, "holdover": 1, "stepped": 2, "none": 3}


class Placed(Struct, frozen=True, kw_only=True):
    """A moment: in [raw_lo_ns, raw_hi_ns] on the raw clock of a boot, in [lo_ns, hi_ns] on the reference timeline.

    `stretch` names the boot and the count of steps of the wall clock; empty where the moment has several.
    """

    raw_lo_ns: int
    raw_hi_ns: int
    stretch: str
    boot_id: str
    at_ns: int
    lo_ns: int
    hi_ns: int
    u99_ns: int
    quality: Quality
    epoch: int
    broker_id: int


class Closed(Struct, frozen=True, kw_only=True):
    """A closed segment of one boot and broker, with what the wall clock did in it."""

    boot_id: str
    broker_id: int
    segment: Segment
    wall_offset_ns: int | None
    wall_step_ns: int


class BootClock(Struct, kw_only=True):
    """What is known of the clocks of one boot. `number` counts the boots of the node."""

    boot_id: str
    number: int = 0
    wall: History = field(default_factory=History)
    kernel: Relation = field(default_factory=Relation)
    tracks: dict[int, Track] = field(default_factory=dict)
    # Raw times up to which the kernel log had been read to its end.
    read_ns: list[int] = field(default_factory=list)
    # Segments of each broker further apart than those that its track keeps.
    kept: dict[int, list[Segment]] = field(default_factory=dict)
    asleep_ns: int | None = None
    # Raw time of the last reading before a suspend: nothing measured before it holds after it.
    woken_from_ns: int | None = None
    step_ns: int = 0

    def hear(self, reading: ClockReading, samples: Iterable[ClockSample]) -> None:
        """Take a reading of all clocks, and beacons."""
        last_ns, is_one = self.wall.last_ns, _is_possible(reading)
        if is_one and reading.raw_ns > (last_ns or 0):
            asleep_ns = reading.boottime_ns - reading.mono_ns
            if self.asleep_ns is not None and asleep_ns - self.asleep_ns > SUSPEND_NS:
                self.woken_from_ns = last_ns
                # printk's clock may have counted the sleep.
                self.kernel, self.read_ns = Relation(), []
            self.asleep_ns = asleep_ns
        if is_one:
            self.step_ns += self.wall.note(reading.raw_ns, reading.wall_ns, reading.width_ns)
        for sample in samples:
            if sample.broker_id >= 0 and sample.t1_ns < RAW_MAX_NS:
                self._track(sample.broker_id).update(sample)

    def is_before(self, samples: Iterable[ClockSample]) -> bool:
        """Whether beacons were sent later and yet at earlier raw times: of another boot, by a host that names none."""
        for sample in samples:
            known = self.tracks.get(sample.broker_id)
            if known is None or not known.samples or not 0 <= sample.t0_ns <= sample.t1_ns < known.newest_ns:
                continue
            if TIME_MAX_NS > sample.broker_time_ms * 1_000_000 > known.samples[-1][2] + REBOOT_NS:
                return True
        return False

    def _track(self, broker_id: int) -> Track:
        """The track of a broker. Where there are too many the one that was not heard of for longest goes."""
        found = self.tracks.get(broker_id)
        if found is None:
            if len(self.tracks) >= TRACKS:
                oldest = min(self.tracks, key=lambda each: self.tracks[each].newest_ns)
                del self.tracks[oldest]
                self.kept.pop(oldest, None)
            found = self.tracks[broker_id] = Track()
        return found

    def offset(self, raw_ns: int) -> tuple[int, Offset] | None:
        """The reference broker and its offset at a raw time."""
        for broker_id in sorted(self.tracks):
            track = self.tracks[broker_id]
            if self._is_interrupted(track, raw_ns):
                continue
            found = self._at(broker_id, raw_ns)
            if found is not None:
                return broker_id, found
        return None

    def led_on_ns(self, raw_ns: int) -> int | None:
        """Reference minus raw clock as the last beacon before a moment leads to it, if the node has not slept since."""
        for broker_id in sorted(self.tracks):
            track = self.tracks[broker_id]
            if track.samples and track.newest_ns <= raw_ns and not self._is_interrupted(track, raw_ns):
                return track.led_on_ns(raw_ns)
        return None

    def _at(self, broker_id: int, raw_ns: int) -> Offset | None:
        """The offset to a broker; of a moment that the track has forgotten by the first of the kept segments after it.

        Every epoch has its first segment kept, so that nothing is led back over a step.
        """
        track, kept = self.tracks[broker_id], self.kept.get(broker_id, [])
        is_forgotten = bool(track.segments) and raw_ns < track.segments[0].t_from_ns
        after = next((s for s in kept if raw_ns < s.t_to_ns), None) if is_forgotten else None
        if after is None:
            return track.at(raw_ns)
        if after.epoch and not any(s.epoch == after.epoch and s.t_from_ns <= raw_ns for s in kept):
            return None
        found = after.at(raw_ns)
        return found if found.hi_ns - found.lo_ns <= 2 * USELESS_NS else None

    def _keep(self, broker_id: int, segment: Segment) -> None:
        kept = self.kept.setdefault(broker_id, [])
        if not kept or segment.epoch != kept[-1].epoch or segment.t_from_ns - kept[-1].t_from_ns >= KEEP_EVERY_NS:
            kept.append(segment)
            del kept[:-KEPT_SEGMENTS]

    def _is_interrupted(self, track: Track, raw_ns: int) -> bool:
        """Whether the node slept between the newest beacon and this moment."""
        woken_ns = self.woken_from_ns
        return woken_ns is not None and bool(track.samples) and track.newest_ns <= woken_ns < raw_ns

    def place(self, spans: list[Span], chosen: Span) -> Placed | None:
        """A moment that lies in one of the spans, most likely in the chosen one."""
        raw_lo_ns, raw_hi_ns = min(span.lo_ns for span in spans), max(span.hi_ns for span in spans)
        first, last, best = self.offset(raw_lo_ns), self.offset(raw_hi_ns), self.offset(chosen.middle_ns)
        if first is None or last is None or best is None or not first[0] == last[0] == best[0]:
            return None
        lo_ns = raw_lo_ns + min(first[1].lo_ns, last[1].lo_ns)
        hi_ns = raw_hi_ns + max(first[1].hi_ns, last[1].hi_ns)
        if lo_ns > TIME_MAX_NS or hi_ns < TIME_MIN_NS:
            return None
        quality = max((each[1].quality for each in (first, last, best)), key=_WORST.__getitem__)
        return Placed(
            raw_lo_ns=raw_lo_ns, raw_hi_ns=raw_hi_ns,
            stretch=f"{self.number}.{chosen.steps}" if len(spans) == 1 and chosen.steps is not None else "",
            boot_id=self.boot_id, at_ns=min(max(chosen.middle_ns + best[1].offset_ns, lo_ns), hi_ns),
            lo_ns=lo_ns, hi_ns=hi_ns, u99_ns=best[1].u99_ns + (raw_hi_ns - raw_lo_ns) // 2, quality=quality,
            epoch=last[1].epoch, broker_id=best[0],
        )  # fmt: skip

    def place_one(self, lo_ns: int, hi_ns: int) -> Placed | None:
        """A moment between two raw times."""
        span = Span(lo_ns=lo_ns, hi_ns=hi_ns)
        return self.place([span], span)

    def close(self, raw_ns: int) -> Iterator[Closed]:
        """Segments that have ended by a raw time."""
        for broker_id in sorted(self.tracks):
            for segment in self.tracks[broker_id].close(raw_ns):
                self._keep(broker_id, segment)
                shown = self.wall.shown_at(segment.t_to_ns - 1)
                offset_ns = segment.at(segment.t_to_ns - 1).offset_ns
                yield Closed(
                    boot_id=self.boot_id, broker_id=broker_id, segment=segment,
                    wall_offset_ns=None if shown is None else segment.t_to_ns - 1 + offset_ns - shown.ns,
                    wall_step_ns=self.step_ns,
                )  # fmt: skip
                self.step_ns = 0


class NodeClock(Struct, kw_only=True):
    """The clocks of a node over its last boots, newest first."""

    boots: list[BootClock] = field(default_factory=list)

    @property
    def is_measured(self) -> bool:
        """Whether a broker's clock was measured in this boot."""
        return bool(self.boots) and bool(self.boots[0].tracks)

    @property
    def is_known(self) -> bool:
        """Whether the last reading can be placed: it was measured, and not too long ago."""
        boot = self.boots[0] if self.boots else None
        return boot is not None and boot.wall.last_ns is not None and boot.offset(boot.wall.last_ns) is not None

    def hear(self, boot_id: str, reading: ClockReading, samples: Iterable[ClockSample] = ()) -> list[Closed]:
        """Take what a batch or a progress record says of the clocks; the segments that have ended by it."""
        boot, samples = self.boot(boot_id), list(samples)
        if boot is not None and boot.is_before(samples):
            boot.boot_id, boot = f"{boot_id}#{boot.number}", None
        if boot is None:
            number = self.boots[0].number + 1 if self.boots else 0
            boot = BootClock(boot_id=boot_id, number=number)
            self.boots.insert(0, boot)
            del self.boots[BOOTS:]
        boot.hear(reading, samples)
        return list(boot.close(min(reading.raw_ns, RAW_MAX_NS)))

    def boot(self, boot_id: str) -> BootClock | None:
        """What is known of one boot."""
        return next((boot for boot in self.boots if boot.boot_id == boot_id), None)

    def wall(
        self, shown_ns: int, resolution_ns: int = 0, *, since: tuple[int, int] | None = None,
        until: tuple[str, int] | None = None,
    ) -> Placed | None:  # fmt: skip
        """The moment in which the wall clock showed this, give or take what the stamp leaves out.

        `since`: boot number and raw time of the line before it in its file; `until`: boot id and raw time when it had
        been read.
        """
        for boot in self.boots:
            spans = boot.wall.raw_of(shown_ns, resolution_ns)
            if until is not None and until[0] == boot.boot_id:
                spans = [span for span in spans if span.lo_ns <= until[1]]
            if since is not None and since[0] == boot.number:
                spans = [span for span in spans if span.hi_ns >= since[1] - ORDER_NS] or spans
            if spans:
                return boot.place(spans, spans[-1])
        return None

    def kernel(self, boot_id: str, stamp_ns: int) -> Placed | None:
        """The moment of a stamp of the kernel log (ns since boot)."""
        boot = self.boot(boot_id)
        found = None if boot is None else boot.kernel.raw_of(stamp_ns)
        return None if boot is None or found is None else boot.place_one(*found)

    def guess(self, shown_ns: int) -> tuple[int, int, str] | None:
        """Reference minus wall clock (ns) where no measurement holds any more or yet; how far off that may be besides,
        because of what is no longer kept of the wall clock (ns); and which stretch of that it is.

        It goes by the last beacon where a reading tells how the wall clock was set since; else by what it was off when
        measured first, or last for later times. The stretch is named as in `Placed`.
        """
        for boot in self.boots:
            spans = boot.wall.raw_of(shown_ns)
            raw_ns = spans[0].middle_ns if spans else 0
            offset_ns = boot.led_on_ns(raw_ns) if spans else None
            if offset_ns is not None:
                is_one = len(spans) == 1 and spans[0].steps is not None
                return raw_ns + offset_ns - shown_ns, 0, f"{boot.number}.{spans[0].steps}" if is_one else ""
        found = self._wall_offset_ns(shown_ns)
        has_one = len(self.boots) == 1 and self.boots[0].wall.steps == 0
        return None if found is None else (*found, f"{self.boots[0].number}.0" if has_one else "")

    def _wall_offset_ns(self, shown_ns: int) -> tuple[int, int] | None:
        for boot in self.boots:
            ends = [boot.wall.stretches[0], boot.wall.stretches[-1]] if boot.wall.stretches else []
            if ends and shown_ns > ends[1].to_ns + ends[1].to_ahead_ns:
                ends.reverse()
            for stretch in ends:
                found = boot.offset(stretch.to_ns)
                if found is not None:
                    lost, ahead_ns = boot.wall.lost, stretch.to_ahead_ns
                    off_ns = 0 if lost is None else max(lost.most_ns - ahead_ns, ahead_ns - lost.least_ns, 0)
                    return found[1].offset_ns - ahead_ns, off_ns
        return None

    def note_read(self, boot_id: str, wall_ns: int) -> None:
        """The kernel log had been read to its end at a time of the wall clock."""
        boot = self.boot(boot_id)
        spans = [] if boot is None else boot.wall.raw_of(wall_ns)
        if boot is not None and len(spans) == 1:
            boot.read_ns.append(spans[0].lo_ns)
            del boot.read_ns[:-READ_MARKS]

    def note_kernel(self, boot_id: str, stamp_ns: int, read_wall_ns: int, mark: tuple[int, int] | None) -> None:
        """A line of the kernel log and when it was read (wall clock); `mark`: raw times around its making, if known."""
        boot = self.boot(boot_id)
        if boot is None:
            return
        if mark is not None:
            boot.kernel.note(stamp_ns, *mark)
            return
        spans = boot.wall.raw_of(read_wall_ns)
        before = [at_ns for at_ns in boot.read_ns if spans and at_ns <= spans[0].hi_ns]
        if len(spans) == 1 and before:
            boot.kernel.note(stamp_ns, max(before), spans[0].hi_ns)


def _is_possible(reading: ClockReading) -> bool:
    """Whether a reading may be one. A wall clock may be far off, but not beyond what times there are."""
    return (
        0 < reading.raw_ns < RAW_MAX_NS and 0 <= reading.width_ns <= WIDEST_NS
        and TIME_MIN_NS <= reading.wall_ns <= TIME_MAX_NS
    )  # fmt: skip
