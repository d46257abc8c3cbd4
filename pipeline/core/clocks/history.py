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
# A reading that comes late holds for the lines that came with it: so far around it the clock may have been there.
AROUND_NS: Final = 10_000_000_000


class Stretch(Struct, kw_only=True):
    """Raw time between two readings in which the other clock ran straight, within `off_ns`.

    `ahead_ns` is the other clock minus raw; `unsure_ns` is how far the last reading may be off. `steps` counts the
    steps before it; `top_ns` is the highest that was shown in it or before it. What `is_late` was learned afterwards:
    it has no count, since events behind it are already named by theirs.
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
    is_late: bool = False
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


class Lost(Struct, kw_only=True):
    """Stretches that are no longer kept, all in one: how far ahead the other clock was at least and at most (ns)."""

    from_ns: int
    to_ns: int
    least_ns: int
    most_ns: int

    def take(self, stretch: Stretch) -> None:
        """One more."""
        aheads = (stretch.from_ahead_ns, stretch.to_ahead_ns)
        self.to_ns = stretch.to_ns
        self.least_ns = min(self.least_ns, min(aheads) - stretch.off_ns)
        self.most_ns = max(self.most_ns, max(aheads) + stretch.off_ns)

    def raw_of(self, shown_ns: int, more_ns: int) -> list[Span]:
        """When this, or up to `more_ns` more, may have been shown."""
        lo_ns, hi_ns = max(shown_ns - self.most_ns, self.from_ns), min(shown_ns + more_ns - self.least_ns, self.to_ns)
        return [Span(lo_ns=lo_ns, hi_ns=hi_ns, steps=None)] if lo_ns <= hi_ns else []


class Shown(Struct, frozen=True, kw_only=True):
    """What a clock showed, give or take `off_ns`, after `steps` steps."""

    ns: int
    off_ns: int
    steps: int


class History(Struct, kw_only=True):
    """Readings of one boot, as few stretches as they need."""

    stretches: list[Stretch] = field(default_factory=list)
    stepped_ns: int = 0
    lost: Lost | None = None

    @property
    def last_ns(self) -> int | None:
        """Raw time of the last reading."""
        return self.stretches[-1].to_ns if self.stretches else None

    @property
    def steps(self) -> int:
        """How many steps of the other clock readings tell of."""
        return self.stretches[-1].steps if self.stretches else 0

    @property
    def ahead_ns(self) -> int | None:
        """How far the other clock was ahead of raw at the last reading."""
        return self.stretches[-1].to_ahead_ns if self.stretches else None

    def note(self, raw_ns: int, shown_ns: int, width_ns: int = 0) -> int:
        """Take a reading: shown within `width_ns` after raw was read. How far the clock was stepped before it, in ns.

        One that is older than the last (a batch that waited in a spool) is put between those around it.
        """
        ahead_ns, unsure_ns = shown_ns - raw_ns - width_ns // 2, width_ns // 2 + 1
        if not self.stretches:
            self.stretches.append(_stretch(raw_ns, ahead_ns, raw_ns, ahead_ns, unsure_ns))
            return 0
        last = self.stretches[-1]
        if raw_ns <= last.to_ns:
            self._note_late(raw_ns, ahead_ns, unsure_ns)
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
        self.stepped_ns = moved_ns
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

    def _note_late(self, raw_ns: int, ahead_ns: int, unsure_ns: int) -> None:
        """A reading from between two others. One that contradicts them shows that the clock was moved and back."""
        found = next((n for n, s in enumerate(self.stretches) if s.from_ns < raw_ns < s.to_ns), None)
        if found is None or len(self.stretches) + 4 > KEPT:
            return
        one = self.stretches[found]
        wobble_ns = abs(ahead_ns - one.ahead_at(raw_ns))
        if not one.is_step and wobble_ns <= max(one.off_ns, STRAIGHT_NS) + unsure_ns:
            one.off_ns = max(one.off_ns, min(wobble_ns + unsure_ns, STRAIGHT_NS + 2 * unsure_ns))
            pieces = [one]
        else:
            found, one = self._without_returns(found, raw_ns)
            pieces = _split(one, raw_ns, ahead_ns, unsure_ns)
            before = self.stretches[found - 1] if found else None
            if before is not None and _is_one_line(before, pieces[0]):
                off_ns = max(before.off_ns, pieces[0].off_ns + 2 * STRAIGHT_NS)
                pieces[0] = _stretch(
                    before.from_ns, before.from_ahead_ns, raw_ns, ahead_ns, pieces[0].unsure_ns, off_ns=off_ns
                )
                pieces[0].is_late, pieces[0].steps = True, one.steps
                found -= 1
                del self.stretches[found]
        self.stretches[found : found + 1] = pieces
        top_ns = self.stretches[found - 1].top_ns if found else pieces[0].top_ns
        for each in self.stretches[found:]:
            each.top_ns = top_ns = max(each.top_ns, each.to_ns + each.to_ahead_ns + each.off_ns, top_ns)

    def _without_returns(self, found: int, raw_ns: int) -> tuple[int, Stretch]:
        """The stretch that a late reading contradicts, reaching to the late readings near it.

        That the clock was back where others say between two late readings was only supposed.
        """
        one = self.stretches[found]
        if one.is_late or one.is_step:
            return found, one
        before = self.stretches[found - 1] if found else None
        after = self.stretches[found + 1] if found + 1 < len(self.stretches) else None
        if before is not None and before.is_late and raw_ns - one.from_ns <= AROUND_NS:
            to_ns = min(raw_ns + AROUND_NS, one.to_ns)
            rest = _stretch(to_ns, one.ahead_at(to_ns), one.to_ns, one.to_ahead_ns, one.unsure_ns, off_ns=one.off_ns)
            one = _stretch(before.from_ns, before.from_ahead_ns, to_ns, one.ahead_at(to_ns), one.unsure_ns)
            one.is_step = one.is_late = True
            rest.steps = one.steps = before.steps
            self.stretches[found - 1 : found + 1] = [one, rest]
            return found - 1, one
        if after is not None and after.is_late and one.to_ns - raw_ns <= AROUND_NS:
            from_ns = max(raw_ns - AROUND_NS, one.from_ns)
            rest = _stretch(
                one.from_ns, one.from_ahead_ns, from_ns, one.ahead_at(from_ns), one.unsure_ns, off_ns=one.off_ns
            )
            one = _stretch(from_ns, one.ahead_at(from_ns), after.to_ns, after.to_ahead_ns, one.unsure_ns)
            one.is_step = one.is_late = True
            rest.steps = one.steps = after.steps
            self.stretches[found : found + 2] = [rest, one]
            return found + 1, one
        return found, one

    def _append(self, stretch: Stretch, steps: int = 0) -> None:
        stretch.steps = self.stretches[-1].steps + steps
        stretch.top_ns = max(stretch.top_ns, self.stretches[-1].top_ns)
        self.stretches.append(stretch)
        for old in self.stretches[:-KEPT]:
            if self.lost is None:
                ahead_ns = old.from_ahead_ns
                self.lost = Lost(from_ns=old.from_ns, to_ns=old.to_ns, least_ns=ahead_ns, most_ns=ahead_ns)
            self.lost.take(old)
        del self.stretches[:-KEPT]

    def shown_at(self, raw_ns: int) -> Shown | None:
        """What the other clock showed at a raw time, and after how many steps; None where no reading is near."""
        for stretch in reversed(self.stretches):
            if raw_ns >= stretch.from_ns:
                past_ns = raw_ns - stretch.to_ns
                if past_ns > AHEAD_NS or stretch.is_step or stretch.is_late:
                    return None
                off_ns = stretch.off_ns if past_ns <= 0 else stretch.off_ns + STEP_NS + past_ns * SLEW_PPM // 1_000_000
                return Shown(
                    ns=raw_ns + stretch.ahead_at(min(raw_ns, stretch.to_ns)), off_ns=off_ns, steps=stretch.steps
                )
        return None

    def raw_of(self, shown_ns: int, more_ns: int = 0) -> list[Span]:
        """When the other clock may have shown this, or up to `more_ns` more, latest first; none where no reading says.

        A step may lie between what a coarse stamp says and what it leaves out.
        """
        found: list[Span] = []
        if self.stretches and self.lost is None:
            first = self.stretches[0]
            if shown_ns < first.from_ns + first.from_ahead_ns - first.off_ns <= shown_ns + more_ns:
                return []  # a part of what the stamp leaves out was before the first reading
        for stretch in reversed(self.stretches):
            if shown_ns > stretch.top_ns:
                break
            found += _in(stretch, shown_ns, more_ns)
        forgotten = self.lost.raw_of(shown_ns, more_ns) if self.lost is not None else []
        return _joined([*self._after(shown_ns, more_ns), *found, *forgotten])

    def _after(self, shown_ns: int, more_ns: int) -> list[Span]:
        """After the last reading: no step and no more than slewing is assumed until the next one."""
        if not self.stretches:
            return []
        last = self.stretches[-1]
        raw_ns = shown_ns - last.to_ahead_ns
        since_ns = raw_ns - last.to_ns
        if since_ns + more_ns < -last.off_ns or since_ns > AHEAD_NS:
            return []
        off_ns = last.off_ns + STEP_NS + max(since_ns + more_ns, 0) * SLEW_PPM // 1_000_000
        return [Span(lo_ns=max(raw_ns - off_ns, last.to_ns), hi_ns=raw_ns + more_ns + off_ns, steps=last.steps)]


def _stretch(
    from_ns: int, from_ahead_ns: int, to_ns: int, to_ahead_ns: int, unsure_ns: int, *, off_ns: int = 0
) -> Stretch:
    off_ns = off_ns or unsure_ns
    return Stretch(
        from_ns=from_ns, from_ahead_ns=from_ahead_ns, to_ns=to_ns, to_ahead_ns=to_ahead_ns, off_ns=off_ns,
        unsure_ns=unsure_ns, top_ns=to_ns + max(from_ahead_ns, to_ahead_ns) + off_ns,
    )  # fmt: skip


def _split(one: Stretch, raw_ns: int, ahead_ns: int, unsure_ns: int) -> list[Stretch]:
    """A stretch in which the clock was elsewhere at one moment."""
    from_ns, to_ns = one.from_ns, one.to_ns
    if not one.is_step and not one.is_late:
        # Between readings that were in time it was where they say.
        from_ns, to_ns = max(raw_ns - AROUND_NS, from_ns), min(raw_ns + AROUND_NS, to_ns)
    ends = (one.ahead_at(from_ns), one.ahead_at(to_ns)) if not one.is_step else (one.from_ahead_ns, one.to_ahead_ns)
    pieces = [_stretch(one.from_ns, one.from_ahead_ns, from_ns, ends[0], one.unsure_ns, off_ns=one.off_ns)]
    pieces[0].is_late = one.is_late
    sides = ((from_ns, ends[0], raw_ns, ahead_ns), (raw_ns, ahead_ns, to_ns, ends[1]))
    for side in sides:
        off_ns = one.unsure_ns if one.is_late or one.is_step else one.off_ns
        piece = _stretch(*side, max(unsure_ns, one.unsure_ns), off_ns=unsure_ns + off_ns)
        may_ns = STEP_NS + (side[2] - side[0]) * SLEW_PPM // 1_000_000 + unsure_ns + one.unsure_ns
        piece.is_step, piece.is_late = abs(side[3] - side[1]) > may_ns, True
        if not piece.is_step:
            piece.off_ns += abs(side[3] - side[1])
        pieces.append(piece)
    last = _stretch(to_ns, ends[1], one.to_ns, one.to_ahead_ns, one.unsure_ns, off_ns=one.off_ns)
    last.is_late = one.is_late
    pieces.append(last)
    if one.is_step or one.is_late:
        pieces = pieces[1:3]  # the outer ones have no length
    for piece in pieces:
        piece.steps = one.steps
    return pieces


def _is_one_line(before: Stretch, after: Stretch) -> bool:
    """Whether two that came late are one."""
    if before.is_step or after.is_step or not (before.is_late and after.is_late) or before.to_ns != after.from_ns:
        return False
    return abs(after.to_ahead_ns - before.from_ahead_ns) <= STRAIGHT_NS


def _in(stretch: Stretch, shown_ns: int, more_ns: int) -> list[Span]:
    """Raw times of a stretch at which this may have been shown, latest first."""
    aheads = (stretch.to_ahead_ns, stretch.from_ahead_ns)
    if not stretch.is_step:
        # Twice, because how far it was ahead hangs on when that was.
        raw_ns = shown_ns - stretch.ahead_at(shown_ns - stretch.to_ahead_ns)
        raw_ns = shown_ns - stretch.ahead_at(raw_ns)
        if more_ns:
            last_ns = shown_ns + more_ns
            last_ns -= stretch.ahead_at(last_ns - stretch.ahead_at(last_ns - stretch.to_ahead_ns))
            more_ns = max(last_ns - raw_ns, 0)
        possible: list[tuple[int, int, int | None]] = [(raw_ns, raw_ns, stretch.steps)]
    elif abs(aheads[0] - aheads[1]) > (stretch.to_ns - stretch.from_ns) * FAST_SLEW_PPM // 1_000_000:
        after_ns, before_ns = (shown_ns - ahead_ns for ahead_ns in aheads)
        possible = [(after_ns, after_ns, stretch.steps + 1), (before_ns, before_ns, stretch.steps)]
    else:
        possible = [(shown_ns - max(aheads), shown_ns - min(aheads), None)]
    spans = []
    if stretch.is_late:
        possible = [(lo_ns, hi_ns, None) for lo_ns, hi_ns, _ in possible]
    for lo_ns, hi_ns, steps in possible:
        lo_ns, hi_ns = (
            max(lo_ns - stretch.off_ns, stretch.from_ns),
            min(hi_ns + more_ns + stretch.off_ns, stretch.to_ns),
        )
        if lo_ns <= hi_ns:
            spans.append(Span(lo_ns=lo_ns, hi_ns=hi_ns, steps=steps))
    return sorted(spans, key=lambda span: -span.hi_ns)


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
