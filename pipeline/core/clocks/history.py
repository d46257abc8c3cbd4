"""What another clock of a node showed over the node's raw clock, from readings of both; and back again.

A wall clock is set, slewed and stepped; CLOCK_MONOTONIC_RAW is not. Between two readings nothing is assumed of the
other clock but that it was not moved there and back: how far it is ahead of raw lies between what both readings say. So
a stamp of it gives an interval of raw time that is certain, and a step is undone wherever a reading separates its
sides.
"""

from typing import Final

from msgspec import Struct, field

# Readings that lie on one line within this are kept as one stretch.
STRAIGHT_NS: Final = 100_000
# What a clock is moved by more than slewing explains, is a step. The kernel slews at 500 ppm, besides its frequency.
STEP_NS: Final = 500_000
SLEW_PPM: Final = 600
# chrony slews at up to a tenth where it is told to (`maxslewrate`); what is moved faster has jumped.
FAST_SLEW_PPM: Final = 100_000
# A stamp may be later than the last reading by so much: what is read together is put into a batch shortly after.
AHEAD_NS: Final = 5_000_000_000
KEPT: Final = 256


class Stretch(Struct, kw_only=True):
    """Raw time between two readings in which the other clock ran straight, within `off_ns`.

    `ahead_ns` is the other clock minus raw; `unsure_ns` is how far the last reading may be off. `steps` counts the
    steps before it; `top_ns` is the highest that was shown in it or before it.
    """

    from_ns: int
    from_ahead_ns: int
    to_ns: int
    to_ahead_ns: int
    bent_ns: int = 0
    off_ns: int = 0
    unsure_ns: int = 0
    steps: int = 0
    is_step: bool = False
    top_ns: int = 0

    def ahead_at(self, raw_ns: int) -> int:
        """How far the other clock is ahead on the straight line."""
        span_ns = self.to_ns - self.from_ns
        if span_ns == 0:
            return self.to_ahead_ns
        return self.from_ahead_ns + (self.to_ahead_ns - self.from_ahead_ns) * (raw_ns - self.from_ns) // span_ns


class Span(Struct, frozen=True, kw_only=True):
    """Raw time in which something happened: somewhere in [lo_ns, hi_ns], after `steps` steps of the other clock.

    `steps` is None where the clock was moved meanwhile.
    """

    lo_ns: int
    hi_ns: int
    steps: int | None = 0

    @property
    def middle_ns(self) -> int:
        """The raw time in the middle."""
        return (self.lo_ns + self.hi_ns) // 2


class Shown(Struct, frozen=True, kw_only=True):
    """What a clock showed, give or take `off_ns`, after `steps` steps."""

    ns: int
    off_ns: int
    steps: int


class History(Struct, kw_only=True):
    """Readings of one boot, as few stretches as they need."""

    stretches: list[Stretch] = field(default_factory=list)
    stepped_ns: int = 0
    stepped_at_ns: int = 0

    @property
    def last_ns(self) -> int | None:
        """Raw time of the last reading."""
        return self.stretches[-1].to_ns if self.stretches else None

    @property
    def ahead_ns(self) -> int | None:
        """How far the other clock was ahead of raw at the last reading."""
        return self.stretches[-1].to_ahead_ns if self.stretches else None

    @property
    def steps(self) -> int:
        """How often the other clock was stepped so far."""
        return self.stretches[-1].steps if self.stretches else 0

    def note(self, raw_ns: int, shown_ns: int, width_ns: int = 0) -> int:
        """Take a reading: shown within `width_ns` after raw was read. How far the clock was stepped before it, in ns.

        A reading that is not later than the last one says nothing (a recorded clock stands still).
        """
        ahead_ns, unsure_ns = shown_ns - raw_ns - width_ns // 2, width_ns // 2 + 1
        if not self.stretches:
            self.stretches.append(_stretch(raw_ns, ahead_ns, raw_ns, ahead_ns, unsure_ns))
            return 0
        last = self.stretches[-1]
        if raw_ns <= last.to_ns:
            return 0
        moved_ns = ahead_ns - last.to_ahead_ns
        slewed_ns = (raw_ns - last.to_ns) * SLEW_PPM // 1_000_000
        if abs(moved_ns) - unsure_ns - last.unsure_ns <= STEP_NS + slewed_ns:
            self._extend(last, raw_ns, ahead_ns, unsure_ns)
            return 0
        step = _stretch(last.to_ns, last.to_ahead_ns, raw_ns, ahead_ns, unsure_ns + last.unsure_ns + slewed_ns)
        step.is_step = True
        self._append(step)
        self._append(_stretch(raw_ns, ahead_ns, raw_ns, ahead_ns, unsure_ns), steps=1)
        self.stepped_ns, self.stepped_at_ns = moved_ns, raw_ns
        return moved_ns

    def _extend(self, last: Stretch, raw_ns: int, ahead_ns: int, unsure_ns: int) -> None:
        """Longer by a reading that lies on the line, else a new stretch from the last reading on."""
        wobble_ns = abs(ahead_ns - last.ahead_at(raw_ns)) + unsure_ns
        longer = _stretch(last.from_ns, last.from_ahead_ns, raw_ns, ahead_ns, unsure_ns)
        bent_ns = abs(longer.ahead_at(last.to_ns) - last.to_ahead_ns)
        longer.bent_ns = last.bent_ns + bent_ns
        if max(longer.bent_ns, wobble_ns) > STRAIGHT_NS and last.to_ns > last.from_ns:
            off_ns = max(wobble_ns, unsure_ns + last.unsure_ns)
            self._append(_stretch(last.to_ns, last.to_ahead_ns, raw_ns, ahead_ns, unsure_ns, off_ns=off_ns))
            return
        longer.off_ns = max(last.off_ns, wobble_ns) + bent_ns
        longer.steps = last.steps
        longer.top_ns = max(last.top_ns, longer.top_ns)
        self.stretches[-1] = longer

    def _append(self, stretch: Stretch, steps: int = 0) -> None:
        stretch.steps = self.stretches[-1].steps + steps
        stretch.top_ns = max(stretch.top_ns, self.stretches[-1].top_ns)
        self.stretches.append(stretch)
        del self.stretches[:-KEPT]

    def shown_at(self, raw_ns: int) -> Shown | None:
        """What the other clock showed at a raw time, and after how many steps; None where no reading is near."""
        for stretch in reversed(self.stretches):
            if raw_ns >= stretch.from_ns:
                past_ns = raw_ns - stretch.to_ns
                if past_ns > AHEAD_NS or stretch.is_step:
                    return None
                off_ns = stretch.off_ns if past_ns <= 0 else stretch.off_ns + STEP_NS + past_ns * SLEW_PPM // 1_000_000
                return Shown(
                    ns=raw_ns + stretch.ahead_at(min(raw_ns, stretch.to_ns)), off_ns=off_ns, steps=stretch.steps
                )
        return None

    def raw_of(self, shown_ns: int, resolution_ns: int = 0) -> list[Span]:
        """When the other clock may have shown this or up to `resolution_ns` more, latest first.

        None where no reading covers it; what began before the first reading is not covered.
        """
        if not self.stretches:
            return []
        oldest = self.stretches[0]
        found: list[Span] = []
        for stretch in reversed(self.stretches):
            if shown_ns > stretch.top_ns:
                break
            if stretch is not oldest or shown_ns >= oldest.from_ns + oldest.from_ahead_ns - oldest.off_ns:
                found += _in(stretch, shown_ns, resolution_ns)
        return _joined([*self._after(shown_ns, resolution_ns), *found])

    def _after(self, shown_ns: int, resolution_ns: int) -> list[Span]:
        """After the last reading: no step and no more than slewing is assumed until the next one."""
        last = self.stretches[-1]
        raw_ns = shown_ns - last.to_ahead_ns
        since_ns = raw_ns - last.to_ns
        until_ns = since_ns + resolution_ns
        if since_ns > AHEAD_NS or until_ns < -last.off_ns:
            return []
        off_ns = last.off_ns + STEP_NS + max(until_ns, 0) * SLEW_PPM // 1_000_000
        lo_ns, hi_ns = max(raw_ns - off_ns, last.to_ns), raw_ns + resolution_ns + off_ns
        return [Span(lo_ns=lo_ns, hi_ns=hi_ns, steps=last.steps)]


def _stretch(
    from_ns: int, from_ahead_ns: int, to_ns: int, to_ahead_ns: int, unsure_ns: int, *, off_ns: int = 0
) -> Stretch:
    off_ns = off_ns or unsure_ns
    return Stretch(
        from_ns=from_ns, from_ahead_ns=from_ahead_ns, to_ns=to_ns, to_ahead_ns=to_ahead_ns, off_ns=off_ns,
        unsure_ns=unsure_ns, top_ns=to_ns + max(from_ahead_ns, to_ahead_ns) + off_ns,
    )  # fmt: skip


def _in(stretch: Stretch, shown_ns: int, resolution_ns: int) -> list[Span]:
    """Raw times of a stretch at which this may have been shown, latest first."""
    aheads, until_ns = (stretch.to_ahead_ns, stretch.from_ahead_ns), shown_ns + resolution_ns
    if not stretch.is_step:
        raw_ns = _straight(stretch, shown_ns)
        end_ns = _straight(stretch, until_ns) if resolution_ns else raw_ns
        possible: list[tuple[int, int, int | None]] = [(raw_ns, end_ns, stretch.steps)]
    elif abs(aheads[0] - aheads[1]) > (stretch.to_ns - stretch.from_ns) * FAST_SLEW_PPM // 1_000_000:
        sides = zip(aheads, (stretch.steps + 1, stretch.steps), strict=True)
        possible = [(shown_ns - ahead_ns, until_ns - ahead_ns, steps) for ahead_ns, steps in sides]
    else:
        possible = [(shown_ns - max(aheads), until_ns - min(aheads), None)]
    spans = []
    for lo_ns, hi_ns, steps in possible:
        lo_ns, hi_ns = max(lo_ns - stretch.off_ns, stretch.from_ns), min(hi_ns + stretch.off_ns, stretch.to_ns)
        if lo_ns <= hi_ns:
            spans.append(Span(lo_ns=lo_ns, hi_ns=hi_ns, steps=steps))
    return sorted(spans, key=lambda span: -span.hi_ns)


def _straight(stretch: Stretch, shown_ns: int) -> int:
    """The raw time on the line of a stretch; looked up twice, because how far ahead it was hangs on when that was."""
    raw_ns = shown_ns - stretch.ahead_at(shown_ns - stretch.to_ahead_ns)
    return shown_ns - stretch.ahead_at(raw_ns)


def _joined(spans: list[Span]) -> list[Span]:
    """Spans, latest first, with those made one that touch."""
    joined: list[Span] = []
    for span in spans:
        if joined and span.hi_ns >= joined[-1].lo_ns:
            last = joined[-1]
            steps = last.steps if last.steps == span.steps else None
            joined[-1] = Span(lo_ns=min(span.lo_ns, last.lo_ns), hi_ns=max(span.hi_ns, last.hi_ns), steps=steps)
        else:
            joined.append(span)
    return joined
