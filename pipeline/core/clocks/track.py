"""The clock of one node (and boot) against one broker: samples in, certain bounds of the offset out.

A sample says: sent at raw time t0, acknowledged at t1, stamped T in between, when the broker's clock showed T to T +
quantum. Both clocks run forward, so offset(t0) < T + quantum - t0 and offset(t1) >= T - t1, however slow it all was.
Offsets are reference minus raw clock (CLOCK_MONOTONIC_RAW), ns. Bounds are certain while the drift stays within
`polygon.DRIFT_MAX` and changes by at most `polygon.KAPPA`; a step, which breaks this, makes the bounds contradict each
other, and begins a new epoch.
"""

from math import ceil, floor
from typing import Final

from msgspec import Struct, field

from pipeline.core.clocks import buckets, polygon
from pipeline.core.clocks.kalman import Kalman
from pipeline.core.clocks.polygon import Hull, Point, Polygon, bend, lower_hull
from pipeline.core.clocks.spread import Spread
from schemas.records import TIME_MAX_NS, ClockSample
from schemas.vocabulary import Quality

SECOND_NS: Final = 1_000_000_000
SEGMENT_NS: Final = 16 * SECOND_NS
FRESH_NS: Final = 10 * SECOND_NS  # after so long without a sample it is holdover
USELESS_NS: Final = SECOND_NS  # half-width beyond which nothing is said
QUANTUM_NS: Final = 1_000_000

_SAMPLES_KEPT: Final = 16
_SEGMENTS_KEPT: Final = 20
_REBASE_NS: Final = 512 * SECOND_NS  # so far from the origin floats still hold curvature terms to a fraction of a ns
_ABSURD_MS: Final = TIME_MAX_NS // 1_000_000  # the year 2116; what is worked out of later ones may not fit into 64 bits
_SENTINEL_MS: Final = 1
_MANY_CORNERS: Final = 24
_SLOWEST_NS: Final = 120 * SECOND_NS


class Offset(Struct, frozen=True, kw_only=True):
    """Reference minus raw clock at one raw time: best value, certain bounds (absolute), and the bound of 99 in 100."""

    offset_ns: int
    lo_ns: int
    hi_ns: int
    u99_ns: int
    quality: Quality
    epoch: int


class Segment(Struct, frozen=True, kw_only=True, array_like=True):
    """Reference = raw + a_ns + b_ppb * (raw - t_from_ns) / 1e9 for raw in [t_from_ns, t_to_ns).

    The truth is certain to be within [lo_ns, hi_ns] of that (lo <= 0 <= hi), the drift within [b_lo_ppb, b_hi_ppb].
    """

    t_from_ns: int
    t_to_ns: int
    a_ns: int
    b_ppb: int
    lo_ns: int
    hi_ns: int
    u99_ns: int
    b_lo_ppb: int
    b_hi_ppb: int
    quality: Quality
    epoch: int

    def at(self, raw_ns: int) -> Offset:
        """The offset within the segment; before it, as far as the drift may have led."""
        offset = self.a_ns + self.b_ppb * (raw_ns - self.t_from_ns) // SECOND_NS
        lo, hi, quality = self.lo_ns, self.hi_ns, self.quality
        if (before := self.t_from_ns - raw_ns) > 0:
            more = bend(before) + 1
            lo -= ceil((self.b_hi_ppb - self.b_ppb) * before / SECOND_NS + more)
            hi += ceil((self.b_ppb - self.b_lo_ppb) * before / SECOND_NS + more)
            quality = "holdover" if before > FRESH_NS else quality
        u99 = self.u99_ns * max(hi - lo, 1) // max(self.hi_ns - self.lo_ns, 1)
        return Offset(
            offset_ns=offset, lo_ns=offset + lo, hi_ns=offset + hi, u99_ns=u99, quality=quality, epoch=self.epoch
        )


class Track(Struct):
    """State of one node, boot and broker; as JSON at most 8 KB. What it answers follows from its fields alone."""

    quantum_ns: int = QUANTUM_NS
    epoch: int = 0
    samples: list[tuple[int, int, int]] = []  # the last ones: t0, t1 (raw), stamp, ns
    segments: list[Segment] = []  # the newest closed ones
    unsent: int = 0  # how many of them `close` has not returned yet
    open_from_ns: int = 0  # raw time up to which everything is closed
    # From here on in ns from an origin: raw time and offset.
    origin_raw_ns: int = 0
    origin_ns: int = 0
    upper: list[Point] = []  # bent upper bounds by time, the best of each bucket
    lower: list[Point] = []  # bent and negated lower ones
    solved: float = 0.0  # time of the polygon: that of the newest sample
    top: list[Point] = []
    bottom: list[Point] = []
    best: float = 0.0  # offset and drift, best values
    drift: float = 0.0
    kalman: Kalman | None = None
    spread: Spread = field(default_factory=Spread)

    def update(self, sample: ClockSample) -> None:
        """Take in a sample. One that cannot be, or is older than the newest, is ignored."""
        if not self._is_news(sample):
            return
        new = (sample.t0_ns, sample.t1_ns, sample.broker_time_ms * 1_000_000)
        if not self.samples:
            self._begin(new)
        elif new[1] - self.origin_raw_ns > _REBASE_NS:
            self._rebase(new[1])
        t = float(new[1] - self.origin_raw_ns)
        if self.samples and self.spread.expects(t):
            lo, hi = polygon.bounds(self.top, self.bottom, t - self.solved)
            self.spread.await_(t, min(max(self.best + self.drift * (t - self.solved), lo), hi), (hi - lo) / 2)
        self._add(new)
        self.samples.append(new)
        del self.samples[:-_SAMPLES_KEPT]
        upper, lower = lower_hull(self.upper), lower_hull(self.lower)
        found = polygon.solve(upper, lower, t)
        if found is None:
            self._step()
            return
        self._take(found, new)
        self._judge(upper, lower)

    @property
    def newest_ns(self) -> int:
        """Raw time of the newest sample; 0 without one."""
        return self.samples[-1][1] if self.samples else 0

    def close(self, raw_ns: int) -> list[Segment]:
        """Close the spans that ended at or before raw_ns, once a sample behind them, or none for long, says so.

        Returns what was not returned before: these, and what a step closed.
        """
        if self.samples:
            sure_ns = min(raw_ns, max(self.samples[-1][0], raw_ns - FRESH_NS))
            self._close_until(sure_ns // SEGMENT_NS * SEGMENT_NS)
        closed = self.segments[len(self.segments) - self.unsent :]
        self.unsent = 0
        del self.segments[:-_SEGMENTS_KEPT]
        return closed

    def at(self, raw_ns: int) -> Offset | None:
        """The offset at a raw time; None where nothing is known to a second."""
        if raw_ns < self.open_from_ns and self.segments:
            return self._closed_at(raw_ns)
        if not self.samples:
            return None
        t = float(raw_ns - self.origin_raw_ns)
        lo, hi = polygon.bounds(self.top, self.bottom, t - self.solved)
        half = (hi - lo) / 2
        if half > USELESS_NS:
            return None
        best = min(max(self.best + self.drift * (t - self.solved), lo), hi)
        is_far = t - self.solved > FRESH_NS or self.upper[0][0] - t > FRESH_NS
        return Offset(
            offset_ns=self.origin_ns + round(best), lo_ns=self.origin_ns + floor(lo) - 1,
            hi_ns=self.origin_ns + ceil(hi) + 1, u99_ns=self.spread.u99(half, max(hi - best, best - lo)),
            quality="holdover" if is_far else "good", epoch=self.epoch,
        )  # fmt: skip

    def led_on_ns(self, raw_ns: int) -> int:
        """The offset (ns) at a time after the newest sample as its drift leads there, however uncertain that is."""
        return self.origin_ns + round(self.best + self.drift * (raw_ns - self.origin_raw_ns - self.solved))

    def _closed_at(self, raw_ns: int) -> Offset | None:
        for segment in reversed(self.segments):
            if segment.t_from_ns <= raw_ns:
                return segment.at(raw_ns) if raw_ns < segment.t_to_ns else None
        oldest = self.segments[0]
        found = oldest.at(raw_ns)
        return None if oldest.quality == "stepped" or found.hi_ns - found.lo_ns > 2 * USELESS_NS else found

    def _is_news(self, sample: ClockSample) -> bool:
        if not 0 <= sample.t1_ns - sample.t0_ns <= _SLOWEST_NS or sample.t0_ns < 0:
            return False
        if not _SENTINEL_MS < sample.broker_time_ms < _ABSURD_MS:
            return False
        if not self.samples:
            return True
        t0_ns, t1_ns, _ = self.samples[-1]
        return sample.t1_ns > t1_ns or (sample.t1_ns == t1_ns and sample.t0_ns > t0_ns)

    def _begin(self, sample: tuple[int, int, int]) -> None:
        t0_ns, t1_ns, stamp_ns = sample
        self.origin_raw_ns = t0_ns // buckets.COARSE_NS * buckets.COARSE_NS
        self.origin_ns = stamp_ns + self.quantum_ns // 2 - (t0_ns + t1_ns) // 2
        self.upper, self.lower, self.samples, self.spread.awaiting = [], [], [], []
        if not self.open_from_ns:
            self.open_from_ns = t0_ns // SEGMENT_NS * SEGMENT_NS

    def _rebase(self, raw_ns: int) -> None:
        """Move the origin to the newest sample, so that floats stay exact."""
        origin_raw_ns = raw_ns // buckets.COARSE_NS * buckets.COARSE_NS
        t, x = float(origin_raw_ns - self.origin_raw_ns), float(round(self.best))
        self.upper, self.lower = buckets.moved(self.upper, t, x), buckets.moved(self.lower, t, -x)
        self.top, self.bottom = [(a - x, b) for a, b in self.top], [(a - x, b) for a, b in self.bottom]
        self.origin_raw_ns, self.origin_ns = origin_raw_ns, self.origin_ns + int(x)
        self.solved, self.best = self.solved - t, self.best - x
        if self.kalman is not None:
            self.kalman.t, self.kalman.x = self.kalman.t - t, self.kalman.x - x
        self.spread.move(t, x)

    def _add(self, sample: tuple[int, int, int]) -> None:
        """Put what a sample bounds into the buckets, and let go of what has left the window."""
        upper, lower = self._bounds_of(sample)
        now = lower[0]
        buckets.keep(self.upper, *upper, self.drift)
        buckets.keep(self.lower, *lower, -self.drift)
        buckets.age(self.upper, now, self.solved, self.drift)
        buckets.age(self.lower, now, self.solved, -self.drift)

    def _bounds_of(self, sample: tuple[int, int, int]) -> tuple[Point, Point]:
        """The upper bound that a sample gives at its t0, and the lower one, negated, at its t1."""
        t0_ns, t1_ns, stamp_ns = sample
        upper = float(t0_ns - self.origin_raw_ns), float(stamp_ns + self.quantum_ns - t0_ns - self.origin_ns)
        return upper, (float(t1_ns - self.origin_raw_ns), float(t1_ns - stamp_ns + self.origin_ns))

    def _take(self, found: Polygon, sample: tuple[int, int, int]) -> None:
        """Answer from this polygon from now on."""
        t0_ns, t1_ns, stamp_ns = sample
        rtt, quantum = t1_ns - t0_ns, self.quantum_ns
        middle_ns = (t0_ns + t1_ns) // 2
        t, x = float(middle_ns - self.origin_raw_ns), float(stamp_ns + quantum // 2 - middle_ns - self.origin_ns)
        variance = rtt * rtt / 12 + quantum * quantum / 12
        if self.kalman is None:
            self.kalman = Kalman(t=t, x=x, xx=variance)
        else:
            self.kalman.add(t, x, variance)
        self.solved = float(t1_ns - self.origin_raw_ns)
        self.top, self.bottom = found.top, found.bottom
        if len(self.top) + len(self.bottom) > _MANY_CORNERS:  # rare; 0.1 ns and 1e-14 are within what at() adds
            self.top = [(round(a, 1), round(b, 14)) for a, b in found.top]
            self.bottom = [(round(a, 1), round(b, 14)) for a, b in found.bottom]
        lo, hi = found.bounds(0.0)
        self.spread.see((hi - lo) / 2)
        kalman = self.kalman
        kalman.x = min(max(kalman.x, lo - kalman.v * (self.solved - t)), hi - kalman.v * (self.solved - t))
        self.best = (found.a + kalman.x + kalman.v * (self.solved - t)) / 2
        self.drift = _drift(found, kalman)

    def _judge(self, upper: Hull, lower: Hull) -> None:
        """Compare an earlier best value with what is known of its time by now, from beacons before and after it."""
        due = self.spread.due(self.solved)
        if due is not None and due[0] >= max(upper.times[0], lower.times[0]):
            later = polygon.solve(upper, lower, due[0])
            if later is not None:
                self.spread.judge(later.a - due[1], due[2])

    # --- spans ---------------------------------------------------------------------------------------------------

    def _close_until(self, raw_ns: int) -> None:
        """Close everything up to raw_ns, span by span; beyond what is known to a second nothing is said."""
        hulls = None
        while self.open_from_ns < raw_ns:
            from_ns = self.open_from_ns
            to_ns = min(raw_ns, from_ns // SEGMENT_NS * SEGMENT_NS + SEGMENT_NS)
            hulls = hulls or (lower_hull(self.upper), lower_hull(self.lower))
            segment = self._segment(from_ns, to_ns, *hulls)
            if segment.hi_ns - segment.lo_ns > 2 * USELESS_NS:
                self.open_from_ns = raw_ns
                return
            self.open_from_ns = to_ns
            self._append(segment)

    def _append(self, segment: Segment) -> None:
        self.segments.append(segment)
        self.unsent += 1

    def _segment(self, from_ns: int, to_ns: int, upper: Hull, lower: Hull) -> Segment:
        """The span by the constraints on both sides of it, and by the newest polygon; both hold."""
        begin, end = float(from_ns - self.origin_raw_ns), float(to_ns - self.origin_raw_ns)
        middle = (begin + end) / 2
        at = min(max(middle, upper.times[0], lower.times[0]), self.solved)
        found = polygon.solve(upper, lower, at)
        bounds = [[polygon.bounds(self.top, self.bottom, t - self.solved) for t in (begin, end)]]
        best, drift = self.best - self.drift * (self.solved - at), self.drift
        b_lo, b_hi = self.top[0][1], self.top[-1][1]
        if found is not None:
            bounds.append([found.bounds(t - at) for t in (begin, end)])
            b_lo, b_hi = found.top[0][1], found.top[-1][1]
            if self.kalman is not None:
                best = (found.a + self.kalman.x + self.kalman.v * (at - self.kalman.t)) / 2
                drift = _drift(found, self.kalman)
        b_ppb = round(drift * 1e9)
        a = float(round(best + drift * (begin - at)))
        line = (a, a + b_ppb * (end - begin) / 1e9)
        lo = max(min(low - on for (low, _), on in zip(ends, line, strict=True)) for ends in bounds)
        hi = min(max(high - on for (_, high), on in zip(ends, line, strict=True)) for ends in bounds)
        off = round(min(max(0.0, lo), hi))
        lo_ns, hi_ns = min(floor(lo) - 2 - off, 0), max(ceil(hi) + 2 - off, 0)
        turn = polygon.KAPPA * max(abs(begin - at), abs(self.solved - begin))
        is_near = any(abs(t1_ns - self.origin_raw_ns - middle) <= FRESH_NS for _, t1_ns, _ in self.samples) or any(
            abs(t - middle) <= FRESH_NS for t, _ in self.upper
        )
        return Segment(
            t_from_ns=from_ns, t_to_ns=to_ns, a_ns=self.origin_ns + int(a) + off, b_ppb=b_ppb, lo_ns=lo_ns, hi_ns=hi_ns,
            u99_ns=self.spread.u99((hi_ns - lo_ns) / 2, max(hi_ns, -lo_ns)), b_lo_ppb=floor((b_lo - turn) * 1e9),
            b_hi_ppb=ceil((b_hi + turn) * 1e9), quality="good" if is_near else "holdover", epoch=self.epoch,
        )  # fmt: skip

    # --- steps ---------------------------------------------------------------------------------------------------

    def _step(self) -> None:
        """The newest sample contradicts the others: a clock stepped before it, and a new epoch begins with it.

        The step may be earlier than the contradiction shows, but not before the longest run of newest samples that
        agree. What is in between belongs to neither epoch, and is answered with both.
        """
        first = self._first_agreeing()
        doubtful, new = self.samples[first:], self.samples[-1]
        t0 = min(s[0] for s in doubtful) - self.origin_raw_ns
        t1 = min(s[1] for s in doubtful) - self.origin_raw_ns
        self.upper = [p for p in self.upper if p[0] < t0]
        self.lower = [p for p in self.lower if p[0] < t1]
        zone_from = max(self.open_from_ns, min(self.samples[max(first - 1, 0)][0], new[1]))
        ends = (zone_from, max(new[1], zone_from))
        old = self._old_bounds(ends)
        before, drift, kalman = self.origin_ns, self.drift, self.kalman
        self.epoch += 1
        self._begin(new)
        self._add(new)
        self.samples = [new]
        self.kalman = None
        found = polygon.solve(lower_hull(self.upper), lower_hull(self.lower), float(new[1] - self.origin_raw_ns))
        assert found is not None  # one sample with t0 <= t1 leaves room
        self._take(found, new)
        if kalman is not None and self.kalman is not None:
            self.kalman.v, self.kalman.vv = kalman.v, kalman.vv
            self.drift = drift
        if ends[0] < ends[1]:
            moved = before - self.origin_ns
            self._append(self._stepped(ends, [(lo + moved, hi + moved) for lo, hi in old]))
            self.open_from_ns = ends[1]
        del self.segments[: -2 * _SEGMENTS_KEPT]
        self.unsent = min(self.unsent, len(self.segments))

    def _first_agreeing(self) -> int:
        """Index of the first sample of the longest run of newest ones that contradict each other nowhere."""
        agreeing, other = len(self.samples) - 1, -1
        while agreeing - other > 1:
            middle = (agreeing + other) // 2
            upper: list[Point] = []
            lower: list[Point] = []
            for sample in self.samples[middle:]:
                above, below = self._bounds_of(sample)
                buckets.keep(upper, *above, self.drift)
                buckets.keep(lower, *below, -self.drift)
            now = float(self.samples[-1][1] - self.origin_raw_ns)
            if polygon.solve(lower_hull(upper), lower_hull(lower), now) is None:
                other = middle
            else:
                agreeing = middle
        return agreeing

    def _old_bounds(self, ends: tuple[int, int]) -> list[tuple[float, float]]:
        """Close the epoch that ends, and give its bounds at the ends of the doubtful time."""
        if not self.upper or not self.lower:
            return []
        upper, lower = lower_hull(self.upper), lower_hull(self.lower)
        self.solved = max(upper.times[-1], lower.times[-1])
        found = polygon.solve(upper, lower, self.solved)
        if found is None:
            return []
        self.top, self.bottom = found.top, found.bottom
        self.best, self.drift = found.a, found.b
        self._close_until(ends[0])
        return [found.bounds(t - self.origin_raw_ns - self.solved) for t in ends]

    def _stepped(self, ends: tuple[int, int], old: list[tuple[float, float]]) -> Segment:
        """The time in which a clock stepped: certain is what either epoch leaves possible."""
        both = old + [polygon.bounds(self.top, self.bottom, t - self.origin_raw_ns - self.solved) for t in ends]
        lo, hi = floor(min(lo for lo, _ in both)) - 1, ceil(max(hi for _, hi in both)) + 1
        middle = (lo + hi) // 2
        return Segment(
            t_from_ns=ends[0], t_to_ns=ends[1], a_ns=self.origin_ns + middle, b_ppb=0, lo_ns=lo - middle,
            hi_ns=hi - middle, u99_ns=(hi - lo) // 2, b_lo_ppb=-round(polygon.DRIFT_MAX * 1e9),
            b_hi_ppb=round(polygon.DRIFT_MAX * 1e9), quality="stepped", epoch=self.epoch,
        )  # fmt: skip


def _drift(found: Polygon, kalman: Kalman) -> float:
    """Of the two drifts the less uncertain one more: after a step the polygon knows nothing of it, the filter does."""
    width = found.top[-1][1] - found.top[0][1]
    variance = width * width / 12
    return (found.b * kalman.vv + kalman.v * variance) / (kalman.vv + variance)
